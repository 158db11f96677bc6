//! Jobs: as submitted, and as shown.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{FailurePolicy, JobState, KeepFor, Progress, RetryPolicy};

/// A job to be.
///
/// ```
/// use ganger_client::NewJob;
///
/// let job = NewJob::new("resize").payload(r#"{"width": 640}"#).priority(-10).tag("photos");
/// assert_eq!(job.queue, "default");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewJob {
    /// Its id, if the client chooses it; else the server makes one.
    pub id: Option<String>,
    /// The shard that runs it; `None`: the one that its id names, or else the one that is asked.
    pub shard: Option<String>,
    /// Its name inside this submission, for [`Dependency::Name`] and for people; empty: none. Kept with the job.
    pub name: String,
    /// Where it lines up.
    pub queue: String,
    /// Which program runs it.
    pub kind: String,
    /// Opaque input, kept as sent.
    pub payload: Bytes,
    /// Positional inputs; without any, the payload alone is the input.
    pub inputs: Vec<Input>,
    /// Jobs to wait for without taking their results.
    pub after: Vec<Edge>,
    /// Priority of the job: smaller runs first.
    pub priority: i64,
    /// When it may run.
    pub start: Start,
    /// Never started, and never tried again, after this.
    pub deadline: Option<SystemTime>,
    /// How long one attempt may run.
    pub timeout: Option<Duration>,
    /// How it is tried again; `None`: as its queue says.
    pub retry: Option<RetryPolicy>,
    /// Tags of the job.
    pub tags: Vec<String>,
    /// Labels of the job: indexed key-value pairs.
    pub labels: Vec<(String, String)>,
    /// Whether to follow it.
    pub tracked: bool,
    /// At most one job under this key.
    pub unique: Option<Unique>,
    /// How long to keep it after success; `None`: as its queue says.
    pub keep_succeeded: Option<KeepFor>,
    /// How long to keep it after failure or cancellation, likewise.
    pub keep_failed: Option<KeepFor>,
}

impl NewJob {
    /// A job of this kind in the queue `default`.
    pub fn new(kind: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            queue: "default".into(),
            ..Self::default()
        }
    }

    /// Sets the queue that the job enters.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sets the payload of the job.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Names it within its submission.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds an input by value.
    #[must_use]
    pub fn value(mut self, value: impl Into<Bytes>) -> Self {
        self.inputs.push(Input::Value(value.into()));
        self
    }

    /// Adds an input that is the result of another job; its failure fails this one.
    #[must_use]
    pub fn result_of(mut self, dependency: Dependency) -> Self {
        self.inputs.push(Input::Result(Edge::on(dependency)));
        self
    }

    /// Waits for another job without taking its result; its failure fails this one.
    #[must_use]
    pub fn after(mut self, dependency: Dependency) -> Self {
        self.after.push(Edge::on(dependency));
        self
    }

    /// Sets the priority; smaller runs first.
    #[must_use]
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }

    /// Sets when it may run.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Sets how long one attempt may run.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets how it is tried again.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Puts a tag on it.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Sets a label of the job.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }
}

/// When a job may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// As soon as the job is enqueued.
    #[default]
    Now,
    /// After this delay from now.
    After(Duration),
    /// At a calendar time; one in the past is now.
    At(SystemTime),
}

/// At most one job under a key, for a while. A second one is answered with the first one's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    /// The key, within the namespace.
    pub key: String,
    /// So long after the first was enqueued; `None`: while it is live.
    pub window: Option<Duration>,
}

/// The job that a dependency names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// The job at this place of the same submission.
    Member(u32),
    /// The job of this name in the same submission.
    Name(String),
    /// The id of a job that exists.
    Job(String),
}

/// One positional input of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Bytes given by the caller.
    Value(Bytes),
    /// The result of a job.
    Result(Edge),
}

/// A dependency on a job, and what the failure of that job means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The job that must end first.
    pub dependency: Dependency,
    /// What its failure means.
    pub policy: FailurePolicy,
}

impl Edge {
    /// A dependency whose failure fails the dependent.
    pub fn on(dependency: Dependency) -> Self {
        Self {
            dependency,
            policy: FailurePolicy::Fail,
        }
    }
}

/// What was submitted, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// One for each job.
    pub jobs: Vec<Enqueued>,
    /// The graph, if it is one.
    pub graph: Option<String>,
    /// Whether this is the answer of an earlier submission under the same key.
    pub repeat: bool,
}

/// One enqueued job. Its `Display` is the global name, `shard/id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Final id of the job.
    pub id: String,
    /// Its name in the submission; empty if it had none.
    pub name: String,
    /// The shard that holds it.
    pub shard: String,
    /// Whether it was there already, by id or unique key.
    pub existed: bool,
}

