//! Events: what happens right now, the last of them first.

use ganger_document::view::event::{KINDS, kind};
use ganger_types::{Event, Happening, JobId, Position, Queue, ShardId, Worker};
use maud::{Markup, html};

use crate::data::events::{self, KEPT};
use crate::frame::kept_scope;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::text::{isolated, name, plain};
use crate::view::View;
use crate::widgets::{columns, empty, job_link, queue_link, table};

/// Rows of the page.
const ROWS: usize = 200;
/// Events of one second that are listed; further ones are summed.
const LISTED_PER_SECOND: usize = 50;

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["queue", "kind", "event", "job", "after"])?;
    view.rights.check("followEvents")?;
    let words: Vec<(&str, &'static str)> = KINDS.iter().map(|kind| (*kind, *kind)).collect();
    let event = params.word("event", &words)?;
    let queue: Option<Queue> = params.name("queue")?;
    let wanted_kind: Option<ganger_types::Kind> = params.name("kind")?;
    let job: Option<JobId> = params.name("job")?;
    let after: Option<u64> = params.number("after", 0, u64::MAX)?;
    let mut rows: Vec<(ShardId, Event)> = Vec::new();
    let mut positions = Vec::new();
    for shard in view.shards() {
        let (found, position) = events::last(shard, after.map(Position)).await?;
        positions.push(format!("{} at {}", shard.id(), position.0));
        rows.extend(found.into_iter().map(|event| (shard.id().clone(), event)));
    }
    rows.retain(|(_, found)| {
        found.namespace == *view.namespace()
            && event.is_none_or(|event| kind(&found.happening) == event)
            && queue
                .as_ref()
                .is_none_or(|queue| queue_of(&found.happening) == Some(queue))
            && wanted_kind
                .as_ref()
                .is_none_or(|kind| kind_of(&found.happening) == Some(kind))
            && job
                .as_ref()
                .is_none_or(|job| job_of(&found.happening) == Some(job))
    });
    rows.sort_by_key(|(_, event)| std::cmp::Reverse((event.at, event.position.0)));
    let head = html! {
        div.heading { h1 { "Events" } span.soft { "shard " (positions.join(", shard ")) } }
        form.filter role="search" aria-label="Filter events" action=(view.links.bare("/events")) {
            div.fields {
                label { "Queue" input name="queue" value=(text(params.bytes("queue"))); }
                label { "Kind" input name="kind" value=(text(params.bytes("kind"))); }
                label { "Job" input name="job" value=(text(params.bytes("job"))); }
                label { "Event" select name="event" {
                    option value="" { "all" }
                    @for word in KINDS { option value=(word) selected[event == Some(word)] { (word.replace('_', " ")) } }
                } }
            }
            (kept_scope(view))
            button { "Filter" }
        }
    };
    let page = Page::new("Events", "Events", head);
    Ok(page.part("part-events", list(view, &rows)))
}

fn text(value: Option<&[u8]>) -> String {
    value
        .map(|value| plain(&String::from_utf8_lossy(value)))
        .unwrap_or_default()
}

fn list(view: &View, rows: &[(ShardId, Event)]) -> Markup {
    if rows.is_empty() {
        return empty(
            "No such event is among the last ones.",
            &html! { p { "At most the last " (KEPT) " events are looked at." } },
        );
    }
    let head = columns(&[
        "Time", "Event", "Job", "Queue", "Change", "Worker", "Reason",
    ]);
    let mut listed: Vec<(&ShardId, &Event)> = Vec::new();
    let mut second = (0, 0_usize);
    let mut left_out = 0_usize;
    for (shard, event) in rows {
        let at = event.at.0 / ganger_types::time::MICROS_PER_SECOND;
        second = if second.0 == at {
            (at, second.1 + 1)
        } else {
            (at, 1)
        };
        if second.1 > LISTED_PER_SECOND || listed.len() == ROWS {
            left_out += 1;
        } else {
            listed.push((shard, event));
        }
    }
    let body = html! { @for (shard, event) in listed { (row(view, shard, event)) } };
    html! {
        (table("Events", &head, &body))
        @if left_out > 0 { p.remark { (left_out) " more among the last events; at most " (LISTED_PER_SECOND) " of a second are listed." } }
    }
}

fn row(view: &View, shard: &ShardId, event: &Event) -> Markup {
    let happening = &event.happening;
    html! {
        tr data-row {
            th scope="row" { (view.clock.time(event.at)) }
            td { (kind(happening).replace('_', " ")) }
            td { @if let Some(job) = job_of(happening) { (job_link(view, shard, job)) } }
            td { @if let Some(queue) = queue_of(happening) { (queue_link(view, shard, queue)) } }
            td { (change(happening)) }
            td { @if let Some(worker) = worker_of(happening) { (name(worker.as_bytes())) } }
            td.message { @if let Happening::JobMoved { reason, .. } = happening { (isolated(reason)) } }
        }
    }
}

fn change(happening: &Happening) -> Markup {
    match happening {
        Happening::JobMoved { from, to, .. } => html! {
            @if let Some(from) = from { (svg::state(*from)) " \u{2192} " } (svg::state(*to))
        },
        Happening::JobProgressed { progress, .. } => super::overview::progress_of(progress),
        Happening::QueueChanged { paused, .. } => {
            html! { @if *paused { "paused" } @else { "not paused" } }
        }
        Happening::LogAppended { bytes, .. } => html! { "log of " (crate::format::bytes(*bytes)) },
        _ => html! {},
    }
}

pub(crate) fn queue_of(happening: &Happening) -> Option<&Queue> {
    match happening {
        Happening::JobMoved { queue, .. }
        | Happening::JobRemoved { queue, .. }
        | Happening::QueueChanged { queue, .. } => Some(queue),
        _ => None,
    }
}

fn kind_of(happening: &Happening) -> Option<&ganger_types::Kind> {
    match happening {
        Happening::JobMoved { kind, .. } => Some(kind),
        _ => None,
    }
}

pub(crate) fn job_of(happening: &Happening) -> Option<&JobId> {
    match happening {
        Happening::JobMoved { job, .. }
        | Happening::JobProgressed { job, .. }
        | Happening::JobRemoved { job, .. } => Some(job),
        _ => None,
    }
}

fn worker_of(happening: &Happening) -> Option<&Worker> {
    match happening {
        Happening::JobMoved { worker, .. } => worker.as_ref(),
        Happening::WorkerSeen { worker } | Happening::WorkerGone { worker } => Some(worker),
        _ => None,
    }
}
