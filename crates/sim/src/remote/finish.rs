//! The end of a run: the faults stop, the owner must serve, another one takes over, and everything is checked.

use ganger_shard::core::CallReply;
use ganger_store::{Reader as _, Store as _};
use ganger_types::{Command, Namespace, Outcome};

use super::clients::{complete, enqueue, lease};
use super::server::SECOND;
use super::world::{Answered, World};
use crate::oracle::Violation;
use crate::rng::Rng;
use crate::world::{StepOutcome, broken};

/// Time in which everything that began before is over.
const SETTLES: u64 = 90 * SECOND;
/// Time in which a command must be answered now.
const ANSWERS: u64 = 60 * SECOND;
const ROUNDS_MAX: usize = 200;

impl World {
    pub(crate) fn finish(&mut self) -> StepOutcome {
        self.heal();
        self.run_until(self.time + SETTLES)?;
        if self.is_closed {
            return Ok(());
        }
        self.owner_serves()?;
        if self.is_closed {
            return Ok(());
        }
        for machine in 0..self.machines.len() {
            self.kill(machine);
        }
        let next = self.net.index(self.machines.len());
        self.run_until(self.time + SECOND)?;
        if self
            .machines
            .iter()
            .all(|machine| machine.process.is_none())
        {
            self.start(next)?;
        }
        self.run_until(self.time + 30 * SECOND)?;
        if self.is_closed {
            return Ok(());
        }
        self.drain()?;
        self.oracle.all_kept(&self.servers)?;
        self.check_jobs()
    }

    fn heal(&mut self) {
        self.is_healed = true;
        let newest = self.servers.newest();
        for server in 0..newest {
            self.servers.crash(server);
        }
        self.servers.all[newest].is_up = true;
        if let Some(standby) = &mut self.servers.all[newest].standby {
            standby.stalled_until = 0;
        }
        // A crashed server whose standby was about to take its place.
        if self.servers.all[newest].standby.is_none() {
            self.servers.promote();
        }
        for machine in &mut self.machines {
            machine.is_isolated = false;
            machine.frozen_until = machine.frozen_until.min(self.time);
        }
    }

    /// The machine whose process serves in the newest epoch.
    fn owner(&self) -> Option<usize> {
        let serving = self.machines.iter().enumerate().filter(|(_, machine)| {
            let process = machine.process.as_ref();
            process.is_some_and(super::process::Process::serves)
        });
        let newest = serving.max_by_key(|(_, machine)| {
            let process = machine.process.as_ref();
            process.map(|process| process.number == self.oracle.owner)
        });
        newest.map(|(number, _)| number)
    }

    /// Sends a command, and waits for its answer.
    fn ask(&mut self, machine: usize, command: Command) -> Result<Option<Answered>, Violation> {
        let op = self.op();
        self.awaited.insert(op, None);
        self.send(machine, op, command);
        let until = self.time + ANSWERS;
        while self.time < until && !self.is_closed {
            self.run_until(self.time + SECOND / 20)?;
            if self.awaited[&op].is_some() {
                break;
            }
        }
        Ok(self.awaited.remove(&op).flatten())
    }

    /// With all faults gone, the shard takes commands.
    fn owner_serves(&mut self) -> StepOutcome {
        for _ in 0..4 {
            let Some(machine) = self.owner() else {
                self.run_until(self.time + 20 * SECOND)?;
                continue;
            };
            let command = enqueue(&mut Rng::new(1), 0);
            if let Some(Ok(_)) = self.ask(machine, command)? {
                return Ok(());
            }
            self.run_until(self.time + 20 * SECOND)?;
            if self.is_closed {
                return Ok(());
            }
        }
        let what = "all faults are over, and nobody serves the shard";
        Err(broken("T8", what.to_owned()))
    }

    fn drain(&mut self) -> StepOutcome {
        for _ in 0..ROUNDS_MAX {
            let Some(machine) = self.owner() else {
                return Err(broken("T8", "nobody could take the shard over".to_owned()));
            };
            let command = lease(self.plan.lease_ms.max(20_000), 100);
            let granted = match self.ask(machine, command)? {
                Some(Ok(CallReply::Deliveries(granted))) => granted,
                other => {
                    let what = format!("an honest worker was refused: {other:?}");
                    return Err(broken("T8", what));
                }
            };
            for delivery in &granted {
                let op = self.op();
                let answer = self.ask(machine, complete(&delivery.grant, op))?;
                if !matches!(answer, Some(Ok(_))) {
                    let what = format!("an honest report was refused: {answer:?}");
                    return Err(broken("T8", what));
                }
            }
            if !granted.is_empty() {
                continue;
            }
            let process = self.machines[machine].process.as_ref();
            let service = process.and_then(|process| process.service.as_ref());
            let engine = service.and_then(|service| service.core.engine());
            if engine.is_some_and(|engine| engine.live_jobs() == 0) {
                return Ok(());
            }
            self.run_until(self.time + 10 * SECOND)?;
        }
        Err(broken("T8", "jobs never end".to_owned()))
    }

    /// Every job that was acknowledged has ended, with the result that was acknowledged.
    fn check_jobs(&mut self) -> StepOutcome {
        // The rows of the last commits are written now and then.
        self.run_until(self.time + 10 * SECOND)?;
        let newest = self.servers.newest();
        let tables = &self.servers.all[newest].tables;
        if tables.header.sequence != tables.last() {
            let (written, last) = (tables.header.sequence, tables.last());
            let what = format!("rows are written up to commit {written}, and the log has {last}");
            return Err(broken("T8", what));
        }
        let unreadable = |error: ganger_store::StoreError| broken("D2", error.to_string());
        let mut reader = tables.rows.reader().map_err(unreadable)?;
        for (job, facts) in &self.oracle.jobs {
            let found = reader.find(&Namespace::default(), job);
            let found = found.map_err(unreadable)?;
            let Some(found) = found else {
                if facts.is_acknowledged {
                    return Err(broken(
                        "D2",
                        format!("job {job} was acknowledged and is gone"),
                    ));
                }
                continue;
            };
            let outcome = found.record.finished.as_ref().map(|end| end.outcome);
            if outcome.is_none() {
                return Err(broken("T8", format!("job {job} has not ended")));
            }
            let Some(expected) = &facts.result else {
                continue;
            };
            let result = reader.result(found.record.key).map_err(unreadable)?;
            if outcome != Some(Outcome::Succeeded) || result.as_ref() != Some(expected) {
                let what = format!(
                    "job {job} was completed with {expected:?}, and is stored as {outcome:?} with {result:?}"
                );
                return Err(broken("D2", what));
            }
        }
        Ok(())
    }
}
