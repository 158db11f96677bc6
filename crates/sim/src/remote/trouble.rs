//! Trouble: what befalls processes, machines, connections and servers; and who takes the shard over then.

use super::locks::{Mode, Resource};
use super::plan::Trouble;
use super::server::{MILLI, SECOND};
use super::tables::SLOTS;
use super::world::{Event, World};
use crate::rng::Rng;
use crate::world::{StepOutcome, broken};

/// How often clients read all that they know after a failover.
const READS: u32 = 8;
/// Time between two looks at who serves.
const WATCH_EVERY: u64 = SECOND;
/// Time for which a process may stand still before another one takes its place.
const LEASE: u64 = 6 * SECOND;

impl World {
    /// One trouble of those that this run has.
    pub(crate) fn trouble(&mut self, rng: &mut Rng) -> StepOutcome {
        self.answered += 1;
        let Some(trouble) = rng.maybe(&self.plan.troubles).copied() else {
            return Ok(());
        };
        self.tell(|| format!("trouble: {trouble:?}"));
        let machine = if rng.chance(800) {
            self.serves
        } else {
            rng.index(self.machines.len())
        };
        match trouble {
            Trouble::Kill => {
                self.reach("killed");
                self.kill(machine);
            }
            Trouble::Freeze => self.freeze(machine, rng),
            Trouble::Cut => {
                let open = self.links.iter().filter(|(_, link)| link.is_open);
                let open: Vec<u64> = open.map(|(session, _)| *session).collect();
                if let Some(session) = rng.maybe(&open).copied() {
                    self.reach("connection-cut");
                    self.cut(session, rng.chance(400));
                }
            }
            Trouble::Isolate => {
                self.reach("isolated");
                self.machines[machine].is_isolated = true;
                let after = rng.below(20 * SECOND);
                self.at(after, Event::Rejoin(machine));
            }
            Trouble::TakeOver => {
                let to = rng.index(self.machines.len());
                if self.machines[to].process.is_none() {
                    self.reach("taken-from-a-live-owner");
                    self.start(to)?;
                }
            }
            Trouble::HandOver => self.hand_over(machine)?,
            Trouble::Stall => {
                let longest = *rng.pick(&[3, 25, 70]) * SECOND;
                let until = self.time + rng.below(longest);
                let newest = self.servers.newest();
                if let Some(standby) = &mut self.servers.all[newest].standby {
                    standby.stalled_until = until;
                }
            }
            Trouble::Cancel => self.cancel(30),
            Trouble::Crash => self.crash(rng),
            Trouble::Promote => self.fail_over(rng),
            Trouble::Dump => self.dump(rng),
            Trouble::Jump => {
                self.machines[machine].ahead = crate::cluster::hours(rng);
            }
            Trouble::Damage => self.damage(rng),
            Trouble::Restore => {
                let newest = self.servers.newest();
                self.servers.back_up(newest);
                let longest = *rng.pick(&[200 * MILLI, 3 * SECOND, 40 * SECOND]);
                let after = rng.within(20 * MILLI, longest);
                self.at(after, Event::Restore(newest));
            }
        }
        Ok(())
    }

    /// Tells the owner to hand the shard over. It ends once what it has taken is durable and answered.
    fn hand_over(&mut self, machine: usize) -> StepOutcome {
        let time = self.time;
        let state = &mut self.machines[machine];
        let process = state
            .process
            .as_mut()
            .filter(|_| state.frozen_until <= time);
        let Some(service) = process.and_then(|process| process.service.as_mut()) else {
            return Ok(());
        };
        if service.core.engine().is_none() {
            return Ok(());
        }
        service.core.stop();
        self.pump(machine)
    }

    /// Another process takes the shard over that its owner has closed in order.
    pub(crate) fn handed_over(&mut self, from: usize) -> StepOutcome {
        self.reach("handed-over");
        let time = self.time;
        let mut others = self.machines.iter().enumerate();
        let next = others.position(|(number, machine)| {
            number != from && machine.process.is_none() && machine.frozen_until <= time
        });
        // Without one, the watch finds that nobody serves the shard.
        next.map_or(Ok(()), |next| self.start(next))
    }

    fn freeze(&mut self, machine: usize, rng: &mut Rng) {
        let lasts = *rng.pick(&[
            1_500 * MILLI,
            3 * SECOND,
            4 * SECOND,
            5 * SECOND,
            30 * SECOND,
        ]);
        let until = self.time + lasts;
        let state = &mut self.machines[machine];
        if state.frozen_until > self.time {
            return;
        }
        state.frozen_until = until;
        if let Some(process) = &state.process {
            self.oracle.froze(process.number, self.time);
        }
        self.reach("stood-still");
    }

    pub(crate) fn cancel(&mut self, times: u32) {
        let newest = self.servers.newest();
        if self.is_healed || self.servers.cancel_a_wait(newest) || times == 0 {
            return;
        }
        self.at(100 * MILLI, Event::Cancel(times - 1));
    }

    fn crash(&mut self, rng: &mut Rng) {
        let newest = self.servers.newest();
        if !self.servers.all[newest].is_up {
            return;
        }
        self.reach("server-crashed");
        self.servers.crash(newest);
        let after = rng.within(300 * MILLI, 8 * SECOND);
        self.at(after, Event::StartServer(newest));
    }

