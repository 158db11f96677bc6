//! All that happened to a job, oldest first.

use ganger_document::names::show;
use ganger_types::{HistoryEntry, What};
use maud::{Markup, html};

use crate::page::Page;
use crate::text::{Lines, isolated, name};
use crate::view::View;
use crate::widgets::{columns, table};

use super::Found;

pub(super) fn add(view: &View, found: &Found, page: Page) -> Page {
    let record = &found.job.record;
    let head = columns(&["Time", "What", "Details"]);
    let body = html! { @for entry in &record.history { (row(view, entry)) } };
    page.part("part-history", html! {
        h2 { "History" }
        @if record.history.is_empty() { p.empty { "No entries." } } @else { (table("History", &head, &body)) }
        @if record.history_dropped > 0 { p.remark { (record.history_dropped) " entries dropped behind the first." } }
    })
}

fn row(view: &View, entry: &HistoryEntry) -> Markup {
    html! {
        tr {
            th scope="row" { (view.clock.time(entry.at)) }
            td { (word(&entry.what)) }
            td { (details(view, &entry.what)) }
        }
    }
}

fn word(what: &What) -> &'static str {
    match what {
        What::Enqueued { .. } => "Enqueued",
        What::Attempt { .. } => "Attempt ended",
        What::Failed { .. } => "Failed",
        What::Cancelled { .. } => "Cancelled",
        What::Retried => "Retried",
        What::TimedOutByHand => "Timed out by hand",
        What::Note { .. } => "Note",
    }
}

fn details(view: &View, what: &What) -> Markup {
    match what {
        What::Enqueued { queue } => html! { "in the queue " (name(queue.as_bytes())) },
        What::Attempt {
            number,
            worker,
            leased_at,
            end,
        } => html! {
            "attempt " (number) " on " (name(worker.as_bytes())) ", leased " (view.clock.time(*leased_at)) ": " (end.as_str().replace('_', " "))
            @if let ganger_types::history::AttemptEnd::Failed { group, message, .. } = end {
                " in the group " (name(group.as_bytes()))
                @if !message.is_empty() { details { summary { "Message" } pre.block dir="auto" { (Lines(message)) } } }
            }
        },
        What::Failed { group } => html! { "in the group " (name(group.as_bytes())) },
        What::Cancelled { reason } if !reason.is_empty() => html! { "reason: " (isolated(reason)) },
        What::Note { text, data } => html! {
            (isolated(text))
            @if !data.is_empty() { details { summary { "Data" } pre.block { (Lines(&show(data.as_bytes()))) } } }
        },
        What::Cancelled { .. } | What::Retried | What::TimedOutByHand => html! {},
    }
}
