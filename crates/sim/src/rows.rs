//! The model store: rows in ordered maps, which checks each commit strictly.
//!
//! It contains exactly the rows of a durable store. It refuses changes that make no sense, such as a lease for a job
//! that is not live, because a real store would accept them.

use std::collections::{BTreeMap, BTreeSet};

use ganger_store::Loaded;
use ganger_types::IdempotencyRecord;
use ganger_types::change::UniqueRecord;
use ganger_types::{
    AuditRecord, Bytes, Change, Day, ExternalRow, ExternalRowKey, Group, IdempotencyKey, InputRow,
    InputState, JobId, JobKey, JobRecord, JobRef, JobState, LeaseRecord, Meta, Namespace,
    NamespaceRecord, OperationNumber, OperationRecord, Queue, QueueRecord, ScheduleId,
    ScheduleRecord, StatisticsRecord, Tag, Timestamp, UniqueKey,
};

/// A job that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FinishedRow {
    pub(crate) record: JobRecord,
    pub(crate) result: Option<Bytes>,
}

/// All rows of a shard's store.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rows {
    pub(crate) sequence: u64,
    pub(crate) meta: Meta,
    pub(crate) live: BTreeMap<JobKey, JobRecord>,
    pub(crate) finished: BTreeMap<JobKey, FinishedRow>,
    pub(crate) payloads: BTreeMap<JobKey, Bytes>,
    pub(crate) inputs: BTreeMap<(JobKey, u32), InputState>,
    pub(crate) leases: BTreeMap<JobKey, LeaseRecord>,
    pub(crate) logs: BTreeMap<(JobKey, u32), Vec<u8>>,
    pub(crate) queues: BTreeMap<(Namespace, Queue), QueueRecord>,
    pub(crate) namespaces: BTreeMap<Namespace, NamespaceRecord>,
    pub(crate) schedules: BTreeMap<(Namespace, ScheduleId), ScheduleRecord>,
    pub(crate) uniques: BTreeMap<(Namespace, UniqueKey), UniqueRecord>,
    pub(crate) idempotency_records: BTreeMap<(Namespace, IdempotencyKey), IdempotencyRecord>,
    pub(crate) tag_counts: BTreeMap<(Namespace, Tag), u64>,
    pub(crate) group_counts: BTreeMap<(Namespace, Group), u64>,
    pub(crate) tracked: BTreeMap<(Namespace, JobId), Timestamp>,
    pub(crate) statistics: BTreeMap<(Namespace, Queue, Day), StatisticsRecord>,
    pub(crate) ids: BTreeMap<(Namespace, JobId), JobKey>,
    pub(crate) operations: BTreeMap<OperationNumber, OperationRecord>,
    pub(crate) audit_log: BTreeMap<u64, AuditRecord>,
    /// Rows of external systems; here only the marks of imports.
    pub(crate) external: BTreeMap<ExternalRowKey, ExternalRow>,
    /// Retried jobs whose `PutJob` has not come yet; empty between commits.
    retrying: BTreeSet<JobKey>,
}

impl Rows {
    /// Applies the changes of a commit in order. The error names a change that makes no sense.
    pub(crate) fn apply(
        &mut self,
        sequence: u64,
        meta: Meta,
        changes: &[Change],
    ) -> Result<(), String> {
        for change in changes {
            self.put(change)
                .map_err(|why| format!("{why}: {change:?}"))?;
        }
        self.sequence = sequence;
        self.meta = meta;
        match self.retrying.first() {
            Some(key) => Err(format!(
                "job {key} was retried, but no live record followed"
            )),
            None => Ok(()),
        }
    }

