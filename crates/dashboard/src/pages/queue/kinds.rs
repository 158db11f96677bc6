//! The kinds of jobs in a queue: how many wait, run and have failed, and how long they run.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_shard::Handle;
use ganger_types::query::{Budget, JobQuery};
use ganger_types::{JobState, JobStates, Kind, Queue, Timestamp};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::format::{count, counted, span};
use crate::view::View;
use crate::widgets::{columns, kind_link, table};

/// Jobs of each state that are looked at.
const LOOKED_MAX: usize = 1_000;
/// Time for looking at the jobs of one state.
const LOOK_TIME: Duration = Duration::from_millis(10);
/// Rows of the table.
const ROWS: usize = 50;
/// States that have a column, in the order of the columns.
const STATES: [JobState; 3] = [JobState::Ready, JobState::Running, JobState::Failed];

/// The kinds of a queue.
#[derive(Default)]
pub(super) struct Kinds {
    rows: BTreeMap<Kind, KindRow>,
    /// States of which only the newest jobs were looked at.
    cut: Vec<JobState>,
}

/// Numbers of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct KindRow {
    /// Jobs in each of [`STATES`].
    jobs: [u64; 3],
    /// Time in seconds within which 95 % of the attempts ran; `None` if none ran in the window.
    p95: Option<f64>,
}

impl KindRow {
    fn total(&self) -> u64 {
        self.jobs.iter().sum()
    }
}

/// Counts the newest jobs of a queue by kind, and adds the kinds that ran between two times.
pub(super) async fn read(
    view: &View,
    shard: &Handle,
    queue: &Queue,
    time: (Timestamp, Timestamp),
) -> Result<Kinds, Fault> {
    let mut kinds = Kinds::default();
    if view.rights.may_read("listJobs") {
        for (column, state) in STATES.into_iter().enumerate() {
            let query = JobQuery {
                namespace: view.namespace().clone(),
                queue: Some(queue.clone()),
                states: JobStates::from_iter([state]),
                newest_first: true,
                limit: LOOKED_MAX,
                budget: Budget::of_page(LOOK_TIME),
                ..JobQuery::default()
            };
            let page = shard.list(query).await?;
            if page.next.is_some() {
                kinds.cut.push(state);
            }
            for job in page.jobs {
                kinds.rows.entry(job.record.kind).or_default().jobs[column] += 1;
            }
        }
    }
    let now = view.clock.now;
    let ran = shard.series(|table| table.kinds(view.namespace(), Some(queue), time, now))?;
    for (kind, totals) in ran {
        if let Some(kind) = kind {
            kinds.rows.entry(kind).or_default().p95 = totals.latency.running.quantile(0.95);
        }
    }
    Ok(kinds)
}

/// The table of kinds, those with the most jobs first.
pub(super) fn show_kinds(view: &View, kinds: &Kinds) -> Markup {
    if kinds.rows.is_empty() {
        return html! { p.empty { "No job of this queue waits, runs or is kept as failed." } };
    }
    let mut rows: Vec<_> = kinds.rows.iter().collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.total()));
    let more = rows.len().saturating_sub(ROWS);
    rows.truncate(ROWS);
    let head = columns(&["Kind", "#Ready", "#Running", "#Failed", "#p95"]);
    let body = html! {
        @for (kind, row) in rows {
            tr data-row {
                th scope="row" { (kind_link(view, kind)) }
                @for number in row.jobs { td.number { (counted(number)) } }
                td.number { @if let Some(seconds) = row.p95 { (about(seconds)) } @else { "\u{2013}" } }
            }
        }
    };
    html! {
        (table("By kind", &head, &body))
        @for state in &kinds.cut {
            p.soft { "Of the " (state.as_str()) " jobs the newest " (count(LOOKED_MAX.try_into().unwrap_or(u64::MAX))) " are counted here." }
        }
        @if more > 0 { p.soft { (more) " more kinds" } }
    }
}

/// A duration that is known within 10 %.
fn about(seconds: f64) -> String {
    span(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}
