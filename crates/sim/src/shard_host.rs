//! The host of the simulated shard: starts and kills its process, passes commands to it, wakes it, and sends its
//! answers.
//!
//! On level 1 no lease request waits and timers fire with the next command.

use std::time::Duration;

use ganger_shard::Settings;

use crate::faulty_store::CommitOutcome;
use crate::oracle::Restart;
use crate::plan::Pace;
use crate::process::{CallOutcome, ShardProcess};
use crate::rng::{Rng, mix};
use crate::store_tasks::StoreTaskOutcome;
use crate::world::{Call, Caller, SimEvent, StepOutcome, World, broken};

/// Maximum number of calls into the core at one time before it counts as spinning.
pub(crate) const SPINS_MAX: usize = 10_000;

impl World {
    /// Whether the store takes no time and only commands wake the shard: level 1.
    pub(crate) fn is_instant(&self) -> bool {
        self.tape.level == 1
    }

    pub(crate) fn settings(&self) -> Settings {
        let mut rng = Rng::new(mix(self.tape.seed ^ 0x5E77));
        let settings = Settings {
            turn_commands_max: *rng.pick(&[2, 4, 64, 4_096]),
            group_wait: Duration::from_micros(*rng.pick(&[0, 300, 1_000])),
            upkeep_every: match self.plan.pace {
                Pace::Dense => Duration::from_secs(*rng.pick(&[1, 5])),
                Pace::Even => Duration::from_secs(*rng.pick(&[5, 60])),
                Pace::Sparse => Duration::from_secs(*rng.pick(&[300, 3_600])),
            },
            retire_slice: *rng.pick(&[1, 3, 500]),
            blob_cache_bytes: *rng.pick(&[0, 2_000, 1 << 20]),
            ..Settings::default()
        };
        if !self.is_instant() {
            return settings;
        }
        Settings {
            group_wait: Duration::ZERO,
            // Retention may run late and then has much to remove.
            retire_slice: 50,
            ..settings
        }
    }

    /// Starts the shard's process, which opens the store and begins to load.
    pub(crate) fn boot(&mut self, rng: &mut Rng) {
        self.incarnation += 1;
        self.is_store_busy = false;
        self.look_at = None;
        let settings = self.settings();
        let (clocks, time) = (&mut self.clocks, self.time);
        let served =
            ShardProcess::start(&self.store, settings, self.planted.clone(), rng, |opened| {
                clocks.restart(time, opened.meta);
                clocks.now(time)
            });
        let served = served.expect("memory opens");
        self.log
            .tell(time, || "the shard's process starts".to_owned());
        self.process = Some(served);
    }

    /// Kills the process. The store keeps its commits, which the oracle then checks.
    pub(crate) fn crash(&mut self, rng: Rng) -> StepOutcome {
        self.discard_process()?;
        self.schedule_restart(rng);
        Ok(())
    }

    pub(crate) fn discard_process(&mut self) -> StepOutcome {
        let now = self.now();
        let Some(served) = &mut self.process else {
            return Ok(());
        };
        if served.is_turn_in_flight() {
            self.oracle.goals.reach("crash-with-a-turn-in-flight");
        }
        let came = served.release_after_crash(now);
        self.check_durable_turns(&came.events)?;
        let (held, checked) = self.process.as_ref().expect("it was there").sequences();
        self.process = None;
        self.is_finding = false;
        self.incarnation += 1;
        if held != checked {
            let what =
                format!("the store holds commit {held}, the shard let out {checked} and no more");
            return Err(broken("D6", what));
        }
        Ok(())
    }

    /// Delivers a command to the shard.
    pub(crate) fn arrive(&mut self, mut call: Call) -> StepOutcome {
        call.sent_at = self.time;
        let is_worker =
            matches!(call.by, Caller::Worker(_)) && !self.is_healed && !self.is_instant();
        let waits = is_worker && crate::process::lease_of(&call.command).is_some();
        let mut wait_for = Duration::ZERO;
        if waits && call.rng.chance(600) {
            wait_for = Duration::from_micros(*call.rng.pick(&[10_000, 1_000_000, 40_000_000]));
            let patience = u64::try_from(wait_for.as_micros()).expect("a short wait");
            if call.rng.chance(250) {
                let left_at = self.time + call.rng.below(patience);
                let op = call.op;
                let incarnation = self.incarnation;
                self.at(left_at, SimEvent::ClientLeaves { op, incarnation });
            }
        }
        let now = self.now();
        if let Some(served) = &mut self.process {
            served.push(call, wait_for, now);
        }
        self.pump()
    }

