//! Tasks of the store: when each one runs, how a commit ends, and at which point of a commit the process dies.
//!
//! On level 1 the store runs each task at once, and no commit fails.

use ganger_shard::core::StoreTask;

use crate::faulty_store::CommitOutcome;
use crate::plan::Fault;
use crate::process::ShardProcess;
use crate::rng::{Rng, mix};
use crate::world::{SimEvent, StepOutcome, World, broken};

/// The point of a commit at which the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// The turn is closed, and the store has not got it.
    TurnClosed,
    /// The store has got the commit and not begun to write.
    TaskGiven,
    /// The commit is durable, and the shard does not know.
    Committed,
    /// The shard knows, and no client has an answer.
    Reported,
}

/// How a store task ends, and when the shard learns of it.
#[derive(Clone, Debug)]
pub(crate) struct StoreTaskOutcome {
    pub(crate) commit: CommitOutcome,
    pub(crate) crash_at: Option<CrashPoint>,
    /// Microseconds until the report reaches the shard.
    pub(crate) reported_after: u64,
    pub(crate) rng: Rng,
}

impl World {
    /// Starts the store's next task, if it has one and is idle. Returns false if the process died instead.
    pub(crate) fn let_store_work(&mut self) -> Result<bool, crate::Violation> {
        let Some(served) = &self.process else {
            return Ok(false);
        };
        if served.has_finds() && !self.is_finding {
            self.let_find();
        }
        if self.is_store_busy {
            return Ok(true);
        }
        let served = self.process.as_ref().expect("it lives");
        let Some(order) = served.next_store_task() else {
            return Ok(true);
        };
        let is_commit = matches!(order, StoreTask::Commit(_));
        let (time, seed) = (self.time, self.tape.seed);
        let served = self.process.as_mut().expect("it lives");
        let mut rng = served.rng_of_next().unwrap_or_else(|| {
            // The time alone is not sufficient, because a task without duration would get the outcome of the previous
            // one.
            let before = served.decisions.orders_before_at(time);
            Rng::new(mix(time ^ seed.rotate_left(9)) ^ before)
        });
        let (after, outcome) = if self.is_instant() {
            (0, self.draw_instant_outcome(is_commit, rng))
        } else {
            self.draw_outcome(is_commit, &mut rng)
        };
        if outcome.crash_at == Some(CrashPoint::TurnClosed) {
            self.oracle.goals.reach("crash-before-commit");
            self.crash(outcome.rng)?;
            return Ok(false);
        }
        self.is_store_busy = true;
        let incarnation = self.incarnation;
        self.at(
            self.time + after,
            SimEvent::StoreRuns {
                incarnation,
                outcome: Box::new(outcome),
            },
        );
        Ok(true)
    }

    fn let_find(&mut self) {
        self.is_finding = true;
        let mut rng = Rng::new(mix(self.time ^ 0xF1D));
        let late = match self.suffers(Fault::CommitsSlow) {
            _ if self.is_instant() => 0,
            true => rng.below(5_000_000),
            false => rng.below(2_000),
        };
        let incarnation = self.incarnation;
        self.at(self.time + late, SimEvent::FindRuns { incarnation });
    }

    /// On level 1 only a crash comes between a task and its report.
    fn draw_instant_outcome(&mut self, is_commit: bool, mut rng: Rng) -> StoreTaskOutcome {
        let crashes = is_commit && self.fault_occurs(Fault::Crashes, &mut rng);
        let crash_at = crashes.then(|| {
            if rng.chance(500) {
                CrashPoint::TaskGiven
            } else {
                CrashPoint::Reported
            }
        });
        // Planted bugs of a store that acknowledges what a crash then takes back.
        let (end, crash_at) = match crash_at {
            Some(CrashPoint::TaskGiven) if self.planted.is(1) => {
                (CommitOutcome::Lost, Some(CrashPoint::Reported))
            }
            Some(CrashPoint::TaskGiven) if self.planted.is(15) => {
                (CommitOutcome::Half, Some(CrashPoint::Committed))
            }
            crash_at => (CommitOutcome::Success, crash_at),
        };
        StoreTaskOutcome {
            commit: end,
            crash_at,
            reported_after: 0,
            rng,
        }
    }

