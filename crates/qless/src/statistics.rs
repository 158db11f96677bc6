//! Statistics of a queue for one day: two samples, which are updated value by value, and counters.

use ganger_types::qless::{QlessSample, QlessStatistics, QlessTime};

use crate::json::Writer;
use crate::number;

/// Number of seconds in a day.
const DAY: f64 = 86_400.0;

/// The bins of a histogram in the order in which replies show them: the first bin of each range, and the one after its
/// last. The bins of the first minute, hour and day are missing, because the smaller unit counts these values.
const SHOWN_BINS: [(u16, u16); 4] = [(0, 60), (61, 120), (121, 144), (145, 151)];

/// Returns the beginning of the day of a caller's time, in seconds since the epoch; days begin at midnight UTC.
pub(crate) fn day(now: f64) -> QlessTime {
    QlessTime::new((now / DAY).floor() * DAY)
}

/// Adds a value in seconds to a sample. The value is negative if the callers' clocks differ.
pub(crate) fn add(sample: &mut QlessSample, value: f64) {
    sample.total += 1;
    let before = sample.mean;
    let distance = number::sum(value, -before);
    sample.mean = number::sum(before, distance / number::from_count(sample.total));
    sample.vk = number::sum(sample.vk, number::sum(value, -sample.mean) * distance);
    if let Some(bin) = bin(value) {
        match sample.bins.binary_search_by_key(&bin, |(it, _)| *it) {
            Ok(index) => sample.bins[index].1 += 1,
            Err(index) => sample.bins.insert(index, (bin, 1)),
        }
    }
}

/// Returns the bin of a value in seconds: 60 bins for seconds, 60 for minutes, 24 for hours, 7 for days. `None` if the
/// value is negative or 7 days or more.
pub(crate) fn bin(value: f64) -> Option<u16> {
    let seconds = number::truncate(value.floor());
    let bin = match seconds {
        0..60 => seconds,
        60..3600 => 60 + seconds / 60,
        3600..86_400 => 120 + seconds / 3600,
        86_400..604_800 => 144 + seconds / 86_400,
        _ => return None,
    };
    u16::try_from(bin).ok()
}

/// Writes the statistics of a day; `None` stands for a day without events, which is all zeros.
pub(crate) fn write(out: &mut Writer, statistics: Option<&QlessStatistics>) {
    let nothing = QlessSample::default();
    let (retries, failed, failures) =
        statistics.map_or((0, 0, 0), |it| (it.retries, it.failed, it.failures));
    out.begin();
    for (key, count) in [
        ("retries", retries),
        ("failed", failed),
        ("failures", failures),
    ] {
        out.key(key).whole(count);
    }
    out.key("wait");
    write_sample(out, statistics.map_or(&nothing, |it| &it.wait));
    out.key("run");
    write_sample(out, statistics.map_or(&nothing, |it| &it.run));
    out.end();
}