    /// The newest server goes away, or is only cut off from its standby, which takes its place.
    fn fail_over(&mut self, rng: &mut Rng) {
        let newest = self.servers.newest();
        if !self.servers.all[newest].is_up || newest > 3 {
            return;
        }
        let lives_on = self.plan.is_synchronous && rng.chance(400);
        if lives_on {
            self.reach("two-servers-accept-writes");
            let after = rng.within(2 * SECOND, 40 * SECOND);
            self.at(after, Event::StopServer(newest));
            return self.promote();
        }
        self.servers.crash(newest);
        let after = rng.within(100 * MILLI, 3 * SECOND);
        self.at(after, Event::Promote);
    }

    pub(crate) fn promote(&mut self) {
        let missing = self.servers.promote();
        self.reach("promoted");
        // Before the next commit: the standby may lack rows.
        self.at(0, Event::Reads(READS));
        let newest = self.servers.newest();
        let last = self.servers.all[newest].tables.last();
        self.tell(|| format!("server {newest} takes over at commit {last}, {missing} are lost"));
        if missing == 0 || self.plan.is_synchronous {
            return;
        }
        self.reach("promoted-with-loss");
        self.lost_after(last);
    }

    /// The database goes back to its backup, under the connections of its clients or not.
    pub(crate) fn restore(&mut self, server: usize) {
        if self.is_healed || server != self.servers.newest() || !self.servers.all[server].is_up {
            return;
        }
        let before = self.servers.all[server].tables.last();
        let keeps_sessions = self.answered.is_multiple_of(2);
        if !self.servers.restore(server, keeps_sessions) {
            return;
        }
        let last = self.servers.all[server].tables.last();
        self.tell(|| {
            format!("the database is restored, and goes from commit {before} back to {last}")
        });
        self.reach("restored");
        if keeps_sessions {
            self.reach("restored-under-sessions");
        }
        self.lost_after(last);
    }

    /// The database has lost the commits after this one.
    fn lost_after(&mut self, last: u64) {
        let alive = self.machines.iter();
        let alive = alive.filter_map(|machine| Some(machine.process.as_ref()?.number));
        self.oracle.lost_after(last, alive);
        for machine in &mut self.machines {
            if let Some(process) = &mut machine.process {
                process.is_rewound |= process.released > last;
            }
        }
    }

    /// Somebody holds the log tables for a while.
    fn dump(&mut self, rng: &mut Rng) {
        let newest = self.servers.newest();
        if !self.servers.all[newest].is_up {
            return;
        }
        self.reach("dumped");
        let session = self.servers.connect(newest, "dump");
        for slot in 0..SLOTS {
            let resource = Resource::Slot(slot);
            let locks = &mut self.servers.all[newest].locks;
            locks.take(session, resource, Mode::Shared);
        }
        let after = rng.within(100 * MILLI, 8 * SECOND);
        self.at(after, Event::Terminate(session));
    }

    /// A record whose rows are not written is lost.
    fn damage(&mut self, rng: &mut Rng) {
        let newest = self.servers.newest();
        let tables = &self.servers.all[newest].tables;
        let (first, last) = (
            tables.header.sequence + 1,
            self.servers.last_with_copy(newest),
        );
        // A failover that loses what follows would hide it, and so would one to a standby that ends before it.
        if self.is_damaged || first >= last || !self.plan.is_synchronous {
            return;
        }
        self.is_damaged = true;
        let sequence = rng.within(first, last - 1);
        self.servers.damage(newest, sequence);
        // The owner has its commits in memory, and who comes next has not.
        for machine in 0..self.machines.len() {
            self.kill(machine);
        }
    }

    /// A node has found that the database lost commits.
    pub(crate) fn rewind_noticed(&mut self) -> StepOutcome {
        if !self.oracle.has_lost_commits {
            let what = "the shard is closed as rewound, and no commit was lost";
            return Err(broken("E8", what.to_owned()));
        }
        self.reach("rewind-noticed");
        Ok(())
    }

    /// An operator opens a shard again that is closed because it has lost commits.
    fn accept_rewind(&mut self) {
        if self.servers.accept_rewind() {
            self.reach("rewind-accepted");
            self.oracle.loss_accepted();
            self.tell(|| "the operator accepts the loss".to_owned());
        }
    }

    /// If nobody serves the shard, some machine takes it over.
    pub(crate) fn watch(&mut self) -> StepOutcome {
        self.accept_rewind();
        let time = self.time;
        let lives = |machine: &super::world::Machine| {
            machine.process.is_some() && machine.frozen_until < time + LEASE
        };
        if !self.machines.iter().any(lives) {
            let able = self.machines.iter().enumerate();
            let able: Vec<usize> = able
                .filter(|(_, machine)| machine.process.is_none() && machine.frozen_until <= time)
                .map(|(number, _)| number)
                .collect();
            if let Some(machine) = self.net.maybe(&able).copied() {
                self.start(machine)?;
            }
        }
        self.at(WATCH_EVERY, Event::Watch);
        Ok(())
    }
}
