//! Changes: durable writes, row by row, with final values.
//!
//! A store that has applied the changes of every commit in order can rebuild the engine exactly
//! (`rel A3`). Within a commit a later change of a row replaces an earlier one.

use bytes::Bytes;

use crate::external::ExternalChange;
use crate::id::{Epoch, JobId, JobKey, Position, ShardId};
use crate::idempotency::IdempotencyRecord;
use crate::job::{FailurePolicy, JobRecord, LeaseRecord};
use crate::name::{Graph, Group, IdempotencyKey, Namespace, Queue, ScheduleId, Tag, UniqueKey};
use crate::peer::{Dependent, OutboxRecord, Part, PartRecord, PeerRecord};
use crate::queue::{NamespaceRecord, QueueRecord};
use crate::reference::JobRef;
use crate::schedule::ScheduleRecord;
use crate::statistics::StatisticsRecord;
use crate::time::{Elapsed, Timestamp};

/// One input or pure dependency of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRow {
    /// The job that needs it.
    pub job: JobKey,
    /// Its position among the inputs; from [`InputRow::EDGE_FIRST`] on it carries no data.
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

/// Where an input stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputState {
    /// A value given with the submission.
    Value(Bytes),
    /// Waits for a job.
    Missing {
        /// The job whose result it is.
        dependency: JobKey,
        /// Its id, for people.
        id: JobId,
        /// What its failure means.
        policy: FailurePolicy,
    },
    /// That job succeeded; its stored result is the input. Retention spares it meanwhile.
    Delivered {
        /// The job whose result it is.
        dependency: JobKey,
        /// Its id, for people.
        id: JobId,
        /// As it was while missing.
        policy: FailurePolicy,
    },
    /// Waits for a job of another shard, which will tell.
    Remote {
        /// The job whose result it is.
        dependency: JobRef,
        /// What its failure means.
        policy: FailurePolicy,
        /// Whether both were submitted together.
        is_member: bool,
    },
    /// That job of another shard succeeded; its result was brought here (`rel G3`).
    Received {
        /// The job whose result it is.
        dependency: JobRef,
        /// As it was while missing.
        policy: FailurePolicy,
        /// The result; `null` if it has none.
        value: Bytes,
    },
    /// That job did not succeed, and the edge ignores it: the input reads `null`.
    Ignored {
        /// Its id, for people.
        id: JobId,
    },
}

/// A write that is durable once its commit is.
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
    /// Drops a dependency that was taken back.
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
    /// Moves a job from the live to the finished. Its payload and inputs stay.
    FinishJob {
        /// Its last state; `finished` is set.
        record: Box<JobRecord>,
        /// Its result, if it has one.
        result: Option<Bytes>,
    },
    /// Writes a finished job again (tags, labels, tracking). Its result stays.
    PutFinished(Box<JobRecord>),
    /// Moves a finished job back to the live; a `PutJob` of it follows. Its result goes.
    RetryJob(JobKey),
    /// Removes a job, live or finished, with its payload, inputs, result, lease and log.
    RemoveJob(JobKey),
    /// Appends to the log of an attempt.
    AppendLog {
        /// The number of the job.
        key: JobKey,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// Bytes of this attempt's log before these.
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
    /// Writes how many jobs bear a tag; 0 removes the row.
    PutTagCount(Namespace, Tag, u64),
    /// Writes how many kept jobs failed in a group; 0 removes the row.
    PutGroupCount(Namespace, Group, u64),
    /// Writes since when an id is tracked; `None` removes the row.
    PutTracked(Namespace, JobId, Option<Timestamp>),
    /// Writes the statistics of a queue and day.
    PutStatistics(Box<StatisticsRecord>),
    /// Writes a message to another shard.
    PutOutbox(Box<OutboxRecord>),
    /// Removes a message that is durable where it was to go.
    RemoveOutbox(ShardId, u64),
    /// Writes what is known of another shard.
    PutPeer(Box<PeerRecord>),
    /// Writes what is known of a submission over several shards.
    PutPart(Box<PartRecord>),
    /// Removes it, with its jobs if it was not decided.
    RemovePart(Namespace, Graph),
    /// Writes the jobs of a part that is not decided.
    PutPartJobs(Box<Part>),
    /// Removes them: they have become jobs.
    RemovePartJobs(Namespace, Graph),
    /// Writes that a job of another shard waits for this one.
    PutDependent(JobKey, Box<Dependent>),
    /// Removes it: dependency, and whose slot it was.
    RemoveDependent(JobKey, ShardId, JobKey, u32),
    /// Writes or removes a row of an external system.
    External(ExternalChange),
}

/// A unique key and the job that stands under it.
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
    /// Free from this time on; `None`: free once the job has ended.
    pub until: Option<Timestamp>,
}

/// What the shard must remember besides rows; written with every commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The next job's number.
    pub next_key: JobKey,
    /// The next ending's place in the order of endings.
    pub next_order: u64,
    /// The next event's position.
    pub next_event: Position,
    /// The elapsed reading of this commit.
    pub elapsed: Elapsed,
    /// The wall reading of this commit.
    pub wall: Timestamp,
}

/// All that one turn wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Commit {
    /// The epoch of the writer; a store refuses any but the newest.
    pub epoch: Epoch,
    /// Consecutive within a store, from 1.
    pub sequence: u64,
    /// The counters after this turn.
    pub meta: Meta,
    /// The changes of the turn, in order.
    pub changes: Vec<Change>,
}
