//! Actions on one job.

use std::time::Duration;

use ganger_document::names::read;
use ganger_shard::Handle;
use ganger_types::command::{Alter, Cancel, Delete, Retry, Selection, Start, TimeOut};
use ganger_types::{
    Command, JobId, JobState, LabelKey, LabelValue, Priority, Queue, Reply, StoredJob, Tag,
};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::links::job_name;
use crate::notice::Notice;
use crate::pages::find_job;
use crate::params::Params;
use crate::svg;
use crate::text::{isolated, plain};
use crate::view::View;

use super::cancellation::{consequence, effects};
use super::{ASK_FORM, Done, Form, Question, apply};

/// The job that a form is about.
struct Target {
    shard: Handle,
    job: StoredJob,
    name: String,
}

impl Target {
    async fn of(view: &View, form: &Form) -> Result<Self, Fault> {
        let reference = form
            .text("job")?
            .ok_or_else(|| Fault::value("job", "is missing"))?;
        let (shard, job) = find_job(view, &read(reference.as_bytes())).await?;
        let name = job_name(shard.id(), &job.record.id);
        Ok(Self { shard, job, name })
    }

    fn id(&self) -> JobId {
        self.job.record.id.clone()
    }

    fn done(&self, view: &View, words: &str) -> Done {
        let mut notice = Notice::done(format!("{words} {}.", plain(&self.name)));
        let address = view.links.job(self.shard.id(), &self.job.record.id);
        notice.link = Some(("Show the job".to_owned(), address.as_str().to_owned()));
        Done::Notice { notice, to: None }
    }

    fn is(&self, needed: impl Fn(JobState) -> bool, next: &str) -> Result<(), Fault> {
        let state = self.job.record.state;
        if needed(state) {
            return Ok(());
        }
        Err(Fault::new(
            "wrong_state",
            "The job is in another state",
            format!("job {} is {state}. {next}", self.name),
        ))
    }
}

pub(super) async fn retry(view: &View, form: &Form) -> Result<Done, Fault> {
    let target = Target::of(view, form).await?;
    target.is(
        JobState::is_terminal,
        "Only a job that has ended can be retried: cancel it first",
    )?;
    let command = Retry {
        namespace: view.namespace().clone(),
        jobs: vec![target.id()],
        queue: None,
        dependents: false,
        graph: None,
    };
    match apply(&target.shard, Command::Retry(Box::new(command))).await? {
        Reply::Retried { count: 0, .. } => Err(unchanged(&target)),
        _ => Ok(target.done(view, "Retried")),
    }
}

fn unchanged(target: &Target) -> Fault {
    Fault::new(
        "wrong_state",
        "The job is in another state",
        format!("job {} was not in a state for it any more", target.name),
    )
}

/// A field for a reason, free to fill in.
pub(super) fn reason_field() -> Markup {
    html! { p { label { "Reason " input name="reason" form=(ASK_FORM) maxlength="1000" autocomplete="off"; } } }
}

pub(super) async fn cancel(view: &View, form: &Form) -> Result<Done, Fault> {
    let target = Target::of(view, form).await?;
    target.is(|state| !state.is_terminal(), "It has ended already")?;
    if !form.is_confirmed() {
        let effects = effects(view, &target.shard, target.id()).await?;
        let content = html! {
            (summary(&target))
            p { (consequence(&effects)) @if target.job.record.state == JobState::Running { " Its worker is told to stop; what it has done already stays done." } }
            (reason_field())
        };
        return Ok(question(
            view,
            form,
            &target,
            "Cancel",
            "cancelJob",
            "Cancel this job",
            content,
        ));
    }
    let command = Cancel {
        namespace: view.namespace().clone(),
        jobs: Selection::Jobs(vec![target.id()]),
        reason: form.fields.text("reason")?.unwrap_or_default().to_owned(),
    };
    match apply(&target.shard, Command::Cancel(Box::new(command))).await? {
        Reply::Changed { count: 0, .. } => Err(unchanged(&target)),
        _ => Ok(target.done(view, "Cancelled")),
    }
}

