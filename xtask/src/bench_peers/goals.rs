//! Performance goals, as ratios to other systems within one run.

use super::ganger::GRPC;
use super::{load, programs};

/// A goal for ganger's value divided by that of another system.
pub(super) struct Goal {
    pub(super) row: &'static str,
    /// System to compare with; `None` if the value of the row is a ratio already.
    pub(super) against: Option<&'static str>,
    pub(super) must: f64,
    pub(super) aim: f64,
}

/// Name of the row of full lives that is measured beside a bare log.
pub(super) const LIVES: &str = "full lives, 64 connections, batches of 256";

/// All goals. Goals for times are upper bounds, all others lower bounds.
pub(super) const GOALS: [Goal; 10] = [
    goal(load::ENQUEUE, Some("redis"), 0.5, 1.5),
    goal(load::TAKE, Some("postgres"), 1.5, 3.0),
    goal(load::TAKE, Some("beanstalkd"), 5.0, 10.0),
    goal(load::MIX, Some("redis"), 1.0, 2.0),
    goal(load::MIX, Some("postgres"), 1.5, 3.0),
    goal(LIVES, Some("bare log"), 0.3, 0.5),
    goal(programs::ROW, Some("bare spawn"), 0.7, 0.85),
    goal(load::P50, Some("beanstalkd"), 1.5, 1.0),
    goal(load::P99, Some("beanstalkd"), 2.0, 1.0),
    goal(load::DEPTH, None, 0.8, 0.95),
];

const fn goal(row: &'static str, against: Option<&'static str>, must: f64, aim: f64) -> Goal {
    Goal {
        row,
        against,
        must,
        aim,
    }
}

impl Goal {
    /// Whether the value is a time, of which less is better.
    fn is_time(&self) -> bool {
        self.row == load::P50 || self.row == load::P99
    }

    /// Returns ganger's value divided by the other's; `value` returns the value of the goal's row by server.
    pub(super) fn ratio(&self, value: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let ours = value(GRPC)?;
        match self.against {
            Some(peer) => Some(ours / value(peer)?),
            None => Some(ours),
        }
    }

    /// Returns a bound in readable form.
    pub(super) fn bound(&self, bound: f64) -> String {
        let side = if self.is_time() {
            "at most"
        } else {
            "at least"
        };
        format!("{side} {bound}")
    }

    /// Returns the verdict on a ratio.
    pub(super) fn verdict(&self, ratio: f64) -> &'static str {
        let holds = |bound: f64| {
            if self.is_time() {
                ratio <= bound
            } else {
                ratio >= bound
            }
        };
        match (holds(self.must), holds(self.aim)) {
            (_, true) => "aim reached",
            (true, false) => "held",
            (false, false) => "missed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_times_and_more_jobs_are_better() {
        let time = goal(load::P50, Some("beanstalkd"), 1.5, 1.0);
        assert_eq!(
            [0.9, 1.2, 1.6].map(|ratio| time.verdict(ratio)),
            ["aim reached", "held", "missed"]
        );
        let rate = goal(load::MIX, Some("redis"), 1.0, 2.0);
        assert_eq!(
            [2.1, 1.2, 0.9].map(|ratio| rate.verdict(ratio)),
            ["aim reached", "held", "missed"]
        );
    }
}