fn write_sample(out: &mut Writer, sample: &QlessSample) {
    let total = number::from_count(sample.total);
    let deviation = if sample.total > 1 {
        (sample.vk / (total - 1.0)).sqrt()
    } else {
        0.0
    };
    out.begin();
    out.key("count").number(total);
    out.key("mean").number(sample.mean);
    out.key("std").number(deviation);
    out.key("histogram");
    let bins = SHOWN_BINS.into_iter().flat_map(|(first, end)| first..end);
    out.list(bins, |out, bin| {
        let found = sample.bins.binary_search_by_key(&bin, |(it, _)| *it);
        let count = found.map_or(0, |index| sample.bins[index].1);
        out.number(number::from_count(count));
    });
    out.end();
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ganger_types::qless::{QlessSample, QlessStatistics, QlessTime};
    use proptest::prelude::*;
    use serde_json::Value;

    use super::{add, bin, day, write};
    use crate::json::Writer;

    fn sample(values: &[f64]) -> QlessSample {
        let mut sample = QlessSample::default();
        for value in values {
            add(&mut sample, *value);
        }
        sample
    }

    fn written(statistics: Option<&QlessStatistics>) -> Value {
        let mut out = Writer::default();
        write(&mut out, statistics);
        serde_json::from_slice(&out.finish()).expect("statistics are JSON")
    }

    fn statistics(wait: QlessSample, run: QlessSample) -> QlessStatistics {
        QlessStatistics {
            queue: Bytes::from("q"),
            day: QlessTime::new(0.0),
            failed: -1,
            failures: 2,
            retries: 3,
            wait,
            run,
        }
    }

    #[test]
    fn a_day_begins_at_midnight_also_before_the_epoch() {
        for (now, begin) in [
            (0.0, 0.0),
            (1.5, 0.0),
            (86_399.999, 0.0),
            (86_400.0, 86_400.0),
            (-0.5, -86_400.0),
            (-86_400.0, -86_400.0),
        ] {
            assert_eq!(day(now), QlessTime::new(begin), "{now}");
        }
    }

    #[test]
    fn a_value_is_counted_in_the_bin_of_its_largest_unit() {
        for (value, expected) in [
            (0.0, Some(0)),
            (0.99, Some(0)),
            (59.99, Some(59)),
            (60.0, Some(61)),
            (3599.0, Some(119)),
            (3600.0, Some(121)),
            (86_399.0, Some(143)),
            (86_400.0, Some(145)),
            (604_799.0, Some(150)),
            (604_800.0, None),
            (-0.01, None),
            (-1e300, None),
            (1e300, None),
        ] {
            assert_eq!(bin(value), expected, "{value}");
        }
    }

    #[test]
    fn a_day_without_events_is_all_zeros() {
        let shown = written(None);
        for sample in ["wait", "run"] {
            let sample = &shown[sample];
            assert_eq!(sample["count"], 0);
            assert_eq!(sample["mean"], 0);
            assert_eq!(sample["std"], 0);
            assert_eq!(sample["histogram"], Value::from(vec![0; 148]));
        }
        assert_eq!(shown["retries"], 0);
        assert_eq!(shown["failed"], 0);
        assert_eq!(shown["failures"], 0);
    }

    #[test]
    fn the_largest_values_leave_the_sample_finite() {
        let sample = sample(&[f64::MAX, f64::MIN, f64::MAX]);
        assert!(sample.mean.is_finite() && sample.vk.is_finite());
    }

    #[test]
    fn counters_and_samples_are_shown() {
        let shown = written(Some(&statistics(sample(&[1.0, 70.5]), sample(&[7.0]))));
        assert_eq!(shown["failed"], -1);
        assert_eq!(shown["failures"], 2);
        assert_eq!(shown["retries"], 3);
        assert_eq!(shown["wait"]["count"], 2);
        assert_eq!(shown["wait"]["mean"].to_string(), "35.75");
        assert_eq!(shown["wait"]["std"].to_string(), "49.143921292465");
        assert_eq!(shown["run"]["count"], 1);
        assert_eq!(shown["run"]["mean"], 7);
        assert_eq!(shown["run"]["std"], 0);
    }

    #[test]
    fn the_histogram_shows_seconds_then_minutes_then_hours_then_days() {
        let values = [
            0.0, 59.0, 60.0, 3599.0, 3600.0, 86_399.0, 86_400.0, 604_799.0, -5.0, 1e9,
        ];
        let shown = written(Some(&statistics(sample(&values), QlessSample::default())));
        let histogram = shown["wait"]["histogram"].as_array().expect("a list");
        let filled: Vec<usize> = (0..histogram.len())
            .filter(|index| histogram[*index] != 0)
            .collect();
        assert_eq!(histogram.len(), 148);
        assert_eq!(filled, [0, 59, 60, 118, 119, 141, 142, 147]);
        assert_eq!(shown["wait"]["count"], 10);
    }

    proptest! {
        #[test]
        fn mean_and_deviation_are_those_of_all_values(values in proptest::collection::vec(-1e6..1e6_f64, 2..50)) {
            let sample = sample(&values);
            let count = f64::from(u32::try_from(values.len()).expect("few values"));
            let mean = values.iter().sum::<f64>() / count;
            let squares = values.iter().map(|it| (it - mean) * (it - mean)).sum::<f64>();
            prop_assert!((sample.mean - mean).abs() < 1e-6);
            prop_assert!((sample.vk - squares).abs() <= squares * 1e-9 + 1e-6);
        }
    }
}
