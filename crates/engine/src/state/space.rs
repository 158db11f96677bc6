//! The state of namespaces and queues.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ganger_types::change::UniqueRecord;
use ganger_types::{
    Clock, Due, Elapsed, Graph, Group, IdempotencyKey, JobId, JobKey, Keep, Namespace,
    NamespaceRecord, NamespaceSettings, Outcome, Queue, QueueCounts, QueueRecord, QueueSettings,
    RequestId, ScheduleId, ScheduleRecord, SubmissionAnswer, Tag, Timestamp, UniqueKey, Worker,
};

use super::index::{Timer, Timers};
use super::names::{QueueIndex, SpaceIndex};
use super::ready_order::ReadyOrder;

/// The state of a namespace.
pub(crate) struct Space {
    pub name: Namespace,
    pub settings: NamespaceSettings,
    pub live: u64,
    pub timers: Timers,
    /// Live jobs with an id of the client, by id.
    pub given: BTreeMap<JobId, JobKey>,
    /// Idempotency keys of submissions over several shards that this shard decides.
    pub part_idempotency_keys: BTreeMap<IdempotencyKey, Graph>,
    /// Ids of jobs in undecided parts.
    pub promised: BTreeMap<JobId, JobKey>,
    /// Live members of each graph.
    pub graphs: BTreeMap<Graph, BTreeSet<JobKey>>,
    pub queues: BTreeMap<Queue, QueueIndex>,
    pub schedules: BTreeMap<ScheduleId, ScheduleRecord>,
    pub unique: BTreeMap<UniqueKey, UniqueRecord>,
    /// Answers for repeats; each has its timer.
    pub idempotency_records: BTreeMap<IdempotencyKey, SubmissionAnswer>,
    pub workers: BTreeMap<Worker, WorkerState>,
    /// Live leases by worker and request id.
    pub requests: BTreeMap<(Worker, RequestId), BTreeSet<JobKey>>,
    pub tag_counts: BTreeMap<Tag, u64>,
    pub group_counts: BTreeMap<Group, u64>,
    pub tracked: BTreeMap<JobId, Timestamp>,
    pub changed: ChangedRows,
    /// Number of lease commands so far, to take queues in turn.
    pub lease_turns: u64,
}

/// The rows to write at the end of the turn.
#[derive(Default)]
pub(crate) struct ChangedRows {
    pub tags: BTreeSet<Tag>,
    pub groups: BTreeSet<Group>,
}

/// The state of a worker.
pub(crate) struct WorkerState {
    pub seen: Elapsed,
    pub seen_at: Timestamp,
    /// Length of the leases that its last request asked for; after a restart that of a lease that it holds.
    pub lease_for: Duration,
    pub holds: BTreeSet<JobKey>,
}

impl Space {
    pub(crate) fn new(name: Namespace, settings: NamespaceSettings) -> Self {
        Self {
            name,
            settings,
            live: 0,
            timers: Timers::default(),
            given: BTreeMap::new(),
            part_idempotency_keys: BTreeMap::new(),
            promised: BTreeMap::new(),
            graphs: BTreeMap::new(),
            queues: BTreeMap::new(),
            schedules: BTreeMap::new(),
            unique: BTreeMap::new(),
            idempotency_records: BTreeMap::new(),
            workers: BTreeMap::new(),
            requests: BTreeMap::new(),
            tag_counts: BTreeMap::new(),
            group_counts: BTreeMap::new(),
            tracked: BTreeMap::new(),
            changed: ChangedRows::default(),
            lease_turns: 0,
        }
    }

    pub(crate) fn runs_on_callers_clock(&self) -> bool {
        self.settings.clock == Clock::Caller
    }

    pub(crate) fn record(&self) -> NamespaceRecord {
        NamespaceRecord {
            namespace: self.name.clone(),
            settings: self.settings.clone(),
        }
    }

