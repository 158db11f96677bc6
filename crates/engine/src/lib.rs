//! The state machine: commands and time in; replies, events, changes out.
//!
//! Pure and deterministic: no clock, no randomness but a seed, no I/O, no threads.

#![forbid(unsafe_code)]

use ganger_types::command::RetireeQuery;
use ganger_types::{
    Answer, Change, Command, Due, Epoch, Event, JobId, JobKey, JobRecord, Meta, Namespace, Now, Queue,
};

/// All that a turn caused: `changes` are committed first, then `events` go out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Durable writes, in order.
    pub changes: Vec<Change>,
    /// Announcements, in order.
    pub events: Vec<Event>,
}

/// What the engine is given at start.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The epoch of this incarnation.
    pub epoch: Epoch,
    /// Unguessable bits, for lease tokens, jitter and the id tag.
    pub seed: [u8; 32],
    /// As of the last commit.
    pub meta: Meta,
    /// The moment of the start, on the continued time line.
    pub now: Now,
}

/// A finished job that a command needs to know, or `None` if there is no such job.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Looked up for [`Engine::wants`], in any order.
    pub jobs: Vec<JobRecord>,
}

/// The state machine of one shard.
pub struct Engine {
    _private: (),
}

/// Takes rows back after a start; `finish` gives the engine.
pub struct Loader {
    _private: (),
}

impl Loader {
    /// An empty engine, before any row.
    pub fn new(_start: Start) -> Self {
        unimplemented!()
    }
    // One method per kind of row: `namespace`, `queue`, `schedule`, `job`, `input`, `lease`, `unique`, `claim`,
    // `tag_count`, `group_count`, `tracked`, `statistics`.

    /// The engine. Leases get their full length again; what fell due is left to the first `advance`.
    pub fn finish(self) -> Engine {
        unimplemented!()
    }
}

impl Engine {
    /// Ids that `command` names and that are not live here: the host looks them up among the finished.
    pub fn wants(&self, _command: &Command) -> Vec<(Namespace, JobId)> {
        unimplemented!()
    }

    /// Applies one command at `now` and appends what it caused to `out`. On a rejection the engine
    /// and `out` are exactly as they were.
    ///
    /// # Errors
    /// If the command is refused.
    pub fn apply(&mut self, _now: Now, _command: Command, _known: &Known, _out: &mut Effects) -> Answer {
        unimplemented!()
    }

    /// Fires what is due, each timer at its own deadline, at most `limit` of them; true if more are due.
    pub fn advance(&mut self, _now: Now, _limit: usize, _out: &mut Effects) -> bool {
        unimplemented!()
    }

    /// Writes what changed during the turn but is stored once a turn (queues, counts, statistics).
    /// To be called once, after the last command of a turn and before its commit.
    pub fn end_turn(&mut self, _now: Now, _out: &mut Effects) {
        unimplemented!()
    }

    /// The counters to commit with the turn.
    pub fn meta(&self) -> Meta {
        unimplemented!()
    }

    /// The earliest moments at which `advance` has something to do: by elapsed time, and by wall time.
    pub fn next_due(&self) -> Vec<Due> {
        unimplemented!()
    }

    /// Queues in which a job may have become leasable since the last call, for waking waiting workers.
    pub fn take_woken(&mut self) -> Vec<(Namespace, Queue)> {
        unimplemented!()
    }

    /// Whether a lease of this queue would get a job right now.
    pub fn has_leasable(&self, _namespace: &Namespace, _queue: &Queue) -> bool {
        unimplemented!()
    }

    /// Which finished jobs the host should look for in the store, to send back as `Retire`.
    pub fn retention_due(&self, _now: Now) -> Vec<RetireeQuery> {
        unimplemented!()
    }

    /// Recomputes every index and compares. Empty is good.
    pub fn check_invariants(&self) -> Vec<String> {
        unimplemented!()
    }

    /// Number of live jobs.
    pub fn live_jobs(&self) -> usize {
        unimplemented!()
    }

    /// Whether this job is live.
    pub fn is_live(&self, _key: JobKey) -> bool {
        unimplemented!()
    }
}
