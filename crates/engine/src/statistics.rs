//! Statistics per queue and day: how long jobs wait and run, how often they fail.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ganger_types::statistics::HISTOGRAM_BINS;
use ganger_types::time::MICROS_PER_SECOND;
use ganger_types::{Change, Day, Now, Sample, StatisticsRecord, Timestamp};

use crate::engine::Engine;
use crate::names::QueueIndex;
use crate::turn::Turn;

/// Days held in memory: today and yesterday. Older ones are in the store.
const DAYS_HELD: u32 = 2;

/// The days held, and those to be written at the end of the turn.
#[derive(Default)]
pub(crate) struct Statistics {
    pub days: BTreeMap<(QueueIndex, Day), StatisticsRecord>,
    changed: BTreeSet<(QueueIndex, Day)>,
    newest: Day,
}

/// The day of a moment, UTC.
pub(crate) fn day_of(at: Timestamp) -> Day {
    Day(u32::try_from(at.0 / MICROS_PER_SECOND / 86_400).unwrap_or(u32::MAX))
}

/// The bin of a duration: a second below a minute, a minute below an hour, an hour below a day, a day.
fn bin(seconds: u64) -> Option<u16> {
    let bin = match seconds {
        0..60 => seconds,
        60..3_600 => 59 + seconds / 60,
        3_600..86_400 => 118 + seconds / 3_600,
        _ => 141 + seconds / 86_400,
    };
    u16::try_from(bin)
        .ok()
        .filter(|bin| usize::from(*bin) < HISTOGRAM_BINS)
}

/// Adds a duration to a sample (Welford's streaming mean and variance).
fn add(sample: &mut Sample, duration: Duration) {
    let value = duration.as_secs_f64();
    sample.count += 1;
    let before = sample.mean;
    #[expect(
        clippy::cast_precision_loss,
        clippy::as_conversions,
        reason = "counts stay far below 2^52"
    )]
    let count = sample.count as f64;
    sample.mean += (value - before) / count;
    sample.vk += (value - sample.mean) * (value - before);
    let Some(bin) = bin(duration.as_secs()) else {
        return;
    };
    match sample.histogram.binary_search_by_key(&bin, |(bin, _)| *bin) {
        Ok(place) => sample.histogram[place].1 += 1,
        Err(place) => sample.histogram.insert(place, (bin, 1)),
    }
}

impl Engine {
    fn statistics_of(&mut self, now: Now, queue: QueueIndex) -> &mut StatisticsRecord {
        let day = day_of(now.wall);
        self.statistics.changed.insert((queue, day));
        let state = &self.queues[queue.at()];
        let (space, name) = (&self.spaces[state.space.at()].name, &state.name);
        self.statistics
            .days
            .entry((queue, day))
            .or_insert_with(|| StatisticsRecord {
                namespace: space.clone(),
                queue: name.clone(),
                day,
                failed: 0,
                failures: 0,
                retries: 0,
                waiting: Sample::default(),
                running: Sample::default(),
            })
    }

    pub(crate) fn sample_waiting(&mut self, now: Now, queue: QueueIndex, waited: Duration) {
        add(&mut self.statistics_of(now, queue).waiting, waited);
    }

    pub(crate) fn sample_running(&mut self, now: Now, queue: QueueIndex, ran: Duration) {
        add(&mut self.statistics_of(now, queue).running, ran);
    }

    pub(crate) fn count_failure(&mut self, now: Now, queue: QueueIndex) {
        self.statistics_of(now, queue).failures += 1;
    }

    pub(crate) fn count_failed(&mut self, now: Now, queue: QueueIndex) {
        self.statistics_of(now, queue).failed += 1;
    }

    pub(crate) fn count_retry(&mut self, now: Now, queue: QueueIndex) {
        self.statistics_of(now, queue).retries += 1;
    }

    /// Writes the days that changed, and lets go of old ones.
    pub(crate) fn end_statistics_turn(&mut self, turn: &mut Turn<'_>) {
        for key in std::mem::take(&mut self.statistics.changed) {
            if let Some(record) = self.statistics.days.get(&key) {
                turn.out
                    .changes
                    .push(Change::PutStatistics(Box::new(record.clone())));
            }
        }
        let today = day_of(turn.now.wall);
        if today != self.statistics.newest {
            self.statistics.newest = today;
            let oldest = Day(today.0.saturating_sub(DAYS_HELD - 1));
            self.statistics
                .days
                .retain(|(_, day), _| *day >= oldest && *day <= today);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_those_of_qless() {
        let bins = [0, 59, 60, 119, 3_599, 3_600, 86_399, 86_400, 6 * 86_400].map(bin);
        assert_eq!(bins, [0, 59, 60, 60, 118, 119, 141, 142, 147].map(Some));
        assert_eq!(bin(7 * 86_400), None);
    }

    #[test]
    fn mean_and_variance_are_those_of_the_textbook() {
        let mut sample = Sample::default();
        [1, 2, 3, 4]
            .map(Duration::from_secs)
            .into_iter()
            .for_each(|value| add(&mut sample, value));
        assert!((sample.mean - 2.5).abs() < 1e-12);
        assert!((sample.vk / 3.0 - 5.0 / 3.0).abs() < 1e-12);
        assert_eq!(sample.histogram, [(1, 1), (2, 1), (3, 1), (4, 1)]);
    }
}
