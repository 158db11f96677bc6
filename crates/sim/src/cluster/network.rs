//! The network between shards: batches are lost, duplicated, delayed, reordered, or cut off in one direction or both.

use ganger_types::command::{Confirm, Receive};
use ganger_types::{Change, CheckedWaits, Command, JobRef, Message, Reply};

use super::world::{Event, World};
use crate::plan::Fault;
use crate::world::{StepOutcome, broken};

/// Pause between two deliveries, and the longest pause, in world microseconds.
const PAUSE: u64 = 60_000;
const PAUSE_MAX: u64 = 8_000_000;
/// Interval at which shards check whether they have something to ask.
const LOOK_EVERY: u64 = 15_000_000;
/// Approximate number of such checks before the faults stop.
const LOOKS_MAX: u64 = 100;

impl World {
    /// Lets each shard check whether it is time to ask others about jobs that wait for theirs.
    pub(crate) fn look(&mut self) {
        // A run of several days would otherwise consist of these checks.
        let every = if self.is_healed {
            LOOK_EVERY
        } else {
            LOOK_EVERY.max(self.load_lasts / LOOKS_MAX)
        };
        self.at(every, Event::Look);
        for from in 0..self.nodes.len() {
            for to in 0..self.nodes.len() {
                if self.is_to_ask(from, to) && !self.carrying.contains_key(&(from, to)) {
                    self.carrying.insert((from, to), 0);
                    self.at(0, Event::Carry(from, to));
                }
            }
        }
    }

    fn is_to_ask(&mut self, from: usize, to: usize) -> bool {
        self.nodes[from].is_to_ask(self.time, &self.shards[to])
    }

    /// Sends the waiting messages of a shard to another, and repeats until none is left.
    pub(crate) fn carry(&mut self, from: usize, to: usize) -> StepOutcome {
        let shard = self.shards[to].clone();
        let waits = self.nodes[from].store.waits_for(&shard);
        if !self.nodes[from].is_up() || !(waits || self.is_to_ask(from, to)) {
            self.carrying.remove(&(from, to));
            return Ok(());
        }
        let tries = self.carrying.entry((from, to)).or_default();
        *tries += 1;
        let pause = (PAUSE << (*tries).min(7)).min(PAUSE_MAX);
        let after = self.net.within(pause / 2, pause);
        self.at(after, Event::Carry(from, to));
        self.send(from, to)
    }

    pub(crate) fn send(&mut self, from: usize, to: usize) -> StepOutcome {
        let limit = *self.net.pick(&[1, 2, 100]);
        let shard = self.shards[to].clone();
        let record = self.nodes[from].store.peers.get(&shard);
        if record.is_some_and(|record| record.stopped.is_some()) {
            return Ok(());
        }
        let Some(batch) = self.nodes[from].batch(self.time, &shard, limit) else {
            return Ok(());
        };
        let last = batch.messages.last().map(|record| record.number);
        if let (true, Some(up_to)) = (self.nodes[from].planted.is(301), last) {
            let (peer, line) = (shard, batch.stream_epoch);
            let looked = None;
            let confirm = Confirm {
                peer,
                stream_epoch: line,
                up_to,
                tag: 0,
                checked_waits: looked,
            };
            self.turn(from, Some(Command::Confirm(confirm)))?;
        }
        if self.cut.contains(&(from, to)) {
            self.reach("batch-stopped-by-a-partition");
            return Ok(());
        }
        if self.strikes(Fault::RequestsLost) {
            self.reach("batch-lost");
            return Ok(());
        }
        if self.strikes(Fault::Repeats) {
            self.reach("batch-doubled");
            self.post(from, to, batch.clone());
        }
        self.post(from, to, batch);
        Ok(())
    }

    fn post(&mut self, from: usize, to: usize, batch: Receive) {
        let after = self.latency();
        let starts = self.nodes[from].starts;
        let batch = Box::new(batch);
        self.at(after, Event::Batch { to, batch, starts });
    }

