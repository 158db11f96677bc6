//! Changes: durable writes, each of a whole row with its final value.
//!
//! A store that has applied the changes of every commit in order can rebuild the engine exactly
//! (`rel A3`). Within a commit a later change of a row replaces an earlier one.

use bytes::Bytes;

use crate::audit::AuditRecord;
use crate::external::ExternalChange;
use crate::id::{Epoch, JobId, JobKey, Position, ShardId};
use crate::idempotency::IdempotencyRecord;
use crate::job::{FailurePolicy, JobRecord, LeaseRecord};
use crate::name::{Graph, Group, IdempotencyKey, Namespace, Queue, ScheduleId, Tag, UniqueKey};
use crate::operation::{OperationNumber, OperationRecord};
use crate::peer::{Dependent, OutboxRecord, Part, PartRecord, PeerRecord};
use crate::queue::{NamespaceRecord, QueueRecord};
use crate::reference::JobRef;
use crate::schedule::ScheduleRecord;
use crate::statistics::StatisticsRecord;
use crate::time::{Elapsed, Timestamp};

/// One input or pure dependency of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRow {
    /// The job that has the input.
    pub job: JobKey,
    /// Slot of the input, from 0; slots from [`InputRow::EDGE_FIRST`] on carry no data.
    pub slot: u32,
    /// The value, or the job that it comes from.
    pub state: InputState,
}

impl InputRow {
    /// Slots from here on are dependencies without data.
    pub const EDGE_FIRST: u32 = 1 << 31;

    /// Position among the inputs, from 0; `None` for a dependency without data.
    pub fn position(&self) -> Option<u32> {
        (self.slot < Self::EDGE_FIRST).then_some(self.slot)
    }
}

/// The state of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputState {
    /// A value that the submission contained.
    Value(Bytes),
    /// The input waits for a job of this shard.
    Missing {
        /// The job whose result it is.
        dependency: JobKey,
        /// Id of that job, for people.
        id: JobId,
        /// What happens if that job does not succeed.
        policy: FailurePolicy,
    },
    /// The job succeeded, and its stored result is the input. Retention keeps that job until this one has ended.
    Delivered {
        /// The job whose result it is.
        dependency: JobKey,
        /// Id of that job, for people.
        id: JobId,
        /// Failure policy of the edge.
        policy: FailurePolicy,
    },
    /// The input waits for a job of another shard, which will send a message.
    Remote {
        /// The job whose result it is.
        dependency: JobRef,
        /// What happens if that job does not succeed.
        policy: FailurePolicy,
        /// Whether both jobs were submitted together.
        is_member: bool,
    },
    /// The job of another shard succeeded, and its result is stored here (`rel G3`).
    Received {
        /// The job whose result it is.
        dependency: JobRef,
        /// Failure policy of the edge.
        policy: FailurePolicy,
        /// The result; `null` if the job has none.
        value: Bytes,
    },
    /// The job did not succeed, and the edge ignores that: the input is `null`.
    Ignored {
        /// Id of that job, for people.
        id: JobId,
    },
}

