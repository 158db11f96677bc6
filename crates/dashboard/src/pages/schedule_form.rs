//! The form of a schedule, new or edited: every field with its own error, and the next times before it is saved.

mod read;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ganger_document::names::{show, text};
use ganger_document::time::show_moment;
use ganger_shard::Handle;
use ganger_types::limits::SCHEDULE_BACKLOG_MAX;
use ganger_types::span::show_span;
use ganger_types::{CatchUp, ScheduleId, ScheduleRecord, ScheduleSpec, Timestamp, Words as _};
use maud::{Markup, html};
use sha2::{Digest as _, Sha256};

use crate::fault::Fault;
use crate::frame::Hidden;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::text::{isolated, name, plain};
use crate::view::View;
use crate::widgets::{do_address, fields};

use super::schedule::{TIMES, find, retry_text, time_table};
use super::schedules::address;

pub(crate) use read::{Refused, field_of, read};

/// Bytes of a payload that the form is filled in with. A longer one stays as it is.
const SHOWN_BYTES_MAX: usize = 256 << 10;

/// The fields that are written as text: name, words, hint.
const TEXTS: &[(&str, &str, &str)] = &[
    ("id", "Schedule", "its name, such as nightly"),
    (
        "cron",
        "Cron expression",
        "minute, hour, day of month, month, day of week, such as 30 2 * * *; or give an interval",
    ),
    (
        "time_zone",
        "Time zone",
        "of the cron expression, such as Europe/Vienna; empty: UTC",
    ),
    (
        "every",
        "Interval",
        "such as 1h30m, instead of a cron expression; at least 1s",
    ),
    (
        "first_at",
        "First run",
        "with an interval, such as 2027-01-31T12:00:00Z; empty: now",
    ),
    ("kind", "Kind", "names the program that runs its jobs"),
    ("queue", "Queue", "empty: default"),
    ("priority", "Priority", "smaller runs first; empty: 0"),
    (
        "timeout",
        "Timeout of an attempt",
        "such as 5m; empty: no limit",
    ),
    (
        "retry",
        "Retries",
        "JSON such as {\"max\": 3}; empty: as the queue says",
    ),
    ("tags", "Tags", "words with spaces between"),
    (
        "catch_up_max",
        "Missed runs at most",
        "with a job for each missed run: 1 to 10,000; empty: 10,000",
    ),
];

/// The fields with another control.
const OTHERS: &[&str] = &["payload", "labels", "catch_up", "overlap", "paused"];

/// What the fields of the form show, by the names of the fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values(Vec<(&'static str, String)>);

/// What a form is for, beside its fields.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) shard: &'a Handle,
    /// The schedule that is edited; `None` in the form of a new one.
    pub(crate) edited: Option<&'a ScheduleRecord>,
}

/// What the form says of its fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    /// Fields that cannot be used as they are, with the reasons.
    pub(crate) refused: Vec<Refused>,
    /// Why the schedule was not saved, if no field is to blame.
    pub(crate) fault: Option<Fault>,
    /// The rule and its next times; `None` before it was previewed.
    pub(crate) preview: Option<(ScheduleSpec, Vec<Timestamp>)>,
    /// Whether saving waits for a look at the next times.
    pub(crate) asks_to_look: bool,
}

impl Values {
    /// The fields as they were sent.
    pub(crate) fn sent(fields: &Params) -> Self {
        let names = TEXTS.iter().map(|(name, _, _)| *name);
        let names = names.chain(OTHERS.iter().copied());
        let sent = names.filter_map(|name| Some((name, fields.text(name).ok()??.to_owned())));
        Self(sent.collect())
    }

    /// The fields of a schedule.
    fn of(schedule: &ScheduleRecord) -> Self {
        let mut values = vec![
            ("id", text(schedule.id.as_bytes())),
            ("kind", text(schedule.kind.as_bytes())),
            ("queue", text(schedule.queue.as_bytes())),
            ("priority", schedule.priority.to_whole().to_string()),
            ("catch_up", schedule.catch_up.word().to_owned()),
            ("overlap", schedule.overlap.word().to_owned()),
        ];
        match &schedule.spec {
            ScheduleSpec::Interval { every, first_at } => {
                values.push(("every", show_span(*every)));
                values.push(("first_at", show_moment(*first_at)));
            }
            ScheduleSpec::Cron {
                expression,
                time_zone,
            } => {
                values.push(("cron", expression.clone()));
                values.push(("time_zone", time_zone.clone()));
            }
        }
        if let CatchUp::All { max } = schedule.catch_up {
            let most = if max == 0 { SCHEDULE_BACKLOG_MAX } else { max };
            values.push(("catch_up_max", most.to_string()));
        }
        values.extend(shown_payload(schedule).map(|payload| ("payload", payload.to_owned())));
        values.extend(
            schedule
                .timeout
                .map(|timeout| ("timeout", show_span(timeout))),
        );
        values.extend(
            schedule
                .retry
                .as_ref()
                .map(|retry| ("retry", retry_text(retry))),
        );
        let tags = schedule.tags.iter().map(|tag| text(tag.as_bytes()));
        values.push(("tags", tags.collect::<Vec<_>>().join(" ")));
        let labels = schedule.labels.iter();
        let labels = labels
            .map(|(key, value)| format!("{}={}", text(key.as_bytes()), text(value.as_bytes())));
        values.push(("labels", labels.collect::<Vec<_>>().join("\n")));
        if schedule.paused {
            values.push(("paused", "true".to_owned()));
        }
        Self(values)
    }

    fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    /// The fields of the rule as one text, which tells whether that rule was previewed.
    pub(crate) fn rule(&self) -> String {
        ["cron", "time_zone", "every", "first_at"]
            .map(|name| self.get(name).trim())
            .join("|")
    }
}

/// The payload of a schedule as the form shows it; `None` if it is empty, long, or not JSON.
pub(crate) fn shown_payload(schedule: &ScheduleRecord) -> Option<&str> {
    let payload = std::str::from_utf8(&schedule.payload).ok()?;
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(payload).is_ok();
    (is_json && payload.len() <= SHOWN_BYTES_MAX).then_some(payload)
}

/// A text that changes with each field that people can change.
pub(crate) fn version(schedule: &ScheduleRecord) -> String {
    let fields = ScheduleRecord {
        next_at: None,
        runs: 0,
        last_job: None,
        ..schedule.clone()
    };
    URL_SAFE_NO_PAD.encode(Sha256::digest(format!("{fields:?}")))
}

/// The page with the form of a new schedule.
pub(super) fn new_page(view: &View, query: &str) -> Result<Page, Stop> {
    Params::read(query, &[])?;
    check(view)?;
    let back = view.links.to("/schedules").as_str().to_owned();
    let shard = view.shards().first().unwrap_or(view.home());
    let about = About {
        shard,
        edited: None,
    };
    let hidden = Hidden::new(view, back);
    let values = Values::default();
    Ok(show_page(view, about, &values, &Reply::default(), &hidden))
}

/// The page with the form of a schedule that exists.
pub(super) async fn edit_page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["id"])?;
    let id: ScheduleId = params.needed("id")?;
    check(view)?;
    let (shard, schedule) = find(view, &id, "/schedule/edit").await?;
    let times = shard.preview_schedule(&schedule.spec, TIMES).await;
    let reply = Reply {
        preview: times.ok().map(|times| (schedule.spec.clone(), times)),
        ..Reply::default()
    };
    let back = address(view, shard.id(), &id).as_str().to_owned();
    let about = About {
        shard: &shard,
        edited: Some(&schedule),
    };
    let hidden = Hidden::new(view, back);
    Ok(show_page(
        view,
        about,
        &Values::of(&schedule),
        &reply,
        &hidden,
    ))
}

fn check(view: &View) -> Result<(), Fault> {
    view.rights.check("setSchedule")?;
    if view.rights.is_read_only() {
        return Err(Fault::new(
            "permission_denied",
            "This dashboard is read only",
            "The setting ui.read_only allows nobody to change anything here.",
        ));
    }
    Ok(())
}

/// The form with its fields, what is wrong with them, and the next times of the rule.
pub(crate) fn show_page(
    view: &View,
    about: About<'_>,
    values: &Values,
    reply: &Reply,
    hidden: &Hidden,
) -> Page {
    let shard = about.shard.id().as_str();
    let id = about.edited.map(|schedule| text(schedule.id.as_bytes()));
    let mut pairs = vec![("shard", shard)];
    pairs.extend(id.as_deref().map(|id| ("id", id)));
    let back = match about.edited {
        Some(schedule) => address(view, about.shard.id(), &schedule.id),
        None => view.links.to("/schedules"),
    };
    let heading = match about.edited {
        Some(schedule) => format!("Edit schedule {}", plain(&show(schedule.id.as_bytes()))),
        None => "New schedule".to_owned(),
    };
    let content = html! {
        h1 { @match about.edited { Some(schedule) => { "Edit schedule " (name(schedule.id.as_bytes())) }, None => "New schedule" } }
        (refusal(reply))
        form.settings method="post" action=(do_address(view, "setSchedule")) {
            (hidden.markup())
            input type="hidden" name="with" value=(fields(view, &pairs));
            @if let Some(schedule) = about.edited { input type="hidden" name="before" value=(version(schedule)); }
            @if reply.preview.is_some() { input type="hidden" name="previewed" value=(values.rule()); }
            (inputs(view, about, values, reply))
            @if let Some((spec, times)) = &reply.preview {
                div { h2 { "Next times" } (time_table(view, spec, times)) }
            }
            div.actions {
                a.button href=(back) { "Back" }
                button name="step" value="preview" { "Preview" }
                button.primary name="step" value="save" { "Save schedule" }
            }
        }
    };
    Page::new(heading, "Schedules", content).still()
}

