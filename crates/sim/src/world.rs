//! The world of a run: simulated time, the event queue, the network, the clients, and one shard.

use std::collections::BTreeMap;

use ganger_engine::Engine;
use ganger_store::MemoryStore;
use ganger_types::command::ConfigureNamespace;
use ganger_types::{Answer, Command, NamespaceSettings, Now};

use crate::actor::worker::SimWorker;
use crate::actor::{KnownIds, names, operator, producer};
use crate::clock::Clocks;
use crate::ledger::Ledger;
use crate::oracle::{Oracle, Violation};
use crate::plan::{Fault, Feature, Plan};
use crate::planted::PlantedBug;
use crate::process::ShardProcess;
use crate::rng::Rng;
use crate::rows::Rows;
use crate::run_log::{Recording, RunLog};
use crate::store_tasks::StoreTaskOutcome;
use crate::tape::{Actor, Tape};

/// Number of events between two full checks.
const FULL_CHECK_EVERY: u64 = 500;
/// Number of events between two checks of the engine's indexes.
const INDEX_CHECK_EVERY: u64 = 40;

/// The sender of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Producer,
    Worker(usize),
    Operator,
}

/// A command in flight.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) op: u64,
    pub(crate) by: Caller,
    pub(crate) incarnation: u64,
    pub(crate) command: Command,
    pub(crate) rng: Rng,
    pub(crate) sent_at: u64,
}

/// An event of the simulated world, at a time to come.
#[derive(Debug)]
pub(crate) enum SimEvent {
    /// The next decision of the tape.
    Step(usize),
    /// A command reaches the shard.
    Arrive(Call),
    /// An answer reaches its client.
    Answer(Call, Answer),
    /// A worker acts on one of its jobs.
    WorkerActs {
        worker: usize,
        incarnation: u64,
        token: ganger_types::LeaseToken,
        rng: Rng,
    },
    /// The shard's process restarts.
    Restart { again: u32, rng: Rng },
    /// A zombie wakes and reports.
    LateReport(Call),
    /// The shard wakes for a timer. Events of a dead process have no effect, here and below.
    TimerWake { incarnation: u64 },
    /// The store runs its next task.
    StoreRuns {
        incarnation: u64,
        outcome: Box<StoreTaskOutcome>,
    },
    /// The shard gets the store's report.
    StoreReports {
        incarnation: u64,
        outcome: Box<StoreTaskOutcome>,
    },
    /// A search for finished jobs runs.
    FindRuns { incarnation: u64 },
    /// The client of a waiting lease request leaves.
    ClientLeaves { op: u64, incarnation: u64 },
}

/// A shard, its store and its clients in simulated time.
pub(crate) struct World {
    pub(crate) tape: Tape,
    pub(crate) plan: Plan,
    pub(crate) time: u64,
    pub(crate) queue: BTreeMap<(u64, u64), SimEvent>,
    sequence: u64,
    pub(crate) clocks: Clocks,
    pub(crate) rows: Rows,
    /// Store of the shard.
    pub(crate) store: MemoryStore,
    pub(crate) process: Option<ShardProcess>,
    pub(crate) incarnation: u64,
    pub(crate) is_store_busy: bool,
    pub(crate) is_finding: bool,
    pub(crate) look_at: Option<u64>,
    /// Answers to commands of the drain.
    pub(crate) settled: BTreeMap<u64, Option<Answer>>,
    pub(crate) oracle: Oracle,
    /// Oracle of the namespace on its callers' clocks.
    pub(crate) callers: Oracle,
    pub(crate) ledger: Ledger,
    pub(crate) log: RunLog,
    pub(crate) known: KnownIds,
    pub(crate) workers: Vec<SimWorker>,
    pub(crate) ops: u64,
    checked_at: u64,
    pub(crate) is_healed: bool,
    pub(crate) answered: u64,
    pub(crate) planted: PlantedBug,
}

pub(crate) type StepOutcome = Result<(), Violation>;

pub(crate) fn broken(rule: &'static str, what: String) -> Violation {
    Violation {
        rule,
        what,
        earlier: Vec::new(),
    }
}

