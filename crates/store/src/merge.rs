//! Merges the changes of a commit, so that each row is written only once, with its last state.
//!
//! A job that is put, leased and finished in one turn becomes one write of a finished job; if it is removed as well,
//! only the removal is left.

use std::collections::BTreeMap;

use ganger_types::{
    Bytes, Change, Day, ExternalRowKey, Graph, Group, IdempotencyKey, InputRow, JobId, JobKey,
    JobRecord, LeaseRecord, Namespace, OperationNumber, Queue, ScheduleId, ShardId, Tag, Timestamp,
    UniqueKey,
};

/// All changes of a commit to one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobChange<'a> {
    /// Whether the job is removed with all its rows; the other fields then do not matter.
    pub is_removed: bool,
    /// Whether the stored finished row is removed first, with its result.
    pub is_retried: bool,
    /// Change of the job's record.
    pub body: Body<'a>,
    /// The payload to write.
    pub payload: Option<&'a Bytes>,
    /// The lease to write, or `Some(None)` to end the one that is stored.
    pub lease: Option<Option<&'a LeaseRecord>>,
}

/// The change of a job's record.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Body<'a> {
    /// The record does not change.
    #[default]
    Same,
    /// The record is written to the live jobs.
    Live(&'a JobRecord),
    /// The record moves to the finished jobs, with this result.
    Finished(&'a JobRecord, Option<&'a Bytes>),
    /// The record of a finished job is replaced; the result stays.
    Replace(&'a JobRecord),
}

/// The key of a row that is not part of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "each variant is the key of the change of the same name"
)]
pub enum RowKey<'a> {
    Queue(&'a Namespace, &'a Queue),
    Namespace(&'a Namespace),
    Schedule(&'a Namespace, &'a ScheduleId),
    Unique(&'a Namespace, &'a UniqueKey),
    SubmissionAnswer(&'a Namespace, &'a IdempotencyKey),
    TagCount(&'a Namespace, &'a Tag),
    GroupCount(&'a Namespace, &'a Group),
    Tracked(&'a Namespace, &'a JobId),
    Statistics(Day, &'a Namespace, &'a Queue),
    Peer(&'a ShardId),
    Outbox(&'a ShardId, u64),
    Operation(OperationNumber),
    Audit(u64),
    Part(&'a Namespace, &'a Graph),
    PartJobs(&'a Namespace, &'a Graph),
    Dependent(JobKey, &'a ShardId, JobKey, u32),
    External(ExternalRowKey),
}

/// Bytes to append to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPiece<'a> {
    /// Job that wrote the log.
    pub key: JobKey,
    /// Attempt that wrote the log.
    pub attempt: u32,
    /// Position of the bytes in the log of this attempt.
    pub offset: u64,
    /// Time at which the bytes arrived.
    pub at: Timestamp,
    /// The bytes to append.
    pub bytes: &'a Bytes,
}

/// The rows of a commit, each in its last state, in order of their keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedCommit<'a> {
    /// Changes of each job.
    pub jobs: BTreeMap<JobKey, JobChange<'a>>,
    /// Inputs to write, or to remove.
    pub inputs: BTreeMap<(JobKey, u32), Option<&'a InputRow>>,
    /// Log to append, in order.
    pub logs: Vec<LogPiece<'a>>,
    /// The last change of every other row.
    pub rows: BTreeMap<RowKey<'a>, &'a Change>,
}

impl<'a> MergedCommit<'a> {
    /// Merges the changes of a commit, or of several consecutive ones, in order.
    pub fn new(changes: impl IntoIterator<Item = &'a Change>) -> Self {
        let mut merged = Self::default();
        for change in changes {
            merged.add(change);
        }
        merged
    }

    fn job(&mut self, key: JobKey) -> &mut JobChange<'a> {
        self.jobs.entry(key).or_default()
    }

    fn add(&mut self, change: &'a Change) {
        match change {
            Change::PutJob(record) => self.job(record.key).body = Body::Live(record),
            Change::PutPayload { key, payload } => self.job(*key).payload = Some(payload),
            Change::PutLease(lease) => self.job(lease.key).lease = Some(Some(lease)),
            Change::RemoveLease(key) => self.job(*key).lease = Some(None),
            Change::FinishJob { record, result } => {
                let job = self.job(record.key);
                job.body = Body::Finished(record, result.as_ref());
                job.lease = Some(None);
            }
            Change::PutFinished(record) => {
                let job = self.job(record.key);
                job.body = match job.body {
                    Body::Finished(_, result) => Body::Finished(record, result),
                    _ => Body::Replace(record),
                };
            }
            Change::RetryJob(key) => {
                let job = self.job(*key);
                job.is_retried = true;
                job.body = Body::Same;
            }
            Change::RemoveJob(key) => self.remove(*key),
            Change::PutInput(row) => {
                self.inputs.insert((row.job, row.slot), Some(row));
            }
            Change::RemoveInput { job, slot } => {
                self.inputs.insert((*job, *slot), None);
            }
            Change::AppendLog {
                key,
                attempt,
                offset,
                at,
                bytes,
            } => self.logs.push(LogPiece {
                key: *key,
                attempt: *attempt,
                offset: *offset,
                at: *at,
                bytes,
            }),
            Change::RemovePart(namespace, graph) => {
                self.rows.insert(RowKey::Part(namespace, graph), change);
                self.rows.insert(RowKey::PartJobs(namespace, graph), change);
            }
            _ => {
                let key = row_key(change).expect("every other change is one of a small row");
                self.rows.insert(key, change);
            }
        }
    }

    fn remove(&mut self, key: JobKey) {
        *self.job(key) = JobChange {
            is_removed: true,
            ..JobChange::default()
        };
        let gone: Vec<_> = self
            .inputs
            .range((key, 0)..=(key, u32::MAX))
            .map(|(place, _)| *place)
            .collect();
        for place in gone {
            self.inputs.remove(&place);
        }
        self.logs.retain(|piece| piece.key != key);
    }
}

