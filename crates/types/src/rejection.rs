//! Why the engine rejected a command.

use std::time::Duration;

use crate::id::{JobId, JobKey, ShardId};
use crate::job::JobState;
use crate::name::{Graph, Queue, ScheduleId};
use crate::operation::OperationNumber;

/// Why a lease is not live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// The lease expired before the command that shows it.
    Expired,
    /// The job was handed out again.
    Replaced,
    /// The job was cancelled.
    Cancelled,
    /// The job has ended in another way.
    Finished,
    /// The lease never existed, or nothing is stored about it any more.
    Unknown,
}

impl std::fmt::Display for LeaseEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Expired => "expired",
            Self::Replaced => "replaced by a newer attempt",
            Self::Cancelled => "cancelled",
            Self::Finished => "finished",
            Self::Unknown => "unknown",
        })
    }
}

/// Why the engine rejected a command. A code, once released, never changes meaning.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The job does not exist on this shard.
    #[error("job {job} not found: never enqueued on this shard, or its retention has passed")]
    JobNotFound {
        /// Id of the job.
        job: JobId,
    },
    /// The job is part of a submission over several shards, and this shard does not know the decision yet.
    #[error(
        "job {job} is prepared here, and the decision on its submission is not known yet: wait until the deciding shard can be reached, then ask again"
    )]
    JobPrepared {
        /// The id of the prepared job.
        job: JobId,
    },
    /// The lease shown is not the live one.
    #[error(
        "lease on job {job} is {end}: stop the program, discard the result, lease again; renew before expiry"
    )]
    LeaseLost {
        /// The job that the lease was for.
        job: JobId,
        /// The reason why the lease is not live.
        end: LeaseEnd,
    },
    /// The lease has already reported another outcome.
    #[error(
        "this lease on job {job} has already reported another outcome: only the first report counts"
    )]
    ReportConflict {
        /// The job that the report is about.
        job: JobId,
    },
    /// The id is taken by a job with other content.
    #[error(
        "job id {job} is taken by a job with other content: choose another id, or repeat the first request unchanged"
    )]
    IdTaken {
        /// The id that is taken.
        job: JobId,
    },
    /// A submission with a job of this id is being decided.
    #[error(
        "job id {job} belongs to a submission that is being decided: repeat the request in a moment"
    )]
    IdBusy {
        /// The id that is being decided.
        job: JobId,
    },
    /// The id is empty.
    #[error(
        "job {index} of the submission has an empty id: give it 1 to 255 bytes, or leave it out"
    )]
    IdEmpty {
        /// Index of the job in the submission.
        index: usize,
    },
    /// The id has the form of engine-made ids.
    #[error("job id {job} has the form of ids that the server makes: add or change a character")]
    IdReserved {
        /// The id that the submission gave.
        job: JobId,
    },
    /// The idempotency key was used for other content.
    #[error(
        "the idempotency key was used for another submission: use a new key, or repeat the first request unchanged"
    )]
    IdempotencyConflict,
    /// A submission under the idempotency key is being decided.
    #[error(
        "a submission under this idempotency key is being decided: repeat the request in a moment"
    )]
    IdempotencyKeyBusy,
    /// A submission refers to a job that does not exist.
    #[error("job {index} of the submission refers to job {dependency}, which does not exist here")]
    DependencyNotFound {
        /// Index of the referring job.
        index: usize,
        /// The id of the missing job.
        dependency: JobId,
    },
    /// A submission refers to a member that it does not have.
    #[error("job {index} of the submission refers to member {member}, but there are {count}")]
    MemberNotFound {
        /// Index of the referring job.
        index: usize,
        /// Index that the job refers to.
        member: u32,
        /// Number of jobs in the submission.
        count: usize,
    },
    /// A submission contains a cycle.
    #[error("jobs of the submission wait for each other in a cycle, through job {index}")]
    Cycle {
        /// Index of one of the jobs.
        index: usize,
    },
    /// Two jobs of a submission have one id.
    #[error("job {index} of the submission has the same id as an earlier one: {job}")]
    DuplicateId {
        /// Index of the second job.
        index: usize,
        /// The id that occurs twice.
        job: JobId,
    },
    /// A submission is empty.
    #[error("the submission has no jobs: send at least one")]
    NothingSubmitted,
    /// A kind is missing.
    #[error("job {index} of the submission has no kind: name the program that runs it")]
    KindMissing {
        /// Index of the job in the submission.
        index: usize,
    },
    /// Something is too large.
    #[error("{what} is {actual}, the limit is {limit}: {}", remedy(what))]
    TooLarge {
        /// Name of the value that is too large.
        what: &'static str,
        /// Actual size or number.
        actual: u64,
        /// Largest value allowed, in the unit of `actual`.
        limit: u64,
    },
    /// A value is out of its range.
    #[error("{what} must be {expected}")]
    OutOfRange {
        /// Name of the value that is out of range.
        what: &'static str,
        /// The values that are allowed, in words.
        expected: &'static str,
    },
    /// The queue or the namespace has too many live jobs.
    #[error(
        "queue {queue} holds {live} live jobs, the limit is {limit}: try again when some have ended"
    )]
    QueueFull {
        /// The queue that is full.
        queue: Queue,
        /// Number of live jobs now.
        live: u64,
        /// Largest number of live jobs allowed.
        limit: u64,
    },
    /// The job is in the wrong state for the command.
    #[error("job {job} is {state}: {needed}")]
    WrongState {
        /// The job that the command is about.
        job: JobId,
        /// The current state of the job.
        state: JobState,
        /// State that the command needs.
        needed: &'static str,
    },
    /// Live jobs need the result of this one.
    #[error(
        "job {job} is still needed by live job number {dependent}: wait until that job has ended, or cancel it first"
    )]
    InUse {
        /// The job that is still needed.
        job: JobId,
        /// The number of a live job that needs it.
        dependent: JobKey,
    },
    /// The dependency carries data.
    #[error(
        "job {job} takes the result of {dependency} as an input: only dependencies without data can be taken back"
    )]
    DependencyCarriesData {
        /// The job that takes the result.
        job: JobId,
        /// The job whose result is taken.
        dependency: JobId,
    },
    /// The queue does not exist.
    #[error("queue {queue} not found: it was never used or configured")]
    QueueNotFound {
        /// The queue that was asked for.
        queue: Queue,
    },
    /// The queue has jobs.
    #[error("queue {queue} has {live} live jobs: wait until they have ended, or cancel them first")]
    QueueInUse {
        /// The queue that has live jobs.
        queue: Queue,
        /// Number of live jobs in the queue.
        live: u64,
    },
    /// The settings of a queue are others than the caller has seen.
    #[error(
        "the settings of queue {queue} have changed: they are of version {version} now; read them again and repeat the change"
    )]
    SettingsChanged {
        /// The queue that was to be configured.
        queue: Queue,
        /// Version of its settings now.
        version: u64,
    },
    /// The schedule does not exist.
    #[error("schedule {id} not found: never created, or removed")]
    ScheduleNotFound {
        /// The schedule that was asked for.
        id: ScheduleId,
    },
    /// The cron expression cannot be read.
    #[error("cron expression {expression:?} cannot be read: {reason}")]
    CronUnreadable {
        /// The expression as the client sent it.
        expression: String,
        /// The reason why the expression cannot be read.
        reason: String,
    },
    /// The cron expression never fires.
    #[error(
        "cron expression {expression:?} never fires: no moment within {years} years fits it; change its day, month or weekday"
    )]
    CronNever {
        /// The expression as the client sent it.
        expression: String,
        /// Years that were searched.
        years: u16,
    },
    /// The time zone is not known.
    #[error("time zone {name:?} is not known: use an IANA name such as Europe/Rome, or UTC")]
    TimeZoneUnknown {
        /// The name as the client sent it.
        name: String,
    },
    /// The deadline has passed.
    #[error("the deadline of job {index} passed {late:?} ago: it could never run")]
    DeadlinePassed {
        /// Index of the job in the submission.
        index: usize,
        /// Time since the deadline.
        late: Duration,
    },
    /// The numbers of a part were not reserved since the last start of the shard.
    #[error(
        "the numbers from {first} on are not reserved here, because the shard has restarted: submit again"
    )]
    NotReserved {
        /// First number of the part.
        first: JobKey,
    },
    /// The submission does not wait for a decision.
    #[error(
        "submission {graph} does not wait for a decision here: it was never prepared, or aborted after its time limit; submit again"
    )]
    NotPrepared {
        /// The graph of the submission.
        graph: Graph,
    },
    /// A job has a field that a submission over several shards does not support.
    #[error(
        "job {index} of the submission has {what}, which a submission over several shards cannot have: submit it to one shard"
    )]
    OneShardOnly {
        /// Index of the job in its part.
        index: usize,
        /// Name of the field that is not supported.
        what: &'static str,
    },
    /// The operation does not exist.
    #[error("operation {number} not found: never started here, or ended more than 7 days ago")]
    OperationNotFound {
        /// The operation that was asked for.
        number: OperationNumber,
    },
    /// A message or a reference names this shard where it must name another one.
    #[error("shard {shard} is this shard: refer to its jobs without naming it")]
    OwnShard {
        /// The id of this shard.
        shard: ShardId,
    },
    /// Traffic with the peer is not stopped.
    #[error("traffic with shard {shard} is not stopped: there is nothing to reconcile")]
    PeerNotStopped {
        /// The peer's shard id.
        shard: ShardId,
    },
    /// The namespace runs on its callers' clocks, and the command has no `now`.
    #[error("this namespace runs on its callers' clocks: the command must carry its own time")]
    ClockMissing,
}

