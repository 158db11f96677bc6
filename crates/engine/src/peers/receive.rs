//! Messages of other shards, applied once and in order (`rel X2`).

use ganger_types::command::{Receive, Reconcile};
use ganger_types::{
    Answer, Change, Dependent, FailurePolicy, Graph, InputState, JobId, JobKey, JobRef, Message,
    MessageResult, Namespace, OutboxRecord, Outcome, PeerRecord, Rejection, Reply, ShardId,
};

use super::graph_retry::retries;
use super::prefetch::prefetch_of_follow;
use crate::endings::DEPENDENCY_GROUP;
use crate::engine::Engine;
use crate::state::EndedJob;
use crate::turn::Turn;

impl Engine {
    /// Applies the new messages of a batch. If the peer or this shard was restored to an earlier state, traffic stops
    /// until an operator reconciles the two (`rel X6`).
    pub(crate) fn receive(&mut self, cmd: Receive, turn: &mut Turn<'_>) -> Answer {
        if cmd.from == self.shard {
            return Err(Rejection::OwnShard { shard: cmd.from });
        }
        // A batch of an older epoch is late, or the peer was restored. The epoch in our answer shows that to the
        // peer.
        let is_old = cmd.stream_epoch < self.peer(&cmd.from).record.received_epoch;
        if !is_old {
            self.check_stream(&cmd, turn);
        }
        let mut unknown = Vec::new();
        if !is_old && self.peer(&cmd.from).record.stopped.is_none() {
            self.peers.is_reading = true;
            for message in cmd.messages {
                if !self.take_next(&cmd.from, message, turn) {
                    break;
                }
            }
            self.peers.is_reading = false;
            self.peers.has_retried = false;
            self.peers.ended_since.clear();
            unknown = self.unknown_waits(&cmd.from, cmd.waits);
        }
        let record = &self.peer(&cmd.from).record;
        Ok(Reply::Received {
            stream_epoch: record.received_epoch,
            up_to: record.received,
            tag: record.received_tag,
            stopped: record.stopped.clone(),
            unknown,
        })
    }

    /// Applies a message if it is the next one. Returns false if earlier ones are missing.
    fn take_next(&mut self, from: &ShardId, message: OutboxRecord, turn: &mut Turn<'_>) -> bool {
        let record = &mut self.peer(from).record;
        if message.number <= record.received {
            return true;
        }
        if message.number > record.received + 1 || self.must_wait(&message.message) {
            return false;
        }
        self.peers.has_retried |= matches!(message.message, Message::RetryGraph { .. });
        let record = &mut self.peer(from).record;
        let has_restarted = record.received_tag != 0 && record.received_tag != message.tag;
        record.received = message.number;
        record.received_tag = message.tag;
        self.peers.changed.insert(from.clone());
        if has_restarted {
            self.peers.ask_soon(turn.now, from);
        }
        self.apply_message(from, message.message, turn);
        self.settle_endings(turn);
        self.peers.graph_being_cancelled = None;
        true
    }

    /// Whether a message must wait for the next batch. That is so if it is about a job that ended while earlier
    /// messages of the batch were applied, because the host found that job live when it read the rows for the batch.
    /// It is also so for a message that retries jobs, if any job ended meanwhile, and for the second message of a
    /// batch that needs members of a graph.
    fn must_wait(&self, message: &Message) -> bool {
        if self.peers.has_retried && matches!(message, Message::RetryGraph { .. }) {
            return true;
        }
        if self.peers.ended_since.is_empty() {
            return false;
        }
        if retries(message) {
            return true;
        }
        let mut must_wait = false;
        let mut want = |namespace: &Namespace, id: &JobId| {
            let name = (namespace.clone(), id.clone());
            must_wait |=
                self.peers.ended_since.contains(&name) && self.find_job(namespace, id).is_none();
        };
        prefetch_of_follow(message, &mut want);
        if let Some(name) = self.part_of(message) {
            self.prefetch_of_part(&name, &mut want);
        }
        must_wait
    }

