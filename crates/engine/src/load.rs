//! Rebuilds the engine from the rows of a store.

use ganger_types::change::UniqueRecord;
use ganger_types::{
    AuditRecord, Dependent, Due, ExternalRow, Group, IdempotencyRecord, InputRow, InputState,
    JobId, JobKey, JobRecord, JobState, LeaseRecord, Message, MessageResult, Namespace,
    NamespaceRecord, Now, OperationRecord, OutboxRecord, PartRecord, PeerRecord, QueueRecord,
    ScheduleRecord, StatisticsRecord, Tag, Timestamp,
};

use crate::Start;
use crate::command::job_of;
use crate::engine::Engine;
use crate::grace::restore;
use crate::state::{Edge, Peer, RemoteEdge, Timer, WorkerState};

/// Loads the rows of a store after a start; [`Loader::finish`] returns the engine. Rows must be added in the order of
/// the methods, so that a row comes after those that it refers to.
pub struct Loader {
    engine: Engine,
    now: Now,
}

impl Loader {
    /// An empty engine, before any row.
    pub fn new(start: Start) -> Self {
        let now = start.now;
        Self {
            engine: Engine::new(start),
            now,
        }
    }

    /// Adds the record of a namespace.
    pub fn namespace(&mut self, record: NamespaceRecord) {
        let space = self.engine.make_space(&record.namespace);
        self.engine.spaces[space].settings = record.settings;
    }

    /// Adds the record of a queue.
    pub fn queue(&mut self, record: QueueRecord) {
        let space = self.engine.make_space(&record.namespace);
        let queue = self
            .engine
            .make_queue(space, &record.queue, record.created_at);
        let state = &mut self.engine.queues[queue];
        state.known = record.known;
        state.settings = record.settings;
        state.counts.succeeded = record.succeeded;
        state.counts.failed = record.failed;
        state.counts.cancelled = record.cancelled;
        state.enqueued_total = record.enqueued_total;
        state.finished_total = record.finished_total;
    }

    /// Adds the record of a schedule.
    pub fn schedule(&mut self, record: ScheduleRecord) {
        let space = self.engine.make_space(&record.namespace);
        self.engine.arm_schedule(space, record);
    }

    /// Adds the record of a live job.
    ///
    /// # Panics
    /// If the record says that the job runs or has ended.
    pub fn job(&mut self, record: &JobRecord) {
        let engine = &mut self.engine;
        let space = engine.make_space(&record.namespace);
        let queue = engine.make_queue(space, &record.queue, record.created_at);
        let job = job_of(record, queue, engine);
        let (key, state) = (job.key, job.state);
        assert!(
            !state.is_terminal() && state != JobState::Running,
            "a live row of job {key} says {state}"
        );
        engine.jobs.insert(job);
        let space = &mut engine.spaces[space];
        space.live += 1;
        if record.id_is_given {
            space.given.insert(record.id.clone(), key);
        }
        if let Some(graph) = &record.graph {
            space.graphs.entry(graph.clone()).or_default().insert(key);
        }
        engine.index(key, state);
    }

    /// Adds an input of a live job; values and ignored inputs may be omitted.
    pub fn input(&mut self, row: &InputRow) {
        let (dependency, policy, is_delivered) = match &row.state {
            InputState::Missing {
                dependency, policy, ..
            } => (*dependency, *policy, false),
            InputState::Delivered {
                dependency, policy, ..
            } => (*dependency, *policy, true),
            InputState::Remote {
                dependency,
                policy,
                is_member,
            } => {
                let edge = RemoteEdge {
                    dependency: dependency.clone(),
                    policy: *policy,
                    is_member: *is_member,
                };
                if self.engine.is_live(row.job) {
                    self.engine
                        .peers
                        .add_edge(self.now, (row.job, row.slot), edge);
                    self.engine.job_mut(row.job).details_mut().missing += 1;
                }
                return;
            }
            InputState::Value(_) | InputState::Ignored { .. } | InputState::Received { .. } => {
                return;
            }
        };
        if !self.engine.is_live(row.job) {
            return;
        }
        self.engine.edges.add(
            row.job,
            row.slot,
            Edge {
                dependency,
                policy,
                is_delivered,
            },
        );
        if !is_delivered {
            self.engine.job_mut(row.job).details_mut().missing += 1;
        }
    }

