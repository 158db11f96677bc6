//! Limits on all input and on internal batches.

use std::time::Duration;

/// Records of one import command.
pub const IMPORT_RECORDS_MAX: usize = 1_000;
/// Bytes in a name: queue, kind, worker, tag, label, key, client-given job id.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes in a payload, an input value, or a result, unless configured otherwise.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Bytes kept of a failure message or a reason; the rest is cut.
pub const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Tags on one job.
pub const TAGS_MAX: usize = 100;
/// Labels on one job.
pub const LABELS_MAX: usize = 64;
/// Entries kept of a job's history: the first and the newest others.
pub const HISTORY_ENTRIES_MAX: usize = 100;
/// Positional inputs and pure dependencies of one job.
pub const INPUTS_MAX: usize = 200_000;
/// Jobs in one atomic submission.
pub const GRAPH_JOBS_MAX: usize = 1_000_000;
/// Bytes of payloads and inputs in one atomic submission.
pub const GRAPH_BYTES_MAX: usize = 512 << 20;
/// Jobs leased by one lease command.
pub const LEASE_JOBS_MAX: u32 = 10_000;
/// Queues named by one lease command.
pub const LEASE_QUEUES_MAX: usize = 256;
/// Jobs named by one cancel, delete or retention command.
pub const BULK_JOBS_MAX: usize = 10_000;
/// Jobs on one page of an operation.
pub const OPERATION_PAGE_MAX: usize = 100;
/// Shortest time between two pages of an operation, which leaves the shard time for other work.
pub const OPERATION_PAGE_INTERVAL: Duration = Duration::from_millis(10);
/// Skipped and failed jobs that an operation lists.
pub const OPERATION_LEFT_OUT_MAX: usize = 100;
/// Bytes kept of the reason of an operation and of other texts in it.
pub const OPERATION_REASON_BYTES_MAX: usize = 1_024;
/// Longest time over which an operation spreads its changes.
pub const OPERATION_SPREAD_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Time for which an operation that has ended is kept.
pub const OPERATION_KEPT_FOR: Duration = Duration::from_secs(7 * 86_400);
/// Operations of a shard that are kept; the oldest that have ended are forgotten first.
pub const OPERATIONS_MAX: usize = 1_000;
/// Operations of a namespace that run at the same time.
pub const OPERATIONS_RUNNING_MAX: usize = 20;
/// Operations on one page of a listing.
pub const PAGE_OPERATIONS_MAX: usize = 100;
/// Records of the audit log that a store keeps.
pub const AUDIT_KEPT_MAX: usize = 10_000;
/// Bytes kept of each text of a record of the audit log.
pub const AUDIT_TEXT_BYTES_MAX: usize = 1_024;
/// Records of the audit log on one page.
pub const PAGE_AUDIT_MAX: usize = 1_000;
/// Commands applied in one turn.
pub const TURN_COMMANDS_MAX: usize = 4_096;
/// Timers fired in one turn, so that they cannot starve commands (`rel T9`).
pub const TURN_TIMERS_MAX: usize = 4_096;
/// Pauses in the list of a retry policy.
pub const BACKOFF_PAUSES_MAX: usize = 1_000;
/// Retries, and lease expirations that do not count, that a retry policy may allow.
pub const RETRIES_MAX: u32 = 1_000_000;
/// Releases of a job that do not count as attempts.
pub const RELEASES_MAX: u32 = 100;
/// Lease expirations in a row after which a job fails, by default.
pub const LEASE_EXPIRATIONS_IN_A_ROW_MAX: u32 = 3;
/// Workers remembered per namespace.
pub const WORKERS_MAX: usize = 100_000;
/// Bytes of log kept per attempt.
pub const LOG_BYTES_MAX: u64 = 16 << 20;
/// Bytes of log taken by one command.
pub const LOG_CHUNK_BYTES_MAX: usize = 256 << 10;
/// Bytes of a progress message.
pub const PROGRESS_MESSAGE_BYTES_MAX: usize = 1_024;
/// Bytes of a raw key's string, and of an element of a list.
pub const KEY_VALUE_MAX: usize = 64 << 20;
/// Bytes of a raw key's name.
pub const KEY_NAME_MAX: usize = 64 << 10;
/// Bytes of a glob pattern over names of keys and channels.
pub const KEY_PATTERN_MAX: usize = 1 << 10;
/// Elements and names in the answers to the calls on raw keys of one commit.
pub const KEY_REPLY_ELEMENTS_MAX: usize = 1 << 20;
/// Bytes in the answer to one call on raw keys, including 64 per element.
pub const KEY_REPLY_BYTES_MAX: usize = 512 << 20;
/// Steps through lists and names that the calls on raw keys of one commit may take; a step is about a nanosecond.
pub const KEY_STEPS_MAX: usize = 128 << 20;
/// Steps for one page of names: about ten milliseconds.
pub const KEY_PAGE_STEPS_MAX: usize = 8 << 20;
/// Keys looked at for one page of names.
pub const KEY_PAGE_KEYS_MAX: usize = 10_000;
/// Jobs on one page of a listing.
pub const PAGE_JOBS_MAX: usize = 1_000;
/// Tags, or labels, that one filter may name.
pub const CONDITION_VALUES_MAX: usize = 16;
/// Workers on one page of a listing.
pub const PAGE_WORKERS_MAX: usize = 1_000;
/// Names on one page of a listing.
pub const PAGE_NAMES_MAX: usize = 1_000;
/// Missed runs for which a schedule enqueues jobs, unless it sets a lower limit.
pub const SCHEDULE_BACKLOG_MAX: u32 = 10_000;
/// Shortest time between two runs of a schedule.
pub const SCHEDULE_EVERY_MIN: Duration = Duration::from_secs(1);
/// Bytes of a cron expression.
pub const CRON_BYTES_MAX: usize = 255;
/// Years within which a cron expression must fire.
pub const CRON_YEARS_MAX: u16 = 40;

/// Time that a ready job may wait before its queue needs attention, unless the queue sets another.
pub const ALERT_AGE_DEFAULT: Duration = Duration::from_secs(600);

/// Default length of a lease.
pub const LEASE_FOR_DEFAULT: Duration = Duration::from_secs(60);
/// Shortest lease that a request may ask for.
pub const LEASE_FOR_MIN: Duration = Duration::from_millis(100);
/// Longest lease that a request may ask for.
pub const LEASE_FOR_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Longest wait of a lease request.
pub const WAIT_FOR_MAX: Duration = Duration::from_secs(300);
/// Time for which a wall clock that jumped forward must hold before retention trusts it (`rel C4`).
pub const RETENTION_DISTRUST_FOR: Duration = Duration::from_secs(600);
/// Time without a request after which a worker is forgotten.
pub const WORKER_SILENT_MAX: Duration = Duration::from_secs(86_400);
/// Queues of a namespace, by default.
pub const QUEUES_MAX: u64 = 10_000;
/// Schedules of a namespace.
pub const SCHEDULES_MAX: usize = 10_000;
/// Namespaces of a shard that have queues or settings of their own.
pub const NAMESPACES_MAX: usize = 10_000;
/// Queues on one page of a listing.
pub const PAGE_QUEUES_MAX: usize = 1_000;
/// Next times of a schedule in one answer.
pub const SCHEDULE_TIMES_MAX: usize = 20;
/// Pairs of queue and kind of a shard with metrics of their own; all others share one series.
pub const RUN_SERIES_MAX: usize = 200;
