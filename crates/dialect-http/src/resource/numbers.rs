//! Statistics, tags, tracked jobs, and the audit of the indexes.

use axum::response::Response;
use ganger_document::names::Named;
use ganger_document::time::{Moment, read_moment};
use ganger_document::view::statistics::{
    Statistics, TagView, TagsView, TrackedListView, TrackedView,
};
use ganger_types::query::Query;
use ganger_types::{Command, Day, Queue, Reply, Sample, StatisticsRecord};
use serde::Serialize;
use utoipa::ToSchema;

use crate::arguments::refused;
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
    let query = Query::Tracked(context.namespace.clone());
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::Tracked(jobs) => {
            let view = |(job, at)| TrackedView {
                job: Named(job),
                since: Moment(at),
            };
            Ok(json::ok(&TrackedListView {
                jobs: jobs.into_iter().map(view).collect(),
            }))
        }
        _ => Err(unexpected_reply()),
    }
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
