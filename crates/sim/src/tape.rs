//! Tapes: the recorded decisions of a run. A seed becomes a tape, and a tape becomes a run. Shrinking removes parts
//! of a tape, and a shrunk tape is kept as a regression test.

use std::fmt::Write as _;

use crate::plan::{Fault, Feature, Pace, Plan, SwitchSet, of_level_1};
use crate::rng::Rng;

/// The actor of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    /// A client that submits jobs.
    Producer,
    /// A worker, by its number.
    Worker(usize),
    /// A client that pauses, limits, cancels, retries and so on.
    Operator,
    /// A client that reads and compares.
    Reader,
    /// Crashes, clock jumps, outages.
    Chaos,
}

/// A decision: after a delay, an actor acts by random numbers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) after: u64,
    pub(crate) actor: Actor,
    pub(crate) rng: u64,
}

/// Everything that determines a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tape {
    pub(crate) seed: u64,
    pub(crate) level: u8,
    pub(crate) planted: u32,
    pub(crate) features_off: SwitchSet,
    pub(crate) faults_off: SwitchSet,
    pub(crate) steps: Vec<Step>,
}

const HEADER: &str = "ganger-sim tape 1";

impl Tape {
    /// The tape of a seed.
    pub fn draw(seed: u64, level: u8, planted: u32) -> Self {
        let plan = Plan::draw(seed, SwitchSet::default(), SwitchSet::default());
        let mut rng = Rng::new(seed);
        let steps = (0..plan.steps)
            .map(|_| draw_step(&plan, &mut rng))
            .collect();
        Self {
            seed,
            level,
            planted,
            features_off: SwitchSet::default(),
            faults_off: SwitchSet::default(),
            steps,
        }
    }

    /// The same decisions at another level.
    #[must_use]
    pub fn at_level(mut self, level: u8) -> Self {
        self.level = level;
        self
    }

    /// The number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether the tape has no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(crate) fn plan(&self) -> Plan {
        let mut features_off = self.features_off;
        if self.level > 1 {
            features_off.0 |= of_level_1().0;
        }
        Plan::draw(self.seed, features_off, self.faults_off)
    }

    /// The text form, with one line per step.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{HEADER}\nseed {}\nlevel {}\nplanted {}\n",
            self.seed, self.level, self.planted
        );
        for (bit, feature) in Feature::ALL.iter().enumerate() {
            if self.features_off.has(bit) {
                let _ = writeln!(text, "without {}", feature.word());
            }
        }
        for (bit, fault) in Fault::ALL.iter().enumerate() {
            if self.faults_off.has(bit) {
                let _ = writeln!(text, "without {}", fault.word());
            }
        }
        for step in &self.steps {
            let who = match step.actor {
                Actor::Producer => "producer".to_owned(),
                Actor::Worker(number) => format!("worker{number}"),
                Actor::Operator => "operator".to_owned(),
                Actor::Reader => "reader".to_owned(),
                Actor::Chaos => "chaos".to_owned(),
            };
            let _ = writeln!(text, "step {} {who} {:016x}", step.after, step.rng);
        }
        text
    }

    /// Parses the text form.
    ///
    /// # Errors
    /// If a line cannot be parsed; the error names it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        if lines.next().map(|(_, line)| line) != Some(HEADER) {
            return Err(format!("the first line must be {HEADER:?}"));
        }
        let mut tape = Self {
            seed: 0,
            level: 1,
            planted: 0,
            features_off: SwitchSet::default(),
            faults_off: SwitchSet::default(),
            steps: Vec::new(),
        };
        for (number, line) in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            parse_line(&mut tape, &words)
                .ok_or_else(|| format!("line {}: {line:?} cannot be read", number + 1))?;
        }
        Ok(tape)
    }
}

fn parse_line(tape: &mut Tape, words: &[&str]) -> Option<()> {
    match words {
        [] | ["#", ..] => {}
        ["seed", value] => tape.seed = value.parse().ok()?,
        ["level", value] => tape.level = value.parse().ok()?,
        ["planted", value] => tape.planted = value.parse().ok()?,
        ["without", word] => {
            let feature = Feature::ALL.iter().position(|one| one.word() == *word);
            let fault = Fault::ALL.iter().position(|one| one.word() == *word);
            match (feature, fault) {
                (Some(bit), _) => tape.features_off.set(bit),
                (_, Some(bit)) => tape.faults_off.set(bit),
                // A feature or fault that no longer exists is off.
                _ => {}
            }
        }
        ["step", after, who, rng] => {
            let actor = match *who {
                "producer" => Actor::Producer,
                "operator" => Actor::Operator,
                "reader" => Actor::Reader,
                "chaos" => Actor::Chaos,
                worker => Actor::Worker(worker.strip_prefix("worker")?.parse().ok()?),
            };
            let after = after.parse().ok()?;
            tape.steps.push(Step {
                after,
                actor,
                rng: u64::from_str_radix(rng, 16).ok()?,
            });
        }
        _ => return None,
    }
    Some(())
}

fn draw_step(plan: &Plan, rng: &mut Rng) -> Step {
    let after = match plan.pace {
        Pace::Dense => rng.below(20_000),
        Pace::Even => rng.below(2_000_000),
        Pace::Sparse => match rng.below(100) {
            0 => rng.below(3 * 86_400_000_000),
            1..20 => rng.below(300_000_000),
            _ => rng.below(5_000_000),
        },
    };
    let actor = match rng.below(100) {
        0..24 => Actor::Producer,
        24..74 => Actor::Worker(rng.index(plan.workers)),
        74..90 => Actor::Operator,
        90..95 => Actor::Reader,
        _ => Actor::Chaos,
    };
    Step {
        after,
        actor,
        rng: rng.next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tape_reads_back_what_it_wrote() {
        let mut tape = Tape::draw(8_841, 2, 3);
        tape.features_off.set(2);
        tape.faults_off.set(1);
        assert_eq!(Tape::parse(&tape.to_text()), Ok(tape));
    }

    #[test]
    fn a_broken_line_is_named() {
        let error =
            Tape::parse("ganger-sim tape 1\nseed 1\nstep soon worker1 00").expect_err("broken");
        assert!(error.starts_with("line 3"), "{error}");
    }
}
