//! One schedule: its next times, its last jobs, all its fields.

use ganger_document::names::{show, text};
use ganger_document::retry::RetryDocument;
use ganger_shard::Handle;
use ganger_types::limits::SCHEDULE_BACKLOG_MAX;
use ganger_types::query::{JobQuery, Query};
use ganger_types::{
    CatchUp, Overlap, Reply, ScheduleId, ScheduleRecord, ScheduleSpec, StoredJob, Timestamp,
};
use jiff::tz::TimeZone;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::data::jobs;
use crate::fault::Fault;
use crate::format::{Clock, bytes, count, counted, span};
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::question::{Question, Shard};
use crate::text::{isolated, name, plain};
use crate::view::View;
use crate::widgets::{button, columns, danger, kind_link, queue_link, table};
use crate::wire::Stored;

use super::schedules::{last_job, last_run, next, rule, state};

/// Next times that are shown of a schedule.
pub(crate) const TIMES: usize = 5;
/// Last jobs that are shown of a schedule.
const LAST: usize = 20;

/// The schedule of this id, if a shard has it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Find {
    id: ScheduleId,
}

impl Question for Find {
    const NAME: &'static str = "schedule";
    type Answer = Option<Stored<ScheduleRecord>>;

    fn operation(&self) -> &'static str {
        "getSchedule"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        Ok(on_shard(view, shard, &self.id).await?.map(Stored))
    }
}

/// The schedule of this id, and its shard. If another server has that, the page at `path` is there.
pub(super) async fn find(
    view: &View,
    id: &ScheduleId,
    path: &str,
) -> Result<(Handle, ScheduleRecord), Stop> {
    let gathered = view.gather(&Find { id: id.clone() }).await?;
    let mut found = gathered.found.into_iter();
    let found = found.find_map(|(shard, schedule)| Some((shard, schedule?.0)));
    let Some((shard, schedule)) = found else {
        let text = plain(&show(id.as_bytes()));
        let heading = format!("There is no schedule {text}");
        return Err(Fault::missing("schedule_not_found", heading).into());
    };
    match view.place_of(&shard) {
        Shard::Here(shard) => Ok((shard, schedule)),
        Shard::Elsewhere(shard) => {
            let address = view.links.on(&shard, path).name("id", id.as_bytes());
            Err(Stop::Elsewhere(address.as_str().to_owned()))
        }
    }
}

/// The schedule of this id on one shard; `None` if it has none.
pub(crate) async fn on_shard(
    view: &View,
    shard: &Handle,
    id: &ScheduleId,
) -> Result<Option<ScheduleRecord>, Fault> {
    let query = Query::Schedule(view.namespace().clone(), id.clone());
    match view.ask(shard, query).await {
        Ok(Reply::Schedule(schedule)) => Ok(Some(*schedule)),
        Ok(_) => Err(Fault::unexpected_reply()),
        Err(fault) if fault.code == "schedule_not_found" => Ok(None),
        Err(fault) => Err(fault),
    }
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["id"])?;
    let id: ScheduleId = params.needed("id")?;
    view.rights.check("getSchedule")?;
    let (shard, schedule) = find(view, &id, "/schedule").await?;
    let times = Query::ScheduleTimes(view.namespace().clone(), id.clone(), TIMES);
    let Reply::Times(times) = view.ask(&shard, times).await? else {
        return Err(Fault::unexpected_reply().into());
    };
    let last = last_job(view, &shard, &schedule).await;
    let query = JobQuery {
        namespace: view.namespace().clone(),
        schedule: Some(id.clone()),
        newest_first: true,
        limit: LAST,
        ..JobQuery::default()
    };
    let made = jobs::list(view, &query, None).await?;
    let all = view.links.to("/jobs").name("schedule", id.as_bytes());
    let title = format!("Schedule {}", plain(&show(id.as_bytes())));
    let page = Page::new(title, "Schedules", head(view, &shard, &schedule));
    Ok(page
        .part(
            "part-times",
            html! {
                h2 { "Next times" }
                @if schedule.paused { p.remark { "The schedule is paused: it makes no jobs at these times." } }
                (time_table(view, &schedule.spec, &times))
            },
        )
        .part(
            "part-last",
            html! {
                h2 { "Last jobs" }
                @if made.jobs.is_empty() { p.empty { "It has made no job that is kept." } }
                @else {
                    (super::jobs::rows(view, &made.jobs, &["ran"], false))
                    @if made.next.is_some() { p { a href=(all) { "All its jobs" } } }
                }
            },
        )
        .part(
            "part-fields",
            html! { h2 { "Fields" } (fields(view, &shard, &schedule, last.as_ref())) },
        ))
}

fn head(view: &View, shard: &Handle, schedule: &ScheduleRecord) -> Markup {
    let id = text(schedule.id.as_bytes());
    let target = [("id", id.as_str()), ("shard", shard.id().as_str())];
    let edit = view.links.on(shard.id(), "/schedule/edit");
    html! {
        div.heading {
            h1 { "Schedule " (name(schedule.id.as_bytes())) }
            (state(schedule))
            div.actions {
                (button(view, "Run now", "runSchedule", &target))
                @if schedule.paused { (button(view, "Resume schedule", "resumeSchedule", &target)) }
                @else { (button(view, "Pause schedule", "pauseSchedule", &target)) }
                @if view.rights.may_do("setSchedule") { a.button href=(edit.name("id", schedule.id.as_bytes())) { "Edit" } }
                (danger(view, "Delete schedule", "deleteSchedule", &target))
            }
        }
        p { (rule(view, &schedule.spec)) }
    }
}

