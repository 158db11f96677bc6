//! Jobs to submit, and the answers to submissions.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{FailurePolicy, KeepFor, RetryPolicy};

/// A job to enqueue.
///
/// ```
/// use ganger_client::NewJob;
///
/// let job = NewJob::new("resize").payload(r#"{"width": 640}"#).priority(-10).tag("photos");
/// assert_eq!(job.queue, "default");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewJob {
    /// Id of the job; `None` for one that the server makes.
    pub id: Option<String>,
    /// Shard of the job; `None` for the shard that its id names, or else the shard that gets the call.
    pub shard: Option<String>,
    /// Name within the submission, for [`Dependency::Name`] and for people; empty for none. It is stored with the job.
    pub name: String,
    /// Queue that the job enters.
    pub queue: String,
    /// Kind of the job: the program that runs it.
    pub kind: String,
    /// Opaque bytes for the program, stored unchanged.
    pub payload: Bytes,
    /// Positional inputs; if there are none, the payload is the only input.
    pub inputs: Vec<Input>,
    /// Jobs that must end first, whose results are not inputs.
    pub after: Vec<Edge>,
    /// Priority of the job: smaller runs first.
    pub priority: i64,
    /// Earliest start of the job.
    pub start: Start,
    /// Time after which no attempt starts; `None` for no deadline.
    pub deadline: Option<SystemTime>,
    /// Longest run of one attempt; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Retry policy; `None` for that of the queue.
    pub retry: Option<RetryPolicy>,
    /// Tags of the job.
    pub tags: Vec<String>,
    /// Labels of the job: indexed key-value pairs.
    pub labels: Vec<(String, String)>,
    /// Whether the job is listed among the tracked jobs.
    pub tracked: bool,
    /// Unique key of the job; `None` for none.
    pub unique: Option<Unique>,
    /// Retention after success; `None` for the queue's setting.
    pub keep_succeeded: Option<KeepFor>,
    /// Retention after failure or cancellation; `None` for the queue's setting.
    pub keep_failed: Option<KeepFor>,
}

impl NewJob {
    /// Creates a job of this kind in the queue `default`.
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

    /// Sets the name of the job within its submission.
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

    /// Sets the earliest start of the job.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Sets the longest run of one attempt.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the retry policy.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Adds a tag to the job.
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

/// The earliest start of a job.
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

/// A key that at most one job has at a time. Enqueueing a second job with the key returns the id of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    /// The key, within the namespace.
    pub key: String,
    /// Time for which the key stays taken after the first job was enqueued; `None` for as long as that job is live.
    pub window: Option<Duration>,
}

/// The job that a dependency names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// The job at this index of the same submission.
    Member(u32),
    /// The job of this name in the same submission.
    Name(String),
    /// The id of a job that exists.
    Job(String),
}

/// One positional input of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A value, as the bytes that the program gets.
    Value(Bytes),
    /// The result of a job.
    Result(Edge),
}

/// A dependency on a job, and what the failure of that job means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The job that must end first.
    pub dependency: Dependency,
    /// What happens to the dependent if the job fails.
    pub policy: FailurePolicy,
}

impl Edge {
    /// Creates a dependency whose failure fails the dependent.
    pub fn on(dependency: Dependency) -> Self {
        Self {
            dependency,
            policy: FailurePolicy::Fail,
        }
    }
}

/// The answer to a submission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The enqueued jobs, in the order of the submission.
    pub jobs: Vec<Enqueued>,
    /// Id of the graph; `None` if the jobs form none.
    pub graph: Option<String>,
    /// Whether this is the answer of an earlier submission under the same key.
    pub repeat: bool,
}

/// An enqueued job. Its `Display` is the global id `shard/id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Final id of the job.
    pub id: String,
    /// Name of the job within the submission; empty if it has none.
    pub name: String,
    /// Shard of the job.
    pub shard: String,
    /// Whether a job with the same id or unique key existed already, and is the one returned.
    pub existed: bool,
}

impl fmt::Display for Enqueued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shard, self.id)
    }
}
