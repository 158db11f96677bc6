//! What other shards say, applied once and in order (`rel X2`).

use std::collections::BTreeSet;

use ganger_types::command::{Receive, Reconcile};
use ganger_types::{
    Answer, Carried, Change, Command, Dependent, FailurePolicy, Graph, InputState, JobId, JobKey,
    JobRef, Message, Namespace, OutboxRecord, Outcome, PeerRecord, Rejection, Reply, ShardId,
};

use super::graph_retry::retries;
use crate::endings::DEPENDENCY_GROUP;
use crate::engine::Engine;
use crate::state::EndedJob;
use crate::turn::Turn;

impl Engine {
    /// Applies what is new among the messages. A peer that went back in time, or that knows us as later than we
    /// are, is not listened to any more until a person reconciles the two (`rel X6`).
    pub(crate) fn receive(&mut self, cmd: Receive, turn: &mut Turn<'_>) -> Answer {
        if cmd.from == self.shard {
            return Err(Rejection::OwnShard { shard: cmd.from });
        }
        // A batch of an older epoch comes late, or from a peer that went back in time: that one sees by the
        // line in our answer that it did.
        let is_old = cmd.stream_epoch < self.peer(&cmd.from).record.received_epoch;
        if !is_old {
            self.find_the_line(&cmd, turn);
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

    /// Applies a message if it is the next one; false if it is not its turn yet.
    fn take_next(&mut self, from: &ShardId, message: OutboxRecord, turn: &mut Turn<'_>) -> bool {
        let record = &mut self.peer(from).record;
        if message.number <= record.received {
            return true;
        }
        if message.number > record.received + 1 || self.is_beyond(&message.message) {
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
        self.spread_endings(turn);
        self.peers.falling = None;
        true
    }

    /// Whether a message is about a job that ended while earlier ones of its batch were applied: the host looked up
    /// before what has become of it, and found it live. The message is applied when it comes again. So is one that
    /// retries jobs, for it may reach any of those, and the second one of a batch that reads members of a graph.
    fn is_beyond(&self, message: &Message) -> bool {
        if self.peers.has_retried && matches!(message, Message::RetryGraph { .. }) {
            return true;
        }
        if self.peers.ended_since.is_empty() {
            return false;
        }
        if retries(message) {
            return true;
        }
        let mut is_beyond = false;
        let mut want = |namespace: &Namespace, id: &JobId| {
            let name = (namespace.clone(), id.clone());
            is_beyond |=
                self.peers.ended_since.contains(&name) && self.find_job(namespace, id).is_none();
        };
        prefetch_of_follow(message, &mut want);
        if let Some(name) = self.part_of(message) {
            self.prefetch_of_part(&name, &mut want);
        }
        is_beyond
    }

    /// Sees whether the peer goes on where we left off, starts a new epoch, or contradicts what we know.
    fn find_the_line(&mut self, cmd: &Receive, turn: &mut Turn<'_>) {
        let record = &mut self.peer(&cmd.from).record;
        if record.received_epoch == 0 && cmd.stream_epoch == PeerRecord::STREAM_EPOCH_FIRST {
            // Its very first line tells of no reconciliation.
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

    /// Takes traffic up again, by hand: what waits here is written again in a new epoch, the peer's own stream is
    /// taken from where it stands, and all that this shard waits for is asked for again. The peer does the
    /// same when it sees the new epoch.
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
        // Larger than any line that a lost time may have had.
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
                result: Carried::Stored(key),
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

    /// Asks a peer for everything that this shard waits for from it: what was said before may be lost.
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
                // A message tells of its sender's jobs only (`rel X7`).
                if dependent.shard == *from {
                    if retries {
                        self.dependent_is_back(&namespace, &dependency, turn);
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
                    self.spread_endings(turn);
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
                // A shard may have heard of it before it had its part. Whatever the decider says comes after
                // the decision, and so after every part (`rel G9`).
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

    /// A message about a job of a part that is not decided here tells that it was decided for: nobody knows
    /// of its jobs before.
    fn start_if_undecided(&mut self, key: JobKey, turn: &mut Turn<'_>) {
        if let Some(name) = self.undecided_with(key).cloned() {
            self.start_part(&name, turn);
            self.spread_endings(turn);
        }
    }

    fn dependency_ended(
        &mut self,
        by: &JobRef,
        (dependent, slot): (JobKey, u32),
        (outcome, result): (Outcome, Carried),
        turn: &mut Turn<'_>,
    ) {
        let Some(policy) = self.take_remote_edge(by, dependent, slot) else {
            return;
        };
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

    /// The peer does not know the job that one of ours waits for: the edge has failed (`rel X2`).
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

    /// Takes the edge that a message is about, if it waits for that very job (`rel X7`).
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

    /// The job that was promised will not come.
    pub(crate) fn deny_followers(
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
        // It failed with the job and stays listed: it may be back by now, and fail again by what it was told before.
        if self.is_fallen(key, place) {
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
            // It will be told with the others.
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

/// Why what the peer says of the past cannot be true if both kept theirs.
fn contradiction(known: &PeerRecord, cmd: &Receive) -> Option<String> {
    let (from, received) = (&cmd.from, known.received);
    // A batch that knows of fewer messages than we have may only be late: the sender sees by our answer
    // whether it went back in time.
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

/// Parts that a command will start, for the host to read.
impl Engine {
    /// Undecided parts that `command` turns into jobs: the host reads them into [`crate::PrefetchedRows::parts`].
    pub fn prefetch_parts(&self, command: &Command) -> Vec<(Namespace, Graph)> {
        let mut wants = BTreeSet::new();
        match command {
            Command::Decide(cmd) if cmd.is_committed => {
                wants.extend(self.undecided_part(&cmd.namespace, &cmd.graph));
            }
            Command::Receive(cmd) => {
                let messages = cmd.messages.iter();
                wants.extend(messages.filter_map(|record| self.part_of(&record.message)));
            }
            _ => {}
        }
        wants.into_iter().collect()
    }

    fn undecided_part(&self, namespace: &Namespace, graph: &Graph) -> Option<(Namespace, Graph)> {
        let name = (namespace.clone(), graph.clone());
        let part = self.peers.parts.get(&name)?;
        (!part.is_committed).then_some(name)
    }

    /// The undecided part that is known to be decided for, because a member elsewhere lets one of its jobs go.
    fn drop_undecided(
        &self,
        namespace: &Namespace,
        dependency: &JobId,
        unneeded_in: Option<&Graph>,
    ) -> Option<(Namespace, Graph)> {
        let key = self.undecided_job(namespace, dependency)?;
        let name = self.undecided_with(key)?;
        // An id may have been that of a job of an earlier graph.
        (unneeded_in == Some(&name.1)).then(|| name.clone())
    }

    /// The undecided part that a message turns into jobs.
    fn part_of(&self, message: &Message) -> Option<(Namespace, Graph)> {
        match message {
            Message::Ended { dependent, .. } => self.undecided_with(*dependent).cloned(),
            Message::LetGo {
                namespace,
                dependency,
                unneeded_in,
                ..
            } => self.drop_undecided(namespace, dependency, unneeded_in.as_ref()),
            Message::Decided {
                namespace,
                graph,
                is_committed: true,
            } => self.undecided_part(namespace, graph),
            _ => None,
        }
    }

    /// Ended jobs that a decision or a message is about.
    pub(crate) fn prefetch_of_peers(
        &self,
        command: &Command,
        want: &mut impl FnMut(&Namespace, &JobId),
    ) {
        if let Command::Receive(cmd) = command {
            for record in &cmd.messages {
                prefetch_of_follow(&record.message, want);
            }
        }
        for name in self.prefetch_parts(command) {
            self.prefetch_of_part(&name, want);
        }
    }

    fn prefetch_of_part(
        &self,
        name: &(Namespace, Graph),
        want: &mut impl FnMut(&Namespace, &JobId),
    ) {
        for (_, id) in &self.peers.parts[name].outside {
            want(&name.0, id);
        }
    }
}

/// The job that a peer asks about.
fn prefetch_of_follow(message: &Message, want: &mut impl FnMut(&Namespace, &JobId)) {
    if let Message::Follow {
        namespace,
        dependency,
        ..
    } = message
    {
        want(namespace, dependency);
    }
}