impl World {
    pub(crate) fn new(tape: Tape, recording: Recording) -> Self {
        let plan = tape.plan();
        let workers = (0..plan.workers).map(SimWorker::new).collect();
        let mut world = Self {
            clocks: Clocks::new(plan.rate),
            plan,
            time: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            rows: Rows::default(),
            store: MemoryStore::new(),
            process: None,
            incarnation: 0,
            is_store_busy: false,
            is_finding: false,
            look_at: None,
            settled: BTreeMap::new(),
            oracle: Oracle::default(),
            callers: Oracle::of_callers(),
            ledger: Ledger::default(),
            log: RunLog::new(recording),
            known: KnownIds::default(),
            workers,
            ops: 0,
            checked_at: 0,
            is_healed: false,
            answered: 0,
            planted: PlantedBug::new(tape.planted),
            tape,
        };
        world.boot(&mut Rng::new(world.tape.seed ^ 0xB007));
        world
    }

    pub(crate) fn now(&self) -> Now {
        self.clocks.now(self.time)
    }

    pub(crate) fn suffers(&self, fault: Fault) -> bool {
        !self.is_healed && self.plan.suffers(fault)
    }

    /// Whether a fault occurs now, if it is enabled.
    pub(crate) fn fault_occurs(&self, fault: Fault, rng: &mut Rng) -> bool {
        self.suffers(fault) && rng.chance(self.plan.fault_rate)
    }

    pub(crate) fn at(&mut self, time: u64, happening: SimEvent) {
        self.sequence += 1;
        self.queue.insert((time, self.sequence), happening);
    }

    /// Runs every step of the tape and the events that follow.
    pub(crate) fn load(&mut self) -> StepOutcome {
        if self.plan.does(Feature::CallersClock) {
            let cmd = ConfigureNamespace {
                namespace: names::callers(),
                settings: NamespaceSettings {
                    clock: names::clock(&names::callers()),
                    ..NamespaceSettings::default()
                },
            };
            self.ask(&Command::ConfigureNamespace(Box::new(cmd)))?.ok();
        }
        let mut time = 0;
        for (number, step) in self.tape.steps.clone().iter().enumerate() {
            time += step.after;
            self.at(time, SimEvent::Step(number));
        }
        let end = time + 1;
        while let Some((&(time, _), _)) = self.queue.first_key_value() {
            if time > end {
                break;
            }
            self.next()?;
        }
        Ok(())
    }

    /// Handles the first event of the queue. Returns false if there is none.
    pub(crate) fn next(&mut self) -> Result<bool, Violation> {
        let Some(((time, sequence), happening)) = self.queue.pop_first() else {
            return Ok(false);
        };
        self.time = self.time.max(time);
        self.log.event(self.time, sequence);
        self.happen(happening)?;
        if self.log.events() >= self.checked_at + INDEX_CHECK_EVERY {
            self.checked_at = self.log.events();
            self.check_indexes()?;
            if self.checked_at % FULL_CHECK_EVERY < INDEX_CHECK_EVERY {
                self.full_check()?;
            }
        }
        Ok(true)
    }

    fn happen(&mut self, happening: SimEvent) -> StepOutcome {
        match happening {
            SimEvent::Step(number) => self.step(number),
            SimEvent::Arrive(call) => self.arrive(call),
            SimEvent::Answer(call, answer) => self.answer(call, &answer),
            SimEvent::WorkerActs {
                worker,
                incarnation,
                token,
                rng,
            } => self.work(worker, incarnation, token, rng),
            SimEvent::Restart { again, rng } => self.restart(again, rng),
            SimEvent::LateReport(call) => {
                self.oracle.goals.reach("zombie-reported");
                self.send_call(call)
            }
            SimEvent::TimerWake { incarnation } => self.look(incarnation),
            SimEvent::StoreRuns {
                incarnation,
                outcome,
            } => self.store_works(incarnation, *outcome),
            SimEvent::StoreReports {
                incarnation,
                outcome,
            } => self.store_reports(incarnation, *outcome),
            SimEvent::FindRuns { incarnation } => self.finds(incarnation),
            SimEvent::ClientLeaves { op, incarnation } => self.leaves(op, incarnation),
        }
    }

