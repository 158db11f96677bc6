//! Schedules: when they run next, and whether their last runs worked.

use ganger_document::names::show;
use ganger_shard::Handle;
use ganger_types::query::{JobQuery, Query};
use ganger_types::{Reply, ScheduleId, ScheduleRecord, ScheduleSpec, StoredJob, Timestamp};
use maud::{Markup, html};

use crate::data::jobs;
use crate::fault::Fault;
use crate::format::{counted, span};
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::text::{isolated, name, plain};
use crate::view::{Missing, View};
use crate::widgets::{
    self, button, columns, danger, empty, kind_link, named_link, queue_link, table,
};

/// Next times that the page of a schedule shows.
const TIMES: usize = 5;
/// Last jobs that the page of a schedule shows.
const LAST: usize = 20;
/// Schedules on the page.
const SHOWN: usize = 200;

/// All schedules of the view.
pub(super) async fn all(view: &View) -> Result<(Vec<(Handle, ScheduleRecord)>, Missing), Fault> {
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

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    Params::read(query, &[])?;
    view.rights.check("listSchedules")?;
    let (mut rows, missing) = all(view).await?;
    rows.sort_by_key(|(_, schedule)| (schedule.next_at.is_none(), schedule.next_at));
    let mut shown = Vec::new();
    for (shard, schedule) in rows.iter().take(SHOWN) {
        let last = match &schedule.last_job {
            Some(job) => shard
                .job(view.namespace(), job)
                .await
                .map_err(Fault::from)?,
            None => None,
        };
        shown.push((shard, schedule, last));
    }
    let head = html! { div.heading { h1 { "Schedules" } span.soft { "(" (rows.len()) ")" } } };
    let page = Page::new("Schedules", "Schedules", head);
    Ok(page.part(
        "part-schedules",
        html! { (list(view, &shown)) (widgets::missing(&missing)) },
    ))
}

type Row<'a> = (&'a Handle, &'a ScheduleRecord, Option<StoredJob>);

fn list(view: &View, rows: &[Row<'_>]) -> Markup {
    if rows.is_empty() {
        let next =
            widgets::command("ganger schedule put nightly --cron '30 2 * * *' --kind report");
        return empty("No schedules yet.", &next);
    }
    let head = columns(&["Schedule", "Runs", "Next", "Last", "Kind", "Queue", "State"]);
    let body = html! {
        @for (shard, schedule, last) in rows {
            tr data-row {
                th scope="row" { (named_link(&address(view, shard, &schedule.id), schedule.id.as_bytes())) }
                td { (rule(view, &schedule.spec)) }
                td { @if let Some(next) = schedule.next_at { (view.clock.ago(next)) } @else { "\u{2013}" } }
                td { @if let Some(last) = last { (svg::state(last.record.state)) " " (view.clock.ago(last.record.created_at)) } @else { "\u{2013}" } }
                td { (kind_link(view, &schedule.kind)) }
                td { (queue_link(view, shard.id(), &schedule.queue)) }
                td { (state(schedule)) }
            }
        }
    };
    table("Schedules", &head, &body)
}

fn address(view: &View, shard: &Handle, id: &ScheduleId) -> crate::links::Address {
    view.links
        .on(shard.id(), "/schedule")
        .name("id", id.as_bytes())
}

fn state(schedule: &ScheduleRecord) -> Markup {
    if schedule.paused {
        svg::badge("paused", "Paused")
    } else if schedule.next_at.is_none() {
        svg::badge("idle", "Ended")
    } else {
        svg::badge("good", "Active")
    }
}

/// The rule in words.
fn rule(view: &View, spec: &ScheduleSpec) -> Markup {
    match spec {
        ScheduleSpec::Interval { every, first_at } => {
            html! { "every " (span(*every)) ", first " (view.clock.time(*first_at)) }
        }
        ScheduleSpec::Cron {
            expression,
            time_zone,
        } => html! { code { (isolated(expression)) } " \u{b7} " (isolated(time_zone)) },
    }
}

/// One schedule, with its next times and its last jobs.
pub(super) async fn one(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["id"])?;
    let id: ScheduleId = params.needed("id")?;
    view.rights.check("listSchedules")?;
    let (rows, _) = all(view).await?;
    let text = plain(&show(id.as_bytes()));
    let found = rows.into_iter().find(|(_, schedule)| schedule.id == id);
    let (shard, schedule) = found.ok_or_else(|| {
        Fault::missing("schedule_not_found", format!("There is no schedule {text}"))
    })?;
    let times = Query::ScheduleTimes(view.namespace().clone(), id.clone(), TIMES);
    let Reply::Times(times) = view.ask(&shard, times).await? else {
        return Err(Fault::unexpected_reply().into());
    };
    let last = JobQuery {
        namespace: view.namespace().clone(),
        schedule: Some(id),
        newest_first: true,
        limit: LAST,
        ..JobQuery::default()
    };
    let last = jobs::list(view, &last, None).await?;
    let page = Page::new(
        format!("Schedule {text}"),
        "Schedules",
        head(view, &shard, &schedule),
    );
    Ok(page
        .part(
            "part-times",
            html! { h2 { "Next times" } (time_list(view, &schedule, &times)) },
        )
        .part(
            "part-last",
            html! {
                h2 { "Last jobs" }
                @if last.jobs.is_empty() { p.empty { "It has made no job that is kept." } }
                @else { (super::jobs::rows(view, &last.jobs, &[], false)) }
            },
        )
        .part(
            "part-fields",
            html! { h2 { "Fields" } (fields(view, &shard, &schedule)) },
        ))
}

