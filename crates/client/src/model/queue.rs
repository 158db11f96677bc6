//! Queues and namespaces.

use std::time::{Duration, SystemTime};

use super::{JobState, RetryPolicy};

/// Where a job goes that falls due while others wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DueOrder {
    /// By the time at which it fell due, behind those already waiting.
    #[default]
    Behind,
    /// Before those already waiting, within its priority.
    Ahead,
}

/// Whose time a namespace runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The server's: timers act by themselves.
    #[default]
    Server,
    /// Each command brings its own time.
    Caller,
}

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
    /// Of those that succeeded.
    pub succeeded: Keep,
    /// Of those that failed.
    pub failed: Keep,
    /// Limits for jobs that were cancelled.
    pub cancelled: Keep,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Default for Retention {
    /// 1 day and 100 000 a queue of success and cancellation, 7 days of failure.
    fn default() -> Self {
        let short = Keep {
            age: Some(DAY),
            count: Some(100_000),
        };
        Self {
            succeeded: short,
            failed: Keep {
                age: Some(7 * DAY),
                count: None,
            },
            cancelled: short,
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

/// Jobs of a queue by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Waiting for other jobs.
    pub blocked: u64,
    /// Waiting for their time.
    pub scheduled: u64,
    /// Ready to be leased.
    pub ready: u64,
    /// Leased to a worker.
    pub running: u64,
    /// Kept after they succeeded.
    pub succeeded: u64,
    /// Kept after they failed.
    pub failed: u64,
    /// Kept after they were cancelled.
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
}

/// A queue as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// Name of the queue.
    pub queue: String,
    /// What an operator set.
    pub settings: QueueSettings,
    /// Number of jobs in each state.
    pub counts: QueueCounts,
    /// Schedules that feed it.
    pub schedules: u64,
    /// Since when the oldest ready job is ready.
    pub oldest_ready_for: Option<Duration>,
    /// When it was first used.
    pub created_at: SystemTime,
    /// Number of jobs ever enqueued in the queue.
    pub enqueued_total: u64,
    /// Jobs that ever ended.
    pub finished_total: u64,
}

/// What an operator may set on a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceSettings {
    /// Clock that times the namespace.
    pub clock: Clock,
    /// Default length of a lease, for queues that set none.
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
    /// Queues of the namespace.
    pub queues_max: u64,
}

impl Default for NamespaceSettings {
    fn default() -> Self {
        Self {
            clock: Clock::Server,
            lease_for: Duration::from_secs(60),
            retry: RetryPolicy::default(),
            retention: Retention::default(),
            history_max: 100,
            payload_bytes_max: 1 << 20,
            lease_expirations_in_a_row_max: 3,
            live_max: None,
            queues_max: 10_000,
        }
    }
}

/// A namespace as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// Name of the namespace.
    pub namespace: String,
    /// What an operator set.
    pub settings: NamespaceSettings,
}
