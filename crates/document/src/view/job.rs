//! A job as a document.

use std::collections::BTreeMap;

use ganger_types::job::LeaseRecord;
use ganger_types::{Due, Failure, JobState, PageCursor, ShardId, StoredJob, Timestamp};
use serde::Serialize;
use serde_json::Number;
use utoipa::ToSchema;

use crate::names::{
    CalledName, GraphName, GroupName, JobName, KindName, Named, NamespaceName, QueueName,
    ScheduleName, TagName, UniqueName, WorkerName, full_name,
};
use crate::retry::RetryDocument;
use crate::time::{Moment, Span};
use crate::view::history::{HistoryView, history};
use crate::view::{labels, priority, tags};

/// A job, but for its payload, inputs, result and log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub struct JobView {
    /// Its id within the namespace.
    id: JobName,
    /// Its global name, `shard/id`.
    r#ref: String,
    /// How its submission called it, if it had a name. Not unique.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<CalledName>,
    /// The shard that holds it.
    shard: String,
    /// Namespace that owns the job.
    namespace: NamespaceName,
    /// Where it lines up.
    queue: QueueName,
    /// Which program runs it.
    kind: KindName,
    /// blocked, scheduled, ready, running, succeeded, failed, cancelled.
    state: &'static str,
    /// Priority of the job: smaller runs first.
    #[schema(value_type = f64)]
    priority: Number,
    /// When it was enqueued.
    created_at: Moment,
    /// When it is to run, while it is scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Moment>,
    /// Never started, and never tried again, after this.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Moment>,
    /// How long one attempt may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    /// How it is tried again.
    retry: RetryDocument,
    /// Number of the last attempt, 0 before the first.
    attempt: u32,
    /// Attempts that count against the retries.
    attempts_counted: u32,
    /// How often it was given back without counting.
    releases: u32,
    /// Bytes of the payload.
    payload_bytes: u64,
    /// Number of positional inputs; 0: the payload alone is the input.
    inputs: u32,
    /// Tags of the job.
    tags: Vec<TagName>,
    /// Labels of the job: indexed key-value pairs.
    labels: BTreeMap<String, String>,
    /// Whether somebody follows it.
    tracked: bool,
    /// The graph it was submitted with.
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<GraphName>,
    /// The schedule that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<ScheduleName>,
    /// Under which unique key it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_key: Option<UniqueName>,
    /// How far the running or last attempt got.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<ProgressView>,
    /// Who holds it, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseView>,
    /// The last failure, also of a job that was tried again since.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureView>,
    /// Time at which the job ended; absent while it is live.
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Moment>,
    /// Bytes of its result, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    result_bytes: Option<u64>,
    /// What happened, oldest first.
    history: Vec<HistoryView>,
    /// Entries that fell out of the middle of the history.
    history_dropped: u32,
    /// Whose rules it goes by if it is none of ours: `qless`, or `keys`, which is the clients of raw keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_by: Option<&'static str>,
}

/// How far a job is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Progress)]
pub struct ProgressView {
    /// From 0 to 1.
    fraction: f64,
    /// What it is doing.
    message: String,
}

/// Who holds a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lease)]
struct LeaseView {
    /// Worker that holds the lease.
    worker: WorkerName,
    /// Time at which the lease was granted.
    granted_at: Moment,
    /// How long each grant or renewal lasts, in seconds.
    lease_for_seconds: f64,
}

/// Why a job failed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Failure)]
struct FailureView {
    /// Failures of one cause share a group.
    group: GroupName,
    /// Message of the failure, for people.
    message: String,
    /// Time of the failure.
    at: Moment,
    /// Whose attempt it was, if one was running.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerName>,
}

/// A page of jobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = JobPage)]
pub struct PageView {
    /// Jobs of this page.
    pub jobs: Vec<JobView>,
    /// Give this as `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Converts a page of jobs.
pub fn page(shard: &ShardId, jobs: Vec<StoredJob>, next: Option<PageCursor>) -> PageView {
    PageView {
        jobs: jobs.into_iter().map(|job| view(shard, job)).collect(),
        next: next.map(|cursor| cursor.to_string()),
    }
}

/// Converts the progress of a running job.
pub fn progress(progress: &ganger_types::Progress) -> ProgressView {
    ProgressView {
        fraction: f64::from(progress.millionths) / 1e6,
        message: progress.message.clone(),
    }
}

/// A job. A start given as a delay is not known in calendar time here; `run_at` is then absent.
pub fn view(shard: &ShardId, job: StoredJob) -> JobView {
    let StoredJob { record, lease } = job;
    let run_at = match record.due {
        Some(Due::Wall(at)) if record.state == JobState::Scheduled => Some(Moment(at)),
        _ => None,
    };
    JobView {
        r#ref: full_name(shard, &record.id),
        shard: shard.to_string(),
        state: record.state.as_str(),
        priority: priority(record.priority),
        created_at: Moment(record.created_at),
        run_at,
        deadline: record.deadline.map(Moment),
        timeout: record.timeout.map(Span),
        retry: (&record.retry).into(),
        attempt: record.attempt,
        attempts_counted: record.attempts_counted,
        releases: record.releases,
        payload_bytes: record.payload_bytes,
        inputs: record.inputs,
        tags: tags(&record.tags),
        labels: labels(&record.labels),
        tracked: record.tracked,
        progress: record.progress.as_ref().map(progress),
        lease: lease.map(lease_view),
        failure: record.failure.map(failure),
        finished_at: record.finished.as_ref().map(|finished| Moment(finished.at)),
        result_bytes: record
            .finished
            .as_ref()
            .and_then(|finished| finished.result_bytes),
        history: history(record.history),
        history_dropped: record.history_dropped,
        kept_by: record.key.kept_by(),
        name: record.name.map(Named),
        id: Named(record.id),
        namespace: Named(record.namespace),
        queue: Named(record.queue),
        kind: Named(record.kind),
        graph: record.graph.map(Named),
        schedule: record.schedule.map(Named),
        unique_key: record.unique.map(Named),
    }
}

impl JobView {
    /// Fills in when a job scheduled by a delay is expected to run.
    pub fn expected_at(&mut self, at: Timestamp) {
        self.run_at.get_or_insert(Moment(at));
    }
}

fn lease_view(lease: LeaseRecord) -> LeaseView {
    LeaseView {
        worker: Named(lease.worker),
        granted_at: Moment(lease.granted_at),
        lease_for_seconds: lease.lease_for.as_secs_f64(),
    }
}

fn failure(failure: Failure) -> FailureView {
    FailureView {
        group: Named(failure.group),
        message: failure.message,
        at: Moment(failure.at),
        worker: failure.worker.map(Named),
    }
}