    fn step(&mut self, number: usize) -> StepOutcome {
        let step = self.tape.steps[number];
        let mut rng = Rng::new(step.rng);
        match step.actor {
            Actor::Producer => {
                if self.oracle.live.len() + self.callers.live.len() > self.plan.live_target * 3 {
                    return Ok(());
                }
                let now = self.now();
                let command = producer::act(&self.plan, &mut self.known, &mut rng, now);
                self.send(Caller::Producer, command, rng)
            }
            Actor::Worker(worker) => {
                let worker = worker % self.workers.len();
                let command = self.workers[worker].act(&self.plan, &mut self.known, &mut rng);
                self.send(Caller::Worker(worker), command, rng)
            }
            Actor::Operator => {
                let now = self.now();
                match operator::act(&self.plan, &self.known, &mut rng, now) {
                    Some(command) => self.send(Caller::Operator, command, rng),
                    None => Ok(()),
                }
            }
            Actor::Reader => {
                if !self.plan.does(Feature::Reads) {
                    return Ok(());
                }
                let command = operator::read(&self.plan, &self.known, &mut rng);
                self.send(Caller::Operator, command, rng)
            }
            Actor::Chaos => self.chaos(rng),
        }
    }

    /// Sends a command over the network.
    pub(crate) fn send(&mut self, by: Caller, command: Command, rng: Rng) -> StepOutcome {
        self.ops += 1;
        let incarnation = match by {
            Caller::Worker(worker) => self.workers[worker].incarnation,
            _ => 0,
        };
        self.send_call(Call {
            op: self.ops,
            by,
            incarnation,
            command,
            rng,
            sent_at: self.time,
        })
    }

    fn send_call(&mut self, mut call: Call) -> StepOutcome {
        let time = self.time;
        self.log.tell(time, || {
            format!("op {} {:?} sends {:?}", call.op, call.by, call.command)
        });
        self.log.deep(&call.command);
        if self.fault_occurs(Fault::RequestsLost, &mut call.rng) {
            self.oracle.goals.reach("request-lost");
            self.log
                .tell(time, || format!("op {} is lost on its way", call.op));
            return Ok(());
        }
        let delay = self.latency(&mut call.rng);
        if delay == 0 {
            return self.arrive(call);
        }
        self.at(time + delay, SimEvent::Arrive(call));
        Ok(())
    }

    fn latency(&self, rng: &mut Rng) -> u64 {
        if !self.suffers(Fault::Latency) {
            return 0;
        }
        let delay = if rng.chance(50) {
            rng.below(2_000_000)
        } else {
            rng.below(30_000)
        };
        if self.plan.delays_on_grid {
            delay / 5_000 * 5_000 + 5_000
        } else {
            delay
        }
    }

    /// Sends an answer back over the network.
    pub(crate) fn reply(&mut self, mut call: Call, answer: Answer) {
        if self.fault_occurs(Fault::AnswersLost, &mut call.rng) {
            self.oracle.goals.reach("answer-lost");
            return;
        }
        let delay = self.latency(&mut call.rng);
        self.at(self.time + delay, SimEvent::Answer(call, answer));
    }

    pub(crate) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Does the shard's housekeeping: timers and retention.
    pub(crate) fn look_after(&mut self) -> StepOutcome {
        if self.is_healed {
            self.settle()
        } else {
            self.pump()
        }
    }

    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.process.as_ref()?.engine()
    }

    fn check_indexes(&mut self) -> StepOutcome {
        let Some(engine) = self.engine() else {
            return Ok(());
        };
        let wrong = engine.check_invariants();
        if wrong.is_empty() {
            return Ok(());
        }
        Err(broken(
            "A1",
            format!("the engine's own check says {wrong:?}"),
        ))
    }

    /// Checks the engine's indexes, the rows with each other, and the oracle against the rows.
    pub(crate) fn full_check(&mut self) -> StepOutcome {
        self.check_indexes()?;
        crate::audit::audit(&self.rows)?;
        self.oracle.compare_all(&self.rows)?;
        self.callers.compare_all(&self.rows)?;
        self.ledger
            .compare(&self.rows, &[&self.oracle, &self.callers])
    }
}