/// The next times of a rule, in the viewer's zone and in its own. Times before which the clocks change are marked.
pub(crate) fn time_table(view: &View, spec: &ScheduleSpec, times: &[Timestamp]) -> Markup {
    if times.is_empty() {
        return html! { p.empty { "It has no more times." } };
    }
    let own = match spec {
        ScheduleSpec::Cron { time_zone, .. } => TimeZone::get(time_zone).ok(),
        ScheduleSpec::Interval { .. } => None,
    };
    let own = own.map(|zone| Clock {
        zone,
        now: view.clock.now,
    });
    let before = std::iter::once(&view.clock.now).chain(times);
    let head = columns(&["In", "Your time", "Time of the schedule"]);
    let body = html! {
        @for (before, at) in before.zip(times) {
            tr {
                th scope="row" { (view.clock.ago(*at)) }
                td { (view.clock.time(*at)) (mark(&view.clock, *before, *at)) }
                td { @match &own {
                    Some(clock) => { (clock.text(*at)) " " (isolated(clock.zone_name())) (mark(clock, *before, *at)) },
                    None => "\u{2013}",
                } }
            }
        }
    };
    table("Next times", &head, &body)
}

fn mark(clock: &Clock, before: Timestamp, at: Timestamp) -> Markup {
    html! { @if let Some(words) = clock.change(before, at) { " " span.tag { (words) } } }
}

fn fields(
    view: &View,
    shard: &Handle,
    schedule: &ScheduleRecord,
    last: Option<&StoredJob>,
) -> Markup {
    let size = u64::try_from(schedule.payload.len()).unwrap_or(u64::MAX);
    let jobs = view.links.to("/jobs");
    html! {
        dl.facts {
            (rule_fields(view, &schedule.spec))
            div { dt { "Next" } dd { @match next(schedule) { Some(at) => { (view.clock.time(at)) " (" (view.clock.ago(at)) ")" }, None => "none" } } }
            div { dt { "Last" } dd { @match last { Some(last) => (last_run(view, shard.id(), last)), None => "none that is kept" } } }
            div { dt { "Jobs made" } dd { (counted(schedule.runs)) } }
            div { dt { "Kind" } dd { (kind_link(view, &schedule.kind)) } }
            div { dt { "Queue" } dd { (queue_link(view, shard.id(), &schedule.queue)) } }
            div { dt { "Priority" } dd { (ganger_document::view::priority(schedule.priority)) } }
            div { dt { "Payload" } dd { (bytes(size)) } }
            div { dt { "Missed runs" } dd { (missed_words(schedule.catch_up)) } }
            div { dt { "While a job of it is live" } dd { (overlap_words(schedule.overlap)) } }
            div { dt { "Retries" } dd { @match &schedule.retry { Some(retry) => code { (isolated(&retry_text(retry))) }, None => "as the queue says" } } }
            div { dt { "Timeout of an attempt" } dd { @match schedule.timeout { Some(timeout) => (span(timeout)), None => "no limit" } } }
            div { dt { "Tags" } dd { @if schedule.tags.is_empty() { "none" } @for tag in &schedule.tags { a.tag href=(jobs.clone().name("tag", tag.as_bytes())) { (name(tag.as_bytes())) } " " } } }
            div { dt { "Labels" } dd { @if schedule.labels.is_empty() { "none" } @for (key, value) in &schedule.labels {
                @let pair = format!("{}={}", show(key.as_bytes()), show(value.as_bytes()));
                a.tag href=(jobs.clone().with("label", &pair)) { (isolated(&pair)) } " "
            } } }
            div { dt { "Shard" } dd { (shard.id()) } }
            div { dt { "Made" } dd { (view.clock.time(schedule.created_at)) } }
        }
        @if view.rights.sees_payloads() && !schedule.payload.is_empty() { (super::job::data_shown(&schedule.payload)) }
    }
}

fn rule_fields(view: &View, spec: &ScheduleSpec) -> Markup {
    match spec {
        ScheduleSpec::Interval { every, first_at } => html! {
            div { dt { "Every" } dd { (span(*every)) } }
            div { dt { "First run" } dd { (view.clock.time(*first_at)) } }
        },
        ScheduleSpec::Cron {
            expression,
            time_zone,
        } => html! {
            div { dt { "Cron expression" } dd { code { (isolated(expression)) } } }
            div { dt { "Time zone" } dd { (isolated(time_zone)) } }
        },
    }
}

/// A retry policy as its document.
pub(super) fn retry_text(retry: &ganger_types::RetryPolicy) -> String {
    serde_json::to_string(&RetryDocument::from(retry)).unwrap_or_default()
}

fn missed_words(rule: CatchUp) -> String {
    match rule {
        CatchUp::None => "they are skipped".to_owned(),
        CatchUp::Last => "one job for all of them".to_owned(),
        CatchUp::All { max } => {
            let most = if max == 0 { SCHEDULE_BACKLOG_MAX } else { max };
            format!("a job for each, {} at most", count(u64::from(most)))
        }
    }
}

fn overlap_words(rule: Overlap) -> &'static str {
    match rule {
        Overlap::Allow => "another job is made",
        Overlap::Skip => "the run is skipped",
        Overlap::Replace => "that job is cancelled",
    }
}
