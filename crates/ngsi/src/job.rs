//! What the jobs of all tasks have in common: those that the dialect makes, and those that the import takes from RQ.

use std::time::Duration;

/// The queue of the tasks, unless the settings of a worker name another.
pub const QUEUE: &str = "quantumleap";
/// The kind of their jobs.
pub const KIND: &str = "ngsi-insert";
/// Leases that may expire without counting against the retries; the next one fails the task.
pub const LEASE_EXPIRATIONS_MAX: u32 = 3;
/// The longest pause between two attempts: 10 years.
pub const BACKOFF_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
