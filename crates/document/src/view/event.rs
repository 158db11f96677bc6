//! Events as documents.

use std::time::SystemTime;

use ganger_types::{self as types, JobState, Progress, ShardId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::{full_name, text};
use crate::one_of::{StateWord, word, word_if_any};
use crate::time::{Moment, calendar, moment};
use crate::view::job::{ProgressDocument, as_progress};

/// Events that are read back at once, unless the request says otherwise.
pub const PAST_DEFAULT: u32 = 100;
/// Most events that are read back at once.
pub const PAST_MAX: u32 = 1_000;
/// Most events that are looked at to read some back.
pub const PAST_LOOKED_MAX: u64 = 20_000;

/// Words for the kinds of events.
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

/// An event of a shard.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Event {
    /// Position of the event: consecutive within a shard.
    pub position: u64,
    /// Time of the event.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub at: SystemTime,
    /// Namespace in which the event happened.
    pub namespace: String,
    /// What the event reports; its kind is the field `event`.
    #[serde(flatten)]
    pub happening: Happening,
}

/// What an event reports.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happening {
    /// A job was enqueued, or changed its state or queue.
    JobMoved(JobMoved),
    /// A running job reported progress.
    JobProgressed {
        /// The job, as `shard/id`.
        job: String,
        /// Number of the job in its shard.
        number: u64,
        /// Progress that the job reported.
        #[serde(serialize_with = "as_progress")]
        #[schema(value_type = ProgressDocument)]
        progress: Progress,
    },
    /// A worker appended to the log of a running job.
    LogAppended {
        /// Number of the job in its shard.
        number: u64,
        /// Number of the attempt that wrote.
        attempt: u32,
        /// Length of the attempt's log now, in bytes.
        bytes: u64,
    },
    /// A job was removed, by retention or by a client.
    JobRemoved {
        /// The job, as `shard/id`.
        job: String,
        /// Number of the job in its shard.
        number: u64,
        /// Queue that the job was in.
        queue: String,
    },
    /// A queue was paused or resumed, or its settings changed.
    QueueChanged {
        /// Name of the queue.
        queue: String,
        /// Whether it is paused now.
        paused: bool,
    },
    /// A schedule was created, changed or removed.
    ScheduleChanged {
        /// Name of the schedule.
        schedule: String,
    },
    /// A worker was seen for the first time.
    WorkerSeen {
        /// Name of the worker.
        worker: String,
    },
    /// A worker deregistered or was silent for too long.
    WorkerGone {
        /// Name of the worker.
        worker: String,
    },
}

/// A change of a job's state or queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct JobMoved {
    /// The job, as `shard/id`.
    pub job: String,
    /// Number of the job in its shard.
    pub number: u64,
    /// Queue of the job.
    pub queue: String,
    /// Kind of the job: the program that runs it.
    pub kind: String,
    /// State before the event; absent if the job is new.
    #[serde(
        serialize_with = "word_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<StateWord>)]
    pub from: Option<JobState>,
    /// State of the job after the event.
    #[serde(serialize_with = "word")]
    #[schema(value_type = StateWord)]
    pub to: JobState,
    /// Number of the job's last attempt; 0 before the first.
    pub attempt: u32,
    /// Worker that held or holds the job; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Failure group, or the reason of a release, an expiration or a cancellation; empty, and absent in documents, if
    /// there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    pub reason: String,
}

/// The word for the kind of an event.
pub fn kind(happening: &types::Happening) -> &'static str {
    let place = match happening {
        types::Happening::JobMoved { .. } => 0,
        types::Happening::JobProgressed { .. } => 1,
        types::Happening::LogAppended { .. } => 2,
        types::Happening::JobRemoved { .. } => 3,
        types::Happening::QueueChanged { .. } => 4,
        types::Happening::ScheduleChanged { .. } => 5,
        types::Happening::WorkerSeen { .. } => 6,
        types::Happening::WorkerGone { .. } => 7,
    };
    KINDS[place]
}

impl Event {
    /// The document of an event of a shard.
    pub fn new(shard: &ShardId, event: types::Event) -> Self {
        Self {
            position: event.position.0,
            at: calendar(event.at),
            namespace: text(event.namespace.as_bytes()),
            happening: happening(shard, event.happening),
        }
    }
}

fn happening(shard: &ShardId, happening: types::Happening) -> Happening {
    match happening {
        types::Happening::JobMoved {
            key,
            job,
            queue,
            kind,
            from,
            to,
            attempt,
            worker,
            reason,
        } => Happening::JobMoved(JobMoved {
            job: full_name(shard, &job),
            number: key.0,
            queue: text(queue.as_bytes()),
            kind: text(kind.as_bytes()),
            from,
            to,
            attempt,
            worker: worker.map(|worker| text(worker.as_bytes())),
            reason,
        }),
        types::Happening::JobProgressed { key, job, progress } => Happening::JobProgressed {
            job: full_name(shard, &job),
            number: key.0,
            progress,
        },
        types::Happening::LogAppended {
            key,
            attempt,
            bytes,
        } => Happening::LogAppended {
            number: key.0,
            attempt,
            bytes,
        },
        types::Happening::JobRemoved { key, job, queue } => Happening::JobRemoved {
            job: full_name(shard, &job),
            number: key.0,
            queue: text(queue.as_bytes()),
        },
        types::Happening::QueueChanged { queue, paused } => Happening::QueueChanged {
            queue: text(queue.as_bytes()),
            paused,
        },
        types::Happening::ScheduleChanged { schedule } => Happening::ScheduleChanged {
            schedule: text(schedule.as_bytes()),
        },
        types::Happening::WorkerSeen { worker } => Happening::WorkerSeen {
            worker: text(worker.as_bytes()),
        },
        types::Happening::WorkerGone { worker } => Happening::WorkerGone {
            worker: text(worker.as_bytes()),
        },
    }
}
