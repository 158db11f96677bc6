//! The result of a change of many jobs, or of a dry run.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::Serialize;
use utoipa::ToSchema;

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
