//! A shard: an engine, its rows and its clocks. Each turn is one atomic commit.

use ganger_engine::{Effects, Engine, Start};
use ganger_types::command::Receive;
use ganger_types::query::Query;
use ganger_types::{
    Answer, Change, Command, Due, Epoch, Message, MessageResult, Now, PeerRecord, Reply, ShardId,
};

use super::planted::PlantedBug;
use super::prefetch::prefetch;
use super::store::Store;
use crate::clock::Clocks;
use crate::oracle::Violation;
use crate::rng::Rng;
use crate::world::broken;

/// Timers fired in one call; few, so that there are further calls.
const TIMERS_MAX: usize = 7;

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOutcome {
    /// The turn is committed and answered.
    Good,
    /// The process dies before the commit.
    DiesBefore,
    /// The process dies between the commit and the answer.
    DiesAfter,
}

/// The result of a durable turn.
pub(crate) struct TurnResult {
    pub(crate) answer: Option<Answer>,
    pub(crate) changes: Vec<Change>,
}

/// A shard with its process, if one runs.
pub(crate) struct Node {
    pub(crate) id: ShardId,
    pub(crate) store: Store,
    pub(crate) clocks: Clocks,
    /// Number of starts; answers to an earlier process are dropped.
    pub(crate) starts: u64,
    pub(crate) planted: PlantedBug,
    engine: Option<Engine>,
    rng: Rng,
    late: Vec<Change>,
    batches: u64,
}

