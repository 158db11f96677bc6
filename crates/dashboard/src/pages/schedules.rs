//! Schedules: when they run next, and whether their last runs worked.

use futures::{StreamExt as _, stream};
use ganger_shard::Handle;
use ganger_types::query::Query;
use ganger_types::{Reply, ScheduleId, ScheduleRecord, ScheduleSpec, StoredJob, What};
use maud::{Markup, html};

use crate::cron_words;
use crate::fault::Fault;
use crate::format::span;
use crate::links::Address;
use crate::page::{Page, Stop};
use crate::paging;
use crate::params::Params;
use crate::svg;
use crate::text::isolated;
use crate::view::{Missing, View};
use crate::widgets::{self, columns, empty, kind_link, named_link, queue_link, table};

/// Number of last jobs that are read at a time.
const READ_AT_ONCE: usize = 8;

/// All schedules of the view.
async fn all(view: &View) -> Result<(Vec<(Handle, ScheduleRecord)>, Missing), Fault> {
    let gathered = view
        .gather(|shard| async move {
            let query = Query::Schedules(view.namespace().clone());
            match view.ask(shard, query).await? {
                Reply::Schedules(schedules) => Ok(schedules),
                _ => Err(Fault::unexpected_reply()),
            }
        })
        .await?;
    let rows = gathered.found.into_iter().flat_map(|(shard, schedules)| {
        schedules
            .into_iter()
            .map(move |schedule| (shard.clone(), schedule))
    });
    Ok((rows.collect(), gathered.missing))
}

/// A schedule with its last job; `None` before the first, and once that is gone.
type Row = (Handle, ScheduleRecord, Option<StoredJob>);

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["after"])?;
    view.rights.check("listSchedules")?;
    let (mut rows, missing) = all(view).await?;
    // Those that run next come first, those that have ended last.
    rows.sort_by_key(|(_, schedule)| (schedule.next_at.is_none(), schedule.next_at));
    let (rows, slice) = paging::take(rows, &params)?;
    let rows = stream::iter(rows).map(async |(shard, schedule)| {
        let last = last_job(view, &shard, &schedule).await;
        (shard, schedule, last)
    });
    let rows: Vec<Row> = rows.buffered(READ_AT_ONCE).collect().await;
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
        html! { (list(view, &rows)) (slice.links(&view.links.to("/schedules"))) (widgets::missing(view, "/schedules", &missing)) },
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
            widgets::command("ganger schedule put nightly --cron '30 2 * * *' --kind report");
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
                @if view.is_of_many() { td { (shard.id()) } }
                td { (rule(view, &schedule.spec)) }
                td { @match next(schedule) { Some(next) => (view.clock.ago(next)), None => "\u{2013}" } }
                td { @match last { Some(last) => (last_run(view, shard, last)), None => "\u{2013}" } }
                td { (kind_link(view, &schedule.kind)) }
                td { (queue_link(view, shard.id(), &schedule.queue)) }
                td { (state(schedule)) }
            }
        }
    };
    table("Schedules", &head, &body)
}

/// The page of a schedule.
pub(crate) fn address(view: &View, shard: &Handle, id: &ScheduleId) -> Address {
    view.links
        .on(shard.id(), "/schedule")
        .name("id", id.as_bytes())
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
pub(super) fn last_run(view: &View, shard: &Handle, last: &StoredJob) -> Markup {
    let record = &last.record;
    let ran = record.history.iter().rev().find_map(|entry| {
        let What::Attempt { leased_at, .. } = &entry.what else {
            return None;
        };
        Some(entry.at.since(*leased_at))
    });
    html! {
        a.plain href=(view.links.job(shard.id(), &record.id)) { (svg::state(record.state)) }
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
