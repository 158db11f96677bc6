//! The world of a shard in a database: machines whose processes may own it, servers, the network, and clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use ganger_shard::CallError;
use ganger_shard::core::CallReply;
use ganger_store_postgres::rules::Fault;
use ganger_store_postgres::{Durability, DurabilityMode, KnownMark};
use ganger_types::{Command, ShardId, Timestamp};

use super::oracle::Oracle;
use super::plan::Plan;
use super::planted::PlantedBug;
use super::process::{Process, Reading};
use super::server::{Effect, IDLE_MAX, MILLI, SECOND, Servers};
use super::statement::{Reply, Statement};
use super::thread::Answer;
use crate::clock::DAWN;
use crate::rng::{Rng, mix};
use crate::run_log::{Recording, RunLog};
use crate::tape::Tape;
use crate::world::{StepOutcome, broken};

/// Time that a process waits for the answer to a statement.
const PATIENCE: u64 = 12 * SECOND;

/// An event of the simulated world, at a time to come.
pub(crate) enum Event {
    /// The next step of the tape.
    Step(usize),
    /// A statement reaches a server.
    Arrive {
        session: u64,
        call: u64,
        statement: Box<Statement>,
    },
    /// A session goes on.
    SessionStep(u64),
    LockWaited {
        session: u64,
        call: u64,
        step: u32,
    },
    Idled {
        session: u64,
        statements: u64,
    },
    Replicate(usize),
    /// A server notices that a client has gone.
    ClientGone(u64),
    /// A server ends a session that somebody else's client has, such as a dump.
    Terminate(u64),
    /// Something happens in a process.
    Process {
        machine: usize,
        process: u64,
        what: Happening,
    },
    /// A client sends its request to a machine.
    Request {
        machine: usize,
        op: u64,
        command: Box<Command>,
    },
    /// A worker reports on a job.
    Report {
        op: u64,
        command: Box<Command>,
    },
    /// All look whether somebody serves the shard.
    Watch,
    /// An operator tries to cancel a wait, some times more.
    Cancel(u32),
    StartServer(usize),
    /// The backup of a server is restored.
    Restore(usize),
    /// A server stops for good.
    StopServer(usize),
    Promote,
    /// Clients read what they know, and so many times again.
    Reads(u32),
    /// A machine reaches the database again.
    Rejoin(usize),
}

/// Something that happens in a process.
pub(crate) enum Happening {
    /// The answer to a call.
    Answer {
        thread: usize,
        call: u64,
        answer: Box<Answer>,
    },
    /// The patience for a call is over.
    Patience { thread: usize, call: u64 },
    /// The core has something to do.
    Pump,
    /// The core wanted to be woken at this time.
    Wake(u64),
    /// Rows are to be written.
    WriteRows,
}

/// One end of a connection, as its process sees it.
pub(crate) struct Link {
    pub(crate) machine: usize,
    pub(crate) process: u64,
    pub(crate) is_open: bool,
    /// The thread and the call that wait for an answer.
    pub(crate) pending: Option<(usize, u64)>,
}

/// A machine with its clocks and the process on it.
pub(crate) struct Machine {
    /// Microseconds by its clock per million microseconds of the world.
    rate: u64,
    /// Sum of the jumps of its wall clock.
    pub(crate) ahead: i64,
    pub(crate) process: Option<Process>,
    /// Time until which it stands still.
    pub(crate) frozen_until: u64,
    pub(crate) is_isolated: bool,
}

impl Machine {
    pub(crate) fn reading(&self, time: u64) -> Reading {
        let micros = u128::from(time) * u128::from(self.rate) / 1_000_000;
        let monotonic = u64::try_from(micros).expect("a run is shorter than that");
        Reading {
            monotonic: std::time::Duration::from_micros(monotonic),
            wall: Timestamp((DAWN + monotonic).saturating_add_signed(self.ahead)),
        }
    }

