//! One queue: why it is behind, and its switches.

use std::time::Duration;

use ganger_document::names::show;
use ganger_shard::Handle;
use ganger_types::limits::PAGE_WORKERS_MAX;
use ganger_types::query::{JobQuery, Query};
use ganger_types::reply::WorkerView;
use ganger_types::{
    Day, JobState, NamespaceSettings, Queue, Reply, ScheduleRecord, StatisticsRecord, StoredJob,
};
use maud::{Markup, html};

use crate::data::attention::silence;
use crate::data::queues::{self, Row};
use crate::data::sample::{Quantiles, merged};
use crate::fault::Fault;
use crate::format::{count, counted, plural, span};
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::text::{name, plain};
use crate::view::View;
use crate::widgets::{button, columns, danger, job_link, kind_link, named_link, table};

use super::overview::{oldest_text, rate, state_badge};
use super::queues::near;

pub(crate) const PARAMETERS: &[&str] = &["name", "window"];
/// Rows of the table of next jobs.
const NEXT: usize = 10;
const MICROS_PER_DAY: u64 = 86_400_000_000;

/// What the page shows.
pub(super) struct QueuePage {
    pub(super) row: Row,
    /// Other shards that have a queue of this name.
    pub(super) others: Vec<Handle>,
    pub(super) namespace: NamespaceSettings,
    pub(super) next: Vec<StoredJob>,
    pub(super) workers: Vec<WorkerView>,
    pub(super) schedules: Vec<ScheduleRecord>,
    /// Statistics of the days of the window.
    pub(super) days: Vec<StatisticsRecord>,
    pub(super) window: &'static str,
}

/// Windows by name, with the number of days that statistics are read for.
const WINDOWS: &[(&str, (&str, u32))] = &[
    ("1h", ("today (UTC)", 1)),
    ("24h", ("today and yesterday (UTC)", 2)),
    ("7d", ("the last 7 days (UTC)", 7)),
    ("31d", ("the last 31 days (UTC)", 31)),
];

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, PARAMETERS)?;
    let queue: Queue = params.needed("name")?;
    let window = params.word("window", WINDOWS)?;
    view.rights.check("getQueue")?;
    let (row, others) = find(view, &queue).await?;
    let page = read(view, row, others, window.unwrap_or(WINDOWS[0].1)).await?;
    Ok(show_page(view, &page))
}

/// The shard of the view that knows the queue. Without any the refusal names queues that come near.
async fn find(view: &View, queue: &Queue) -> Result<(Row, Vec<Handle>), Fault> {
    let (rows, _) = queues::all(view).await?;
    let mut known = rows.iter().filter(|row| row.queue.queue == *queue);
    if let Some(row) = known.next() {
        let others = known.map(|row| row.shard.clone()).collect();
        return Ok((row.clone(), others));
    }
    let wanted = plain(&show(queue.as_bytes()));
    let mut fault = Fault::new(
        "queue_not_found",
        format!("There is no queue {wanted}."),
        "No job has ever used it in this namespace.",
    );
    let names = rows.iter().map(|row| row.queue.queue.as_bytes());
    for name in near(&wanted, names) {
        let address = view.links.to("/queue").with("name", &name);
        fault.near.push((name, address.as_str().to_owned()));
    }
    Err(fault)
}

