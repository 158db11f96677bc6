//! A job as it is submitted and as it is stored, and its parts.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::history::HistoryEntry;
use crate::id::{IdTag, JobId, JobKey, LeaseToken};
use crate::name::{
    Graph, Group, JobName, Kind, LabelKey, LabelValue, Namespace, Queue, RequestId, ScheduleId,
    Tag, UniqueKey, Worker,
};
use crate::reference::JobRef;
use crate::time::{Due, Elapsed, Timestamp};
use crate::words::{Words as _, words};

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum JobState {
    /// The job waits for other jobs.
    Blocked = 1,
    /// The job waits for its start time or for the end of a backoff.
    Scheduled = 2,
    /// The job can run now and waits for a worker.
    Ready = 3,
    /// The job is leased to a worker.
    Running = 4,
    /// The job has succeeded; its result is kept.
    Succeeded = 5,
    /// The job has failed; its failure is kept.
    Failed = 6,
    /// The job was cancelled by a client or by a rule.
    Cancelled = 7,
}

words!(JobState {
    "blocked" => Blocked,
    "scheduled" => Scheduled,
    "ready" => Ready,
    "running" => Running,
    "succeeded" => Succeeded,
    "failed" => Failed,
    "cancelled" => Cancelled,
});

impl JobState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Blocked,
        Self::Scheduled,
        Self::Ready,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Whether the state is final: only a retry by hand leaves it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// Parses the word that [`Self::as_str`] returns; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_word(text)
    }

    /// The state with this number in records; `None` if there is none.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }

    /// The number that records carry.
    pub fn number(self) -> u8 {
        match self {
            Self::Blocked => 1,
            Self::Scheduled => 2,
            Self::Ready => 3,
            Self::Running => 4,
            Self::Succeeded => 5,
            Self::Failed => 6,
            Self::Cancelled => 7,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The outcome of a finished job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The job has succeeded; it may have a result.
    Succeeded,
    /// The job has failed, with a failure.
    Failed,
    /// The job was cancelled, by a client or because no job needs it any more.
    Cancelled,
}

impl Outcome {
    /// The final state of a job with this outcome.
    pub fn state(self) -> JobState {
        match self {
            Self::Succeeded => JobState::Succeeded,
            Self::Failed => JobState::Failed,
            Self::Cancelled => JobState::Cancelled,
        }
    }
}

/// Priority of a job: smaller runs first, 0 by default, as in beanstalkd, River and `nice`.
///
/// Stored in millionths, because external systems allow fractions. A native priority is a whole number between minus and plus
/// [`Priority::WHOLE_MAX`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Priority(i64);

impl Priority {
    /// Largest absolute value of a whole priority.
    pub const WHOLE_MAX: i64 = 1_000_000_000_000;
    const SCALE: i64 = 1_000_000;

    /// A whole priority; `None` if it is beyond [`Priority::WHOLE_MAX`].
    pub fn whole(value: i64) -> Option<Self> {
        (-Self::WHOLE_MAX..=Self::WHOLE_MAX)
            .contains(&value)
            .then(|| Self(value * Self::SCALE))
    }

    /// A priority in millionths.
    pub fn from_millionths(value: i64) -> Self {
        Self(value)
    }

    /// The priority in millionths of a unit.
    pub fn millionths(self) -> i64 {
        self.0
    }

    /// The whole part, rounded towards negative infinity.
    pub fn to_whole(self) -> i64 {
        self.0.div_euclid(Self::SCALE)
    }
}

/// Pause before retry `k` (1, 2, 3 ...), counted from the end of the failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Backoff {
    /// The same pause before each retry.
    Fixed(Duration),
    /// The k-th entry; the last entry repeats. The list is not empty.
    List(Vec<Duration>),
    /// `base * 2^(k-1)`, at most `cap`.
    Exponential {
        /// Pause before the first retry.
        base: Duration,
        /// Longest pause before a retry.
        cap: Duration,
    },
}

impl Default for Backoff {
    /// Starts at 20 s and doubles up to one hour.
    fn default() -> Self {
        Self::Exponential {
            base: Duration::from_secs(20),
            cap: Duration::from_secs(3_600),
        }
    }
}

