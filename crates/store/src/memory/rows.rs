//! The rows of the memory store, and the effect of each change on them.

use std::collections::BTreeMap;

use ganger_types::IdempotencyRecord;
use ganger_types::change::UniqueRecord;
use ganger_types::{
    AuditRecord, Bytes, Change, Day, Group, IdempotencyKey, InputRow, InputState, JobId, JobKey,
    JobRecord, LeaseRecord, Namespace, NamespaceRecord, OperationNumber, OperationRecord, Queue,
    QueueRecord, ScheduleId, ScheduleRecord, StatisticsRecord, Tag, Timestamp, UniqueKey,
};

use super::shards::ShardRows;
use crate::reader::LogChunk;
use crate::store::{Loaded, statistics_loaded_from};

/// All rows except the counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    /// Live and finished jobs; finished ones have `finished` set.
    pub(super) jobs: BTreeMap<JobKey, JobRecord>,
    pub(super) ids: BTreeMap<(Namespace, JobId), JobKey>,
    pub(super) payloads: BTreeMap<JobKey, Bytes>,
    pub(super) results: BTreeMap<JobKey, Bytes>,
    pub(super) leases: BTreeMap<JobKey, LeaseRecord>,
    pub(super) inputs: BTreeMap<(JobKey, u32), InputState>,
    pub(super) logs: BTreeMap<(JobKey, u32, u64), LogChunk>,
    pub(super) statistics: BTreeMap<(Day, Namespace, Queue), StatisticsRecord>,
    queues: BTreeMap<(Namespace, Queue), QueueRecord>,
    namespaces: BTreeMap<Namespace, NamespaceRecord>,
    schedules: BTreeMap<(Namespace, ScheduleId), ScheduleRecord>,
    uniques: BTreeMap<(Namespace, UniqueKey), UniqueRecord>,
    idempotency_records: BTreeMap<(Namespace, IdempotencyKey), IdempotencyRecord>,
    tag_counts: BTreeMap<(Namespace, Tag), u64>,
    group_counts: BTreeMap<(Namespace, Group), u64>,
    tracked: BTreeMap<(Namespace, JobId), Timestamp>,
    operations: BTreeMap<OperationNumber, OperationRecord>,
    audit_log: BTreeMap<u64, AuditRecord>,
    pub(super) shards: ShardRows,
}

