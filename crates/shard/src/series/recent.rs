//! What happened in each queue lately: for rules that look for trouble, and for rates.

use std::collections::BTreeMap;

use ganger_types::{Namespace, Queue, Timestamp};

use super::{Metric, Outcomes, QueueSeries, SeriesTable, Sketch, Step};
use crate::series::ring::Fold as _;

/// Number of steps of 10 s that count as lately: 5 minutes.
const STEPS: u32 = 30;
/// Number of steps of 10 s that a rate is measured over, the current one excepted: 1 minute.
const RATE_STEPS: u32 = 6;
/// Number of minutes that `Rates::by_minute` covers.
const MINUTES: u32 = 10;

/// What happened in a queue in the last 5 minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// How its attempts ended.
    pub outcomes: Outcomes,
    /// Number of ready jobs at the beginning of the 5 minutes; `None` if that is not known.
    pub ready_before: Option<u64>,
}

/// How fast a queue, or all queues together, filled and emptied lately.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Number of jobs enqueued in the last full minute.
    pub enqueued: u64,
    /// Number of jobs that succeeded in the last full minute.
    pub succeeded: u64,
    /// Number of jobs that failed in the last full minute.
    pub failed: u64,
    /// Number of jobs that succeeded or failed in each of the last 10 minutes, oldest first; the last is the current
    /// one.
    pub by_minute: Vec<u64>,
    /// How long attempts ran that ended in the last 10 minutes.
    pub running: Sketch,
}

impl QueueSeries {
    fn recent(&self, known_from: u32, last: u32) -> Recent {
        let from = last.saturating_sub(STEPS - 1);
        let mut recent = Recent::default();
        for (_, outcomes) in self.outcomes.between(from, last) {
            recent.outcomes.fold(outcomes);
        }
        if known_from <= from {
            let before = self.steps.between(from, last).next();
            // Without live jobs there was no sample, so there were no ready jobs either.
            let before = before.filter(|(number, _)| *number <= from + 1);
            recent.ready_before = Some(before.map_or(0, |(_, point)| point.get(Metric::Ready)));
        }
        recent
    }

    fn add_rates(&self, rates: &mut Rates, step: u32, minute: u32) {
        let last = step.saturating_sub(1);
        let from = last.saturating_sub(RATE_STEPS - 1);
        for (_, point) in self.steps.between(from, last) {
            rates.enqueued += point.get(Metric::Enqueued);
            rates.succeeded += point.get(Metric::Succeeded);
            rates.failed += point.get(Metric::Failed);
        }
        let first = minute.saturating_sub(MINUTES - 1);
        for (number, point) in self.minutes.between(first, minute) {
            let place = usize::try_from(number - first).unwrap_or(usize::MAX);
            if let Some(value) = rates.by_minute.get_mut(place) {
                *value += point.get(Metric::Succeeded) + point.get(Metric::Failed);
            }
        }
        for (_, point) in self.kind_points(Step::Minute, first, minute) {
            rates.running.merge(&point.running);
        }
    }
}

impl SeriesTable {
    /// Returns the time at which counting began, shortly after the shard was loaded; `None` before.
    pub fn began(&self) -> Option<Timestamp> {
        self.began
    }

    /// Returns what happened in the last 5 minutes in each queue of a namespace that has a series of its own.
    pub fn recent(&self, namespace: &Namespace, now: Timestamp) -> BTreeMap<Queue, Recent> {
        let (Some(space), Some(began)) = (self.spaces.get(namespace), self.began) else {
            return BTreeMap::new();
        };
        let (known_from, last) = (Step::TenSeconds.number(began), Step::TenSeconds.number(now));
        let queues = space.queues.iter();
        queues
            .map(|(name, series)| (name.clone(), series.recent(known_from, last)))
            .collect()
    }

    /// Returns how fast the named queues of a namespace fill and empty, in the order of the names. A queue without a
    /// series has rates of zero.
    pub fn rates(&self, namespace: &Namespace, queues: &[Queue], now: Timestamp) -> Vec<Rates> {
        let space = self.spaces.get(namespace);
        let of = |name: &Queue| {
            let series = space.and_then(|space| space.queues.get(name));
            sum_rates(series.into_iter(), now)
        };
        queues.iter().map(of).collect()
    }

    /// Returns how fast all queues of a namespace together fill and empty.
    pub fn total_rates(&self, namespace: &Namespace, now: Timestamp) -> Rates {
        let space = self.spaces.get(namespace);
        let all = space.into_iter().flat_map(|space| {
            let named = space.queues.values();
            named.chain([&space.other])
        });
        sum_rates(all, now)
    }
}

fn sum_rates<'a>(series: impl Iterator<Item = &'a QueueSeries>, now: Timestamp) -> Rates {
    let minutes = usize::try_from(MINUTES).unwrap_or_default();
    let mut rates = Rates {
        by_minute: vec![0; minutes],
        ..Rates::default()
    };
    let (step, minute) = (Step::TenSeconds.number(now), Step::Minute.number(now));
    for series in series {
        series.add_rates(&mut rates, step, minute);
    }
    rates
}
