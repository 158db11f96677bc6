//! Counts flushes to the device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Flushes of a log, or of a transaction.
pub(crate) const ONE: u64 = 1;

/// Flushes of a checkpoint: SQLite flushes its log before it copies it, and the file afterwards.
pub(crate) const CHECKPOINT: u64 = 2;

/// Flushes of a new file: its content, and its name in the directory.
pub(crate) const NEW_FILE: u64 = 2;

/// Number of flushes that a store has ordered since it was made, shared by all that order them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flushes(Arc<AtomicU64>);

impl Flushes {
    /// Counts flushes that were ordered.
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number of flushes so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
