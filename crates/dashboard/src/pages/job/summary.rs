//! The summary of a job: why it does not run or how it ended, its timeline, its attempts.

use std::time::Duration;

use ganger_document::names::show;
use ganger_types::history::AttemptEnd;
use ganger_types::{HistoryEntry, JobState, Timestamp, What, Worker};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::format::{bytes, span};
use crate::page::Page;
use crate::pages::overview::progress_of;
use crate::svg::{self, Phase};
use crate::text::{Lines, isolated, name};
use crate::view::View;
use crate::widgets::{columns, named_link, refused, table};

use super::{Found, explain, why};

/// Characters of a result or failure that the page shows in full.
const SHOWN_BYTES: usize = 16 << 10;

/// An attempt as the page shows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) began: Timestamp,
    /// From the moment when it could run, as far as the history tells.
    pub(super) waited: Duration,
    /// `None` while it runs.
    pub(super) ended: Option<Timestamp>,
    pub(super) worker: Worker,
    pub(super) end: Option<AttemptEnd>,
}

pub(super) async fn add(view: &View, found: &Found, page: Page) -> Result<Page, Fault> {
    let record = &found.job.record;
    let why = if record.state.is_terminal() {
        outcome(view, found).await?
    } else {
        match explain(view, found).await {
            Ok(explanation) => html! {
                h2 { @if record.state == JobState::Running { "It runs" } @else { "Why it does not run" } }
                (why::list(view, found, &explanation))
                @if let Some(progress) = record.progress.as_ref().filter(|_| record.state == JobState::Running) {
                    p { (progress_of(progress)) }
                }
                @if record.state != JobState::Running { (last_failure(view, found)) }
            },
            Err(fault) => refused(&fault),
        }
    };
    let attempts = attempts(found);
    Ok(page
        .part("part-why", why)
        .part(
            "part-timeline",
            html! { h2 { "Timeline" } (timeline(view, found, &attempts)) },
        )
        .part(
            "part-attempts",
            html! { h2 { "Attempts" } (attempt_table(view, found, &attempts)) },
        ))
}

/// How the job ended: result, failure or reason.
async fn outcome(view: &View, found: &Found) -> Result<Markup, Fault> {
    let record = &found.job.record;
    let ended = record.finished.as_ref().map(|end| end.at);
    let result = match record.state {
        JobState::Succeeded if view.rights.sees_payloads() && view.rights.may_read("getResult") => {
            found.shard.result_of(record).await?
        }
        _ => None,
    };
    let reason = record
        .history
        .iter()
        .rev()
        .find_map(|entry| match &entry.what {
            What::Cancelled { reason } => Some(reason.as_str()),
            _ => None,
        });
    Ok(html! {
        h2 { "How it ended" }
        p { (svg::state(record.state)) @if let Some(at) = ended { " " (view.clock.time(at)) " (" (view.clock.ago(at)) ")" } }
        @match record.state {
            JobState::Failed => (last_failure(view, found)),
            JobState::Cancelled => p { @match reason.filter(|reason| !reason.is_empty()) {
                Some(reason) => { "Reason: " (isolated(reason)) }
                None => { "No reason was given." }
            } },
            _ => (result_block(view, found, result.as_deref())),
        }
    })
}

fn result_block(view: &View, found: &Found, result: Option<&[u8]>) -> Markup {
    let size = found
        .job
        .record
        .finished
        .as_ref()
        .and_then(|end| end.result_bytes);
    match result {
        Some(result) => html! {
            h3 { "Result" }
            (super::data::shown(result, SHOWN_BYTES))
            @if result.len() > SHOWN_BYTES { p { a href=(found.address(view).with("view", "data")) { "More of it" } } }
        },
        None => match size {
            Some(size) => html! { p { "The result has " (bytes(size)) "." } },
            None => html! { p { "It ended without a result." } },
        },
    }
}