    pub(crate) fn arrive(&mut self, to: usize, mut batch: Receive, starts: u64) -> StepOutcome {
        if !self.nodes[to].is_up() {
            return Ok(());
        }
        let from = self.place(&batch.from);
        self.look_at_batch(from, to, &batch);
        let most = batch
            .messages
            .last()
            .map_or(u64::MAX, |record| record.number);
        self.nodes[to].bend(&mut batch);
        let last_wait = batch.waits.last().map(|wait| (wait.dependent, wait.slot));
        let answer = self.turn(to, Some(Command::Receive(Box::new(batch))))?;
        let Some(Ok(Reply::Received {
            stream_epoch: line,
            up_to,
            tag,
            stopped,
            unknown,
        })) = answer
        else {
            return Ok(());
        };
        if stopped.is_some() {
            if self.oracle.has_restored_store {
                self.reach("peer-in-the-past-recognised");
                return Ok(());
            }
            let what = format!(
                "shard {} hears shard {} no more though nobody went back in time: {stopped:?}",
                self.shards[to], self.shards[from]
            );
            return Err(broken("X6", what));
        }
        let planted = self.nodes[to].planted;
        let (up_to, tag) = if planted.is(303) || planted.is(308) {
            (up_to.min(most), 0)
        } else {
            (up_to, tag)
        };
        let had = self.nodes[to].starts;
        self.had.insert((from, to), (had, up_to));
        if self.cut.contains(&(to, from)) {
            self.reach("batch-cut-by-a-partition-with-effect");
            return Ok(());
        }
        if self.strikes(Fault::AnswersLost) {
            self.reach("batch-with-effect-not-confirmed");
            return Ok(());
        }
        let after = self.latency();
        let peer = self.shards[to].clone();
        let looked = last_wait.map(|up_to| CheckedWaits { up_to, unknown });
        if looked.is_some() {
            self.reach("asked-about-waits");
        }
        let confirm = Box::new(Confirm {
            peer,
            stream_epoch: line,
            up_to,
            tag,
            checked_waits: looked,
        });
        self.at(
            after,
            Event::Confirm {
                from,
                confirm,
                starts,
            },
        );
        Ok(())
    }

    /// Records the goals that a batch reaches.
    fn look_at_batch(&mut self, from: usize, to: usize, batch: &Receive) {
        let store = &self.nodes[to].store;
        let received = store.peers.get(&batch.from).map_or(0, |peer| peer.received);
        let starts = self.nodes[to].starts;
        let is_repeat = batch
            .messages
            .iter()
            .any(|record| record.number <= received);
        let before = self.had.get(&(from, to)).copied();
        let restarted = before.is_some_and(|(at, up_to)| at < starts && up_to > 0);
        let is_gap = batch
            .messages
            .first()
            .is_some_and(|record| record.number > received + 1);
        let undecided = |key: u64| {
            store.part_jobs.values().any(|part| {
                let first = part.record.first.0;
                (first..first + u64::from(part.record.count)).contains(&key)
            })
        };
        let is_evidence = batch.messages.first().is_some_and(|record| {
            matches!(&record.message, Message::Ended { dependent, .. } if record.number == received + 1 && undecided(dependent.0))
        });
        let is_end = batch.messages.iter().any(|record| {
            matches!(&record.message, Message::CancelGraph { namespace, graph, .. }
                if record.number > received && store.part_jobs.contains_key(&(namespace.clone(), graph.clone())))
        });
        let is_old = store
            .peers
            .get(&batch.from)
            .is_some_and(|peer| batch.stream_epoch < peer.received_epoch);
        for (goal, is_reached) in [
            ("batch-from-before-a-reconciliation", is_old),
            (
                "duplicate-after-the-receiver-restarted",
                is_repeat && restarted,
            ),
            ("batch-out-of-order", is_gap || batch.last_sent < received),
            ("evidence-before-the-decision", is_evidence),
            ("graph-cancelled-where-its-part-is-undecided", is_end),
        ] {
            if is_reached {
                self.reach(goal);
            }
        }
    }

    pub(crate) fn confirm(&mut self, from: usize, confirm: Confirm, starts: u64) -> StepOutcome {
        // The answer to a dead process is dropped.
        if self.nodes[from].starts != starts || !self.nodes[from].is_up() {
            return Ok(());
        }
        let to = self.place(&confirm.peer);
        if let Some(tries) = self.carrying.get_mut(&(from, to)) {
            *tries = 0;
        }
        let store = &self.nodes[from].store;
        let record = store.peers.get(&confirm.peer);
        if record.is_some_and(|record| confirm.stream_epoch < record.stream_epoch) {
            self.reach("answer-from-before-a-reconciliation");
        }
        self.turn(from, Some(Command::Confirm(confirm)))?;
        Ok(())
    }

    /// Checks messages that repeat a wait after a check of waits. They may occur only after a store was restored,
    /// because no shard loses a wait otherwise (`rel X1`, `X2`).
    pub(crate) fn look_at_repairs(&mut self, changes: &[Change]) -> StepOutcome {
        for change in changes {
            let Change::PutOutbox(record) = change else {
                continue;
            };
            let Message::Follow {
                dependency,
                dependent,
                ..
            } = &record.message
            else {
                continue;
            };
            self.reach("unknown-wait-told-again");
            let job = JobRef {
                shard: dependent.shard.clone(),
                id: dependent.id.clone(),
            };
            if self.oracle.has_restored_store {
                continue;
            }
            let graph = &self.oracle.graphs[self.oracle.members[&job].graph];
            // Members of a cancelled graph send each other no messages about their end.
            if !graph.is_irregular && !graph.is_cancelled {
                let what = format!(
                    "shard {} does not know that {job:?} waits for its job {dependency}",
                    record.to
                );
                return Err(broken("T1", what));
            }
        }
        Ok(())
    }
}
