//! A job as it is submitted and as it is stored, and its parts.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::history::HistoryEntry;
use crate::id::{IdTag, JobId, JobKey, LeaseToken};
use crate::name::{
    Graph, Group, JobName, Kind, LabelKey, LabelValue, Namespace, Queue, RequestId, ScheduleId,
    Tag, UniqueKey, Worker,
};
use crate::reference::JobRef;
use crate::time::{Due, Elapsed, Timestamp};
use crate::words::{Words as _, words};

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum JobState {
    /// Waits for other jobs.
    Blocked = 1,
    /// Waits for its time.
    Scheduled = 2,
    /// Can run now; waits for a worker.
    Ready = 3,
    /// Leased to a worker.
    Running = 4,
    /// Finished with success; its result is kept.
    Succeeded = 5,
    /// Finished without success; its failure is kept.
    Failed = 6,
    /// Cancelled by a person, a client or a rule.
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
    /// Every state, in order.
    pub const ALL: [Self; 7] = [
        Self::Blocked,
        Self::Scheduled,
        Self::Ready,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Whether the job will never move again by itself.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// Reads the word that [`Self::as_str`] gives; `None` for any other.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_word(text)
    }

    /// Reads the number that records carry.
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
    /// By a person or by the end of those who needed it.
    Cancelled,
}

impl Outcome {
    /// The state of a job that ended so.
    pub fn state(self) -> JobState {
        match self {
            Self::Succeeded => JobState::Succeeded,
            Self::Failed => JobState::Failed,
            Self::Cancelled => JobState::Cancelled,
        }
    }
}

/// Urgency: smaller runs first, 0 by default, as in beanstalkd, River and `nice`.
///
/// Kept as millionths, because qless allows fractions; a native priority is a whole number within
/// plus or minus [`Priority::WHOLE_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i64);

impl Priority {
    /// The largest whole priority, either way.
    pub const WHOLE_MAX: i64 = 1_000_000_000_000;
    const SCALE: i64 = 1_000_000;

    /// A whole priority, if it is within the limit.
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

/// How long to wait before retry `k` (1, 2, 3 ...), counted from the end of the failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backoff {
    /// The same pause before each retry.
    Fixed(Duration),
    /// The k-th entry; the last one repeats. Not empty.
    List(Vec<Duration>),
    /// `base * 2^(k-1)`, at most `cap`.
    Exponential {
        /// Before the first retry.
        base: Duration,
        /// Never longer than this.
        cap: Duration,
    },
}

impl Default for Backoff {
    /// From 20 s, doubling, up to an hour.
    fn default() -> Self {
        Self::Exponential {
            base: Duration::from_secs(20),
            cap: Duration::from_secs(3_600),
        }
    }
}

/// How often and when a job is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RetryPolicy {
    /// Retries after the first attempt: at most `retries_max + 1` counted attempts.
    pub retries_max: u32,
    /// The pause before each.
    pub backoff: Backoff,
    /// Up to so many hundredths are added to or taken from each pause, drawn by the engine.
    pub jitter_percent: u8,
    /// Leases that may run out (their worker was lost) without counting against the retries, in the whole life
    /// of the job; the next one fails it. `None` (default): each counts as an attempt, and the namespace's
    /// `lease_expirations_in_a_row_max` bounds them in a row.
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

/// What an edge does when its dependency does not succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailurePolicy {
    /// The dependent fails too (default; enq's cascade).
    #[default]
    Fail,
    /// The dependent waits until the dependency was retried and succeeded (qless).
    Wait,
    /// The dependent goes on; a data input reads `null`.
    Ignore,
}
words!(FailurePolicy { "fail" => Fail, "wait" => Wait, "ignore" => Ignore });

/// Why a job or an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Failures of one cause share a group.
    pub group: Group,
    /// For people; cut at 16 KiB.
    pub message: String,
    /// When, on the wall clock.
    pub at: Timestamp,
    /// Whose attempt it was, if one was running.
    pub worker: Option<Worker>,
}

/// How far a running job says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Millionths done, 0 to 1 000 000.
    pub millionths: u32,
    /// What it is doing.
    pub message: String,
}

