//! Named limits on everything that comes from outside, and on every internal batch.

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
/// Jobs handed out by one lease command.
pub const LEASE_JOBS_MAX: u32 = 10_000;
/// Queues named by one lease command.
pub const LEASE_QUEUES_MAX: usize = 256;
/// Jobs named by one cancel, delete or retention command.
pub const BULK_JOBS_MAX: usize = 10_000;
/// Commands applied in one turn.
pub const TURN_COMMANDS_MAX: usize = 4_096;
/// Timers fired in one turn, so that housekeeping cannot starve service (`rel T9`).
pub const TURN_TIMERS_MAX: usize = 4_096;
/// Pauses that the list of a retry policy may have.
pub const BACKOFF_PAUSES_MAX: usize = 1_000;
/// Retries, and lease expirations that do not count, that a policy may ask for.
pub const RETRIES_MAX: u32 = 1_000_000;
/// Times a job may be released unstarted without that counting as an attempt.
pub const RELEASES_MAX: u32 = 100;
/// Lost workers in a row after which a job is set aside as poison.
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
/// Elements and names with which calls on raw keys that make one commit are answered.
pub const KEY_REPLY_ELEMENTS_MAX: usize = 1 << 20;
/// Bytes with which one call on raw keys is answered, 64 for each element among them.
pub const KEY_REPLY_BYTES_MAX: usize = 512 << 20;
/// Steps that calls on raw keys that make one commit may take through lists and names, of about a nanosecond each.
pub const KEY_STEPS_MAX: usize = 128 << 20;
/// Steps of one page of names: about ten milliseconds.
pub const KEY_PAGE_STEPS_MAX: usize = 8 << 20;
/// Keys that are looked at for one page of names.
pub const KEY_PAGE_KEYS_MAX: usize = 10_000;
/// Jobs on one page of a listing.
pub const PAGE_JOBS_MAX: usize = 1_000;
/// Overdue runs that one schedule may make up for, and does unless it sets a lower bound.
pub const SCHEDULE_BACKLOG_MAX: u32 = 10_000;
/// Shortest time between two runs of a schedule.
pub const SCHEDULE_EVERY_MIN: Duration = Duration::from_secs(1);
/// Bytes of a cron expression.
pub const CRON_BYTES_MAX: usize = 255;
/// Years within which a cron expression must fire.
pub const CRON_YEARS_MAX: u16 = 40;

/// Lease length unless namespace, queue or request say otherwise.
pub const LEASE_FOR_DEFAULT: Duration = Duration::from_secs(60);
/// Shortest lease that may be asked for.
pub const LEASE_FOR_MIN: Duration = Duration::from_millis(100);
/// Longest lease that may be asked for.
pub const LEASE_FOR_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Longest wait of a lease request.
pub const WAIT_FOR_MAX: Duration = Duration::from_secs(300);
/// How long a wall clock that jumped forward must hold before retention believes it (`rel C4`).
pub const RETENTION_DISTRUST_FOR: Duration = Duration::from_secs(600);
/// A worker that was silent for so long is forgotten.
pub const WORKER_SILENT_MAX: Duration = Duration::from_secs(86_400);
/// Queues of a namespace unless its settings say otherwise.
pub const QUEUES_MAX: u64 = 10_000;
/// Schedules of a namespace.
pub const SCHEDULES_MAX: usize = 10_000;
/// Namespaces of a shard that have queues or settings of their own.
pub const NAMESPACES_MAX: usize = 10_000;
/// Queues on a page.
pub const PAGE_QUEUES_MAX: usize = 1_000;
/// Next times of a schedule in one answer.
pub const SCHEDULE_TIMES_MAX: usize = 20;
/// Pairs of queue and kind of a shard that have metrics of their own; what is beyond is counted together.
pub const RUN_SERIES_MAX: usize = 200;
