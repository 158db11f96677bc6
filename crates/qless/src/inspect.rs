//! Read access to jobs and queues of qless for the rest of the engine, without a call of the script.

use std::collections::BTreeSet;

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::qless::{QlessHistoryEntry, QlessJob, QlessSet, QlessTag, QlessTime};

use crate::json;
use crate::number;
use crate::procedures::configuration::max_concurrency;
use crate::procedures::throttles;
use crate::state::{Qless, since};

/// Number of jobs of a queue in each of its sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSizes {
    /// Number of jobs that are ready or wait for a throttle.
    pub ready: usize,
    /// Number of jobs that a worker holds, including those whose lock has expired.
    pub locked: usize,
    /// Number of jobs that wait for their time.
    pub scheduled: usize,
    /// Number of jobs that wait for other jobs.
    pub depends: usize,
    /// Number of jobs that failed in this queue.
    pub failed: usize,
    /// Number of recurring jobs of the queue.
    pub recurring: usize,
}

impl Qless {
    /// Returns the job with that jid; `None` if it does not exist.
    pub fn job_by_id(&self, jid: &[u8]) -> Option<&QlessJob> {
        self.job(&Bytes::copy_from_slice(jid))
    }

    /// Returns the jobs after that jid, in order of jids; all of them for `None`.
    pub fn jobs_after(&self, jid: Option<&Bytes>) -> impl Iterator<Item = &QlessJob> {
        self.jobs_after_jid(jid)
    }

    /// Whether clients track that jid. The job itself may not exist.
    pub fn is_tracked_jid(&self, jid: &[u8]) -> bool {
        self.is_tracked(&Bytes::copy_from_slice(jid))
    }

    /// Returns the names of all queues that are known, paused, or not empty.
    pub fn queue_names(&self) -> BTreeSet<Bytes> {
        let known = self.known_queues().iter().map(|(_, name)| name.clone());
        known.chain(self.queues_in_use().cloned()).collect()
    }

    /// Returns the time when the queue was first seen; `None` if it is unknown.
    pub fn seen_since(&self, queue: &[u8]) -> Option<QlessTime> {
        let known = self.known_queues().iter();
        known.clone().find(|(_, it)| it == queue).map(|it| it.0)
    }

    /// Whether the queue is paused.
    pub fn is_paused_queue(&self, queue: &[u8]) -> bool {
        self.is_paused(&Bytes::copy_from_slice(queue))
    }

    /// Counts the jobs of the queue in each set. Visits every failed job of the namespace.
    pub fn sizes(&self, queue: &[u8]) -> QueueSizes {
        let queue = Bytes::copy_from_slice(queue);
        let size = |set| self.size(&queue, set);
        let groups = self.failure_groups().map(|(group, _)| self.failed(group));
        let failed = groups.flatten().filter_map(|(_, jid)| self.job(jid));
        QueueSizes {
            ready: size(QlessSet::Work) + size(QlessSet::Throttled),
            locked: size(QlessSet::Locks),
            scheduled: size(QlessSet::Scheduled),
            depends: size(QlessSet::Depends),
            failed: failed.filter(|job| job.queue == queue).count(),
            recurring: size(QlessSet::Recur),
        }
    }

    /// Returns the failure groups, each with the number of its jobs.
    pub fn failure_sizes(&self) -> impl Iterator<Item = (&Bytes, usize)> {
        self.failure_groups()
    }

    /// Returns the number of ready jobs of its queue that run before the job, counted up to `most`; 0 if it is not
    /// ready.
    pub fn ahead_of(&self, job: &QlessJob, most: usize) -> usize {
        let Some(place) = job.place.as_ref().filter(|it| it.set == QlessSet::Work) else {
            return 0;
        };
        let others = self.work(&place.queue);
        others.take(most).take_while(|jid| **jid != job.jid).count()
    }

    /// Returns the number of jobs of the queue that run and the maximum, if the queue is at its limit of concurrency or
    /// at that of its own throttle; `None` if not.
    pub fn limit_reached(&self, queue: &[u8], now: f64, server: Elapsed) -> Option<(usize, f64)> {
        let queue = Bytes::copy_from_slice(queue);
        let held = since(
            self.time_index(&queue, QlessSet::Locks),
            QlessTime::new(now),
        )
        .count();
        let maximum = max_concurrency(self, &queue).unwrap_or(0.0);
        if maximum > 0.0 && number::from_length(held) >= maximum {
            return Some((held, maximum));
        }
        let throttle = throttles::queue_throttle(&queue);
        let holders = self.holders(&throttle).len();
        let is_full = !throttles::is_available(self, &throttle, server);
        is_full.then(|| (holders, throttles::maximum(self, &throttle, server)))
    }
}

/// Returns a list of texts as JSON; an empty list is `{}`, as the script writes it.
pub fn list_of(texts: &[Bytes]) -> Bytes {
    let mut json = json::Writer::default();
    json.strings(texts);
    json.finish().into()
}

/// Returns a tag as the text under which it is indexed. A number becomes its decimal text.
pub fn tag_text(tag: &QlessTag) -> Bytes {
    json::tag_text(tag)
}

/// Returns the text of a further key of an entry of a history; `None` if the key is absent or its value is neither a
/// text nor a number.
pub fn text_of(entry: &QlessHistoryEntry, key: &str) -> Option<Bytes> {
    let (_, value) = entry.extra.iter().find(|(it, _)| it == key)?;
    let list = json::list(&[b"[", &value[..], b"]"].concat()).ok()?;
    list.first().map(json::tag_text)
}
