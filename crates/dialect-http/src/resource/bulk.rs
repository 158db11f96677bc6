//! Acting on many jobs: a list of ids, or all that fulfil a filter, a bounded number of them a call.

use std::collections::BTreeMap;

use axum::response::Response;
use ganger_document::Shards as _;
use ganger_document::names::full_name;
use ganger_document::names::show;
use ganger_document::request::bulk::BulkIn;
use ganger_document::time::Moment;
use ganger_shard::{BulkAction, BulkResult};
use ganger_types::limits::BULK_JOBS_MAX;
use ganger_types::query::JobQuery;
use ganger_types::{JobId, ShardId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::json::{self, JsonBody};
use crate::problem::Problem;
use crate::request_context::RequestContext;

/// Jobs that a call with a filter looks at, at most and by default.
const LOOKED_MAX: u32 = 100_000;

/// The query parameters of a bulk action.
pub(crate) const PARAMETERS: &[(&str, &str)] = &[(
    "dry_run",
    "true: changes nothing, and answers how many jobs it would change (WouldChange)",
)];

/// What a bulk action did.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Changed)]
pub(crate) struct ChangedView {
    /// How many jobs were changed.
    changed: u64,
    /// How many were not there, or not in a state for it.
    skipped: u64,
    /// The first of those, as `shard/id`.
    skipped_jobs: Vec<String>,
    /// Of a retry with `dependents` or of a graph: the shards that will be asked to put back jobs of theirs. It is
    /// stored; one that cannot be reached is asked once it can. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    passed_on: Vec<String>,
    /// Give this as `after` to go on; absent when all jobs of the filter were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What a bulk action would do.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = WouldChange)]
pub(crate) struct WouldChangeView {
    /// How many jobs it would change.
    would_change: u64,
    /// How many are not there, or not in a state for it.
    would_skip: u64,
    /// Whether exactly these; else jobs that depend on them may stand in the way.
    exact: bool,
    /// Those that it would change, by state.
    by_state: BTreeMap<&'static str, u64>,
    /// Those by queue, the first 100 queues.
    by_queue: BTreeMap<String, u64>,
    /// Those of further queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_queues: Option<u64>,
    /// The first of those, as `shard/id`.
    sample: Vec<String>,
    /// When this was so.
    #[schema(value_type = String)]
    as_of: Option<Moment>,
    /// As with the action itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

pub(crate) async fn cancel(
    ask: RequestContext,
    JsonBody(given): JsonBody<BulkIn>,
) -> Result<Response, Problem> {
    refuse(given.queue.is_some(), "queue", "retry")?;
    refuse(given.dependents.is_some(), "dependents", "retry")?;
    let reason = given.reason.clone().unwrap_or_default();
    run(ask, given, BulkAction::Cancel { reason }).await
}

pub(crate) async fn retry(
    ask: RequestContext,
    JsonBody(given): JsonBody<BulkIn>,
) -> Result<Response, Problem> {
    refuse(given.reason.is_some(), "reason", "cancel")?;
    let action = BulkAction::Retry {
        queue: given.queue.as_ref().map(|queue| queue.0.clone()),
        dependents: given.dependents.unwrap_or(false),
        graph: None,
    };
    run(ask, given, action).await
}

pub(crate) async fn delete(
    ask: RequestContext,
    JsonBody(given): JsonBody<BulkIn>,
) -> Result<Response, Problem> {
    refuse(given.reason.is_some(), "reason", "cancel")?;
    refuse(given.queue.is_some(), "queue", "retry")?;
    refuse(given.dependents.is_some(), "dependents", "retry")?;
    run(ask, given, BulkAction::Delete).await
}

async fn run(ask: RequestContext, given: BulkIn, action: BulkAction) -> Result<Response, Problem> {
    let is_dry = ask.arguments.flag("dry_run")?;
    let done = match (given.jobs, given.filter) {
        (Some(jobs), None) => {
            refuse(given.limit.is_some(), "limit", "a filter")?;
            refuse(given.after.is_some(), "after", "a filter")?;
            let ids = ask.api.own_jobs(&jobs, "/jobs")?;
            act(&ask, &action, ids, is_dry).await?
        }
        (None, Some(filter)) => {
            let mut query = filter.convert(ask.namespace.clone())?;
            go_on(&mut query, given.after.as_deref())?;
            let limit = limit(given.limit)?;
            let shard = ask.shard();
            shard.bulk(&action, query, limit, is_dry, ask.now).await?
        }
        _ => {
            let detail = "give exactly one of \"jobs\" and \"filter\"";
            return Err(Problem::new("invalid_value", detail).at(""));
        }
    };
    Ok(if is_dry {
        json::ok(&would_change(&ask, &action, done))
    } else {
        json::ok(&changed(&ask, done))
    })
}

/// Acts on jobs that are named.
async fn act(
    ask: &RequestContext,
    action: &BulkAction,
    ids: Vec<JobId>,
    is_dry: bool,
) -> Result<BulkResult, Problem> {
    let mut done = BulkResult::default();
    if is_dry {
        for id in ids {
            match ask.shard().job(&ask.namespace, &id).await? {
                Some(job) => done.count(action, &job),
                None => return Err(crate::resource::jobs::not_found(id)),
            }
        }
        return Ok(done);
    }
    for slice in ids.chunks(BULK_JOBS_MAX) {
        let (shard, jobs) = (ask.shard(), slice.to_vec());
        shard
            .act_on(action, &ask.namespace, jobs, ask.now, &mut done)
            .await?;
    }
    Ok(done)
}

pub(crate) fn changed(ask: &RequestContext, done: BulkResult) -> ChangedView {
    ChangedView {
        changed: done.changed,
        skipped: done.skipped,
        skipped_jobs: names(ask, &done.skipped_jobs),
        passed_on: done.passed_on.iter().map(ShardId::to_string).collect(),
        next: done.next.map(|place| place.to_string()),
    }
}

fn would_change(ask: &RequestContext, action: &BulkAction, done: BulkResult) -> WouldChangeView {
    let by_state = done.by_state.into_iter();
    let by_queue = done.by_queue.into_iter();
    WouldChangeView {
        would_change: done.changed,
        would_skip: done.skipped,
        exact: action.is_foreseeable(),
        by_state: by_state
            .map(|(state, count)| (state.as_str(), count))
            .collect(),
        by_queue: by_queue
            .map(|(queue, count)| (show(queue.as_bytes()).into_owned(), count))
            .collect(),
        other_queues: (done.other_queues > 0).then_some(done.other_queues),
        sample: names(ask, &done.sample),
        as_of: Some(Moment(ask.shard().wall_time())),
        next: done.next.map(|place| place.to_string()),
    }
}

fn names(ask: &RequestContext, ids: &[JobId]) -> Vec<String> {
    let shard = ask.shard().id();
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

fn go_on(query: &mut JobQuery, after: Option<&str>) -> Result<(), Problem> {
    let Some(text) = after else { return Ok(()) };
    let place = text.parse().map_err(|_| {
        let detail = format!("/after: {text:?} is not the \"next\" of an answer");
        Problem::new("invalid_value", detail).at("/after")
    })?;
    query.go_on(place);
    Ok(())
}

/// Refuses a field where it means nothing.
fn refuse(is_given: bool, field: &str, of: &str) -> Result<(), Problem> {
    if !is_given {
        return Ok(());
    }
    let detail = format!("/{field}: goes only with {of}");
    Err(Problem::new("unknown_field", detail).at(format!("/{field}")))
}
