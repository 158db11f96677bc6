//! Read access to the state for the commands. Sizes cost constant time; the orders are those of the script's sets.

use std::collections::BTreeSet;

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::qless::{
    QlessJob, QlessRecurring, QlessSet, QlessStatistics, QlessThrottle, QlessTime,
};

use super::order::EMPTY;
use super::{Qless, ReadyEntry, TimeIndex};

/// The empty result for a failure group that does not exist.
static NO_FAILURES: BTreeSet<(u64, Bytes)> = BTreeSet::new();
/// The empty result for a throttle that no job holds.
static NO_HOLDERS: BTreeSet<Bytes> = BTreeSet::new();

impl Qless {
    /// Returns the job with this jid; `None` if there is none.
    pub(crate) fn job(&self, jid: &Bytes) -> Option<&QlessJob> {
        self.rows.jobs.get(jid).map(|job| &**job)
    }

    /// Returns the jobs after that jid, in order of jids; all jobs for `None`.
    pub(crate) fn jobs_after_jid(&self, jid: Option<&Bytes>) -> impl Iterator<Item = &QlessJob> {
        self.rows.jobs.after(jid).map(|job| &**job)
    }

    /// Whether a worker holds a lock on the job. The lock may have expired.
    pub(crate) fn is_locked(&self, jid: &Bytes) -> bool {
        let place = self.job(jid).and_then(|job| job.place.as_ref());
        place.is_some_and(|place| place.set == QlessSet::Locks)
    }

    /// Returns the recurring job with this jid; `None` if there is none.
    pub(crate) fn recurring(&self, jid: &Bytes) -> Option<&QlessRecurring> {
        self.rows.recurring.get(jid)
    }

    /// Whether `jid` depends on `on` and still waits for it.
    pub(crate) fn waits_for(&self, jid: &Bytes, on: &Bytes) -> bool {
        let dependencies = self.job(jid).map(|job| &job.dependencies);
        dependencies.is_some_and(|list| list.binary_search(on).is_ok())
    }

    /// Returns the number of jobs in a set of a queue.
    pub(crate) fn size(&self, queue: &Bytes, set: QlessSet) -> usize {
        match set {
            QlessSet::Work => self.indexes.queues.get(queue).map_or(0, |it| it.work.len()),
            set => self.time_index(queue, set).len(),
        }
    }

    /// Returns the jids of a queue's ready jobs, the one that runs next first.
    pub(crate) fn work(&self, queue: &Bytes) -> impl Iterator<Item = &Bytes> {
        let sets = self.indexes.queues.get(queue);
        let work = sets.into_iter().flat_map(|sets| &sets.work);
        work.map(|it: &ReadyEntry| &it.jid)
    }

    /// Returns a set of a queue that is ordered by time; empty for `Work`, which is not.
    pub(crate) fn time_index(&self, queue: &Bytes, set: QlessSet) -> &TimeIndex {
        let sets = self.indexes.queues.get(queue);
        sets.and_then(|sets| sets.time_index(set)).unwrap_or(&EMPTY)
    }

    /// Whether the namespace has any job, recurring job, or known or paused queue.
    pub fn is_in_use(&self) -> bool {
        let rows = &self.rows;
        !(rows.jobs.is_empty() && rows.recurring.is_empty() && rows.queues.is_empty())
    }

    /// Returns the names of queues that contain a job or a recurring job.
    pub(crate) fn queues_in_use(&self) -> impl Iterator<Item = &Bytes> {
        self.indexes.queues.keys()
    }

    /// Returns the known queues, ordered by the time when they were first seen.
    pub(crate) fn known_queues(&self) -> &TimeIndex {
        &self.indexes.known
    }

    /// Whether the queue is paused, so that no pop gets a job from it.
    pub(crate) fn is_paused(&self, queue: &Bytes) -> bool {
        self.rows.queues.get(queue).is_some_and(|it| it.is_paused)
    }

