//! New job: a form, empty or filled in like another job.

use ganger_document::json::{DEPTH_MAX, depth};
use ganger_document::names::{read, text};
use ganger_document::time::{read_moment, read_span};
use ganger_types::command::{NewJob, Start, Unique};
use ganger_types::{Bytes, JobId, Kind, Priority, Queue, RetryPolicy, Tag, UniqueKey};
use maud::{Markup, html};

use crate::actions::{read_labels, words};
use crate::fault::Fault;
use crate::frame::Hidden;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::text::isolated;
use crate::view::View;
use crate::widgets::do_address;

/// Bytes of a payload that the form is filled in with.
const COPIED_BYTES_MAX: usize = 256 << 10;

/// The fields of the form.
pub(crate) const FIELDS: &[&str] = &[
    "kind", "queue", "payload", "priority", "start", "retries", "tags", "labels", "id", "timeout",
    "unique", "tracked",
];

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["queue", "kind", "like"])?;
    view.rights.check("enqueueJob")?;
    if view.rights.is_read_only() {
        return Err(Fault::new(
            "permission_denied",
            "This dashboard is read only",
            "The setting ui.read_only allows nobody to change anything here.",
        )
        .into());
    }
    let mut values: Vec<(&'static str, String)> = Vec::new();
    if let Some(like) = params.bytes("like") {
        values = like_job(view, &read(like)).await?;
    }
    for name in ["queue", "kind"] {
        if let Some(value) = params.text(name)? {
            values.push((name, value.to_owned()));
        }
    }
    let back = view.links.to("/jobs").as_str().to_owned();
    Ok(show(view, &values, None, &Hidden::new(view, back)))
}

/// The fields of a job that is to be enqueued again.
async fn like_job(view: &View, reference: &[u8]) -> Result<Vec<(&'static str, String)>, Fault> {
    let found = super::job::find(view, reference).await?;
    let record = &found.job.record;
    let mut values = vec![
        ("kind", text(record.kind.as_bytes())),
        ("queue", text(record.queue.as_bytes())),
        ("priority", record.priority.to_whole().to_string()),
        ("retries", record.retry.retries_max.to_string()),
    ];
    let tags: Vec<String> = record.tags.iter().map(|tag| text(tag.as_bytes())).collect();
    values.push(("tags", tags.join(" ")));
    let labels = record
        .labels
        .iter()
        .map(|(key, value)| format!("{}={}", text(key.as_bytes()), text(value.as_bytes())));
    values.push(("labels", labels.collect::<Vec<_>>().join("\n")));
    if let Some(timeout) = record.timeout {
        values.push(("timeout", ganger_types::span::show_span(timeout)));
    }
    if view.rights.sees_payloads() && view.rights.may_read("getPayload") {
        let payload = found.shard.payload_of(record).await?.unwrap_or_default();
        if payload.len() <= COPIED_BYTES_MAX
            && let Ok(payload) = std::str::from_utf8(&payload)
        {
            values.push(("payload", payload.to_owned()));
        }
    }
    Ok(values)
}