impl Node {
    pub(crate) fn new(id: ShardId, clocks: Clocks, rng: Rng, planted: PlantedBug) -> Self {
        Self {
            id,
            store: Store::default(),
            clocks,
            starts: 0,
            planted,
            engine: None,
            rng,
            late: Vec::new(),
            batches: 0,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    /// Starts a process from the rows.
    pub(crate) fn start(&mut self, time: u64) -> Result<(), Violation> {
        self.store.epoch += 1;
        self.starts += 1;
        self.late.clear();
        self.clocks.restart(time, self.store.rows.meta);
        let start = self.start_with(self.clocks.now(time));
        let engine = self.store.load(start, self.planted);
        check(&engine, &self.id)?;
        self.engine = Some(engine);
        Ok(())
    }

    fn start_with(&mut self, now: Now) -> Start {
        Start {
            shard: self.id.clone(),
            epoch: Epoch(self.store.epoch),
            seed: self.rng.bytes(),
            meta: self.store.rows.meta,
            now,
        }
    }

    /// Kills the process between two turns, and checks that the rows rebuild its state.
    pub(crate) fn kill(&mut self, time: u64) -> Result<(), Violation> {
        let Some(engine) = self.engine.take() else {
            return Ok(());
        };
        if self.planted.bends_restarts() {
            return Ok(());
        }
        let start = self.start_with(self.clocks.now(time));
        let again = self.store.load(start, self.planted);
        let (before, after) = (engine.dump(), again.dump());
        let only_in = |one: &[String], other: &[String]| -> Vec<String> {
            // The days whose statistics are loaded depend on the clock.
            let missing = one.iter().filter(|line| {
                other.binary_search(line).is_err() && !line.starts_with("statistics")
            });
            missing.take(3).cloned().collect()
        };
        let (lost, new) = (only_in(&before, &after), only_in(&after, &before));
        if lost.is_empty() && new.is_empty() {
            return Ok(());
        }
        let what = format!(
            "the rows of shard {} do not rebuild it: lost {lost:?}, new {new:?}",
            self.id
        );
        Err(broken("A3", what))
    }

    /// Kills the process during a turn; its state is lost.
    pub(crate) fn drop_engine(&mut self) {
        self.engine = None;
    }

    /// Replaces the store by an older copy.
    pub(crate) fn restore(&mut self, copy: Store) {
        self.engine = None;
        self.store = copy;
    }

    /// Fires due timers, applies a command, and commits. `None` if the process died before the commit.
    pub(crate) fn turn(
        &mut self,
        time: u64,
        command: Option<Command>,
        outcome: TurnOutcome,
    ) -> Result<Option<TurnResult>, Violation> {
        let now = self.clocks.now(time);
        let Some(engine) = self.engine.as_mut() else {
            return Ok(None);
        };
        let mut effects = Effects::default();
        while engine.advance(now, TIMERS_MAX, &mut effects) {}
        let is_batch = matches!(command, Some(Command::Receive(_)));
        let is_by_time = command.is_none();
        let answer = command.map(|mut command| {
            self.planted.command(&mut command, &self.id);
            let mut known = prefetch(engine, &command, &self.store.rows, &effects);
            if self.planted.is(320) {
                known.jobs.retain(|job| !job.id_is_given);
            }
            for name in engine.prefetch_parts(&command) {
                known.parts.extend(self.store.part_jobs.get(&name).cloned());
            }
            engine.apply(now, command, &known, &mut effects)
        });
        engine.end_turn(now, &mut effects);
        let meta = engine.meta();
        if outcome == TurnOutcome::DiesBefore {
            self.drop_engine();
            if !(self.planted.is(318) && is_batch) {
                return Ok(None);
            }
            return Ok(Some(TurnResult {
                answer,
                changes: Vec::new(),
            }));
        }
        let mut changes = effects.changes;
        self.planted.changes(&mut changes, &mut self.late, is_batch);
        self.store
            .apply(meta, &changes)
            .map_err(|why| broken("A1", format!("shard {}: {why}", self.id)))?;
        // A timer that only repeats a question changes nothing; there may be very many of them if no shard answers.
        let is_same = is_by_time && changes.is_empty();
        if let Some(engine) = self.engine.as_ref().filter(|_| !is_same) {
            check(engine, &self.id)?;
        }
        Ok(Some(TurnResult { answer, changes }))
    }

    /// World microseconds until the next timer is due.
    pub(crate) fn due_in(&self, time: u64) -> Option<u64> {
        let now = self.clocks.now(time);
        let dues = self.engine.as_ref()?.next_due();
        let waits = dues.into_iter().map(|due| match due {
            Due::Elapsed(at) => at.since(now.elapsed),
            Due::Wall(at) => at.since(now.wall),
        });
        waits.min().map(|wait| self.clocks.world_micros(wait))
    }

    /// Asks the engine; `None` while none is loaded.
    pub(crate) fn query(&mut self, time: u64, query: Query) -> Option<Reply> {
        let now = self.clocks.now(time);
        let engine = self.engine.as_mut()?;
        let command = Command::Query(Box::new(query));
        let known = ganger_engine::PrefetchedRows::default();
        engine
            .apply(now, command, &known, &mut Effects::default())
            .ok()
    }

    /// The waiting messages for another shard, with their results.
    pub(crate) fn batch(&mut self, time: u64, to: &ShardId, limit: usize) -> Option<Receive> {
        let Reply::Outbox(mut messages) = self.query(time, Query::Outbox(to.clone(), 0, limit))?
        else {
            return None;
        };
        for record in &mut messages {
            if let Message::Ended { result, .. } = &mut record.message
                && let MessageResult::Stored(key) = result
            {
                let row = self.store.rows.finished.get(key);
                let bytes = row.and_then(|row| row.result.clone());
                *result = bytes.map_or(MessageResult::Stored(*key), MessageResult::Bytes);
            }
        }
        let record = self.peer(time, to)?;
        let waits = match self.query(time, Query::Waits(to.clone()))? {
            Reply::Waits(waits) => waits,
            _ => Vec::new(),
        };
        Some(Receive {
            from: self.id.clone(),
            stream_epoch: record.stream_epoch,
            last_sent: record.last_sent,
            confirmed: record.confirmed,
            messages,
            waits,
        })
    }

    /// Whether it is time to ask another shard about jobs that wait for its own.
    pub(crate) fn is_to_ask(&mut self, time: u64, shard: &ShardId) -> bool {
        let Some(Reply::Peers(views)) = self.query(time, Query::Peers) else {
            return false;
        };
        let mut views = views.into_iter().filter(|view| view.is_to_ask);
        views.any(|view| view.record.shard == *shard)
    }

    /// The record of another shard.
    pub(crate) fn peer(&mut self, time: u64, shard: &ShardId) -> Option<PeerRecord> {
        let Reply::Peers(views) = self.query(time, Query::Peers)? else {
            return None;
        };
        let view = views.into_iter().find(|view| view.record.shard == *shard);
        Some(view.map_or_else(|| PeerRecord::new(shard.clone()), |view| view.record))
    }

    /// Changes a batch as the planted bug requires.
    pub(crate) fn bend(&mut self, batch: &mut Receive) {
        self.batches += 1;
        let received = self.store.peers.get(&batch.from);
        let received = received.map_or(0, |record| record.received);
        self.planted.batch(batch, received, self.batches);
    }
}

fn check(engine: &Engine, shard: &ShardId) -> Result<(), Violation> {
    let wrong = engine.check_invariants();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(broken("A1", format!("shard {shard}: {}", wrong.join("; "))))
}