/// The remedy for a [`Rejection::TooLarge`]; only some limits are settings.
fn remedy(what: &str) -> &'static str {
    match what {
        "the number of queues of the namespace" => {
            "use fewer queues, or raise queues_max of the namespace"
        }
        "the number of schedules of the namespace" => {
            "delete schedules that nobody needs, or use another namespace"
        }
        "the number of running operations of the namespace"
        | "the number of running operations of the shard" => {
            "wait until one has ended, or stop one"
        }
        "the number of namespaces" => {
            "use fewer namespaces: queues, tags and labels tell jobs of one apart too"
        }
        _ if what.starts_with("the size of a payload")
            || what.starts_with("the size of an input")
            || what.starts_with("the size of a result") =>
        {
            "send less (for example the address of the data), or raise payload_bytes_max of the namespace"
        }
        _ => "send less",
    }
}

impl Rejection {
    /// The stable code, as documented in `docs/errors.md`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::JobNotFound { .. } => "job_not_found",
            Self::JobPrepared { .. } => "job_prepared",
            Self::LeaseLost { .. } => "lease_lost",
            Self::ReportConflict { .. } => "report_conflict",
            Self::IdTaken { .. } => "id_taken",
            Self::IdBusy { .. } => "id_busy",
            Self::IdEmpty { .. } => "id_empty",
            Self::IdReserved { .. } => "id_reserved",
            Self::IdempotencyConflict => "idempotency_conflict",
            Self::IdempotencyKeyBusy => "idempotency_busy",
            Self::DependencyNotFound { .. } => "dependency_not_found",
            Self::MemberNotFound { .. } => "member_not_found",
            Self::Cycle { .. } => "cycle",
            Self::DuplicateId { .. } => "duplicate_id",
            Self::NothingSubmitted => "nothing_submitted",
            Self::KindMissing { .. } => "kind_missing",
            Self::TooLarge { .. } => "too_large",
            Self::OutOfRange { .. } => "out_of_range",
            Self::QueueFull { .. } => "queue_full",
            Self::WrongState { .. } => "wrong_state",
            Self::InUse { .. } => "in_use",
            Self::DependencyCarriesData { .. } => "dependency_carries_data",
            Self::QueueNotFound { .. } => "queue_not_found",
            Self::QueueInUse { .. } => "queue_in_use",
            Self::SettingsChanged { .. } => "settings_changed",
            Self::ScheduleNotFound { .. } => "schedule_not_found",
            Self::CronUnreadable { .. } => "cron_unreadable",
            Self::CronNever { .. } => "cron_never_fires",
            Self::TimeZoneUnknown { .. } => "time_zone_unknown",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::NotReserved { .. } => "not_reserved",
            Self::NotPrepared { .. } => "not_prepared",
            Self::OneShardOnly { .. } => "one_shard_only",
            Self::OperationNotFound { .. } => "operation_not_found",
            Self::OwnShard { .. } => "own_shard",
            Self::PeerNotStopped { .. } => "peer_not_stopped",
            Self::ClockMissing => "clock_missing",
        }
    }

    /// The index in the submission of the job that the rejection is about; `None` if it is not about a single one.
    pub fn member(&self) -> Option<usize> {
        match self {
            Self::DependencyNotFound { index, .. }
            | Self::MemberNotFound { index, .. }
            | Self::Cycle { index }
            | Self::DuplicateId { index, .. }
            | Self::IdEmpty { index }
            | Self::KindMissing { index }
            | Self::OneShardOnly { index, .. }
            | Self::DeadlinePassed { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// Whether the same command may be accepted later without a change.
    pub fn passes(&self) -> bool {
        matches!(
            self,
            Self::QueueFull { .. }
                | Self::IdempotencyKeyBusy
                | Self::IdBusy { .. }
                | Self::JobPrepared { .. }
        )
    }

    /// All codes, for the test that compares them with the documents.
    pub const CODES: [&'static str; 36] = [
        "job_not_found",
        "job_prepared",
        "lease_lost",
        "report_conflict",
        "id_taken",
        "id_busy",
        "id_empty",
        "id_reserved",
        "idempotency_conflict",
        "idempotency_busy",
        "dependency_not_found",
        "member_not_found",
        "cycle",
        "duplicate_id",
        "nothing_submitted",
        "kind_missing",
        "too_large",
        "out_of_range",
        "queue_full",
        "wrong_state",
        "in_use",
        "dependency_carries_data",
        "queue_not_found",
        "queue_in_use",
        "schedule_not_found",
        "cron_unreadable",
        "cron_never_fires",
        "time_zone_unknown",
        "deadline_passed",
        "not_reserved",
        "not_prepared",
        "one_shard_only",
        "operation_not_found",
        "own_shard",
        "peer_not_stopped",
        "clock_missing",
    ];
}
