//! A job as a document.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use ganger_types::job::LeaseRecord;
use ganger_types::{
    Due, JobState, PageCursor, Priority, Progress, RetryPolicy, ShardId, StoredJob,
};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::names::{full_name, text};
use crate::one_of::{StateWord, word};
use crate::retry::{RetryDocument, as_document};
use crate::time::{Moment, Span, calendar, moment, moment_if_any, seconds, span_if_any};
use crate::view::history::HistoryEntry;
use crate::view::{as_number, labels, texts};

/// Bytes of a failure message in a summary.
pub const SUMMARY_MESSAGE_BYTES: usize = 200;

/// A job without its payload, inputs, result and log.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Job {
    /// Id of the job, unique in its namespace.
    pub id: String,
    /// Global name of the job, `shard/id`: the same for every server.
    pub r#ref: String,
    /// Number of the job in its shard, in order of creation.
    pub number: u64,
    /// Name that its submission gave the job. Not unique; absent if it gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Shard that holds the job.
    pub shard: String,
    /// Namespace that owns the job.
    pub namespace: String,
    /// Queue of the job.
    pub queue: String,
    /// Kind of the job: the program that runs it.
    pub kind: String,
    /// State of the job.
    #[serde(serialize_with = "word")]
    #[schema(value_type = StateWord)]
    pub state: JobState,
    /// Priority of the job: smaller runs first.
    #[serde(serialize_with = "as_number")]
    #[schema(value_type = f64)]
    pub priority: Priority,
    /// Time at which the job was enqueued.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub created_at: SystemTime,
    /// Earliest start, while the job is scheduled.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub run_at: Option<SystemTime>,
    /// Time after which no attempt is started; absent: none.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub deadline: Option<SystemTime>,
    /// Maximum time of one attempt; absent: no limit.
    #[serde(
        serialize_with = "span_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Span>)]
    pub timeout: Option<Duration>,
    /// Retry policy of the job.
    #[serde(serialize_with = "as_document")]
    #[schema(value_type = RetryDocument)]
    pub retry: RetryPolicy,
    /// Number of the last attempt; 0 before the first.
    pub attempt: u32,
    /// Attempts that count against the retries.
    pub attempts_counted: u32,
    /// Attempts that were given back without counting.
    pub releases: u32,
    /// Number of lease expirations in a row, or all of them if the retry policy limits them.
    pub lease_expirations: u32,
    /// Size of the payload in bytes.
    pub payload_bytes: u64,
    /// Number of positional inputs; 0: the payload alone is the input.
    pub inputs: u32,
    /// Tags of the job.
    pub tags: Vec<String>,
    /// Labels of the job: indexed key-value pairs.
    pub labels: BTreeMap<String, String>,
    /// Whether the job is tracked: it appears in the list of tracked jobs.
    pub tracked: bool,
    /// Graph that the job was submitted with; absent if it was submitted alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// Schedule that made the job; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Unique key of the job; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    /// Progress of the running or last attempt; absent if none was reported.
    #[serde(
        serialize_with = "progress_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<ProgressDocument>)]
    pub progress: Option<Progress>,
    /// Live lease of the job; absent unless it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// Last failure, also of a job that was retried since; absent if it never failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Time at which the job ended; absent while it is live.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub finished_at: Option<SystemTime>,
    /// Size of the result in bytes; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// What happened to the job, oldest first; empty in a brief listing.
    pub history: Vec<HistoryEntry>,
    /// Number of entries that were dropped from the middle of the history.
    pub history_dropped: u32,
    /// External system that the job belongs to: `qless`, or `keys` for raw keys; absent for jobs of ganger itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<String>,
}

/// How far a running job is, as a document.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Progress)]
pub struct ProgressDocument {
    /// Part that is done, from 0 to 1.
    fraction: f64,
    /// What the job is doing, for people.
    message: String,
}

/// The lease of a running job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Lease {
    /// Worker that holds the lease.
    pub worker: String,
    /// Number of the attempt that the lease stands for.
    pub attempt: u32,
    /// Time at which the lease was granted.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub granted_at: SystemTime,
    /// Time that each grant or renewal lasts; in documents in seconds.
    #[serde(rename = "lease_for_seconds", serialize_with = "seconds")]
    #[schema(value_type = f64)]
    pub lease_for: Duration,
}

/// Why a job or an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Failure {
    /// Group of the failure: failures of one cause share a group.
    pub group: String,
    /// Message of the failure, for people.
    pub message: String,
    /// Time of the failure.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub at: SystemTime,
    /// Worker whose attempt failed; absent if no attempt ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// A page of jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = JobPage)]
