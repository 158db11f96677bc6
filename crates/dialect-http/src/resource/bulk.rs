//! Actions on many jobs: a list of ids, or the jobs that match a filter, up to a limit per call.

use axum::response::Response;
use ganger_document::Shards as _;
use ganger_document::names::{full_name, text};
use ganger_document::request::bulk::BulkIn;
use ganger_document::time::calendar;
use ganger_document::view::change::{Changed, WouldChange};
use ganger_shard::{BulkAction, BulkBounds, BulkResult};
use ganger_types::limits::BULK_JOBS_MAX;
use ganger_types::query::JobQuery;
use ganger_types::{JobId, ShardId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::json::{self, JsonBody};
use crate::problem::Problem;
use crate::request_context::RequestContext;

/// Maximum and default number of jobs that a call with a filter looks at.
const LOOKED_MAX: u32 = 100_000;

/// The query parameters of a bulk action.
pub(crate) const PARAMETERS: &[(&str, &str)] = &[(
    "dry_run",
    "true: changes nothing, and answers how many jobs it would change (WouldChange)",
)];

/// The result of a bulk action, or of its dry run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = BulkResult)]
pub(crate) enum BulkAnswer {
    /// What was changed, unless it was a dry run.
    Changed(Changed),
    /// What would be changed.
    WouldChange(WouldChange),
}

pub(crate) async fn cancel(
    context: RequestContext,
    JsonBody(given): JsonBody<BulkIn>,
) -> Result<Response, Problem> {
    refuse(given.queue.is_some(), "queue", "retry")?;
    refuse(given.dependents.is_some(), "dependents", "retry")?;
    let reason = given.reason.clone().unwrap_or_default();
    run(context, given, BulkAction::Cancel { reason }).await
}

pub(crate) async fn retry(
    context: RequestContext,
    JsonBody(given): JsonBody<BulkIn>,
) -> Result<Response, Problem> {
    refuse(given.reason.is_some(), "reason", "cancel")?;
    let action = BulkAction::Retry {
        queue: given.queue.as_ref().map(|queue| queue.0.clone()),
        dependents: given.dependents.unwrap_or(false),
        graph: None,
    };
    run(context, given, action).await
}

pub(crate) async fn delete(
    context: RequestContext,
    JsonBody(given): JsonBody<BulkIn>,
) -> Result<Response, Problem> {
    refuse(given.reason.is_some(), "reason", "cancel")?;
    refuse(given.queue.is_some(), "queue", "retry")?;
    refuse(given.dependents.is_some(), "dependents", "retry")?;
    run(context, given, BulkAction::Delete).await
}

async fn run(
    context: RequestContext,
    given: BulkIn,
    action: BulkAction,
) -> Result<Response, Problem> {
    let is_dry = context.arguments.flag("dry_run")?;
    let done = match (given.jobs, given.filter) {
        (Some(jobs), None) => {
            refuse(given.limit.is_some(), "limit", "a filter")?;
            refuse(given.after.is_some(), "after", "a filter")?;
            refuse(given.created_before.is_some(), "created_before", "a filter")?;
            refuse(given.at_most.is_some(), "at_most", "a filter")?;
            let ids = context.api.own_jobs(&jobs, "/jobs")?;
            act(&context, &action, ids, is_dry).await?
        }
        (None, Some(filter)) => {
            let mut query = filter.convert(context.namespace.clone())?;
            go_on(&mut query, given.after.as_deref())?;
            query.enqueued_before(given.created_before.map(|moment| moment.0));
            let bounds = BulkBounds {
                visited_max: limit(given.limit)?,
                changed_max: at_most(given.at_most)?,
            };
            let shard = context.shard();
            shard
                .bulk(&action, query, bounds, is_dry, context.now)
                .await?
        }
        _ => {
            let detail = "give exactly one of \"jobs\" and \"filter\"";
            return Err(Problem::new("invalid_value", detail).at(""));
        }
    };
    Ok(json::ok(&if is_dry {
        BulkAnswer::WouldChange(would_change(&context, action.is_foreseeable(), done))
    } else {
        BulkAnswer::Changed(changed(&context, done))
    }))
}

/// Acts on jobs given by id.
async fn act(
    context: &RequestContext,
    action: &BulkAction,
    ids: Vec<JobId>,
    is_dry: bool,
) -> Result<BulkResult, Problem> {
    let mut done = BulkResult::default();
    if is_dry {
        for id in ids {
            match context.shard().job(&context.namespace, &id).await? {
                Some(job) => done.count(action, &job),
                None => return Err(crate::resource::jobs::not_found(id)),
            }
        }
        return Ok(done);
    }
    for slice in ids.chunks(BULK_JOBS_MAX) {
        let (shard, jobs) = (context.shard(), slice.to_vec());
        shard
            .act_on(action, &context.namespace, jobs, context.now, &mut done)
            .await?;
    }
    Ok(done)
}

pub(crate) fn changed(context: &RequestContext, done: BulkResult) -> Changed {
    Changed {
        changed: done.changed,
        skipped: done.skipped,
        skipped_jobs: names(context, &done.skipped_jobs),
        dependents: Vec::new(),
        passed_on: done.passed_on.iter().map(ShardId::to_string).collect(),
        next: done.next.map(|place| place.to_string()),
    }
}

/// What a dry run found; `exact`: whether exactly these jobs would change.
pub(crate) fn would_change(context: &RequestContext, exact: bool, done: BulkResult) -> WouldChange {
    let by_state = done.by_state.into_iter();
    let by_queue = done.by_queue.into_iter();
    WouldChange {
        would_change: done.changed,
        would_skip: done.skipped,
        exact,
        by_state: by_state
            .map(|(state, count)| (state.as_str().to_owned(), count))
            .collect(),
        by_queue: by_queue
            .map(|(queue, count)| (text(queue.as_bytes()), count))
            .collect(),
        other_queues: (done.other_queues > 0).then_some(done.other_queues),
        sample: names(context, &done.sample),
        as_of: Some(calendar(context.shard().wall_time())),
        next: done.next.map(|place| place.to_string()),
    }
}

fn names(context: &RequestContext, ids: &[JobId]) -> Vec<String> {
    let shard = context.shard().id();
    ids.iter().map(|id| full_name(shard, id)).collect()
}

fn limit(given: Option<u32>) -> Result<usize, Problem> {
    let limit = given.unwrap_or(LOOKED_MAX);
    if !(1..=LOOKED_MAX).contains(&limit) {
        let detail = format!("/limit: must be from 1 to {LOOKED_MAX}, not {limit}");
        return Err(Problem::new("invalid_value", detail).at("/limit"));
    }
    Ok(usize::try_from(limit).unwrap_or(usize::MAX))
}

fn at_most(given: Option<u64>) -> Result<u64, Problem> {
    match given {
        Some(0) => {
            let detail = "/at_most: must be at least 1; leave it out for no limit";
            Err(Problem::new("invalid_value", detail).at("/at_most"))
        }
        given => Ok(given.unwrap_or(u64::MAX)),
    }
}

fn go_on(query: &mut JobQuery, after: Option<&str>) -> Result<(), Problem> {
    let Some(text) = after else { return Ok(()) };
    let place = text.parse().map_err(|_| {
        let detail = format!("/after: {text:?} is not the \"next\" of an answer");
        Problem::new("invalid_value", detail).at("/after")
    })?;
    query.go_on(place);
    Ok(())
}

/// Refuses a field that has no meaning for the action.
fn refuse(is_given: bool, field: &str, of: &str) -> Result<(), Problem> {
    if !is_given {
        return Ok(());
    }
    let detail = format!("/{field}: goes only with {of}");
    Err(Problem::new("unknown_field", detail).at(format!("/{field}")))
}
