//! The figures of all runs, and their medians.

use std::collections::BTreeMap;

use ganger_bench::Outcome;

use super::row::Metric;

/// What was measured, by load, system and metric: a value for each run.
#[derive(Default)]
pub(super) struct Figures {
    values: BTreeMap<(String, String, Metric), BTreeMap<usize, f64>>,
    /// Number of the run that goes on.
    run: usize,
    /// Loads and systems in the order of their first mention.
    loads: Vec<String>,
    systems: Vec<String>,
}

impl Figures {
    /// Notes one value, and prints it.
    pub(super) fn add(&mut self, load: &str, system: &str, metric: Metric, value: f64) {
        println!("  {load}: {system} {} {}", rounded(value), metric.name());
        for (names, name) in [(&mut self.loads, load), (&mut self.systems, system)] {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        let key = (load.to_owned(), system.to_owned(), metric);
        self.values.entry(key).or_default().insert(self.run, value);
    }

    /// Begins the next run.
    pub(super) fn begin_run(&mut self) {
        self.run += 1;
    }

    /// Notes what the load generator measured.
    pub(super) fn add_outcome(&mut self, system: &str, outcome: &Outcome) {
        let (measured, load) = (outcome.measured, outcome.load);
        self.add(load, system, Metric::Rate, measured.per_second);
        let used = measured.used;
        let latency = outcome.latency.as_ref();
        for (metric, value) in [
            (Metric::Cpu, used.cpu.map(|each| each * 1e6)),
            (Metric::Flushes, used.flushes),
            (Metric::Bytes, used.bytes),
            (Metric::P50, latency.map(|of| of.p50.as_secs_f64() * 1e3)),
            (Metric::P99, latency.map(|of| of.p99.as_secs_f64() * 1e3)),
        ] {
            if let Some(value) = value {
                self.add(load, system, metric, value);
            }
        }
    }

    /// The median of all runs; absent if it was not measured.
    pub(super) fn median(&self, load: &str, system: &str, metric: Metric) -> Option<f64> {
        let values = self.runs(load, system, metric)?;
        median(values.values().copied())
    }

    /// The median over the runs of one value divided by another of the same run.
    pub(super) fn ratio(
        &self,
        (load, system): (&str, &str),
        (other_load, other_system): (&str, &str),
        metric: Metric,
    ) -> Option<f64> {
        let ours = self.runs(load, system, metric)?;
        let theirs = self.runs(other_load, other_system, metric)?;
        let ratio = |(run, ours): (&usize, &f64)| Some(ours / theirs.get(run)?);
        median(ours.iter().filter_map(ratio))
    }

    fn runs(&self, load: &str, system: &str, metric: Metric) -> Option<&BTreeMap<usize, f64>> {
        let key = (load.to_owned(), system.to_owned(), metric);
        self.values.get(&key)
    }

    /// The loads that have a figure.
    pub(super) fn loads(&self) -> &[String] {
        &self.loads
    }

    /// The systems that have a figure.
    pub(super) fn systems(&self) -> &[String] {
        &self.systems
    }
}

/// The middle value, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let above = *values.get(middle)?;
    if values.len().is_multiple_of(2) {
        Some(f64::midpoint(values[middle - 1], above))
    } else {
        Some(above)
    }
}

/// A value with as many digits as say something.
pub(super) fn rounded(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_all_runs_is_reported() {
        let mut figures = Figures::default();
        for (redis, streams) in [(5.0, 4.0), (1.0, 2.0), (3.0, 9.0)] {
            figures.begin_run();
            figures.add("M", "redis", Metric::Rate, redis);
            figures.add("M", "streams", Metric::Rate, streams);
        }
        let median = |system| figures.median("M", system, Metric::Rate);
        assert_eq!(median("redis"), Some(3.0));
        assert_eq!(median("streams"), Some(4.0));
        assert_eq!(median("bare"), None);
        let ratio = figures.ratio(("M", "streams"), ("M", "redis"), Metric::Rate);
        assert_eq!(ratio, Some(2.0), "the middle of 0.8, 2 and 3");
        assert_eq!(figures.systems(), ["redis", "streams"]);
    }

    #[test]
    fn small_values_keep_their_digits() {
        let shown = [0.012_34, 0.5, 12.34, 1234.5].map(rounded);
        assert_eq!(shown, ["0.0123", "0.50", "12.3", "1234"]);
    }
}
