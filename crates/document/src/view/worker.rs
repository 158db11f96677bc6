//! A worker as a document.

use std::time::SystemTime;

use ganger_types::observed::ObservedWorker;
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::{WorkerName, text};
use crate::time::{Moment, calendar, moment, moment_if_any};

/// Worker, the jobs that it holds, and what is known of it since the start of its shard.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Worker {
    /// Name of the worker.
    pub worker: String,
    /// Time of its last request.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub seen_at: SystemTime,
    /// Jobs that the worker holds a lease on.
    pub holds: Vec<HeldJob>,
    /// `busy`: it holds jobs; `idle`: it holds none; `silent`: no request for three times the length of its
    /// leases.
    pub state: String,
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
    /// Number of jobs that it still takes: `slots`, less the jobs granted since; absent if it has asked for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_slots: Option<u32>,
    /// Time of its first request; absent if it has asked for no jobs since the start.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub since: Option<SystemTime>,
    /// Number of its attempts that succeeded.
    pub completed: u64,
    /// Number of its attempts that succeeded per minute, over the last five minutes or since its first request.
    pub completed_per_minute: f64,
    /// Number of its attempts that failed.
    pub failed: u64,
    /// Number of its leases that expired.
    pub lost: u64,
    /// Shard that tells this; absent unless the list is of all shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
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
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<WorkerName>,
}

impl From<ObservedWorker> for Worker {
    fn from(observed: ObservedWorker) -> Self {
        let view = observed.view;
        let holds = view.holds.into_iter();
        let holds = holds.map(|(job, queue, kind, leased_at)| HeldJob {
            job: text(job.as_bytes()),
            queue: text(queue.as_bytes()),
            kind: text(kind.as_bytes()),
            leased_at: calendar(leased_at),
        });
        let asked = observed.facts.as_ref();
        let (slots, free_slots) = (asked.map(|it| it.slots), asked.map(|it| it.free_slots));
        let since = asked.map(|it| calendar(it.since));
        let facts = observed.facts.unwrap_or_default();
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        let queues = facts.queues.iter();
        let completed_per_minute = facts.completed_per_minute();
        Self {
            worker: text(view.worker.as_bytes()),
            seen_at: calendar(view.seen_at),
            holds: holds.collect(),
            state: observed.state.as_str().to_owned(),
            address: some(facts.address),
            version: some(facts.version),
            queues: queues.map(|queue| text(queue.as_bytes())).collect(),
            slots,
            free_slots,
            since,
            completed: facts.completed,
            completed_per_minute,
            failed: facts.failed,
            lost: facts.lost,
            shard: None,
        }
    }
}