impl Rows {
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::PutJob(record) | Change::PutFinished(record) => self.put_job(record),
            Change::PutPayload { key, payload } => {
                self.payloads.insert(*key, payload.clone());
            }
            Change::PutInput(row) => {
                self.inputs.insert((row.job, row.slot), row.state.clone());
            }
            Change::RemoveInput { job, slot } => {
                self.inputs.remove(&(*job, *slot));
            }
            Change::PutLease(lease) => {
                self.leases.insert(lease.key, (**lease).clone());
            }
            Change::RemoveLease(key) => {
                self.leases.remove(key);
            }
            Change::FinishJob { record, result } => {
                self.leases.remove(&record.key);
                put_or_remove(&mut self.results, record.key, result.clone());
                self.put_job(record);
            }
            Change::RetryJob(key) => {
                self.results.remove(key);
            }
            Change::RemoveJob(key) => self.remove_job(*key),
            Change::AppendLog {
                key,
                attempt,
                offset,
                at,
                bytes,
            } => {
                let chunk = LogChunk {
                    attempt: *attempt,
                    offset: *offset,
                    at: *at,
                    bytes: bytes.clone(),
                };
                self.logs.insert((*key, *attempt, *offset), chunk);
            }
            _ => self.apply_small(change),
        }
    }

    fn apply_small(&mut self, change: &Change) {
        match change {
            Change::PutQueue(record) => {
                let key = (record.namespace.clone(), record.queue.clone());
                self.queues.insert(key, (**record).clone());
            }
            Change::RemoveQueue(namespace, queue) => {
                self.queues.remove(&(namespace.clone(), queue.clone()));
            }
            Change::PutNamespace(record) => {
                self.namespaces
                    .insert(record.namespace.clone(), (**record).clone());
            }
            Change::PutSchedule(record) => {
                let key = (record.namespace.clone(), record.id.clone());
                self.schedules.insert(key, (**record).clone());
            }
            Change::RemoveSchedule(namespace, id) => {
                self.schedules.remove(&(namespace.clone(), id.clone()));
            }
            Change::PutUnique(record) => {
                let key = (record.namespace.clone(), record.key.clone());
                self.uniques.insert(key, (**record).clone());
            }
            Change::RemoveUnique(namespace, key) => {
                self.uniques.remove(&(namespace.clone(), key.clone()));
            }
            Change::PutIdempotencyRecord(record) => {
                let key = (record.namespace.clone(), record.key.clone());
                self.idempotency_records.insert(key, (**record).clone());
            }
            Change::RemoveIdempotencyRecord(namespace, key) => {
                self.idempotency_records
                    .remove(&(namespace.clone(), key.clone()));
            }
            Change::PutTagCount(namespace, tag, count) => {
                let key = (namespace.clone(), tag.clone());
                put_or_remove(&mut self.tag_counts, key, Some(*count).filter(|n| *n > 0));
            }
            Change::PutGroupCount(namespace, group, count) => {
                let key = (namespace.clone(), group.clone());
                put_or_remove(&mut self.group_counts, key, Some(*count).filter(|n| *n > 0));
            }
            Change::PutTracked(namespace, id, since) => {
                put_or_remove(&mut self.tracked, (namespace.clone(), id.clone()), *since);
            }
            Change::PutStatistics(record) => {
                let key = (record.day, record.namespace.clone(), record.queue.clone());
                self.statistics.insert(key, (**record).clone());
            }
            Change::PutOperation(record) => {
                self.operations.insert(record.number, (**record).clone());
            }
            Change::RemoveOperation(number) => {
                self.operations.remove(number);
            }
            Change::PutAudit(record) => {
                self.audit_log.insert(record.number, (**record).clone());
            }
            Change::RemoveAudit(number) => {
                self.audit_log.remove(number);
            }
            _ => self.shards.apply(change),
        }
    }

    fn put_job(&mut self, record: &JobRecord) {
        self.ids
            .insert((record.namespace.clone(), record.id.clone()), record.key);
        self.jobs.insert(record.key, record.clone());
    }

    fn remove_job(&mut self, key: JobKey) {
        if let Some(record) = self.jobs.remove(&key) {
            self.ids.remove(&(record.namespace, record.id));
        }
        self.payloads.remove(&key);
        self.results.remove(&key);
        self.leases.remove(&key);
        self.inputs.retain(|(job, _), _| *job != key);
        self.logs.retain(|(job, _, _), _| *job != key);
    }

    pub(super) fn load(&self, wall: Timestamp, each: &mut dyn FnMut(Loaded)) {
        self.namespaces
            .values()
            .for_each(|row| each(Loaded::Namespace(Box::new(row.clone()))));
        self.queues
            .values()
            .for_each(|row| each(Loaded::Queue(Box::new(row.clone()))));
        self.schedules
            .values()
            .for_each(|row| each(Loaded::Schedule(Box::new(row.clone()))));
        let is_live = |key: &JobKey| self.jobs.get(key).is_some_and(|job| job.finished.is_none());
        for job in self.jobs.values().filter(|job| job.finished.is_none()) {
            each(Loaded::Job(Box::new(job.clone())));
        }
        for ((job, slot), state) in self.inputs.iter().filter(|((job, _), _)| is_live(job)) {
            if matches!(
                state,
                InputState::Missing { .. }
                    | InputState::Delivered { .. }
                    | InputState::Remote { .. }
            ) {
                each(Loaded::Input(InputRow {
                    job: *job,
                    slot: *slot,
                    state: state.clone(),
                }));
            }
        }
        self.leases
            .values()
            .for_each(|row| each(Loaded::Lease(Box::new(row.clone()))));
        self.load_small(wall, each);
    }

    fn load_small(&self, wall: Timestamp, each: &mut dyn FnMut(Loaded)) {
        self.uniques
            .values()
            .for_each(|row| each(Loaded::Unique(Box::new(row.clone()))));
        self.idempotency_records
            .values()
            .for_each(|row| each(Loaded::IdempotencyRecord(Box::new(row.clone()))));
        for ((namespace, tag), count) in &self.tag_counts {
            each(Loaded::TagCount(namespace.clone(), tag.clone(), *count));
        }
        for ((namespace, group), count) in &self.group_counts {
            each(Loaded::GroupCount(namespace.clone(), group.clone(), *count));
        }
        for ((namespace, id), since) in &self.tracked {
            each(Loaded::Tracked(namespace.clone(), id.clone(), *since));
        }
        let from = statistics_loaded_from(wall);
        for record in self.statistics.values().filter(|record| record.day >= from) {
            each(Loaded::Statistics(Box::new(record.clone())));
        }
        self.operations
            .values()
            .for_each(|row| each(Loaded::Operation(Box::new(row.clone()))));
        self.audit_log
            .values()
            .for_each(|row| each(Loaded::Audit(Box::new(row.clone()))));
        self.shards.load(each);
    }
}

fn put_or_remove<K: Ord, V>(rows: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => rows.insert(key, value),
        None => rows.remove(&key),
    };
}
