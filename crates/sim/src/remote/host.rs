//! The host of a process: lets its threads run, and drives its core as the shard's thread of the product does.

use std::sync::Arc;
use std::time::Duration;

use ganger_shard::clock::TimeLine;
use ganger_shard::core::{Core, Output, Request, StoreReport, StoreTask, WaiterId};
use ganger_shard::{PauseWatch, Settings, StopCause};
use ganger_store::{Opened, StoreError};
use ganger_store_postgres::Limits;
use ganger_store_postgres::NewestServer;
use ganger_store_postgres::rules::Shared;
use ganger_types::{Command, Elapsed};

use super::backend::ModelBackend;
use super::process::{Process, ROWS, STORE, Service};
use super::server::{MILLI, SECOND};
use super::thread::{Answer, Ask};
use super::world::{Happening, World};
use crate::rng::{Rng, mix};
use crate::shard_host::SPINS_MAX;
use crate::world::{StepOutcome, broken};

impl World {
    /// Starts a process that takes the shard over.
    pub(crate) fn start(&mut self, machine: usize) -> StepOutcome {
        self.next_process += 1;
        let number = self.next_process;
        self.tell(|| format!("machine {machine} starts process {number}"));
        let limits = Limits {
            has_row_thread: false,
            slot_bytes: self.plan.slot_bytes,
            record_changes: self.plan.record_changes,
            checkpoint_bytes: 3_000,
            ..Limits::default()
        };
        let backend = ModelBackend {
            owner: format!("process {number}"),
            limits,
            planted: self.planted,
            newest: NewestServer::default(),
        };
        let known = if self.planted.is(408) {
            Arc::default()
        } else {
            Arc::clone(&self.known)
        };
        self.machines[machine].process = Some(Process::new(number, backend, known));
        self.resume(machine, STORE, Answer::Start)
    }

    /// Kills the process of a machine. Its connections end; what they were doing goes on.
    pub(crate) fn kill(&mut self, machine: usize) {
        let Some(process) = self.machines[machine].process.take() else {
            return;
        };
        let number = process.number;
        self.tell(|| format!("process {number} of machine {machine} is killed"));
        let theirs = self.links.iter();
        let theirs = theirs.filter(|(_, link)| link.process == number);
        let theirs: Vec<u64> = theirs.map(|(session, _)| *session).collect();
        for session in theirs {
            self.cut(session, false);
            self.links.remove(&session);
        }
    }

    /// Gives a thread its answer, and lets it run until it waits for something.
    pub(crate) fn resume(&mut self, machine: usize, thread: usize, answer: Answer) -> StepOutcome {
        let mut answer = answer;
        loop {
            let Some(process) = self.machines[machine].process.as_mut() else {
                return Ok(());
            };
            process.waiting[thread] = None;
            let Some(ask) = process.threads[thread].resume(answer) else {
                return Ok(());
            };
            answer = match ask {
                Ask::IsAlive(session) => {
                    let link = self.links.get(&session);
                    Answer::Is(link.is_some_and(|link| link.is_open))
                }
                Ask::Time => Answer::Time(self.time),
                Ask::Close(session) => {
                    self.close(session);
                    Answer::Is(true)
                }
                Ask::Send(session, statement) => {
                    let call = self.call();
                    self.run_statement(machine, None, call, (session, statement));
                    Answer::Is(true)
                }
                other => return self.asked(machine, thread, other),
            };
        }
    }

    /// Does what a thread asks for, which answers later.
    fn asked(&mut self, machine: usize, thread: usize, ask: Ask) -> StepOutcome {
        let call = self.call();
        let process = self.machines[machine].process.as_mut();
        let process = process.expect("one of its threads asks");
        match ask {
            Ask::Connect(name) => {
                process.waiting[thread] = Some(call);
                self.connect(machine, thread, call, &name);
            }
            Ask::Run(session, statement) => {
                process.waiting[thread] = Some(call);
                self.run_statement(machine, Some(thread), call, (session, statement));
            }
            Ask::Sleep(micros) => {
                process.waiting[thread] = Some(call);
                let answer = Box::new(Answer::Is(true));
                let what = Happening::Answer {
                    thread,
                    call,
                    answer,
                };
                self.later(machine, micros, what);
            }
            Ask::Opened(opened, shared) => return self.opened(machine, *opened, shared),
            Ask::Next(report) => {
                process.is_busy = false;
                let is_claimed = |report: &StoreReport<_>| {
                    matches!(report, StoreReport::Committed { sequence, .. }
                        if process.claimed.contains(sequence))
                };
                if let Some(report) = report.filter(|report| !is_claimed(report)) {
                    process.reports.push_back(*report);
                }
                self.later(machine, 0, Happening::Pump);
            }
            Ask::NextRows => {
                process.is_writing_rows = false;
                let after = self.net.within(20 * MILLI, 800 * MILLI);
                self.later(machine, after, Happening::WriteRows);
            }
            Ask::IsAlive(_) | Ask::Time | Ask::Close(_) | Ask::Send(..) => {
                unreachable!("these were answered at once")
            }
        }
        Ok(())
    }

