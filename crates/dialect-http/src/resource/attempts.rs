//! The attempts of a job: when, on which worker, how long, how they ended, how much they logged.

use axum::response::Response;
use ganger_document::names::text;
use ganger_document::time::Moment;
use ganger_shard::StoredJob;
use ganger_types::history::AttemptEnd;
use ganger_types::{Timestamp, What};
use serde::Serialize;
use utoipa::ToSchema;

use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::resource::jobs::find;

/// The attempts of a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attempts)]
pub(crate) struct AttemptsView {
    /// Attempts that the history has, oldest first; the last one may run.
    attempts: Vec<AttemptView>,
    /// Number of entries that were dropped from the middle of the history; some may be attempts.
    history_dropped: u32,
}

/// An attempt of a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(crate) struct AttemptView {
    /// Number of the attempt, from 1.
    attempt: u32,
    /// Worker that held the lease.
    worker: String,
    /// Time at which the job was leased.
    leased_at: Moment,
    /// Time at which the attempt ended; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Moment>,
    /// How it ended: `succeeded`, `failed`, `expired`, `timed_out`, `released`, `cancelled`; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'static str>,
    /// Failure group of a failed attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// Message of a failed attempt, or reason of a release.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Seconds from what happened to the job before, such as its enqueueing or the end of the attempt before, to the
    /// lease.
    waited_seconds: f64,
    /// Seconds from the lease to the end, or until now.
    ran_seconds: f64,
    /// Length of its log in bytes.
    log_bytes: u64,
}

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let job = find(&context).await?;
    let mut attempts = views(&job, context.shard().wall_time());
    for attempt in &mut attempts {
        let shard = context.shard();
        attempt.log_bytes = shard.log_bytes(job.record.key, attempt.attempt).await?;
    }
    Ok(json::ok(&AttemptsView {
        attempts,
        history_dropped: job.record.history_dropped,
    }))
}

fn views(job: &StoredJob, now: Timestamp) -> Vec<AttemptView> {
    let seconds = |from: Timestamp, to: Timestamp| to.since(from).as_secs_f64();
    let mut before = job.record.created_at;
    let mut views = Vec::new();
    for entry in &job.record.history {
        if let What::Attempt {
            number,
            worker,
            leased_at,
            end,
        } = &entry.what
        {
            let (group, message) = match end {
                AttemptEnd::Failed { group, message, .. } => {
                    (Some(text(group.as_bytes())), Some(message.clone()))
                }
                AttemptEnd::Released { reason, .. } => (None, Some(reason.clone())),
                _ => (None, None),
            };
            views.push(AttemptView {
                attempt: *number,
                worker: text(worker.as_bytes()),
                leased_at: Moment(*leased_at),
                ended_at: Some(Moment(entry.at)),
                end: Some(end.as_str()),
                group,
                message,
                waited_seconds: seconds(before, *leased_at),
                ran_seconds: seconds(*leased_at, entry.at),
                log_bytes: 0,
            });
        }
        before = entry.at;
    }
    views.extend(job.lease.as_ref().map(|lease| AttemptView {
        attempt: lease.attempt,
        worker: text(lease.worker.as_bytes()),
        leased_at: Moment(lease.granted_at),
        ended_at: None,
        end: None,
        group: None,
        message: None,
        waited_seconds: seconds(before, lease.granted_at),
        ran_seconds: seconds(lease.granted_at, now),
        log_bytes: 0,
    }));
    views
}