/// A write of one row, or of a job's rows.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Writes a live job.
    PutJob(Box<JobRecord>),
    /// Writes a live job's payload: with its first `PutJob`, and when it is replaced.
    PutPayload {
        /// The number of the job.
        key: JobKey,
        /// The payload, as the client sent it.
        payload: Bytes,
    },
    /// Writes an input or dependency of a job.
    PutInput(InputRow),
    /// Removes a dependency of a job.
    RemoveInput {
        /// The number of the job.
        job: JobKey,
        /// The slot of the input, from 0.
        slot: u32,
    },
    /// Writes a new or renewed lease.
    PutLease(Box<LeaseRecord>),
    /// Removes the lease of a job.
    RemoveLease(JobKey),
    /// Moves a job from the live jobs to the finished ones. Its payload and inputs stay.
    FinishJob {
        /// Record of the job, with `finished` set.
        record: Box<JobRecord>,
        /// Result of the job; `None` if it has none.
        result: Option<Bytes>,
    },
    /// Writes a finished job again, with other tags, labels or tracking. Its result stays.
    PutFinished(Box<JobRecord>),
    /// Moves a finished job back to the live jobs and removes its result. A `PutJob` of it follows.
    RetryJob(JobKey),
    /// Removes a job, live or finished, with its payload, inputs, result, lease and log.
    RemoveJob(JobKey),
    /// Appends to the log of an attempt.
    AppendLog {
        /// The number of the job.
        key: JobKey,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// Position of `bytes` in the log of this attempt.
        offset: u64,
        /// When, on the wall clock.
        at: Timestamp,
        /// The bytes to append to the log.
        bytes: Bytes,
    },
    /// Writes the record of a queue.
    PutQueue(Box<QueueRecord>),
    /// Removes a queue without jobs.
    RemoveQueue(Namespace, Queue),
    /// Writes the record of a namespace.
    PutNamespace(Box<NamespaceRecord>),
    /// Writes the record of a schedule.
    PutSchedule(Box<ScheduleRecord>),
    /// Removes the record of a schedule.
    RemoveSchedule(Namespace, ScheduleId),
    /// Writes a unique key.
    PutUnique(Box<UniqueRecord>),
    /// Removes a unique key.
    RemoveUnique(Namespace, UniqueKey),
    /// Writes an idempotency key.
    PutIdempotencyRecord(Box<IdempotencyRecord>),
    /// Removes an idempotency key.
    RemoveIdempotencyRecord(Namespace, IdempotencyKey),
    /// Writes how many jobs have a tag; 0 removes the row.
    PutTagCount(Namespace, Tag, u64),
    /// Writes how many kept jobs failed in a group; 0 removes the row.
    PutGroupCount(Namespace, Group, u64),
    /// Writes the time since which an id is tracked; `None` removes the row.
    PutTracked(Namespace, JobId, Option<Timestamp>),
    /// Writes the statistics of a queue and day.
    PutStatistics(Box<StatisticsRecord>),
    /// Writes an operation with its progress.
    PutOperation(Box<OperationRecord>),
    /// Removes an operation that ended long enough ago.
    RemoveOperation(OperationNumber),
    /// Writes a record of the audit log.
    PutAudit(Box<AuditRecord>),
    /// Removes the record of the audit log with this number.
    RemoveAudit(u64),
    /// Writes a message to another shard.
    PutOutbox(Box<OutboxRecord>),
    /// Removes a message that is durable on the shard that it was for.
    RemoveOutbox(ShardId, u64),
    /// Writes the record of another shard.
    PutPeer(Box<PeerRecord>),
    /// Writes the record of a submission over several shards.
    PutPart(Box<PartRecord>),
    /// Removes that record, with the jobs of the part if there are any.
    RemovePart(Namespace, Graph),
    /// Writes the jobs of a part whose submission is not decided.
    PutPartJobs(Box<Part>),
    /// Removes the jobs of a part, which were enqueued.
    RemovePartJobs(Namespace, Graph),
    /// Writes that a job of another shard waits for this one.
    PutDependent(JobKey, Box<Dependent>),
    /// Removes such a row: dependency, then shard, number and slot of the dependent.
    RemoveDependent(JobKey, ShardId, JobKey, u32),
    /// Writes or removes a row of an external system.
    External(ExternalChange),
}

/// A unique key and the job that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueRecord {
    /// The namespace of the key.
    pub namespace: Namespace,
    /// The unique key, as the client gave it.
    pub key: UniqueKey,
    /// The number of the job that holds the key.
    pub job: JobKey,
    /// The id of the job that holds the key.
    pub id: JobId,
    /// Time from which the key is free; `None`: once the job has ended.
    pub until: Option<Timestamp>,
}

/// Counters and clocks of the shard, written with every commit. By default those of a new shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Number of the next job.
    pub next_key: JobKey,
    /// Position of the next ending in the order of endings.
    pub next_order: u64,
    /// Position of the next event.
    pub next_event: Position,
    /// Elapsed clock at this commit.
    pub elapsed: Elapsed,
    /// Wall clock at this commit.
    pub wall: Timestamp,
}

impl Default for Meta {
    /// The first event has the position 1, so that a reader gets all events after the position 0.
    fn default() -> Self {
        Self {
            next_key: JobKey::default(),
            next_order: 0,
            next_event: Position(1),
            elapsed: Elapsed::default(),
            wall: Timestamp::default(),
        }
    }
}

/// The changes of one turn, which become durable together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commit {
    /// Epoch of the writer; a store refuses all but the newest.
    pub epoch: Epoch,
    /// Number of the commit, consecutive within a store, from 1.
    pub sequence: u64,
    /// The counters after this turn.
    pub meta: Meta,
    /// The changes of the turn, in order.
    pub changes: Vec<Change>,
}
