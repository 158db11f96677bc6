//! Statistics, tags, tracked jobs, and the audit of the indexes.

use axum::response::Response;
use ganger_document::names::{self, Named, text};
use ganger_document::time::{Moment, read_moment};
use ganger_document::view::statistics::{
    Statistics, TagView, TagsView, TrackedListView, TrackedView,
};
use ganger_types::query::Query;
use ganger_types::{Command, Day, JobId, Queue, Reply, Sample, StatisticsRecord, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use crate::arguments::refused;
use crate::filter;
use crate::json;
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::schedules::wall_now;

/// Maximum number of tags in one answer.
const TAGS_MAX: u64 = 1_000;
const MICROS_PER_DAY: u64 = 86_400_000_000;

/// The answer to a change that returns nothing else.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Done {
    /// Number of things that were changed.
    pub(crate) changed: u64,
}

impl Default for Done {
    fn default() -> Self {
        Self { changed: 1 }
    }
}

/// The result of an audit.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Audit)]
pub(crate) struct AuditView {
    /// Whether all indexes agree with the jobs.
    is_sound: bool,
    /// Violations that were found, as sentences; empty if there are none.
    findings: Vec<String>,
}

pub(crate) async fn statistics(context: RequestContext) -> Result<Response, Problem> {
    let queue: Queue = context.arguments.name("queue")?.unwrap_or_default();
    let day = match context.arguments.text("day")? {
        Some(text) => read_day(text)?,
        None => day_of(wall_now().0),
    };
    let found = context
        .shard()
        .statistics(&context.namespace, &queue, day)
        .await?;
    let record = found.unwrap_or_else(|| StatisticsRecord {
        namespace: context.namespace.clone(),
        queue,
        day,
        failed: 0,
        failures: 0,
        retries: 0,
        waiting: Sample::default(),
        running: Sample::default(),
    });
    Ok(json::ok(&Statistics::from(record)))
}

fn read_day(text: &str) -> Result<Day, Problem> {
    read_moment(&format!("{text}T00:00:00Z"))
        .map(|time| day_of(time.0))
        .map_err(|_| {
            refused(
                "day",
                &format!("{text:?} is not a day: write YYYY-MM-DD, in UTC"),
            )
        })
}

fn day_of(micros: u64) -> Day {
    Day(u32::try_from(micros / MICROS_PER_DAY).unwrap_or(u32::MAX))
}

pub(crate) async fn tags(context: RequestContext) -> Result<Response, Problem> {
    let skip = context
        .arguments
        .number("skip", 0, u64::from(u32::MAX))?
        .unwrap_or(0);
    let limit = context
        .arguments
        .number("limit", 1, TAGS_MAX)?
        .unwrap_or(100);
    let place = |number| usize::try_from(number).unwrap_or(usize::MAX);
    let query = Query::TopTags(context.namespace.clone(), place(skip), place(limit));
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::Tags(tags) => {
            let view = |(tag, count)| TagView {
                tag: Named(tag),
                count,
            };
            Ok(json::ok(&TagsView {
                tags: tags.into_iter().map(view).collect(),
            }))
        }
        _ => Err(unexpected_reply()),
    }
}

pub(crate) async fn tracked(context: RequestContext) -> Result<Response, Problem> {
    let limit = filter::limit(&context.arguments)?;
    let after = tracked_after(&context)?;
    let query = Query::Tracked(context.namespace.clone());
    let Reply::Tracked(mut jobs) = context.call(Command::Query(Box::new(query))).await? else {
        return Err(unexpected_reply());
    };
    jobs.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    if let Some((since, job)) = after {
        jobs.retain(|tracked| (tracked.1, &tracked.0) > (since, &job));
    }
    let has_more = jobs.len() > limit;
    jobs.truncate(limit);
    let last = jobs.last().filter(|_| has_more);
    let next = last.map(|(job, since)| format!("{}.{}", since.0, text(job.as_bytes())));
    let view = |(job, at)| TrackedView {
        job: Named(job),
        since: Moment(at),
    };
    Ok(json::ok(&TrackedListView {
        jobs: jobs.into_iter().map(view).collect(),
        next,
    }))
}

/// The time and id of the job after which a page begins.
fn tracked_after(context: &RequestContext) -> Result<Option<(Timestamp, JobId)>, Problem> {
    let Some(text) = context.arguments.text("after")? else {
        return Ok(None);
    };
    let place = text.split_once('.').and_then(|(since, job)| {
        let job = JobId::new(names::read(job.as_bytes())).ok()?;
        Some((Timestamp(since.parse().ok()?), job))
    });
    let reason = || format!("{text:?} is not the `next` of a page: send that unchanged");
    place.map(Some).ok_or_else(|| refused("after", &reason()))
}

pub(crate) async fn audit(context: RequestContext) -> Result<Response, Problem> {
    match context.call(Command::Query(Box::new(Query::Audit))).await? {
        Reply::Audit(findings) => Ok(json::ok(&AuditView {
            is_sound: findings.is_empty(),
            findings,
        })),
        _ => Err(unexpected_reply()),
    }
}