/// The report that ended the last attempt, so that its repeat gets the same answer (`rel L7`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastReport {
    /// The token of the lease that it was made under.
    pub token: LeaseToken,
    /// The kind of the report.
    pub kind: ReportKind,
}

/// What a report said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// The attempt has succeeded.
    Complete,
    /// The attempt has failed.
    Fail,
    /// The job was given back unrun.
    Release,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The outcome of the job.
    pub outcome: Outcome,
    /// When, on the wall clock.
    pub at: Timestamp,
    /// Place in the shard's order of endings; the newest is the largest.
    pub order: u64,
    /// Bytes of the result; `None` if there is none.
    pub result_bytes: Option<u64>,
    /// How long to keep it, if the job says so itself: `Some(None)` is forever.
    pub keep_until: Option<Option<Timestamp>>,
}

/// A job to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewJob {
    /// Its id, if the client chooses it.
    pub id: Option<JobId>,
    /// How the submission calls it, for people; `None`: it has no name.
    pub name: Option<JobName>,
    /// Where it lines up.
    pub queue: Queue,
    /// Which program runs it.
    pub kind: Kind,
    /// The input of the program, opaque to the server; empty if there is none.
    pub payload: Bytes,
    /// The positional inputs, in order; empty if the job has a payload instead.
    pub inputs: Vec<NewInput>,
    /// Jobs to wait for without taking their results.
    pub after: Vec<NewEdge>,
    /// The priority: smaller runs first, 0 by default.
    pub priority: Priority,
    /// When it may run.
    pub start: Start,
    /// Never started, and never tried again, after this.
    pub deadline: Option<Timestamp>,
    /// How long one attempt may run.
    pub timeout: Option<Duration>,
    /// How it is tried again.
    pub retry: Option<RetryPolicy>,
    /// Words to search and count by; empty by default.
    pub tags: Vec<Tag>,
    /// Key-value pairs to search by; empty by default.
    pub labels: Vec<(LabelKey, LabelValue)>,
    /// Whether to follow it.
    pub tracked: bool,
    /// At most one job under this key.
    pub unique: Option<Unique>,
    /// How long to keep it after success: `Some(None)` is forever.
    pub keep_succeeded: Option<Option<Duration>>,
    /// How long to keep it after failure or cancellation, likewise.
    pub keep_failed: Option<Option<Duration>>,
}

/// When a job may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// As soon as its dependencies allow (the default).
    #[default]
    Now,
    /// So long after the command, by the shard's elapsed time.
    After(Duration),
    /// At a calendar time; one in the past is now.
    At(Timestamp),
}

/// At most one job under a key, for a while. A second one is answered with the first one's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    /// The key, within the namespace.
    pub key: UniqueKey,
    /// So long after the first was enqueued; `None`: while it is live.
    pub window: Option<Duration>,
}

/// The job that another job depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// The job at this place of the same submission.
    Member(u32),
    /// A job that exists.
    Job(JobId),
    /// A job of another shard.
    Remote {
        /// The id of the job and its shard.
        job: JobRef,
        /// Whether it is part of the same submission: then its shard knows of this edge.
        is_member: bool,
    },
}

/// A positional input of a new job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewInput {
    /// A value that the client gave.
    Value(Bytes),
    /// The result of a job.
    Result(NewEdge),
}

/// A job to wait for, and what its failure means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEdge {
    /// The job to wait for.
    pub dependency: Dependency,
    /// What its failure means.
    pub policy: FailurePolicy,
}

