//! The functions that change everything but jobs: recurring jobs, queues, workers, options, tags' counters, tracked
//! jids, statistics and throttles. Each part has exactly one.

use bytes::Bytes;
use ganger_types::qless::{
    QlessKey, QlessQueue, QlessRecurring, QlessSample, QlessStatistics, QlessThrottle, QlessTime,
};

use super::Qless;

impl Qless {
    /// Creates a recurring job, or replaces the one with the same id.
    pub(crate) fn put_recurring(&mut self, job: QlessRecurring) {
        self.remove_recurring(&job.jid);
        self.changed.insert(QlessKey::Recurring(job.jid.clone()));
        self.indexes.add_recurring(&job);
        self.rows.recurring.insert(job.jid.clone(), job);
    }

    /// Removes a recurring job. Does nothing if it does not exist.
    pub(crate) fn remove_recurring(&mut self, jid: &Bytes) {
        if let Some(job) = self.rows.recurring.remove(jid) {
            self.indexes.remove_recurring(&job);
            self.changed.insert(QlessKey::Recurring(job.jid));
        }
    }

    /// Makes the queue known as of `at`, unless it is known.
    pub(crate) fn register_queue(&mut self, queue: &Bytes, at: QlessTime) {
        self.with_queue(queue, |it| {
            it.seen_at.get_or_insert(at);
        });
    }

    /// Makes the queue unknown. Its jobs and its pause stay.
    pub(crate) fn forget_queue(&mut self, queue: &Bytes) {
        self.with_queue(queue, |it| it.seen_at = None);
    }

    /// Pauses the queue, or ends its pause. No pop gets a job from a paused queue.
    pub(crate) fn set_paused(&mut self, queue: &Bytes, is_paused: bool) {
        self.with_queue(queue, |it| it.is_paused = is_paused);
    }

    fn with_queue(&mut self, name: &Bytes, change: impl FnOnce(&mut QlessQueue)) {
        let before = self.rows.queues.get(name).cloned();
        let mut queue = before.clone().unwrap_or_else(|| QlessQueue {
            name: name.clone(),
            seen_at: None,
            is_paused: false,
        });
        change(&mut queue);
        let is_kept = queue.seen_at.is_some() || queue.is_paused;
        let after = is_kept.then_some(queue);
        if before == after {
            return;
        }

        if let Some(queue) = &before {
            self.indexes.remove_queue(queue);
            self.rows.queues.remove(name);
        }
        if let Some(queue) = after {
            self.indexes.add_queue(&queue);
            self.rows.queues.insert(name.clone(), queue);
        }
        self.changed.insert(QlessKey::Queue(name.clone()));
    }

    /// Records the time of a worker's last sign of life; `None` makes the worker unknown. Its list of jobs stays.
    pub(crate) fn set_worker_seen(&mut self, worker: &Bytes, at: Option<QlessTime>) {
        let before = match at {
            Some(at) => self.rows.workers.insert(worker.clone(), at),
            None => self.rows.workers.remove(worker),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.indexes.workers.remove(&(before, worker.clone()));
        }
        if let Some(at) = at {
            self.indexes.workers.insert((at, worker.clone()));
        }
        self.changed.insert(QlessKey::Worker(worker.clone()));
    }

    /// Removes all jobs from a worker's list. The jobs stay locked.
    pub(crate) fn clear_worker_entries(&mut self, worker: &Bytes) {
        let jobs: Vec<Bytes> = (self.worker_jobs(worker).iter())
            .map(|(_, jid)| jid.clone())
            .collect();
        for jid in jobs {
            self.set_worker_entry(&jid, worker, None);
        }
    }

    /// Sets an option to a value; `None` restores its default.
    pub(crate) fn set_option(&mut self, option: &Bytes, value: Option<Bytes>) {
        if self.rows.settings.get(option) == value.as_ref() {
            return;
        }
        match value {
            Some(value) => self.rows.settings.insert(option.clone(), value),
            None => self.rows.settings.remove(option),
        };
        self.changed.insert(QlessKey::Setting(option.clone()));
    }

    /// Adds `by` to a tag's counter. A counter of 0 is not stored.
    pub(crate) fn count_tag(&mut self, tag: &Bytes, by: i64) {
        let count = self.tag_count(tag).saturating_add(by);
        self.set_tag_count(tag, count);
    }

    /// Sets a tag's counter. A counter of 0 is not stored.
    pub(crate) fn set_tag_count(&mut self, tag: &Bytes, count: i64) {
        let before = match count {
            0 => self.rows.tag_counts.remove(tag),
            count => self.rows.tag_counts.insert(tag.clone(), count),
        };
        if let Some(before) = before {
            self.indexes.tag_ranks.remove(&(before, tag.clone()));
        }
        if count != 0 {
            self.indexes.tag_ranks.insert((count, tag.clone()));
        }
        if before.unwrap_or(0) != count {
            self.changed.insert(QlessKey::TagCount(tag.clone()));
        }
    }

    /// Tracks a jid since `at`; `None` stops tracking it.
    pub(crate) fn set_tracked(&mut self, jid: &Bytes, at: Option<QlessTime>) {
        let before = match at {
            Some(at) => self.rows.tracked.insert(jid.clone(), at),
            None => self.rows.tracked.remove(jid),
        };
        if let Some(before) = before {
            self.indexes.tracked.remove(&(before, jid.clone()));
        }
        if let Some(at) = at {
            self.indexes.tracked.insert((at, jid.clone()));
        }
        self.changed.insert(QlessKey::Tracked(jid.clone()));
    }

    /// Changes the statistics of a queue for the day that begins at `day`. Creates them with zeros if there are none.
    pub(crate) fn edit_statistics(
        &mut self,
        queue: &Bytes,
        day: QlessTime,
        change: impl FnOnce(&mut QlessStatistics),
    ) {
        let key = (queue.clone(), day);
        let statistics = self
            .rows
            .statistics
            .entry(key)
            .or_insert_with(|| QlessStatistics {
                queue: queue.clone(),
                day,
                failed: 0,
                failures: 0,
                retries: 0,
                wait: QlessSample::default(),
                run: QlessSample::default(),
            });
        change(statistics);
        self.changed
            .insert(QlessKey::Statistics(queue.clone(), day));
    }

    /// Sets the maximum of a throttle, and the end of its lifetime.
    pub(crate) fn set_throttle(&mut self, throttle: QlessThrottle) {
        self.changed.insert(QlessKey::Throttle(throttle.id.clone()));
        self.rows.throttles.insert(throttle.id.clone(), throttle);
    }

    /// Removes the maximum of a throttle. The jobs that hold it and those that wait for it stay.
    pub(crate) fn forget_throttle(&mut self, id: &Bytes) {
        if self.rows.throttles.remove(id).is_some() {
            self.changed.insert(QlessKey::Throttle(id.clone()));
        }
    }
}