pub(crate) fn show(
    view: &View,
    values: &[(&'static str, String)],
    refusal: Option<&Fault>,
    hidden: &Hidden,
) -> Page {
    let value = |name: &str| {
        values
            .iter()
            .rev()
            .find(|(known, _)| *known == name)
            .map_or("", |(_, value)| value)
    };
    let field = |label: &str, name: &str, hint: &str| -> Markup {
        html! { label { (label) input name=(name) value=(value(name)) placeholder=(hint) maxlength="1000" autocomplete="off"; } }
    };
    let folded = [
        "start", "retries", "tags", "labels", "id", "timeout", "unique",
    ];
    let is_open = folded.iter().any(|name| !value(name).is_empty());
    let content = html! {
        h1 { "New job" }
        @if let Some(fault) = refusal { div.alert role="alert" { p { "Not enqueued: " (isolated(&fault.detail)) " (" (fault.code) ")" } } }
        form.new-job method="post" action=(do_address(view, "enqueueJob")) {
            (hidden.markup())
            input type="hidden" name="with" value=(crate::widgets::fields(view, &shard_pairs(view)));
            div.fields {
                label { "Kind" input name="kind" value=(value("kind")) required maxlength="512" autocomplete="off"; }
                (field("Queue", "queue", "default"))
                (field("Priority", "priority", "0; smaller runs first"))
            }
            label { "Payload" textarea name="payload" rows="8" spellcheck="false" placeholder="JSON; empty for none" { (value("payload")) } }
            details.more open[is_open] {
                summary { "More fields" }
                div.fields {
                    (field("Start", "start", "now; or 10m, or 2026-01-31T12:00:00Z"))
                    (field("Retries", "retries", "as the queue says"))
                    (field("Tags", "tags", "words with spaces between"))
                    label { "Labels" textarea name="labels" rows="3" placeholder="KEY=VALUE, one a line" { (value("labels")) } }
                    (field("Timeout of an attempt", "timeout", "such as 5m; empty: none"))
                    (field("Job id", "id", "made by the server"))
                    (field("Unique key", "unique", "at most one live job under it"))
                    label.check { input type="checkbox" name="tracked" value="1" checked[!value("tracked").is_empty()]; "Track it" }
                }
            }
            div.actions { button.primary { "Enqueue job" } }
        }
    };
    Page::new("New job", "Jobs", content).still()
}

fn shard_pairs(view: &View) -> Vec<(&'static str, &str)> {
    view.links
        .shard()
        .map(|shard| ("shard", shard.as_str()))
        .into_iter()
        .collect()
}

/// The job that the form describes; an error names the field that is wrong.
pub(crate) fn read_new_job(fields: &Params) -> Result<NewJob, Fault> {
    let kind: Kind = fields.name("kind")?.ok_or_else(|| {
        Fault::value("Kind", "is missing: it names the program that runs the job")
    })?;
    let payload = fields.bytes("payload").unwrap_or_default();
    check_payload(payload)?;
    let most = Priority::WHOLE_MAX;
    let priority: Option<i64> = fields.number("priority", -most, most)?;
    let retries: Option<u32> = fields.number("retries", 0, ganger_types::limits::RETRIES_MAX)?;
    let tags = words(fields.text("tags")?.unwrap_or_default())
        .map(|word| {
            Tag::new(read(word.as_bytes()))
                .map_err(|error| Fault::value("Tags", &error.to_string()))
        })
        .collect::<Result<_, _>>()?;
    let unique = fields.name::<UniqueKey>("unique")?;
    Ok(NewJob {
        id: fields.name::<JobId>("id")?,
        queue: fields.name::<Queue>("queue")?.unwrap_or_default(),
        kind,
        payload: Bytes::copy_from_slice(payload),
        priority: priority.and_then(Priority::whole).unwrap_or_default(),
        start: start(fields.text("start")?)?,
        timeout: fields
            .text("timeout")?
            .map(|text| {
                read_span(text.trim())
                    .map_err(|reason| Fault::value("Timeout of an attempt", &reason))
            })
            .transpose()?,
        retry: retries.map(|retries_max| RetryPolicy {
            retries_max,
            ..RetryPolicy::default()
        }),
        tags,
        labels: read_labels(fields.text("labels")?.unwrap_or_default())?,
        tracked: fields.has("tracked"),
        unique: unique.map(|key| Unique { key, window: None }),
        ..NewJob::default()
    })
}

pub(super) fn check_payload(payload: &[u8]) -> Result<(), Fault> {
    if payload.is_empty() {
        return Ok(());
    }
    if depth(payload) > DEPTH_MAX {
        return Err(Fault::value(
            "Payload",
            &format!("is nested more than {DEPTH_MAX} levels deep"),
        ));
    }
    serde_json::from_slice::<serde::de::IgnoredAny>(payload).map_err(|error| {
        let text = error.to_string();
        let what = text
            .rsplit_once(" at line ")
            .map_or(text.as_str(), |(what, _)| what);
        Fault::value(
            "Payload",
            &format!(
                "is not valid JSON at line {}, column {}: {what}",
                error.line(),
                error.column()
            ),
        )
    })?;
    Ok(())
}

/// `now`, a delay, or a time.
fn start(text: Option<&str>) -> Result<Start, Fault> {
    match text.map(str::trim) {
        None | Some("" | "now") => Ok(Start::Now),
        Some(text) => read_moment(text).map(Start::At).or_else(|_| {
            read_span(text).map(Start::After).map_err(|_| {
                Fault::value("Start", &format!("must be now, a delay such as 10m, or a time such as 2026-01-31T12:00:00Z, not {text:?}"))
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_form(text: &str) -> Result<NewJob, Fault> {
        read_new_job(&Params::read_any(text))
    }

    #[test]
    fn a_form_becomes_a_job() {
        let job = read_form("kind=resize&payload=%7B%22a%22%3A1%7D&priority=-3&start=10m&tags=a+b&labels=k%3Dv%0Al%3D&retries=0&tracked=1").expect("good");
        assert_eq!(job.payload, "{\"a\":1}");
        assert_eq!(job.priority.to_whole(), -3);
        assert_eq!(job.start, Start::After(std::time::Duration::from_secs(600)));
        assert_eq!((job.tags.len(), job.labels.len()), (2, 2));
        assert_eq!(job.retry.map(|retry| retry.retries_max), Some(0));
        assert!(job.tracked);
    }

    #[test]
    fn each_refusal_names_its_field() {
        for (form, start) in [
            ("queue=a", "Kind"),
            (
                "kind=a&payload=%7B%0Ax",
                "Payload: is not valid JSON at line 2, column 1",
            ),
            ("kind=a&start=soon", "Start"),
            ("kind=a&priority=x", "priority"),
            ("kind=a&labels=x", "Labels"),
            ("kind=a&timeout=x", "Timeout"),
        ] {
            let detail = read_form(form).expect_err(form).detail;
            assert!(detail.starts_with(start), "{detail}");
        }
    }
}