    pub(crate) fn write_rows(&mut self, machine: usize) -> StepOutcome {
        let process = self.machines[machine].process.as_mut();
        let process = process.expect("the caller has looked");
        if process.is_writing_rows || process.threads.len() <= ROWS {
            return Ok(());
        }
        process.is_writing_rows = true;
        self.resume(machine, ROWS, Answer::WriteRows)
    }

    /// A process has taken the shard over, or could not.
    fn opened(
        &mut self,
        machine: usize,
        opened: Result<Opened, StoreError>,
        shared: Option<Arc<Shared<ModelBackend>>>,
    ) -> StepOutcome {
        let time = self.time;
        let mut opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.tell(|| format!("machine {machine} cannot open: {error}"));
                self.machines[machine].process = None;
                return self.refused_to_open(&error);
            }
        };
        self.tell(|| format!("machine {machine} has opened {opened:?}"));
        let process = self.machines[machine].process.as_ref();
        let number = process.expect("it has opened").number;
        self.oracle.opened(number, &opened)?;
        self.reach("taken-over");
        if self.planted.is(420) {
            opened.away = None;
        }
        let reading = self.machines[machine].reading(time);
        let line = TimeLine::resume(&opened, &reading);
        let now = line.now(&reading);
        super::oracle::Oracle::resumed(now, time)?;
        let mut seeds = Rng::new(mix(self.tape.seed ^ self.next_process));
        let settings = Settings {
            turn_commands_max: self.plan.turn_commands_max,
            group_wait: Duration::ZERO,
            upkeep_every: Duration::from_secs(1),
            ..Settings::default()
        };
        let seeds = Box::new(move || seeds.bytes());
        let core = Core::new(settings, Arc::default(), opened, now, seeds).reading_beside();
        let process = self.machines[machine].process.as_mut();
        let process = process.expect("it has opened");
        process.released = opened.sequence;
        process.is_busy = false;
        process.service = Some(Service {
            core,
            line,
            pauses: PauseWatch::default(),
        });
        if let Some(shared) = shared {
            process.add_rows(shared);
        }
        self.resume(machine, ROWS, Answer::Start)?;
        self.later(machine, 0, Happening::Pump);
        Ok(())
    }

    fn refused_to_open(&mut self, error: &StoreError) -> StepOutcome {
        match error {
            StoreError::Unreachable { .. } => Ok(()),
            StoreError::Damaged { .. } if self.is_damaged => {
                self.reach("lost-record-noticed");
                self.is_closed = true;
                Ok(())
            }
            StoreError::Rewound { .. } => self.rewind_noticed(),
            StoreError::Io { reason, .. } if reason.contains("it is rewound") => Ok(()),
            // A later claim has won.
            StoreError::Io { reason, .. } if reason.contains("another process owns") => Ok(()),
            other => Err(broken("D8", format!("the shard cannot be opened: {other}"))),
        }
    }

    /// Lets the core work until it has nothing to do now.
    pub(crate) fn pump(&mut self, machine: usize) -> StepOutcome {
        for _ in 0..SPINS_MAX {
            let reading = self.machines[machine].reading(self.time);
            let time = self.time;
            let Some(process) = self.machines[machine].process.as_mut() else {
                return Ok(());
            };
            let Some(service) = process.service.as_mut() else {
                return Ok(());
            };
            let now = service.now(&reading);
            if service.pauses.wake(now.elapsed.since(Elapsed(0))).is_some() {
                let has_leases = service.core.engine().is_some();
                if !self.planted.is(423) {
                    service.core.grant_grace(now);
                }
                self.oracle.paused(process.number, time, has_leases);
            }
            while let Some(report) = process.reports.pop_front() {
                service.core.report(report, now);
            }
            service.core.run(now);
            self.take_outputs(machine)?;
            if !self.submit(machine)? {
                return Ok(());
            }
            if self.sleep(machine, &reading) {
                return Ok(());
            }
        }
        Err(broken(
            "T9",
            "the shard spins without getting anywhere".into(),
        ))
    }

    /// Gives the store its tasks. Returns false if the process has ended.
    fn submit(&mut self, machine: usize) -> Result<bool, crate::oracle::Violation> {
        let is_early = self.planted.is(421);
        let Some(process) = self.machines[machine].process.as_mut() else {
            return Ok(false);
        };
        let Some(service) = process.service.as_mut() else {
            return Ok(false);
        };
        for task in service.core.take_store_tasks() {
            if let StoreTask::Commit(commit) = &task {
                process.sent.insert(commit.sequence, Arc::clone(commit));
                if is_early && process.claimed.insert(commit.sequence) {
                    process.reports.push_back(StoreReport::Committed {
                        sequence: commit.sequence,
                        is_reserve_open: false,
                    });
                }
            }
            process.tasks.push_back(task);
        }
        if let Some(cause) = service.core.stopped() {
            let cause = cause.clone();
            self.tell(|| format!("machine {machine} ends: {cause}"));
            self.check_end(&cause)?;
            self.reach("owner-ended");
            self.kill(machine);
            if cause == StopCause::Requested {
                self.handed_over(machine)?;
            }
            return Ok(false);
        }
        self.give_task(machine)?;
        Ok(self.machines[machine].process.is_some())
    }

    /// A process ends only because somebody else owns the shard, or the log went back, or a record is lost.
    fn check_end(&mut self, cause: &StopCause) -> StepOutcome {
        match cause {
            StopCause::StoreLost { reason, is_damaged } if !self.is_damaged => {
                let rule = if *is_damaged { "D8" } else { "E8" };
                let what = format!("a process gives the store up: {reason}");
                Err(broken(rule, what))
            }
            StopCause::InvariantBroken { reason } => Err(broken("A1", reason.clone())),
            StopCause::Rewound { .. } => self.rewind_noticed(),
            _ => Ok(()),
        }
    }

    fn give_task(&mut self, machine: usize) -> StepOutcome {
        let process = self.machines[machine].process.as_mut();
        let process = process.expect("the caller has looked");
        if process.is_busy {
            return Ok(());
        }
        let Some(task) = process.tasks.pop_front() else {
            return Ok(());
        };
        process.is_busy = true;
        if matches!(task, StoreTask::Reopen { .. }) {
            self.reach("taken-back");
        }
        self.resume(machine, STORE, Answer::Task(Box::new(task)))
    }

    /// Sends out what is durable.
    fn take_outputs(&mut self, machine: usize) -> StepOutcome {
        let process = self.machines[machine].process.as_mut();
        let process = process.expect("the caller has looked");
        let Some(service) = process.service.as_mut() else {
            return Ok(());
        };
        let outputs = service.core.take_outputs();
        let (durable, number) = (service.core.durable_sequence(), process.number);
        while process.released < durable {
            process.released += 1;
            let Some(commit) = process.sent.remove(&process.released) else {
                continue;
            };
            let is_rewound = process.is_rewound;
            self.oracle
                .released(number, &commit, is_rewound, &self.servers)?;
        }
        for output in outputs {
            if let Output::Answer(op, answer) = output {
                self.serves = machine;
                self.heard(number, op, answer)?;
            }
        }
        Ok(())
    }

    /// Sets the next wake-up. Returns false if the core has more to do now.
    fn sleep(&mut self, machine: usize, reading: &super::process::Reading) -> bool {
        let time = self.time;
        let state = &mut self.machines[machine];
        let Some(process) = state.process.as_mut() else {
            return true;
        };
        let Some(service) = process.service.as_mut() else {
            return true;
        };
        let now = service.now(reading);
        let wait = service.core.sleep_for(now);
        service.pauses.sleep(now.elapsed.since(Elapsed(0)), wait);
        let is_now = wait == Some(Duration::ZERO);
        if is_now || !process.reports.is_empty() {
            return process.is_busy
                && process.reports.is_empty()
                && service.core.engine().is_none();
        }
        let Some(wait) = wait else { return true };
        let after = state.world_micros(wait).min(3_600 * SECOND);
        let at = time + after;
        let process = state.process.as_mut().expect("it was just there");
        if process
            .wakes_at
            .is_none_or(|wakes| wakes <= time || at < wakes)
        {
            process.wakes_at = Some(at);
            self.later(machine, after, Happening::Wake(at));
        }
        true
    }

    /// Hands a command to the core of a machine.
    pub(crate) fn deliver(&mut self, machine: usize, op: u64, command: Command) -> StepOutcome {
        let process = self.machines[machine].process.as_mut();
        let Some(service) = process.and_then(|process| process.service.as_mut()) else {
            return Ok(());
        };
        self.ops.insert(op, (command.clone(), self.time));
        let request = match command {
            Command::Lease(lease) => Request::Lease {
                lease,
                wait_for: Duration::ZERO,
                waiter: WaiterId(op),
                ticket: op,
            },
            command => Request::Call {
                command,
                at: None,
                ticket: op,
            },
        };
        service.core.push(request);
        self.pump(machine)
    }
}
