//! Workers: who works, on what, who is gone.

use ganger_document::names::show;
use ganger_shard::{Handle, worker_state};
use ganger_types::limits::PAGE_WORKERS_MAX;
use ganger_types::observed::WorkerState;
use ganger_types::query::Query;
use ganger_types::reply::WorkerView;
use ganger_types::{Reply, Worker};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::format::count;
use crate::frame::kept_scope;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::text::{name, plain};
use crate::view::{Missing, View};
use crate::widgets::{
    self, columns, danger, empty, job_link, kind_link, named_link, queue_link, table,
};

/// Rows of a page.
const ROWS: usize = 100;
/// Jobs that a row names.
const HELD_SHOWN: usize = 3;
/// All workers of the view.
pub(super) async fn all(view: &View) -> Result<(Vec<(Handle, WorkerView)>, Missing), Fault> {
    let gathered = view
        .gather(|shard| async move {
            let (mut all, mut after) = (Vec::new(), None);
            loop {
                let query = Query::Workers(view.namespace().clone(), after, PAGE_WORKERS_MAX);
                let Reply::Workers(workers) = view.ask(shard, query).await? else {
                    return Err(Fault::unexpected_reply());
                };
                after = workers.last().map(|last| last.worker.clone());
                let is_last = workers.len() < PAGE_WORKERS_MAX;
                all.extend(workers);
                if is_last {
                    return Ok(all);
                }
            }
        })
        .await?;
    let rows = gathered.found.into_iter().flat_map(|(shard, workers)| {
        workers
            .into_iter()
            .map(move |worker| (shard.clone(), worker))
    });
    Ok((rows.collect(), gathered.missing))
}

fn state(view: &View, worker: &WorkerView) -> WorkerState {
    worker_state(worker, view.clock.now)
}

fn badge(state: WorkerState) -> Markup {
    match state {
        WorkerState::Busy => svg::badge("busy", "Busy"),
        WorkerState::Idle => svg::badge("idle", "Idle"),
        WorkerState::Silent => svg::badge("bad", "Silent"),
    }
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["state", "queue", "name", "after"])?;
    view.rights.check("listWorkers")?;
    let words = [
        ("busy", WorkerState::Busy),
        ("idle", WorkerState::Idle),
        ("silent", WorkerState::Silent),
    ];
    let wanted = params.word("state", &words)?;
    let queue = params.name::<ganger_types::Queue>("queue")?;
    let part = params.text("name")?.unwrap_or_default().to_owned();
    let (mut rows, missing) = all(view).await?;
    rows.retain(|(_, worker)| {
        wanted.is_none_or(|wanted| state(view, worker) == wanted)
            && queue
                .as_ref()
                .is_none_or(|queue| worker.holds.iter().any(|held| held.1 == *queue))
            && show(worker.worker.as_bytes()).contains(&part)
    });
    rows.sort_by(|(_, a), (_, b)| {
        b.holds
            .len()
            .cmp(&a.holds.len())
            .then(a.worker.cmp(&b.worker))
    });
    let matching = rows.len();
    let after: usize = params.number("after", 0, 1_000_000)?.unwrap_or(0);
    let rows: Vec<_> = rows.into_iter().skip(after).take(ROWS).collect();
    let head = html! {
        div.heading { h1 { "Workers" } span.soft { "(" (matching) ")" } }
        form.filter role="search" aria-label="Filter workers" action=(view.links.bare("/workers")) {
            label { "Filter by name " input type="search" name="name" value=(part) maxlength="255"; }
            (kept_scope(view))
            button { "Filter" }
        }
    };
    let more = after + rows.len() < matching;
    let next = view
        .links
        .to("/workers")
        .with_if("name", Some(part.as_str()).filter(|part| !part.is_empty()));
    let next = next.with("after", &(after + ROWS).to_string());
    let page = Page::new("Workers", "Workers", head);
    Ok(page.part("part-workers", html! {
        (list(view, &rows))
        @if more { nav.pages aria-label="Pages" { a.button href=(next) data-page="older" { "Next" } } }
        (widgets::missing(&missing))
    }))
}

fn list(view: &View, rows: &[(Handle, WorkerView)]) -> Markup {
    if rows.is_empty() {
        let next = widgets::command("ganger worker --queue default --dir ./programs");
        return empty("No worker has been seen.", &next);
    }
    let head = columns(&["Worker", "State", "Queues", "#Holds", "Jobs", "Last sign"]);
    let body = html! {
        @for (shard, worker) in rows {
            tr data-row {
                th scope="row" { (named_link(&view.links.to("/worker").name("name", worker.worker.as_bytes()), worker.worker.as_bytes())) }
                td { (badge(state(view, worker))) }
                td { (queues(view, shard, worker)) }
                td.number { (count(u64::try_from(worker.holds.len()).unwrap_or(0))) }
                td {
                    @for (id, _, _, since) in worker.holds.iter().take(HELD_SHOWN) { (job_link(view, shard.id(), id)) " for " (view.clock.since(*since)) " " }
                    @if worker.holds.len() > HELD_SHOWN { "and more" }
                }
                td { (view.clock.ago(worker.seen_at)) }
            }
        }
    };
    table("Workers", &head, &body)
}

/// The queues of the jobs that a worker holds.
fn queues(view: &View, shard: &Handle, worker: &WorkerView) -> Markup {
    let mut queues: Vec<_> = worker.holds.iter().map(|held| &held.1).collect();
    queues.sort();
    queues.dedup();
    html! { @for queue in queues.iter().take(HELD_SHOWN) { (queue_link(view, shard.id(), queue)) " " } }
}

/// One worker, with what it holds.
pub(super) async fn one(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["name"])?;
    let wanted: Worker = params.needed("name")?;
    view.rights.check("listWorkers")?;
    let (rows, _) = all(view).await?;
    let own: Vec<_> = rows
        .into_iter()
        .filter(|(_, worker)| worker.worker == wanted)
        .collect();
    let text = plain(&show(wanted.as_bytes()));
    if own.is_empty() {
        let heading = format!("There is no worker {text}");
        return Err(Fault::new(
            "path_not_found",
            heading,
            "It has deregistered, or has been silent for a day.",
        )
        .into());
    }
    let head = html! {
        div.heading { h1 { "Worker " (name(wanted.as_bytes())) } (badge(state(view, &own[0].1))) }
        @for (shard, worker) in &own {
            p.soft { "Last sign " (view.clock.ago(worker.seen_at)) " on shard " (shard.id()) }
            @if !worker.holds.is_empty() {
                div.actions { (danger(view, "Release its jobs", "releaseWorker", &[("worker", &*show(wanted.as_bytes())), ("shard", shard.id().as_str())])) }
            }
        }
    };
    let columns = columns(&["Job", "Queue", "Kind", "#For"]);
    let body = html! {
        @for (shard, worker) in &own {
            @for (id, queue, kind, since) in worker.holds.iter().take(ROWS) {
                tr data-row {
                    th scope="row" { (job_link(view, shard.id(), id)) }
                    td { (queue_link(view, shard.id(), queue)) }
                    td { (kind_link(view, kind)) }
                    td.number { (view.clock.since(*since)) }
                }
            }
        }
    };
    let holds = own.iter().any(|(_, worker)| !worker.holds.is_empty());
    let page = Page::new(format!("Worker {text}"), "Workers", head);
    Ok(page.part("part-holds", html! {
        h2 { "Holds" }
        @if holds { (table("Jobs that it holds", &columns, &body)) } @else { p.empty { "It holds no job." } }
    }))
}
