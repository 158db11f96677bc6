//! A host for the engine: stores its changes as rows, prefetches rows for it, and can restart it.
//!
//! After every command it checks the invariants; `restart` also checks that the rows alone rebuild the
//! engine exactly.

#![allow(clippy::too_many_lines, reason = "one arm a kind of change")]
#![allow(missing_docs, unreachable_pub, reason = "a test's own support")]

pub mod cluster;
pub mod key_model;

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_engine::{
    Archive, Effects, Engine, Loader, Members, PrefetchedRows, Start, read_followers,
};
use ganger_types::change::UniqueRecord;
use ganger_types::command::*;
use ganger_types::query::Query;
use ganger_types::*;
use ganger_types::{ExternalRow, ExternalRowKey, IdempotencyRecord};

#[derive(Default, Clone, PartialEq)]
pub struct Rows {
    pub jobs: BTreeMap<JobKey, JobRecord>,
    pub finished: BTreeMap<JobKey, JobRecord>,
    pub payloads: BTreeMap<JobKey, Bytes>,
    pub results: BTreeMap<JobKey, Bytes>,
    pub inputs: BTreeMap<(JobKey, u32), InputRow>,
    pub leases: BTreeMap<JobKey, LeaseRecord>,
    pub logs: BTreeMap<(JobKey, u32, u64), Bytes>,
    pub queues: BTreeMap<(Namespace, Queue), QueueRecord>,
    pub namespaces: BTreeMap<Namespace, NamespaceRecord>,
    pub schedules: BTreeMap<(Namespace, ScheduleId), ScheduleRecord>,
    pub unique: BTreeMap<(Namespace, UniqueKey), UniqueRecord>,
    pub idempotency_records: BTreeMap<(Namespace, IdempotencyKey), IdempotencyRecord>,
    pub tags: BTreeMap<(Namespace, Tag), u64>,
    pub groups: BTreeMap<(Namespace, Group), u64>,
    pub tracked: BTreeMap<(Namespace, JobId), Timestamp>,
    pub statistics: BTreeMap<(Namespace, Queue, Day), StatisticsRecord>,
    pub operations: BTreeMap<OperationNumber, OperationRecord>,
    pub audit_log: BTreeMap<u64, AuditRecord>,
    pub peers: BTreeMap<ShardId, PeerRecord>,
    pub outbox: BTreeMap<(ShardId, u64), OutboxRecord>,
    pub parts: BTreeMap<(Namespace, Graph), PartRecord>,
    pub part_jobs: BTreeMap<(Namespace, Graph), Part>,
    pub dependents: BTreeMap<(JobKey, ShardId, JobKey, u32), Dependent>,
    pub external: BTreeMap<ExternalRowKey, ExternalRow>,
}