    /// Checks whether the peer continues its stream, begins a new epoch, or contradicts what is stored here.
    fn check_stream(&mut self, cmd: &Receive, turn: &mut Turn<'_>) {
        let record = &mut self.peer(&cmd.from).record;
        if record.received_epoch == 0 && cmd.stream_epoch == PeerRecord::STREAM_EPOCH_FIRST {
            // The peer's first epoch is not a reconciliation.
            record.received_epoch = cmd.stream_epoch;
            self.peers.changed.insert(cmd.from.clone());
        }
        let record = &mut self.peer(&cmd.from).record;
        if cmd.stream_epoch > record.received_epoch {
            record.received_epoch = cmd.stream_epoch;
            record.received = 0;
            record.received_tag = 0;
            record.adopts = false;
            record.stopped = None;
            self.peers.changed.insert(cmd.from.clone());
            self.ask_again(&cmd.from, turn);
        } else if record.adopts && cmd.stream_epoch == record.received_epoch {
            record.adopts = false;
            record.received = cmd.confirmed;
            record.received_tag = 0;
            self.peers.changed.insert(cmd.from.clone());
        }
        let record = &self.peer(&cmd.from).record;
        if record.stopped.is_none()
            && let Some(reason) = contradiction(record, cmd)
        {
            self.peer(&cmd.from).record.stopped = Some(reason);
            self.peers.changed.insert(cmd.from.clone());
        }
    }

    /// Resumes traffic by hand: waiting messages are written again in a new epoch, the peer's stream is accepted at
    /// its present position, and this shard asks again about everything that it waits for. The peer does the same
    /// when it sees the new epoch.
    pub(crate) fn reconcile(&mut self, cmd: &Reconcile, turn: &mut Turn<'_>) -> Answer {
        let not_stopped = || Rejection::PeerNotStopped {
            shard: cmd.peer.clone(),
        };
        let peer = self
            .peers
            .known
            .get_mut(&cmd.peer)
            .ok_or_else(not_stopped)?;
        if peer.record.stopped.is_none() {
            return Err(not_stopped());
        }

        let waiting = std::mem::take(&mut peer.outbox);
        let record = &mut peer.record;
        // Larger than any epoch that a lost state may have had.
        record.stream_epoch = turn.now.wall.0.max(record.stream_epoch + 1);
        record.last_sent = 0;
        record.confirmed = 0;
        record.adopts = true;
        record.stopped = None;
        self.peers.changed.insert(cmd.peer.clone());
        for old in waiting {
            turn.out
                .changes
                .push(Change::RemoveOutbox(cmd.peer.clone(), old.number));
            if let Message::Ended {
                result: MessageResult::Stored(key),
                ..
            } = &old.message
            {
                self.unpin(*key);
            }
            self.post(&cmd.peer, old.message, turn);
        }
        self.ask_again(&cmd.peer, turn);
        Ok(Reply::Done)
    }

    /// Asks a peer again about every job that this shard waits for, because earlier messages may be lost.
    fn ask_again(&mut self, shard: &ShardId, turn: &mut Turn<'_>) {
        let edges = self.peers.up.iter();
        let edges: Vec<_> = edges
            .filter(|(_, edge)| edge.dependency.shard == *shard)
            .map(|((key, slot), edge)| (*key, *slot, edge.clone()))
            .collect();
        for (key, slot, edge) in edges {
            self.follow(key, slot, &edge, turn);
        }
        let undecided = self.peers.undecided.values();
        let names: Vec<_> = undecided
            .filter(|name| self.peers.parts[*name].decider == *shard)
            .cloned()
            .collect();
        for (namespace, graph) in names {
            self.post(shard, Message::Inquire { namespace, graph }, turn);
        }
    }