    /// Microseconds of the world until so much has passed by its clock.
    pub(crate) fn world_micros(&self, wait: std::time::Duration) -> u64 {
        let micros = wait.as_micros() * 1_000_000 / u128::from(self.rate);
        u64::try_from(micros).unwrap_or(u64::MAX / 4) + 1
    }
}

/// The answer to a client.
pub(crate) type Answered = Result<CallReply, CallError>;

pub(crate) struct World {
    pub(crate) tape: Tape,
    pub(crate) plan: Plan,
    pub(crate) planted: PlantedBug,
    pub(crate) time: u64,
    pub(crate) servers: Servers,
    pub(crate) machines: Vec<Machine>,
    pub(crate) links: BTreeMap<u64, Link>,
    pub(crate) oracle: Oracle,
    pub(crate) log: RunLog,
    /// Random numbers of everything but the steps.
    pub(crate) net: Rng,
    pub(crate) is_healed: bool,
    /// Whether a lost record was found, so that the shard is closed for good.
    pub(crate) is_closed: bool,
    /// Whether the log has lost a record.
    pub(crate) is_damaged: bool,
    /// What nodes know of confirmed commits: here they tell each other at once.
    pub(crate) known: Arc<KnownMark>,
    pub(crate) answered: u64,
    /// Commands that a process was given, by number, with the time.
    pub(crate) ops: BTreeMap<u64, (Command, u64)>,
    /// Answers that the end of the run waits for.
    pub(crate) awaited: BTreeMap<u64, Option<Answered>>,
    /// The machine that answered last.
    pub(crate) serves: usize,
    pub(crate) next_op: u64,
    pub(crate) next_process: u64,
    next_call: u64,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
}

impl World {
    pub(crate) fn new(tape: Tape, recording: Recording) -> Self {
        let plan = Plan::draw(tape.seed);
        let mut rng = Rng::new(mix(tape.seed ^ 0x0DB_0001));
        let machines = (0..plan.machines)
            .map(|_| Machine {
                rate: rng.within(950_000, 1_050_000),
                ahead: crate::cluster::hours(&mut rng),
                process: None,
                frozen_until: 0,
                is_isolated: false,
            })
            .collect();
        Self {
            servers: Servers::new(&ShardId::default(), plan.is_synchronous, rng.split()),
            planted: PlantedBug(tape.planted),
            time: 1,
            machines,
            links: BTreeMap::new(),
            oracle: Oracle::default(),
            log: RunLog::new(recording),
            net: rng.split(),
            is_healed: false,
            is_closed: false,
            is_damaged: false,
            known: Arc::default(),
            answered: 0,
            ops: BTreeMap::new(),
            awaited: BTreeMap::new(),
            serves: 0,
            next_op: 0,
            next_process: 0,
            next_call: 0,
            events: BTreeMap::new(),
            next_event: 0,
            plan,
            tape,
        }
    }

