//! Actions: what a button or a form asks for is checked, asked about if it takes something away, done, and reported.
//!
//! Every action has the name of its operation in the table of the HTTP API, whose right it takes. Nothing here decides
//! whether an action is possible: the engine does, at the moment of the action.

mod alter;
mod bulk;
mod cancellation;
pub(crate) mod changes;
mod done;
mod enqueue;
mod graphs;
mod jobs;
mod namespaces;
mod operations;
mod queues;
mod rest;
mod schedules;

use std::net::SocketAddr;

use ganger_access::{Operation, Outcome, Record};
use ganger_document::names::{Name, show};
use ganger_shard::Handle;
use ganger_types::{Command, Reply, ShardId};
use maud::{Markup, html};
use sha2::{Digest as _, Sha256};

use crate::fault::Fault;
use crate::links::own_path;
use crate::notice::Notice;
use crate::page::Page;
use crate::params::Params;
use crate::question::{TARGET_CHARACTERS, read_only};
use crate::view::View;
use crate::widgets::{do_address, fields};

pub(crate) use done::{Answered, Repeats, Sent};
pub(crate) use jobs::{read_labels, words};
pub(crate) use namespaces::settings_form as namespace_form;
pub(crate) use queues::settings_form;

/// Bytes of a form.
pub(crate) const FORM_BYTES_MAX: usize = 3 << 19;
/// Jobs that a selection may have.
pub(crate) const SELECTED_MAX: usize = 200;

/// A form that was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Form {
    /// The fields that a person filled in.
    pub(crate) fields: Params,
    /// The fields that the button brought.
    pub(crate) with: Params,
}

/// What an action led to.
pub(crate) enum Done {
    /// It was done or refused; the notice says so on the page to go to.
    Notice { notice: Notice, to: Option<String> },
    /// It is asked first, or its form is shown again with a refusal.
    Page(Page),
}

impl Form {
    pub(crate) fn read(body: &str) -> Result<Self, Fault> {
        let fields = Params::read_any(body);
        let with = fields.text("with")?.unwrap_or_default();
        let with = Params::read_any(with);
        Ok(Self { fields, with })
    }

    /// A field of the button, or else of the form.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Fault> {
        match self.with.text(name)? {
            Some(text) => Ok(Some(text)),
            None => self.fields.text(name),
        }
    }

    pub(crate) fn name<T: Name>(&self, name: &str) -> Result<T, Fault> {
        if self.with.has(name) {
            return self.with.needed(name);
        }
        self.fields.needed(name)
    }

    /// Whether the question has been answered.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.fields.has("confirmed")
    }

    /// Hash of the form and of the action that it asks for. Two forms have the same one only if all their fields are the
    /// same, apart from the token, which differs from page to page.
    pub(crate) fn fingerprint(&self, action: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut add = |text: &[u8]| {
            let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
            hash.update(length.to_be_bytes());
            hash.update(text);
        };
        add(action.as_bytes());
        for (name, value) in self.fields.raw_pairs().filter(|pair| pair.0 != "csrf") {
            add(name.as_bytes());
            add(value);
        }
        hash.finalize().into()
    }

    /// Where the form was sent from.
    pub(crate) fn back(&self) -> Option<&str> {
        self.fields.text("back").ok().flatten().and_then(own_path)
    }

    /// The shard that the action is about.
    fn shard<'a>(&self, view: &'a View) -> Result<&'a Handle, Fault> {
        match self.text("shard")? {
            None => Ok(view.home()),
            Some(text) => {
                let shard = ShardId::new(text)
                    .ok_or_else(|| Fault::value("shard", "is not the name of a shard"))?;
                view.shard(&shard)
            }
        }
    }
}

