//! Overview: is all well, and if not, where to go.

use ganger_attention::Item;
use ganger_shard::series::Metric;
use ganger_types::{Group, Kind, Queue, ShardId, StoredJob, Timestamp};
use maud::{Markup, html};

use crate::data::queues::{self, Row, State};
use crate::data::rates;
use crate::data::series::{Steps, Totals, WINDOWS, Which, Window};
use crate::data::{attention, jobs};
use crate::fault::Fault;
use crate::format::{count, counted, plural, span, whole};
use crate::links::Address;
use crate::page::Page;
use crate::params::Params;
use crate::svg;
use crate::text::{isolated, name};
use crate::view::{Missing, View};
use crate::widgets::{
    self, columns, command, job_link, kind_link, named_link, queue_link, table, tabs,
};

use super::stats::numbers;

pub(crate) const PARAMETERS: &[&str] = &["window"];
/// What the chart shows: metric, word, and class of its line.
const RATES: [(Metric, &str, &str); 3] = [
    (Metric::Enqueued, "Enqueued", "started"),
    (Metric::Succeeded, "Succeeded", "succeeded"),
    (Metric::Failed, "Failed", "failed"),
];
/// Rows of each table.
const ROWS: usize = 10;
/// Failed jobs that are looked at for the newest groups, and running jobs for the longest.
const LOOKED: usize = 200;

/// What the page shows.
pub(super) struct Overview {
    pub(super) attention: Vec<Item>,
    pub(super) queues: Vec<Row>,
    pub(super) failures: Vec<Failed>,
    pub(super) running: Vec<(ShardId, StoredJob)>,
    /// Whether more jobs run than were looked at.
    pub(super) runs_more: bool,
    pub(super) missing: Missing,
    /// Length of time that the chart shows.
    pub(super) window: Window,
    /// Jobs of each metric of [`RATES`] in it; `None` without the right to read series.
    pub(super) rates: Option<Totals>,
}

