//! The world around the shard: its store works in simulated time, and its process dies at named moments
//! of a commit's life.
//!
//! On level 1 the store carries out each task at the moment it is given, no commit fails, no lease request
//! waits, and timers fire with the next command: most runs then spend their time in the engine.

use std::time::Duration;

use ganger_shard::Settings;
use ganger_shard::core::StoreTask;
use ganger_types::Now;

use crate::faulty_store::CommitOutcome;
use crate::oracle::Turn;
use crate::plan::{Fault, Feature, Pace};
use crate::process::{CallOutcome, DurableTurn, ShardProcess, touched};
use crate::rng::{Rng, mix};
use crate::world::{Call, Caller, SimEvent, StepOutcome, World, broken, removed};

/// Calls of the core at one moment before the simulator believes that it spins.
pub(crate) const SPINS_MAX: usize = 10_000;

/// The moment in the life of a commit at which the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// The turn is closed; the store knows nothing of it.
    TurnClosed,
    /// The store has it, and has done nothing.
    TaskGiven,
    /// It is durable; the shard does not know.
    Committed,
    /// The shard knows; nobody has heard.
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
    /// Whether the store takes no time and nothing but a command wakes the shard: level 1.
    fn is_instant(&self) -> bool {
        self.tape.level == 1
    }

    fn settings(&self) -> Settings {
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
            // Retention may come late, and then has much to remove.
            retire_slice: 50,
            ..settings
        }
    }

    /// Starts the shard's process: it opens the store and begins to load.
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

    /// A command reaches the shard.
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

    /// A client gives up waiting; now and then the shard hears of it only from the closed channel.
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

    /// Lets the core do all there is to do now.
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

    fn look_after_sleep(&mut self, sleep: Duration) {
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

    /// Works through what came of a call into the core. False if the process has died of it.
    fn take(&mut self, came: CallOutcome, is_heard: bool) -> Result<bool, crate::Violation> {
        self.check_durable_turns(&came.events)?;
        if let Some(now) = came.restarted {
            self.has_loaded(now);
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

    fn claim_early(&mut self) {
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

    /// The shard said that it could not: the client does not know more, and may ask again.
    fn try_again(&mut self, call: Call) {
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

    pub(crate) fn has_loaded(&mut self, now: Now) {
        if !self.rows.leases.is_empty() {
            self.oracle.goals.reach("restarted-with-live-leases");
        }
        let time = self.time;
        self.log.tell(time, || {
            format!("the rows are read back as of elapsed {}", now.elapsed)
        });
        if self.callers.holds_anything() {
            self.oracle
                .goals
                .reach("restarted-with-leases-on-callers-clocks");
        }
        self.oracle.restarted(now);
    }

    /// Has the oracle judge every turn that the core let out.
    pub(crate) fn check_durable_turns(&mut self, events: &[ganger_types::Event]) -> StepOutcome {
        let Some(served) = &mut self.process else {
            return Ok(());
        };
        served
            .check_events(events)
            .map_err(|why| broken("P5", why))?;
        while let Some(next) = self.process.as_mut().and_then(ShardProcess::next_durable) {
            match next {
                Ok(durable) => self.check_turn(durable)?,
                Err(sequence) => {
                    let what =
                        format!("turn {sequence} was let out, and the store does not hold it");
                    return Err(broken("D1", what));
                }
            }
        }
        Ok(())
    }

    fn check_turn(&mut self, durable: DurableTurn) -> StepOutcome {
        let (time, changes) = (self.time, &durable.commit.changes);
        for moment in &durable.moments {
            self.log.tell(time, || {
                format!(
                    "moment elapsed {} wall {}",
                    moment.now.elapsed, moment.now.wall
                )
            });
            for one in &moment.applied {
                self.log.tell(time, || {
                    format!("op {} is answered {:?}", one.op, one.answer)
                });
                self.log.deep(&one.answer);
            }
        }
        for change in changes {
            self.log.deep(change);
            self.log.tell(time, || format!("  stored {change:?}"));
        }
        let gone = removed(&self.rows, changes);
        let applied = self
            .rows
            .apply(durable.commit.sequence, durable.commit.meta, changes);
        applied.map_err(|why| broken("D3", format!("a commit makes no sense: {why}")))?;
        self.check_deliveries(&durable)?;
        let turn = Turn {
            moments: durable.moments,
            touched: touched(changes),
            removed: gone,
        };
        if !self.plan.does(Feature::CallersClock) {
            return self.oracle.turn(&turn, &self.rows);
        }
        let last = turn.moments.last().map(|moment| moment.now);
        let (ours, callers) = turn.parted(&self.rows);
        self.oracle.turn(&ours, &self.rows)?;
        self.callers.retention_now = last;
        self.callers.turn(&callers, &self.rows)
    }

    /// What is handed out is what is stored, unless the same turn changed it afterwards.
    fn check_deliveries(&self, durable: &DurableTurn) -> StepOutcome {
        let touched = touched(&durable.commit.changes);
        for delivery in &durable.deliveries {
            let key = delivery.grant.key;
            let stored = self.rows.payloads.get(&key).cloned().unwrap_or_default();
            if stored != delivery.payload && !touched.contains(&key) {
                let what = format!(
                    "job {key} was handed out with payload {:?} instead of {stored:?}",
                    delivery.payload
                );
                return Err(broken("D2", what));
            }
            let inputs = self.rows.delivery(key);
            let is_live = self.rows.leases.contains_key(&key);
            if is_live && inputs.as_ref() != Ok(&delivery.inputs) {
                let what = format!(
                    "job {key} was handed out with inputs {:?} instead of {inputs:?}",
                    delivery.inputs
                );
                return Err(broken("G2", what));
            }
        }
        Ok(())
    }

    /// Sets the store to its next order, if it has one and nothing else to do. False if the process
    /// died instead.
    fn let_store_work(&mut self) -> Result<bool, crate::Violation> {
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
            // Time alone will not do: an order that takes none would meet the outcome of the one before.
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

    /// The store carries out the order it was set to.
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

    /// The shard hears what the store has done.
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

    /// A look for finished jobs is carried out, late. Timers are fired before what it found goes to
    /// the engine.
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

    /// The process dies. Its store keeps what it had applied, and the oracle learns of that.
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
}