/// Returns the job whose rows a change is about; `None` if it is about another row.
pub fn job_of(change: &Change) -> Option<JobKey> {
    Some(match change {
        Change::PutJob(record) | Change::FinishJob { record, .. } | Change::PutFinished(record) => {
            record.key
        }
        Change::PutPayload { key, .. }
        | Change::RemoveLease(key)
        | Change::RetryJob(key)
        | Change::RemoveJob(key)
        | Change::AppendLog { key, .. } => *key,
        Change::PutLease(lease) => lease.key,
        Change::PutInput(row) => row.job,
        Change::RemoveInput { job, .. } => *job,
        _ => return None,
    })
}

fn row_key(change: &Change) -> Option<RowKey<'_>> {
    Some(match change {
        Change::PutQueue(record) => RowKey::Queue(&record.namespace, &record.queue),
        Change::RemoveQueue(namespace, queue) => RowKey::Queue(namespace, queue),
        Change::PutNamespace(record) => RowKey::Namespace(&record.namespace),
        Change::PutSchedule(record) => RowKey::Schedule(&record.namespace, &record.id),
        Change::RemoveSchedule(namespace, id) => RowKey::Schedule(namespace, id),
        Change::PutUnique(record) => RowKey::Unique(&record.namespace, &record.key),
        Change::RemoveUnique(namespace, key) => RowKey::Unique(namespace, key),
        Change::PutIdempotencyRecord(record) => {
            RowKey::SubmissionAnswer(&record.namespace, &record.key)
        }
        Change::RemoveIdempotencyRecord(namespace, key) => RowKey::SubmissionAnswer(namespace, key),
        Change::PutTagCount(namespace, tag, _) => RowKey::TagCount(namespace, tag),
        Change::PutGroupCount(namespace, group, _) => RowKey::GroupCount(namespace, group),
        Change::PutTracked(namespace, id, _) => RowKey::Tracked(namespace, id),
        Change::PutStatistics(record) => {
            RowKey::Statistics(record.day, &record.namespace, &record.queue)
        }
        Change::PutOperation(record) => RowKey::Operation(record.number),
        Change::RemoveOperation(number) => RowKey::Operation(*number),
        Change::PutAudit(record) => RowKey::Audit(record.number),
        Change::RemoveAudit(number) => RowKey::Audit(*number),
        _ => return shard_row_key(change),
    })
}

/// The key of a row about other shards or of an external system; `None` for other changes, and for the removal of a
/// part, which concerns two rows.
fn shard_row_key(change: &Change) -> Option<RowKey<'_>> {
    Some(match change {
        Change::PutPeer(record) => RowKey::Peer(&record.shard),
        Change::PutOutbox(record) => RowKey::Outbox(&record.to, record.number),
        Change::RemoveOutbox(shard, number) => RowKey::Outbox(shard, *number),
        Change::PutPart(record) => RowKey::Part(&record.namespace, &record.graph),
        Change::PutPartJobs(part) => RowKey::PartJobs(&part.record.namespace, &part.record.graph),
        Change::RemovePartJobs(namespace, graph) => RowKey::PartJobs(namespace, graph),
        Change::PutDependent(dependency, dependent) => {
            RowKey::Dependent(*dependency, &dependent.shard, dependent.key, dependent.slot)
        }
        Change::RemoveDependent(dependency, shard, key, slot) => {
            RowKey::Dependent(*dependency, shard, *key, *slot)
        }
        Change::External(change) => RowKey::External(change.key()),
        _ => return None,
    })
}
