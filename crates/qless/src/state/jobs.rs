//! The functions that change jobs. Each part of a job has exactly one.
//!
//! Every field that is in an index (place, tags, workers' lists, completion, failure, throttles) has its own function.
//! [`Qless::edit`] changes all other fields and cannot reach the indexed ones. The functions ignore a job that does not
//! exist, because callers have looked it up.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use ganger_types::qless::{
    QlessFailure, QlessHistoryEntry, QlessJob, QlessKey, QlessLease, QlessPlace, QlessSet,
    QlessState, QlessTag, QlessTime,
};

use super::Qless;
use super::indexes::{Indexes, add, remove_under};

/// The fields of a job that are in no index. Each has the meaning of the field of the same name in [`QlessJob`].
pub(crate) struct JobFields<'a> {
    pub(crate) klass: &'a mut Bytes,
    pub(crate) data: &'a mut Bytes,
    pub(crate) state: &'a mut QlessState,
    pub(crate) queue: &'a mut Bytes,
    pub(crate) worker: &'a mut Bytes,
    pub(crate) priority: &'a mut f64,
    pub(crate) expires: &'a mut f64,
    pub(crate) retries: &'a mut f64,
    pub(crate) remaining: &'a mut f64,
    pub(crate) tags: &'a mut Vec<QlessTag>,
    pub(crate) spawned_from: &'a mut Option<Bytes>,
    pub(crate) history: &'a mut Vec<QlessHistoryEntry>,
    pub(crate) time: &'a mut f64,
    pub(crate) is_warned: &'a mut bool,
    pub(crate) scheduled: &'a mut Option<QlessTime>,
    pub(crate) throttles: &'a mut Vec<Bytes>,
    pub(crate) handed_out: &'a mut u64,
    pub(crate) lease: &'a mut Option<QlessLease>,
    pub(crate) result: &'a mut Option<Bytes>,
}

impl Qless {
    /// Creates the record of a job unless it exists. A new job is waiting, is in no set and in no worker's list, and
    /// has default values.
    pub(crate) fn ensure_job(&mut self, jid: &Bytes) {
        let number = match self.job(jid) {
            Some(job) => job.number,
            None => {
                let touch = self.touch_new(jid);
                let job = |number| new_job(number, jid.clone());
                self.rows.jobs.insert_new(touch, job)
            }
        };
        self.changed.insert(key(number, jid));
    }

    /// Removes a job from its queue, from workers' lists, from the links to its dependencies and dependents, and from
    /// the tag index. The caller adjusts the counters of its tags.
    pub(crate) fn remove_job(&mut self, jid: &Bytes) {
        self.unlink_all(jid);
        self.release_dependents(jid);
        if let Some(entry) = self.rows.jobs.remove(jid) {
            self.indexes.remove_job(&entry.job);
            self.changed.insert(key(entry.job.number, jid));
            self.touch_removed(entry);
        }
    }

