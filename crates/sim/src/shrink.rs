//! Shrinking: removes parts of a failing tape while the same invariant fails.

use crate::plan::{Fault, Feature};
use crate::run::run;
use crate::run_log::Recording;
use crate::tape::{Actor, Tape};

/// Maximum number of runs.
const RUNS_MAX: usize = 3_000;

struct Shrinker {
    rule: &'static str,
    best: Tape,
    runs: usize,
}

/// The smallest tape found that violates the same invariant; the same tape if none is violated.
pub fn shrink(tape: &Tape) -> Tape {
    let first = run(tape, Recording::default());
    let Some(violation) = first.violation else {
        return tape.clone();
    };
    let mut shrinker = Shrinker {
        rule: violation.rule,
        best: tape.clone(),
        runs: 0,
    };
    shrinker.cut_end();
    let mut before = usize::MAX;
    while shrinker.best.len() < before && shrinker.runs < RUNS_MAX {
        before = shrinker.best.len();
        shrinker.switch_off();
        shrinker.remove_actors();
        shrinker.remove_blocks();
        shrinker.shorten();
    }
    shrinker.best
}

impl Shrinker {
    /// Keeps the tape if the same invariant fails.
    fn keep(&mut self, tape: Tape) -> bool {
        if self.runs >= RUNS_MAX || tape == self.best {
            return false;
        }
        self.runs += 1;
        let fails = run(&tape, Recording::default())
            .violation
            .is_some_and(|violation| violation.rule == self.rule);
        if fails {
            self.best = tape;
        }
        fails
    }

    fn cut_end(&mut self) {
        let (mut low, mut high) = (0, self.best.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let mut tape = self.best.clone();
            tape.steps.truncate(middle);
            if self.keep(tape) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
    }

    fn switch_off(&mut self) {
        for bit in 0..Fault::ALL.len() {
            let mut tape = self.best.clone();
            tape.faults_off.set(bit);
            self.keep(tape);
        }
        for bit in 0..Feature::ALL.len() {
            let mut tape = self.best.clone();
            tape.features_off.set(bit);
            self.keep(tape);
        }
    }

    fn remove_actors(&mut self) {
        let mut actors: Vec<Actor> = Vec::new();
        for step in &self.best.steps {
            if !actors.contains(&step.actor) {
                actors.push(step.actor);
            }
        }
        for actor in actors {
            let mut tape = self.best.clone();
            tape.steps.retain(|step| step.actor != actor);
            self.keep(tape);
        }
    }

    fn remove_blocks(&mut self) {
        let mut size = self.best.len() / 2;
        while size > 0 {
            let mut from = 0;
            while from < self.best.len() {
                let mut tape = self.best.clone();
                let to = (from + size).min(tape.len());
                let gap: u64 = tape.steps[from..to].iter().map(|step| step.after).sum();
                tape.steps.drain(from..to);
                if let Some(next) = tape.steps.get_mut(from) {
                    next.after += gap;
                }
                if !self.keep(tape) {
                    from += size;
                }
            }
            size /= 2;
        }
    }

    fn shorten(&mut self) {
        for place in 0..self.best.len() {
            let mut tape = self.best.clone();
            let after = &mut tape.steps[place].after;
            if *after > 1_000 {
                *after = 0;
                self.keep(tape);
            }
        }
    }
}