/// How often and when a failed job is retried.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Retries after the first attempt: at most `retries_max + 1` counted attempts.
    pub retries_max: u32,
    /// Pause before each retry.
    pub backoff: Backoff,
    /// Largest random deviation of each pause in percent, 0 to 100, either way.
    pub jitter_percent: u8,
    /// Number of lease expirations that the job may have over its life without using up a retry; the next one fails
    /// it. `None` (the default): each expiration counts as an attempt, and the namespace's
    /// `lease_expirations_in_a_row_max` limits those in a row.
    pub lease_expirations_max: Option<u32>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries_max: 3,
            backoff: Backoff::default(),
            jitter_percent: 0,
            lease_expirations_max: None,
        }
    }
}

/// What happens to a dependent when its dependency does not succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailurePolicy {
    /// The dependent fails too (the default; as in enq).
    #[default]
    Fail,
    /// The dependent waits until the dependency was retried and has succeeded.
    Wait,
    /// The dependent runs; an input that takes the result is `null`.
    Ignore,
}
words!(FailurePolicy { "fail" => Fail, "wait" => Wait, "ignore" => Ignore });

/// Why a job or an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Group of the failure: failures with one cause share it.
    pub group: Group,
    /// Message for people; cut at [`crate::limits::MESSAGE_BYTES_MAX`].
    pub message: String,
    /// Time on the wall clock.
    pub at: Timestamp,
    /// Worker whose attempt failed; `None` if no attempt was running.
    pub worker: Option<Worker>,
}

/// Progress that a worker reported for a running job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Part that is done in millionths, 0 to 1 000 000.
    pub millionths: u32,
    /// What the job is doing, for people; may be empty.
    pub message: String,
}

/// The report that ended the last attempt. A repeat of it gets the same answer (`rel L7`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastReport {
    /// Token of the lease under which the report was made.
    pub token: LeaseToken,
    /// Kind of the report.
    pub kind: ReportKind,
}

/// The kind of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// The attempt ended with success.
    Complete,
    /// The attempt ended with a failure.
    Fail,
    /// The worker released the job.
    Release,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The outcome of the job.
    pub outcome: Outcome,
    /// Time on the wall clock.
    pub at: Timestamp,
    /// Position in the shard's order of endings; the latest has the largest.
    pub order: u64,
    /// Size of the result in bytes; `None` if there is none.
    pub result_bytes: Option<u64>,
    /// Time until which the job's own retention keeps it; `Some(None)`: forever. `None`: the queue's retention
    /// applies.
    pub keep_until: Option<Option<Timestamp>>,
}

/// A job as submitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewJob {
    /// Id that the client chose; `None`: the engine makes one.
    pub id: Option<JobId>,
    /// Name of the job within its submission, for people; `None`: none.
    pub name: Option<JobName>,
    /// Queue of the job.
    pub queue: Queue,
    /// Kind of the job: names the program that runs it.
    pub kind: Kind,
    /// Payload: the input of the program, opaque to the server; may be empty.
    pub payload: Bytes,
    /// Positional inputs, in order; empty: the payload alone is the input.
    pub inputs: Vec<NewInput>,
    /// Jobs to wait for without taking their results.
    pub after: Vec<NewEdge>,
    /// The priority: smaller runs first, 0 by default.
    pub priority: Priority,
    /// Time before which no attempt starts; at once by default.
    pub start: Start,
    /// Time after which no attempt starts; `None`: none.
    pub deadline: Option<Timestamp>,
    /// Maximum time of one attempt; `None`: no limit.
    pub timeout: Option<Duration>,
    /// Retry policy of the job; `None`: as the queue says.
    pub retry: Option<RetryPolicy>,
    /// Tags, to search and count by.
    pub tags: Vec<Tag>,
    /// Labels: key-value pairs to search by.
    pub labels: Vec<(LabelKey, LabelValue)>,
    /// Whether to track the job: it then appears in the list of tracked jobs.
    pub tracked: bool,
    /// Unique key, under which at most one job exists; `None`: none.
    pub unique: Option<Unique>,
    /// Retention after success; `Some(None)`: forever. `None`: as the queue says.
    pub keep_succeeded: Option<Option<Duration>>,
    /// Retention after failure or cancellation; `Some(None)`: forever. `None`: as the queue says.
    pub keep_failed: Option<Option<Duration>>,
}