/// A failure group among the newest failed jobs.
pub(super) struct Failed {
    pub(super) group: Group,
    pub(super) kind: Kind,
    pub(super) queue: Queue,
    pub(super) jobs: u64,
    pub(super) last: Timestamp,
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Fault> {
    let params = Params::read(query, PARAMETERS)?;
    let window = Window::of(&params)?;
    view.rights.check("listQueues")?;
    Ok(show(view, &read(view, window).await?))
}

async fn read(view: &View, window: Window) -> Result<Overview, Fault> {
    let (mut queues, missing) = queues::all(view).await?;
    queues.sort_by_key(|row| std::cmp::Reverse(row.queue.counts.ready + row.queue.counts.running));
    queues::look_closer(view, queues.iter_mut().take(ROWS).collect(), true).await;
    let attention = attention::items(view).await;
    let (failures, (running, runs_more)) = if view.rights.may_read("listJobs") {
        (failures(view).await?, running(view).await?)
    } else {
        Default::default()
    };
    let rates = if view.rights.may_read("getSeries") {
        let metrics = RATES.map(|it| it.0);
        let steps = Steps::of(&Which::default(), window, view.clock.now, &metrics);
        Some(steps.totals(view).await?)
    } else {
        None
    };
    Ok(Overview {
        attention,
        queues,
        failures,
        running,
        runs_more,
        missing,
        window,
        rates,
    })
}

/// The failure groups of the newest failed jobs, with the number of kept jobs in each.
pub(super) async fn failures(view: &View) -> Result<Vec<Failed>, Fault> {
    let counts = jobs::groups(view).await?;
    let listing = jobs::failed(view, LOOKED).await?;
    let mut found: Vec<Failed> = Vec::new();
    for (_, job) in listing.jobs {
        let Some(failure) = job.record.failure else {
            continue;
        };
        if let Some(known) = found.iter_mut().find(|known| known.group == failure.group) {
            known.last = known.last.max(failure.at);
            continue;
        }
        let jobs = counts.iter().find(|(group, _)| *group == failure.group);
        found.push(Failed {
            group: failure.group,
            kind: job.record.kind,
            queue: job.record.queue,
            jobs: jobs.map_or(1, |(_, count)| *count),
            last: failure.at,
        });
    }
    found.sort_by_key(|failed| std::cmp::Reverse(failed.last));
    found.truncate(ROWS);
    Ok(found)
}

async fn running(view: &View) -> Result<(Vec<(ShardId, StoredJob)>, bool), Fault> {
    let listing = jobs::running(view, LOOKED).await?;
    let more = listing.next.is_some();
    let mut running = listing.jobs;
    running.sort_by_key(|(_, job)| job.lease.as_ref().map(|lease| lease.granted_at));
    running.truncate(ROWS);
    Ok((running, more))
}

pub(super) fn show(view: &View, overview: &Overview) -> Page {
    let head = html! {
        div.heading { h1 { "Overview" } }
        (tabs("Time", &windows(view, overview.window)))
    };
    let page = Page::new("Overview", "Overview", head);
    let is_new = overview.queues.is_empty() && overview.missing == Missing::default();
    let page = page.part(
        "part-attention",
        html! {
            h2 { "Needs attention" }
            (attention::list(view, &overview.attention, ROWS))
            (widgets::missing(&overview.missing))
        },
    );
    if is_new {
        return page.part("part-first", first_steps(view));
    }
    page.part(
        "part-now",
        html! { h2 { "Now" } (now(view, &overview.queues)) },
    )
    .part(
        "part-rates",
        html! { h2 { "Rates" } (rates_of(&overview.queues)) (rates_chart(view, overview)) },
    )
    .part(
        "part-busiest",
        html! { h2 { "Busiest queues" } (busiest(view, overview)) },
    )
    .part(
        "part-failures",
        html! { h2 { "Recent failures" } (recent_failures(view, &overview.failures)) },
    )
    .part(
        "part-longest",
        html! { h2 { "Running longest" } (longest(view, overview)) },
    )
}

fn now(view: &View, rows: &[Row]) -> Markup {
    let sum = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
    let states = |states: &str| view.links.to("/jobs").with("state", states);
    let cells = [
        ("Ready", sum(|row| row.queue.counts.ready), "ready"),
        ("Running", sum(|row| row.queue.counts.running), "running"),
        (
            "Scheduled",
            sum(|row| row.queue.counts.scheduled),
            "scheduled",
        ),
        ("Blocked", sum(|row| row.queue.counts.blocked), "blocked"),
        ("Failed", sum(|row| row.queue.counts.failed), "failed"),
    ];
    html! {
        dl.counts {
            @for (word, number, state) in cells {
                div class={ "count count-" (state) } {
                    dt { (word) @if state == "failed" { " (kept)" } }
                    dd { a href=(states(state)) aria-label={ (count(number)) " " (word) } { (counted(number)) } }
                }
            }
            div.count {
                dt { "Oldest waits" }
                dd { (longest_wait(rows)) }
            }
        }
    }
}

/// How long the oldest ready job of some queues waits.
pub(super) fn longest_wait(rows: &[Row]) -> String {
    let oldest = rows.iter().filter_map(Row::oldest).max();
    oldest.map_or_else(|| "\u{2013}".to_owned(), |oldest| span(whole(oldest)))
}

/// How fast jobs come and go, over all queues of which it is known.
fn rates_of(rows: &[Row]) -> Markup {
    let Some((enqueued, finished)) = rates::sum(rows.iter().filter_map(|row| row.rate)) else {
        return html! { p.soft { "Known ten seconds after the start of the server." } };
    };
    html! {
        dl.facts {
            div { dt { "Enqueued/min" } dd { (rates::text(enqueued)) } }
            div { dt { "Done/min" } dd { (rates::text(finished)) } }
        }
    }
}

/// The lengths of time that the chart can show.
fn windows(view: &View, shown: Window) -> Vec<(&'static str, Address, bool)> {
    let windows = WINDOWS.iter().map(|window| {
        let is_first = *window == WINDOWS[0];
        let word = (!is_first).then_some(window.word);
        let address = view.links.to("/").with_if("window", word);
        (window.words, address, *window == shown)
    });
    windows.collect()
}

fn rates_chart(view: &View, overview: &Overview) -> Markup {
    let Some(rates) = overview.rates.as_ref().filter(|rates| rates.is_known()) else {
        return html! { p.soft { "Nothing was counted in this time yet." } };
    };
    let lines: Vec<(&str, &str, &[Option<u64>])> = RATES
        .iter()
        .zip(&rates.values)
        .map(|((_, word, class), values)| (*word, *class, values.as_slice()))
        .collect();
    let step = overview.window.step;
    html! {
        (svg::chart(&format!("Jobs per {}", overview.window.per()), &lines))
        details { summary { "Numbers as a table" } (numbers(view, step, rates, &RATES.map(|it| it.1))) }
    }
}

fn busiest(view: &View, overview: &Overview) -> Markup {
    let rows = &overview.queues;
    let busy = |row: &&Row| row.queue.counts.ready + row.queue.counts.running > 0;
    let shown: Vec<&Row> = rows.iter().filter(busy).take(ROWS).collect();
    if shown.is_empty() {
        return html! { p.empty { "No queue has ready or running jobs. " a href=(view.links.to("/queues")) { "All queues" } } };
    }
    let head = columns(&[
        "Queue",
        "State",
        "#Ready",
        "#Running",
        "#Oldest",
        "#Done/min",
        "#Failed/min",
        "Last hour",
    ]);
    let body = html! {
        @for row in shown {
            tr {
                th scope="row" { (queue_link(view, row.shard.id(), &row.queue.queue)) @if view.is_of_many() { span.soft { " on " (row.shard.id()) } } }
                td { (state_badge(row.state())) }
                td.number { (counted(row.queue.counts.ready)) }
                td.number { (running_of(row)) }
                td.number { (oldest_text(row)) }
                td.number { (rate(row.rate.map(|rate| rate.completions_in_tenths()))) }
                td.number { (failed_rate(&row.minutes[1])) }
                td { (svg::sparkline(&row.minutes[0])) }
            }
        }
    };
    table("Busiest queues", &head, &body)
}

/// Mean of the failed jobs of the last five minutes, for each minute.
fn failed_rate(minutes: &[Option<u64>]) -> Markup {
    let known: Vec<u64> = minutes.iter().rev().flatten().take(5).copied().collect();
    let minutes = u64::try_from(known.len()).unwrap_or(0);
    rate((known.iter().sum::<u64>() * 10).checked_div(minutes))
}

pub(super) fn state_badge(state: State) -> Markup {
    svg::badge(state.class(), state.word())
}

/// `8 of 8` where a limit is set.
pub(super) fn running_of(row: &Row) -> Markup {
    let running = row.queue.counts.running;
    html! { (counted(running)) @if let Some(limit) = row.queue.settings.running_max { " of " (count(limit.into())) } }
}

/// A rate where it is known.
pub(super) fn rate(tenths: Option<u64>) -> Markup {
    match tenths {
        Some(tenths) => html! { (rates::text(tenths)) },
        None => html! { span.soft title="Known ten seconds after the start" { "-" } },
    }
}

pub(super) fn oldest_text(row: &Row) -> String {
    row.oldest()
        .map_or_else(|| "\u{2013}".to_owned(), |oldest| span(whole(oldest)))
}

fn recent_failures(view: &View, failures: &[Failed]) -> Markup {
    if failures.is_empty() {
        return html! { p.empty { "No failed jobs are kept." } };
    }
    let head = columns(&["Group", "Kind", "Queue", "#Jobs", "Last"]);
    let body = html! {
        @for failed in failures {
            tr { (failure_row(view, failed)) }
        }
    };
    table("Recent failures", &head, &body)
}

/// The cells of a failure group.
pub(super) fn failure_row(view: &View, failed: &Failed) -> Markup {
    html! {
        th scope="row" { (named_link(&view.links.to("/failure").name("group", failed.group.as_bytes()), failed.group.as_bytes())) }
        td { (kind_link(view, &failed.kind)) }
        td { (named_link(&view.links.to("/queue").name("name", failed.queue.as_bytes()), failed.queue.as_bytes())) }
        td.number { (counted(failed.jobs)) }
        td { (view.clock.ago(failed.last)) }
    }
}

fn longest(view: &View, overview: &Overview) -> Markup {
    if overview.running.is_empty() {
        return html! { p.empty { "No job runs." } };
    }
    let head = columns(&["Job", "Kind", "Queue", "Worker", "#For", "Progress"]);
    let body = html! {
        @for (shard, job) in &overview.running {
            tr {
                th scope="row" { (job_link(view, shard, &job.record.id)) }
                td { (kind_link(view, &job.record.kind)) }
                td { (queue_link(view, shard, &job.record.queue)) }
                td { @if let Some(lease) = &job.lease { (name(lease.worker.as_bytes())) } }
                td.number { @if let Some(lease) = &job.lease { (view.clock.since(lease.granted_at)) } }
                td { @if let Some(progress) = &job.record.progress { (progress_of(progress)) } }
            }
        }
    };
    html! {
        (table("Running longest", &head, &body))
        @if overview.runs_more { p.remark { "Among " (plural(u64::try_from(LOOKED).unwrap_or(0), "running job")) " that were looked at." } }
    }
}

/// A bar with its number and its text.
pub(super) fn progress_of(progress: &ganger_types::Progress) -> Markup {
    let millionths = u64::from(progress.millionths);
    html! {
        span.progress { (svg::bar(millionths, "running")) " " (crate::format::percent(millionths)) " " (isolated(&crate::text::cut(&progress.message, 80))) }
    }
}

/// Three lines to copy, for a server without any job.
fn first_steps(view: &View) -> Markup {
    let origin = view.site.settings.options.origin.as_deref();
    let origin = origin.unwrap_or("http://127.0.0.1:3733");
    html! {
        div.first {
            h2 { "No jobs yet." }
            p { "Enqueue one from a shell, over HTTP, or here:" }
            (command("echo '{\"kind\": \"hello\", \"payload\": {\"name\": \"world\"}}' | ganger submit"))
            (command(&format!("curl -X POST -H 'content-type: application/json' -d '{{\"kind\": \"hello\"}}' {origin}/api/v1/jobs")))
            (command("ganger worker --queue default --dir ./programs"))
            @if view.rights.may_do("enqueueJob") {
                p { a.button href=(view.links.to("/jobs/new")) { "New job" } }
            }
        }
    }
}
