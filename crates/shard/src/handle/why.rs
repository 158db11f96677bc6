//! Explains a job while the store confirms no commits.

use std::pin::pin;
use std::time::Duration;

use ganger_types::why::{Explanation, Reason};
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
        let mut asked = pin!(asked);
        loop {
            let answer = timeout(LOOK_EVERY, asked.as_mut()).await;
            match (answer, self.held_up()) {
                (Ok(Ok(Reply::Why(mut explanation))), Some(reason)) => {
                    explanation.hold_up(reason);
                    return Ok(Reply::Why(explanation));
                }
                (Ok(answer), _) => return answer,
                (Err(_), Some(reason)) => {
                    return self.explain_by_hold(&namespace, &id, reason).await;
                }
                (Err(_), None) => {}
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