/// What is wrong, with a link to each field; or that the next times are to be looked at.
fn refusal(reply: &Reply) -> Markup {
    let words = |refused: &Refused| label_of(refused.field);
    html! {
        @if let Some(fault) = &reply.fault { div.alert role="alert" tabindex="-1" data-focus { p { "Not saved: " (isolated(&fault.detail)) " (" (fault.code) ")" } } }
        @else if !reply.refused.is_empty() {
            div.alert role="alert" tabindex="-1" data-focus {
                p { "Not saved: " (crate::format::plural(u64::try_from(reply.refused.len()).unwrap_or(0), "field")) " cannot be used." }
                ul { @for refused in &reply.refused { li { a href={ "#field-" (refused.field) } { (words(refused)) } ": " (isolated(&refused.reason)) } } }
            }
        }
        @else if reply.asks_to_look {
            div.notice role="status" tabindex="-1" data-focus { p { "Not saved yet: these are the next times of the rule. Save again to keep it." } }
        }
    }
}

/// The words of a field.
fn label_of(name: &str) -> &'static str {
    let found = TEXTS.iter().find(|(known, _, _)| *known == name);
    match (found, name) {
        (Some((_, words, _)), _) => words,
        (None, "payload") => "Payload",
        (None, "labels") => "Labels",
        (None, "catch_up") => "Missed runs",
        _ => "While a job of it is live",
    }
}

/// A field with its label, its hint, and what is wrong with it. The control is made with the attributes that tie them.
fn field(
    name: &str,
    hint: &str,
    reply: &Reply,
    control: impl FnOnce(&str, Option<&str>, &str) -> Markup,
) -> Markup {
    let refused = reply.refused.iter().find(|refused| refused.field == name);
    let id = format!("field-{name}");
    let described = match refused {
        Some(_) => format!("hint-{name} error-{name}"),
        None => format!("hint-{name}"),
    };
    let invalid = refused.map(|_| "true");
    html! {
        div.field {
            label for=(id) { (label_of(name)) }
            (control(&id, invalid, &described))
            span.soft id={ "hint-" (name) } { (hint) }
            @if let Some(refused) = refused { span.field-error id={ "error-" (name) } { (isolated(&refused.reason)) } }
        }
    }
}

fn inputs(view: &View, about: About<'_>, values: &Values, reply: &Reply) -> Markup {
    let line = |name: &'static str| {
        let hint = TEXTS.iter().find(|(known, _, _)| *known == name);
        let hint = hint.map_or("", |(_, _, hint)| hint);
        let list = (name == "time_zone").then_some("time-zones");
        field(name, hint, reply, |id, invalid, described| {
            html! { input id=(id) name=(name) value=(values.get(name)) list=[list] maxlength="1000" autocomplete="off" spellcheck="false" aria-invalid=[invalid] aria-describedby=(described); }
        })
    };
    let area = |name: &'static str, rows: u32, hint: &str| {
        field(name, hint, reply, |id, invalid, described| {
            html! { textarea id=(id) name=(name) rows=(rows) spellcheck="false" aria-invalid=[invalid] aria-describedby=(described) { (values.get(name)) } }
        })
    };
    let choice = |name: &'static str, hint: &str, words: &[(&str, &str)]| {
        field(name, hint, reply, |id, invalid, described| {
            html! { select id=(id) name=(name) aria-invalid=[invalid] aria-describedby=(described) {
                @for (value, words) in words { option value=(value) selected[values.get(name) == *value] { (words) } }
            } }
        })
    };
    let is_kept = about
        .edited
        .is_some_and(|schedule| !schedule.payload.is_empty() && shown_payload(schedule).is_none());
    let payload = if is_kept {
        "JSON. The present payload is not JSON, or long: it stays as it is while this is empty."
    } else {
        "JSON; empty for none"
    };
    html! {
        datalist #time-zones { option value="UTC" {} option value=(view.clock.zone_name()) {} }
        @if about.edited.is_none() { (line("id")) }
        (line("cron")) (line("time_zone")) (line("every")) (line("first_at"))
        (line("kind")) (line("queue"))
        (area("payload", 8, payload))
        (line("priority")) (line("timeout")) (line("retry")) (line("tags"))
        (area("labels", 3, "KEY=VALUE, one a line"))
        (choice("catch_up", "runs that were missed while the server was down or the schedule paused", &[("last", "one job for all of them"), ("none", "they are skipped"), ("all", "a job for each")]))
        (line("catch_up_max"))
        (choice("overlap", "what a run does while an earlier job is not done", &[("allow", "another job is made"), ("skip", "the run is skipped"), ("replace", "that job is cancelled")]))
        label.check { input type="checkbox" name="paused" value="true" checked[values.get("paused") == "true"]; "Paused" }
    }
}