    /// Stores the answer to a submission until it expires.
    pub(crate) fn remember(&mut self, key: IdempotencyKey, answer: SubmissionAnswer) {
        self.timers.arm(
            Due::Wall(answer.until),
            Timer::IdempotencyKeyEnd(key.clone()),
        );
        self.idempotency_records.insert(key, answer);
    }

    /// Changes the number of jobs with a tag.
    pub(crate) fn count_tag(&mut self, tag: &Tag, by: i64) {
        count(&mut self.tag_counts, tag, by);
        self.changed.tags.insert(tag.clone());
    }

    /// Changes the number of kept jobs that failed in a group.
    pub(crate) fn count_group(&mut self, group: &Group, by: i64) {
        count(&mut self.group_counts, group, by);
        self.changed.groups.insert(group.clone());
    }
}

fn count<K: Ord + Clone>(counts: &mut BTreeMap<K, u64>, key: &K, by: i64) {
    let now = counts
        .get(key)
        .copied()
        .unwrap_or(0)
        .saturating_add_signed(by);
    if now == 0 {
        counts.remove(key);
    } else {
        counts.insert(key.clone(), now);
    }
}

/// The state of a queue, with its ready jobs.
pub(crate) struct QueueState {
    pub space: SpaceIndex,
    pub name: Queue,
    pub settings: QueueSettings,
    pub created_at: Timestamp,
    pub known: bool,
    pub counts: QueueCounts,
    pub enqueued_total: u64,
    pub finished_total: u64,
    /// The jobs in `Ready`, sorted by [`crate::state::Job::place`].
    pub ready: ReadyOrder,
    /// Time at which a worker last asked for jobs; `None`: none has since the start.
    pub asked: Option<Elapsed>,
    /// Credit of the queue in weighted round-robin.
    pub credit: i64,
    /// By outcome: the time up to which ended jobs were already searched for expired ones.
    pub retired_until: [Timestamp; 3],
}

/// The index of an outcome in arrays.
pub(crate) fn outcome_place(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Succeeded => 0,
        Outcome::Failed => 1,
        Outcome::Cancelled => 2,
    }
}

impl QueueState {
    pub(crate) fn new(space: SpaceIndex, name: Queue, created_at: Timestamp) -> Self {
        Self {
            space,
            name,
            settings: QueueSettings::default(),
            created_at,
            known: true,
            counts: QueueCounts::default(),
            enqueued_total: 0,
            finished_total: 0,
            ready: ReadyOrder::default(),
            asked: None,
            credit: 0,
            retired_until: [Timestamp(0); 3],
        }
    }

    /// The number of jobs that may start now: 0 while the queue is paused or at its limit.
    pub(crate) fn slots(&self) -> u64 {
        if self.settings.paused {
            return 0;
        }
        self.settings.running_max.map_or(u64::MAX, |max| {
            u64::from(max).saturating_sub(self.counts.running)
        })
    }

    pub(crate) fn has_leasable(&self) -> bool {
        self.leasable() > 0
    }

    /// Number of ready jobs that may run now.
    pub(crate) fn leasable(&self) -> u64 {
        let ready = u64::try_from(self.ready.len()).unwrap_or(u64::MAX);
        ready.min(self.slots())
    }

    pub(crate) fn keep(&self, space: &Space, outcome: Outcome) -> Keep {
        self.settings
            .retention
            .as_ref()
            .unwrap_or(&space.settings.retention)
            .of(outcome)
    }

    pub(crate) fn record(&self, namespace: &Namespace) -> QueueRecord {
        QueueRecord {
            namespace: namespace.clone(),
            queue: self.name.clone(),
            created_at: self.created_at,
            known: self.known,
            settings: self.settings.clone(),
            succeeded: self.counts.succeeded,
            failed: self.counts.failed,
            cancelled: self.counts.cancelled,
            enqueued_total: self.enqueued_total,
            finished_total: self.finished_total,
        }
    }
}
