//! One queue: why it is behind, and its switches.

mod kinds;
mod settings;
mod times;

use std::collections::BTreeMap;

use ganger_document::names::show;
use ganger_shard::Handle;
use ganger_shard::series::Metric;
use ganger_types::limits::PAGE_WORKERS_MAX;
use ganger_types::observed::Asker;
use ganger_types::query::{JobQuery, Query};
use ganger_types::reply::WorkerView;
use ganger_types::{
    Day, JobState, NamespaceSettings, Queue, Reply, ScheduleRecord, ShardId, StatisticsRecord,
    StoredJob, Worker,
};
use maud::{Markup, html};

use crate::data::attention::silence;
use crate::data::queues::{self, Row};
use crate::data::series::{Steps, Totals, Which, Window};
use crate::fault::Fault;
use crate::format::{count, counted, plural};
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::question::Shard;
use crate::svg;
use crate::text::{name, plain};
use crate::view::View;
use crate::widgets::{button, columns, danger, job_link, kind_link, named_link, table};

use super::overview::{oldest_text, rate, state_badge};
use super::queues::near;
use super::stats::numbers;
use kinds::{Kinds, show_kinds};
use settings::show_settings;
use times::show_times;

pub(crate) const PARAMETERS: &[&str] = &["name", "window"];
/// What the chart shows: metric, word, class of its line.
const RATES: [(Metric, &str, &str); 3] = [
    (Metric::Enqueued, "Enqueued", "started"),
    (Metric::Succeeded, "Succeeded", "succeeded"),
    (Metric::Failed, "Failed", "failed"),
];
/// Rows of the table of next jobs.
const NEXT: usize = 10;
const MICROS_PER_DAY: u64 = 86_400_000_000;

/// What the page shows.
pub(super) struct QueuePage {
    pub(super) row: Row,
    /// Other shards that have a queue of this name.
    pub(super) others: Vec<ShardId>,
    pub(super) namespace: NamespaceSettings,
    pub(super) next: Vec<StoredJob>,
    /// Workers that hold jobs of the queue.
    pub(super) holders: Vec<WorkerView>,
    /// Workers that ask the queue for jobs, or did within the last minute.
    pub(super) askers: Vec<Asker>,
    /// Values of the metrics of [`RATES`].
    rates: Totals,
    kinds: Kinds,
    pub(super) schedules: Vec<ScheduleRecord>,
    /// Statistics of the days of the window.
    pub(super) days: Vec<StatisticsRecord>,
    pub(super) window: &'static str,
    /// The same window, for what is counted by the minute.
    pub(super) steps: Window,
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
    let shard = match &row.shard {
        Shard::Here(shard) => shard.clone(),
        // The page of a queue is made where its shard is.
        Shard::Elsewhere(shard) => {
            let address = view
                .links
                .on(shard, "/queue")
                .name("name", queue.as_bytes());
            let word = params.text("window")?;
            let address = address.with_if("window", word);
            return Err(Stop::Elsewhere(address.as_str().to_owned()));
        }
    };
    let windows = (window.unwrap_or(WINDOWS[0].1), Window::of(&params)?);
    let page = read(view, &shard, row, others, windows).await?;
    Ok(show_page(view, &page))
}

