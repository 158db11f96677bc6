//! Rates: how fast a queue fills and empties now.

use std::time::Duration;

use ganger_types::{Namespace, Queue, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Metric, SeriesTable, Step};

/// Time over which rates are measured.
const OVER: Duration = Duration::from_secs(300);
/// Shortest time that tells anything.
const OVER_MIN: Duration = Duration::from_secs(10);
/// Jobs that leave a queue.
const ENDS: [Metric; 3] = [Metric::Succeeded, Metric::Failed, Metric::Cancelled];

/// How fast a queue filled and emptied in the last five minutes, or since counting began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Number of jobs that were enqueued.
    pub enqueued: u64,
    /// Number of jobs that ended.
    pub finished: u64,
    /// Time over which they were counted.
    pub over: Duration,
}

impl Rate {
    /// Jobs that were enqueued, in tenths of a job a minute.
    pub fn arrivals_in_tenths(&self) -> u64 {
        self.tenths(self.enqueued)
    }

    /// Jobs that ended, in tenths of a job a minute.
    pub fn completions_in_tenths(&self) -> u64 {
        self.tenths(self.finished)
    }

    fn tenths(&self, jobs: u64) -> u64 {
        let millis = self.over.as_millis().max(1);
        let tenths = u128::from(jobs) * 600_000 / millis;
        u64::try_from(tenths).unwrap_or(u64::MAX)
    }

    /// Time until so many ready jobs are done at this rate; `None` if they grow or stay.
    pub fn time_to_empty(&self, ready: u64) -> Option<Duration> {
        let shrinks = self.finished.checked_sub(self.enqueued);
        let shrinks = shrinks.filter(|shrinks| *shrinks > 0)?;
        let millis = self.over.as_millis() * u128::from(ready) / u128::from(shrinks);
        Some(Duration::from_millis(
            u64::try_from(millis).unwrap_or(u64::MAX),
        ))
    }
}

impl SeriesTable {
    /// Returns how fast a queue fills and empties; `None` if that is not known: just after the start, or because the
    /// queue has no series of its own.
    pub fn rate(&self, namespace: &Namespace, queue: &Queue, now: Timestamp) -> Option<Rate> {
        let over = now.since(self.began?).min(OVER);
        if over < OVER_MIN {
            return None;
        }
        let empty = Rate {
            over,
            ..Rate::default()
        };
        let Some(space) = self.spaces.get(namespace) else {
            return Some(empty);
        };
        let Some(series) = space.queues.get(queue) else {
            return space.other.hours.is_empty().then_some(empty);
        };
        let from = Timestamp(now.0.saturating_sub(ganger_types::time::micros(over)));
        let steps = series.steps.between(
            Step::TenSeconds.number(from) + 1,
            Step::TenSeconds.number(now),
        );
        Some(steps.fold(empty, |rate, (_, counts)| Rate {
            enqueued: rate.enqueued + counts.get(Metric::Enqueued),
            finished: rate.finished + ENDS.map(|metric| counts.get(metric)).iter().sum::<u64>(),
            ..rate
        }))
    }

    /// Returns how many jobs of a queue ended in each of the last twelve times of five minutes, the oldest first.
    pub fn last_hour(&self, namespace: &Namespace, queue: &Queue, now: Timestamp) -> [u64; 12] {
        let mut ends = [0; 12];
        let series = self.spaces.get(namespace);
        let Some(series) = series.and_then(|space| space.queues.get(queue)) else {
            return ends;
        };
        let last = Step::Minute.number(now);
        let first = last.saturating_sub(59);
        for (number, counts) in series.minutes.between(first, last) {
            let place = usize::try_from((number - first) / 5).unwrap_or(0);
            ends[place] += ENDS.map(|metric| counts.get(metric)).iter().sum::<u64>();
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_tells_when_a_queue_is_empty() {
        let rate = Rate {
            enqueued: 10,
            finished: 40,
            over: Duration::from_secs(60),
        };
        assert_eq!(rate.arrivals_in_tenths(), 100);
        assert_eq!(rate.completions_in_tenths(), 400);
        assert_eq!(rate.time_to_empty(60), Some(Duration::from_secs(120)));
        let grows = Rate {
            enqueued: 41,
            ..rate
        };
        assert_eq!(grows.time_to_empty(1), None);
    }
}
