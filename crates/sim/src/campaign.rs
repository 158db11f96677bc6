//! Campaigns: runs of many seeds, the list of goals, and the search for planted bugs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::goals::Goals;
use crate::planted::BUGS;
use crate::run::{Outcome, run};
use crate::run_log::Recording;
use crate::tape::Tape;

/// The result of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of runs of the campaign.
    pub runs: u64,
    /// Number of runs in which too little happened.
    pub void: u64,
    /// Number of events handled in all runs.
    pub events: u64,
    /// Simulated time, in microseconds.
    pub simulated_micros: u64,
    /// Seeds that failed, with what they found.
    pub failures: Vec<(u64, String)>,
    goals: Goals,
    level: u8,
}

impl Report {
    /// Goals that were never reached.
    pub fn unreached(&self) -> Vec<&'static str> {
        let counted = self.goals.counted(self.level).into_iter();
        counted
            .filter(|(_, count)| *count == 0)
            .map(|(goal, _)| goal)
            .collect()
    }

    /// A line for each goal with the number of times that it was reached.
    pub fn goals_text(&self) -> String {
        let mut text = String::new();
        for (goal, count) in self.goals.counted(self.level) {
            let _ = writeln!(text, "{count:>8}  {goal}");
        }
        text
    }

    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.runs += 1;
        self.void += u64::from(outcome.is_void);
        self.events += outcome.events;
        self.simulated_micros += outcome.simulated_micros;
        self.goals.merge(&outcome.goals);
        if let Some(violation) = outcome.violation {
            self.failures.push((seed, violation.to_string()));
        }
    }

    fn merge(&mut self, other: Self) {
        self.runs += other.runs;
        self.void += other.void;
        self.events += other.events;
        self.simulated_micros += other.simulated_micros;
        self.failures.extend(other.failures);
        self.failures.sort();
        self.goals.merge(&other.goals);
    }
}

/// Runs the seeds on this number of threads; the runs are independent.
///
/// # Panics
/// If a thread panics, which is a bug of the simulator.
pub fn campaign(seeds: std::ops::Range<u64>, level: u8, threads: u64) -> Report {
    let threads = threads.max(1);
    let mut report = Report {
        level,
        ..Report::default()
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let seeds = seeds.clone();
                scope.spawn(move || {
                    let mut part = Report {
                        level,
                        ..Report::default()
                    };
                    for seed in seeds.filter(|seed| seed % threads == thread) {
                        part.add(seed, run(&Tape::draw(seed, level, 0), Recording::default()));
                    }
                    part
                })
            })
            .collect();
        for worker in workers {
            report.merge(worker.join().expect("a campaign's thread ends"));
        }
    });
    report
}

/// A planted bug and how it was found.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// Number of the planted bug.
    pub bug: u32,
    /// Description of the bug.
    pub what: &'static str,
    /// Number of seeds until it was found, and the violation; `None` if it was not.
    pub found: Option<(u64, String)>,
}

/// Searches for every planted bug of a level with at most `seeds_max` seeds each.
pub fn hunt(level: u8, seeds_max: u64) -> Vec<Hunt> {
    let all = BUGS.iter().chain(crate::cluster::planted::BUGS);
    let all = all.chain(crate::remote::planted::BUGS);
    let bugs = all.filter(|(_, at, _)| *at == level);
    let mut sound_seeds = BTreeMap::new();
    bugs.map(|(bug, _, what)| Hunt {
        bug: *bug,
        what,
        found: hunt_one(*bug, level, seeds_max, &mut sound_seeds),
    })
    .collect()
}

/// Searches for one planted bug. `sound_seeds` records which seeds find nothing without a planted bug.
fn hunt_one(
    bug: u32,
    level: u8,
    seeds_max: u64,
    sound_seeds: &mut BTreeMap<u64, bool>,
) -> Option<(u64, String)> {
    let violation = |seed, bug| run(&Tape::draw(seed, level, bug), Recording::default()).violation;
    (0..seeds_max).find_map(|seed| {
        // A seed that fails without the planted bug proves nothing about it.
        let is_sound = sound_seeds
            .entry(seed)
            .or_insert_with(|| violation(seed, 0).is_none());
        let found = is_sound.then(|| violation(seed, bug))??;
        Some((seed + 1, found.to_string()))
    })
}
