//! The drain's access to the world: a shard without faults that answers at once.

use std::time::Duration;

use ganger_types::{Answer, Command};

use crate::faulty_store::CommitOutcome;
use crate::oracle::Violation;
use crate::process::{CallOutcome, ShardProcess};
use crate::rng::{Rng, mix};
use crate::shard_host::SPINS_MAX;
use crate::world::{Call, Caller, SimEvent, StepOutcome, World, broken};

impl World {
    pub(crate) fn retry_shard(&mut self) -> StepOutcome {
        if !self.is_up() {
            let mut rng = Rng::new(self.tape.seed ^ 0xD0A);
            self.boot(&mut rng);
        }
        if let Some(served) = &mut self.process {
            served.all_leave();
        }
        self.queue
            .retain(|_, happening| !matches!(happening, SimEvent::Restart { .. }));
        self.look_after()
    }

    /// Sends a command without a network and returns its answer.
    pub(crate) fn ask(&mut self, command: &Command) -> Result<Answer, Violation> {
        self.ops += 1;
        let (time, op) = (self.time, self.ops);
        self.log.event(time, op);
        self.log
            .tell(time, || format!("op {op} of the drain: {command:?}"));
        let answer = self.ask_until_answered(command)?;
        self.ledger.heard(self.time, command, &answer)?;
        Ok(answer)
    }
    /// Advances the time to the shard's next timer. Returns false if there is none.
    pub(crate) fn pass_time(&mut self) -> Result<bool, Violation> {
        let now = self.now();
        let engine = self.engine().expect("the drain runs on a healed shard");
        let next = engine.next_due().into_iter().map(|due| match due {
            ganger_types::Due::Elapsed(at) => at.since(now.elapsed),
            ganger_types::Due::Wall(at) => at.since(now.wall),
        });
        let Some(next) = next.min() else {
            return Ok(false);
        };
        self.time += self.clocks.world_micros(next);
        self.look_after()?;
        Ok(true)
    }

    /// Lets core and store work without faults until both are idle.
    pub(crate) fn settle(&mut self) -> StepOutcome {
        for _ in 0..SPINS_MAX {
            if self.process.is_none() {
                let mut rng = Rng::new(mix(self.time ^ self.tape.seed ^ 0xD0A));
                self.boot(&mut rng);
            }
            let now = self.now();
            let served = self.process.as_mut().expect("it was started");
            served.run(now);
            let came = served.collect();
            if !self.take_settling(came)? {
                continue;
            }
            let served = self.process.as_mut().expect("it lives");
            let came = if served.has_reports() {
                served.report(now)
            } else if served.next_store_task().is_some() {
                served.work(CommitOutcome::Success);
                continue;
            } else if served.has_finds() {
                served.find(now)
            } else {
                match served.sleep_for(now) {
                    // A turn waits for further commands, or there is more to do. Or recovery pauses after failures in
                    // a row.
                    Some(sleep)
                        if sleep <= Duration::from_millis(1) || served.engine().is_none() =>
                    {
                        self.time += self.clocks.world_micros(sleep);
                        continue;
                    }
                    _ => return Ok(()),
                }
            };
            self.take_settling(came)?;
        }
        Err(broken("T8", "the shard never comes to rest".into()))
    }

    fn take_settling(&mut self, came: CallOutcome) -> Result<bool, Violation> {
        self.check_durable_turns(&came.events)?;
        if let Some(restart) = came.restarted {
            self.has_loaded(restart);
        }
        for one in came.answers {
            self.settled.insert(one.call.op, one.answer);
        }
        if self.process.as_ref().is_some_and(ShardProcess::has_stopped) {
            self.discard_process()?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Repeats a command until the shard can apply it.
    fn ask_until_answered(&mut self, command: &Command) -> Result<Answer, Violation> {
        for _ in 0..20 {
            self.ops += 1;
            let op = self.ops;
            let call = Call {
                op,
                by: Caller::Operator,
                incarnation: 0,
                command: command.clone(),
                rng: Rng::new(op),
                sent_at: self.time,
            };
            let now = self.now();
            let served = self.process.as_mut();
            served
                .expect("the drain runs on a healed shard")
                .push(call, Duration::ZERO, now);
            self.settle()?;
            if let Some(Some(answer)) = self.settled.remove(&op) {
                return Ok(answer);
            }
            // The shard is unavailable, for example after a lack of space.
            self.time += 1_000_000;
        }
        Err(broken("T8", format!("{command:?} is never answered")))
    }
}
