//! Commits that are durable in a log and not in the tables yet: the queue of them, and reads of one job over it.
//!
//! A store that writes rows later than it acknowledges commits keeps them here meanwhile.

mod overlay;
mod queue;

use std::time::Duration;

pub use overlay::{JobOverlay, JobRows, Overlaid};
pub use queue::{CommitQueue, CommitsOfJob, RowWork};

/// Limits that decide when waiting commits are written into the tables.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Number of commits that wait.
    pub commits: usize,
    /// Number of changes in commits that wait.
    pub changes: usize,
    /// Bytes that waiting commits have in the log.
    pub bytes: u64,
    /// Time that a commit waits at most.
    pub age: Duration,
}
