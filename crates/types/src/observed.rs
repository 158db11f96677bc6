//! What a shard has seen of queues, workers and schedules beside the engine. It is for people: nothing is decided by it,
//! and a restart begins it again.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::reply::{QueueView, WorkerView};
use crate::{JobState, Queue, ScheduleRecord, Timestamp, Worker};

/// A queue, and what the shard has seen of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedQueue {
    /// The queue as the engine shows it.
    pub view: QueueView,
    /// How fast it fills and empties; `None` while that is not known.
    pub pace: Option<QueuePace>,
    /// Workers that asked the queue within the last minute; `None` in lists of queues.
    pub askers: Option<Vec<Asker>>,
}

/// How fast a queue fills and empties, over the last five minutes or since the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueuePace {
    /// Number of jobs enqueued per minute.
    pub arrivals_per_minute: f64,
    /// Number of jobs that ended per minute.
    pub completions_per_minute: f64,
    /// Time until the ready jobs are done at these rates; `None` if they grow or stay.
    pub time_to_empty: Option<Duration>,
}

/// A worker that asks a queue for jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Name of the worker.
    pub worker: Worker,
    /// Maximum number of jobs that its last request asked for.
    pub slots: u32,
    /// Time of its last request.
    pub asked_at: Timestamp,
}

/// A worker, and what the shard has seen of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedWorker {
    /// The worker as the engine shows it.
    pub view: WorkerView,
    /// What the worker does now.
    pub state: WorkerState,
    /// What is known of its requests and attempts; `None` if it has not asked for jobs since the start.
    pub facts: Option<WorkerFacts>,
}

/// What a worker does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// The worker holds at least one job.
    Busy,
    /// The worker holds no job, and has asked lately.
    Idle,
    /// It has sent no request for three times the length of its leases.
    Silent,
}

impl WorkerState {
    /// The word for the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Idle => "idle",
            Self::Silent => "silent",
        }
    }
}

/// What is known of a worker since the start of the shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerFacts {
    /// Address from which it asked last; empty if not known.
    pub address: String,
    /// Version that it reported, such as `ganger/0.2.0`; empty if it reported none.
    pub version: String,
    /// Queues that its last request named.
    pub queues: Arc<[Queue]>,
    /// Maximum number of jobs that its last request asked for.
    pub slots: u32,
    /// Number of jobs that it still takes: those that its last request asked for, less those granted since.
    pub free_slots: u32,
    /// Time of its first request.
    pub since: Timestamp,
    /// Time of its last request.
    pub asked_at: Timestamp,
    /// Time until which its last request waits for jobs.
    pub waits_until: Timestamp,
    /// Number of its attempts that succeeded.
    pub completed: u64,
    /// Tenths of an attempt per minute that succeeded in the last five minutes, or since its first request.
    pub completed_per_minute_in_tenths: u64,
    /// Number of its attempts that failed, or took longer than they may.
    pub failed: u64,
    /// Number of its leases that expired.
    pub lost: u64,
}

impl WorkerFacts {
    /// Number of its attempts that succeeded per minute, over the last five minutes or since its first request.
    pub fn completed_per_minute(&self) -> f64 {
        // Rates are far below the numbers that a fraction cannot hold exactly.
        let tenths = u32::try_from(self.completed_per_minute_in_tenths).unwrap_or(u32::MAX);
        f64::from(tenths) / 10.0
    }
}

/// A schedule, and how its last job went.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedSchedule {
    /// The schedule as it is stored.
    pub record: ScheduleRecord,
    /// State of the last job; `None` before the first, and once it is gone.
    pub last_state: Option<JobState>,
    /// Time that the last attempt of that job took; `None` if none has ended.
    pub last_ran_for: Option<Duration>,
}
