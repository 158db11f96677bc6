//! Queues and namespaces: their settings and counters.

use std::time::Duration;

use crate::job::{JobState, Outcome, RetryPolicy};
use crate::name::{Namespace, Queue};
use crate::time::Timestamp;
use crate::words::words;

/// Whose time a namespace runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The server's: timers act by themselves.
    #[default]
    Server,
    /// Each command brings its own `now`; nothing happens between commands (qless).
    Caller,
}
words!(Clock { "server" => Server, "caller" => Caller });

/// Where a job goes that falls due while others wait (`kickq R51`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DueOrder {
    /// By the time at which it fell due, behind those already waiting.
    #[default]
    Behind,
    /// Before those already waiting, within its priority.
    Ahead,
}
words!(DueOrder { "behind" => Behind, "ahead" => Ahead });

/// How long and how many finished jobs of one outcome are kept. `None` is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// By age, counted from the end.
    pub age: Option<Duration>,
    /// The newest so many per queue.
    pub count: Option<u64>,
}

/// What is kept of finished jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Of those that succeeded: 1 day, 100 000 a queue, by default.
    pub succeeded: Keep,
    /// Of those that failed: 7 days by default.
    pub failed: Keep,
    /// Of those cancelled: 1 day by default.
    pub cancelled: Keep,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Default for Retention {
    fn default() -> Self {
        Self {
            succeeded: Keep {
                age: Some(DAY),
                count: Some(100_000),
            },
            failed: Keep {
                age: Some(7 * DAY),
                count: None,
            },
            cancelled: Keep {
                age: Some(DAY),
                count: Some(100_000),
            },
        }
    }
}

impl Retention {
    /// The part for one outcome.
    pub fn of(&self, outcome: Outcome) -> Keep {
        match outcome {
            Outcome::Succeeded => self.succeeded,
            Outcome::Failed => self.failed,
            Outcome::Cancelled => self.cancelled,
        }
    }
}

/// What an operator may set on a queue. `None` falls back to the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// Nothing is leased from it.
    pub paused: bool,
    /// Jobs of it that may run at once.
    pub running_max: Option<u32>,
    /// Live jobs that it takes; more are refused as `queue_full`.
    pub live_max: Option<u64>,
    /// Length of its leases.
    pub lease_for: Option<Duration>,
    /// After a lease ran out: warn the holder and wait so long before it is taken away.
    pub grace_for: Option<Duration>,
    /// For jobs that name none.
    pub retry: Option<RetryPolicy>,
    /// For jobs that name none.
    pub retention: Option<Retention>,
    /// Where due jobs line up.
    pub due_order: DueOrder,
}

/// What an operator may set on a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceSettings {
    /// The clock that the namespace runs on.
    pub clock: Clock,
    /// The length of leases that a worker does not choose.
    pub lease_for: Duration,
    /// For jobs that name none.
    pub retry: RetryPolicy,
    /// For jobs that name none.
    pub retention: Retention,
    /// History entries kept per job.
    pub history_max: u32,
    /// Payload, input value, and result, in bytes.
    pub payload_bytes_max: u64,
    /// Leases that may run out in a row before a job is set aside as poison; 0 is never.
    pub lease_expirations_in_a_row_max: u32,
    /// Live jobs of the whole namespace; more are refused.
    pub live_max: Option<u64>,
    /// Queues of the namespace; a request that would make more is refused.
    pub queues_max: u64,
}

impl Default for NamespaceSettings {
    fn default() -> Self {
        Self {
            clock: Clock::Server,
            lease_for: crate::limits::LEASE_FOR_DEFAULT,
            retry: RetryPolicy::default(),
            retention: Retention::default(),
            history_max: 100,
            payload_bytes_max: 1 << 20,
            lease_expirations_in_a_row_max: crate::limits::LEASE_EXPIRATIONS_IN_A_ROW_MAX,
            live_max: None,
            queues_max: crate::limits::QUEUES_MAX,
        }
    }
}

/// Jobs of a queue by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Waiting for other jobs.
    pub blocked: u64,
    /// Waiting for their time.
    pub scheduled: u64,
    /// Jobs that can run now.
    pub ready: u64,
    /// Jobs that are leased to workers.
    pub running: u64,
    /// Kept jobs that have succeeded.
    pub succeeded: u64,
    /// Kept jobs that have failed.
    pub failed: u64,
    /// Kept jobs that were cancelled.
    pub cancelled: u64,
}

impl QueueCounts {
    /// The count of one state.
    pub fn of(&self, state: JobState) -> u64 {
        match state {
            JobState::Blocked => self.blocked,
            JobState::Scheduled => self.scheduled,
            JobState::Ready => self.ready,
            JobState::Running => self.running,
            JobState::Succeeded => self.succeeded,
            JobState::Failed => self.failed,
            JobState::Cancelled => self.cancelled,
        }
    }

    /// The count of one state, to change it.
    pub fn of_mut(&mut self, state: JobState) -> &mut u64 {
        match state {
            JobState::Blocked => &mut self.blocked,
            JobState::Scheduled => &mut self.scheduled,
            JobState::Ready => &mut self.ready,
            JobState::Running => &mut self.running,
            JobState::Succeeded => &mut self.succeeded,
            JobState::Failed => &mut self.failed,
            JobState::Cancelled => &mut self.cancelled,
        }
    }

    /// All that have not ended.
    pub fn live(&self) -> u64 {
        self.blocked + self.scheduled + self.ready + self.running
    }
}

/// A queue as stored: the settings, and the counts that cannot be told from live jobs alone.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueRecord {
    /// The namespace of the queue.
    pub namespace: Namespace,
    /// The name of the queue.
    pub queue: Queue,
    /// When it was first used.
    pub created_at: Timestamp,
    /// Whether listings show it; cleared by `forget`, set by use.
    pub known: bool,
    /// What an operator set.
    pub settings: QueueSettings,
    /// Finished jobs still kept, by outcome.
    pub succeeded: u64,
    /// Likewise for jobs that have failed; see `succeeded`.
    pub failed: u64,
    /// Likewise for jobs that have been cancelled; see `succeeded`.
    pub cancelled: u64,
    /// Jobs ever enqueued here.
    pub enqueued_total: u64,
    /// Jobs that ever ended here.
    pub finished_total: u64,
}

/// A namespace as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NamespaceRecord {
    /// The name of the namespace.
    pub namespace: Namespace,
    /// What an operator set.
    pub settings: NamespaceSettings,
}