/// Carries out an action that the viewer has the right to.
async fn carry_out(view: &View, action: &str, form: &Form) -> Result<Done, Fault> {
    match action {
        "pauseQueue" => queues::pause(view, form, true).await,
        "resumeQueue" => queues::pause(view, form, false).await,
        "setQueue" => queues::set(view, form).await,
        "forgetQueue" => queues::forget(view, form).await,
        "retryJob" => jobs::retry(view, form).await,
        "cancelJob" => jobs::cancel(view, form).await,
        "timeOutJob" => jobs::time_out(view, form).await,
        "deleteJob" => jobs::delete(view, form).await,
        "alterJob" => jobs::alter(view, form).await,
        "retryJobs" => bulk::run(view, form, bulk::JobsAction::Retry).await,
        "cancelJobs" => bulk::run(view, form, bulk::JobsAction::Cancel).await,
        "deleteJobs" => bulk::run(view, form, bulk::JobsAction::Delete).await,
        "cancelGraph" => graphs::cancel(view, form).await,
        "retryGraph" => graphs::retry(view, form).await,
        "stopOperation" => operations::stop(view, form).await,
        "setNamespace" => namespaces::set(view, form).await,
        "enqueueJob" => enqueue::run(view, form).await,
        "runSchedule" => schedules::run(view, form).await,
        "pauseSchedule" => schedules::pause(view, form, true).await,
        "resumeSchedule" => schedules::pause(view, form, false).await,
        "setSchedule" => schedules::set(view, form).await,
        "deleteSchedule" => schedules::delete(view, form).await,
        "releaseWorker" => rest::release_worker(view, form).await,
        "reconcilePeer" => rest::reconcile(view, form).await,
        "audit" => rest::check_store(view, form).await,
        "testAlert" => rest::test_alert(view, form).await,
        _ => Err(no_such(action)),
    }
}

/// The actions that a form can ask for.
pub(crate) const ACTIONS: &[&str] = &[
    "pauseQueue",
    "resumeQueue",
    "setQueue",
    "forgetQueue",
    "retryJob",
    "cancelJob",
    "timeOutJob",
    "deleteJob",
    "alterJob",
    "retryJobs",
    "cancelJobs",
    "deleteJobs",
    "cancelGraph",
    "retryGraph",
    "stopOperation",
    "setNamespace",
    "enqueueJob",
    "runSchedule",
    "pauseSchedule",
    "resumeSchedule",
    "setSchedule",
    "deleteSchedule",
    "releaseWorker",
    "reconcilePeer",
    "audit",
    "testAlert",
];

fn no_such(action: &str) -> Fault {
    Fault::new(
        "path_not_found",
        "There is no such action",
        format!("{action:?} is not an action of the dashboard."),
    )
}

/// Does what a form asks for, and writes the audit log.
pub(crate) async fn act(
    view: &View,
    action: &str,
    form: &Form,
    from: Option<SocketAddr>,
) -> Result<Done, Fault> {
    if !ACTIONS.contains(&action) {
        return Err(no_such(action));
    }
    let operation = view.rights.operation(action);
    let log =
        |outcome, detail: Option<String>| record(view, operation, form, from, outcome, detail);
    if view.rights.is_read_only() {
        log(Outcome::Denied, Some("read only".to_owned()));
        return Err(read_only());
    }
    if let Err(fault) = view.rights.check(action) {
        log(Outcome::Denied, Some(fault.code.to_owned()));
        return Err(fault);
    }
    match carry_out(view, action, form).await {
        Ok(Done::Notice { notice, to }) => {
            let outcome = if notice.is_done {
                Outcome::Done
            } else {
                Outcome::Refused
            };
            log(outcome, Some(notice.text.clone()));
            Ok(Done::Notice { notice, to })
        }
        Ok(page) => Ok(page),
        Err(fault) => {
            log(Outcome::Refused, Some(fault.code.to_owned()));
            let text = format!("{}: {} ({}).", not_done(action), fault.detail, fault.code);
            Ok(Done::Notice {
                notice: Notice::refused(text),
                to: None,
            })
        }
    }
}

