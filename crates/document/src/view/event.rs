//! Events as documents.

use ganger_types::{Event, Happening, ShardId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::full_name;
use crate::names::{KindName, Named, NamespaceName, QueueName, ScheduleName, WorkerName};
use crate::time::Moment;
use crate::view::job::ProgressDocument;

/// The words for what events tell.
pub const KINDS: [&str; 8] = [
    "job_moved",
    "job_progressed",
    "log_appended",
    "job_removed",
    "queue_changed",
    "schedule_changed",
    "worker_seen",
    "worker_gone",
];

/// An announcement. Fields that mean nothing for its kind are absent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub struct EventView {
    /// Its place: consecutive within a shard.
    position: u64,
    /// Time of the event.
    at: Moment,
    /// Namespace in which the event happened.
    namespace: NamespaceName,
    /// `job_moved`, `job_progressed`, `log_appended`, `job_removed`, `queue_changed`, `schedule_changed`,
    /// `worker_seen`, `worker_gone`.
    event: &'static str,
    /// The job, as `shard/id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// Name of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<QueueName>,
    /// Kind of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<KindName>,
    /// The state before; absent when it came into being.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'static str>,
    /// State of the job after the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'static str>,
    /// Number of the attempt, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// Name of the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerName>,
    /// Failure group, or reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Progress that the running job reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<ProgressDocument>,
    /// Length of the log now, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Whether the queue is paused now.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
    /// Name of the schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<ScheduleName>,
}

/// The word for what an event tells.
pub fn kind(happening: &Happening) -> &'static str {
    let place = match happening {
        Happening::JobMoved { .. } => 0,
        Happening::JobProgressed { .. } => 1,
        Happening::LogAppended { .. } => 2,
        Happening::JobRemoved { .. } => 3,
        Happening::QueueChanged { .. } => 4,
        Happening::ScheduleChanged { .. } => 5,
        Happening::WorkerSeen { .. } => 6,
        Happening::WorkerGone { .. } => 7,
    };
    KINDS[place]
}

/// The document of an event of this shard.
pub fn view(shard: &ShardId, event: Event) -> EventView {
    let mut view = EventView {
        position: event.position.0,
        at: Moment(event.at),
        namespace: Named(event.namespace),
        event: kind(&event.happening),
        job: None,
        queue: None,
        kind: None,
        from: None,
        to: None,
        attempt: None,
        worker: None,
        reason: None,
        progress: None,
        bytes: None,
        paused: None,
        schedule: None,
    };
    fill(&mut view, shard, event.happening);
    view
}

fn fill(view: &mut EventView, shard: &ShardId, happening: Happening) {
    match happening {
        Happening::JobMoved {
            job,
            queue,
            kind,
            from,
            to,
            attempt,
            worker,
            reason,
            ..
        } => {
            view.job = Some(full_name(shard, &job));
            view.queue = Some(Named(queue));
            view.kind = Some(Named(kind));
            view.from = from.map(ganger_types::JobState::as_str);
            view.to = Some(to.as_str());
            view.attempt = Some(attempt);
            view.worker = worker.map(Named);
            view.reason = (!reason.is_empty()).then_some(reason);
        }
        Happening::JobProgressed {
            job,
            progress: how_far,
            ..
        } => {
            view.job = Some(full_name(shard, &job));
            view.progress = Some((&how_far).into());
        }
        Happening::LogAppended { attempt, bytes, .. } => {
            view.attempt = Some(attempt);
            view.bytes = Some(bytes);
        }
        Happening::JobRemoved { job, queue, .. } => {
            view.job = Some(full_name(shard, &job));
            view.queue = Some(Named(queue));
        }
        Happening::QueueChanged { queue, paused } => {
            view.queue = Some(Named(queue));
            view.paused = Some(paused);
        }
        Happening::ScheduleChanged { schedule } => view.schedule = Some(Named(schedule)),
        Happening::WorkerSeen { worker } | Happening::WorkerGone { worker } => {
            view.worker = Some(Named(worker));
        }
    }
}