/// Earliest start of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// As soon as its dependencies are met (the default).
    #[default]
    Now,
    /// After this delay, counted from the command on the elapsed clock.
    After(Duration),
    /// At a calendar time; a time in the past means now.
    At(Timestamp),
}

/// A key under which at most one job exists for a while. Enqueueing a second one returns the id of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    /// Key, unique within the namespace.
    pub key: UniqueKey,
    /// Time for which the key stays taken after the first job was enqueued; `None`: until that job has ended.
    pub window: Option<Duration>,
}

/// The job that another job depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// The job at this index of the same submission.
    Member(u32),
    /// An existing job of this shard.
    Job(JobId),
    /// A job of another shard.
    Remote {
        /// Shard and id of the job.
        job: JobRef,
        /// Whether the job is part of the same submission; its shard then knows about this edge.
        is_member: bool,
    },
}

/// A positional input of a new job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewInput {
    /// A value that the client sent.
    Value(Bytes),
    /// The result of a job.
    Result(NewEdge),
}

/// A dependency of a new job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEdge {
    /// The job to wait for.
    pub dependency: Dependency,
    /// What happens if that job does not succeed.
    pub policy: FailurePolicy,
}

/// A job as stored, without its payload, inputs, result and log.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    /// Number of the job in the shard.
    pub key: JobKey,
    /// The id of the job within its namespace.
    pub id: JobId,
    /// Tag of the start in which the job was made; part of an engine-made id.
    pub id_tag: IdTag,
    /// Whether the client chose the id.
    pub id_is_given: bool,
    /// Name that the submission gave the job, such as `count-01`; `None`: none. Not unique.
    pub name: Option<JobName>,
    /// Namespace that owns the job.
    pub namespace: Namespace,
    /// Queue of the job.
    pub queue: Queue,
    /// Kind of the job: names the program that runs it.
    pub kind: Kind,
    /// State of the job. The stored record of a live job is never `Running`: its lease row shows that it runs.
    pub state: JobState,
    /// The priority: smaller runs first.
    pub priority: Priority,
    /// Time at which the job was enqueued.
    pub created_at: Timestamp,
    /// Time at which the job became ready. Ready jobs are ordered by priority, this time, and number.
    pub ready_at: Elapsed,
    /// Whether the job goes before others of its priority, after a queue with [`crate::DueOrder::Ahead`] or a
    /// time-out by hand.
    pub is_ahead: bool,
    /// Time at which a scheduled job becomes ready; of a blocked job, the time that it waits for once its
    /// dependencies are met.
    pub due: Option<Due>,
    /// Time after which no attempt starts; `None`: none.
    pub deadline: Option<Timestamp>,
    /// Maximum time of one attempt; `None`: no limit.
    pub timeout: Option<Duration>,
    /// Retry policy of the job.
    pub retry: RetryPolicy,
    /// Number of the last attempt granted, 0 before the first.
    pub attempt: u32,
    /// Number of attempts that count against the retry limit.
    pub attempts_counted: u32,
    /// Number of attempts that workers gave back without counting.
    pub releases: u32,
    /// Number of lease expirations: those in a row, or all of them if the retry policy limits them.
    pub lease_expirations: u32,
    /// Size of the payload in bytes.
    pub payload_bytes: u64,
    /// Number of positional inputs; 0: the payload alone is the input.
    pub inputs: u32,
    /// Hash of the submitted job, which tells a repeat from a conflict; 0 if the job has neither an id of the client
    /// nor a unique key.
    pub fingerprint: u64,
    /// Last failure, also of a job that was retried since; `None` if it never failed.
    pub failure: Option<Failure>,
    /// Graph that the job belongs to; `None` if it was submitted alone.
    pub graph: Option<Graph>,
    /// Tags of the job, to search and count by.
    pub tags: Vec<Tag>,
    /// Labels of the job: key-value pairs to search by.
    pub labels: Vec<(LabelKey, LabelValue)>,
    /// Whether the job is tracked: it appears in the list of tracked jobs.
    pub tracked: bool,
    /// Unique key that the job holds; `None` if it has none.
    pub unique: Option<UniqueKey>,
    /// Schedule that made the job; `None` if none did.
    pub schedule: Option<ScheduleId>,
    /// Retention after success; `Some(None)`: forever. `None`: as the queue says.
    pub keep_succeeded: Option<Option<Duration>>,
    /// Retention after failure or cancellation; `Some(None)`: forever. `None`: as the queue says.
    pub keep_failed: Option<Option<Duration>>,
    /// Progress of the running or last attempt; `None` if none was reported.
    pub progress: Option<Progress>,
    /// Report that ended the last attempt; `None` if none did.
    pub last_report: Option<LastReport>,
    /// History of the job, oldest first: the first entry and the newest others.
    pub history: Vec<HistoryEntry>,
    /// Number of entries that were dropped from the middle of the history.
    pub history_dropped: u32,
    /// How the job ended; `None` while it is live.
    pub finished: Option<Finished>,
}

