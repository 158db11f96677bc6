//! Actions on one job: cancel, retry, time out, delete.

use axum::response::Response;
use ganger_document::names::QueueName;
use ganger_document::names::full_name;
use ganger_document::view::change::CancelEffects;
use ganger_types::command::{Cancel, Delete, Retry, Selection, TimeOut};
use ganger_types::query::Query;
use ganger_types::{Command, JobId, Reply, ShardId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::json::{self, MaybeDoc};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::jobs::not_found;

/// The result of an action on a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Acted)]
pub(crate) struct ActedView {
    /// Whether the job was changed; if not, its state does not allow the action.
    changed: bool,
    /// State of the job now; absent if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    /// Of retry with `dependents`: the other jobs that were retried, as `shard/id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    dependents: Option<Vec<String>>,
    /// Of retry with `dependents`: jobs that could not be retried, as `shard/id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped_jobs: Option<Vec<String>>,
    /// Of retry with `dependents`: the shards that are asked to retry jobs of theirs; one that cannot be reached is
    /// asked later.
    #[serde(skip_serializing_if = "Option::is_none")]
    passed_on: Option<Vec<String>>,
}

/// The result of a cancellation, or of its dry run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = CancelResult)]
pub(crate) enum CancelResult {
    /// What was done, unless it was a dry run.
    Acted(ActedView),
    /// What would happen, if it was a dry run.
    Effects(CancelEffects),
}

/// The cancellation of a job.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"reason\": \"...\"}"
)]
#[schema(as = CancelJob)]
pub(crate) struct CancelJobIn {
    /// Reason of the cancellation, for people; empty if absent.
    #[serde(default)]
    reason: String,
    /// Whether to change nothing, and answer what the cancellation would lead to (`CancelEffects`).
    #[serde(default)]
    dry_run: bool,
}

/// The cancellation of a graph.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"reason\": \"...\"}"
)]
#[schema(as = Cancel)]
pub(crate) struct CancelIn {
    /// Reason of the cancellation, for people; empty if absent.
    #[serde(default)]
    pub(crate) reason: String,
}

/// The retry of a job.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"queue\": \"mail\"}"
)]
#[schema(as = RetryJob)]
pub(crate) struct RetryJobIn {
    /// Queue that the job enters; its own if absent.
    queue: Option<QueueName>,
    /// Whether to retry also the jobs that ended because this one did: dependents that failed with it, at any
    /// distance, and jobs that were cancelled because no job needed them any more. Jobs of other shards are retried
    /// once those shards have been reached (`passed_on` of the answer).
    #[serde(default)]
    dependents: bool,
}

pub(crate) async fn cancel(
    context: RequestContext,
    MaybeDoc(given): MaybeDoc<CancelJobIn>,
) -> Result<Response, Problem> {
    let id = context.job()?;
    if given.dry_run {
        let query = Query::CancelEffects(context.namespace.clone(), id);
        let Reply::CancelEffects(effects) = context.call(Command::Query(Box::new(query))).await?
        else {
            return Err(unexpected_reply());
        };
        let effects = CancelEffects::new(context.shard().id(), &effects);
        return Ok(json::ok(&CancelResult::Effects(effects)));
    }
    let command = Command::Cancel(Box::new(Cancel {
        namespace: context.namespace.clone(),
        jobs: Selection::Jobs(vec![id.clone()]),
        reason: given.reason,
    }));
    act(&context, id, command).await
}

pub(crate) async fn retry(
    context: RequestContext,
    MaybeDoc(given): MaybeDoc<RetryJobIn>,
) -> Result<Response, Problem> {
    let id = context.job()?;
    let command = Command::Retry(Box::new(Retry {
        namespace: context.namespace.clone(),
        jobs: vec![id.clone()],
        queue: given.queue.map(|queue| queue.0),
        dependents: given.dependents,
        graph: None,
    }));
    act(&context, id, command).await
}

pub(crate) async fn time_out(context: RequestContext) -> Result<Response, Problem> {
    let id = context.job()?;
    let command = TimeOut {
        namespace: context.namespace.clone(),
        jobs: vec![id.clone()],
    };
    act(&context, id, Command::TimeOut(command)).await
}

pub(crate) async fn delete(context: RequestContext) -> Result<Response, Problem> {
    let id = context.job()?;
    let command = Delete {
        namespace: context.namespace.clone(),
        jobs: vec![id.clone()],
    };
    match context.call(Command::Delete(command)).await? {
        Reply::Changed { count: 0, .. } => Err(not_found(id)),
        Reply::Changed { .. } => Ok(json::ok(&ActedView {
            changed: true,
            state: None,
            dependents: None,
            skipped_jobs: None,
            passed_on: None,
        })),
        _ => Err(unexpected_reply()),
    }
}

/// Sends the command and returns the state of the job. A cancelled job of qless does not exist any more.
async fn act(context: &RequestContext, id: JobId, command: Command) -> Result<Response, Problem> {
    let names = |ids: Vec<JobId>| {
        let shard = context.shard().id();
        Some(ids.iter().map(|id| full_name(shard, id)).collect())
    };
    let (count, dependents, skipped_jobs, passed_on) = match context.call(command).await? {
        Reply::Changed { count, .. } => (count, None, None, None),
        Reply::Retried {
            count,
            skipped,
            dependents,
            passed_on,
        } => {
            let shards = passed_on.iter().map(ShardId::to_string).collect();
            (count, names(dependents), names(skipped), Some(shards))
        }
        _ => return Err(unexpected_reply()),
    };
    let job = context.shard().job(&context.namespace, &id).await?;
    if job.is_none() && count == 0 {
        return Err(not_found(id));
    }
    let state = job.map(|job| job.record.state.as_str());
    Ok(json::ok(&CancelResult::Acted(ActedView {
        changed: count > 0,
        state,
        dependents,
        skipped_jobs,
        passed_on,
    })))
}
