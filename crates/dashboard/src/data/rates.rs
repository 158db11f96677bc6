//! How fast queues fill and empty: differences of their totals between looks at them.
//!
//! The server keeps no series of its own yet. So a rate is that of the time for which somebody has looked, five minutes
//! at most; before that it is unknown, and pages say so. A series of the server will take this module's place.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ganger_types::reply::QueueView;
use ganger_types::{Namespace, Queue, ShardId, Timestamp};

/// Between two points that are kept.
const STEP: Duration = Duration::from_secs(10);
/// Points of a queue: five minutes.
const POINTS_MAX: usize = 31;
/// Queues whose points are kept. Further ones have no rate.
const QUEUES_MAX: usize = 2_000;
/// Points of a queue that nobody has looked at for so long say nothing about the present.
const STALE_AFTER: Duration = Duration::from_secs(60);
const MICROS_PER_MINUTE: u64 = 60_000_000;

type Key = (ShardId, Namespace, Queue);

/// The totals of queues at earlier looks.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<Key, VecDeque<Point>>>);

#[derive(Clone, Copy, Debug)]
struct Point {
    at: Timestamp,
    enqueued: u64,
    finished: u64,
}

/// How fast a queue fills and empties, in tenths of a job a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) enqueued: u64,
    pub(crate) finished: u64,
}

impl Rate {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            enqueued: self.enqueued + other.enqueued,
            finished: self.finished + other.finished,
        }
    }

    /// How long until the ready jobs are done at this rate; `None` if they grow or stay.
    pub(crate) fn time_to_empty(self, ready: u64) -> Option<Duration> {
        let shrinks = self
            .finished
            .checked_sub(self.enqueued)
            .filter(|it| *it > 0)?;
        Some(Duration::from_secs(ready.saturating_mul(600) / shrinks))
    }
}

/// A rate as text: per second above ten a second, else per minute.
pub(crate) fn text(tenths: u64) -> String {
    match tenths {
        0 => "0".to_owned(),
        1..=99 => format!("{}.{}", tenths / 10, tenths % 10),
        _ => crate::format::count(tenths / 10),
    }
}

impl Rates {
    /// Notes the totals of a queue as they are now, and returns its rate if it is known.
    pub(crate) fn note(
        &self,
        shard: &ShardId,
        namespace: &Namespace,
        queue: &QueueView,
        now: Timestamp,
    ) -> Option<Rate> {
        let point = Point {
            at: now,
            enqueued: queue.enqueued_total,
            finished: queue.finished_total,
        };
        let key = (shard.clone(), namespace.clone(), queue.queue.clone());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= QUEUES_MAX && !all.contains_key(&key) {
            all.retain(|_, points| {
                points
                    .back()
                    .is_some_and(|last| now.since(last.at) < STALE_AFTER)
            });
            if all.len() >= QUEUES_MAX {
                return None;
            }
        }
        let points = all.entry(key).or_default();
        let is_broken = points.back().is_some_and(|last| {
            now < last.at || now.since(last.at) > STALE_AFTER || point.enqueued < last.enqueued
        });
        if is_broken {
            points.clear();
        }
        let first = points.front().copied();
        if points.back().is_none_or(|last| now.since(last.at) >= STEP) {
            if points.len() == POINTS_MAX {
                points.pop_front();
            }
            points.push_back(point);
        }
        rate(first?, point)
    }
}

fn rate(first: Point, now: Point) -> Option<Rate> {
    let elapsed = now.at.since(first.at);
    if elapsed < STEP {
        return None;
    }
    let micros = u64::try_from(elapsed.as_micros()).ok()?;
    let tenths = |before: u64, after: u64| {
        let jobs = u128::from(after.saturating_sub(before));
        let tenths = jobs * u128::from(10 * MICROS_PER_MINUTE) / u128::from(micros);
        u64::try_from(tenths).unwrap_or(u64::MAX)
    };
    Some(Rate {
        enqueued: tenths(first.enqueued, now.enqueued),
        finished: tenths(first.finished, now.finished),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::{QueueCounts, QueueSettings};

    fn queue(enqueued_total: u64, finished_total: u64) -> QueueView {
        QueueView {
            queue: Queue::default(),
            settings: QueueSettings::default(),
            counts: QueueCounts::default(),
            schedules: 0,
            oldest_ready_for: None,
            created_at: Timestamp::default(),
            enqueued_total,
            finished_total,
        }
    }

    #[test]
    fn a_rate_is_known_after_ten_seconds_and_forgotten_after_a_minute_without_a_look() {
        let rates = Rates::default();
        let shard = ShardId::new("1").expect("a shard");
        let look = |second: u64, enqueued, finished| {
            let at = Timestamp(second * 1_000_000);
            rates.note(
                &shard,
                &Namespace::default(),
                &queue(enqueued, finished),
                at,
            )
        };
        assert_eq!(look(100, 0, 0), None);
        assert_eq!(look(105, 10, 5), None);
        let rate = look(120, 20, 40).expect("known");
        assert_eq!(
            rate,
            Rate {
                enqueued: 600,
                finished: 1_200
            }
        );
        assert_eq!(rate.time_to_empty(60), Some(Duration::from_secs(60)));
        assert_eq!(
            Rate {
                enqueued: 2,
                finished: 2
            }
            .time_to_empty(1),
            None
        );
        assert_eq!(look(300, 20, 40), None, "nobody looked for three minutes");
    }

    #[test]
    fn memory_is_bounded() {
        let rates = Rates::default();
        let shard = ShardId::new("1").expect("a shard");
        for number in 0..QUEUES_MAX + 10 {
            let view = QueueView {
                queue: Queue::new(number.to_string()).expect("short"),
                ..queue(0, 0)
            };
            for second in 0..40 {
                rates.note(
                    &shard,
                    &Namespace::default(),
                    &view,
                    Timestamp(second * 10_000_000),
                );
            }
        }
        let all = rates.0.lock().expect("no panic");
        assert!(all.len() <= QUEUES_MAX);
        assert!(all.values().all(|points| points.len() <= POINTS_MAX));
    }
}