    fn apply_message(&mut self, from: &ShardId, message: Message, turn: &mut Turn<'_>) {
        match message {
            Message::Ended {
                dependency,
                dependent,
                slot,
                outcome,
                result,
                ..
            } => {
                let by = JobRef {
                    shard: from.clone(),
                    id: dependency,
                };
                self.start_if_undecided(dependent, turn);
                self.dependency_ended(&by, (dependent, slot), (outcome, result), turn);
            }
            Message::NoSuchJob {
                dependency,
                dependent,
                slot,
                ..
            } => {
                let by = JobRef {
                    shard: from.clone(),
                    id: dependency,
                };
                self.dependency_unknown(&by, (dependent, slot), turn);
            }
            Message::Follow {
                namespace,
                dependency,
                dependent,
                retries,
            } => {
                // A message may only be about jobs of its sender (`rel X7`).
                if dependent.shard == *from {
                    if retries {
                        self.dependent_was_retried(&namespace, &dependency, turn);
                    }
                    self.follower_came(&namespace, dependency, dependent, turn);
                }
            }
            Message::LetGo {
                namespace,
                dependency,
                dependent,
                slot,
                unneeded_in,
            } => {
                if let Some(name) =
                    self.drop_undecided(&namespace, &dependency, unneeded_in.as_ref())
                {
                    self.start_part(&name, turn);
                    self.propagate_endings(turn);
                }
                let place = (from.clone(), dependent, slot);
                self.drop_dependency_by(&namespace, &dependency, &place, unneeded_in, turn);
            }
            Message::Decided {
                namespace,
                graph,
                is_committed,
            } => {
                let name = (namespace, graph);
                let is_due = self
                    .peers
                    .parts
                    .get(&name)
                    .is_some_and(|part| !part.is_committed && part.decider == *from);
                if is_due && is_committed {
                    self.start_part(&name, turn);
                } else if is_due {
                    self.drop_part(&name, turn);
                }
            }
            Message::RetryDependent { .. } | Message::RetryGraph { .. } | Message::GoOn { .. } => {
                self.apply_retry_message(from, message, turn);
            }
            Message::Inquire { namespace, graph } => {
                self.answer_inquiry(from, namespace, graph, turn);
            }
            Message::CancelGraph {
                namespace,
                graph,
                reason,
            } => {
                let name = (namespace, graph);
                // A shard may have got the cancellation before its part. Messages of the decider come after the
                // decision, and so after every part (`rel G9`).
                let passes_on = self
                    .peers
                    .parts
                    .get(&name)
                    .is_some_and(|part| part.is_committed && part.decider == self.shard);
                if passes_on {
                    self.cancel_elsewhere(&name, &reason, turn);
                }
                self.cancel_graph(&name, &reason, turn);
            }
        }
    }

    /// A message about a job of an undecided part shows that its submission is committed, because no other shard
    /// knows the jobs before.
    fn start_if_undecided(&mut self, key: JobKey, turn: &mut Turn<'_>) {
        if let Some(name) = self.undecided_with(key).cloned() {
            self.start_part(&name, turn);
            self.propagate_endings(turn);
        }
    }

    fn dependency_ended(
        &mut self,
        by: &JobRef,
        (dependent, slot): (JobKey, u32),
        (outcome, result): (Outcome, MessageResult),
        turn: &mut Turn<'_>,
    ) {
        let Some(policy) = self.take_remote_edge(by, dependent, slot) else {
            return;
        };
        if outcome != Outcome::Succeeded && self.cancel_with_graph(dependent, turn) {
            return;
        }
        let state = match (outcome, policy) {
            (Outcome::Succeeded, _) => Self::received(by.clone(), policy, result),
            (_, FailurePolicy::Ignore) => Some(InputState::Ignored { id: by.id.clone() }),
            (_, FailurePolicy::Fail | FailurePolicy::Wait) => None,
        };
        match state {
            Some(state) => self.count_met(dependent, slot, state, turn),
            None => {
                let message = format!("dependency {}/{} {}", by.shard, by.id, outcome.state());
                self.fail_unstarted(dependent, DEPENDENCY_GROUP, message, turn);
            }
        }
    }

    /// The peer does not have the job that a job here waits for: the edge fails (`rel X2`).
    fn dependency_unknown(
        &mut self,
        by: &JobRef,
        (dependent, slot): (JobKey, u32),
        turn: &mut Turn<'_>,
    ) {
        match self.take_remote_edge(by, dependent, slot) {
            None => {}
            Some(FailurePolicy::Ignore) => {
                let state = InputState::Ignored { id: by.id.clone() };
                self.count_met(dependent, slot, state, turn);
            }
            Some(FailurePolicy::Fail | FailurePolicy::Wait) => {
                let message = format!(
                    "dependency {}/{} does not exist: never enqueued there, or its retention has passed",
                    by.shard, by.id
                );
                self.fail_unstarted(dependent, DEPENDENCY_GROUP, message, turn);
            }
        }
    }

    /// Removes and returns the edge that a message is about, if it leads to the job in the message (`rel X7`).
    fn take_remote_edge(
        &mut self,
        by: &JobRef,
        dependent: JobKey,
        slot: u32,
    ) -> Option<FailurePolicy> {
        let edge = self.peers.up.get(&(dependent, slot))?;
        if edge.dependency != *by {
            return None;
        }
        let edge = self.peers.remove_edge((dependent, slot))?;
        Some(edge.policy)
    }