fn last_failure(view: &View, found: &Found) -> Markup {
    let Some(failure) = &found.job.record.failure else {
        return html! {};
    };
    let (text, is_cut) = match failure
        .message
        .char_indices()
        .find(|(at, _)| *at >= SHOWN_BYTES)
    {
        Some((at, _)) => (&failure.message[..at], true),
        None => (failure.message.as_str(), false),
    };
    html! {
        h3 { "Last failure" }
        p { "Group " (named_link(&view.links.to("/failure").name("group", failure.group.as_bytes()), failure.group.as_bytes()))
            ", " (view.clock.ago(failure.at))
            @if let Some(worker) = &failure.worker { ", on " (name(worker.as_bytes())) } }
        @if !text.is_empty() { pre.block dir="auto" tabindex="0" { (Lines(text)) @if is_cut { " \u{2026}" } } }
    }
}

/// The attempts of the history, and the one that runs.
pub(super) fn attempts(found: &Found) -> Vec<Attempt> {
    let record = &found.job.record;
    let mut ready_from = record.created_at;
    let mut attempts = Vec::new();
    for HistoryEntry { at, what } in &record.history {
        match what {
            What::Attempt {
                number,
                worker,
                leased_at,
                end,
            } => {
                attempts.push(Attempt {
                    number: *number,
                    began: *leased_at,
                    waited: leased_at.since(ready_from),
                    ended: Some(*at),
                    worker: worker.clone(),
                    end: Some(end.clone()),
                });
                ready_from = *at;
            }
            What::Retried | What::Enqueued { .. } => ready_from = *at,
            _ => {}
        }
    }
    if let Some(lease) = &found.job.lease {
        attempts.push(Attempt {
            number: lease.attempt,
            began: lease.granted_at,
            waited: lease.granted_at.since(ready_from),
            ended: None,
            worker: lease.worker.clone(),
            end: None,
        });
    }
    attempts
}

