//! Operations: actions on many jobs, how far they are, and what they left out.

use ganger_document::names::show;
use ganger_document::time::show_moment;
use ganger_types::command::Start;
use ganger_types::operation::{AlteredFields, JobFilter};
use ganger_types::{
    OperationAction, OperationNumber, OperationRecord, OperationState, ShardId, Timestamp,
};
use maud::{Markup, html};

use crate::data::operations;
use crate::fault::Fault;
use crate::filter::{Filter, of_query};
use crate::format::{count, counted, span};
use crate::links::Address;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::text::{isolated, plain};
use crate::view::View;
use crate::widgets::{self, button, columns, empty, job_link, table};

/// Operations on the page.
const SHOWN: usize = 100;

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    Params::read(query, &[])?;
    view.rights.check("listOperations")?;
    let (mut rows, missing) = operations::all(view, SHOWN).await?;
    rows.sort_by_key(|(_, record)| std::cmp::Reverse(record.began_at));
    rows.truncate(SHOWN);
    let head = html! { div.heading { h1 { "Operations" } } };
    let page = Page::new("Operations", "Jobs", head);
    Ok(page.part(
        "part-operations",
        html! { (list(view, &rows)) (widgets::missing(&missing)) },
    ))
}

fn list(view: &View, rows: &[(ShardId, OperationRecord)]) -> Markup {
    if rows.is_empty() {
        let next = html! { p { "Filter the " a href=(view.links.to("/jobs")) { "jobs" } ", then act on all that match." } };
        return empty("No operation has run in the last 7 days.", &next);
    }
    let head = columns(&[
        "Operation",
        "Who",
        "What",
        "Filter",
        "#Progress",
        "State",
        "Began",
        "Actions",
    ]);
    let body = html! {
        @for (shard, record) in rows {
            tr data-row {
                th scope="row" { a href=(address(view, shard, record.number)) { (full_name(shard, record.number)) } }
                td { (isolated(&record.by)) }
                td { (what(&record.action)) }
                td { (filter_chips(view, &record.filter)) }
                td.number { (progress(record)) }
                td { (state(record.state)) }
                td { (view.clock.time(record.began_at)) }
                td { (stop_button(view, shard, record)) }
            }
        }
    };
    table("Operations", &head, &body)
}

pub(super) async fn one(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["id"])?;
    view.rights.check("getOperation")?;
    let id = params
        .text("id")?
        .ok_or_else(|| Fault::value("id", "is missing: it names an operation, such as 1/op-7"))?;
    let (shard, number) = operations::parse(view, id)?;
    let name = full_name(shard.id(), number);
    let record = shard.operation(view.namespace(), number).await;
    let record = record.map_err(|error| match Fault::from(error) {
        fault if fault.code == "operation_not_found" => {
            Fault::missing(fault.code, format!("There is no operation {name}"))
        }
        fault => fault,
    })?;
    let title = format!("Operation {name}");
    let head = html! {
        div.heading {
            h1 { (title) }
            div.actions { (stop_button(view, shard.id(), &record)) }
        }
    };
    let page = Page::new(title, "Jobs", head)
        .part("part-progress", facts(view, &record))
        .part("part-left-out", left_out(view, shard.id(), &record));
    // The stream follows the jobs that change, and an operation that runs changes them.
    Ok(page)
}

fn facts(view: &View, record: &OperationRecord) -> Markup {
    let looked_at = record.looked_at();
    let of = record.matching.unwrap_or(0).max(looked_at);
    html! {
        p { (state(record.state)) " " (isolated(&record.message)) }
        @if of > 0 { p { progress value=(looked_at) max=(of) { (count(looked_at)) " of " (count(of)) } } }
        dl.facts {
            div { dt { "What" } dd { (what(&record.action)) } }
            div { dt { "Filter" } dd { (filter_chips(view, &record.filter)) } }
            div { dt { "Progress" } dd { (progress(record)) } }
            div { dt { "Done" } dd { (counted(record.done)) } }
            div { dt { "Skipped" } dd { (counted(record.skipped)) } }
            div { dt { "Failed" } dd { (counted(record.failed)) } }
            @if let Some(most) = record.at_most { div { dt { "At most" } dd { (counted(most)) } } }
            @if let Some(span) = record.spread_over { div { dt { "Spread over" } dd { (crate::format::span(span)) } } }
            @if !record.reason.is_empty() { div { dt { "Reason" } dd { (isolated(&record.reason)) } } }
            div { dt { "Who" } dd { (isolated(&record.by)) } }
            div { dt { "Began" } dd { (view.clock.time(record.began_at)) } }
            div { dt { "Ended" } dd { (ended(view, record.ended_at)) } }
        }
    }
}

