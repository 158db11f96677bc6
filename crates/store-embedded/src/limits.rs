//! Limits of an open store.

use std::time::Duration;

use ganger_store::waiting::QueueLimits;

/// Limits that decide when commits are written into the tables, when the write-ahead log is checkpointed, and how large
/// the turn log becomes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Pages in the write-ahead log from which it is checkpointed. Sooner costs writes; later makes the pause longer
    /// and recovery slower.
    pub log_pages: u64,
    /// Pages from which it is checkpointed while the store is idle.
    pub log_pages_idle: u64,
    /// Commits that wait for the tables before they are written there.
    pub waiting_commits: usize,
    /// Changes in commits that wait for the tables before they are written there.
    pub waiting_changes: usize,
    /// Bytes in the turn log of commits that wait for the tables before they are written there.
    pub waiting_bytes: u64,
    /// Time that a commit waits at most before it is written into the tables. The longer it waits, the more of its
    /// rows are replaced or removed by later commits and are never written.
    pub waiting_for: Duration,
    /// Bytes of a segment of the turn log. A larger commit is written into the tables at once; with 0 every commit is.
    pub segment_bytes: u64,
    /// Largest number of segments of the turn log.
    pub segments_max: u32,
    /// Whether a thread of its own writes the tables. Without it the committing thread does when a limit is reached.
    pub has_row_thread: bool,
}

impl Limits {
    /// How much more than the limits may wait when the thread that writes the tables falls behind. Beyond that the next
    /// commit waits.
    const BACKLOG: usize = 4;

    /// Returns the limits of the commits that wait for the tables.
    pub(crate) fn queue(&self) -> QueueLimits {
        QueueLimits {
            commits: self.waiting_commits,
            changes: self.waiting_changes,
            bytes: self.waiting_bytes,
            age: self.waiting_for,
        }
    }

    /// Returns the limits at which the committing thread writes the tables itself.
    #[must_use]
    pub(crate) fn of_backlog(self) -> Self {
        if !self.has_row_thread {
            return self;
        }
        Self {
            waiting_commits: self.waiting_commits.saturating_mul(Self::BACKLOG),
            waiting_changes: self.waiting_changes.saturating_mul(Self::BACKLOG),
            // The turn log bounds the bytes.
            waiting_bytes: u64::MAX,
            ..self
        }
    }
}

impl Default for Limits {
    /// Returns 32 MiB and 1 MiB of write-ahead log; 4,096 commits, 32,768 changes, 16 MiB or two seconds of waiting
    /// commits; 16 segments of 4 MiB.
    fn default() -> Self {
        Self {
            log_pages: 8_192,
            log_pages_idle: 256,
            waiting_commits: 4_096,
            waiting_changes: 32_768,
            waiting_bytes: 16 << 20,
            waiting_for: Duration::from_secs(2),
            segment_bytes: 4 << 20,
            segments_max: 16,
            has_row_thread: true,
        }
    }
}