impl JobRecord {
    /// A ready job with these names and the default for every other field.
    pub fn new(key: JobKey, id: JobId, namespace: Namespace, queue: Queue, kind: Kind) -> Self {
        Self {
            key,
            id,
            id_tag: IdTag::default(),
            id_is_given: false,
            name: None,
            namespace,
            queue,
            kind,
            state: JobState::Ready,
            priority: Priority::default(),
            created_at: Timestamp::default(),
            ready_at: Elapsed::default(),
            is_ahead: false,
            due: None,
            deadline: None,
            timeout: None,
            retry: RetryPolicy::default(),
            attempt: 0,
            attempts_counted: 0,
            releases: 0,
            lease_expirations: 0,
            payload_bytes: 0,
            inputs: 0,
            fingerprint: 0,
            failure: None,
            graph: None,
            tags: Vec::new(),
            labels: Vec::new(),
            tracked: false,
            unique: None,
            schedule: None,
            keep_succeeded: None,
            keep_failed: None,
            progress: None,
            last_report: None,
            history: Vec::new(),
            history_dropped: 0,
            finished: None,
        }
    }
}

/// A live lease, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The number of the leased job.
    pub key: JobKey,
    /// Number of the attempt; also the fencing number.
    pub attempt: u32,
    /// Number of attempts that count against the retry limit, this one included.
    pub attempts_counted: u32,
    /// The worker that holds the lease.
    pub worker: Worker,
    /// The token that reports must show.
    pub token: LeaseToken,
    /// Time of the grant on the wall clock.
    pub granted_at: Timestamp,
    /// Length of each grant or renewal.
    pub lease_for: Duration,
    /// Time at which the lease expires. A restart gives it its full length again (`rel T6`).
    pub expires_at: Elapsed,
    /// Time at which the attempt times out, however often the lease is renewed; `None`: never.
    pub timeout_at: Option<Elapsed>,
    /// Time at which the job was ready for this attempt, for the statistics of waiting.
    pub ready_at: Elapsed,
    /// Time of the grant on the elapsed clock, for the statistics of running.
    pub granted_elapsed: Elapsed,
    /// Id of the lease request that got this lease; `None` if the request had none.
    pub request: Option<RequestId>,
    /// Whether the lease has expired and lives on in the grace period of its queue.
    pub is_warned: bool,
}

/// A job as readers see it: the record, and the live lease if there is one. With a lease, the state is `Running` and
/// `attempt` is that of the lease.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredJob {
    /// The record of the job.
    pub record: JobRecord,
    /// The live lease; `None` if there is none.
    pub lease: Option<LeaseRecord>,
}

impl StoredJob {
    /// Combines a stored record with its lease: a leased job is `Running` and has the numbers of the running attempt.
    pub fn new(mut record: JobRecord, lease: Option<LeaseRecord>) -> Self {
        if let Some(lease) = &lease {
            record.state = JobState::Running;
            record.attempt = lease.attempt;
            record.attempts_counted = lease.attempts_counted;
        }
        Self { record, lease }
    }
}
