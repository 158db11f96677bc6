//! Chaos: outages, clock jumps, deaths of workers, and crashes and restarts of the process.

use crate::plan::{Fault, Feature, Pace};
use crate::rng::Rng;
use crate::world::{SimEvent, StepOutcome, World};

impl World {
    /// Draws a crash, a clock jump or an outage.
    pub(crate) fn chaos(&mut self, mut rng: Rng) -> StepOutcome {
        if self.suffers(Fault::WallJumps) && rng.chance(300) {
            self.jump(&mut rng);
        }
        if self.suffers(Fault::WorkersDie) && rng.chance(200) {
            let worker = rng.index(self.workers.len());
            self.workers[worker].dies();
        }
        if self.suffers(Fault::Outages) && rng.chance(150) && self.is_up() {
            return self.crash(rng);
        }
        self.look_after()
    }

    fn jump(&mut self, rng: &mut Rng) {
        let span = *rng.pick(&[1_000_000, 60_000_000, 3_600_000_000, 400 * 86_400_000_000]);
        let micros = i64::try_from(rng.below(span)).expect("within a century");
        let micros = if rng.chance(500) { micros } else { -micros / 2 };
        let goal = if micros < 0 {
            "wall-jumped-back"
        } else {
            "wall-jumped-ahead"
        };
        self.oracle.goals.reach(goal);
        let time = self.time;
        self.log
            .tell(time, || format!("the wall clock jumps by {micros} us"));
        self.clocks.jump(micros);
    }

    /// Kills the process, which loses everything that was not durable, and schedules its restart.
    pub(crate) fn schedule_restart(&mut self, mut rng: Rng) {
        let time = self.time;
        self.log
            .tell(time, || "the shard's process dies".to_owned());
        // A process that is down for the rest of the run proves nothing.
        let is_quick = self.plan.does(Feature::QuickRestarts) && self.plan.pace == Pace::Dense;
        let longest = if is_quick { 300_000 } else { 30_000_000 };
        let down = match rng.below(3) {
            0 => 1,
            1 => rng.below(100_000),
            _ => rng.below(longest),
        };
        let again = if rng.chance(200) { rng.small(3) + 1 } else { 0 };
        self.at(time + down, SimEvent::Restart { again, rng });
    }

    pub(crate) fn restart(&mut self, again: u32, mut rng: Rng) -> StepOutcome {
        self.boot(&mut rng);
        if again > 1 {
            self.oracle.goals.reach("recovery-killed-twice");
        }
        if again > 0 && !self.is_healed {
            // Killed during recovery: the epoch is raised, nothing else has happened.
            self.discard_process()?;
            self.at(
                self.time + 1_000,
                SimEvent::Restart {
                    again: again - 1,
                    rng,
                },
            );
            return Ok(());
        }
        self.full_check()?;
        self.pump()
    }
}
