//! Namespaces and queues as the engine holds them.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::change::UniqueRecord;
use ganger_types::{
    Clock, Due, Elapsed, Graph, Group, IdempotencyKey, JobId, JobKey, Keep, Namespace,
    NamespaceRecord, NamespaceSettings, Outcome, Priority, Queue, QueueCounts, QueueRecord,
    QueueSettings, RequestId, ScheduleId, ScheduleRecord, SubmissionAnswer, Tag, Timestamp,
    UniqueKey, Worker,
};

use super::index::{Timer, Timers};
use super::names::{QueueIndex, SpaceIndex};

/// A namespace: nothing in it is seen from another one.
pub(crate) struct Space {
    pub name: Namespace,
    pub settings: NamespaceSettings,
    pub live: u64,
    pub timers: Timers,
    /// Jobs whose id the client gave. Holds exactly the live ones.
    pub given: BTreeMap<JobId, JobKey>,
    /// Idempotency keys of submissions over several shards that this shard decides.
    pub part_idempotency_keys: BTreeMap<IdempotencyKey, Graph>,
    /// Ids that undecided parts of submissions over several shards will give.
    pub promised: BTreeMap<JobId, JobKey>,
    /// Live members of each graph.
    pub graphs: BTreeMap<Graph, BTreeSet<JobKey>>,
    pub queues: BTreeMap<Queue, QueueIndex>,
    pub schedules: BTreeMap<ScheduleId, ScheduleRecord>,
    pub unique: BTreeMap<UniqueKey, UniqueRecord>,
    /// Answers kept for a repeat; each has its timer.
    pub idempotency_records: BTreeMap<IdempotencyKey, SubmissionAnswer>,
    pub workers: BTreeMap<Worker, WorkerState>,
    /// Live leases by the request that asked for them.
    pub requests: BTreeMap<(Worker, RequestId), BTreeSet<JobKey>>,
    pub tag_counts: BTreeMap<Tag, u64>,
    pub group_counts: BTreeMap<Group, u64>,
    pub tracked: BTreeMap<JobId, Timestamp>,
    pub changed: Changed,
    /// Lease commands so far, for taking queues in turn.
    pub lease_turns: u64,
}

/// Rows to write at the end of the turn.
#[derive(Default)]
pub(crate) struct Changed {
    pub tags: BTreeSet<Tag>,
    pub groups: BTreeSet<Group>,
}

/// A worker that has been seen.
pub(crate) struct WorkerState {
    pub seen: Elapsed,
    pub seen_at: Timestamp,
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
            changed: Changed::default(),
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

    /// Keeps the answer to a submission until its time is over.
    pub(crate) fn remember(&mut self, key: IdempotencyKey, answer: SubmissionAnswer) {
        self.timers.arm(
            Due::Wall(answer.until),
            Timer::IdempotencyKeyEnd(key.clone()),
        );
        self.idempotency_records.insert(key, answer);
    }

    /// Changes how many jobs bear a tag.
    pub(crate) fn count_tag(&mut self, tag: &Tag, by: i64) {
        count(&mut self.tag_counts, tag, by);
        self.changed.tags.insert(tag.clone());
    }

    /// Changes how many kept jobs failed in a group.
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

/// A queue and its ready jobs.
pub(crate) struct QueueState {
    pub space: SpaceIndex,
    pub name: Queue,
    pub settings: QueueSettings,
    pub created_at: Timestamp,
    pub known: bool,
    pub counts: QueueCounts,
    pub enqueued_total: u64,
    pub finished_total: u64,
    /// Sorted by [`crate::state::Job::place`]; holds exactly the jobs in `Ready`.
    pub ready: BTreeSet<(Priority, u64, JobKey)>,
    /// When a worker last asked for jobs of it.
    pub asked: Option<Elapsed>,
    /// Balance under weighted taking.
    pub credit: i64,
    /// Everything that ended at or before this was looked for already, by outcome.
    pub retired_until: [Timestamp; 3],
}

/// Place of an outcome in arrays.
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
            ready: BTreeSet::new(),
            asked: None,
            credit: 0,
            retired_until: [Timestamp(0); 3],
        }
    }

    /// Jobs that may be started now: not while paused, not beyond the limit.
    pub(crate) fn slots(&self) -> u64 {
        if self.settings.paused {
            return 0;
        }
        self.settings.running_max.map_or(u64::MAX, |max| {
            u64::from(max).saturating_sub(self.counts.running)
        })
    }

    pub(crate) fn has_leasable(&self) -> bool {
        !self.ready.is_empty() && self.slots() > 0
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