    fn follower_came(
        &mut self,
        namespace: &Namespace,
        dependency: JobId,
        dependent: Dependent,
        turn: &mut Turn<'_>,
    ) {
        if let Some(key) = self.find_job(namespace, &dependency) {
            self.add_dependent(key, dependent, turn);
            return;
        }
        let ended = turn.known.find(namespace, &dependency).and_then(|record| {
            let finished = record.finished.as_ref()?;
            (!self.removed.contains(record.key)).then(|| EndedJob {
                key: record.key,
                id: record.id.clone(),
                outcome: finished.outcome,
                graph: record.graph.clone(),
                namespace: namespace.clone(),
                has_result: finished.result_bytes.is_some(),
            })
        });
        match ended {
            Some(ended) => self.notify_late_dependent(&ended, &dependent, turn),
            None => match self.undecided_job(namespace, &dependency) {
                Some(key) => self.add_dependent(key, dependent, turn),
                None => self.deny(namespace, dependency, &dependent, turn),
            },
        }
    }

    fn deny(
        &mut self,
        namespace: &Namespace,
        dependency: JobId,
        dependent: &Dependent,
        turn: &mut Turn<'_>,
    ) {
        let message = Message::NoSuchJob {
            namespace: namespace.clone(),
            dependency,
            dependent: dependent.key,
            slot: dependent.slot,
        };
        self.post(&dependent.shard, message, turn);
    }

    /// Sends the shards that wait for jobs of an aborted part that these do not exist.
    pub(crate) fn reject_follows(
        &mut self,
        namespace: &Namespace,
        key: JobKey,
        dependency: &JobId,
        turn: &mut Turn<'_>,
    ) {
        let waiting = self.peers.down.get(&key);
        let places: Vec<_> = waiting
            .into_iter()
            .flat_map(|all| all.keys().cloned())
            .collect();
        for place in places {
            if let Some(dependent) = self.remove_dependent(key, &place, turn) {
                self.deny(namespace, dependency.clone(), &dependent, turn);
            }
        }
    }

    fn drop_dependency_by(
        &mut self,
        namespace: &Namespace,
        dependency: &JobId,
        place: &(ShardId, JobKey, u32),
        unneeded_in: Option<Graph>,
        turn: &mut Turn<'_>,
    ) {
        let key = self
            .find_job(namespace, dependency)
            .or_else(|| self.undecided_job(namespace, dependency))
            .or_else(|| self.peers.dependencies_of(place).next());
        let Some(key) = key else { return };
        // The dependent failed with the job and stays listed, because it may have been retried and then fails again.
        if self.failed_with(key, place) {
            return;
        }
        if self.remove_dependent(key, place, turn).is_none() {
            return;
        }
        let Some(graph) = unneeded_in else { return };
        let is_unneeded =
            self.is_live(key) && !self.has_users(key) && self.job(key).graph() == Some(&graph);
        if is_unneeded {
            self.cancel_job(
                key,
                &format!("a job of shard {} needs it no more", place.0),
                turn,
            );
        }
    }

    fn answer_inquiry(
        &mut self,
        from: &ShardId,
        namespace: Namespace,
        graph: Graph,
        turn: &mut Turn<'_>,
    ) {
        let is_committed = match self.peers.parts.get(&(namespace.clone(), graph.clone())) {
            // The other dependents get the same message later.
            Some(part) if !part.is_committed => return,
            Some(part) => part.decider == self.shard,
            None => false,
        };
        let message = Message::Decided {
            namespace,
            graph,
            is_committed,
        };
        self.post_once(from, message, turn);
    }
}

/// The contradiction between a batch and what is stored here, which shows that one of the two shards was restored;
/// `None` if there is none.
fn contradiction(known: &PeerRecord, cmd: &Receive) -> Option<String> {
    let (from, received) = (&cmd.from, known.received);
    // A batch that names fewer messages than were received may just be late. The sender sees in our answer whether it
    // was restored.
    if cmd.confirmed > received {
        let confirmed = cmd.confirmed;
        return Some(format!(
            "shard {from} knows {confirmed} messages as received here and we have {received}: this shard went back in time"
        ));
    }
    let is_twice = |message: &OutboxRecord| {
        message.number == received && known.received_tag != 0 && message.tag != known.received_tag
    };
    cmd.messages.iter().any(is_twice).then(|| {
        format!(
            "shard {from} has given number {received} to another message than the one we have: it went back in time"
        )
    })
}
