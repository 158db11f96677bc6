//! Retries that reach jobs of other shards.
//!
//! A job that ends without success keeps a list of the jobs on other shards that fail because of it. When it is
//! retried with its followers, each of those shards gets a message and retries its job by the same rule, which may
//! reach further shards. A retried job also sends a message to the shards of its dependencies, because one may have
//! been cancelled when this job ended.
//!
//! The retry of a whole graph is sent to each of its shards. The order does not matter: a job that is retried too
//! early fails again and stays on the list of its dependency, which retries it later.

use std::collections::BTreeSet;

use ganger_types::command::Receive;
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::{
    Graph, GraphRetry, InputState, JobId, JobKey, JobRecord, JobRef, Message, Namespace, Outcome,
    Queue, RetriedGraph, ShardId,
};

use crate::command::{RetryPlan, RetryScope};
use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::followers::{FollowReason, FollowersQuery, Members, followers, follows};
use crate::turn::Turn;

/// Whether a message may retry jobs.
pub(super) fn retries(message: &Message) -> bool {
    matches!(
        message,
        Message::Follow { retries: true, .. }
            | Message::RetryDependent { .. }
            | Message::RetryGraph { .. }
    )
}

impl Engine {
    /// What the host must read for the retries in a batch; `None`: the batch has none.
    pub(crate) fn prefetch_of_retries(&self, batch: &Receive) -> Option<FollowersQuery> {
        let known = self.peers.known.get(&batch.from);
        let received = known
            .filter(|peer| peer.record.received_epoch == batch.stream_epoch)
            .map_or(0, |peer| peer.record.received);
        let messages = batch.messages.iter();
        let messages = messages.filter(|record| record.number > received);
        let mut asked: Option<FollowersQuery> = None;
        for message in messages.map(|record| &record.message) {
            if !retries(message) {
                continue;
            }
            let asked = asked.get_or_insert_default();
            match message {
                Message::RetryDependent { dependent, .. } => asked.ended.push(*dependent),
                Message::RetryGraph { namespace, retry } if asked.members.is_none() => {
                    asked.members = Some(Members {
                        namespace: namespace.clone(),
                        graph: retry.within.graph.clone(),
                        after: retry.after,
                        limit: PAGE_JOBS_MAX,
                    });
                }
                _ => {}
            }
        }
        asked
    }

    /// Sends messages to retry the jobs of other shards that failed because of this one, which is being retried.
    pub(crate) fn retry_dependents_elsewhere(
        &mut self,
        record: &JobRecord,
        reach: &RetryScope,
        passed_on: &mut BTreeSet<ShardId>,
        turn: &mut Turn<'_>,
    ) {
        let within = match reach {
            RetryScope::Followers => None,
            RetryScope::Graph(within) => Some(within.clone()),
            RetryScope::Named => {
                self.take_failed_dependents(record.key, turn);
                return;
            }
        };
        for dependent in self.take_failed_dependents(record.key, turn) {
            let message = Message::RetryDependent {
                namespace: record.namespace.clone(),
                dependency: record.id.clone(),
                dependent: dependent.key,
                slot: dependent.slot,
                within: within.clone(),
            };
            self.post(&dependent.shard, message, turn);
            passed_on.insert(dependent.shard);
        }
    }

    /// Asks the other shards of a graph to retry their members. Returns those shards.
    pub(crate) fn retry_graph_elsewhere(
        &mut self,
        namespace: &Namespace,
        within: &RetriedGraph,
        turn: &mut Turn<'_>,
    ) -> BTreeSet<ShardId> {
        let shards = self.other_shards_of(namespace, &within.graph);
        for shard in &shards {
            let message = Message::RetryGraph {
                namespace: namespace.clone(),
                retry: GraphRetry {
                    within: within.clone(),
                    after: None,
                    before: None,
                    has_changed: false,
                    has_skipped: false,
                },
            };
            self.post_once(shard, message, turn);
        }
        shards
    }

    /// The other shards that may have members of a graph.
    fn other_shards_of(&self, namespace: &Namespace, graph: &Graph) -> BTreeSet<ShardId> {
        let name = (namespace.clone(), graph.clone());
        let mut shards: BTreeSet<ShardId> = match self.peers.parts.get(&name) {
            Some(part) => part.shards.iter().cloned().collect(),
            // The part is removed some time after its last job here has ended. The name of a graph over several
            // shards begins with the id of a shard.
            None => {
                let is_of = |shard: &ShardId| {
                    let rest = graph.as_bytes().strip_prefix(shard.as_str().as_bytes());
                    rest.is_some_and(|rest| rest.starts_with(b"/"))
                };
                let is_spread = is_of(&self.shard) || self.peers.known.keys().any(is_of);
                let known = self.peers.known.keys().filter(|_| is_spread);
                known.cloned().collect()
            }
        };
        shards.remove(&self.shard);
        shards
    }

