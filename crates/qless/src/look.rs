//! What the rest of the engine sees of qless without a call of the script: its jobs as they are, and its queues.

use std::collections::BTreeSet;

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::qless::{QlessHappening, QlessJob, QlessSet, QlessTag, QlessTime};

use crate::json;
use crate::number;
use crate::procedures::configuration::max_concurrency;
use crate::procedures::throttles;
use crate::state::{Qless, since};

/// How many jobs of a queue stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Ready, or waiting for room under a throttle.
    pub ready: usize,
    /// Jobs that a worker holds.
    pub locked: usize,
    /// Waiting for their time.
    pub scheduled: usize,
    /// Waiting for other jobs.
    pub depends: usize,
    /// Jobs that failed in this queue.
    pub failed: usize,
    /// Recurring jobs that feed it.
    pub recurring: usize,
}

impl Qless {
    /// The job with that jid.
    pub fn look_up(&self, jid: &[u8]) -> Option<&QlessJob> {
        self.job(&Bytes::copy_from_slice(jid))
    }

    /// The jobs behind that jid, in order of jids; all of them without one.
    pub fn jobs_after(&self, jid: Option<&Bytes>) -> impl Iterator<Item = &QlessJob> {
        self.jobs_behind(jid)
    }

    /// Whether somebody follows that jid.
    pub fn is_followed(&self, jid: &[u8]) -> bool {
        self.is_tracked(&Bytes::copy_from_slice(jid))
    }

    /// The names of all queues that are known, or paused, or hold anything.
    pub fn queue_names(&self) -> BTreeSet<Bytes> {
        let known = self.known_queues().iter().map(|(_, name)| name.clone());
        known.chain(self.queues_in_use().cloned()).collect()
    }

    /// When the queue was first seen, if it is known.
    pub fn seen_since(&self, queue: &[u8]) -> Option<QlessTime> {
        let known = self.known_queues().iter();
        known.clone().find(|(_, it)| it == queue).map(|it| it.0)
    }

    /// Whether the queue gives nothing out.
    pub fn is_stopped(&self, queue: &[u8]) -> bool {
        self.is_paused(&Bytes::copy_from_slice(queue))
    }

    /// How many jobs of the queue stand where. Looks at every failed job.
    pub fn sizes(&self, queue: &[u8]) -> Sizes {
        let queue = Bytes::copy_from_slice(queue);
        let size = |set| self.size(&queue, set);
        let groups = self.failure_groups().map(|(group, _)| self.failed(group));
        let failed = groups.flatten().filter_map(|(_, jid)| self.job(jid));
        Sizes {
            ready: size(QlessSet::Work) + size(QlessSet::Throttled),
            locked: size(QlessSet::Locks),
            scheduled: size(QlessSet::Scheduled),
            depends: size(QlessSet::Depends),
            failed: failed.filter(|job| job.queue == queue).count(),
            recurring: size(QlessSet::Recur),
        }
    }

    /// Failure groups, each with the number of its jobs.
    pub fn failure_sizes(&self) -> impl Iterator<Item = (&Bytes, usize)> {
        self.failure_groups()
    }

    /// How many ready jobs of its queue go before the job, counted up to `most`.
    pub fn ahead_of(&self, job: &QlessJob, most: usize) -> usize {
        let Some(place) = job.place.as_ref().filter(|it| it.set == QlessSet::Work) else {
            return 0;
        };
        let others = self.work(&place.queue);
        others.take(most).take_while(|jid| **jid != job.jid).count()
    }

    /// How many jobs of the queue run and how many may, if it is at its limit: of concurrency, or its own throttle's.
    pub fn limit_reached(&self, queue: &[u8], now: f64, server: Elapsed) -> Option<(usize, f64)> {
        let queue = Bytes::copy_from_slice(queue);
        let held = since(self.in_order(&queue, QlessSet::Locks), QlessTime::new(now)).count();
        let maximum = max_concurrency(self, &queue).unwrap_or(0.0);
        if maximum > 0.0 && number::from_length(held) >= maximum {
            return Some((held, maximum));
        }
        let throttle = throttles::of_queue(&queue);
        let holders = self.holders(&throttle).len();
        let is_full = !throttles::is_available(self, &throttle, server);
        is_full.then(|| (holders, throttles::maximum(self, &throttle, server)))
    }
}

/// A list of texts as JSON.
pub fn list_of(texts: &[Bytes]) -> Bytes {
    let mut json = json::Writer::default();
    json.strings(texts);
    json.finish().into()
}

/// A tag as the text under which it is found.
pub fn tag_text(tag: &QlessTag) -> Bytes {
    json::tag_text(tag)
}

/// The text under a key of an entry of a history, if there is one.
pub fn text_of(entry: &QlessHappening, key: &str) -> Option<Bytes> {
    let (_, value) = entry.extra.iter().find(|(it, _)| it == key)?;
    let list = json::list(&[b"[", &value[..], b"]"].concat()).ok()?;
    list.first().map(json::tag_text)
}