/// The shard of the view that knows the queue. Without any the refusal names queues that come near.
async fn find(view: &View, queue: &Queue) -> Result<(Row, Vec<ShardId>), Fault> {
    let (rows, _) = queues::all(view).await?;
    let mut known = rows.iter().filter(|row| row.queue.queue == *queue);
    if let Some(row) = known.next() {
        let others = known.map(|row| row.shard.id().clone()).collect();
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
    shard: &Handle,
    mut row: Row,
    others: Vec<ShardId>,
    ((window, days), steps): ((&'static str, u32), Window),
) -> Result<QueuePage, Fault> {
    let queue = row.queue.queue.clone();
    queues::look_closer(view, vec![&mut row], false).await;
    let next = if view.rights.may_read("listJobs") {
        next_jobs(view, shard, &queue).await?
    } else {
        Vec::new()
    };
    let now = view.clock.now;
    let seen = shard.observe_queue_closely(view.namespace(), row.queue.clone());
    let which = Which {
        queue: Some(queue.clone()),
        kind: None,
    };
    let metrics = RATES.map(|it| it.0);
    Ok(QueuePage {
        namespace: namespace_settings(view, shard).await?,
        holders: holders(view, shard, &queue).await?,
        askers: seen.askers.unwrap_or_default(),
        rates: Steps::of(&which, steps, now, &metrics).read(view, shard)?,
        kinds: kinds::read(view, shard, &queue, (steps.from(now), now)).await?,
        steps,
        schedules: schedules(view, shard, &queue).await?,
        days: statistics(view, shard, &queue, days).await?,
        row,
        others,
        next,
        window,
    })
}

/// The ready jobs that go next: by priority, then in the order in which they became ready.
async fn next_jobs(view: &View, shard: &Handle, queue: &Queue) -> Result<Vec<StoredJob>, Fault> {
    let query = JobQuery {
        namespace: view.namespace().clone(),
        limit: NEXT,
        ..JobQuery::default()
    };
    let page = shard.list_next(&query, queue, None).await?;
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
        .part("part-rates", html! { h2 { "Rates" } (rates(view, page)) })
        .part(
            "part-times",
            html! { h2 { "Waiting and running time" } (show_times(view, page)) },
        )
        .part(
            "part-kinds",
            html! { h2 { "By kind" } (show_kinds(view, &page.kinds)) },
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
            html! { h2 #settings { "Settings" } (show_settings(page)) },
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
                    a href=(view.links.on(other, "/queue").with("name", &shown)) { "shard " (other) } " "
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

/// What was enqueued and what ended, step by step.
fn rates(view: &View, page: &QueuePage) -> Markup {
    if !page.rates.is_known() {
        return html! { p.empty { "Nothing was counted in the last " (page.steps.words) ". Counting begins with the start of the server." } };
    }
    let lines: Vec<(&str, &str, &[Option<u64>])> = RATES
        .iter()
        .zip(&page.rates.values)
        .map(|((_, word, class), values)| (*word, *class, values.as_slice()))
        .collect();
    let words = RATES.map(|it| it.1);
    let shown = show(page.row.queue.queue.as_bytes());
    let more = view.links.to("/stats").with("queue", &shown);
    html! {
        p { @for (word, sum) in words.iter().zip(page.rates.sums()) { (*word) " " (counted(sum)) " " } "in the last " (page.steps.words) "." }
        (svg::chart(&format!("Jobs per {}", page.steps.per()), &lines))
        details { summary { "Numbers as a table" } (numbers(view, page.steps.step, &page.rates, &words)) }
        p { a href=(more.with("window", page.steps.word)) { "Statistics of this queue" } }
    }
}

/// The workers that hold jobs of the queue, and those that ask for some.
fn workers(view: &View, page: &QueuePage) -> Markup {
    let mut rows: BTreeMap<&Worker, (usize, Option<&Asker>)> = BTreeMap::new();
    for worker in &page.holders {
        rows.entry(&worker.worker).or_default().0 = worker.holds.len();
    }
    for asker in &page.askers {
        rows.entry(&asker.worker).or_default().1 = Some(asker);
    }
    if rows.is_empty() {
        return html! { p.empty { "No worker holds a job of this queue, and none has asked in the last minute." } };
    }
    let head = columns(&["Worker", "#Holds", "#Asks for", "Last asked"]);
    let body = html! {
        @for (worker, (holds, asker)) in rows {
            tr {
                th scope="row" { (named_link(&view.links.to("/worker").name("name", worker.as_bytes()), worker.as_bytes())) }
                td.number { (holds) }
                @if let Some(asker) = asker {
                    td.number { (asker.slots) }
                    td { (view.clock.ago(asker.asked_at)) }
                } @else { td.number { "\u{2013}" } td { "not in the last minute" } }
            }
        }
    };
    table("Workers of this queue", &head, &body)
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
