//! The decision about a submission over several shards: the decider commits it, or aborts it if not every shard has its
//! part (`rel G8`).

use ganger_types::command::Decide;
use ganger_types::{Graph, Namespace, ShardId};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::{BUSY_PAUSE, BUSY_PAUSE_MAX};
use crate::reach::ShardClient;
use crate::{REACH_WITHIN, RouteError, Router};

/// A submission whose parts are being prepared. Aborts it when dropped, as it is when its client goes away, so that its
/// job ids are free for a repeat. The decider aborts it by itself after a timeout if it cannot be told.
pub(super) struct UndecidedSubmission<'a> {
    router: &'a Router,
    decider: ShardId,
    /// The request that aborts it; `None` once it is decided.
    abort: Option<Decide>,
}

impl<'a> UndecidedSubmission<'a> {
    /// Creates a submission that this shard decides.
    pub(super) fn new(
        router: &'a Router,
        decider: ShardId,
        namespace: Namespace,
        graph: Graph,
    ) -> Self {
        let abort = Some(Decide {
            namespace,
            graph,
            is_committed: false,
        });
        Self {
            router,
            decider,
            abort,
        }
    }

    /// Commits it: every shard has its part.
    pub(super) async fn commit(mut self) -> Result<(), RouteError> {
        if let Some(abort) = &self.abort {
            let commit = Decide {
                is_committed: true,
                ..abort.clone()
            };
            self.router.decide_for(&self.decider, commit).await?;
        }
        self.abort = None;
        Ok(())
    }

    /// Aborts it. A decider that gives no answer is asked again in the background.
    pub(super) async fn abort(&mut self) {
        if let (Some(abort), Ok(client)) = (&self.abort, self.router.reach(&self.decider))
            && self.router.decide(&client, abort.clone()).await.is_ok()
        {
            self.abort = None;
        }
    }
}

impl Drop for UndecidedSubmission<'_> {
    fn drop(&mut self) {
        // Without a runtime the process ends.
        if let (Some(abort), Ok(runtime)) = (self.abort.take(), Handle::try_current()) {
            let (router, decider) = (self.router.clone(), self.decider.clone());
            runtime.spawn(async move {
                if let Err(error) = router.decide_for(&decider, abort.clone()).await {
                    let graph = abort.graph;
                    tracing::debug!(%graph, %error, "the decider could not be told that a submission failed");
                }
            });
        }
    }
}

impl Router {
    /// Asks the decider to decide the submission. Without a reply it is asked again for a while: a decision is made
    /// once and stays.
    pub(super) async fn decide_for(
        &self,
        decider: &ShardId,
        decide: Decide,
    ) -> Result<(), RouteError> {
        let until = Instant::now() + REACH_WITHIN;
        let mut pause = BUSY_PAUSE;
        let mut unknown = None;
        loop {
            // In a cluster, another node may serve it by now.
            let answer = match self.reach(decider) {
                Ok(client) => self.decide(&client, decide.clone()).await,
                Err(error) => Err(error),
            };
            let error = match answer.map_err(|error| error.after_a_change(decider)) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let is_unknown = matches!(error, RouteError::OutcomeUnknown { .. });
            // Neither is an answer of the decider.
            let is_away = matches!(
                error,
                RouteError::Unreachable { .. } | RouteError::Unknown { .. }
            );
            if is_unknown || (is_away && unknown.is_some()) {
                unknown.get_or_insert_with(|| error.clone());
            } else if !(is_away && self.is_between_nodes(&error)) {
                // The decider's reply is final, also about a decision that it made earlier without a reply.
                return Err(error);
            }
            if Instant::now() + pause > until {
                return Err(unknown.unwrap_or(error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BUSY_PAUSE_MAX);
        }
    }

    /// Asks a shard to decide. If the shard is in this process, the other shards know the decision when this returns,
    /// as far as they respond, so clients find the ids there.
    pub(crate) async fn decide(
        &self,
        decider: &ShardClient,
        decide: Decide,
    ) -> Result<(), RouteError> {
        decider.decide(decide).await?;
        // The decision stays, whatever happens next.
        if let ShardClient::Here(handle) = decider
            && let Ok(peers) = self.peers(handle).await
        {
            let to: Vec<ShardId> = peers
                .into_iter()
                .filter(|(view, _)| view.waiting > 0)
                .map(|(view, _)| view.record.shard)
                .collect();
            self.deliver_now(handle, &to).await;
        }
        Ok(())
    }
}
