//! One worker: what it holds, with progress, and what it finished last.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use ganger_document::names::show;
use ganger_shard::Handle;
use ganger_types::query::{Budget, JobQuery};
use ganger_types::{JobId, Kind, Queue, ShardId, StoredJob, Timestamp, What, Worker};
use maud::{Markup, html};

use crate::data::rates;
use crate::fault::Fault;
use crate::format::{count, counted, span};
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::question::Shard;
use crate::svg;
use crate::text::{name, plain};
use crate::view::View;
use crate::widgets::{columns, danger, job_link, kind_link, queue_link, table};

use super::overview::progress_of;
use super::workers::{Row, all, badge, queues, text};

/// Jobs that it holds, with their progress.
const HELD_MAX: usize = 100;
/// Number of held jobs that are read at a time.
const READ_AT_ONCE: usize = 8;
/// Jobs that it finished last.
const FINISHED_MAX: usize = 20;
/// Ended jobs that are read at a time to find those.
const PAGE_ENDED: usize = 200;
/// Ended jobs of a shard that are looked at.
const LOOKED_MAX: usize = 20_000;
/// Time for which a shard's ended jobs are looked at.
const LOOKED_FOR: Duration = Duration::from_millis(40);

/// A job that the worker holds: id, queue, kind, time of the grant; and its record, if that can be read.
type Held = ((JobId, Queue, Kind, Timestamp), Option<StoredJob>);

/// What a worker finished last.
#[derive(Default)]
struct Finished {
    jobs: Vec<StoredJob>,
    /// Number of ended jobs that were looked at.
    looked: usize,
    /// Whether the bounds ended the search before enough were found.
    is_cut: bool,
    /// When the last of those that were looked at ended; `None` if that is not known.
    back_to: Option<Timestamp>,
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["name"])?;
    let wanted: Worker = params.needed("name")?;
    view.rights.check("listWorkers")?;
    let (rows, _) = all(view).await?;
    let known = rows.into_iter().filter(|row| row.worker.worker == wanted);
    let known: Vec<Row> = known.map(|row| row.observed(view)).collect();
    let mut own: Vec<(Handle, Row)> = Vec::new();
    let mut elsewhere: Vec<ShardId> = Vec::new();
    for row in known {
        match row.shard.clone() {
            Shard::Here(shard) => own.push((shard, row)),
            Shard::Elsewhere(shard) => elsewhere.push(shard),
        }
    }
    let on = |shard: &ShardId| {
        let address = view.links.on(shard, "/worker");
        address.name("name", wanted.as_bytes())
    };
    if let (true, Some(shard)) = (own.is_empty(), elsewhere.first()) {
        // The page of a worker is made where it works.
        return Err(Stop::Elsewhere(on(shard).as_str().to_owned()));
    }
    let shown = plain(&show(wanted.as_bytes()));
    let Some((_, first)) = own.first() else {
        let fault = Fault::new(
            "path_not_found",
            format!("There is no worker {shown}"),
            "It has deregistered, or has been silent for a day.",
        );
        return Err(fault.into());
    };
    let head = html! {
        div.heading { h1 { "Worker " (name(wanted.as_bytes())) } (badge(first.state(view))) }
        @if !elsewhere.is_empty() {
            p.remark {
                "It also works on "
                @for shard in &elsewhere { a href=(on(shard)) { "shard " (shard) } " " }
            }
        }
    };
    let mut facts_part = html! {};
    let mut held_part = html! {};
    let mut finished_part = html! {};
    for (shard, row) in &own {
        let jobs = held(view, shard, row).await;
        let finished = finished(view, shard, &wanted).await?;
        facts_part = html! { (facts_part) (facts(view, row)) };
        held_part = html! { (held_part) (held_rows(view, row, &jobs)) };
        finished_part = html! { (finished_part) (finished_rows(view, row, &finished)) };
    }
    Ok(Page::new(format!("Worker {shown}"), "Workers", head)
        .part("part-facts", facts_part)
        .part("part-holds", html! { h2 { "Holds" } (held_part) })
        .part(
            "part-finished",
            html! { h2 { "Finished last" } (finished_part) },
        ))
}

/// The jobs that a worker holds, each read for its progress.
async fn held(view: &View, shard: &Handle, row: &Row) -> Vec<Held> {
    let held = row.worker.holds.iter().take(HELD_MAX).cloned();
    let read = stream::iter(held).map(async |held| {
        let job = shard.job(view.namespace(), &held.0).await;
        (held, job.ok().flatten())
    });
    read.buffered(READ_AT_ONCE).collect().await
}

