//! Deliveries, their leases, and reports about them.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::{JobState, Progress, TakeMode};
use crate::Error;

/// A queue to lease jobs from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeFrom {
    /// Name of the queue.
    pub queue: String,
    /// Weight of the queue under [`TakeMode::Weighted`], at least 1.
    pub weight: u32,
}

impl TakeFrom {
    /// Creates a queue of weight 1.
    pub fn new(queue: impl Into<String>) -> Self {
        Self {
            queue: queue.into(),
            weight: 1,
        }
    }
}

/// A request for leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Queues to lease jobs from.
    pub queues: Vec<TakeFrom>,
    /// How the queues are combined.
    pub mode: TakeMode,
    /// Name of the worker that leases the jobs.
    pub worker: String,
    /// Maximum number of jobs, 1 to 10,000.
    pub jobs_max: u32,
    /// Length of the leases; `None` for the queue's setting.
    pub lease_for: Option<Duration>,
    /// Longest wait for the first job.
    pub wait_for: Duration,
}

/// A leased job, as it is delivered to a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The job and its lease token, which every report needs.
    pub lease: LeaseRef,
    /// Shard of the job.
    pub shard: String,
    /// Number of the job within its shard.
    pub number: u64,
    /// Queue that the job was leased from.
    pub queue: String,
    /// Kind of the job: the program that runs it.
    pub kind: String,
    /// Number of the attempt, from 1, which serves as a fencing token.
    pub attempt: u32,
    /// Number of counted attempts left after this one.
    pub retries_left: u32,
    /// Length of the lease.
    pub lease_for: Duration,
    /// Time until which the lease lasts, unless the server ends it: counted from before the request was sent, so the
    /// true end is later. Renewals on a [`crate::WorkStream`] extend the lease but do not change this field.
    pub expires_at: Instant,
    /// Longest run of the attempt, counted from the start of the lease; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Time after which no further attempt starts; `None` for no deadline.
    pub deadline: Option<SystemTime>,
    /// Time at which the job was enqueued.
    pub created_at: SystemTime,
    /// Priority of the job: smaller runs first.
    pub priority: i64,
    /// Payload of the job.
    pub payload: Bytes,
    /// Positional inputs in order; `null` for the result of a job whose failure is ignored.
    pub inputs: Vec<Bytes>,
    /// Id of the graph that the job belongs to; `None` for none.
    pub graph: Option<String>,
    /// Tags of the job.
    pub tags: Vec<String>,
    /// Labels of the job: indexed key-value pairs.
    pub labels: Vec<(String, String)>,
}

/// The proof of a lease. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LeaseToken(pub Bytes);

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(..)")
    }
}

/// The attempt that a report is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// Id of the job.
    pub job: String,
    /// Token that proves the lease.
    pub token: LeaseToken,
}

/// A worker's report about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The attempt succeeded, which ends the lease.
    Complete {
        /// Result of the job, kept until retention removes the job; `None` for none.
        result: Option<Bytes>,
        /// Queue in which the job continues; `None` if the job has succeeded.
        next: Option<Next>,
    },
    /// The attempt failed, which ends the lease.
    Fail(FailureReport),
    /// The worker releases the job.
    Release(ReleaseReport),
    /// The attempt continues, so its lease is renewed.
    Renew(RenewalReport),
    /// The attempt wrote to its log.
    Log {
        /// Number of bytes of this attempt's log sent before, by which the server recognises a repeat.
        offset: u64,
        /// Bytes to append, at most 256 KiB.
        bytes: Bytes,
    },
}

/// The queue in which a completed job continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// Name of the queue.
    pub queue: String,
    /// Delay before the job is ready there; zero is none.
    pub delay: Duration,
    /// Ids of jobs that must succeed before the job is ready there.
    pub after: Vec<String>,
    /// New payload; `None` for the old one.
    pub payload: Option<Bytes>,
}

/// The report of a failed attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureReport {
    /// Failure group, shared by all failures of the same cause.
    pub group: String,
    /// Failure message for people to read.
    pub message: String,
    /// Whether the job must not be retried.
    pub permanent: bool,
    /// Pause before the next retry; `None` for that of the retry policy.
    pub retry_after: Option<Duration>,
    /// Whether the worker or the program died, which is not a failure of the job: the job continues at once as if its
    /// lease had expired, and the other fields are ignored.
    pub lost: bool,
}

/// The report of a released job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseReport {
    /// Delay after which the job is ready again.
    pub delay: Duration,
    /// Whether the attempt counts against the retries.
    pub counted: bool,
    /// Whether the job returns to its old position instead of the end of the queue.
    pub keep_place: bool,
    /// Reason of the release, for people to read.
    pub reason: String,
}

/// The renewal of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenewalReport {
    /// New length of the lease; `None` for the length that was granted.
    pub lease_for: Option<Duration>,
    /// Progress of the attempt; `None` leaves it as it is.
    pub progress: Option<Progress>,
    /// New payload of the job; `None` leaves it as it is.
    pub payload: Option<Bytes>,
}

/// The server's answer to an accepted report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportAnswer {
    /// The attempt has ended.
    Ended {
        /// State of the job now.
        state: JobState,
        /// Time of the next attempt; `None` if there is none.
        retry_at: Option<SystemTime>,
        /// Whether the same report had been accepted before.
        repeat: bool,
    },
    /// The lease was renewed.
    Renewed {
        /// Length of the lease, counted from before the renewal was sent.
        lease_for: Duration,
    },
    /// The bytes were appended to the log.
    Logged {
        /// Number of bytes in the log of this attempt now.
        bytes: u64,
        /// Number of bytes dropped because they exceeded the limit of the log.
        dropped: u64,
    },
}

/// The server's answer to a report, or the reason why the report changed nothing.
pub type ReportResult = Result<ReportAnswer, Error>;