pub struct Page {
    /// Jobs of this page.
    pub jobs: Vec<Job>,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Whether all records up to the end of the page were looked at; absent without a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// Number of records that were looked at; absent without a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked_at: Option<u64>,
    /// Time at which the last record that was looked at was enqueued; absent if the page is complete.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub looked_back_to: Option<SystemTime>,
    /// Shards that could not be reached; absent if the list is of one shard or none is missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unreachable: Vec<String>,
}

/// A number of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct JobCount {
    /// Number of jobs that match the filters, as far as they were looked at.
    pub count: u64,
    /// Whether all jobs were looked at; if not, there may be more.
    pub exact: bool,
    /// Shards that could not be reached; absent if the count is of one shard or none is missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unreachable: Vec<String>,
}

impl Page {
    /// A page of the jobs of a shard.
    pub fn new(shard: &ShardId, jobs: Vec<StoredJob>, next: Option<PageCursor>) -> Self {
        Self {
            jobs: jobs.into_iter().map(|job| Job::new(shard, job)).collect(),
            next: next.map(|cursor| cursor.to_string()),
            ..Self::default()
        }
    }
}

impl Job {
    /// The document without the fields that only some readers need, and with a failure message of at most 200 bytes.
    pub fn into_summary(mut self) -> serde_json::Value {
        self.history.clear();
        if let Some(failure) = &mut self.failure {
            let end = failure.message.floor_char_boundary(SUMMARY_MESSAGE_BYTES);
            failure.message.truncate(end);
        }
        let mut document = serde_json::to_value(&self).unwrap_or_default();
        if let Some(fields) = document.as_object_mut() {
            for name in ["history", "history_dropped", "retry"] {
                fields.remove(name);
            }
        }
        document
    }

    /// The document of a job of a shard. If the start was given as a delay, its calendar time is not known and
    /// `run_at` is absent.
    pub fn new(shard: &ShardId, job: StoredJob) -> Self {
        let StoredJob { record, lease } = job;
        let run_at = match record.due {
            Some(Due::Wall(at)) if record.state == JobState::Scheduled => Some(calendar(at)),
            _ => None,
        };
        let finished = record.finished.as_ref();
        Self {
            id: text(record.id.as_bytes()),
            r#ref: full_name(shard, &record.id),
            number: record.key.0,
            name: record.name.map(|name| text(name.as_bytes())),
            shard: shard.to_string(),
            namespace: text(record.namespace.as_bytes()),
            queue: text(record.queue.as_bytes()),
            kind: text(record.kind.as_bytes()),
            state: record.state,
            priority: record.priority,
            created_at: calendar(record.created_at),
            run_at,
            deadline: record.deadline.map(calendar),
            timeout: record.timeout,
            retry: record.retry,
            attempt: record.attempt,
            attempts_counted: record.attempts_counted,
            releases: record.releases,
            lease_expirations: record.lease_expirations,
            payload_bytes: record.payload_bytes,
            inputs: record.inputs,
            tags: texts(&record.tags),
            labels: labels(&record.labels),
            tracked: record.tracked,
            graph: record.graph.map(|graph| text(graph.as_bytes())),
            schedule: record.schedule.map(|schedule| text(schedule.as_bytes())),
            unique_key: record.unique.map(|key| text(key.as_bytes())),
            progress: record.progress,
            lease: lease.map(Into::into),
            failure: record.failure.map(Into::into),
            finished_at: finished.map(|finished| calendar(finished.at)),
            result_bytes: finished.and_then(|finished| finished.result_bytes),
            history: record.history.into_iter().map(Into::into).collect(),
            history_dropped: record.history_dropped,
            kept_by: record.key.kept_by().map(str::to_owned),
        }
    }
}

impl From<LeaseRecord> for Lease {
    fn from(lease: LeaseRecord) -> Self {
        Self {
            worker: text(lease.worker.as_bytes()),
            attempt: lease.attempt,
            granted_at: calendar(lease.granted_at),
            lease_for: lease.lease_for,
        }
    }
}

impl From<ganger_types::Failure> for Failure {
    fn from(failure: ganger_types::Failure) -> Self {
        Self {
            group: text(failure.group.as_bytes()),
            message: failure.message,
            at: calendar(failure.at),
            worker: failure.worker.map(|worker| text(worker.as_bytes())),
        }
    }
}

impl From<&Progress> for ProgressDocument {
    fn from(progress: &Progress) -> Self {
        Self {
            fraction: f64::from(progress.millionths) / 1e6,
            message: progress.message.clone(),
        }
    }
}

/// For `#[serde(serialize_with)]`: progress as a document.
pub(crate) fn as_progress<S: Serializer>(
    progress: &Progress,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    ProgressDocument::from(progress).serialize(serializer)
}

#[expect(clippy::ref_option, reason = "serde passes fields by reference")]
pub(crate) fn progress_if_any<S: Serializer>(
    progress: &Option<Progress>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let document = progress.as_ref().map(ProgressDocument::from);
    document.serialize(serializer)
}