    /// Lets a waiting client leave; sometimes the shard detects that only by the closed channel.
    pub(crate) fn leaves(&mut self, op: u64, incarnation: u64) -> StepOutcome {
        if incarnation != self.incarnation {
            return Ok(());
        }
        let Some(served) = &mut self.process else {
            return Ok(());
        };
        served.leaves(op, !op.is_multiple_of(3));
        self.pump()
    }

    /// Runs the core until it has nothing to do now.
    pub(crate) fn pump(&mut self) -> StepOutcome {
        for _ in 0..SPINS_MAX {
            let now = self.now();
            let Some(served) = &mut self.process else {
                return Ok(());
            };
            served.run(now);
            let came = served.collect();
            if !self.take(came, true)? {
                return Ok(());
            }
            let instant = self.is_instant();
            let served = self.process.as_mut().expect("it lives");
            match served.sleep_for(now) {
                Some(Duration::ZERO) => {}
                Some(sleep) if !instant => {
                    self.look_after_sleep(sleep);
                    return Ok(());
                }
                _ => return Ok(()),
            }
            let served = self.process.as_ref().expect("it lives");
            if self.is_store_busy && served.engine().is_none() {
                return Ok(());
            }
        }
        Err(broken(
            "T9",
            "the shard spins without getting anywhere".into(),
        ))
    }

    pub(crate) fn look_after_sleep(&mut self, sleep: Duration) {
        let late = if self.plan.pace == Pace::Sparse {
            120_000_000
        } else {
            0
        };
        let time = self.time + self.clocks.world_micros(sleep).max(late);
        if self.look_at.is_none_or(|at| at <= self.time || time < at) {
            self.look_at = Some(time);
            let incarnation = self.incarnation;
            self.at(time, SimEvent::TimerWake { incarnation });
        }
    }

    pub(crate) fn look(&mut self, incarnation: u64) -> StepOutcome {
        if incarnation != self.incarnation || self.look_at.is_none_or(|at| at > self.time) {
            return Ok(());
        }
        self.look_at = None;
        self.pump()
    }

    /// Handles the result of a call into the core. Returns false if the process has died.
    pub(crate) fn take(
        &mut self,
        came: CallOutcome,
        is_heard: bool,
    ) -> Result<bool, crate::Violation> {
        self.check_durable_turns(&came.events)?;
        if let Some(restart) = came.restarted {
            self.has_loaded(restart);
        }
        if is_heard {
            for one in came.answers {
                match one.answer {
                    Some(answer) => {
                        let is_lease = crate::process::lease_of(&one.call.command).is_some();
                        if is_lease && one.call.sent_at < self.time {
                            self.oracle.goals.reach("lease-waited-for");
                        }
                        self.reply(one.call, answer);
                    }
                    None => self.try_again(one.call),
                }
            }
        }
        if self.process.as_ref().is_some_and(ShardProcess::has_stopped) {
            self.crash(Rng::new(mix(self.time ^ self.tape.seed)))?;
            return Ok(false);
        }
        if came.commits > 0 && self.planted.is(26) {
            self.claim_early();
        }
        self.let_store_work()
    }

    pub(crate) fn claim_early(&mut self) {
        let claims = self.process.as_mut().map_or(0, ShardProcess::claim);
        for _ in 0..claims {
            let outcome = StoreTaskOutcome {
                commit: CommitOutcome::Success,
                crash_at: None,
                reported_after: 0,
                rng: Rng::new(self.time),
            };
            let incarnation = self.incarnation;
            self.at(
                self.time,
                SimEvent::StoreReports {
                    incarnation,
                    outcome: Box::new(outcome),
                },
            );
        }
    }

    /// Handles an unavailable shard: the client may repeat the command.
    pub(crate) fn try_again(&mut self, call: Call) {
        let mut rng = call.rng.clone();
        if self.is_healed || !rng.chance(500) {
            return;
        }
        self.ops += 1;
        let again = Call {
            op: self.ops,
            rng: rng.split(),
            ..call
        };
        let after = rng.below(3_000_000);
        self.at(self.time + after, SimEvent::Arrive(again));
    }

    pub(crate) fn has_loaded(&mut self, restart: Restart) {
        if !self.rows.leases.is_empty() {
            self.oracle.goals.reach("restarted-with-live-leases");
        }
        let time = self.time;
        self.log.tell(time, || {
            format!(
                "the rows are read back as of elapsed {}",
                restart.began.elapsed
            )
        });
        if self.callers.holds_anything() {
            self.oracle
                .goals
                .reach("restarted-with-leases-on-callers-clocks");
        }
        self.oracle.restarted(restart);
    }
}
