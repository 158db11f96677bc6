//! Keeps the memory of the series within its bound: the least active queues and kinds are counted together.

use ganger_types::{Kind, Namespace, Queue, Timestamp};

use super::{KindSeries, Metric, QueueSeries, SeriesTable, Space, Step};

/// Bytes of all points of a shard.
pub(super) const BYTES_MAX: usize = 16 << 20;
/// Queues and kinds that may get a series between two checks of the memory, which is every 10 s.
pub(super) const CREATED_MAX: usize = 4_096;
/// Bytes of a name and its entries in the maps, beside the points.
const ENTRY_BYTES: usize = 256;

/// A series that may be merged into the others.
enum Victim {
    Queue(Namespace, Queue),
    Kind(Namespace, Queue, Kind),
}

impl KindSeries {
    fn bytes(&self) -> usize {
        self.minutes.bytes() + self.hours.bytes() + ENTRY_BYTES
    }

    /// Attempts started while it has been kept.
    fn activity(&self) -> u64 {
        self.hours
            .iter()
            .map(|point| u64::from(point.started))
            .sum()
    }

    fn merge(&mut self, other: &Self) {
        self.minutes.merge(&other.minutes);
        self.hours.merge(&other.hours);
    }

    fn prune(&mut self, now: Timestamp) -> bool {
        self.minutes.prune(now);
        self.hours.prune(now);
        !self.hours.is_empty()
    }
}

impl QueueSeries {
    fn bytes(&self) -> usize {
        let kinds: usize = self.kinds.values().map(KindSeries::bytes).sum();
        let own =
            self.steps.bytes() + self.minutes.bytes() + self.hours.bytes() + self.outcomes.bytes();
        own + kinds + self.other_kinds.bytes() + ENTRY_BYTES
    }

    /// Jobs enqueued and attempts started while it has been kept.
    pub(super) fn activity(&self) -> u64 {
        let of = |metric| -> u64 { self.hours.iter().map(|point| point.get(metric)).sum() };
        of(Metric::Enqueued) + of(Metric::Started)
    }

    /// Adds another queue, all of whose kinds become others.
    fn merge(&mut self, other: &Self) {
        self.steps.merge(&other.steps);
        self.minutes.merge(&other.minutes);
        self.hours.merge(&other.hours);
        self.outcomes.merge(&other.outcomes);
        for kind in other.kinds.values() {
            self.other_kinds.merge(kind);
        }
        self.other_kinds.merge(&other.other_kinds);
    }

    /// Removes what is too old; returns whether anything is left.
    fn prune(&mut self, now: Timestamp) -> bool {
        self.steps.prune(now);
        self.minutes.prune(now);
        self.hours.prune(now);
        self.outcomes.prune(now);
        self.kinds.retain(|_, kind| kind.prune(now));
        self.other_kinds.prune(now);
        !self.hours.is_empty()
    }
}

impl Space {
    fn bytes(&self) -> usize {
        let queues: usize = self.queues.values().map(QueueSeries::bytes).sum();
        queues + self.other.bytes() + ENTRY_BYTES
    }

    fn activity(&self) -> u64 {
        let queues: u64 = self.queues.values().map(QueueSeries::activity).sum();
        queues + self.other.activity()
    }
}

impl SeriesTable {
    /// Bytes that all series take.
    pub(super) fn bytes(&self) -> usize {
        self.spaces.values().map(Space::bytes).sum()
    }

    /// Removes points that are too old, and merges the least active series until the rest takes no more than seven
    /// eighths of the bound, so that this is not repeated at once.
    pub(super) fn keep_within_bounds(&mut self, now: Timestamp) {
        self.created = 0;
        self.spaces.retain(|_, space| {
            space.queues.retain(|_, queue| queue.prune(now));
            let has_others = space.other.prune(now);
            has_others || !space.queues.is_empty()
        });
        if self.bytes() <= self.bytes_max {
            return;
        }
        let wanted = self.bytes_max / 8 * 7;
        for victim in self.least_active() {
            if self.bytes() <= wanted {
                return;
            }
            self.merge_into_others(&victim);
        }
        self.drop_least_active_spaces(wanted);
    }

    /// All series of queues and kinds, least active first.
    fn least_active(&self) -> Vec<Victim> {
        let mut all: Vec<(u64, Victim)> = Vec::new();
        for (namespace, space) in &self.spaces {
            for (name, queue) in &space.queues {
                let victim = Victim::Queue(namespace.clone(), name.clone());
                all.push((queue.activity(), victim));
                for (kind, series) in &queue.kinds {
                    let victim = Victim::Kind(namespace.clone(), name.clone(), kind.clone());
                    all.push((series.activity(), victim));
                }
            }
        }
        all.sort_by_key(|(activity, _)| *activity);
        all.into_iter().map(|(_, victim)| victim).collect()
    }

    fn merge_into_others(&mut self, victim: &Victim) {
        match victim {
            Victim::Queue(namespace, queue) => {
                if let Some(space) = self.spaces.get_mut(namespace)
                    && let Some(gone) = space.queues.remove(queue)
                {
                    space.other.merge(&gone);
                }
            }
            Victim::Kind(namespace, queue, kind) => {
                let space = self.spaces.get_mut(namespace);
                if let Some(series) = space.and_then(|space| space.queues.get_mut(queue))
                    && let Some(gone) = series.kinds.remove(kind)
                {
                    series.other_kinds.merge(&gone);
                }
            }
        }
    }

    /// Forgets whole namespaces: so many of them are active that not even one series of each fits.
    fn drop_least_active_spaces(&mut self, wanted: usize) {
        let mut all: Vec<(u64, usize, Namespace)> = self
            .spaces
            .iter()
            .map(|(name, space)| (space.activity(), space.bytes(), name.clone()))
            .collect();
        all.sort();
        let mut bytes = self.bytes();
        for (_, own, name) in all {
            if bytes <= wanted {
                return;
            }
            bytes = bytes.saturating_sub(own);
            self.spaces.remove(&name);
        }
    }

    /// Number of the first step of which something is known, and of the last one that has begun.
    pub(super) fn known_steps(&self, step: Step, now: Timestamp) -> Option<(u32, u32)> {
        let last = step.number(now);
        let first = step.number(self.began?);
        Some((first.max(last.saturating_sub(step.kept() - 1)), last))
    }
}