    fn draw_outcome(&mut self, is_commit: bool, rng: &mut Rng) -> (u64, StoreTaskOutcome) {
        let mut outcome = StoreTaskOutcome {
            commit: CommitOutcome::Success,
            crash_at: None,
            reported_after: 0,
            rng: rng.split(),
        };
        if self.is_healed {
            return (0, outcome);
        }
        let mut after = rng.below(3_000);
        if self.fault_occurs(Fault::CommitsSlow, rng) {
            after = rng.below(8_000_000);
            outcome.reported_after = rng.below(2_000_000);
            self.oracle.goals.reach("commit-stalled");
        }
        if !is_commit {
            return (after, outcome);
        }
        if self.fault_occurs(Fault::CommitsRefused, rng) {
            outcome.commit = *rng.pick(&[CommitOutcome::Refused, CommitOutcome::Full]);
        } else if self.fault_occurs(Fault::CommitsUnknown, rng) {
            outcome.commit =
                *rng.pick(&[CommitOutcome::UnknownApplied, CommitOutcome::UnknownLost]);
        } else if self.fault_occurs(Fault::Fences, rng) && rng.chance(300) {
            outcome.commit = CommitOutcome::Fenced;
        }
        if self.fault_occurs(Fault::Crashes, rng) {
            outcome.crash_at = Some(*rng.pick(&[
                CrashPoint::TurnClosed,
                CrashPoint::TaskGiven,
                CrashPoint::Committed,
                CrashPoint::Reported,
            ]));
        }
        (after, outcome)
    }

    /// Runs the store's present task.
    pub(crate) fn store_works(
        &mut self,
        incarnation: u64,
        outcome: StoreTaskOutcome,
    ) -> StepOutcome {
        if incarnation != self.incarnation || self.process.is_none() {
            return Ok(());
        }
        if outcome.crash_at == Some(CrashPoint::TaskGiven) {
            self.oracle.goals.reach("crash-before-commit");
            return self.crash(outcome.rng);
        }
        let goal = match outcome.commit {
            CommitOutcome::Success | CommitOutcome::Lost | CommitOutcome::Half => None,
            CommitOutcome::Refused | CommitOutcome::Full => Some("commit-refused"),
            CommitOutcome::UnknownApplied => Some("commit-unknown-and-applied"),
            CommitOutcome::UnknownLost => Some("commit-unknown-and-lost"),
            CommitOutcome::Fenced => Some("fenced"),
        };
        let time = self.time;
        if let Some(goal) = goal {
            self.oracle.goals.reach(goal);
            self.log
                .tell(time, || format!("the store's commit ends as {goal}"));
        }
        self.is_store_busy = false;
        self.process
            .as_mut()
            .expect("checked above")
            .work(outcome.commit);
        if self
            .process
            .as_ref()
            .is_some_and(ShardProcess::recovers_without_pause)
        {
            let what =
                "writes fail, and the shard reads its rows back again and again without a pause";
            return Err(broken("T9", what.into()));
        }
        if outcome.crash_at == Some(CrashPoint::Committed) {
            self.oracle.goals.reach("crash-between-commit-and-answer");
            return self.crash(outcome.rng);
        }
        let at = self.time + outcome.reported_after;
        self.at(
            at,
            SimEvent::StoreReports {
                incarnation,
                outcome: Box::new(outcome),
            },
        );
        self.let_store_work().map(|_| ())
    }

    /// Delivers the store's report to the shard.
    pub(crate) fn store_reports(
        &mut self,
        incarnation: u64,
        outcome: StoreTaskOutcome,
    ) -> StepOutcome {
        if incarnation != self.incarnation {
            return Ok(());
        }
        let now = self.now();
        let Some(served) = &mut self.process else {
            return Ok(());
        };
        let came = served.report(now);
        if outcome.crash_at == Some(CrashPoint::Reported) {
            self.take(came, false)?;
            self.oracle.goals.reach("crash-between-commit-and-answer");
            return self.crash(outcome.rng);
        }
        if self.take(came, true)? {
            return self.pump();
        }
        Ok(())
    }

    /// Runs a delayed search for finished jobs. Timers fire before its result goes to the engine.
    pub(crate) fn finds(&mut self, incarnation: u64) -> StepOutcome {
        if incarnation != self.incarnation {
            return Ok(());
        }
        let now = self.now();
        let Some(served) = &mut self.process else {
            return Ok(());
        };
        let has_room = served.run(now);
        let came = served.collect();
        if !self.take(came, true)? {
            return Ok(());
        }
        let is_ready = self
            .process
            .as_ref()
            .is_some_and(|one| one.engine().is_some());
        if has_room || !is_ready {
            self.is_finding = false;
            let came = self.process.as_mut().expect("it lives").find(now);
            if !self.take(came, true)? {
                return Ok(());
            }
        } else {
            // A full turn waits for the store.
            self.at(self.time + 5_000, SimEvent::FindRuns { incarnation });
        }
        self.pump()
    }
}
