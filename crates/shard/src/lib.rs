//! Owns one engine and one store: turns, commits, waiting workers, subscriptions.
//!
//! It keeps one promise: nobody hears of anything before it is durable.

#![forbid(unsafe_code)]

use std::time::Duration;

use ganger_store::{LogChunk, Page, StoredJob};
use ganger_types::command::Lease;
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Command, Day, Event, Grant, InputRow, JobId, JobKey, Namespace, Position, Queue,
    Rejection, Reply, ShardId, StatisticsRecord, Timestamp,
};

/// Why a call got no reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The engine refused it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Too much waits already (`rel B2`).
    #[error("shard {shard} is overloaded: {waiting} commands wait, the limit is {limit}; try again in {retry_after:?}")]
    Overloaded {
        /// Which.
        shard: ShardId,
        /// Commands in the inbox.
        waiting: usize,
        /// How many may.
        limit: usize,
        /// When to come back.
        retry_after: Duration,
    },
    /// The store's device is nearly full: new work is refused, the rest goes on (`rel D9`).
    #[error("shard {shard} takes no new work: {free} bytes are free on the store's device, {needed} are kept in reserve; free some space and try again")]
    Full {
        /// Which.
        shard: ShardId,
        /// Free bytes.
        free: u64,
        /// The reserve.
        needed: u64,
    },
    /// The shard is stopping, recovering, or has stopped writing after a failed flush.
    #[error("shard {shard} is not available: {reason}; try again")]
    Unavailable {
        /// Which.
        shard: ShardId,
        /// Why.
        reason: String,
    },
    /// A stored record is damaged (`rel D8`).
    #[error("shard {shard}: {what}")]
    Damaged {
        /// Which.
        shard: ShardId,
        /// What and where.
        what: String,
    },
    /// Events from this position are no longer kept (`rel P5`).
    #[error("events from position {asked} are not kept any more, the oldest is {oldest}: read the present state, then follow from there")]
    PositionTooOld {
        /// As asked.
        asked: u64,
        /// The oldest there is.
        oldest: u64,
    },
}

/// A job handed out, with what its program needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The grant.
    pub grant: Grant,
    /// The payload.
    pub payload: Bytes,
    /// Positional inputs in order: values, results of upstreams, `null` for ignored ones.
    pub inputs: Vec<Bytes>,
}

/// Whether and why the shard can or cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Everything works.
    Ready,
    /// Loading: jobs read so far.
    Starting {
        /// So far.
        jobs: u64,
    },
    /// No new work for lack of space; the rest goes on.
    Full,
    /// It does not write any more, and why.
    Stopped {
        /// Why.
        reason: String,
    },
}

/// A cheap handle to a running shard. All methods may be called from any task.
#[derive(Clone)]
pub struct Handle {
    _private: (),
}

impl Handle {
    /// Which shard this is.
    pub fn id(&self) -> &ShardId {
        unimplemented!()
    }

