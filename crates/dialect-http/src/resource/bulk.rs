//! Acting on many jobs: a list of ids, or all that fulfil a filter, page by page.

use axum::response::Response;
use ganger_types::command::{Cancel, Delete, Revive, Selection};
use ganger_types::limits::BULK_JOBS_MAX;
use ganger_types::query::JobQuery;
use ganger_types::{Command, JobId, Reply};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::full_name;
use crate::ask::Ask;
use crate::inward::filter::BulkIn;
use crate::json::{self, Doc};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;

/// Skipped ids that an answer names; the rest is counted.
const SKIPPED_SHOWN: usize = 100;

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
}

/// What is done to the jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    Cancel,
    Retry,
    Delete,
}

pub(crate) async fn cancel(ask: Ask, Doc(given): Doc<BulkIn>) -> Result<Response, Problem> {
    run(ask, given, Deed::Cancel).await
}

pub(crate) async fn retry(ask: Ask, Doc(given): Doc<BulkIn>) -> Result<Response, Problem> {
    run(ask, given, Deed::Retry).await
}

pub(crate) async fn delete(ask: Ask, Doc(given): Doc<BulkIn>) -> Result<Response, Problem> {
    run(ask, given, Deed::Delete).await
}

async fn run(ask: Ask, mut given: BulkIn, deed: Deed) -> Result<Response, Problem> {
    check_fields(&given, deed)?;
    let mut done = ChangedView::default();
    match (given.jobs.take(), given.filter.take()) {
        (Some(jobs), None) => {
            let ids = ask.api.resolve_all(&jobs, "/jobs")?;
            for slice in ids.chunks(BULK_JOBS_MAX) {
                act(&ask, &given, deed, slice.to_vec(), &mut done).await?;
            }
        }
        (None, Some(filter)) => {
            let query = filter.convert(ask.namespace.clone())?;
            act_on_all(&ask, &given, deed, query, &mut done).await?;
        }
        _ => {
            let detail = "give exactly one of \"jobs\" and \"filter\"";
            return Err(Problem::new("invalid_value", detail).at(""));
        }
    }
    Ok(json::ok(&done))
}

/// Page by page, so that any number of jobs takes constant memory. A page is read and acted on before
/// the next is read; the order by number makes sure that each job comes once.
async fn act_on_all(
    ask: &Ask,
    given: &BulkIn,
    deed: Deed,
    mut query: JobQuery,
    done: &mut ChangedView,
) -> Result<(), Problem> {
    loop {
        let page = ask.shard().list(query.clone()).await?;
        let ids: Vec<_> = page.jobs.into_iter().map(|job| job.record.id).collect();
        if !ids.is_empty() {
            act(ask, given, deed, ids, done).await?;
        }
        match page.next {
            Some(next) => query.go_on(next),
            None => return Ok(()),
        }
    }
}

async fn act(
    ask: &Ask,
    given: &BulkIn,
    deed: Deed,
    jobs: Vec<JobId>,
    done: &mut ChangedView,
) -> Result<(), Problem> {
    let namespace = ask.namespace.clone();
    let sole = (jobs.len() == 1).then(|| jobs.clone());
    let command = match deed {
        Deed::Cancel => Command::Cancel(Box::new(Cancel {
            namespace,
            jobs: Selection::Jobs(jobs),
            reason: given.reason.clone().unwrap_or_default(),
        })),
        Deed::Retry => {
            let queue = given.queue.as_ref().map(|queue| queue.0.clone());
            Command::Revive(Box::new(Revive {
                namespace,
                jobs,
                queue,
            }))
        }
        Deed::Delete => Command::Delete(Delete { namespace, jobs }),
    };
    let answer = ask.call(command).await.map_err(Problem::from);
    let (count, skipped) = match (answer, sole) {
        (Ok(Reply::Changed { count, skipped }), _) => (count, skipped),
        (Ok(_), _) => return Err(unexpected_reply()),
        // One that is named alone is refused with the reason; here it is one of many.
        (Err(problem), Some(sole)) if problem.code == "wrong_state" => (0, sole),
        (Err(problem), _) => return Err(problem),
    };
    done.changed += count;
    done.skipped += u64::try_from(skipped.len()).unwrap_or(u64::MAX);
    let room = SKIPPED_SHOWN.saturating_sub(done.skipped_jobs.len());
    let shard = ask.shard().id();
    let shown = skipped.into_iter().take(room);
    done.skipped_jobs
        .extend(shown.map(|id| full_name(shard, &id)));
    Ok(())
}

fn check_fields(given: &BulkIn, deed: Deed) -> Result<(), Problem> {
    let misplaced = |field: &str, of: &str| {
        let detail = format!("/{field}: goes only with {of}");
        Err(Problem::new("unknown_field", detail).at(format!("/{field}")))
    };
    if given.reason.is_some() && deed != Deed::Cancel {
        return misplaced("reason", "cancel");
    }
    if given.queue.is_some() && deed != Deed::Retry {
        return misplaced("queue", "retry");
    }
    Ok(())
}
