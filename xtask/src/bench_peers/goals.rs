//! Goals: ratios to other systems within one run, and costs.

use ganger_bench::Named;
use ganger_bench::measure::DEEP_EMPTY;

use super::figures::{Figures, rounded};
use super::row::{Load, Metric};
use super::system::System;

/// Names of the figures that belong to no system of its own.
pub(super) const BARE_LOG: &str = "bare log";
pub(super) const BARE_SPAWN: &str = "bare posix_spawn";
pub(super) const RESTART_1M: &str = "RESTART 1 M";
pub(super) const RESTART_10M: &str = "RESTART 10 M";
pub(super) const MEMORY_IDLE: &str = "MEMORY idle";
pub(super) const MEMORY_JOB: &str = "MEMORY job";

/// What the goals are about.
const OURS: &str = "streams";

/// What ganger's figure is compared with.
enum Against {
    /// The same figure of another system.
    System(&'static str),
    /// The same figure of another load.
    Load(&'static str),
    /// Nothing: the figure, times this, must not exceed the bounds.
    Bounds(f64),
}

/// A goal: a figure of one load, as a ratio to another system.
pub(super) struct Goal {
    /// What it is about, in words.
    what: &'static str,
    load: &'static str,
    metric: Metric,
    against: Against,
    must: f64,
    aim: f64,
}

/// The verdict on one goal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) cells: [String; 6],
}

fn name(named: Named) -> &'static str {
    Load::Named(named).name()
}

/// All goals, in the order of the report.
pub(super) fn goals() -> Vec<Goal> {
    let (redis, postgres) = (System::Redis.name(), System::Postgres.name());
    let (bare, beanstalkd) = (System::Bare.name(), System::Beanstalkd.name());
    let ratio = |what, named, metric, system, must, aim| Goal {
        what,
        load: name(named),
        metric,
        against: Against::System(system),
        must,
        aim,
    };
    let rate = |what, named, system, must, aim| ratio(what, named, Metric::Rate, system, must, aim);
    let cost = |what, load, metric, factor, must, aim| Goal {
        what,
        load,
        metric,
        against: Against::Bounds(factor),
        must,
        aim,
    };
    let cpu = |what, named, must, aim| cost(what, name(named), Metric::Cpu, 1.0, must, aim);
    let mebibyte = 1.0 / f64::from(1 << 20);
    vec![
        rate("M, jobs/s", Named::M, postgres, 1.5, 3.0),
        rate("M, jobs/s", Named::M, redis, 0.7, 1.3),
        rate("E100, jobs/s", Named::E100, postgres, 1.0, 2.0),
        rate("E100, jobs/s", Named::E100, redis, 0.5, 1.0),
        rate("E256, jobs/s", Named::E256, redis, 0.5, 1.0),
        rate("P16x64, jobs/s", Named::P16x64, redis, 0.7, 1.2),
        rate("E1, jobs/s", Named::E1, bare, 0.8, 0.95),
        rate("P1, jobs/s", Named::P1, bare, 0.6, 0.8),
        ratio("L, p50", Named::L, Metric::P50, beanstalkd, 1.3, 1.0),
        ratio("L, p99", Named::L, Metric::P99, beanstalkd, 1.3, 1.0),
        cpu("M, server CPU \u{b5}s a job", Named::M, 25.0, 12.0),
        cpu("E100, server CPU \u{b5}s a job", Named::E100, 6.0, 3.0),
        cpu("P16x64, server CPU \u{b5}s a job", Named::P16x64, 12.0, 6.0),
        cost(
            "E100, flushes a batch of 100",
            name(Named::E100),
            Metric::Flushes,
            100.0,
            1.0,
            1.0,
        ),
        Goal {
            what: "LIVES, lives/s",
            load: Load::Lives.name(),
            metric: Metric::Rate,
            against: Against::System(BARE_LOG),
            must: 0.3,
            aim: 0.5,
        },
        Goal {
            what: "PROGRAMS, programs/s",
            load: Load::Programs.name(),
            metric: Metric::Rate,
            against: Against::System(BARE_SPAWN),
            must: 0.7,
            aim: 0.85,
        },
        Goal {
            what: "M above 1 M waiting jobs, jobs/s",
            load: name(Named::D),
            metric: Metric::Rate,
            against: Against::Load(DEEP_EMPTY),
            must: 0.8,
            aim: 0.95,
        },
        cost(
            "restart with 1 M live jobs, s",
            RESTART_1M,
            Metric::Seconds,
            1.0,
            3.0,
            1.5,
        ),
        cost(
            "restart with 10 M live jobs, s",
            RESTART_10M,
            Metric::Seconds,
            1.0,
            30.0,
            15.0,
        ),
        cost(
            "memory of a waiting job, bytes",
            MEMORY_JOB,
            Metric::Memory,
            1.0,
            130.0,
            90.0,
        ),
        cost(
            "memory of an idle server, MiB",
            MEMORY_IDLE,
            Metric::Memory,
            mebibyte,
            25.0,
            15.0,
        ),
    ]
}