/// The phases of the life of a job as bars. A wait longer than half of the rest is folded.
fn timeline(view: &View, found: &Found, attempts: &[Attempt]) -> Markup {
    let record = &found.job.record;
    let end = record
        .finished
        .as_ref()
        .map_or(view.clock.now, |end| end.at);
    let mut spans: Vec<(&'static str, Duration, String)> = Vec::new();
    let mut at = record.created_at;
    for attempt in attempts {
        let word = if spans.is_empty() { "waiting" } else { "pause" };
        let waited = attempt.began.since(at);
        spans.push((word, waited, format!("{word} {}", span(waited))));
        let until = attempt.ended.unwrap_or(end);
        let ran = until.since(attempt.began);
        spans.push((
            "running",
            ran,
            format!("attempt {} ran {}", attempt.number, span(ran)),
        ));
        at = until;
    }
    let rest = end.since(at);
    if !record.state.is_terminal() && found.job.lease.is_none() {
        spans.push(("waiting", rest, format!("waiting {}", span(rest))));
    }
    let phases = fold(spans);
    html! {
        @if phases.is_empty() { p.empty { "Nothing has happened yet." } }
        @else {
            (svg::timeline(&phases))
            ul.timeline-words {
                li { (view.clock.time(record.created_at)) " enqueued" }
                @for phase in &phases { li { span class={ "key key-" (phase.class) } {} (phase.title) } }
                @if let Some(finished) = &record.finished { li { (view.clock.time(finished.at)) " " (svg::state(record.state)) } }
            }
        }
    }
}

/// Makes widths of durations. A phase that is longer than half of all others is drawn as long as that half.
fn fold(spans: Vec<(&'static str, Duration, String)>) -> Vec<Phase> {
    let spans: Vec<_> = spans
        .into_iter()
        .filter(|(_, span, _)| !span.is_zero())
        .collect();
    let millis = |span: Duration| {
        u64::try_from(span.as_millis())
            .unwrap_or(u64::MAX / 4)
            .max(1)
    };
    let all: u64 = spans
        .iter()
        .map(|(_, span, _)| millis(*span))
        .fold(0, u64::saturating_add);
    let drawn: Vec<(bool, u64)> = spans
        .iter()
        .map(|(class, span, _)| {
            let own = millis(*span);
            let rest = all.saturating_sub(own);
            let is_folded = *class != "running" && rest > 0 && own > rest / 2 && spans.len() > 1;
            (is_folded, if is_folded { (rest / 2).max(1) } else { own })
        })
        .collect();
    let sum: u64 = drawn
        .iter()
        .map(|(_, width)| *width)
        .fold(0, u64::saturating_add)
        .max(1);
    spans
        .into_iter()
        .zip(drawn)
        .map(|((class, _, title), (is_folded, width))| Phase {
            class: if is_folded { "folded" } else { class },
            width: u64::try_from(u128::from(width) * 10_000 / u128::from(sum)).unwrap_or(10_000),
            title: if is_folded {
                format!("{title} (drawn shorter)")
            } else {
                title
            },
        })
        .collect()
}

fn attempt_table(view: &View, found: &Found, attempts: &[Attempt]) -> Markup {
    if attempts.is_empty() {
        return html! { p.empty { "No attempt has begun." } };
    }
    let head = columns(&[
        "Attempt", "Began", "#Waited", "#Ran", "Worker", "End", "Group", "Message", "Log",
    ]);
    let body = html! {
        @for attempt in attempts.iter().rev() {
            tr {
                th scope="row" { (attempt.number) }
                td { (view.clock.time(attempt.began)) }
                td.number { (span(attempt.waited)) }
                td.number { (ran(view, attempt)) }
                td { (name(attempt.worker.as_bytes())) }
                td { (end_text(attempt.end.as_ref())) }
                (failure_cells(attempt.end.as_ref()))
                td { a href=(found.address(view).with("view", "log").with("attempt", &attempt.number.to_string())) { "Log" } }
            }
        }
    };
    html! {
        (table("Attempts", &head, &body))
        @if found.job.record.history_dropped > 0 { p.remark { "Earlier attempts are no longer in the history." } }
    }
}

/// How long it ran. A clock that went back makes no negative times.
fn ran(view: &View, attempt: &Attempt) -> Markup {
    match attempt.ended {
        None => view.clock.since(attempt.began),
        Some(ended) if ended < attempt.began => html! { "0 s (clock moved)" },
        Some(ended) => html! { (span(ended.since(attempt.began))) },
    }
}

fn end_text(end: Option<&AttemptEnd>) -> Markup {
    match end {
        None => svg::state(JobState::Running),
        Some(AttemptEnd::Succeeded) => svg::state(JobState::Succeeded),
        Some(AttemptEnd::Failed { permanent, .. }) => {
            html! { (svg::state(JobState::Failed)) @if *permanent { " for good" } }
        }
        Some(AttemptEnd::Expired) => html! { (svg::badge("bad", "Worker lost")) },
        Some(AttemptEnd::TimedOut) => html! { (svg::badge("bad", "Timed out")) },
        Some(AttemptEnd::Released { counted, .. }) => {
            html! { "Given back" @if *counted { ", counted" } }
        }
        Some(AttemptEnd::Cancelled) => svg::state(JobState::Cancelled),
    }
}

fn failure_cells(end: Option<&AttemptEnd>) -> Markup {
    match end {
        Some(AttemptEnd::Failed { group, message, .. }) => html! {
            td { (isolated(&show(group.as_bytes()))) }
            td.message { (isolated(message.lines().next().unwrap_or_default())) }
        },
        Some(AttemptEnd::Released { reason, .. }) => {
            html! { td {} td.message { (isolated(reason)) } }
        }
        _ => html! { td {} td {} },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_pauses_are_folded_and_all_phases_fill_the_width() {
        let seconds = |class, seconds| (class, Duration::from_secs(seconds), String::new());
        let phases = fold(vec![
            seconds("waiting", 10),
            seconds("running", 10),
            seconds("pause", 100_000),
            seconds("running", 10),
        ]);
        let classes: Vec<_> = phases.iter().map(|phase| phase.class).collect();
        assert_eq!(classes, ["waiting", "running", "folded", "running"]);
        let sum: u64 = phases.iter().map(|phase| phase.width).sum();
        assert!((9_990..=10_000).contains(&sum), "{sum}");
        assert!(phases[2].width < 4_000, "{}", phases[2].width);
        assert!(fold(Vec::new()).is_empty());
    }
}