    fn put(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::PutJob(record) => self.put_job(record)?,
            Change::PutPayload { key, payload } => {
                self.needs_known(*key)?;
                self.payloads.insert(*key, payload.clone());
            }
            Change::PutInput(row) => {
                self.needs_known(row.job)?;
                self.inputs.insert((row.job, row.slot), row.state.clone());
            }
            Change::RemoveInput { job, slot } => {
                if self.inputs.remove(&(*job, *slot)).is_none() {
                    return Err("there is no such input".into());
                }
            }
            Change::PutLease(lease) => {
                if !self.live.contains_key(&lease.key) {
                    return Err("a lease on a job that is not live".into());
                }
                self.leases.insert(lease.key, LeaseRecord::clone(lease));
            }
            Change::RemoveLease(key) => {
                self.leases.remove(key);
            }
            Change::FinishJob { record, result } => self.finish(record, result.as_ref())?,
            Change::PutFinished(record) => {
                let row = self.finished.get_mut(&record.key);
                row.ok_or("the job has not ended")?.record = JobRecord::clone(record);
            }
            Change::RetryJob(key) => {
                self.finished
                    .remove(key)
                    .ok_or("only an ended job can be retried")?;
                self.retrying.insert(*key);
            }
            Change::RemoveJob(key) => self.remove_job(*key)?,
            Change::AppendLog {
                key,
                attempt,
                offset,
                bytes,
                ..
            } => {
                self.needs_known(*key)?;
                let log = self.logs.entry((*key, *attempt)).or_default();
                // Logs are best effort: a lost chunk leaves a gap, a repeat overwrites itself.
                let from = usize::try_from(*offset).map_err(|error| error.to_string())?;
                log.resize(log.len().max(from + bytes.len()), 0);
                log[from..from + bytes.len()].copy_from_slice(bytes);
            }
            other => self.put_other(other),
        }
        Ok(())
    }

    fn put_other(&mut self, change: &Change) {
        match change {
            Change::PutQueue(record) => {
                let name = (record.namespace.clone(), record.queue.clone());
                self.queues.insert(name, QueueRecord::clone(record));
            }
            Change::RemoveQueue(namespace, queue) => {
                self.queues.remove(&(namespace.clone(), queue.clone()));
            }
            Change::PutNamespace(record) => {
                self.namespaces
                    .insert(record.namespace.clone(), NamespaceRecord::clone(record));
            }
            Change::PutSchedule(record) => {
                let name = (record.namespace.clone(), record.id.clone());
                self.schedules.insert(name, ScheduleRecord::clone(record));
            }
            Change::RemoveSchedule(namespace, id) => {
                self.schedules.remove(&(namespace.clone(), id.clone()));
            }
            Change::PutUnique(record) => {
                let name = (record.namespace.clone(), record.key.clone());
                self.uniques.insert(name, UniqueRecord::clone(record));
            }
            Change::RemoveUnique(namespace, key) => {
                self.uniques.remove(&(namespace.clone(), key.clone()));
            }
            Change::PutIdempotencyRecord(record) => {
                let name = (record.namespace.clone(), record.key.clone());
                self.idempotency_records
                    .insert(name, IdempotencyRecord::clone(record));
            }
            Change::RemoveIdempotencyRecord(namespace, key) => {
                self.idempotency_records
                    .remove(&(namespace.clone(), key.clone()));
            }
            Change::PutTagCount(namespace, tag, count) => {
                put_count(
                    &mut self.tag_counts,
                    (namespace.clone(), tag.clone()),
                    *count,
                );
            }
            Change::PutGroupCount(namespace, group, count) => {
                put_count(
                    &mut self.group_counts,
                    (namespace.clone(), group.clone()),
                    *count,
                );
            }
            Change::PutTracked(namespace, id, since) => {
                let name = (namespace.clone(), id.clone());
                match since {
                    Some(at) => self.tracked.insert(name, *at),
                    None => self.tracked.remove(&name),
                };
            }
            Change::PutStatistics(record) => {
                let name = (record.namespace.clone(), record.queue.clone(), record.day);
                self.statistics
                    .insert(name, StatisticsRecord::clone(record));
            }
            Change::PutOperation(record) => {
                self.operations
                    .insert(record.number, OperationRecord::clone(record));
            }
            Change::RemoveOperation(number) => {
                self.operations.remove(number);
            }
            Change::PutAudit(record) => {
                self.audit_log
                    .insert(record.number, AuditRecord::clone(record));
            }
            Change::RemoveAudit(number) => {
                self.audit_log.remove(number);
            }
            Change::External(change) => {
                match change.row() {
                    Some(row) => self.external.insert(change.key(), row),
                    None => self.external.remove(&change.key()),
                };
            }
            _ => unreachable!("changes of jobs are handled before"),
        }
    }

    fn put_job(&mut self, record: &JobRecord) -> Result<(), String> {
        if self.finished.contains_key(&record.key) {
            return Err("the job has ended (rel A2)".into());
        }
        if record.state.is_terminal() || record.state == JobState::Running {
            return Err(format!("a live record says {}", record.state));
        }
        if record.finished.is_some() {
            return Err("a live record says how it ended".into());
        }
        self.retrying.remove(&record.key);
        let name = (record.namespace.clone(), record.id.clone());
        match self.ids.insert(name, record.key) {
            Some(other) if other != record.key => {
                return Err(format!("the id belongs to job {other} already"));
            }
            _ => {}
        }
        self.live.insert(record.key, record.clone());
        Ok(())
    }

    fn finish(&mut self, record: &JobRecord, result: Option<&Bytes>) -> Result<(), String> {
        if self.finished.contains_key(&record.key) {
            return Err("the job has ended already (rel A2)".into());
        }
        if !record.state.is_terminal() || record.finished.is_none() {
            return Err(format!("an ended record says {}", record.state));
        }
        // A job may be enqueued and end in one turn; this is then its first row.
        self.live.remove(&record.key);
        self.leases.remove(&record.key);
        self.ids
            .insert((record.namespace.clone(), record.id.clone()), record.key);
        let row = FinishedRow {
            record: record.clone(),
            result: result.cloned(),
        };
        self.finished.insert(record.key, row);
        Ok(())
    }

    fn remove_job(&mut self, key: JobKey) -> Result<(), String> {
        let live = self.live.remove(&key);
        let finished = self.finished.remove(&key).map(|row| row.record);
        let record = live.or(finished).ok_or("there is no such job")?;
        self.ids.remove(&(record.namespace, record.id));
        self.payloads.remove(&key);
        self.leases.remove(&key);
        self.retrying.remove(&key);
        let slots: Vec<_> = self
            .inputs
            .range((key, 0)..=(key, u32::MAX))
            .map(|(k, _)| *k)
            .collect();
        for slot in slots {
            self.inputs.remove(&slot);
        }
        let logs: Vec<_> = self
            .logs
            .range((key, 0)..=(key, u32::MAX))
            .map(|(k, _)| *k)
            .collect();
        for log in logs {
            self.logs.remove(&log);
        }
        Ok(())
    }

    fn needs_known(&self, key: JobKey) -> Result<(), String> {
        let known = self.live.contains_key(&key)
            || self.finished.contains_key(&key)
            || self.retrying.contains(&key);
        if known {
            Ok(())
        } else {
            Err("it belongs to no job".into())
        }
    }

    /// Every row the engine needs, in the order of [`Loaded`].
    pub(crate) fn load(&self, each: &mut dyn FnMut(Loaded)) {
        let namespaces = self.namespaces.values();
        namespaces.for_each(|record| each(Loaded::Namespace(Box::new(record.clone()))));
        self.queues
            .values()
            .for_each(|record| each(Loaded::Queue(Box::new(record.clone()))));
        let schedules = self.schedules.values();
        schedules.for_each(|record| each(Loaded::Schedule(Box::new(record.clone()))));
        self.live
            .values()
            .for_each(|record| each(Loaded::Job(Box::new(record.clone()))));
        for ((job, slot), state) in &self.inputs {
            let awaited = matches!(
                state,
                InputState::Missing { .. } | InputState::Delivered { .. }
            );
            if awaited && self.live.contains_key(job) {
                each(Loaded::Input(InputRow {
                    job: *job,
                    slot: *slot,
                    state: state.clone(),
                }));
            }
        }
        self.leases
            .values()
            .for_each(|record| each(Loaded::Lease(Box::new(record.clone()))));
        self.uniques
            .values()
            .for_each(|record| each(Loaded::Unique(Box::new(record.clone()))));
        self.idempotency_records
            .values()
            .for_each(|record| each(Loaded::IdempotencyRecord(Box::new(record.clone()))));
        for ((namespace, tag), count) in &self.tag_counts {
            each(Loaded::TagCount(namespace.clone(), tag.clone(), *count));
        }
        for ((namespace, group), count) in &self.group_counts {
            each(Loaded::GroupCount(namespace.clone(), group.clone(), *count));
        }
        for ((namespace, id), since) in &self.tracked {
            each(Loaded::Tracked(namespace.clone(), id.clone(), *since));
        }
        let today = self.meta.wall.0 / 86_400_000_000;
        for record in self.statistics.values() {
            if u64::from(record.day.0) + 1 >= today {
                each(Loaded::Statistics(Box::new(record.clone())));
            }
        }
        self.operations
            .values()
            .for_each(|record| each(Loaded::Operation(Box::new(record.clone()))));
        self.audit_log
            .values()
            .for_each(|record| each(Loaded::Audit(Box::new(record.clone()))));
        let external = self.external.values();
        external.for_each(|row| each(Loaded::External(row.clone())));
    }

    /// The record of a job, live or finished.
    pub(crate) fn record(&self, key: JobKey) -> Option<&JobRecord> {
        self.live
            .get(&key)
            .or_else(|| self.finished.get(&key).map(|row| &row.record))
    }

    pub(crate) fn find(&self, namespace: &Namespace, id: &JobId) -> Option<&JobRecord> {
        let key = self.ids.get(&(namespace.clone(), id.clone()))?;
        self.record(*key)
    }

    /// The state of a job, as a reader of the store sees it.
    pub(crate) fn state(&self, key: JobKey) -> Option<JobState> {
        if self.leases.contains_key(&key) {
            return Some(JobState::Running);
        }
        self.record(key).map(|record| record.state)
    }

    /// The inputs of a job's program: values, results of dependencies, `null` for ignored ones.
    pub(crate) fn delivery(&self, key: JobKey) -> Result<Vec<Bytes>, String> {
        let slots = self.inputs.range((key, 0)..(key, InputRow::EDGE_FIRST));
        slots
            .map(|((_, slot), state)| self.input(key, *slot, state))
            .collect()
    }

    fn input(&self, key: JobKey, slot: u32, state: &InputState) -> Result<Bytes, String> {
        match state {
            InputState::Value(value) | InputState::Received { value, .. } => Ok(value.clone()),
            InputState::Ignored { .. } => Ok(Bytes::from_static(b"null")),
            InputState::Missing { id, .. }
            | InputState::Remote {
                dependency: JobRef { id, .. },
                ..
            } => Err(format!(
                "job {key} runs although input {slot} (job {id}) is missing"
            )),
            InputState::Delivered { dependency, id, .. } => {
                let row = self.finished.get(dependency).ok_or_else(|| {
                    format!("input {slot} of job {key} is the result of job {id}, which is gone")
                })?;
                Ok(row
                    .result
                    .clone()
                    .unwrap_or_else(|| Bytes::from_static(b"null")))
            }
        }
    }
}

fn put_count<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, count: u64) {
    if count == 0 {
        counts.remove(&key);
    } else {
        counts.insert(key, count);
    }
}
