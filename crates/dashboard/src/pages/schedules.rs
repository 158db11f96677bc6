//! Schedules: when they run next, and whether their last runs worked.

use futures::{StreamExt as _, stream};
use ganger_shard::Handle;
use ganger_types::query::Query;
use ganger_types::{
    JobId, Reply, ScheduleId, ScheduleRecord, ScheduleSpec, ShardId, StoredJob, What,
};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::cron_words;
use crate::fault::Fault;
use crate::format::span;
use crate::links::Address;
use crate::page::{Page, Stop};
use crate::paging;
use crate::params::Params;
use crate::question::Question;
use crate::svg;
use crate::text::isolated;
use crate::view::{Missing, View};
use crate::widgets::{self, columns, empty, kind_link, named_link, queue_link, table};
use crate::wire::{self, Stored};

/// Number of last jobs that are read at a time.
const READ_AT_ONCE: usize = 8;

/// The schedules of a shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct All;

impl Question for All {
    const NAME: &'static str = "schedules";
    type Answer = Vec<Stored<ScheduleRecord>>;

    fn operation(&self) -> &'static str {
        "listSchedules"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let query = Query::Schedules(view.namespace().clone());
        match view.ask(shard, query).await? {
            Reply::Schedules(schedules) => Ok(schedules.into_iter().map(Stored).collect()),
            _ => Err(Fault::unexpected_reply()),
        }
    }
}

/// The last jobs of schedules of a shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct LastJobs {
    jobs: Vec<JobId>,
}

/// Jobs that are still there.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    #[serde(with = "wire::jobs")]
    jobs: Vec<StoredJob>,
}

impl Question for LastJobs {
    const NAME: &'static str = "last_jobs_of_schedules";
    type Answer = Kept;

    fn operation(&self) -> &'static str {
        "listSchedules"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Kept, Fault> {
        let jobs = self.jobs.clone();
        let read = stream::iter(jobs).map(async |job| {
            let job = shard.job(view.namespace(), &job).await;
            job.ok()
                .flatten()
                .filter(|job| job.record.schedule.is_some())
        });
        let jobs: Vec<Option<StoredJob>> = read.buffered(READ_AT_ONCE).collect().await;
        Ok(Kept {
            jobs: jobs.into_iter().flatten().collect(),
        })
    }
}

/// The last jobs of some schedules. Those that are gone or cannot be read are left out.
async fn last_jobs(view: &View, rows: &[(ShardId, ScheduleRecord)]) -> Vec<(ShardId, StoredJob)> {
    let question = |shard: &ShardId| {
        let own = rows.iter().filter(|(of, _)| of == shard);
        let jobs: Vec<JobId> = own.filter_map(|(_, it)| it.last_job.clone()).collect();
        (!jobs.is_empty()).then_some(LastJobs { jobs })
    };
    let Ok(gathered) = view.gather_each(question).await else {
        return Vec::new();
    };
    let found = gathered.found.into_iter();
    let jobs = found.flat_map(|(shard, kept)| {
        let jobs = kept.jobs.into_iter();
        jobs.map(move |job| (shard.clone(), job))
    });
    jobs.collect()
}

/// All schedules of the view.
async fn all(view: &View) -> Result<(Vec<(ShardId, ScheduleRecord)>, Missing), Fault> {
    let gathered = view.gather(&All).await?;
    let rows = gathered.found.into_iter().flat_map(|(shard, schedules)| {
        schedules
            .into_iter()
            .map(move |Stored(schedule)| (shard.clone(), schedule))
    });
    Ok((rows.collect(), gathered.missing))
}

/// A schedule with its last job; `None` before the first, and once that is gone.
type Row = (ShardId, ScheduleRecord, Option<StoredJob>);

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["after"])?;
    view.rights.check("listSchedules")?;
    let (mut rows, missing) = all(view).await?;
    // Those that run next come first, those that have ended last.
    rows.sort_by_key(|(_, schedule)| (schedule.next_at.is_none(), schedule.next_at));
    let (rows, slice) = paging::take(rows, &params)?;
    let last = last_jobs(view, &rows).await;
    let rows = rows.into_iter().map(|(shard, schedule)| {
        let is_last = |job: &StoredJob| {
            schedule
                .last_job
                .as_ref()
                .is_some_and(|id| *id == job.record.id)
        };
        let job = last.iter().find(|(of, job)| *of == shard && is_last(job));
        let job = job.map(|(_, job)| job.clone());
        (shard, schedule, job)
    });
    let rows: Vec<Row> = rows.collect();
    let head = html! {
        div.heading {
            h1 { "Schedules" } span.soft { "(" (slice.matching) ")" }
            div.actions {
                @if view.rights.may_do("setSchedule") { a.button href=(view.links.to("/schedules/new")) { "New schedule" } }
            }
        }
    };
    let page = Page::new("Schedules", "Schedules", head);
    Ok(page.part(
        "part-schedules",
        html! { (list(view, &rows)) (slice.links(&view.links.to("/schedules"))) (widgets::missing(&missing)) },
    ))
}