    /// Adds a lease. It gets its full length again (`rel T6`), and keeps what it had beyond that as a grace period.
    /// On callers' clocks its end does not change, because time passes there only with calls.
    pub fn lease(&mut self, mut lease: LeaseRecord) {
        let engine = &mut self.engine;
        let key = lease.key;
        let space = engine.space_of_job(key);
        if !engine.spaces[space].runs_on_callers_clock() {
            restore(&mut lease, self.now.elapsed);
        }
        let worker = WorkerState {
            seen: self.now.elapsed,
            seen_at: lease.granted_at,
            lease_for: lease.lease_for,
            holds: std::collections::BTreeSet::new(),
        };
        engine.spaces[space]
            .workers
            .entry(lease.worker.clone())
            .or_insert(worker);
        engine.resume_lease(lease);
    }

    /// Adds the record of a unique key.
    pub fn unique(&mut self, record: UniqueRecord) {
        let space = self.engine.make_space(&record.namespace);
        let space = &mut self.engine.spaces[space];
        if let Some(until) = record.until {
            space
                .timers
                .arm(Due::Wall(until), Timer::UniqueEnd(record.key.clone()));
        }
        space.unique.insert(record.key.clone(), record);
    }

    /// Adds the record of an idempotency key.
    pub fn idempotency_record(&mut self, record: IdempotencyRecord) {
        let space = self.engine.make_space(&record.namespace);
        self.engine.spaces[space].remember(record.key, record.answer);
    }

    /// Adds an operation, running or ended.
    pub fn operation(&mut self, record: OperationRecord) {
        self.engine.arm_operation(record);
    }

    /// Adds a record of the audit log. Records come in order of their numbers.
    pub fn audit(&mut self, record: AuditRecord) {
        self.engine.audit_log.records.push_back(record);
    }

    /// Adds the record of another shard.
    pub fn peer(&mut self, record: PeerRecord) {
        let shard = record.shard.clone();
        self.engine.peers.known.insert(shard, Peer::new(record));
    }

    /// Adds an unconfirmed message. Messages come in order of their numbers, after the record of their peer.
    pub fn outbox(&mut self, record: OutboxRecord) {
        let peers = &mut self.engine.peers;
        if let Message::Ended {
            result: MessageResult::Stored(key),
            ..
        } = &record.message
        {
            *peers.pins.entry(*key).or_default() += 1;
        }
        self.engine.peer(&record.to).outbox.push_back(record);
    }

    /// Adds the record of a submission over several shards.
    pub fn part(&mut self, record: PartRecord) {
        self.engine.add_part(self.now, record);
    }

    /// Adds a job of another shard that waits for a job of this one.
    pub fn dependent(&mut self, dependency: JobKey, dependent: Dependent) {
        self.engine.peers.add_dependent(dependency, dependent);
    }

    /// Adds the number of jobs with a tag.
    pub fn tag_count(&mut self, namespace: &Namespace, tag: Tag, count: u64) {
        let space = self.engine.make_space(namespace);
        self.engine.spaces[space].tag_counts.insert(tag, count);
    }

    /// Adds the number of kept jobs that failed in a group.
    pub fn group_count(&mut self, namespace: &Namespace, group: Group, count: u64) {
        let space = self.engine.make_space(namespace);
        self.engine.spaces[space].group_counts.insert(group, count);
    }

    /// Adds the time since which an id is tracked.
    pub fn tracked(&mut self, namespace: &Namespace, id: JobId, since: Timestamp) {
        let space = self.engine.make_space(namespace);
        self.engine.spaces[space].tracked.insert(id, since);
    }

    /// Adds the statistics of a queue and day.
    pub fn statistics(&mut self, record: StatisticsRecord) {
        let space = self.engine.make_space(&record.namespace);
        let queue = self.engine.make_queue(space, &record.queue, self.now.wall);
        self.engine.statistics.load(queue, record);
    }

    /// Adds a row of an external system.
    pub fn external(&mut self, row: ExternalRow) {
        self.engine.external.load(row);
    }

    /// Returns the engine. Timers that are due fire at the first [`Engine::advance`].
    pub fn finish(mut self) -> Engine {
        self.engine.external.loaded();
        self.engine.queues.wake_all();
        self.engine
    }
}