async fn read(
    view: &View,
    mut row: Row,
    others: Vec<Handle>,
    (window, days): (&'static str, u32),
) -> Result<QueuePage, Fault> {
    let (shard, queue) = (row.shard.clone(), row.queue.queue.clone());
    queues::look(view, vec![&mut row]).await;
    let next = if view.rights.may_read("listJobs") {
        next_jobs(view, &row).await?
    } else {
        Vec::new()
    };
    Ok(QueuePage {
        namespace: namespace_settings(view, &shard).await?,
        workers: holders(view, &shard, &queue).await?,
        schedules: schedules(view, &shard, &queue).await?,
        days: statistics(view, &shard, &queue, days).await?,
        row,
        others,
        next,
        window,
    })
}

/// The ready jobs that go next: by priority, then in the order in which they became ready.
async fn next_jobs(view: &View, row: &Row) -> Result<Vec<StoredJob>, Fault> {
    let query = JobQuery {
        namespace: view.namespace().clone(),
        limit: NEXT,
        ..JobQuery::default()
    };
    let page = row.shard.list_next(&query, &row.queue.queue, None).await?;
    Ok(page.jobs)
}

async fn namespace_settings(view: &View, shard: &Handle) -> Result<NamespaceSettings, Fault> {
    let Reply::Namespaces(all) = view.ask(shard, Query::Namespaces).await? else {
        return Err(Fault::unexpected_reply());
    };
    let own = all.into_iter().find(|it| it.namespace == *view.namespace());
    Ok(own.map(|record| record.settings).unwrap_or_default())
}

/// The workers that hold jobs of the queue.
async fn holders(view: &View, shard: &Handle, queue: &Queue) -> Result<Vec<WorkerView>, Fault> {
    if !view.rights.may_read("listWorkers") {
        return Ok(Vec::new());
    }
    let query = Query::Workers(view.namespace().clone(), None, PAGE_WORKERS_MAX);
    let Reply::Workers(mut all) = view.ask(shard, query).await? else {
        return Err(Fault::unexpected_reply());
    };
    for worker in &mut all {
        worker.holds.retain(|held| held.1 == *queue);
    }
    all.retain(|worker| !worker.holds.is_empty());
    all.truncate(100);
    Ok(all)
}

async fn schedules(
    view: &View,
    shard: &Handle,
    queue: &Queue,
) -> Result<Vec<ScheduleRecord>, Fault> {
    if !view.rights.may_read("listSchedules") {
        return Ok(Vec::new());
    }
    let query = Query::Schedules(view.namespace().clone());
    let Reply::Schedules(mut all) = view.ask(shard, query).await? else {
        return Err(Fault::unexpected_reply());
    };
    all.retain(|schedule| schedule.queue == *queue);
    all.truncate(100);
    Ok(all)
}

async fn statistics(
    view: &View,
    shard: &Handle,
    queue: &Queue,
    days: u32,
) -> Result<Vec<StatisticsRecord>, Fault> {
    let today = u32::try_from(view.clock.now.0 / MICROS_PER_DAY).unwrap_or(u32::MAX);
    let mut found = Vec::new();
    for back in 0..days {
        let day = Day(today.saturating_sub(back));
        found.extend(shard.statistics(view.namespace(), queue, day).await?);
    }
    Ok(found)
}

pub(super) fn show_page(view: &View, page: &QueuePage) -> Page {
    let queue = &page.row.queue;
    let text = plain(&show(queue.queue.as_bytes()));
    Page::new(format!("Queue {text}"), "Queues", head(view, page))
        .part("part-counts", counts(view, page))
        .part("part-why", html! { h2 { "Why jobs wait" } (why(page)) })
        .part(
            "part-times",
            html! { h2 { "Waiting and running time" } (times(view, page)) },
        )
        .part("part-next", html! { h2 { "Next jobs" } (next(view, page)) })
        .part(
            "part-workers",
            html! { h2 { "Workers" } (workers(view, page)) },
        )
        .part(
            "part-schedules",
            html! { h2 { "Schedules" } (schedule_list(view, page)) },
        )
        .part(
            "part-settings",
            html! { h2 #settings { "Settings" } (settings(page)) },
        )
}

fn head(view: &View, page: &QueuePage) -> Markup {
    let queue = &page.row.queue;
    let shown = show(queue.queue.as_bytes());
    let shard = page.row.shard.id();
    let fields = [("queue", &*shown), ("shard", shard.as_str())];
    let bulk = |state: &str| {
        vec![
            ("queue", shown.to_string()),
            ("shard", shard.to_string()),
            ("state", state.to_owned()),
        ]
    };
    let is_live = queue.counts.live() > 0;
    html! {
        div.heading {
            h1 { "Queue " (name(queue.queue.as_bytes())) }
            (state_badge(page.row.state()))
            div.actions {
                @if view.rights.may_do("enqueueJob") {
                    a.button href=(view.links.to("/jobs/new").with("queue", &shown)) { "New job" }
                }
                @if queue.settings.paused { (button(view, "Resume queue", "resumeQueue", &fields)) }
                @else { (button(view, "Pause queue", "pauseQueue", &fields)) }
                @if view.rights.may_do("setQueue") {
                    a.button href=(view.links.on(shard, "/queue/settings").with("name", &shown)) { "Edit settings" }
                }
                @if queue.counts.failed > 0 { (with_pairs(view, "Retry failed jobs", "retryJobs", &bulk("failed"), false)) }
                @if is_live { (with_pairs(view, "Cancel waiting jobs", "cancelJobs", &bulk("ready,scheduled,blocked"), true)) }
                @if queue.counts.succeeded + queue.counts.failed + queue.counts.cancelled > 0 {
                    (with_pairs(view, "Delete ended jobs", "deleteJobs", &bulk("succeeded,failed,cancelled"), true))
                }
                @if !is_live { (danger(view, "Forget queue", "forgetQueue", &fields)) }
            }
        }
        @if let Some(why) = view.rights.why_not("pauseQueue") { p.soft { "Pausing this queue: " (why) } }
        @if !page.others.is_empty() {
            p.remark {
                "This is the queue on shard " (shard) ". Also on "
                @for other in &page.others {
                    a href=(view.links.on(other.id(), "/queue").with("name", &shown)) { "shard " (other.id()) } " "
                }
            }
        }
    }
}

fn with_pairs(
    view: &View,
    label: &str,
    action: &'static str,
    pairs: &[(&str, String)],
    is_danger: bool,
) -> Markup {
    let pairs: Vec<(&str, &str)> = pairs
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    if is_danger {
        danger(view, label, action, &pairs)
    } else {
        button(view, label, action, &pairs)
    }
}

fn counts(view: &View, page: &QueuePage) -> Markup {
    let queue = &page.row.queue;
    let shown = show(queue.queue.as_bytes());
    let cells = [
        ("Ready", JobState::Ready),
        ("Running", JobState::Running),
        ("Scheduled", JobState::Scheduled),
        ("Blocked", JobState::Blocked),
        ("Succeeded", JobState::Succeeded),
        ("Failed", JobState::Failed),
        ("Cancelled", JobState::Cancelled),
    ];
    html! {
        dl.counts {
            @for (word, state) in cells {
                @let number = queue.counts.of(state);
                @let address = view.links.to("/jobs").with("queue", &shown).with("state", state.as_str());
                div class={ "count count-" (state.as_str()) } {
                    dt { (word) }
                    dd {
                        a href=(address) aria-label={ (count(number)) " " (word) } { (counted(number)) }
                        @if state == JobState::Running { @if let Some(limit) = queue.settings.running_max { span.soft { " of " (count(limit.into())) } } }
                    }
                }
            }
        }
        dl.facts {
            div { dt { "Oldest" } dd { (oldest_text(&page.row)) } }
            div { dt { "Enqueued ever" } dd { (counted(queue.enqueued_total)) } }
            div { dt { "Finished ever" } dd { (counted(queue.finished_total)) } }
            div { dt { "Enqueued/min" } dd { (rate(page.row.rate.map(|rate| rate.arrivals_in_tenths()))) } }
            div { dt { "Done/min" } dd { (rate(page.row.rate.map(|rate| rate.completions_in_tenths()))) } }
            div { dt { "First used" } dd { (view.clock.time(queue.created_at)) } }
        }
    }
}

/// Counts by reason, as far as the state of the queue tells it of all its jobs alike.
fn why(page: &QueuePage) -> Markup {
    let queue = &page.row.queue;
    let (counts, settings) = (&queue.counts, &queue.settings);
    let shown = show(queue.queue.as_bytes());
    let limit = settings
        .running_max
        .filter(|limit| counts.running >= u64::from(*limit));
    let silent = page.row.workers.and_then(silence);
    let mut rows: Vec<(u64, Markup)> = Vec::new();
    if counts.ready > 0 {
        let reason = if settings.paused {
            html! { "The queue is paused." }
        } else if let Some(silent) = silent {
            html! { "No worker has asked " (silent) ". Start one: " (crate::widgets::command(&format!("ganger worker --queue '{}' --dir ./programs", plain(&shown)))) }
        } else if let Some(limit) = limit {
            html! { "The queue runs " (count(counts.running)) " of at most " (plural(limit.into(), "job")) "." }
        } else {
            html! { "Workers take them in their turn." }
        };
        rows.push((counts.ready, reason));
    }
    if counts.scheduled > 0 {
        rows.push((counts.scheduled, html! { "Their time has not come." }));
    }
    if counts.blocked > 0 {
        rows.push((counts.blocked, html! { "They wait for other jobs." }));
    }
    if rows.is_empty() {
        return html! { p.empty { "No job waits." } };
    }
    let head = columns(&["#Jobs", "Reason"]);
    let body = html! { @for (number, reason) in rows { tr { td.number { (counted(number)) } td { (reason) } } } };
    table("Why jobs wait", &head, &body)
}

fn times(view: &View, page: &QueuePage) -> Markup {
    let shown = show(page.row.queue.queue.as_bytes());
    let words = ["Today", "2 days", "7 days", "31 days"];
    let windows: Vec<_> = WINDOWS
        .iter()
        .zip(words)
        .map(|((window, (of, _)), word)| {
            let address = view.links.on(page.row.shard.id(), "/queue");
            let address = address.with("name", &shown).with("window", window);
            (word, address, *of == page.window)
        })
        .collect();
    let waiting = merged(page.days.iter().map(|day| &day.waiting));
    let running = merged(page.days.iter().map(|day| &day.running));
    let failures: u64 = page.days.iter().map(|day| day.failures).sum();
    let retries: u64 = page.days.iter().map(|day| day.retries).sum();
    html! {
        (crate::widgets::tabs("Window", &windows))
        p.soft { "Of " (page.window) ": " (plural(failures, "failed attempt")) ", " (count(retries)) " retries and expired leases." }
        @if waiting.count == 0 { p.empty { "No job was leased in this time." } }
        @else {
            (quantile_table(&[("Waiting", &waiting), ("Running", &running)]))
            (distribution("Waiting time", &waiting))
            (distribution("Running time", &running))
        }
    }
}

fn quantile_table(rows: &[(&str, &Quantiles)]) -> Markup {
    let head = columns(&["Time", "#Jobs", "#p50", "#p95", "#p99", "#Mean"]);
    let body = html! {
        @for (word, sample) in rows {
            tr {
                th scope="row" { (word) }
                td.number { (counted(sample.count)) }
                td.number { (sample.quantile(0.5)) }
                td.number { (sample.quantile(0.95)) }
                td.number { (sample.quantile(0.99)) }
                td.number { (sample.mean()) }
            }
        }
    };
    table("Waiting and running time", &head, &body)
}

/// A histogram, with its numbers as a table below.
fn distribution(caption: &str, sample: &Quantiles) -> Markup {
    let bins = sample.coarse();
    let most = bins
        .iter()
        .map(|(_, count)| *count)
        .max()
        .unwrap_or(0)
        .max(1);
    let heights: Vec<u64> = bins.iter().map(|(_, count)| count * 100 / most).collect();
    html! {
        figure.distribution {
            figcaption { (caption) }
            (svg::histogram(&heights))
            details { summary { "Numbers as a table" }
                (table(caption, &columns(&["From", "#Jobs"]), &html! {
                    @for (from, number) in &bins { tr { th scope="row" { (from) } td.number { (counted(*number)) } } }
                }))
            }
        }
    }
}

fn next(view: &View, page: &QueuePage) -> Markup {
    if page.next.is_empty() {
        return html! { p.empty { "No job is ready." } };
    }
    let head = columns(&["Job", "Kind", "#Priority", "#Attempt", "Created"]);
    let body = html! {
        @for job in &page.next {
            tr data-row {
                th scope="row" { (job_link(view, page.row.shard.id(), &job.record.id)) }
                td { (kind_link(view, &job.record.kind)) }
                td.number { (ganger_document::view::priority(job.record.priority)) }
                td.number { (job.record.attempt + 1) }
                td { (view.clock.ago(job.record.created_at)) }
            }
        }
    };
    table("Next jobs", &head, &body)
}

fn workers(view: &View, page: &QueuePage) -> Markup {
    if page.workers.is_empty() {
        return html! { p.empty { "No worker holds a job of this queue." } };
    }
    let head = columns(&["Worker", "#Holds", "Last sign"]);
    let body = html! {
        @for worker in &page.workers {
            tr {
                th scope="row" { (named_link(&view.links.to("/worker").name("name", worker.worker.as_bytes()), worker.worker.as_bytes())) }
                td.number { (worker.holds.len()) }
                td { (view.clock.ago(worker.seen_at)) }
            }
        }
    };
    table("Workers that hold jobs of this queue", &head, &body)
}

fn schedule_list(view: &View, page: &QueuePage) -> Markup {
    if page.schedules.is_empty() {
        return html! { p.empty { "No schedule feeds this queue." } };
    }
    html! {
        ul {
            @for schedule in &page.schedules {
                li {
                    (named_link(&view.links.on(page.row.shard.id(), "/schedule").name("id", schedule.id.as_bytes()), schedule.id.as_bytes()))
                    @if let Some(next) = schedule.next_at { ", next " (view.clock.ago(next)) }
                }
            }
        }
    }
}

/// Each setting with its value and where that comes from.
fn settings(page: &QueuePage) -> Markup {
    let own = &page.row.queue.settings;
    let namespace = &page.namespace;
    let default = NamespaceSettings::default();
    let inherited = |is_default: bool| if is_default { "default" } else { "namespace" };
    let duration = |own: Option<Duration>, of: Duration, default: Duration| match own {
        Some(own) => (span(own), "queue"),
        None => (span(of), inherited(of == default)),
    };
    let lease = duration(own.lease_for, namespace.lease_for, default.lease_for);
    let retries = match &own.retry {
        Some(retry) => (retry.retries_max.to_string(), "queue"),
        None => (
            namespace.retry.retries_max.to_string(),
            inherited(namespace.retry == default.retry),
        ),
    };
    let retention = own.retention.as_ref().unwrap_or(&namespace.retention);
    let from = if own.retention.is_some() {
        "queue"
    } else {
        inherited(namespace.retention == default.retention)
    };
    let keep = |keep: &ganger_types::Keep| {
        let age = keep.age.map_or_else(|| "any age".to_owned(), span);
        match keep.count {
            Some(most) => format!("{age}, newest {}", count(most)),
            None => age,
        }
    };
    let limit = |limit: Option<u64>| match limit {
        Some(limit) => (count(limit), "queue"),
        None => ("no limit".to_owned(), "default"),
    };
    let rows = [
        (
            "Jobs running at once",
            limit(own.running_max.map(u64::from)),
        ),
        ("Live jobs taken", limit(own.live_max)),
        ("Length of leases", lease),
        (
            "Warning before a lease is taken away",
            own.grace_for
                .map_or(("none".to_owned(), "default"), |grace| {
                    (span(grace), "queue")
                }),
        ),
        ("Retries", retries),
        ("Keeps succeeded jobs", (keep(&retention.succeeded), from)),
        ("Keeps failed jobs", (keep(&retention.failed), from)),
        ("Keeps cancelled jobs", (keep(&retention.cancelled), from)),
    ];
    let head = columns(&["Setting", "Value", "From"]);
    let body = html! { @for (word, (value, from)) in rows { tr { th scope="row" { (word) } td { (value) } td { (from) } } } };
    table("Settings", &head, &body)
}
