//! A worker as a document.

use std::time::SystemTime;

use ganger_types::reply::WorkerView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::{WorkerName, text};
use crate::time::{Moment, calendar, moment};

/// Worker and the jobs that it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Worker {
    /// Name of the worker.
    pub worker: String,
    /// Time of its last request.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub seen_at: SystemTime,
    /// Jobs that the worker holds a lease on.
    pub holds: Vec<HeldJob>,
}

/// Worker, the jobs that it holds, and what is known of it since the start of its shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = WorkerRow)]
pub struct WorkerRow {
    /// Worker and the jobs that it holds.
    #[serde(flatten)]
    pub worker: Worker,
    /// `busy`: it holds jobs; `idle`: it holds none; `silent`: no request for three minutes.
    pub state: &'static str,
    /// Address from which it asked last; absent if not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Version of its program, from the header `User-Agent`; absent if not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Queues that its last request named.
    pub queues: Vec<String>,
    /// Maximum number of jobs that its last request asked for; absent if it has asked for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Time of its first request; absent if it has asked for no jobs since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
    /// Number of its attempts that succeeded.
    pub completed: u64,
    /// Number of its attempts that failed.
    pub failed: u64,
    /// Number of its leases that expired.
    pub lost: u64,
}

/// A job that a worker holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct HeldJob {
    /// Id of the job.
    pub job: String,
    /// Queue of the job.
    pub queue: String,
    /// Kind of the job: the program that runs it.
    pub kind: String,
    /// Time at which the job was leased.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub leased_at: SystemTime,
}

/// List of the workers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Workers)]
pub struct WorkersDoc {
    /// Workers in the order of their names.
    pub workers: Vec<WorkerRow>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<WorkerName>,
}

impl From<WorkerView> for Worker {
    fn from(view: WorkerView) -> Self {
        let holds = view.holds.into_iter();
        let holds = holds.map(|(job, queue, kind, leased_at)| HeldJob {
            job: text(job.as_bytes()),
            queue: text(queue.as_bytes()),
            kind: text(kind.as_bytes()),
            leased_at: calendar(leased_at),
        });
        Self {
            worker: text(view.worker.as_bytes()),
            seen_at: calendar(view.seen_at),
            holds: holds.collect(),
        }
    }
}