/// The last job of a schedule. A job that is gone or cannot be read is left out.
pub(super) async fn last_job(
    view: &View,
    shard: &Handle,
    schedule: &ScheduleRecord,
) -> Option<StoredJob> {
    let job = schedule.last_job.as_ref()?;
    shard.job(view.namespace(), job).await.ok().flatten()
}

fn list(view: &View, rows: &[Row]) -> Markup {
    if rows.is_empty() {
        let next =
            widgets::command("ganger schedule set nightly --cron '30 2 * * *' --kind report");
        return empty("No schedules yet.", &next);
    }
    let head = html! {
        th scope="col" { "Schedule" }
        @if view.is_of_many() { th scope="col" { "Shard" } }
        (columns(&["Runs", "Next", "Last", "Kind", "Queue", "State"]))
    };
    let body = html! {
        @for (shard, schedule, last) in rows {
            tr data-row {
                th scope="row" { (named_link(&address(view, shard, &schedule.id), schedule.id.as_bytes())) }
                @if view.is_of_many() { td { (shard) } }
                td { (rule(view, &schedule.spec)) }
                td { @match next(schedule) { Some(next) => (view.clock.ago(next)), None => "\u{2013}" } }
                td { @match last { Some(last) => (last_run(view, shard, last)), None => "\u{2013}" } }
                td { (kind_link(view, &schedule.kind)) }
                td { (queue_link(view, shard, &schedule.queue)) }
                td { (state(schedule)) }
            }
        }
    };
    table("Schedules", &head, &body)
}

/// The page of a schedule.
pub(crate) fn address(view: &View, shard: &ShardId, id: &ScheduleId) -> Address {
    view.links.on(shard, "/schedule").name("id", id.as_bytes())
}

/// The time of the next run; `None` if there is none, and while the schedule is paused.
pub(super) fn next(schedule: &ScheduleRecord) -> Option<ganger_types::Timestamp> {
    schedule.next_at.filter(|_| !schedule.paused)
}

/// The word for what a schedule is in.
pub(super) fn state(schedule: &ScheduleRecord) -> Markup {
    if schedule.paused {
        svg::badge("paused", "Paused")
    } else if schedule.next_at.is_none() {
        svg::badge("idle", "Ended")
    } else {
        svg::badge("good", "Active")
    }
}

/// The state of the last job, how long it ran or runs, and when it was made.
pub(super) fn last_run(view: &View, shard: &ShardId, last: &StoredJob) -> Markup {
    let record = &last.record;
    let ran = record.history.iter().rev().find_map(|entry| {
        let What::Attempt { leased_at, .. } = &entry.what else {
            return None;
        };
        Some(entry.at.since(*leased_at))
    });
    html! {
        a.plain href=(view.links.job(shard, &record.id)) { (svg::state(record.state)) }
        @match (&last.lease, ran) {
            (Some(lease), _) => { " for " (view.clock.since(lease.granted_at)) },
            (None, Some(ran)) => { " in " (span(ran)) },
            (None, None) => {},
        }
        span.soft { ", " (view.clock.ago(record.created_at)) }
    }
}

/// The rule in words and as it is written.
pub(super) fn rule(view: &View, spec: &ScheduleSpec) -> Markup {
    match spec {
        ScheduleSpec::Interval { every, first_at } => {
            html! { "every " (span(*every)) ", first " (view.clock.time(*first_at)) }
        }
        ScheduleSpec::Cron {
            expression,
            time_zone,
        } => html! {
            @if let Some(words) = cron_words::words(expression) { (words) " \u{b7} " }
            code { (isolated(expression)) } " \u{b7} " (isolated(time_zone))
        },
    }
}