impl Rows {
    pub fn write(&mut self, change: Change) {
        match change {
            Change::PutJob(record) => {
                assert!(
                    !self.finished.contains_key(&record.key),
                    "a finished job is written as live"
                );
                self.jobs.insert(record.key, *record);
            }
            Change::PutPayload { key, payload } => {
                self.payloads.insert(key, payload);
            }
            Change::PutInput(row) => {
                self.inputs.insert((row.job, row.slot), row);
            }
            Change::RemoveInput { job, slot } => {
                self.inputs.remove(&(job, slot)).expect("it is there");
            }
            Change::PutLease(lease) => {
                assert!(
                    self.jobs.contains_key(&lease.key),
                    "a lease needs a live job"
                );
                self.leases.insert(lease.key, *lease);
            }
            Change::RemoveLease(key) => {
                self.leases.remove(&key).expect("it is there");
            }
            Change::FinishJob { record, result } => {
                assert!(
                    !self.leases.contains_key(&record.key),
                    "its lease must have ended"
                );
                self.jobs.remove(&record.key).expect("it was live");
                if let Some(result) = result {
                    self.results.insert(record.key, result);
                }
                self.finished.insert(record.key, *record);
            }
            Change::PutFinished(record) => {
                self.finished
                    .insert(record.key, *record)
                    .expect("it was finished");
            }
            Change::RetryJob(key) => {
                self.finished.remove(&key).expect("it was finished");
                self.results.remove(&key);
            }
            Change::RemoveJob(key) => {
                let was_there =
                    self.jobs.remove(&key).is_some() | self.finished.remove(&key).is_some();
                assert!(was_there, "job {key} is removed twice");
                self.payloads.remove(&key);
                self.results.remove(&key);
                self.inputs.retain(|(job, _), _| *job != key);
            }
            Change::AppendLog {
                key,
                attempt,
                offset,
                bytes,
                ..
            } => {
                self.logs.insert((key, attempt, offset), bytes);
            }
            Change::PutQueue(record) => {
                self.queues
                    .insert((record.namespace.clone(), record.queue.clone()), *record);
            }
            Change::RemoveQueue(namespace, queue) => {
                self.queues.remove(&(namespace, queue));
            }
            Change::PutNamespace(record) => {
                self.namespaces.insert(record.namespace.clone(), *record);
            }
            Change::PutSchedule(record) => {
                self.schedules
                    .insert((record.namespace.clone(), record.id.clone()), *record);
            }
            Change::RemoveSchedule(namespace, id) => {
                self.schedules
                    .remove(&(namespace, id))
                    .expect("it is there");
            }
            Change::PutUnique(record) => {
                self.unique
                    .insert((record.namespace.clone(), record.key.clone()), *record);
            }
            Change::RemoveUnique(namespace, key) => {
                self.unique.remove(&(namespace, key)).expect("it is there");
            }
            Change::PutIdempotencyRecord(record) => {
                self.idempotency_records
                    .insert((record.namespace.clone(), record.key.clone()), *record);
            }
            Change::RemoveIdempotencyRecord(namespace, key) => {
                self.idempotency_records
                    .remove(&(namespace, key))
                    .expect("it is there");
            }
            Change::PutTagCount(namespace, tag, count) => {
                put_count(&mut self.tags, (namespace, tag), count);
            }
            Change::PutGroupCount(namespace, group, count) => {
                put_count(&mut self.groups, (namespace, group), count);
            }
            Change::PutTracked(namespace, id, Some(since)) => {
                self.tracked.insert((namespace, id), since);
            }
            Change::PutTracked(namespace, id, None) => {
                self.tracked.remove(&(namespace, id));
            }
            Change::PutStatistics(record) => {
                let key = (record.namespace.clone(), record.queue.clone(), record.day);
                self.statistics.insert(key, *record);
            }
            Change::PutOperation(record) => {
                self.operations.insert(record.number, *record);
            }
            Change::RemoveOperation(number) => {
                self.operations.remove(&number).expect("it is there");
            }
            Change::PutAudit(record) => {
                self.audit_log.insert(record.number, *record);
            }
            Change::RemoveAudit(number) => {
                self.audit_log.remove(&number).expect("it is there");
            }
            change => self.write_for_peers(change),
        }
    }

