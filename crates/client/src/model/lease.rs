//! Leases and reports.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::{JobState, Progress, TakeMode};
use crate::Error;

/// A queue to take from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeFrom {
    /// Name of the queue.
    pub queue: String,
    /// Its share under [`TakeMode::Weighted`], at least 1.
    pub weight: u32,
}

impl TakeFrom {
    /// A queue of weight 1.
    pub fn new(queue: impl Into<String>) -> Self {
        Self {
            queue: queue.into(),
            weight: 1,
        }
    }
}

/// What to take, by one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Queues to take jobs from.
    pub queues: Vec<TakeFrom>,
    /// How the queues share what is taken.
    pub mode: TakeMode,
    /// Name of the worker that takes the jobs.
    pub worker: String,
    /// At most so many, 1 to 10 000.
    pub jobs_max: u32,
    /// Length of the leases; `None`: the queue's.
    pub lease_for: Option<Duration>,
    /// How long to wait for the first job.
    pub wait_for: Duration,
}

/// A job handed out.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// Which attempt of which job; goes into every report.
    pub lease: LeaseRef,
    /// Shard that holds the job.
    pub shard: String,
    /// Its number in the shard.
    pub number: u64,
    /// Where it lined up.
    pub queue: String,
    /// Kind of the job: the program that runs it.
    pub kind: String,
    /// Fencing number, from 1.
    pub attempt: u32,
    /// Counted attempts left after this one.
    pub retries_left: u32,
    /// Length of the lease.
    pub lease_for: Duration,
    /// The lease surely lasts until here unless the server ends it: counted from before the request
    /// was sent. Renewals on a [`crate::WorkStream`] move it; this field is as of the delivery.
    pub expires_at: Instant,
    /// How long the attempt may run, from the grant.
    pub timeout: Option<Duration>,
    /// Never tried again after this.
    pub deadline: Option<SystemTime>,
    /// When it was enqueued.
    pub created_at: SystemTime,
    /// Priority of the job: smaller runs first.
    pub priority: i64,
    /// Payload of the job.
    pub payload: Bytes,
    /// Positional inputs in order; `null` for ignored ones.
    pub inputs: Vec<Bytes>,
    /// The graph it was submitted with.
    pub graph: Option<String>,
    /// Tags of the job.
    pub tags: Vec<String>,
    /// Labels of the job: indexed key-value pairs.
    pub labels: Vec<(String, String)>,
}

/// Proof of a lease. Its `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LeaseToken(pub Bytes);

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(..)")
    }
}

/// Names the attempt that a report is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// Id of the job.
    pub job: String,
    /// Token that proves the lease.
    pub token: LeaseToken,
}

/// What a worker says of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// It ended with success.
    Complete {
        /// Kept until retention removes it.
        result: Option<Bytes>,
        /// Goes on in another queue instead of ending.
        next: Option<Next>,
    },
    /// It ended with a failure.
    Fail(FailureReport),
    /// It is given back.
    Release(ReleaseReport),
    /// The attempt continues, so its lease is renewed.
    Renew(RenewalReport),
    /// The attempt wrote to its log.
    Log {
        /// Bytes of this attempt's log sent before; a repeat is recognised by it.
        offset: u64,
        /// The bytes, at most 256 KiB.
        bytes: Bytes,
    },
}

/// Where a completed job goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// Name of the queue.
    pub queue: String,
    /// Delay before the job is ready there; zero is none.
    pub delay: Duration,
    /// Once these have succeeded.
    pub after: Vec<String>,
    /// With this payload; `None`: as it was.
    pub payload: Option<Bytes>,
}

/// Failure of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureReport {
    /// Failures of one cause share a group.
    pub group: String,
    /// Message of the failure, for people.
    pub message: String,
    /// Rules further retries out.
    pub permanent: bool,
    /// Overrides the pause before the next retry.
    pub retry_after: Option<Duration>,
    /// The worker or program died, which says nothing about the job: the job goes on at once as if its lease had
    /// run out, and nothing else said here counts.
    pub lost: bool,
}

/// How a job is given back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseReport {
    /// Ready again after so long.
    pub delay: Duration,
    /// Whether the attempt counts against the retries.
    pub counted: bool,
    /// Back to its old place instead of the end of the line.
    pub keep_place: bool,
    /// Reason of the release, for people.
    pub reason: String,
}

/// How an attempt goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenewalReport {
    /// A new length from now on; `None`: as granted.
    pub lease_for: Option<Duration>,
    /// How far it is.
    pub progress: Option<Progress>,
    /// New payload of the job; `None` leaves it as it is.
    pub payload: Option<Bytes>,
}

/// What the server says to a report it accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportAnswer {
    /// The attempt has ended.
    Ended {
        /// Where the job stands now.
        state: JobState,
        /// When it is tried again, if it is.
        retry_at: Option<SystemTime>,
        /// Whether the same report had been accepted before.
        repeat: bool,
    },
    /// The lease goes on.
    Renewed {
        /// So long, counted from before the renewal was sent.
        lease_for: Duration,
    },
    /// The log has the bytes of the report.
    Logged {
        /// The log has so many bytes of this attempt now.
        bytes: u64,
        /// So many were beyond its limit.
        dropped: u64,
    },
}

/// What the server says to a report: the answer, or why it changed nothing.
pub type ReportResult = Result<ReportAnswer, Error>;