fn ended(view: &View, at: Option<Timestamp>) -> Markup {
    match at {
        Some(at) => view.clock.time(at),
        None => html! { "\u{2013}" },
    }
}

fn left_out(view: &View, shard: &ShardId, record: &OperationRecord) -> Markup {
    if record.left_out.is_empty() {
        return html! {};
    }
    let all = record.skipped + record.failed;
    let body = html! {
        @for left_out in &record.left_out {
            tr { th scope="row" { (job_link(view, shard, &left_out.job)) } td.message { (isolated(&left_out.reason)) } }
        }
    };
    let listed = u64::try_from(record.left_out.len()).unwrap_or(u64::MAX);
    html! {
        h2 { "Skipped" }
        @if all > listed { p.remark { "The first " (count(listed)) " of " (count(all)) "." } }
        (table("Skipped jobs", &columns(&["Job", "Reason"]), &body))
    }
}

fn progress(record: &OperationRecord) -> Markup {
    let of = record
        .matching
        .map(|matching| matching.max(record.looked_at()));
    html! {
        (count(record.done))
        @if record.skipped > 0 { ", skipped " (count(record.skipped)) }
        @if record.failed > 0 { ", failed " (count(record.failed)) }
        @match of { Some(of) => { " of " (count(of)) }, None => " of \u{2026}" }
    }
}

fn state(state: OperationState) -> Markup {
    match state {
        OperationState::Running => svg::badge("warn", "Running"),
        OperationState::Done => svg::badge("good", "Done"),
        OperationState::Stopped => svg::badge("warn", "Stopped"),
        OperationState::Failed => svg::badge("bad", "Failed"),
    }
}

fn what(action: &OperationAction) -> Markup {
    let bytes = |bytes: &[u8]| plain(&show(bytes));
    let words = match action {
        OperationAction::Retry { queue: None } => "Retry".to_owned(),
        OperationAction::Retry { queue: Some(queue) } => {
            format!("Retry in the queue {}", bytes(queue.as_bytes()))
        }
        OperationAction::Cancel => "Cancel".to_owned(),
        OperationAction::Delete => "Delete".to_owned(),
        OperationAction::Alter(fields) => {
            let AlteredFields {
                priority,
                queue,
                start,
                tags_added,
                tags_removed,
                labels_set,
                labels_removed,
            } = fields;
            let mut parts = Vec::new();
            parts.extend(priority.map(|priority| format!("priority {}", priority.to_whole())));
            let queue = queue.as_ref();
            parts.extend(queue.map(|queue| format!("queue {}", bytes(queue.as_bytes()))));
            parts.extend(start.map(|start| match start {
                Start::Now => "start at once".to_owned(),
                Start::After(delay) => format!("start after {}", span(delay)),
                Start::At(at) => format!("start at {}", show_moment(at)),
            }));
            let added = tags_added.iter();
            parts.extend(added.map(|tag| format!("add the tag {}", bytes(tag.as_bytes()))));
            let removed = tags_removed.iter();
            parts.extend(removed.map(|tag| format!("remove the tag {}", bytes(tag.as_bytes()))));
            parts.extend(labels_set.iter().map(|(key, value)| {
                format!("{}={}", bytes(key.as_bytes()), bytes(value.as_bytes()))
            }));
            let removed = labels_removed.iter();
            parts.extend(removed.map(|key| format!("remove the label {}", bytes(key.as_bytes()))));
            format!("Change: {}", parts.join(", "))
        }
    };
    isolated(&words)
}

/// The conditions, as a link to the jobs that match now.
fn filter_chips(view: &View, filter: &JobFilter) -> Markup {
    let filter: Filter = of_query(filter.query(view.namespace().clone(), 1));
    let address = filter.add_to(view.links.to("/jobs"), None);
    let pairs = filter.pairs.iter();
    let words: Vec<String> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    html! { a href=(address) { (isolated(&words.join(" "))) } }
}

fn stop_button(view: &View, shard: &ShardId, record: &OperationRecord) -> Markup {
    let may_stop = record.action == OperationAction::Cancel || view.rights.may_do("retryJobs");
    if record.state != OperationState::Running || !may_stop {
        return html! {};
    }
    let id = full_name(shard, record.number);
    button(view, "Stop", "stopOperation", &[("id", &id)])
}

/// The name of an operation in all shards, `shard/op-7`.
pub(crate) fn full_name(shard: &ShardId, number: OperationNumber) -> String {
    format!("{shard}/{number}")
}

/// The page of an operation.
pub(crate) fn address(view: &View, shard: &ShardId, number: OperationNumber) -> Address {
    let page = view.links.to("/operation");
    page.with("id", &full_name(shard, number))
}
