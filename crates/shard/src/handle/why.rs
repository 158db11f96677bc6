//! Explains a job or a queue while the store confirms no commits.

use std::pin::pin;
use std::time::Duration;

use ganger_types::why::{Explanation, Reason, hold_up_queue};
use ganger_types::{JobId, Namespace, Reply};
use tokio::time::timeout;

use super::Handle;
use crate::CallError;

/// Time for the answer of the shard; then it is looked whether the store confirms commits.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Handle {
    /// Waits for the shard's explanation of a job, and adds what the store waits for, if it does. Where the answer depends
    /// on a commit that is not confirmed, that is the whole explanation.
    pub(super) async fn explain(
        &self,
        namespace: Namespace,
        id: JobId,
        asked: impl Future<Output = Result<Reply, CallError>>,
    ) -> Result<Reply, CallError> {
        match self.answer_or_hold(asked).await {
            (Some(Ok(Reply::Why(mut explanation))), Some(reason)) => {
                explanation.hold_up(reason);
                Ok(Reply::Why(explanation))
            }
            (Some(answer), _) => answer,
            (None, reason) => {
                let reason = reason.unwrap_or_default();
                self.explain_by_hold(&namespace, &id, reason).await
            }
        }
    }

    /// Waits for the shard's explanation of a queue, and adds what the store waits for, if it does.
    ///
    /// # Errors
    /// If the answer depends on a commit that is not confirmed.
    pub(super) async fn explain_queue(
        &self,
        asked: impl Future<Output = Result<Reply, CallError>>,
    ) -> Result<Reply, CallError> {
        match self.answer_or_hold(asked).await {
            (Some(Ok(Reply::QueueWhy(mut waits))), Some(reason)) => {
                hold_up_queue(&mut waits, reason);
                Ok(Reply::QueueWhy(waits))
            }
            (Some(answer), _) => answer,
            (None, reason) => {
                let reason = reason.unwrap_or_default();
                Err(CallError::unavailable(&self.shared.id, reason))
            }
        }
    }

    /// Waits for an answer, or until the store confirms no commits. Returns the answer, and what the store waits for.
    async fn answer_or_hold(
        &self,
        asked: impl Future<Output = Result<Reply, CallError>>,
    ) -> (Option<Result<Reply, CallError>>, Option<String>) {
        let mut asked = pin!(asked);
        loop {
            match (timeout(LOOK_EVERY, asked.as_mut()).await, self.held_up()) {
                (Err(_), None) => {}
                (answer, reason) => return (answer.ok(), reason),
            }
        }
    }

    /// Explains a job by what the store waits for alone. Its confirmed state can be read.
    async fn explain_by_hold(
        &self,
        namespace: &Namespace,
        id: &JobId,
        reason: String,
    ) -> Result<Reply, CallError> {
        let Some(job) = self.job(namespace, id).await? else {
            return Err(CallError::unavailable(&self.shared.id, reason));
        };
        let reasons = if job.record.state.is_terminal() {
            vec![Reason::Ended {
                detail: String::new(),
            }]
        } else {
            vec![Reason::StoreHeldUp { detail: reason }]
        };
        Ok(Reply::Why(Box::new(Explanation {
            job: id.clone(),
            state: job.record.state,
            queue: job.record.queue,
            reasons,
        })))
    }
}