pub(super) async fn time_out(view: &View, form: &Form) -> Result<Done, Fault> {
    let target = Target::of(view, form).await?;
    target.is(
        |state| state == JobState::Running,
        "Only a running attempt can be timed out",
    )?;
    if !form.is_confirmed() {
        let content = html! {
            (summary(&target))
            p { "The lease of its worker ends now. The job goes back on its queue, before the others of its priority. If the worker still runs, the program may run twice at the same time." }
        };
        return Ok(question(
            view,
            form,
            &target,
            "Time out the attempt of",
            "timeOutJob",
            "Time out attempt",
            content,
        ));
    }
    let command = TimeOut {
        namespace: view.namespace().clone(),
        jobs: vec![target.id()],
    };
    match apply(&target.shard, Command::TimeOut(command)).await? {
        Reply::Changed { count: 0, .. } => Err(unchanged(&target)),
        _ => Ok(target.done(view, "Timed out the attempt of")),
    }
}

pub(super) async fn delete(view: &View, form: &Form) -> Result<Done, Fault> {
    let target = Target::of(view, form).await?;
    if !form.is_confirmed() {
        let content = html! {
            (summary(&target))
            p { @if !target.job.record.state.is_terminal() { "It is cancelled first. " } "Its payload, result, log and history are removed. This cannot be undone." }
        };
        return Ok(question(
            view,
            form,
            &target,
            "Delete",
            "deleteJob",
            "Delete this job",
            content,
        ));
    }
    let command = Delete {
        namespace: view.namespace().clone(),
        jobs: vec![target.id()],
    };
    match apply(&target.shard, Command::Delete(command)).await? {
        Reply::Changed { count: 0, .. } => Err(unchanged(&target)),
        _ => {
            let notice = Notice::done(format!("Deleted {}.", plain(&target.name)));
            // The page of the job is gone with it.
            let to = form.back().filter(|back| !back.contains("/ui/job?"));
            let to = to.map_or_else(|| view.links.to("/jobs").as_str().to_owned(), str::to_owned);
            Ok(Done::Notice {
                notice,
                to: Some(to),
            })
        }
    }
}

fn summary(target: &Target) -> Markup {
    let record = &target.job.record;
    html! {
        p { (svg::state(record.state)) " " (isolated(&target.name)) ", kind " (crate::text::name(record.kind.as_bytes())) ", queue " (crate::text::name(record.queue.as_bytes())) "." }
    }
}

fn question(
    view: &View,
    form: &Form,
    target: &Target,
    verb: &str,
    action: &'static str,
    button: &str,
    content: Markup,
) -> Done {
    let question = Question {
        heading: format!("{verb} job {}?", plain(&target.name)),
        content,
        button: button.to_owned(),
        action,
        pairs: &[("job", &target.name)],
        is_danger: true,
    };
    question.page(view, form)
}

/// Changes a job: its start, its tracking, or what the form of changes says.
pub(super) async fn alter(view: &View, form: &Form) -> Result<Done, Fault> {
    if form.with.text("scope")? == Some("selected") {
        return super::alter::selected(view, form).await;
    }
    let target = Target::of(view, form).await?;
    let mut alter = Alter {
        namespace: view.namespace().clone(),
        job: Some(target.id()),
        ..Alter::default()
    };
    let mut words = "Changed";
    let mut undo = None;
    if form.with.text("start")? == Some("now") {
        alter.start = Some(Start::Now);
        words = "Made ready:";
    } else if let Some(tracked) = form.with.text("tracked")? {
        let is_tracked = tracked == "true";
        alter.tracked = Some(is_tracked);
        words = if is_tracked {
            "Tracks"
        } else {
            "No longer tracks"
        };
        let back = [
            ("job", target.name.as_str()),
            ("tracked", if is_tracked { "false" } else { "true" }),
        ];
        undo = Some((
            "Undo".to_owned(),
            "alterJob",
            crate::widgets::fields(view, &back),
        ));
    } else if !form.is_confirmed() {
        return Ok(change_form(view, form, &target, None));
    } else if let Err(fault) = read_changes(&form.fields, &target, &mut alter) {
        return Ok(change_form(view, form, &target, Some(&fault)));
    }
    match apply(&target.shard, Command::Alter(Box::new(alter))).await? {
        Reply::Altered { .. } => {
            let Done::Notice { mut notice, to } = target.done(view, words) else {
                return Err(Fault::unexpected_reply());
            };
            notice.undo = undo;
            Ok(Done::Notice { notice, to })
        }
        _ => Err(Fault::unexpected_reply()),
    }
}

