//! Jobs: as submitted, and as shown.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{FailurePolicy, KeepFor, RetryPolicy};

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