    pub(crate) fn reach(&mut self, goal: &'static str) {
        self.oracle.goals.reach(goal);
    }

    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        self.log.tell(self.time, line);
    }

    pub(crate) fn at(&mut self, after: u64, event: Event) {
        self.next_event += 1;
        self.events
            .insert((self.time + after, self.next_event), event);
    }

    pub(crate) fn later(&mut self, machine: usize, after: u64, what: Happening) {
        let process = self.machines[machine].process.as_ref();
        let Some(process) = process.map(|process| process.number) else {
            return;
        };
        self.at(
            after,
            Event::Process {
                machine,
                process,
                what,
            },
        );
    }

    /// A random delay between a machine and a server.
    pub(crate) fn latency(&mut self) -> u64 {
        self.net.within(100, 2 * MILLI)
    }

    /// Whether a statement or an answer is lost now.
    fn is_lost(&mut self) -> bool {
        !self.is_healed && self.net.chance(self.plan.losses)
    }

    /// Handles all events up to a time.
    pub(crate) fn run_until(&mut self, time: u64) -> StepOutcome {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > time || self.is_closed {
                break;
            }
            let ((at, number), event) = entry.remove_entry();
            self.time = self.time.max(at);
            self.log.event(self.time, number);
            self.happen(event)?;
            self.take_effects()?;
        }
        self.time = self.time.max(time);
        Ok(())
    }

    /// Runs all steps of the tape.
    pub(crate) fn load(&mut self) -> StepOutcome {
        self.start(0)?;
        self.at(SECOND, Event::Watch);
        let mut at = SECOND;
        for place in 0..self.tape.steps.len() {
            at += mix(self.tape.steps[place].rng) % self.plan.pace;
            self.at(at, Event::Step(place));
        }
        self.run_until(self.time + at)
    }

    fn happen(&mut self, event: Event) -> StepOutcome {
        let time = self.time;
        match event {
            Event::Step(place) => self.step(place)?,
            Event::Arrive {
                session,
                call,
                statement,
            } => self.servers.begin(time, session, call, *statement),
            Event::SessionStep(session) => self.servers.step(time, session),
            Event::LockWaited {
                session,
                call,
                step,
            } => self.servers.lock_waited(session, call, step),
            Event::Idled {
                session,
                statements,
            } => self.servers.idled(session, statements),
            Event::Replicate(server) => {
                if !self.servers.replicate(time, server) {
                    self.at(100 * MILLI, Event::Replicate(server));
                }
            }
            Event::ClientGone(session) => self.servers.client_is_gone(session),
            Event::Terminate(session) => self.servers.terminate(session),
            Event::Process {
                machine,
                process,
                what,
            } => self.in_process(machine, process, what)?,
            Event::Request {
                machine,
                op,
                command,
            } => self.request(machine, op, *command)?,
            Event::Report { op, command } => {
                let machine = self.guess();
                self.send(machine, op, *command);
            }
            Event::Watch => self.watch()?,
            Event::Cancel(times) => self.cancel(times),
            Event::StartServer(server) => self.servers.start(server),
            Event::Restore(server) => self.restore(server),
            Event::StopServer(server) => self.servers.crash(server),
            Event::Promote => {
                if !self.is_healed {
                    self.promote();
                }
            }
            Event::Reads(times) => self.reads(times),
            Event::Rejoin(machine) => self.machines[machine].is_isolated = false,
        }
        Ok(())
    }

    fn in_process(&mut self, machine: usize, process: u64, what: Happening) -> StepOutcome {
        let is_it = |one: &Process| one.number == process;
        if !self.machines[machine].process.as_ref().is_some_and(is_it) {
            return Ok(());
        }
        let frozen_until = self.machines[machine].frozen_until;
        if frozen_until > self.time {
            // It happens once the machine goes on, in the same order.
            self.later(machine, frozen_until - self.time, what);
            return Ok(());
        }
        let state = self.machines[machine]
            .process
            .as_mut()
            .expect("it was just seen");
        match what {
            Happening::Answer {
                thread,
                call,
                answer,
            } => {
                if state.waiting[thread] == Some(call) {
                    return self.resume(machine, thread, *answer);
                }
            }
            Happening::Patience { thread, call } => {
                if state.waiting[thread] == Some(call) {
                    self.reach("answer-took-too-long");
                    let fault = Fault::Lost("the database did not answer in time".to_owned());
                    return self.resume(machine, thread, Answer::Ran(Err(fault), None));
                }
            }
            Happening::Pump => return self.pump(machine),
            Happening::Wake(at) => {
                if state.wakes_at == Some(at) {
                    state.wakes_at = None;
                    return self.pump(machine);
                }
            }
            Happening::WriteRows => return self.write_rows(machine),
        }
        Ok(())
    }

    fn request(&mut self, machine: usize, op: u64, command: Command) -> StepOutcome {
        let frozen_until = self.machines[machine].frozen_until;
        if frozen_until > self.time {
            let command = Box::new(command);
            self.at(
                frozen_until - self.time,
                Event::Request {
                    machine,
                    op,
                    command,
                },
            );
            return Ok(());
        }
        self.deliver(machine, op, command)
    }

    /// Does what the servers want.
    fn take_effects(&mut self) -> StepOutcome {
        for effect in std::mem::take(&mut self.servers.effects) {
            match effect {
                Effect::Step { session, after } => self.at(after, Event::SessionStep(session)),
                Effect::LockWaited {
                    session,
                    call,
                    step,
                    after,
                } => self.at(
                    after,
                    Event::LockWaited {
                        session,
                        call,
                        step,
                    },
                ),
                Effect::Idled {
                    session,
                    statements,
                } => self.at(
                    IDLE_MAX,
                    Event::Idled {
                        session,
                        statements,
                    },
                ),
                Effect::Replicate { server } => {
                    let lag = self.net.within(200, 4 * MILLI);
                    self.at(lag, Event::Replicate(server));
                }
                Effect::Answer {
                    session,
                    call,
                    result,
                    warning,
                } => self.answer(session, call, result, warning),
                Effect::Closed { session } => self.closed(session),
            }
        }
        match self.servers.broken.take() {
            Some(why) => Err(broken("D6", why)),
            None => Ok(()),
        }
    }

    /// Carries the answer of a server to its client.
    fn answer(
        &mut self,
        session: u64,
        call: u64,
        result: Result<Reply, Fault>,
        warning: Option<String>,
    ) {
        if warning.is_some() {
            self.reach("wait-for-the-standby-cancelled");
        }
        let Some(link) = self.links.get(&session).filter(|link| link.is_open) else {
            return;
        };
        let machine = link.machine;
        if self.machines[machine].is_isolated {
            // The client hears nothing and loses its patience.
            return;
        }
        if self.is_lost() {
            self.reach("answer-lost");
            return self.cut(session, false);
        }
        let after = self.latency();
        let answer = Box::new(Answer::Ran(result, warning));
        self.give(session, call, after, answer);
    }

    /// Gives the answer to a call to the thread that waits for it.
    fn give(&mut self, session: u64, call: u64, after: u64, answer: Box<Answer>) {
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        let (machine, process) = (link.machine, link.process);
        if let Some((thread, _)) = link.pending.take_if(|(_, pending)| *pending == call) {
            let what = Happening::Answer {
                thread,
                call,
                answer,
            };
            self.at(
                after,
                Event::Process {
                    machine,
                    process,
                    what,
                },
            );
        }
    }

    /// The server has ended a connection.
    fn closed(&mut self, session: u64) {
        let Some(link) = self.links.get_mut(&session) else {
            return;
        };
        let (pending, is_isolated) = (link.pending, self.machines[link.machine].is_isolated);
        if is_isolated {
            return;
        }
        link.is_open = false;
        if let Some((_, call)) = pending {
            let fault = Fault::Lost("the server has ended the connection".to_owned());
            let after = self.latency();
            self.give(
                session,
                call,
                after,
                Box::new(Answer::Ran(Err(fault), None)),
            );
        }
    }

    /// Breaks a connection. The server goes on with what it does; the client notices now, or not at all.
    pub(crate) fn cut(&mut self, session: u64, is_silent: bool) {
        let Some(link) = self.links.get_mut(&session).filter(|link| link.is_open) else {
            return;
        };
        let pending = link.pending;
        link.is_open = is_silent;
        let late = if self.net.chance(300) { 60 } else { 2 };
        let after = self.net.below(late * SECOND);
        self.at(after, Event::ClientGone(session));
        if is_silent {
            // No answer comes any more.
            if let Some(link) = self.links.get_mut(&session) {
                link.pending = None;
            }
        } else if let Some((_, call)) = pending {
            let fault = Fault::Lost("the connection was reset".to_owned());
            self.give(session, call, 0, Box::new(Answer::Ran(Err(fault), None)));
        }
    }

    /// The number of a new call.
    pub(crate) fn call(&mut self) -> u64 {
        self.next_call += 1;
        self.next_call
    }

    /// Connects a thread with the first server that it reaches.
    pub(crate) fn connect(&mut self, machine: usize, thread: usize, call: u64, name: &str) {
        let process = self.machines[machine].process.as_ref();
        let process = process.expect("it asks").number;
        let up = self.servers.all.iter().enumerate();
        let up: Vec<usize> = up
            .filter(|(_, server)| server.is_up)
            .map(|(number, _)| number)
            .collect();
        // The hosts are tried in order, and the first one may not be reached for a moment.
        let is_first_away = up.len() > 1 && self.net.chance(400);
        let server = up.get(usize::from(is_first_away)).copied();
        let after = self.latency() * 3;
        let connected = match server {
            Some(server) if !self.machines[machine].is_isolated && !self.is_lost() => {
                let session = self.servers.connect(server, name);
                let link = Link {
                    machine,
                    process,
                    is_open: true,
                    pending: None,
                };
                self.links.insert(session, link);
                Ok((session, self.durability(server)))
            }
            _ => Err(Fault::Lost("no host accepts writes".to_owned())),
        };
        let after = if connected.is_err() { SECOND } else { after };
        let what = Happening::Answer {
            thread,
            call,
            answer: Box::new(Answer::Connected(connected)),
        };
        self.at(
            after,
            Event::Process {
                machine,
                process,
                what,
            },
        );
    }

    fn durability(&self, server: usize) -> Durability {
        Durability {
            mode: if self.plan.is_synchronous {
                DurabilityMode::Quorum
            } else {
                DurabilityMode::Alone
            },
            system_identifier: 1,
            timeline: self.servers.all[server].timeline,
            run: self.servers.all[server].run,
        }
    }

    /// A thread sends a statement, and waits for the answer unless `thread` is `None`.
    pub(crate) fn run_statement(
        &mut self,
        machine: usize,
        thread: Option<usize>,
        call: u64,
        (session, statement): (u64, Box<Statement>),
    ) {
        let is_open = self.links.get(&session).is_some_and(|link| link.is_open);
        if let Some(thread) = thread {
            if !is_open {
                let fault = Fault::Lost("the connection has ended".to_owned());
                let answer = Box::new(Answer::Ran(Err(fault), None));
                let what = Happening::Answer {
                    thread,
                    call,
                    answer,
                };
                return self.later(machine, 0, what);
            }
            if let Some(link) = self.links.get_mut(&session) {
                link.pending = Some((thread, call));
            }
            let long = matches!(*statement, Statement::WriteRows { .. });
            let patience = PATIENCE * if long { 5 } else { 1 };
            self.later(machine, patience, Happening::Patience { thread, call });
        }
        if !is_open || self.machines[machine].is_isolated {
            return;
        }
        let mut after = self.latency();
        if self.is_lost() {
            self.reach("statement-lost");
            self.cut(session, false);
            if self.net.chance(200) {
                return;
            }
            // It was on its way, and arrives long after its sender has given it up.
            after = self.net.within(5 * MILLI, 400 * MILLI);
        }
        self.at(
            after,
            Event::Arrive {
                session,
                call,
                statement,
            },
        );
    }

    /// A process closes a connection.
    pub(crate) fn close(&mut self, session: u64) {
        // The server of one that broke has not heard of it.
        if let Some(link) = self.links.remove(&session).filter(|link| link.is_open) {
            let is_late = self.machines[link.machine].is_isolated;
            let after = 5 * MILLI + if is_late { 30 * SECOND } else { 0 };
            self.at(after, Event::ClientGone(session));
        }
    }
}
