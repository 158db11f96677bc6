//! A worker as a document.

use std::time::SystemTime;

use ganger_types::reply::WorkerView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::text;
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
    pub workers: Vec<Worker>,
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
