//! The result of a change of jobs, or of a dry run.

use std::collections::BTreeMap;
use std::time::SystemTime;

use ganger_types::ShardId;
use ganger_types::cancel_effects;
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::full_name;
use crate::time::{Moment, moment_if_any};

/// The result of a change of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Changed {
    /// Number of jobs that were changed.
    pub changed: u64,
    /// Number of jobs that do not exist, or whose state does not allow the change.
    pub skipped: u64,
    /// The first of the skipped jobs, as `shard/id`.
    pub skipped_jobs: Vec<String>,
    /// Of a retry with dependents by ids: the retried jobs that the caller did not name; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub dependents: Vec<String>,
    /// Of a retry with dependents or of a graph: the shards that are asked to retry jobs of theirs; one that cannot
    /// be reached is asked later. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub passed_on: Vec<String>,
    /// Value of `after` to continue; absent if all jobs of the filter were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The result of a dry run of a change of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct WouldChange {
    /// Number of jobs that it would change.
    pub would_change: u64,
    /// Number of jobs that do not exist, or whose state does not allow the change.
    pub would_skip: u64,
    /// Whether exactly these would change; otherwise jobs that depend on them may prevent it.
    pub exact: bool,
    /// Jobs that it would change, by state.
    pub by_state: BTreeMap<String, u64>,
    /// Jobs that it would change, by queue: the first 100 queues.
    pub by_queue: BTreeMap<String, u64>,
    /// Number of jobs that it would change in further queues; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_queues: Option<u64>,
    /// The first of the jobs that it would change, as `shard/id`.
    pub sample: Vec<String>,
    /// Time of the dry run.
    #[serde(serialize_with = "moment_if_any")]
    #[schema(value_type = Moment)]
    pub as_of: Option<SystemTime>,
    /// Value of `after` to continue; absent if all jobs of the filter were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The consequences that the cancellation of a job would have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CancelEffects {
    /// Whether the job would be cancelled; if not, it has ended.
    pub would_change: bool,
    /// State of the job now.
    #[schema(value_type = String)]
    pub state: &'static str,
    /// Jobs that would be cancelled with it, because no job of their graph would need them any more.
    pub cancelled: AffectedJobs,
    /// Jobs that would fail, because they wait for one that would be cancelled or fail.
    pub failed: AffectedJobs,
    /// Jobs that would wait until one that would be cancelled or fail is retried.
    pub waiting: AffectedJobs,
    /// Jobs that would go on without the result, because their dependency ignores that there is none.
    pub continuing: AffectedJobs,
    /// Number of dependencies of jobs on other shards that would be notified.
    pub elsewhere: u64,
    /// Whether all consequences on this shard were found; otherwise the numbers are lower bounds.
    pub complete: bool,
}

/// Jobs that a cancellation would affect in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct AffectedJobs {
    /// Number of the jobs.
    pub count: u64,
    /// The first of the jobs, at most 100, as `shard/id`.
    pub jobs: Vec<String>,
}

impl CancelEffects {
    /// The document about a job of this shard.
    pub fn new(shard: &ShardId, effects: &cancel_effects::CancelEffects) -> Self {
        let affected = |jobs: &cancel_effects::AffectedJobs| AffectedJobs {
            count: jobs.count,
            jobs: jobs.jobs.iter().map(|id| full_name(shard, id)).collect(),
        };
        Self {
            would_change: !effects.state.is_terminal(),
            state: effects.state.as_str(),
            cancelled: affected(&effects.cancelled),
            failed: affected(&effects.failed),
            waiting: affected(&effects.waiting),
            continuing: affected(&effects.continuing),
            elsewhere: effects.elsewhere,
            complete: effects.is_complete,
        }
    }
}
