//! Indexes that are derived from the rows and rebuilt from them at start.
//!
//! This file adds a row to all its indexes and removes it from them. [`super::Qless::check`] builds the indexes a
//! second time and compares.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ganger_types::qless::{
    QlessJob, QlessPlace, QlessQueue, QlessRecurring, QlessRow, QlessSet, QlessTime,
};

use super::order::{ReadyEntry, TimeIndex};

/// The sets of a queue. Each job is in at most one of them; `recur` contains recurring jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct QueueSets {
    /// Ready jobs, in the order in which they run.
    pub(super) work: BTreeSet<ReadyEntry>,
    /// Jobs that a worker holds, by the expiry of the lock.
    pub(super) locks: TimeIndex,
    /// Jobs that wait for their time, by that time.
    pub(super) scheduled: TimeIndex,
    /// Jobs that wait for other jobs, by the time when they began to wait.
    pub(super) depends: TimeIndex,
    /// Recurring jobs, by the time of their next run.
    pub(super) recur: TimeIndex,
    /// Jobs that wait for a throttle, by the time when they began to wait.
    pub(super) throttled: TimeIndex,
}

impl QueueSets {
    fn is_empty(&self) -> bool {
        self.work.is_empty()
            && self.locks.is_empty()
            && self.scheduled.is_empty()
            && self.depends.is_empty()
            && self.recur.is_empty()
            && self.throttled.is_empty()
    }

    /// Returns the set if it is ordered by time; `None` for `Work`, which is not.
    pub(super) fn time_index(&self, set: QlessSet) -> Option<&TimeIndex> {
        Some(match set {
            QlessSet::Work => return None,
            QlessSet::Locks => &self.locks,
            QlessSet::Scheduled => &self.scheduled,
            QlessSet::Depends => &self.depends,
            QlessSet::Recur => &self.recur,
            QlessSet::Throttled => &self.throttled,
        })
    }

    fn time_index_mut(&mut self, set: QlessSet) -> Option<&mut TimeIndex> {
        Some(match set {
            QlessSet::Work => return None,
            QlessSet::Locks => &mut self.locks,
            QlessSet::Scheduled => &mut self.scheduled,
            QlessSet::Depends => &mut self.depends,
            QlessSet::Recur => &mut self.recur,
            QlessSet::Throttled => &mut self.throttled,
        })
    }
}

/// All indexes of a namespace. No map has a key whose set is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Indexes {
    /// The sets of each queue, by the name of the queue.
    pub(super) queues: BTreeMap<Bytes, QueueSets>,
    /// Known queues, by the time when they were first seen.
    pub(super) known: TimeIndex,
    /// Completed jobs, by the time of completion.
    pub(super) completed: TimeIndex,
    /// Jobs of each failure group, each with its number in the group; the newest failure is last.
    pub(super) failures: BTreeMap<Bytes, BTreeSet<(u64, Bytes)>>,
    /// Jobs of each tag, by the time when they got it.
    pub(super) tags: BTreeMap<Bytes, TimeIndex>,
    /// Tags with their counters, the smallest counter first.
    pub(super) tag_ranks: BTreeSet<(i64, Bytes)>,
    /// Known workers, by their last sign of life.
    pub(super) workers: TimeIndex,
    /// Jobs that each worker holds, by the expiry of their locks.
    pub(super) worker_jobs: BTreeMap<Bytes, TimeIndex>,
    /// Tracked jids, by the time when tracking began.
    pub(super) tracked: TimeIndex,
    /// Jobs that hold each throttle, by jid.
    pub(super) holders: BTreeMap<Bytes, BTreeSet<Bytes>>,
    /// Jobs that wait for each throttle, by the time when they began to wait.
    pub(super) pending: BTreeMap<Bytes, TimeIndex>,
}

impl Indexes {
    /// Adds a row to all its indexes.
    pub(super) fn add(&mut self, row: &QlessRow) {
        match row {
            QlessRow::Job(job) => self.add_job(job),
            QlessRow::Recurring(job) => self.add_recurring(job),
            QlessRow::Queue(queue) => self.add_queue(queue),
            QlessRow::Worker(name, at) => add(&mut self.workers, *at, name),
            QlessRow::TagCount(tag, count) => {
                self.tag_ranks.insert((*count, tag.clone()));
            }
            QlessRow::Tracked(jid, at) => add(&mut self.tracked, *at, jid),
            QlessRow::Setting(..) | QlessRow::Statistics(_) | QlessRow::Throttle(_) => {}
        }
    }

    pub(super) fn add_job(&mut self, job: &QlessJob) {
        let jid = &job.jid;
        self.add_place(jid, job.place.as_ref());
        for (tag, at) in &job.tagged {
            self.add_tag(tag, *at, jid);
        }
        for (worker, until) in &job.listed {
            add(
                self.worker_jobs.entry(worker.clone()).or_default(),
                *until,
                jid,
            );
        }
        if let Some(at) = job.completed_at {
            add(&mut self.completed, at, jid);
        }
        self.add_failure(job);
        for (throttle, _) in &job.holds {
            self.add_holder(throttle, jid);
        }
        for (throttle, at) in &job.pending {
            add(self.pending.entry(throttle.clone()).or_default(), *at, jid);
        }
        if let Some((queue, at)) = &job.throttled {
            self.add_throttled(queue, *at, jid);
        }
    }