    fn write_for_peers(&mut self, change: Change) {
        match change {
            Change::PutOutbox(record) => {
                self.outbox
                    .insert((record.to.clone(), record.number), *record);
            }
            Change::RemoveOutbox(shard, number) => {
                self.outbox.remove(&(shard, number)).expect("it is there");
            }
            Change::PutPeer(record) => {
                self.peers.insert(record.shard.clone(), *record);
            }
            Change::PutPart(record) => {
                self.parts
                    .insert((record.namespace.clone(), record.graph.clone()), *record);
            }
            Change::RemovePart(namespace, graph) => {
                self.part_jobs.remove(&(namespace.clone(), graph.clone()));
                self.parts.remove(&(namespace, graph)).expect("it is there");
            }
            Change::PutPartJobs(part) => {
                let record = &part.record;
                self.part_jobs
                    .insert((record.namespace.clone(), record.graph.clone()), *part);
            }
            Change::RemovePartJobs(namespace, graph) => {
                self.part_jobs
                    .remove(&(namespace, graph))
                    .expect("it is there");
            }
            Change::PutDependent(dependency, dependent) => {
                let (shard, key, slot) = (dependent.shard.clone(), dependent.key, dependent.slot);
                self.dependents
                    .insert((dependency, shard, key, slot), *dependent);
            }
            Change::RemoveDependent(dependency, shard, key, slot) => {
                self.dependents
                    .remove(&(dependency, shard, key, slot))
                    .expect("it is there");
            }
            Change::External(change) => {
                match change.row() {
                    Some(row) => self.external.insert(change.key(), row),
                    None => self.external.remove(&change.key()),
                };
            }
            other => panic!("{other:?} is written above"),
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

pub struct World {
    pub shard: ShardId,
    pub engine: Engine,
    pub rows: Rows,
    pub now: Now,
    pub epoch: u64,
    pub events: Vec<Event>,
    pub messages: Vec<(Namespace, QlessMessage)>,
}

/// A different seed for each shard and start.
fn seed_of(shard: &ShardId, epoch: u64) -> [u8; 32] {
    let mut seed = [7; 32];
    seed[0] = u8::try_from(epoch % 256).expect("a remainder of 256");
    for (byte, from) in seed[1..].iter_mut().zip(shard.as_str().bytes()) {
        *byte = from;
    }
    seed
}

pub const START: u64 = 1_700_000_000_000_000;

impl World {
    pub fn new() -> Self {
        Self::of_shard(&ShardId::default())
    }

    pub fn of_shard(shard: &ShardId) -> Self {
        let now = Now {
            elapsed: Elapsed(0),
            wall: Timestamp(START),
        };
        let start = Start {
            shard: shard.clone(),
            epoch: Epoch(1),
            seed: seed_of(shard, 1),
            meta: Meta::default(),
            now,
        };
        let engine = Loader::new(start).finish();
        Self {
            engine,
            shard: shard.clone(),
            rows: Rows::default(),
            now,
            epoch: 1,
            events: Vec::new(),
            messages: Vec::new(),
        }
    }

    pub fn known(&self, command: &Command) -> PrefetchedRows {
        let mut known = PrefetchedRows::default();
        for (namespace, id) in self.engine.prefetch(command) {
            let found = self
                .rows
                .finished
                .values()
                .find(|job| job.id == id && job.namespace == namespace);
            known.jobs.extend(found.cloned());
        }
        for name in self.engine.prefetch_parts(command) {
            known.parts.extend(self.rows.part_jobs.get(&name).cloned());
        }
        if let Some(followed) = self.engine.prefetch_followers(command) {
            read_followers(&mut &self.rows, &followed, &mut known).expect("memory does not fail");
        }
        if self.engine.prefetch_inputs(command) {
            let keys: Vec<JobKey> = known.jobs.iter().map(|job| job.key).collect();
            for key in keys {
                let rows = self.rows.inputs.range((key, 0)..=(key, u32::MAX));
                for (_, row) in rows {
                    if let InputState::Missing { dependency, .. }
                    | InputState::Delivered { dependency, .. } = &row.state
                    {
                        known
                            .jobs
                            .extend(self.rows.finished.get(dependency).cloned());
                    }
                    known.inputs.push(row.clone());
                }
            }
        }
        known
    }

    pub fn settle(&mut self, mut out: Effects) {
        self.engine.end_turn(self.now, &mut out);
        for change in out.changes {
            self.rows.write(change);
        }
        self.events.extend(out.events);
        self.messages.extend(out.messages);
        let wrong = self.engine.check_invariants();
        assert!(wrong.is_empty(), "{wrong:#?}");
        for (key, record) in &self.rows.jobs {
            assert!(self.engine.is_live(*key), "row {record:?} is not live");
        }
        assert_eq!(
            self.rows.jobs.len(),
            self.engine.live_jobs(),
            "each live job has a row"
        );
    }

    /// Applies a command as one turn.
    pub fn run(&mut self, command: Command) -> Answer {
        let known = self.known(&command);
        let mut out = Effects::default();
        self.engine.advance(self.now, usize::MAX, &mut out);
        let answer = self.engine.apply(self.now, command, &known, &mut out);
        self.settle(out);
        answer
    }

    /// Applies a command that must be accepted.
    pub fn ok(&mut self, command: Command) -> Reply {
        let shown = format!("{command:?}");
        self.run(command)
            .unwrap_or_else(|refused| panic!("{shown} was refused: {refused}"))
    }

    /// Applies a command that must be refused, checks that nothing has changed, and returns the code.
    pub fn refused(&mut self, command: Command) -> &'static str {
        let before = self.engine.dump();
        let code = self.run(command).expect_err("it should be refused").code();
        assert_eq!(
            before,
            self.engine.dump(),
            "a refused command changed something"
        );
        code
    }

    /// Lets time pass on both clocks, and fires due timers.
    pub fn pass(&mut self, time: Duration) {
        self.now.elapsed = self.now.elapsed.after(time);
        self.now.wall = self.now.wall.after(time);
        self.advance();
    }

    pub fn advance(&mut self) {
        let mut out = Effects::default();
        self.engine.advance(self.now, usize::MAX, &mut out);
        self.settle(out);
    }

    /// Drops the engine, rebuilds it from the rows, and checks that it is the same.
    pub fn restart(&mut self) {
        let before = self.engine.dump();
        let meta = self.engine.meta();
        self.load(meta);
        let after = self.engine.dump();
        for (old, new) in before.iter().zip(&after) {
            assert_eq!(old, new, "the rows do not rebuild the engine");
        }
        assert_eq!(before.len(), after.len());
    }

    fn load(&mut self, meta: Meta) {
        self.epoch += 1;
        let start = Start {
            shard: self.shard.clone(),
            epoch: Epoch(self.epoch),
            seed: seed_of(&self.shard, self.epoch),
            meta,
            now: self.now,
        };
        let mut loader = Loader::new(start);
        let rows = self.rows.clone();
        rows.namespaces
            .into_values()
            .for_each(|row| loader.namespace(row));
        rows.queues.into_values().for_each(|row| loader.queue(row));
        rows.schedules
            .into_values()
            .for_each(|row| loader.schedule(row));
        rows.jobs.values().for_each(|row| loader.job(row));
        rows.inputs.values().for_each(|row| loader.input(row));
        rows.leases.into_values().for_each(|row| loader.lease(row));
        rows.unique.into_values().for_each(|row| loader.unique(row));
        rows.idempotency_records
            .into_values()
            .for_each(|row| loader.idempotency_record(row));
        rows.tags
            .into_iter()
            .for_each(|((space, tag), count)| loader.tag_count(&space, tag, count));
        rows.groups
            .into_iter()
            .for_each(|((space, group), count)| loader.group_count(&space, group, count));
        rows.tracked
            .into_iter()
            .for_each(|((space, id), since)| loader.tracked(&space, id, since));
        rows.statistics
            .into_values()
            .for_each(|row| loader.statistics(row));
        rows.operations
            .into_values()
            .for_each(|row| loader.operation(row));
        rows.audit_log
            .into_values()
            .for_each(|row| loader.audit(row));
        rows.peers.into_values().for_each(|row| loader.peer(row));
        rows.outbox.into_values().for_each(|row| loader.outbox(row));
        rows.parts.into_values().for_each(|row| loader.part(row));
        rows.dependents
            .into_iter()
            .for_each(|((dependency, ..), row)| loader.dependent(dependency, row));
        rows.external
            .into_values()
            .for_each(|row| loader.external(row));
        self.engine = loader.finish();
        let wrong = self.engine.check_invariants();
        assert!(wrong.is_empty(), "after a restart: {wrong:#?}");
    }

    /// Replaces the store by an older one, as a restored backup does.
    pub fn restore(&mut self, rows: Rows, meta: Meta) {
        self.rows = rows;
        self.load(meta);
    }

    pub fn state(&self, id: &JobId) -> Option<JobState> {
        let live = self.rows.jobs.values().find(|job| job.id == *id);
        if let Some(job) = live {
            let runs = self.rows.leases.contains_key(&job.key);
            return Some(if runs { JobState::Running } else { job.state });
        }
        let ended = self.rows.finished.values().find(|job| job.id == *id)?;
        Some(
            ended
                .finished
                .as_ref()
                .expect("it has ended")
                .outcome
                .state(),
        )
    }

    pub fn ended(&self, id: &JobId) -> &JobRecord {
        self.rows
            .finished
            .values()
            .find(|job| job.id == *id)
            .expect("the job has ended")
    }

    pub fn enqueue(&mut self, jobs: Vec<NewJob>) -> Vec<JobId> {
        match self.ok(submit(jobs)) {
            Reply::Enqueued { jobs, .. } => jobs.into_iter().map(|job| job.id).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub fn enqueue_one(&mut self, job: NewJob) -> JobId {
        self.enqueue(vec![job]).remove(0)
    }

    pub fn lease(&mut self, worker: &'static str, max: u32) -> Vec<Grant> {
        match self.ok(lease(worker, &["default"], max)) {
            Reply::Leased(grants) => grants,
            other => panic!("{other:?}"),
        }
    }

    pub fn lease_one(&mut self, worker: &'static str) -> Grant {
        self.lease(worker, 1)
            .into_iter()
            .next()
            .expect("a job is ready")
    }

    pub fn complete(&mut self, grant: &Grant) -> Answer {
        self.run(complete(grant, "\"done\""))
    }

    pub fn fail(&mut self, grant: &Grant) -> Answer {
        self.run(fail(grant, false))
    }

    pub fn query(&mut self, query: Query) -> Reply {
        self.ok(Command::Query(Box::new(query)))
    }
}

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn job() -> NewJob {
    NewJob {
        kind: Kind::from_static("echo"),
        payload: Bytes::from_static(b"[1]"),
        ..NewJob::default()
    }
}

pub fn named(id: &str) -> NewJob {
    NewJob {
        id: Some(JobId::new(id).expect("short")),
        ..job()
    }
}

pub fn quick_retries(max: u32) -> RetryPolicy {
    RetryPolicy {
        retries_max: max,
        backoff: Backoff::Fixed(Duration::ZERO),
        jitter_percent: 0,
        lease_expirations_max: None,
    }
}

pub fn result_of(member: u32, policy: FailurePolicy) -> NewInput {
    NewInput::Result(NewEdge {
        dependency: Dependency::Member(member),
        policy,
    })
}

pub fn submit(jobs: Vec<NewJob>) -> Command {
    Command::Enqueue(Box::new(Enqueue {
        jobs,
        ..Enqueue::default()
    }))
}

pub fn lease(worker: &'static str, queues: &[&'static str], max: u32) -> Command {
    Command::Lease(Box::new(Lease {
        queues: queues
            .iter()
            .map(|queue| TakeFrom {
                queue: Queue::from_static(queue),
                weight: 1,
            })
            .collect(),
        worker: Some(Worker::from_static(worker)),
        jobs_max: max,
        ..Lease::default()
    }))
}

pub fn held(grant: &Grant) -> LeaseRef {
    LeaseRef {
        namespace: grant.namespace.clone(),
        job: grant.job.clone(),
        token: grant.token,
    }
}

pub fn complete(grant: &Grant, result: &'static str) -> Command {
    let result = Some(Bytes::from_static(result.as_bytes()));
    Command::Complete(Box::new(Complete {
        held: held(grant),
        result,
        next: None,
    }))
}

pub fn fail(grant: &Grant, permanent: bool) -> Command {
    Command::Fail(Box::new(Fail {
        held: held(grant),
        group: Group::from_static("broken"),
        message: "it broke".into(),
        permanent,
        retry_after: None,
        lost: false,
    }))
}

/// A report that the worker died, whose other fields must not matter.
pub fn lost(grant: &Grant) -> Command {
    Command::Fail(Box::new(Fail {
        held: held(grant),
        group: Group::from_static("broken"),
        message: "it died".into(),
        permanent: true,
        retry_after: Some(secs(500)),
        lost: true,
    }))
}

pub fn release(grant: &Grant, counted: bool, keep_place: bool, delay: Duration) -> Command {
    let reason = "no handler".to_owned();
    Command::Release(Box::new(Release {
        held: held(grant),
        delay,
        counted,
        by_server: false,
        keep_place,
        reason,
    }))
}

pub fn renew(grant: &Grant) -> Command {
    Command::Renew(Box::new(Renew {
        held: held(grant),
        lease_for: None,
        progress: None,
        payload: None,
    }))
}

pub fn cancel(ids: &[JobId]) -> Command {
    let jobs = Selection::Jobs(ids.to_vec());
    Command::Cancel(Box::new(Cancel {
        namespace: Namespace::default(),
        jobs,
        reason: "by hand".into(),
    }))
}

pub fn retry(ids: &[JobId]) -> Command {
    Command::Retry(Box::new(Retry {
        namespace: Namespace::default(),
        jobs: ids.to_vec(),
        queue: None,
        dependents: false,
        graph: None,
    }))
}

pub fn retry_all(ids: &[JobId]) -> Command {
    Command::Retry(Box::new(Retry {
        namespace: Namespace::default(),
        jobs: ids.to_vec(),
        queue: None,
        dependents: true,
        graph: None,
    }))
}

impl Archive for &Rows {
    type Error = std::convert::Infallible;

    fn dependents(&mut self, key: JobKey) -> Result<Vec<JobKey>, Self::Error> {
        let waits = |row: &&InputRow| matches!(row.state, InputState::Missing { dependency, .. } if dependency == key);
        Ok(self
            .inputs
            .values()
            .filter(waits)
            .map(|row| row.job)
            .collect())
    }

    fn ended(&mut self, key: JobKey) -> Result<Option<JobRecord>, Self::Error> {
        Ok(self.finished.get(&key).cloned())
    }

    fn inputs(&mut self, key: JobKey) -> Result<Vec<InputRow>, Self::Error> {
        let rows = self.inputs.range((key, 0)..=(key, u32::MAX));
        Ok(rows.map(|(_, row)| row.clone()).collect())
    }

    fn members(&mut self, asked: &Members) -> Result<(Vec<JobKey>, Option<JobKey>), Self::Error> {
        let is_meant = |job: &&JobRecord| {
            job.namespace == asked.namespace
                && job.graph.as_ref() == Some(&asked.graph)
                && Some(job.key) > asked.after
                && job
                    .finished
                    .as_ref()
                    .is_some_and(|end| end.outcome != Outcome::Succeeded)
        };
        // Few members per page, so that a graph takes several pages.
        let keys = self.finished.values().filter(is_meant).map(|job| job.key);
        let keys: Vec<JobKey> = keys.take(asked.limit.min(2)).collect();
        let up_to = keys.last().copied().filter(|_| keys.len() == 2);
        Ok((keys, up_to))
    }
}

pub fn configure(queue: &'static str, settings: QueueSettings) -> Command {
    Command::ConfigureQueue(Box::new(ConfigureQueue {
        namespace: Namespace::default(),
        queue: Queue::from_static(queue),
        change: QueueChange::All(settings),
    }))
}
