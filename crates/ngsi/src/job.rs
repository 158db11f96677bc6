//! Settings of the jobs of all tasks, whether the dialect creates them or the import reads them from RQ.

use std::time::Duration;

/// The queue of the tasks, unless a worker's settings name another.
pub const QUEUE: &str = "quantumleap";
/// The kind of the tasks' jobs.
pub const KIND: &str = "ngsi-insert";
/// Number of leases that may expire without counting against the retries; the next one fails the task.
pub const LEASE_EXPIRATIONS_MAX: u32 = 3;
/// Longest pause between two attempts: 10 years.
pub const BACKOFF_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);