/// Reads the fields of the form of changes. What is as it was stays.
fn read_changes(fields: &Params, target: &Target, alter: &mut Alter) -> Result<(), Fault> {
    let record = &target.job.record;
    let most = Priority::WHOLE_MAX;
    let priority: Option<i64> = fields.number("priority", -most, most)?;
    alter.priority = priority
        .and_then(Priority::whole)
        .filter(|priority| *priority != record.priority);
    alter.queue = fields
        .name::<Queue>("queue")?
        .filter(|queue| *queue != record.queue);
    if let Some(delay) = fields.text("delay")? {
        let delay = ganger_document::time::read_span(delay)
            .map_err(|reason| Fault::value("Start in", &reason))?;
        alter.start = Some(if delay == Duration::ZERO {
            Start::Now
        } else {
            Start::After(delay)
        });
    }
    let tags: Vec<Tag> = words(fields.text("tags")?.unwrap_or_default())
        .map(|word| {
            Tag::new(read(word.as_bytes()))
                .map_err(|error| Fault::value("Tags", &error.to_string()))
        })
        .collect::<Result<_, _>>()?;
    alter.tags_added = tags
        .iter()
        .filter(|tag| !record.tags.contains(tag))
        .cloned()
        .collect();
    alter.tags_removed = record
        .tags
        .iter()
        .filter(|tag| !tags.contains(tag))
        .cloned()
        .collect();
    let labels = read_labels(fields.text("labels")?.unwrap_or_default())?;
    let kept = |key: &LabelKey| labels.iter().any(|(known, _)| known == key);
    alter.labels_removed = record
        .labels
        .iter()
        .map(|(key, _)| key)
        .filter(|key| !kept(key))
        .cloned()
        .collect();
    alter.labels_set = labels
        .into_iter()
        .filter(|pair| !record.labels.contains(pair))
        .collect();
    alter.note = fields
        .text("note")?
        .map(|note| (note.to_owned(), String::new()));
    Ok(())
}

/// Words with spaces between them.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

/// Labels from lines of the form `KEY=VALUE`; empty lines are ignored.
pub(crate) fn read_labels(text: &str) -> Result<Vec<(LabelKey, LabelValue)>, Fault> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (key, value) = line
                .split_once('=')
                .ok_or_else(|| Fault::value("Labels", &format!("{line:?} must be KEY=VALUE")))?;
            let wrong = |error: ganger_types::NameError| Fault::value("Labels", &error.to_string());
            Ok((
                LabelKey::new(read(key.as_bytes())).map_err(wrong)?,
                LabelValue::new(read(value.as_bytes())).map_err(wrong)?,
            ))
        })
        .collect()
}

fn change_form(view: &View, form: &Form, target: &Target, refusal: Option<&Fault>) -> Done {
    let record = &target.job.record;
    let text = |bytes: &[u8]| ganger_document::names::text(bytes);
    let tags: Vec<String> = record.tags.iter().map(|tag| text(tag.as_bytes())).collect();
    let labels: Vec<String> = record
        .labels
        .iter()
        .map(|(key, value)| format!("{}={}", text(key.as_bytes()), text(value.as_bytes())))
        .collect();
    let given = |name: &str, now: String| {
        if refusal.is_some() {
            form.fields
                .text(name)
                .ok()
                .flatten()
                .unwrap_or_default()
                .to_owned()
        } else {
            now
        }
    };
    let content = html! {
        (summary(target))
        @if let Some(fault) = refusal { div.alert role="alert" { p { (isolated(&fault.detail)) } } }
        div.fields {
            label { "Priority" input name="priority" form=(ASK_FORM) inputmode="numeric" value=(given("priority", record.priority.to_whole().to_string())); }
            label { "Queue" input name="queue" form=(ASK_FORM) maxlength="512" value=(given("queue", text(record.queue.as_bytes()))); }
            label { "Start in" input name="delay" form=(ASK_FORM) placeholder="such as 10m; empty: no change" value=(given("delay", String::new())); }
            label { "Tags" input name="tags" form=(ASK_FORM) value=(given("tags", tags.join(" "))); }
            label { "Labels" textarea name="labels" form=(ASK_FORM) rows="3" placeholder="KEY=VALUE, one a line" { (given("labels", labels.join("\n"))) } }
            label { "Note" input name="note" form=(ASK_FORM) maxlength="1000" value=(given("note", String::new())); }
        }
    };
    let question = Question {
        heading: format!("Change job {}", plain(&target.name)),
        content,
        button: "Change this job".to_owned(),
        action: "alterJob",
        pairs: &[("job", &target.name), ("ask", "1")],
        is_danger: false,
    };
    question.again(view, form, refusal)
}
