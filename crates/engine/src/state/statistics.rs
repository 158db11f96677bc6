//! Statistics per queue and day: waiting and run times, failures, retries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ganger_types::statistics::HISTOGRAM_BINS;
use ganger_types::time::MICROS_PER_SECOND;
use ganger_types::{Day, Namespace, Queue, Sample, StatisticsRecord, Timestamp};

use super::names::QueueIndex;

/// Days in memory: today and yesterday. Older days are in the store.
const DAYS_HELD: u32 = 2;

/// The records of the last days, and which of them changed in the turn.
#[derive(Default)]
pub(crate) struct Statistics {
    days: BTreeMap<(QueueIndex, Day), StatisticsRecord>,
    changed: BTreeSet<(QueueIndex, Day)>,
    newest: Day,
}

/// An occurrence to count.
#[derive(Clone, Copy)]
pub(crate) enum Occurrence {
    /// A job waited for this long before it was leased.
    Waited(Duration),
    /// An attempt ran for this long.
    Ran(Duration),
    /// An attempt failed, whether or not it is retried.
    Failure,
    /// A job failed for good.
    Failed,
    /// A failed attempt will be retried.
    Retry,
}

/// The day of a time, in UTC.
pub(crate) fn day_of(at: Timestamp) -> Day {
    Day(u32::try_from(at.0 / MICROS_PER_SECOND / 86_400).unwrap_or(u32::MAX))
}

/// The bin of a duration: of a second below a minute, a minute below an hour, an hour below a day, else a day. `None`
/// beyond the last bin.
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

impl Statistics {
    /// Loads a stored record.
    pub(crate) fn load(&mut self, queue: QueueIndex, record: StatisticsRecord) {
        self.days.insert((queue, record.day), record);
    }

    /// The record of a queue and day; `None` if nothing was counted.
    pub(crate) fn find(&self, queue: QueueIndex, day: Day) -> Option<&StatisticsRecord> {
        self.days.get(&(queue, day))
    }

    /// All records in memory.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &StatisticsRecord> {
        self.days.values()
    }

    /// The record of a queue and day, to change it; `names` gives the namespace and the queue of a new one.
    fn of(
        &mut self,
        queue: QueueIndex,
        day: Day,
        names: impl FnOnce() -> (Namespace, Queue),
    ) -> &mut StatisticsRecord {
        self.changed.insert((queue, day));
        self.days.entry((queue, day)).or_insert_with(|| {
            let (namespace, queue) = names();
            StatisticsRecord {
                namespace,
                queue,
                day,
                failed: 0,
                failures: 0,
                retries: 0,
                waiting: Sample::default(),
                running: Sample::default(),
            }
        })
    }

    /// Counts an occurrence in a queue.
    pub(crate) fn count(
        &mut self,
        at: Timestamp,
        queue: QueueIndex,
        counted: Occurrence,
        names: impl FnOnce() -> (Namespace, Queue),
    ) {
        let record = self.of(queue, day_of(at), names);
        match counted {
            Occurrence::Waited(time) => add(&mut record.waiting, time),
            Occurrence::Ran(time) => add(&mut record.running, time),
            Occurrence::Failure => record.failures += 1,
            Occurrence::Failed => record.failed += 1,
            Occurrence::Retry => record.retries += 1,
        }
    }

    /// Ends a turn: returns the records that changed, and drops old days.
    pub(crate) fn end_turn(&mut self, at: Timestamp) -> Vec<StatisticsRecord> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let changed = changed.filter_map(|key| self.days.get(&key).cloned());
        let changed = changed.collect();
        let today = day_of(at);
        if today != self.newest {
            self.newest = today;
            let oldest = Day(today.0.saturating_sub(DAYS_HELD - 1));
            self.days
                .retain(|(_, day), _| *day >= oldest && *day <= today);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_seconds_then_minutes_hours_and_days() {
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