/// All that is known of a job, but for its payload, inputs, result and log.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    /// Its number in the shard.
    pub key: JobKey,
    /// The id of the job within its namespace.
    pub id: JobId,
    /// The incarnation in which it was made; part of an engine-made id.
    pub id_tag: IdTag,
    /// Whether the client chose the id.
    pub id_is_given: bool,
    /// How its submission called it, such as `count-01`; `None`: it had no name. Not unique.
    pub name: Option<JobName>,
    /// The namespace that the job belongs to.
    pub namespace: Namespace,
    /// Where it lines up.
    pub queue: Queue,
    /// Which program runs it.
    pub kind: Kind,
    /// Where it stands. A stored live record never says `Running`: its lease row does.
    pub state: JobState,
    /// The priority: smaller runs first.
    pub priority: Priority,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// The key of its place among the ready (order by priority, this, then key).
    pub ready_at: Elapsed,
    /// Whether it lines up before the others of its priority (`kickq R51`, timing out by hand).
    pub is_ahead: bool,
    /// When it becomes ready, while it is scheduled; or once its dependencies are met.
    pub due: Option<Due>,
    /// Never started, and never tried again, after this.
    pub deadline: Option<Timestamp>,
    /// How long one attempt may run.
    pub timeout: Option<Duration>,
    /// How it is tried again.
    pub retry: RetryPolicy,
    /// Number of the last attempt granted, 0 before the first.
    pub attempt: u32,
    /// Attempts that count against the retries.
    pub attempts_counted: u32,
    /// Grants given back without counting.
    pub releases: u32,
    /// Leases that ran out: in a row, or all of them if its retry policy bounds those.
    pub lease_expirations: u32,
    /// Bytes of the payload.
    pub payload_bytes: u64,
    /// Number of positional inputs; 0 means the payload alone is the input.
    pub inputs: u32,
    /// Hash of what was submitted, to tell a repeat from a conflict; 0 if never needed.
    pub fingerprint: u64,
    /// The last failure, also of a job that was tried again since.
    pub failure: Option<Failure>,
    /// The graph it was submitted with.
    pub graph: Option<Graph>,
    /// Words to search and count by.
    pub tags: Vec<Tag>,
    /// Key-value pairs to search by.
    pub labels: Vec<(LabelKey, LabelValue)>,
    /// Whether somebody follows it.
    pub tracked: bool,
    /// Under which unique key it stands.
    pub unique: Option<UniqueKey>,
    /// The schedule that made it.
    pub schedule: Option<ScheduleId>,
    /// How long to keep it after success, if it says so itself: `Some(None)` is forever.
    pub keep_succeeded: Option<Option<Duration>>,
    /// How long to keep it after failure or cancellation, likewise.
    pub keep_failed: Option<Option<Duration>>,
    /// How far the running or last attempt got.
    pub progress: Option<Progress>,
    /// The report that ended the last attempt.
    pub last_report: Option<LastReport>,
    /// What happened, oldest first: the first entry and the newest others.
    pub history: Vec<HistoryEntry>,
    /// Entries that fell out of the middle.
    pub history_dropped: u32,
    /// How it ended; `None` while it lives.
    pub finished: Option<Finished>,
}

impl JobRecord {
    /// A ready job with these names, and with every other field at its default.
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
    /// The attempt it stands for; also the fencing number.
    pub attempt: u32,
    /// Attempts that count, this one included.
    pub attempts_counted: u32,
    /// The worker that holds the lease.
    pub worker: Worker,
    /// The token that reports must show.
    pub token: LeaseToken,
    /// When it was granted, on the wall clock.
    pub granted_at: Timestamp,
    /// How long each grant or renewal lasts.
    pub lease_for: Duration,
    /// When it ends. After a restart it is given its full length again (`rel T6`).
    pub expires_at: Elapsed,
    /// When the attempt must be over, however often it is renewed.
    pub timeout_at: Option<Elapsed>,
    /// When the job was ready for this attempt, for the statistics of waiting.
    pub ready_at: Elapsed,
    /// When it was granted, on the elapsed line, for the statistics of running.
    pub granted_elapsed: Elapsed,
    /// The lease request that asked for it, if it named itself.
    pub request: Option<RequestId>,
    /// Whether it ran out once already and lives on in its queue's period of grace.
    pub is_warned: bool,
}

/// A job as readers see it: the record, and the lease if one is live. With a lease the state
/// shown is `Running`, and `attempt` is the lease's.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredJob {
    /// The record of the job.
    pub record: JobRecord,
    /// The live lease; `None` if there is none.
    pub lease: Option<LeaseRecord>,
}

impl StoredJob {
    /// Puts a stored record and its lease together: a leased job shows as `Running`, with the
    /// numbers of the attempt that runs.
    pub fn new(mut record: JobRecord, lease: Option<LeaseRecord>) -> Self {
        if let Some(lease) = &lease {
            record.state = JobState::Running;
            record.attempt = lease.attempt;
            record.attempts_counted = lease.attempts_counted;
        }
        Self { record, lease }
    }
}