    /// Changes fields that are in no index. Deletes the result of a job that is not complete.
    pub(crate) fn edit(&mut self, jid: &Bytes, change: impl FnOnce(JobFields<'_>)) {
        self.with_job(jid, |job, _| {
            change(JobFields {
                klass: &mut job.klass,
                data: &mut job.data,
                state: &mut job.state,
                queue: &mut job.queue,
                worker: &mut job.worker,
                priority: &mut job.priority,
                expires: &mut job.expires,
                retries: &mut job.retries,
                remaining: &mut job.remaining,
                tags: &mut job.tags,
                spawned_from: &mut job.spawned_from,
                history: &mut job.history,
                time: &mut job.time,
                is_warned: &mut job.is_warned,
                scheduled: &mut job.scheduled,
                throttles: &mut job.throttles,
                handed_out: &mut job.handed_out,
                lease: &mut job.lease,
                result: &mut job.result,
            });
            if job.state != QlessState::Complete {
                job.result = None;
            }
        });
    }

    /// Moves the job from its present set into `place`; `None` removes it from its set.
    pub(crate) fn move_to(&mut self, jid: &Bytes, place: Option<QlessPlace>) {
        if let Some(place) = place.as_ref().filter(|it| it.set == QlessSet::Work) {
            self.queues_with_new_jobs.insert(place.queue.clone());
        }
        self.with_job(jid, |job, indexes| {
            indexes.remove_place(jid, job.place.as_ref());
            indexes.add_place(jid, place.as_ref());
            job.place = place;
        });
    }

    /// Moves the job into the ready jobs of `queue`, ordered by its priority and then by `at`.
    pub(crate) fn make_ready(&mut self, jid: &Bytes, queue: &Bytes, at: QlessTime) {
        if let Some(job) = self.job(jid) {
            let rank = job.priority;
            self.move_to(jid, Some(new_place(queue, QlessSet::Work, rank, at)));
        }
    }

    /// Moves the job into a set of `queue` that is ordered by time.
    pub(crate) fn move_to_set(&mut self, jid: &Bytes, queue: &Bytes, set: QlessSet, at: QlessTime) {
        self.move_to(jid, Some(new_place(queue, set, 0.0, at)));
    }

    /// Lists the job among those that `worker` holds, until that time; `None` removes it from the worker's list.
    pub(crate) fn set_worker_entry(
        &mut self,
        jid: &Bytes,
        worker: &Bytes,
        until: Option<QlessTime>,
    ) {
        self.with_job(jid, |job, indexes| {
            if let Some(before) = set_entry(&mut job.listed, worker, until) {
                remove_under(&mut indexes.worker_jobs, worker, before, jid);
            }
            if let Some(until) = until {
                let jobs = indexes.worker_jobs.entry(worker.clone()).or_default();
                add(jobs, until, jid);
            }
        });
    }

    /// Adds the job to the index of `tag` with the time `at`; `None` removes it. The tag's counter and the job's own
    /// list of tags stay unchanged.
    pub(crate) fn set_tag_time(&mut self, jid: &Bytes, tag: &Bytes, at: Option<QlessTime>) {
        self.with_job(jid, |job, indexes| {
            if let Some(before) = set_entry(&mut job.tagged, tag, at) {
                indexes.remove_tag(tag, before, jid);
            }
            if let Some(at) = at {
                indexes.add_tag(tag, at, jid);
            }
        });
    }

    /// Adds the job to the list of completed jobs with the time `at`; `None` removes it.
    pub(crate) fn set_completed_at(&mut self, jid: &Bytes, at: Option<QlessTime>) {
        self.with_job(jid, |job, indexes| {
            if let Some(before) = mem::replace(&mut job.completed_at, at) {
                indexes.completed.remove(&(before, jid.clone()));
            }
            if let Some(at) = at {
                add(&mut indexes.completed, at, jid);
            }
        });
    }

    /// Records the job's last failure, or that it has none. The job leaves its failure group.
    pub(crate) fn set_failure(&mut self, jid: &Bytes, failure: Option<QlessFailure>) {
        let has_failed = failure.is_some();
        self.with_job(jid, |job, indexes| {
            indexes.remove_failure(job);
            job.failed_order = None;
            job.failure = failure;
        });
        if has_failed {
            self.touch_failed(jid);
        }
    }

    /// Records a failure, and adds the job to its failure group as the newest.
    pub(crate) fn join_failure_group(&mut self, jid: &Bytes, failure: QlessFailure) {
        self.with_job(jid, |job, indexes| {
            indexes.remove_failure(job);
            let group = indexes.failures.get(&failure.group);
            let newest = group.and_then(|group| group.last());
            job.failed_order = Some(newest.map_or(0, |(order, _)| order + 1));
            job.failure = Some(failure);
            indexes.add_failure(job);
        });
        self.touch_failed(jid);
    }

    /// Removes the job from its failure group. The recorded failure stays.
    pub(crate) fn leave_failure_group(&mut self, jid: &Bytes) {
        self.with_job(jid, |job, indexes| {
            indexes.remove_failure(job);
            job.failed_order = None;
        });
    }

    /// Makes `jid` depend on `on`. Does nothing unless both jobs exist.
    pub(crate) fn link(&mut self, jid: &Bytes, on: &Bytes) {
        if self.job(jid).is_some() && self.job(on).is_some() {
            self.with_job(jid, |job, _| insert_sorted(&mut job.dependencies, on));
            self.with_job(on, |job, _| insert_sorted(&mut job.dependents, jid));
        }
    }

    /// Removes the dependency of `jid` on `on`, if there is one.
    pub(crate) fn unlink(&mut self, jid: &Bytes, on: &Bytes) {
        if self.waits_for(jid, on) {
            self.with_job(jid, |job, _| remove_sorted(&mut job.dependencies, on));
            self.with_job(on, |job, _| remove_sorted(&mut job.dependents, jid));
        }
    }

    /// Removes all dependencies of `jid`.
    pub(crate) fn unlink_all(&mut self, jid: &Bytes) {
        let mut dependencies = Vec::new();
        if self
            .job(jid)
            .is_some_and(|job| !job.dependencies.is_empty())
        {
            self.with_job(jid, |job, _| {
                dependencies = mem::take(&mut job.dependencies);
            });
        }
        for on in &dependencies {
            self.with_job(on, |job, _| remove_sorted(&mut job.dependents, jid));
        }
    }

    /// Removes all dependents of `jid` and returns their jids.
    pub(crate) fn release_dependents(&mut self, jid: &Bytes) -> Vec<Bytes> {
        let mut dependents = Vec::new();
        if self.job(jid).is_some_and(|job| !job.dependents.is_empty()) {
            self.with_job(jid, |job, _| dependents = mem::take(&mut job.dependents));
        }
        for dependent in &dependents {
            self.with_job(dependent, |job, _| {
                remove_sorted(&mut job.dependencies, jid);
            });
        }
        dependents
    }

    /// Records that the job holds a throttle since that time; `None` takes the throttle from it.
    pub(crate) fn set_held_since(
        &mut self,
        jid: &Bytes,
        throttle: &Bytes,
        since: Option<QlessTime>,
    ) {
        self.with_job(jid, |job, indexes| {
            set_entry(&mut job.holds, throttle, since);
            match since {
                Some(_) => indexes.add_holder(throttle, jid),
                None => indexes.remove_holder(throttle, jid),
            }
        });
    }

    /// Records that the job waits for a throttle since that time; `None` ends the wait.
    pub(crate) fn set_pending_since(
        &mut self,
        jid: &Bytes,
        throttle: &Bytes,
        since: Option<QlessTime>,
    ) {
        self.with_job(jid, |job, indexes| {
            if let Some(before) = set_entry(&mut job.pending, throttle, since) {
                remove_under(&mut indexes.pending, throttle, before, jid);
            }
            if let Some(since) = since {
                let waiting = indexes.pending.entry(throttle.clone()).or_default();
                add(waiting, since, jid);
            }
        });
    }

    /// Adds the job to the throttled jobs of a queue with a time; `None` removes it from those that it is in.
    pub(crate) fn set_throttled(&mut self, jid: &Bytes, place: Option<(Bytes, QlessTime)>) {
        self.with_job(jid, |job, indexes| {
            if let Some((queue, at)) = &job.throttled {
                indexes.remove_throttled(queue, *at, jid);
            }
            if let Some((queue, at)) = &place {
                indexes.add_throttled(queue, *at, jid);
            }
            job.throttled = place;
        });
    }

    fn with_job(&mut self, jid: &Bytes, change: impl FnOnce(&mut QlessJob, &mut Indexes)) {
        if let Some(entry) = self.rows.jobs.entry(jid) {
            if entry.touch.is_none() {
                Self::touch(&mut self.touched, entry);
                self.changed.insert(key(entry.job.number, jid));
            }
            change(Arc::make_mut(&mut entry.job), &mut self.indexes);
        }
    }
}

fn key(number: u64, jid: &Bytes) -> QlessKey {
    let jid = jid.clone();
    QlessKey::Job { number, jid }
}

/// Number of retries of a job that was put without the option `retries`.
const RETRIES: f64 = 5.0;

fn new_job(number: u64, jid: Bytes) -> QlessJob {
    QlessJob {
        number,
        jid,
        klass: Bytes::new(),
        data: Bytes::new(),
        state: QlessState::Waiting,
        queue: Bytes::new(),
        worker: Bytes::new(),
        priority: 0.0,
        expires: 0.0,
        retries: RETRIES,
        remaining: RETRIES,
        tags: Vec::new(),
        tagged: Vec::new(),
        failure: None,
        spawned_from: None,
        history: Vec::new(),
        dependencies: Vec::new(),
        dependents: Vec::new(),
        time: 0.0,
        is_warned: false,
        scheduled: None,
        place: None,
        listed: Vec::new(),
        completed_at: None,
        failed_order: None,
        throttles: Vec::new(),
        holds: Vec::new(),
        pending: Vec::new(),
        throttled: None,
        handed_out: 0,
        lease: None,
        result: None,
    }
}

fn new_place(queue: &Bytes, set: QlessSet, rank: f64, at: QlessTime) -> QlessPlace {
    QlessPlace {
        queue: queue.clone(),
        set,
        // Adding 0 turns negative zero into zero, so that both rank equally.
        rank: rank + 0.0,
        at,
    }
}

/// Sets the entry `name` of a list that is sorted by name, or removes it for `None`. Returns the previous time; `None`
/// if there was no entry.
fn set_entry(
    list: &mut Vec<(Bytes, QlessTime)>,
    name: &Bytes,
    at: Option<QlessTime>,
) -> Option<QlessTime> {
    match (list.binary_search_by(|(it, _)| it.cmp(name)), at) {
        (Ok(index), Some(at)) => Some(mem::replace(&mut list[index].1, at)),
        (Ok(index), None) => Some(list.remove(index).1),
        (Err(index), Some(at)) => {
            list.insert(index, (name.clone(), at));
            None
        }
        (Err(_), None) => None,
    }
}

fn insert_sorted(list: &mut Vec<Bytes>, jid: &Bytes) {
    if let Err(index) = list.binary_search(jid) {
        list.insert(index, jid.clone());
    }
}

fn remove_sorted(list: &mut Vec<Bytes>, jid: &Bytes) {
    if let Ok(index) = list.binary_search(jid) {
        list.remove(index);
    }
}
