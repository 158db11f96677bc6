//! The figures as a table, and what must not happen.

use std::fmt;
use std::time::Duration;

use ganger_bench::measure::latency::Latency;

/// The figures of all parts that were measured.
#[derive(Clone, Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
    notes: Vec<String>,
    faults: Vec<String>,
}

/// The times of one kind.
#[derive(Clone, Debug)]
struct Row {
    what: &'static str,
    times: Option<Latency>,
    goal: &'static str,
}

impl Report {
    /// Adds the times of one kind, and what they must be: `goal` is empty if that is not set.
    pub(super) fn add_times(
        &mut self,
        what: &'static str,
        times: Vec<Duration>,
        goal: &'static str,
    ) {
        self.rows.push(Row {
            what,
            times: Latency::of(times),
            goal,
        });
    }

    /// Adds numbers in words.
    pub(super) fn add_note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Adds so many events that must not happen; none of them is no fault.
    pub(super) fn add_faults(&mut self, part: &str, number: usize, what: &str) {
        if number > 0 {
            self.faults.push(format!("{part}: {number} {what}"));
        }
    }

    /// What happened and must not: jobs lost, done twice or stalled, and requests that failed in a rolling restart.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }
}

/// The table in Markdown, with times in milliseconds, and the notes below it.
impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "| times in ms | n | p50 | p99 | max | p99 must be |")?;
        writeln!(out, "|---|---:|---:|---:|---:|---|")?;
        for Row { what, times, goal } in &self.rows {
            match times {
                Some(times) => {
                    let [p50, p99, max] = [times.p50, times.p99, times.max].map(milliseconds);
                    let number = times.samples;
                    writeln!(
                        out,
                        "| {what} | {number} | {p50} | {p99} | {max} | {goal} |"
                    )?;
                }
                None => writeln!(out, "| {what} | 0 | - | - | - | {goal} |")?,
            }
        }
        writeln!(out)?;
        for note in &self.notes {
            writeln!(out, "{note}")?;
        }
        Ok(())
    }
}

/// Formats a duration without its unit.
fn milliseconds(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_show_quantiles_and_missing_times_are_shown_as_missing() {
        let mut report = Report::default();
        let times = (1..=200).rev().map(Duration::from_millis).collect();
        report.add_times("pause", times, "at most 5");
        report.add_times("other", Vec::new(), "");
        report.add_note("7 jobs".to_owned());
        let expected = "\
| times in ms | n | p50 | p99 | max | p99 must be |
|---|---:|---:|---:|---:|---|
| pause | 200 | 101.0 | 199.0 | 200.0 | at most 5 |
| other | 0 | - | - | - |  |

7 jobs
";
        assert_eq!(report.to_string(), expected);
    }

    #[test]
    fn only_what_happened_is_a_fault() {
        let mut report = Report::default();
        report.add_faults("promotion", 0, "jobs lost");
        assert!(report.faults().is_empty());
        report.add_faults("promotion", 2, "jobs lost");
        assert_eq!(report.faults(), ["promotion: 2 jobs lost"]);
    }
}