    /// A job of another shard that waits for a job here was retried. If the job here was cancelled because no job
    /// needed it any more, it is retried too, with its followers.
    pub(super) fn dependent_was_retried(
        &mut self,
        namespace: &Namespace,
        dependency: &JobId,
        turn: &mut Turn<'_>,
    ) {
        let record = turn.known.find(namespace, dependency);
        let record = record.filter(|record| follows(record) == Some(FollowReason::Dependent));
        if let Some(record) = record {
            self.retry_with_followers(record, None, turn);
        }
    }

    /// Applies a message about a retry.
    pub(super) fn apply_retry_message(
        &mut self,
        from: &ShardId,
        message: Message,
        turn: &mut Turn<'_>,
    ) {
        match message {
            Message::RetryDependent {
                namespace,
                dependency,
                dependent,
                slot,
                within,
            } => {
                let by = JobRef {
                    shard: from.clone(),
                    id: dependency,
                };
                let place = (dependent, slot);
                let record = failed_dependents(&namespace, &by, place, within.as_ref(), turn.known);
                if let Some(record) = record {
                    self.retry_with_followers(record, within, turn);
                }
            }
            Message::RetryGraph { namespace, retry } => {
                self.retry_members(from, namespace, retry, turn);
            }
            Message::GoOn { namespace, retry } => {
                self.post(from, Message::RetryGraph { namespace, retry }, turn);
            }
            _ => {}
        }
    }

    fn retry_with_followers(
        &mut self,
        record: &JobRecord,
        within: Option<RetriedGraph>,
        turn: &mut Turn<'_>,
    ) {
        let mut followers = followers(&[record.key], turn.known);
        if let Some(within) = &within {
            followers.retain(|follower| follower.graph.as_ref() == Some(&within.graph));
        }
        let queue = within.as_ref().and_then(|within| within.queue.clone());
        let queue = queue.filter(|queue| self.takes_queue(&record.namespace, queue));
        let (named, followers) = match within {
            // Each member of a graph enters the queue of the graph's retry.
            Some(_) => {
                followers.push(record);
                (followers, BTreeSet::new())
            }
            None => {
                let keys = followers.iter().map(|follower| follower.key);
                (vec![record], keys.collect())
            }
        };
        let plan = RetryPlan {
            queue: queue.as_ref(),
            followers,
            reach: within.map_or(RetryScope::Followers, RetryScope::Graph),
        };
        let named = named
            .iter()
            .filter_map(|record| turn.known.by_key(record.key));
        let named: Vec<&JobRecord> = named.collect();
        self.retry_records(&named, &plan, turn);
    }

    fn takes_queue(&self, namespace: &Namespace, queue: &Queue) -> bool {
        self.check_new_queues(namespace, Some(queue)).is_ok()
    }

    /// Another shard retries a graph: retries the next members that ended here, and asks that shard to continue if
    /// there are more.
    pub(super) fn retry_members(
        &mut self,
        from: &ShardId,
        namespace: Namespace,
        mut retry: GraphRetry,
        turn: &mut Turn<'_>,
    ) {
        let before = *retry.before.get_or_insert(self.meta.next_order);
        let is_meant = |record: &&JobRecord| {
            let finished = record.finished.as_ref();
            record.namespace == namespace
                && record.graph.as_ref() == Some(&retry.within.graph)
                && finished
                    .is_some_and(|end| end.outcome != Outcome::Succeeded && end.order < before)
        };
        let named: Vec<&JobRecord> = turn.known.members().filter(is_meant).collect();
        let queue = retry.within.queue.as_ref();
        let queue = queue.filter(|queue| self.takes_queue(&namespace, queue));
        let plan = RetryPlan {
            queue,
            followers: BTreeSet::new(),
            reach: RetryScope::Graph(retry.within.clone()),
        };
        let back = self.retry_records(&named, &plan, turn);
        retry.has_changed |= !back.coming.is_empty();
        retry.has_skipped |= !back.skipped.is_empty();
        retry.after = turn.known.members_up_to();
        if retry.after.is_none() {
            // A job can only be retried after its dependencies.
            if !(retry.has_changed && retry.has_skipped) {
                return;
            }
            retry.has_changed = false;
            retry.has_skipped = false;
        }
        self.post(from, Message::GoOn { namespace, retry }, turn);
    }
}

/// The job that failed because of a job of another shard, which was retried.
fn failed_dependents<'a>(
    namespace: &Namespace,
    by: &JobRef,
    (dependent, slot): (JobKey, u32),
    within: Option<&RetriedGraph>,
    known: &FinishedIndex<'a>,
) -> Option<&'a JobRecord> {
    // A message may retry only the dependents of its sender's jobs (`rel X7`).
    let waited = known.inputs_of(dependent).iter().any(|row| {
        row.slot == slot
            && matches!(&row.state, InputState::Remote { dependency, .. } if dependency == by)
    });
    let record = known.by_key(dependent).filter(|_| waited)?;
    let is_inside = within.is_none_or(|within| record.graph.as_ref() == Some(&within.graph));
    let is_meant = record.namespace == *namespace && is_inside;
    (is_meant && follows(record) == Some(FollowReason::Dependency)).then_some(record)
}