impl fmt::Display for Enqueued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shard, self.id)
    }
}

/// A job as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Id of the job, unique in its namespace.
    pub id: String,
    /// The shard that holds it.
    pub shard: String,
    /// How its submission called it; `None` if it had no name. Not unique.
    pub name: Option<String>,
    /// Its number in the shard, in order of creation.
    pub number: u64,
    /// Namespace that owns the job.
    pub namespace: String,
    /// Where it lines up.
    pub queue: String,
    /// Which program runs it.
    pub kind: String,
    /// State of the job.
    pub state: JobState,
    /// Priority of the job: smaller runs first.
    pub priority: i64,
    /// When it was enqueued.
    pub created_at: SystemTime,
    /// When it may run at the earliest, if it waits for a calendar time.
    pub run_at: Option<SystemTime>,
    /// Never started after this.
    pub deadline: Option<SystemTime>,
    /// How long one attempt may run.
    pub timeout: Option<Duration>,
    /// How it is tried again.
    pub retry: RetryPolicy,
    /// Number of the last attempt, 0 before the first.
    pub attempt: u32,
    /// Attempts that count against the retries.
    pub attempts_counted: u32,
    /// Grants given back without counting.
    pub releases: u32,
    /// Leases that ran out in a row.
    pub lease_expirations: u32,
    /// Bytes of the payload.
    pub payload_bytes: u64,
    /// Number of positional inputs.
    pub inputs: u32,
    /// The last failure, also of a job that was tried again since.
    pub failure: Option<Failure>,
    /// The graph it was submitted with.
    pub graph: Option<String>,
    /// Tags of the job.
    pub tags: Vec<String>,
    /// Labels of the job: indexed key-value pairs.
    pub labels: Vec<(String, String)>,
    /// Whether somebody follows it.
    pub tracked: bool,
    /// Under which unique key it stands.
    pub unique: Option<String>,
    /// The schedule that made it.
    pub schedule: Option<String>,
    /// How far the running or last attempt got.
    pub progress: Option<Progress>,
    /// The live lease, while it runs.
    pub lease: Option<LeaseView>,
    /// How it ended; `None` while it lives.
    pub finished: Option<Finished>,
    /// What happened, oldest first; empty in a brief listing.
    pub history: Vec<HistoryEntry>,
    /// Entries that fell out of the middle of the history.
    pub history_dropped: u32,
    /// Whose rules it goes by if it was not enqueued: `qless`, or `keys`, which is the clients of raw keys.
    pub kept_by: Option<String>,
}

impl Job {
    /// The name by which every server finds it: `shard/id`.
    pub fn global_id(&self) -> String {
        format!("{}/{}", self.shard, self.id)
    }
}

/// Why a job or an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Failures of one cause share a group.
    pub group: String,
    /// Message of the failure, for people.
    pub message: String,
    /// Time of the failure.
    pub at: SystemTime,
    /// Whose attempt it was, if one was running.
    pub worker: Option<String>,
}

/// A live lease as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Worker that holds the lease.
    pub worker: String,
    /// The attempt it stands for.
    pub attempt: u32,
    /// When it was granted.
    pub granted_at: SystemTime,
    /// How long each grant or renewal lasts.
    pub lease_for: Duration,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Final state: succeeded, failed or cancelled.
    pub outcome: JobState,
    /// Time at which the job ended.
    pub at: SystemTime,
    /// Bytes of the result; `None` if there is none.
    pub result_bytes: Option<u64>,
}

/// One line of a job's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Time of the entry.
    pub at: SystemTime,
    /// What: `enqueued`, `attempt`, `failed`, `cancelled`, `retried`, `timed_out_by_hand`, `note`.
    pub what: String,
    /// The queue, group, reason or headline that belongs to it; may be empty.
    pub detail: String,
    /// For an attempt: its number, holder and end.
    pub attempt: Option<AttemptView>,
    /// For a note: any more, as JSON text; may be empty.
    pub data: String,
}

/// An attempt that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptView {
    /// Its number, from 1.
    pub number: u32,
    /// Worker that held the lease.
    pub worker: String,
    /// When it was leased.
    pub leased_at: SystemTime,
    /// `succeeded`, `failed`, `expired`, `timed_out`, `released`, `cancelled`.
    pub end: String,
    /// The failure's group; empty if it is none.
    pub group: String,
    /// The failure's message, or the reason of a release.
    pub message: String,
    /// Whether the worker ruled retries out.
    pub permanent: bool,
    /// Whether a released attempt counts.
    pub counted: bool,
}