fn head(view: &View, shard: &Handle, schedule: &ScheduleRecord) -> Markup {
    let id = show(schedule.id.as_bytes());
    let target = [("id", &*id), ("shard", shard.id().as_str())];
    html! {
        div.heading {
            h1 { "Schedule " (name(schedule.id.as_bytes())) }
            (state(schedule))
            div.actions {
                (button(view, "Run now", "runSchedule", &target))
                @if schedule.paused { (button(view, "Resume schedule", "setSchedule", &[target[0], target[1], ("paused", "false")])) }
                @else { (button(view, "Pause schedule", "setSchedule", &[target[0], target[1], ("paused", "true")])) }
                (danger(view, "Delete schedule", "deleteSchedule", &target))
            }
        }
        p { (rule(view, &schedule.spec)) }
    }
}

fn time_list(view: &View, schedule: &ScheduleRecord, times: &[Timestamp]) -> Markup {
    if times.is_empty() {
        return html! { p.empty { "It has no more times." } };
    }
    let zone = match &schedule.spec {
        ScheduleSpec::Cron { time_zone, .. } => Some(time_zone.as_str()),
        ScheduleSpec::Interval { .. } => None,
    };
    let own = zone
        .and_then(|zone| jiff::tz::TimeZone::get(zone).ok())
        .map(|zone| crate::format::Clock {
            zone,
            now: view.clock.now,
        });
    let head = columns(&["In", "Your time", "Time of the schedule"]);
    let body = html! {
        @for time in times {
            tr {
                th scope="row" { (view.clock.ago(*time)) }
                td { (view.clock.time(*time)) }
                td { @match &own { Some(clock) => { (clock.text(*time)) " " (isolated(clock.zone_name())) }, None => "\u{2013}" } }
            }
        }
    };
    html! {
        @if schedule.paused { p.remark { "The schedule is paused: it makes no jobs at these times." } }
        (table("Next times", &head, &body))
    }
}

fn fields(view: &View, shard: &Handle, schedule: &ScheduleRecord) -> Markup {
    let size = u64::try_from(schedule.payload.len()).unwrap_or(u64::MAX);
    html! {
        dl.facts {
            div { dt { "Kind" } dd { (kind_link(view, &schedule.kind)) } }
            div { dt { "Queue" } dd { (queue_link(view, shard.id(), &schedule.queue)) } }
            div { dt { "Priority" } dd { (ganger_document::view::priority(schedule.priority)) } }
            div { dt { "Payload" } dd { (crate::format::bytes(size)) } }
            div { dt { "Jobs made" } dd { (counted(schedule.runs)) } }
            div { dt { "Missed runs" } dd { (schedule.catch_up.as_str()) } }
            div { dt { "While a job of it is live" } dd { (schedule.overlap.as_str()) } }
            div { dt { "Made" } dd { (view.clock.time(schedule.created_at)) } }
        }
        @if view.rights.sees_payloads() && !schedule.payload.is_empty() { (super::job::data_shown(&schedule.payload)) }
    }
}
