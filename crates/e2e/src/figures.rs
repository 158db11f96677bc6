//! Figures of a cluster over PostgreSQL, measured with real processes: how long a take-over, a hand-over and the
//! promotion of a standby stop the jobs of a shard, and whether something is lost then.

mod hand_over;
mod options;
mod probe;
mod promotion;
mod report;
mod take_over;

use anyhow::{Result, bail};
use ganger_postgres_instance::unavailable_reason;

pub use self::options::{Options, Part, USAGE};
pub use self::report::Report;

/// Measures what the options ask for. `print` gets a line for each tenth of each part.
///
/// # Errors
/// If PostgreSQL is missing, or if the cluster stops serving.
pub fn measure(options: &Options, print: &dyn Fn(&str)) -> Result<Report> {
    if let Some(reason) = unavailable_reason() {
        bail!("{reason}");
    }
    let mut report = Report::default();
    if options.has(Part::TakeOver) {
        let progress = Progress::new("take-over", options.kills, print);
        take_over::measure(options.kills, options.jobs, &progress)?.add_to(&mut report);
    }
    if options.has(Part::HandOver) {
        let progress = Progress::new("hand-over", options.rounds, print);
        hand_over::measure(options.rounds, &progress)?.add_to(&mut report);
    }
    if options.has(Part::Promotion) {
        let progress = Progress::new("promotion", options.promotions, print);
        promotion::measure(options.promotions, &progress)?.add_to(&mut report);
    }
    Ok(report)
}

/// Reports the progress of one part, with a line for each tenth.
struct Progress<'a> {
    part: &'static str,
    of: usize,
    print: &'a dyn Fn(&str),
}

impl<'a> Progress<'a> {
    fn new(part: &'static str, of: usize, print: &'a dyn Fn(&str)) -> Self {
        Self { part, of, print }
    }

    /// Notes that so many are done; `last` describes the last one.
    fn done(&self, done: usize, last: &str) {
        if ends_tenth(done, self.of) {
            (self.print)(&format!("{}: {done} of {}; {last}", self.part, self.of));
        }
    }
}

/// Whether another tenth is over after so many of all.
fn ends_tenth(done: usize, of: usize) -> bool {
    done > 0 && done * 10 / of > (done - 1) * 10 / of
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenth_ends_once() {
        let ends = |of: usize| (0..=of).filter(|done| ends_tenth(*done, of)).count();
        assert_eq!([3, 10, 25, 100, 101].map(ends), [3, 10, 10, 10, 10]);
        assert!(ends_tenth(101, 101));
        assert!(!ends_tenth(9, 100));
    }
}
