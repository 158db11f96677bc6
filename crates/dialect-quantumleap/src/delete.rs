//! Deletes tasks in any state. Later reports about running tasks are refused, so their outcomes are dropped.

use axum::extract::{Request, State};
use ganger_shard::CallError;
use ganger_types::Command;
use ganger_types::command::Delete;
use http::StatusCode;

use crate::api::Api;
use crate::list::Jobs;
use crate::problem::Problem;
use crate::selection::Selection;

/// Maximum number of tasks deleted in one commit.
const PAGE_TASKS: usize = 500;

/// Answers a `DELETE` of the tasks.
pub(crate) async fn tasks(State(api): State<Api>, request: Request) -> Result<StatusCode, Problem> {
    let (parts, _) = request.into_parts();
    let selection = Selection::of_headers(&parts);
    let namespace = api.settings().namespace.clone();
    let mut jobs = Jobs::until_now(&api, selection.query(&namespace), PAGE_TASKS).await?;
    loop {
        let page = jobs.next_page(&api).await?;
        // One command per task, so that the refusal of a missing task does not affect others.
        let commands: Vec<Command> = page
            .into_iter()
            .filter(|job| selection.has(job))
            .map(|job| {
                Command::Delete(Delete {
                    namespace: namespace.clone(),
                    jobs: vec![job.id],
                })
            })
            .collect();
        if !commands.is_empty() {
            for outcome in api.shard().call_all(commands).await? {
                ignore_missing(outcome.map(|_| ()))?;
            }
        }
        if jobs.is_at_end() {
            return Ok(StatusCode::NO_CONTENT);
        }
    }
}

/// Ignores the refusal if a task is missing, or other jobs still need it.
fn ignore_missing(outcome: Result<(), CallError>) -> Result<(), CallError> {
    match outcome {
        Err(CallError::Rejected(rejection)) => {
            tracing::debug!(%rejection, "a task was not deleted");
            Ok(())
        }
        outcome => outcome,
    }
}