    /// Applies a command; the reply comes when it is durable.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(&self, _command: Command) -> Result<Reply, CallError> {
        unimplemented!()
    }

    /// Likewise, at the caller's time: for namespaces that run on their callers' clocks.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call_at(&self, _command: Command, _now: Timestamp) -> Result<Reply, CallError> {
        unimplemented!()
    }

    /// Takes jobs, waiting up to `wait_for` until there is at least one. Dropping the future ends the
    /// wait; a grant that nobody picked up any more is released without counting.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn lease(&self, _lease: Lease, _wait_for: Duration) -> Result<Vec<Delivery>, CallError> {
        unimplemented!()
    }

    /// The job as stored, or `None`.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn job(&self, _namespace: &Namespace, _id: &JobId) -> Result<Option<StoredJob>, CallError> {
        unimplemented!()
    }

    /// The job once it has ended, or as it is after `wait_for`; `None` if there is no such job.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn wait(&self, _namespace: &Namespace, _id: &JobId, _wait_for: Duration) -> Result<Option<StoredJob>, CallError> {
        unimplemented!()
    }

    /// A page of jobs.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn list(&self, _query: JobQuery) -> Result<Page, CallError> {
        unimplemented!()
    }

    /// A job's payload.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn payload(&self, _key: JobKey) -> Result<Option<Bytes>, CallError> {
        unimplemented!()
    }

    /// A finished job's result.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn result(&self, _key: JobKey) -> Result<Option<Bytes>, CallError> {
        unimplemented!()
    }

    /// A job's inputs and dependencies, from a slot on.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn inputs(&self, _key: JobKey, _from: u32, _limit: usize) -> Result<Vec<InputRow>, CallError> {
        unimplemented!()
    }

    /// The jobs that depend, or depended, on this one.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn dependents(&self, _key: JobKey, _limit: usize) -> Result<Vec<JobKey>, CallError> {
        unimplemented!()
    }

    /// The job with this number.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn job_by_key(&self, _key: JobKey) -> Result<Option<StoredJob>, CallError> {
        unimplemented!()
    }

    /// A piece of a job's log after (attempt, offset). To follow it, wait for `LogAppended` events.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn log(&self, _key: JobKey, _after: (u32, u64), _bytes: usize) -> Result<Vec<LogChunk>, CallError> {
        unimplemented!()
    }

    /// Statistics of a queue and day: from memory if it is today, else from the store.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn statistics(&self, _namespace: &Namespace, _queue: &Queue, _day: Day) -> Result<Option<StatisticsRecord>, CallError> {
        unimplemented!()
    }

    /// Events after `after`, or from now on. The stream ends with an error if the reader is too slow.
    ///
    /// # Errors
    /// If the position is too old.
    pub fn events(&self, _after: Option<Position>) -> Result<Subscription, CallError> {
        unimplemented!()
    }

    /// Whether the shard can work.
    pub fn health(&self) -> Health {
        unimplemented!()
    }

    /// The live numbers of this shard.
    pub fn metrics(&self) -> MetricsSnapshot {
        unimplemented!()
    }

    /// Stops taking commands, commits what was taken, and ends the threads.
    pub async fn stop(&self) {
        unimplemented!()
    }
}

/// Events as they become durable.
pub struct Subscription {
    _private: (),
}

impl Subscription {
    /// The next event; waits for it.
    ///
    /// # Errors
    /// If this reader fell behind by more than the bounded buffer, or the shard stopped.
    pub async fn next(&mut self) -> Result<Event, CallError> {
        unimplemented!()
    }
}

/// Counters and gauges of a shard at one moment. Histograms: upper bounds in seconds (or items), counts, sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsSnapshot {
    /// Queues: namespace, queue, counts by state, age of the oldest ready job in seconds.
    pub queues: Vec<(Namespace, Queue, ganger_types::QueueCounts, f64)>,
    /// From ready to leased.
    pub job_wait_seconds: Histogram,
    /// From leased to the end of the attempt.
    pub job_run_seconds: Histogram,
    /// One commit of the store.
    pub commit_seconds: Histogram,
    /// Commands in one commit.
    pub commit_batch_size: Histogram,
    /// Named counters, such as `lease_expired_total`, `jobs_enqueued_total`, `commits_total`.
    pub counters: Vec<(&'static str, u64)>,
    /// Named gauges, such as `inbox_commands`, `waiting_workers`, `subscriptions`, `live_jobs`.
    pub gauges: Vec<(&'static str, u64)>,
    /// Slots that workers announced or hold: state (`busy`, `waiting`), number.
    pub worker_slots: Vec<(&'static str, u64)>,
}

/// A histogram: each bucket's upper bound with the count at or below it, the sum, the number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Cumulative.
    pub buckets: Vec<(f64, u64)>,
    /// Of all values.
    pub sum: f64,
    /// Of values.
    pub count: u64,
}
