//! Queues and namespaces: their settings and counters.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::job::{JobState, Outcome, RetryPolicy};
use crate::name::{Namespace, Queue};
use crate::time::Timestamp;
use crate::words::words;

/// The clock that a namespace runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The server's clock: timers fire by themselves.
    #[default]
    Server,
    /// Each command carries its own `now`, and nothing happens between commands.
    Caller,
}
words!(Clock { "server" => Server, "caller" => Caller });

/// The position of a job that becomes due while others are ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DueOrder {
    /// Behind the ready jobs of its priority, by the time at which it became due (the default).
    #[default]
    Behind,
    /// Before the ready jobs of its priority.
    Ahead,
}
words!(DueOrder { "behind" => Behind, "ahead" => Ahead });

/// How long and how many finished jobs of one outcome are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Keep {
    /// Maximum age, counted from the end of the job; `None`: no limit.
    pub age: Option<Duration>,
    /// Maximum number per queue; the newest are kept. `None`: no limit.
    pub count: Option<u64>,
}

/// The retention of finished jobs, by outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Retention {
    /// Jobs that succeeded; by default for 1 day, at most 100 000 per queue.
    pub succeeded: Keep,
    /// Jobs that failed; by default for 7 days.
    pub failed: Keep,
    /// Jobs that were cancelled; by default for 1 day, at most 100 000 per queue.
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
    /// The retention of jobs with this outcome.
    pub fn of(&self, outcome: Outcome) -> Keep {
        match outcome {
            Outcome::Succeeded => self.succeeded,
            Outcome::Failed => self.failed,
            Outcome::Cancelled => self.cancelled,
        }
    }
}

/// The settings of a queue. Those that are `None` fall back to the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QueueSettings {
    /// Whether the queue is paused: no job of it is leased.
    pub paused: bool,
    /// Maximum number of jobs that run at once; `None`: no limit.
    pub running_max: Option<u32>,
    /// Maximum number of live jobs; `None`: no limit. A submission beyond it is refused with `queue_full`.
    pub live_max: Option<u64>,
    /// Length of leases that a worker does not choose.
    pub lease_for: Option<Duration>,
    /// Grace period: time that the worker still has after its lease expired. `None`: none.
    pub grace_for: Option<Duration>,
    /// Default for jobs that set none.
    pub retry: Option<RetryPolicy>,
    /// Default for jobs that set none.
    pub retention: Option<Retention>,
    /// Position of jobs that become due.
    pub due_order: DueOrder,
    /// Time that a ready job may wait before the queue needs attention; `None`:
    /// [`ALERT_AGE_DEFAULT`](crate::limits::ALERT_AGE_DEFAULT).
    pub alert_age: Option<Duration>,
}

impl QueueSettings {
    /// The version of these settings: a hash, equal for equal settings. It may differ between releases.
    pub fn version(&self) -> u64 {
        let mut hasher = Fnv(0xCBF2_9CE4_8422_2325);
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// The hash FNV-1a: the same in every process, unlike the hasher of the standard library.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The settings of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceSettings {
    /// Clock that the namespace runs on.
    pub clock: Clock,
    /// Length of leases that neither worker nor queue choose.
    pub lease_for: Duration,
    /// Default for jobs that set none.
    pub retry: RetryPolicy,
    /// Default for jobs that set none.
    pub retention: Retention,
    /// Maximum number of history entries per job.
    pub history_max: u32,
    /// Maximum size of a payload, an input value, or a result, in bytes.
    pub payload_bytes_max: u64,
    /// Number of lease expirations in a row after which a job fails; 0: never.
    pub lease_expirations_in_a_row_max: u32,
    /// Maximum number of live jobs in the namespace; `None`: no limit.
    pub live_max: Option<u64>,
    /// Maximum number of queues; a request that would create more is refused.
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

/// The number of jobs of a queue in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// Jobs that wait for other jobs.
    pub blocked: u64,
    /// Jobs that wait for their start time or for the end of a backoff.
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
    /// The count of a state.
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

    /// The count of a state, to change it.
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

    /// Adds the counts of another queue.
    pub fn add(&mut self, other: &Self) {
        for state in JobState::ALL {
            *self.of_mut(state) += other.of(state);
        }
    }

    /// The number of jobs that have not ended.
    pub fn live(&self) -> u64 {
        self.blocked + self.scheduled + self.ready + self.running
    }
}

/// A queue as stored: its settings, and the counts that do not follow from the live jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueRecord {
    /// The namespace of the queue.
    pub namespace: Namespace,
    /// The name of the queue.
    pub queue: Queue,
    /// Time of the first use.
    pub created_at: Timestamp,
    /// Whether listings show the queue; [`crate::command::ForgetQueue`] clears it, and any use sets it.
    pub known: bool,
    /// Settings, as configured; those that are `None` fall back to the namespace.
    pub settings: QueueSettings,
    /// Number of kept jobs that have succeeded.
    pub succeeded: u64,
    /// Number of kept jobs that have failed.
    pub failed: u64,
    /// Number of kept jobs that were cancelled.
    pub cancelled: u64,
    /// Number of jobs ever enqueued.
    pub enqueued_total: u64,
    /// Number of jobs that ever ended.
    pub finished_total: u64,
}

/// A namespace as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NamespaceRecord {
    /// The name of the namespace.
    pub namespace: Namespace,
    /// Settings, as configured; what is `None` has its default.
    pub settings: NamespaceSettings,
}
