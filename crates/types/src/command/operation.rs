//! Commands about operations, which act on all jobs that meet conditions.

use std::time::Duration;

use crate::cursor::PageCursor;
use crate::id::JobId;
use crate::name::Namespace;
use crate::operation::{JobFilter, OperationAction, OperationNumber};
use crate::time::Timestamp;

/// Starts an operation. The shard works through it page by page while other work goes on; it survives a restart.
#[derive(Clone, Debug, PartialEq)]
pub struct StartOperation {
    /// The namespace of the jobs.
    pub namespace: Namespace,
    /// What to do with each job.
    pub action: OperationAction,
    /// Conditions on the jobs; at least one. Jobs that are enqueued after the start are left out in any case.
    pub filter: JobFilter,
    /// Only jobs enqueued before this time; `None`: before the start.
    pub created_before: Option<Timestamp>,
    /// Maximum number of jobs to change, at least 1; `None`: no limit.
    pub at_most: Option<u64>,
    /// Time over which to spread the changes, at most [`crate::limits::OPERATION_SPREAD_MAX`]; `None`: as soon as
    /// possible.
    pub spread_over: Option<Duration>,
    /// Reason for people; may be empty.
    pub reason: String,
    /// Who starts the operation, for people; may be empty.
    pub by: String,
}

/// A step of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkOperation {
    /// The namespace of the operation.
    pub namespace: Namespace,
    /// Number of the operation.
    pub number: OperationNumber,
    /// What the host has found.
    pub step: OperationStep,
}

/// What the host has found for an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationStep {
    /// The number of jobs that meet the conditions.
    Counted(u64),
    /// A page of jobs.
    Page {
        /// Cursor of the operation when the page was read. The page is ignored if that is no longer the cursor.
        after: Option<PageCursor>,
        /// Ids of the jobs, in order; at most [`crate::limits::BULK_JOBS_MAX`].
        jobs: Vec<JobId>,
        /// Cursor of the next page; `None` if this is the last one.
        next: Option<PageCursor>,
    },
    /// The jobs cannot be read, for this reason; the operation ends.
    Failed(String),
}

/// Stops an operation. What it has done stays.
#[derive(Clone, Debug, PartialEq)]
pub struct StopOperation {
    /// The namespace of the operation.
    pub namespace: Namespace,
    /// Number of the operation.
    pub number: OperationNumber,
    /// Who stops it, for people; may be empty.
    pub by: String,
}
