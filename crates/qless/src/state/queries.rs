//! What commands ask of the state. Sizes are counted already; orders are those of the dialect.

use std::collections::BTreeSet;

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::qless::{
    QlessJob, QlessRecurring, QlessSet, QlessStatistics, QlessThrottle, QlessTime,
};

use super::order::NOTHING;
use super::{ByTime, InLine, Qless};

/// No jobs of any failure group.
static NO_FAILURES: BTreeSet<(u64, Bytes)> = BTreeSet::new();
/// No jobs that hold a throttle.
static NO_HOLDERS: BTreeSet<Bytes> = BTreeSet::new();

impl Qless {
    /// Returns the job with this jid; `None` if there is none.
    pub(crate) fn job(&self, jid: &Bytes) -> Option<&QlessJob> {
        self.rows.jobs.get(jid).map(|job| &**job)
    }

    /// The jobs behind that jid, in order of jids; all of them without one.
    pub(crate) fn jobs_behind(&self, jid: Option<&Bytes>) -> impl Iterator<Item = &QlessJob> {
        self.rows.jobs.after(jid).map(|job| &**job)
    }

    /// Whether somebody holds the job.
    pub(crate) fn is_held(&self, jid: &Bytes) -> bool {
        let place = self.job(jid).and_then(|job| job.place.as_ref());
        place.is_some_and(|place| place.set == QlessSet::Locks)
    }

    /// Returns the recurring job with this jid; `None` if there is none.
    pub(crate) fn recurring(&self, jid: &Bytes) -> Option<&QlessRecurring> {
        self.rows.recurring.get(jid)
    }

    /// Whether `jid` waits for `on`.
    pub(crate) fn waits_for(&self, jid: &Bytes, on: &Bytes) -> bool {
        let dependencies = self.job(jid).map(|job| &job.dependencies);
        dependencies.is_some_and(|list| list.binary_search(on).is_ok())
    }

    /// How many there are in a set of a queue.
    pub(crate) fn size(&self, queue: &Bytes, set: QlessSet) -> usize {
        match set {
            QlessSet::Work => self.indexes.queues.get(queue).map_or(0, |it| it.work.len()),
            set => self.in_order(queue, set).len(),
        }
    }

    /// A queue's ready jobs, the next one first.
    pub(crate) fn work(&self, queue: &Bytes) -> impl Iterator<Item = &Bytes> {
        let sets = self.indexes.queues.get(queue);
        let work = sets.into_iter().flat_map(|sets| &sets.work);
        work.map(|it: &InLine| &it.jid)
    }

    /// A set of a queue that goes by time; empty for `Work`, which does not.
    pub(crate) fn in_order(&self, queue: &Bytes, set: QlessSet) -> &ByTime {
        let sets = self.indexes.queues.get(queue);
        sets.and_then(|sets| sets.by_time(set)).unwrap_or(&NOTHING)
    }

    /// Whether there is any job, recurring job or queue.
    pub fn is_in_use(&self) -> bool {
        let rows = &self.rows;
        !(rows.jobs.is_empty() && rows.recurring.is_empty() && rows.queues.is_empty())
    }

    /// Queues that hold anything.
    pub(crate) fn queues_in_use(&self) -> impl Iterator<Item = &Bytes> {
        self.indexes.queues.keys()
    }

    /// Known queues, by when they were first seen.
    pub(crate) fn known_queues(&self) -> &ByTime {
        &self.indexes.known
    }

    /// Whether the queue gives nothing out.
    pub(crate) fn is_paused(&self, queue: &Bytes) -> bool {
        self.rows.queues.get(queue).is_some_and(|it| it.is_paused)
    }

    /// Completed jobs, by when they completed.
    pub(crate) fn completed(&self) -> &ByTime {
        &self.indexes.completed
    }

    /// Failure groups with the number of their jobs.
    pub(crate) fn failure_groups(&self) -> impl Iterator<Item = (&Bytes, usize)> {
        let groups = self.indexes.failures.iter();
        groups.map(|(group, jobs)| (group, jobs.len()))
    }

    /// The jobs of a failure group; the newest is last.
    pub(crate) fn failed(&self, group: &Bytes) -> &BTreeSet<(u64, Bytes)> {
        self.indexes.failures.get(group).unwrap_or(&NO_FAILURES)
    }

    /// The jobs with a tag, by when they were tagged.
    pub(crate) fn tagged(&self, tag: &Bytes) -> &ByTime {
        self.indexes.tags.get(tag).unwrap_or(&NOTHING)
    }

    /// Returns the counter of a tag; 0 if none is stored.
    pub(crate) fn tag_count(&self, tag: &Bytes) -> i64 {
        self.rows.tag_counts.get(tag).copied().unwrap_or(0)
    }

    /// Tags by their counters, the smallest first, ties by their bytes. None with 0.
    pub(crate) fn tag_ranks(&self) -> &BTreeSet<(i64, Bytes)> {
        &self.indexes.tag_ranks
    }

    /// Known workers, by their last sign of life.
    pub(crate) fn workers(&self) -> &ByTime {
        &self.indexes.workers
    }

    /// A worker's jobs, by when their locks run out.
    pub(crate) fn worker_jobs(&self, worker: &Bytes) -> &ByTime {
        self.indexes.worker_jobs.get(worker).unwrap_or(&NOTHING)
    }

    /// Tracked jids, by when that began.
    pub(crate) fn tracked(&self) -> &ByTime {
        &self.indexes.tracked
    }

    /// Whether a jid is tracked.
    pub(crate) fn is_tracked(&self, jid: &Bytes) -> bool {
        self.rows.tracked.contains_key(jid)
    }

    /// An option's value, if it was set.
    pub(crate) fn setting(&self, option: &[u8]) -> Option<&Bytes> {
        self.rows.settings.get(option)
    }

    /// Every option that was set, with its value.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.rows.settings.iter()
    }

    /// A queue's statistics of the day that begins then, if there are any.
    pub(crate) fn statistics(&self, queue: &Bytes, day: QlessTime) -> Option<&QlessStatistics> {
        self.rows.statistics.get(&(queue.clone(), day))
    }

    /// A throttle that has a maximum, unless its life is over by the server's time.
    pub(crate) fn throttle(&self, id: &Bytes, server: Elapsed) -> Option<&QlessThrottle> {
        let throttle = self.rows.throttles.get(id)?;
        let is_over = throttle.ends_at.is_some_and(|end| end <= server);
        (!is_over).then_some(throttle)
    }

    /// The jobs that hold a throttle.
    pub(crate) fn holders(&self, throttle: &Bytes) -> &BTreeSet<Bytes> {
        self.indexes.holders.get(throttle).unwrap_or(&NO_HOLDERS)
    }

    /// Whether a job waits for a throttle.
    pub(crate) fn is_pending(&self, jid: &Bytes, throttle: &Bytes) -> bool {
        let job = self.job(jid);
        job.is_some_and(|job| job.pending.iter().any(|(it, _)| it == throttle))
    }

    /// The jobs that wait for a throttle, by when they began to.
    pub(crate) fn pending(&self, throttle: &Bytes) -> &ByTime {
        self.indexes.pending.get(throttle).unwrap_or(&NOTHING)
    }
}