    pub(super) fn remove_job(&mut self, job: &QlessJob) {
        let jid = &job.jid;
        self.remove_place(jid, job.place.as_ref());
        for (tag, at) in &job.tagged {
            self.remove_tag(tag, *at, jid);
        }
        for (worker, until) in &job.listed {
            remove_under(&mut self.worker_jobs, worker, *until, jid);
        }
        if let Some(at) = job.completed_at {
            self.completed.remove(&(at, jid.clone()));
        }
        self.remove_failure(job);
        for (throttle, _) in &job.holds {
            self.remove_holder(throttle, jid);
        }
        for (throttle, at) in &job.pending {
            remove_under(&mut self.pending, throttle, *at, jid);
        }
        if let Some((queue, at)) = &job.throttled {
            self.remove_throttled(queue, *at, jid);
        }
    }

    pub(super) fn add_recurring(&mut self, job: &QlessRecurring) {
        let sets = self.queues.entry(job.queue.clone()).or_default();
        add(&mut sets.recur, job.next_at, &job.jid);
    }

    pub(super) fn remove_recurring(&mut self, job: &QlessRecurring) {
        self.remove_at(&job.queue, QlessSet::Recur, job.next_at, &job.jid);
    }

    pub(super) fn add_queue(&mut self, queue: &QlessQueue) {
        if let Some(at) = queue.seen_at {
            add(&mut self.known, at, &queue.name);
        }
    }

    pub(super) fn remove_queue(&mut self, queue: &QlessQueue) {
        if let Some(at) = queue.seen_at {
            self.known.remove(&(at, queue.name.clone()));
        }
    }

    pub(super) fn add_place(&mut self, jid: &Bytes, place: Option<&QlessPlace>) {
        let Some(place) = place else { return };
        let sets = self.queues.entry(place.queue.clone()).or_default();
        match sets.time_index_mut(place.set) {
            Some(set) => add(set, place.at, jid),
            None => {
                sets.work.insert(ReadyEntry::new(jid, place));
            }
        }
    }

    pub(super) fn remove_place(&mut self, jid: &Bytes, place: Option<&QlessPlace>) {
        let Some(place) = place else { return };
        if place.set != QlessSet::Work {
            self.remove_at(&place.queue, place.set, place.at, jid);
        } else if let Some(sets) = self.queues.get_mut(&place.queue) {
            sets.work.remove(&ReadyEntry::new(jid, place));
            self.drop_if_empty(&place.queue);
        }
    }

    pub(super) fn add_throttled(&mut self, queue: &Bytes, at: QlessTime, jid: &Bytes) {
        let sets = self.queues.entry(queue.clone()).or_default();
        add(&mut sets.throttled, at, jid);
    }

    pub(super) fn remove_throttled(&mut self, queue: &Bytes, at: QlessTime, jid: &Bytes) {
        self.remove_at(queue, QlessSet::Throttled, at, jid);
    }

    pub(super) fn add_tag(&mut self, tag: &Bytes, at: QlessTime, jid: &Bytes) {
        add(self.tags.entry(tag.clone()).or_default(), at, jid);
    }

    pub(super) fn remove_tag(&mut self, tag: &Bytes, at: QlessTime, jid: &Bytes) {
        remove_under(&mut self.tags, tag, at, jid);
    }

    /// Adds the job to the group of its failure, if it has a number in it.
    pub(super) fn add_failure(&mut self, job: &QlessJob) {
        if let (Some(order), Some(failure)) = (job.failed_order, &job.failure) {
            let group = self.failures.entry(failure.group.clone()).or_default();
            group.insert((order, job.jid.clone()));
        }
    }

    pub(super) fn remove_failure(&mut self, job: &QlessJob) {
        if let (Some(order), Some(failure)) = (job.failed_order, &job.failure)
            && let Some(group) = self.failures.get_mut(&failure.group)
        {
            group.remove(&(order, job.jid.clone()));
            if group.is_empty() {
                self.failures.remove(&failure.group);
            }
        }
    }

    pub(super) fn add_holder(&mut self, throttle: &Bytes, jid: &Bytes) {
        let holders = self.holders.entry(throttle.clone()).or_default();
        holders.insert(jid.clone());
    }

    pub(super) fn remove_holder(&mut self, throttle: &Bytes, jid: &Bytes) {
        if let Some(holders) = self.holders.get_mut(throttle) {
            holders.remove(jid);
            if holders.is_empty() {
                self.holders.remove(throttle);
            }
        }
    }

    fn remove_at(&mut self, queue: &Bytes, set: QlessSet, at: QlessTime, jid: &Bytes) {
        if let Some(sets) = self.queues.get_mut(queue) {
            if let Some(set) = sets.time_index_mut(set) {
                set.remove(&(at, jid.clone()));
            }
            self.drop_if_empty(queue);
        }
    }

    fn drop_if_empty(&mut self, queue: &Bytes) {
        if self.queues.get(queue).is_some_and(QueueSets::is_empty) {
            self.queues.remove(queue);
        }
    }
}

/// Adds a name with a time to a set.
pub(super) fn add(set: &mut TimeIndex, at: QlessTime, name: &Bytes) {
    set.insert((at, name.clone()));
}

/// Removes an entry from the set of that name, and the set itself if it is empty then.
pub(super) fn remove_under(
    sets: &mut BTreeMap<Bytes, TimeIndex>,
    name: &Bytes,
    at: QlessTime,
    jid: &Bytes,
) {
    if let Some(set) = sets.get_mut(name) {
        set.remove(&(at, jid.clone()));
        if set.is_empty() {
            sets.remove(name);
        }
    }
}
