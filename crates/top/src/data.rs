//! What the server answered: the data behind a screen.

use std::time::{Duration, SystemTime};

use ganger_client::{
    AttentionItem, Event, Explanation, GraphItem, Job, PeerView, QueueRates, QueueView, ServerInfo,
    Worker,
};
use serde::Serialize;

/// Everything that was asked for one frame.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// Namespace of the queues and jobs.
    pub namespace: String,
    /// The shards, the one that answers first.
    pub shards: Vec<Shard>,
    /// What needs attention, the worst first.
    pub attention: Vec<AttentionItem>,
    /// Rates of all queues together.
    pub total: Rates,
    /// Queues of all shards.
    pub queues: Vec<QueueRow>,
    /// What the caller may change.
    pub rights: Rights,
    /// The newest jobs that match, in the order of the server.
    pub jobs: Vec<Job>,
    /// Whether there are more jobs than listed.
    pub has_more_jobs: bool,
    /// Failure groups, those with the most jobs first.
    pub failures: Vec<FailureRow>,
    /// Workers of all shards.
    pub workers: Vec<WorkerRow>,
    /// The newest graphs, the newest first.
    pub graphs: Vec<GraphItem>,
    /// Whether there are more graphs than listed.
    pub has_more_graphs: bool,
    /// The job that is open; `None` on other screens.
    pub job: Option<Box<JobDetail>>,
    /// The newest events, oldest first.
    #[serde(skip)]
    pub events: Vec<EventRow>,
}

/// A shard, as its server describes it.
#[derive(Clone, Debug, Serialize)]
pub struct Shard {
    /// Name of the shard.
    pub shard: String,
    /// What the server answered; `None` if it did not.
    #[serde(skip)]
    pub info: Option<ServerInfo>,
    /// Health in one word: `ready`, `starting`, `full`, `stopped`, or `unreachable`.
    pub health: String,
    /// Number of jobs that have not ended; `None` without an answer.
    pub live_jobs: Option<u64>,
    /// Other shards for which messages wait, or that are known from earlier messages.
    #[serde(skip)]
    pub peers: Vec<PeerView>,
}

/// How fast jobs come and go.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Number of jobs enqueued in the last minute.
    pub enqueued_per_minute: u64,
    /// Number of jobs that succeeded in the last minute.
    pub succeeded_per_minute: u64,
    /// Number of jobs that failed in the last minute.
    pub failed_per_minute: u64,
    /// Number of jobs that ended in each of the last 10 minutes, oldest first.
    pub ended_by_minute: Vec<u64>,
    /// Seconds that 95 of 100 attempts of the last 10 minutes did not exceed; `None` if none ended.
    pub run_p95_seconds: Option<f64>,
}

impl Rates {
    /// Adds the rates of another shard. The larger of two quantiles is kept.
    pub fn add(&mut self, other: &Self) {
        self.enqueued_per_minute += other.enqueued_per_minute;
        self.succeeded_per_minute += other.succeeded_per_minute;
        self.failed_per_minute += other.failed_per_minute;
        let len = self.ended_by_minute.len().max(other.ended_by_minute.len());
        self.ended_by_minute.resize(len, 0);
        for (own, more) in self.ended_by_minute.iter_mut().zip(&other.ended_by_minute) {
            *own += more;
        }
        self.run_p95_seconds = match (self.run_p95_seconds, other.run_p95_seconds) {
            (Some(own), Some(more)) => Some(own.max(more)),
            (own, more) => own.or(more),
        };
    }
}

impl From<QueueRates> for Rates {
    fn from(rates: QueueRates) -> Self {
        Self {
            enqueued_per_minute: rates.enqueued,
            succeeded_per_minute: rates.succeeded,
            failed_per_minute: rates.failed,
            ended_by_minute: rates.ended_by_minute,
            run_p95_seconds: rates.run_p95.map(|span| span.as_secs_f64()),
        }
    }
}

/// A queue of a shard.
#[derive(Clone, Debug, Serialize)]
pub struct QueueRow {
    /// Name of the shard.
    pub shard: String,
    /// The queue with its settings and counts.
    #[serde(flatten)]
    pub view: QueueView,
    /// How fast it fills and empties; `None` if that was not asked.
    pub rates: Option<Rates>,
    /// Whether it has ready jobs and no worker.
    pub has_no_worker: bool,
}

/// What the caller may change in the namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rights {
    /// Whether the caller may cancel jobs.
    pub cancel: bool,
    /// Whether the caller may retry and delete jobs, and pause queues.
    pub operate: bool,
}

/// A failure group with its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureRow {
    /// Name of the group.
    pub group: String,
    /// Number of failed jobs that are kept.
    pub jobs: u64,
}

/// A worker of a shard.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerRow {
    /// Name of the shard.
    pub shard: String,
    /// The worker and the jobs that it holds.
    #[serde(flatten)]
    pub worker: Worker,
}

/// The job that is open, with what its screen shows.
#[derive(Clone, Debug, Serialize)]
pub struct JobDetail {
    /// The job with its history.
    pub job: Job,
    /// Why it does not run.
    pub why: Explanation,
    /// The end of its log, line by line.
    pub log: Vec<String>,
    /// Whether there is more log than was read so far.
    pub has_more_log: bool,
}

/// An event, or a number of events that were too many to list.
#[derive(Clone, Debug, PartialEq)]
pub enum EventRow {
    /// One event, as it happened.
    One(Box<Event>),
    /// So many more events of one second.
    More {
        /// Time of the first of them.
        at: SystemTime,
        /// Number of events that were left out.
        count: u64,
    },
}

/// What the feed reports to the screen.
#[derive(Debug)]
pub enum Update {
    /// The server answered; this is all it said.
    Data(Box<Snapshot>),
    /// The server did not answer, or answered with an error that may pass.
    Missed(String),
    /// An action was done, or refused: what to say.
    Said(String),
}

/// Returns the time from `at` to `now`; zero if the clock went back.
pub fn since(at: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(at).unwrap_or_default()
}