/// The jobs that ended last and whose last attempt the worker made, within bounds.
async fn finished(view: &View, shard: &Handle, worker: &Worker) -> Result<Finished, Fault> {
    let began = Instant::now();
    let mut found = Finished::default();
    let mut after = None;
    loop {
        let left = LOOKED_FOR.saturating_sub(began.elapsed());
        let query = JobQuery {
            namespace: view.namespace().clone(),
            limit: PAGE_ENDED,
            budget: Budget {
                time: Some(left),
                ..Budget::default()
            },
            ..JobQuery::default()
        };
        let page = shard.list_by_end(query, after).await?;
        found.looked += page.jobs.len();
        let ended = |job: &StoredJob| job.record.finished.as_ref().map(|end| end.at);
        let last = page.jobs.last().and_then(ended);
        let own = page.jobs.into_iter().filter(|job| made(job, worker));
        found.jobs.extend(own);
        if found.jobs.len() >= FINISHED_MAX {
            found.jobs.truncate(FINISHED_MAX);
            return Ok(found);
        }
        match page.next {
            None => return Ok(found),
            Some(_) if found.looked >= LOOKED_MAX || left.is_zero() => {
                found.is_cut = true;
                found.back_to = last;
                return Ok(found);
            }
            next => after = next,
        }
    }
}

/// Whether the last attempt of a job was made by the worker.
fn made(job: &StoredJob, worker: &Worker) -> bool {
    attempt(job).is_some_and(|(by, _)| by == worker)
}

/// The worker of the last attempt, and how long that ran.
fn attempt(job: &StoredJob) -> Option<(&Worker, Duration)> {
    let history = job.record.history.iter().rev();
    history.into_iter().find_map(|entry| match &entry.what {
        What::Attempt {
            worker, leased_at, ..
        } => Some((worker, entry.at.since(*leased_at))),
        _ => None,
    })
}

fn facts(view: &View, row: &Row) -> Markup {
    let worker = &row.worker;
    let known = row.facts.as_ref();
    let shown = ganger_document::names::text(worker.worker.as_bytes());
    html! {
        dl.facts {
            div { dt { "Shard" } dd { (row.shard.id()) } }
            div { dt { "Last sign" } dd { (view.clock.time(worker.seen_at)) " (" (view.clock.ago(worker.seen_at)) ")" } }
            div { dt { "Queues" } dd { (queues(view, row)) } }
            div { dt { "Slots" } dd { (row.slots()) } }
            div { dt { "Address" } dd { (text(known.map(|known| known.address.as_str()))) } }
            div { dt { "Version" } dd { (text(known.map(|known| known.version.as_str()))) } }
            @if let Some(known) = known {
                div { dt { "First request since the start" } dd { (view.clock.time(known.since)) } }
                div { dt { "Done" } dd { (counted(known.completed)) } }
                div { dt { "Done/min" } dd { (rates::text(known.completed_per_minute_in_tenths)) } }
                div { dt { "Failed" } dd { (counted(known.failed)) } }
                div { dt { "Lost" } dd { (counted(known.lost)) } }
            }
        }
        @if known.is_none() { p.remark { "It has asked for no jobs since the start of the server." } }
        @if !worker.holds.is_empty() {
            div.actions { (danger(view, "Release its jobs", "releaseWorker", &[("worker", &shown), ("shard", row.shard.id().as_str())])) }
        }
    }
}

fn held_rows(view: &View, row: &Row, jobs: &[Held]) -> Markup {
    if jobs.is_empty() {
        return html! { p.empty { "It holds no job." } };
    }
    let head = columns(&["Job", "Queue", "Kind", "#For", "Progress"]);
    let body = html! {
        @for ((id, queue, kind, since), job) in jobs {
            tr data-row {
                th scope="row" { (job_link(view, row.shard.id(), id)) }
                td { (queue_link(view, row.shard.id(), queue)) }
                td { (kind_link(view, kind)) }
                td.number { (view.clock.since(*since)) }
                td { @match job.as_ref().and_then(|job| job.record.progress.as_ref()) { Some(progress) => (progress_of(progress)), None => "\u{2013}" } }
            }
        }
    };
    let all = row.worker.holds.len();
    html! {
        (table("Jobs that it holds", &head, &body))
        @if all > jobs.len() { p.remark { "The first " (jobs.len()) " of " (count(u64::try_from(all).unwrap_or(0))) "." } }
    }
}

fn finished_rows(view: &View, row: &Row, finished: &Finished) -> Markup {
    let looked = count(u64::try_from(finished.looked).unwrap_or(0));
    let head = columns(&["Job", "Queue", "Kind", "State", "#Ran", "Ended"]);
    let body = html! {
        @for job in &finished.jobs {
            @let record = &job.record;
            tr data-row {
                th scope="row" { (job_link(view, row.shard.id(), &record.id)) }
                td { (queue_link(view, row.shard.id(), &record.queue)) }
                td { (kind_link(view, &record.kind)) }
                td { (svg::state(record.state)) }
                td.number { @match attempt(job) { Some((_, ran)) => (span(ran)), None => "\u{2013}" } }
                td { @match &record.finished { Some(end) => (view.clock.ago(end.at)), None => "\u{2013}" } }
            }
        }
    };
    html! {
        @if !finished.jobs.is_empty() { (table("Jobs that it finished last", &head, &body)) }
        @else if !finished.is_cut { p.empty { "It has finished no job that is kept." } }
        @if finished.is_cut {
            p.remark { (finished.jobs.len()) " found among the " (looked) " jobs that ended last" @if let Some(at) = finished.back_to { ", back to " (view.clock.time(at)) } "." }
        }
    }
}
