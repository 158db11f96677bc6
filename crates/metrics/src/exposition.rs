//! The metrics of a process at one moment, and their text.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as HistogramSample, LabelPair, Metric, MetricFamily,
    MetricType, Summary,
};

use crate::histogram::{Histogram, ratio};

/// Content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Adds the metrics of a part of the process, when they are requested.
pub type Source = Arc<dyn Fn(&mut Exposition) + Send + Sync>;

/// Families of metrics at one moment, in the order in which they were added.
///
/// Names are written as given: a counter's name ends in `_total` already.
#[derive(Debug, Default)]
pub struct Exposition {
    families: Vec<MetricFamily>,
}

impl Exposition {
    /// Adds a family of counters, which start at 0 with the process and never fall.
    pub fn counter(&mut self, name: &str, help: &str) -> NumberFamily<'_> {
        NumberFamily(self.family(name, help, MetricType::COUNTER))
    }

    /// Adds a family of gauges, which rise and fall.
    pub fn gauge(&mut self, name: &str, help: &str) -> NumberFamily<'_> {
        NumberFamily(self.family(name, help, MetricType::GAUGE))
    }

    /// Adds a family of histograms.
    pub fn histogram(&mut self, name: &str, help: &str) -> HistogramFamily<'_> {
        HistogramFamily(self.family(name, help, MetricType::HISTOGRAM))
    }

    /// Adds a summary without quantiles and without labels: the sum of all values and how many there were.
    pub fn summary(&mut self, name: &str, help: &str, sum: f64, count: u64) {
        let mut summary = Summary::default();
        summary.set_sample_sum(sum);
        summary.set_sample_count(count);
        let mut metric = Metric::default();
        metric.set_summary(summary);
        let family = self.family(name, help, MetricType::SUMMARY);
        family.mut_metric().push(metric);
    }

    /// Returns the families as text. A family without samples is omitted.
    #[expect(
        clippy::missing_panics_doc,
        reason = "the library refuses only families without a name or samples"
    )]
    pub fn text(mut self) -> String {
        self.families
            .retain(|family| !family.get_metric().is_empty());
        TextEncoder::new()
            .encode_to_string(&self.families)
            .expect("every family has a name and samples")
    }

    fn family(&mut self, name: &str, help: &str, kind: MetricType) -> &mut MetricFamily {
        debug_assert!(
            self.families.iter().all(|known| known.name() != name),
            "{name} is added twice"
        );
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        self.families.push_mut(family)
    }
}

/// A family of counters or gauges, to add samples to.
#[derive(Debug)]
pub struct NumberFamily<'a>(&'a mut MetricFamily);

impl NumberFamily<'_> {
    /// Adds a sample. Its labels, names with values, differ from those of every other sample of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Into<Value>) {
        let Value(value) = value.into();
        let mut metric = Metric::from_label(pairs(labels));
        if self.0.get_field_type() == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.0.mut_metric().push(metric);
    }
}

/// A family of histograms, to add samples to.
#[derive(Debug)]
pub struct HistogramFamily<'a>(&'a mut MetricFamily);

impl HistogramFamily<'_> {
    /// Adds a histogram. Its labels, names with values, differ from those of every other histogram of the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], histogram: &Histogram) {
        let buckets = histogram.buckets.iter().map(|(bound, count)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(*count);
            bucket
        });
        let mut sample = HistogramSample::default();
        sample.set_bucket(buckets.collect());
        sample.set_sample_sum(histogram.sum);
        sample.set_sample_count(histogram.count);
        let mut metric = Metric::from_label(pairs(labels));
        metric.set_histogram(sample);
        self.0.mut_metric().push(metric);
    }
}

/// The value of a sample. All values of the format are floating-point numbers, so an integer above 2^53 is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value(f64);

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self(ratio(value, 1))
    }
}

fn pairs(labels: &[(&str, &str)]) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(printable(value).into_owned());
        pair
    };
    labels.iter().map(pair).collect()
}

/// Writes control characters as `\xNN`, the form of bytes in names, so that terminals and web pages can show the
/// value. Line ends stay: the format has an escape for them.
fn printable(text: &str) -> Cow<'_, str> {
    let is_hidden = |character: char| character.is_control() && character != '\n';
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_hidden(character) {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                write!(out, "\\x{byte:02x}").expect("writing to a string cannot fail");
            }
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    #[test]
    fn families_are_written_in_their_order_and_with_their_names() {
        let mut out = Exposition::default();
        let mut jobs = out.counter("jobs_total", "Jobs, by \"outcome\".\nSecond \\ line.");
        jobs.sample(&[("shard", "1"), ("outcome", "failed")], 3);
        jobs.sample(&[("shard", "1"), ("outcome", "")], 1 << 53);
        out.gauge("age_seconds", "Age.").sample(&[], 1.5);
        out.gauge("jobs", "A gauge beside the counter.")
            .sample(&[], 0);
        out.histogram("run_seconds", "Time.").sample(
            &[("kind", "a")],
            &Histogram {
                buckets: vec![(0.000_05, 1), (10.0, 4)],
                sum: 0.1 + 0.2,
                count: 5,
            },
        );
        out.summary("wait_seconds", "Wait.", 2.25, 7);
        let text = out.text();
        assert_eq!(check(&text), Ok(()));
        let wanted = r#"# HELP jobs_total Jobs, by "outcome".\nSecond \\ line.
# TYPE jobs_total counter
jobs_total{shard="1",outcome="failed"} 3
jobs_total{shard="1",outcome=""} 9007199254740992
# HELP age_seconds Age.
# TYPE age_seconds gauge
age_seconds 1.5
# HELP jobs A gauge beside the counter.
# TYPE jobs gauge
jobs 0
# HELP run_seconds Time.
# TYPE run_seconds histogram
run_seconds_bucket{kind="a",le="0.00005"} 1
run_seconds_bucket{kind="a",le="10"} 4
run_seconds_bucket{kind="a",le="+Inf"} 5
run_seconds_sum{kind="a"} 0.30000000000000004
run_seconds_count{kind="a"} 5
# HELP wait_seconds Wait.
# TYPE wait_seconds summary
wait_seconds_sum 2.25
wait_seconds_count 7
"#;
        assert_eq!(text, wanted);
    }

    #[test]
    fn label_values_are_escaped_and_stay_different() {
        let values = [
            "a\"} 1\nup 1",
            "tab\t",
            "tab\\t",
            "nul\0",
            "\u{85}\u{2028}\u{202e}",
            "back\\",
        ];
        let mut out = Exposition::default();
        let mut family = out.gauge("g", "Hostile labels.");
        for value in values {
            family.sample(&[("l", value)], 1);
        }
        let text = out.text();
        assert_eq!(check(&text), Ok(()));
        for line in [
            r#"g{l="a\"} 1\nup 1"} 1"#,
            r#"g{l="tab\\x09"} 1"#,
            r#"g{l="tab\\t"} 1"#,
            r#"g{l="nul\\x00"} 1"#,
            r#"g{l="back\\"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    #[test]
    fn a_family_without_samples_is_left_out() {
        let mut out = Exposition::default();
        out.gauge("none", "Nothing.");
        out.gauge("one", "Something.").sample(&[], 1);
        let text = out.text();
        assert_eq!(text, "# HELP one Something.\n# TYPE one gauge\none 1\n");
    }
}