    /// Returns the completed jobs, ordered by the time of completion.
    pub(crate) fn completed(&self) -> &TimeIndex {
        &self.indexes.completed
    }

    /// Returns the failure groups, each with the number of its jobs.
    pub(crate) fn failure_groups(&self) -> impl Iterator<Item = (&Bytes, usize)> {
        let groups = self.indexes.failures.iter();
        groups.map(|(group, jobs)| (group, jobs.len()))
    }

    /// Returns the jobs of a failure group, the oldest failure first.
    pub(crate) fn failed(&self, group: &Bytes) -> &BTreeSet<(u64, Bytes)> {
        self.indexes.failures.get(group).unwrap_or(&NO_FAILURES)
    }

    /// Returns the jobs with a tag, ordered by the time when they got it.
    pub(crate) fn tagged(&self, tag: &Bytes) -> &TimeIndex {
        self.indexes.tags.get(tag).unwrap_or(&EMPTY)
    }

    /// Returns the counter of a tag; 0 if none is stored.
    pub(crate) fn tag_count(&self, tag: &Bytes) -> i64 {
        self.rows.tag_counts.get(tag).copied().unwrap_or(0)
    }

    /// Returns the tags ordered by their counters, the smallest first, ties by their bytes. Tags with a counter of 0
    /// are absent.
    pub(crate) fn tag_ranks(&self) -> &BTreeSet<(i64, Bytes)> {
        &self.indexes.tag_ranks
    }

    /// Returns the known workers, ordered by their last sign of life.
    pub(crate) fn workers(&self) -> &TimeIndex {
        &self.indexes.workers
    }

    /// Returns the jobs that a worker holds, ordered by the expiry of their locks.
    pub(crate) fn worker_jobs(&self, worker: &Bytes) -> &TimeIndex {
        self.indexes.worker_jobs.get(worker).unwrap_or(&EMPTY)
    }

    /// Returns the tracked jids, ordered by the time when tracking began.
    pub(crate) fn tracked(&self) -> &TimeIndex {
        &self.indexes.tracked
    }

    /// Whether clients track that jid.
    pub(crate) fn is_tracked(&self, jid: &Bytes) -> bool {
        self.rows.tracked.contains_key(jid)
    }

    /// Returns the value that a client set for an option; `None` if the default applies.
    pub(crate) fn setting(&self, option: &[u8]) -> Option<&Bytes> {
        self.rows.settings.get(option)
    }

    /// Returns every option that a client set, with its value.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.rows.settings.iter()
    }

    /// Returns the statistics of a queue for the day that begins at `day`; `None` if nothing happened on it.
    pub(crate) fn statistics(&self, queue: &Bytes, day: QlessTime) -> Option<&QlessStatistics> {
        self.rows.statistics.get(&(queue.clone(), day))
    }

    /// Returns a throttle that has a maximum; `None` if there is none or its lifetime has ended by the server's time.
    pub(crate) fn throttle(&self, id: &Bytes, server: Elapsed) -> Option<&QlessThrottle> {
        let throttle = self.rows.throttles.get(id)?;
        let is_over = throttle.ends_at.is_some_and(|end| end <= server);
        (!is_over).then_some(throttle)
    }

    /// Returns the jids of the jobs that hold a throttle.
    pub(crate) fn holders(&self, throttle: &Bytes) -> &BTreeSet<Bytes> {
        self.indexes.holders.get(throttle).unwrap_or(&NO_HOLDERS)
    }

    /// Whether a job waits for a throttle.
    pub(crate) fn is_pending(&self, jid: &Bytes, throttle: &Bytes) -> bool {
        let job = self.job(jid);
        job.is_some_and(|job| job.pending.iter().any(|(it, _)| it == throttle))
    }

    /// Returns the jobs that wait for a throttle, ordered by the time when they began to wait.
    pub(crate) fn pending(&self, throttle: &Bytes) -> &TimeIndex {
        self.indexes.pending.get(throttle).unwrap_or(&EMPTY)
    }
}
