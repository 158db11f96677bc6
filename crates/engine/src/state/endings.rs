//! A job that has just ended.

use ganger_types::{Graph, JobId, JobKey, Namespace, Outcome};

/// A job that has ended and whose dependents and dependencies are to be told.
pub(crate) struct EndedJob {
    pub key: JobKey,
    pub id: JobId,
    pub outcome: Outcome,
    pub graph: Option<Graph>,
    pub namespace: Namespace,
    pub has_result: bool,
}