impl Goal {
    /// Whether less is better.
    fn is_upper_bound(&self) -> bool {
        self.metric != Metric::Rate
    }

    fn value(&self, figures: &Figures) -> Option<f64> {
        let ours = (self.load, OURS);
        match self.against {
            Against::System(system) => figures.ratio(ours, (self.load, system), self.metric),
            Against::Load(load) => figures.ratio(ours, (load, OURS), self.metric),
            Against::Bounds(factor) => Some(figures.median(self.load, OURS, self.metric)? * factor),
        }
    }

    /// The cells of its row: what, against, must, aim, measured, verdict.
    pub(super) fn verdict(&self, figures: &Figures) -> Verdict {
        let against = match self.against {
            Against::System(system) => system,
            Against::Load(_) => "empty queue",
            Against::Bounds(_) => "-",
        };
        let unit = if matches!(self.against, Against::Bounds(_)) {
            ""
        } else {
            "x"
        };
        let side = if self.is_upper_bound() {
            "at most"
        } else {
            "at least"
        };
        let bound = |bound: f64| format!("{side} {bound}{unit}");
        let (measured, verdict) = match self.value(figures) {
            None => ("-".to_owned(), "not measured"),
            Some(value) => (format!("{}{unit}", rounded(value)), self.judge(value)),
        };
        Verdict {
            cells: [
                self.what.to_owned(),
                against.to_owned(),
                bound(self.must),
                bound(self.aim),
                measured,
                verdict.to_owned(),
            ],
        }
    }

    fn judge(&self, value: f64) -> &'static str {
        // As precise as it is shown.
        let value = (value * 100.0).round() / 100.0;
        let holds = |bound: f64| {
            if self.is_upper_bound() {
                value <= bound
            } else {
                value >= bound
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

    fn verdicts(figures: &Figures, what: &str) -> Vec<String> {
        let goals = goals().into_iter().filter(|goal| goal.what == what);
        goals
            .map(|goal| goal.verdict(figures).cells[5].clone())
            .collect()
    }

    #[test]
    fn rates_are_compared_with_those_of_other_systems() {
        let mut figures = Figures::default();
        figures.add("M", OURS, Metric::Rate, 100.0);
        figures.add("M", "postgres", Metric::Rate, 20.0);
        figures.add("M", "redis", Metric::Rate, 120.0);
        assert_eq!(verdicts(&figures, "M, jobs/s"), ["aim reached", "held"]);
        figures.add("M", "redis", Metric::Rate, 200.0);
        assert_eq!(verdicts(&figures, "M, jobs/s"), ["aim reached", "missed"]);
        assert_eq!(verdicts(&figures, "E256, jobs/s"), ["not measured"]);
    }

    #[test]
    fn times_and_costs_have_upper_bounds() {
        let mut figures = Figures::default();
        figures.add("L", OURS, Metric::P50, 1.2);
        figures.add("L", "beanstalkd", Metric::P50, 1.0);
        assert_eq!(verdicts(&figures, "L, p50"), ["held"]);
        figures.add("E100", OURS, Metric::Flushes, 0.010_01);
        assert_eq!(
            verdicts(&figures, "E100, flushes a batch of 100"),
            ["aim reached"]
        );
        figures.add("E100", OURS, Metric::Flushes, 0.044);
        assert_eq!(
            verdicts(&figures, "E100, flushes a batch of 100"),
            ["missed"]
        );
        figures.add(MEMORY_IDLE, OURS, Metric::Memory, 20.0 * 1_048_576.0);
        assert_eq!(
            verdicts(&figures, "memory of an idle server, MiB"),
            ["held"]
        );
    }

    #[test]
    fn the_deep_queue_is_compared_with_the_empty_one() {
        let mut figures = Figures::default();
        figures.add("D", OURS, Metric::Rate, 96.0);
        figures.add(DEEP_EMPTY, OURS, Metric::Rate, 100.0);
        let goal = goals().into_iter().find(|goal| goal.load == "D");
        let cells = goal.expect("there is one").verdict(&figures).cells;
        assert_eq!(
            cells[1..],
            [
                "empty queue",
                "at least 0.8x",
                "at least 0.95x",
                "0.96x",
                "aim reached"
            ]
        );
    }
}
