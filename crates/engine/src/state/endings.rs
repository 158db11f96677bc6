//! Jobs that have just ended.

use ganger_types::{Graph, JobId, JobKey, Namespace, Outcome};

/// An ended job whose dependents and dependencies are still to be handled.
pub(crate) struct EndedJob {
    pub key: JobKey,
    pub id: JobId,
    pub outcome: Outcome,
    pub graph: Option<Graph>,
    pub namespace: Namespace,
    pub has_result: bool,
}
