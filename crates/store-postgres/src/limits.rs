//! Limits of an open store.

use std::time::Duration;

use ganger_store::waiting::QueueLimits;

/// Limits that decide when rows are written behind the log, and how large the log becomes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of waiting commits from which their rows are written.
    pub behind_bytes: u64,
    /// Changes in waiting commits from which their rows are written.
    pub behind_changes: usize,
    /// Time that a commit waits at most before its rows are written. The longer it waits, the more of its rows are
    /// replaced or removed by later commits and are never written.
    pub behind_for: Duration,
    /// Bytes of waiting commits from which the next commit waits.
    pub behind_bytes_max: u64,
    /// Bytes of commits whose rows are written in one transaction.
    pub checkpoint_bytes: u64,
    /// Bytes of a record in the log. A larger commit is written into the rows at once, which takes several times as long:
    /// turns of a shard under load must be smaller, and only very large graphs are not.
    pub record_bytes: usize,
    /// Changes of a commit in the log. A larger commit is written into the rows at once.
    pub record_changes: usize,
    /// Bytes of a log table from which the next one is used.
    pub slot_bytes: u64,
    /// Bytes of a record from which it is compressed.
    pub compressed_from: usize,
    /// Whether a thread of its own writes the rows. Without it they are written when somebody needs them, or when
    /// too much waits.
    pub has_row_thread: bool,
}

impl Limits {
    /// Returns the limits from which rows are written.
    pub(crate) fn queue(&self) -> QueueLimits {
        QueueLimits {
            commits: usize::MAX,
            changes: self.behind_changes,
            bytes: self.behind_bytes,
            age: self.behind_for,
        }
    }

    /// Returns the limits from which the next commit waits.
    pub(crate) fn backlog(&self) -> QueueLimits {
        QueueLimits {
            commits: usize::MAX,
            changes: usize::MAX,
            bytes: self.behind_bytes_max,
            age: self.behind_for,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            behind_bytes: 8 << 20,
            behind_changes: 65_536,
            behind_for: Duration::from_secs(1),
            behind_bytes_max: 64 << 20,
            checkpoint_bytes: 16 << 20,
            record_bytes: 8 << 20,
            record_changes: 65_536,
            slot_bytes: 16 << 20,
            compressed_from: 4 << 10,
            has_row_thread: true,
        }
    }
}