fn record(
    view: &View,
    operation: Operation,
    form: &Form,
    from: Option<SocketAddr>,
    outcome: Outcome,
    detail: Option<String>,
) {
    let kept = [
        "queue",
        "shard",
        "job",
        "state",
        "kind",
        "tag",
        "label",
        "group",
        "failure_text",
        "worker",
        "graph",
        "schedule",
        "id",
        "peer",
        "scope",
        "start",
        "tracked",
        "paused",
    ];
    let pairs = form.with.pairs().chain(form.fields.pairs());
    let target: Vec<String> = pairs
        .filter(|(name, _)| kept.contains(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    view.site.settings.audit.write(&Record {
        on: Some(target.join(" ").chars().take(TARGET_CHARACTERS).collect()),
        namespace: Some(show(view.namespace().as_bytes()).into_owned()),
        from,
        detail: detail.map(|detail| detail.chars().take(200).collect()),
        via: Some("ui"),
        ..Record::new(view.rights.identity().to_string(), operation.name, outcome)
    });
}

/// How the refusal of an action begins.
fn not_done(action: &str) -> &'static str {
    match action {
        "retryJob" | "retryJobs" | "retryGraph" => "Not retried",
        "cancelJob" | "cancelJobs" | "cancelGraph" => "Not cancelled",
        "deleteJob" | "deleteJobs" | "deleteSchedule" => "Not deleted",
        "timeOutJob" => "Not timed out",
        "stopOperation" => "Not stopped",
        "pauseQueue" | "pauseSchedule" => "Not paused",
        "resumeQueue" | "resumeSchedule" => "Not resumed",
        "forgetQueue" => "Not forgotten",
        "enqueueJob" => "Not enqueued",
        "runSchedule" => "Not run",
        "setSchedule" => "Not saved",
        "reconcilePeer" => "Not reconciled",
        "testAlert" => "Not sent",
        "audit" => "Not checked",
        _ => "Not changed",
    }
}

/// Applies a command on a shard; its reply comes once the effects are durable.
async fn apply(shard: &Handle, command: Command) -> Result<Reply, Fault> {
    Ok(shard.call(command).await?)
}

/// A question before an action: the same content as a page and, with the module, in a dialog.
struct Question<'a> {
    /// What is asked, as a heading.
    heading: String,
    /// What happens, in words, and what is lost.
    content: Markup,
    /// The button that does it: it names action and thing.
    button: String,
    action: &'static str,
    /// The fields of the action.
    pairs: &'a [(&'a str, &'a str)],
    /// Whether something is taken away.
    is_danger: bool,
}

impl Question<'_> {
    /// The page with the question. The form's hidden fields come from the frame.
    fn page(self, view: &View, form: &Form) -> Done {
        let back = form.back().map(str::to_owned);
        let back = back.unwrap_or_else(|| view.links.to("/").as_str().to_owned());
        let class = if self.is_danger { "danger" } else { "primary" };
        let content = html! {
            section #question aria-labelledby="question-heading" {
                h1 #question-heading { (crate::text::isolated(&self.heading)) }
                (self.content)
                div.actions {
                    a.button #question-back href=(back) autofocus { "Back" }
                    button class=(class) form=(ASK_FORM) formaction=(do_address(view, self.action))
                        name="with" value=(fields(view, self.pairs)) { (self.button) }
                }
            }
        };
        Done::Page(Page::new(self.heading, "", content).still().asks(back))
    }

    /// The page with the question, again if a field of it was refused.
    fn again(self, view: &View, form: &Form, refusal: Option<&Fault>) -> Done {
        match (self.page(view, form), refusal) {
            (Done::Page(page), Some(fault)) => {
                let status = (view.site.settings.status_of)(fault.code);
                Done::Page(Page { status, ..page })
            }
            (done, _) => done,
        }
    }
}

/// The form of a question: the fields in its content belong to it, and its answer goes back to where it was asked.
pub(crate) const ASK_FORM: &str = "ask";
