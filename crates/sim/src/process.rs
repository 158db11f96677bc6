//! The process of the simulated shard: the shard core over a store, driven call by call.
//!
//! It records which commands each commit carries, at which moments the core applied them, how it answered, and
//! which commits the store holds.

pub(crate) mod durable;
mod store_side;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ganger_engine::Engine;
use ganger_shard::core::{
    CallReply, Core, Output, Request, StoreExecutor, StoreReport, StoreTask, WaiterId,
};
use ganger_shard::{CallError, Delivery, Hooks, Settings};
use ganger_store::memory::MemoryReader;
use ganger_store::{MemoryStore, Store, StoreError};
use ganger_types::command::{ExpiredJob, Lease, Retire};
use ganger_types::{
    Answer, Command, Commit, Due, Event, IdTag, JobId, JobKey, Namespace, Now, Reply,
};

use crate::actor::names;
use crate::clock::callers_now;
use crate::decisions::{Decisions, Recoveries};
use crate::faulty_store::FaultyStore;
use crate::oracle::{Moment, Restart};
use crate::planted::PlantedBug;
use crate::rng::Rng;
use crate::sim_ticket::{SimTicket, TicketEvent, TicketLog};
use crate::world::Call;

/// A commit that the store has not reported yet, with the times at which its turn grew.
pub(crate) struct CommitInFlight {
    pub(crate) commit: Arc<Commit>,
    moments: Vec<MomentRecord>,
}

/// The commands that the core handled at one time; each attempt of a lease request has its own number.
struct MomentRecord {
    now: Now,
    turned_to: Vec<(TicketEvent, u64)>,
    /// Command of retention at that time; `None` if there was none.
    retire: Option<Retire>,
}

/// An answer of the core.
enum RecordedAnswer {
    Plain(Answer),
    Jobs(Vec<Delivery>),
}

/// An answer for a client; `None` if the shard was unavailable.
pub(crate) struct ClientReply {
    pub(crate) call: Call,
    pub(crate) answer: Option<Answer>,
}

/// The result of a call into the core.
#[derive(Default)]
pub(crate) struct CallOutcome {
    pub(crate) answers: Vec<ClientReply>,
    pub(crate) events: Vec<Event>,
    /// Number of commits of turns that were just closed.
    pub(crate) commits: u64,
    /// Start of the engine, if it was loaded again.
    pub(crate) restarted: Option<Restart>,
}

/// A turn that became durable, for the oracle.
pub(crate) struct DurableTurn {
    pub(crate) commit: Arc<Commit>,
    pub(crate) moments: Vec<Moment>,
    pub(crate) deliveries: Vec<Delivery>,
}

/// A process: core, store executor, the tasks between them, and the records of the simulator.
pub(crate) struct ShardProcess {
    core: Core<MemoryReader, SimTicket>,
    executor: StoreExecutor<FaultyStore>,
    store: MemoryStore,
    log: TicketLog,
    /// Tasks that the store has not begun.
    store_tasks: VecDeque<StoreTask>,
    /// Searches for finished jobs, which run beside the other tasks.
    finds: VecDeque<StoreTask>,
    /// Jobs that the last search found; the core removes them in slices.
    found: Vec<ExpiredJob>,
    reports: VecDeque<StoreReport<MemoryReader>>,
    sent: VecDeque<CommitInFlight>,
    growing: Vec<MomentRecord>,
    /// Sequence of the last commit that the oracle has checked.
    checked: u64,
    answers: BTreeMap<u64, RecordedAnswer>,
    /// Every received command, with the reading of its caller's clock.
    commands: BTreeMap<u64, (Command, Now)>,
    calls: BTreeMap<u64, Call>,
    /// Waiting lease requests, with the cells by which their clients leave.
    waiting: BTreeMap<u64, Rc<Cell<bool>>>,
    /// Lease requests that have waited at a durable moment, among which the shard may divide ready jobs; some of them may
    /// have left since.
    shared_by: BTreeSet<u64>,
    tries: u64,
    last_try: BTreeMap<u64, u64>,
    load_began: Now,
    pub(crate) decisions: Decisions,
    recoveries: Recoveries,
    next_event: u64,
    claimed: BTreeSet<u64>,
    /// Whether a probe is among the waiting requests.
    is_probing: bool,
    /// Wall reading minus elapsed reading at the engine's last reading.
    ahead: u64,
    planted: PlantedBug,
}

impl ShardProcess {
    /// Opens the store and begins to load.
    pub(crate) fn start(
        store: &MemoryStore,
        settings: Settings,
        planted: PlantedBug,
        rng: &mut Rng,
        now_at: impl FnOnce(ganger_store::Opened) -> Now,
    ) -> Result<Self, StoreError> {
        let mut disk = FaultyStore::new(store.clone(), planted.clone());
        let opened = disk.open()?;
        let now = now_at(opened);
        let (mut seeds, of_seeds) = (rng.split(), planted.clone());
        let numbers = Arc::default();
        let executor = StoreExecutor::new(disk, Arc::clone(&numbers), Hooks::default());
        let core = Core::new(
            settings,
            numbers,
            opened,
            now,
            Box::new(move || of_seeds.seed(&mut seeds)),
        );
        Ok(Self {
            core,
            executor,
            store: store.clone(),
            log: TicketLog::default(),
            store_tasks: VecDeque::new(),
            finds: VecDeque::new(),
            found: Vec::new(),
            reports: VecDeque::new(),
            sent: VecDeque::new(),
            growing: Vec::new(),
            checked: opened.sequence,
            answers: BTreeMap::new(),
            commands: BTreeMap::new(),
            calls: BTreeMap::new(),
            waiting: BTreeMap::new(),
            shared_by: BTreeSet::new(),
            tries: 0,
            last_try: BTreeMap::new(),
            load_began: now,
            decisions: Decisions::default(),
            recoveries: Recoveries::default(),
            next_event: opened.meta.next_event.0,
            claimed: BTreeSet::new(),
            is_probing: false,
            ahead: now.wall.0.saturating_sub(now.elapsed.0),
            planted,
        })
    }

    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.core.engine()
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.core.stopped().is_some()
    }

    pub(crate) fn sleep_for(&mut self, now: Now) -> Option<Duration> {
        self.core.sleep_for(self.planted.time(now))
    }

    /// Adds a request, with the reading of its caller's clock.
    pub(crate) fn push(&mut self, call: Call, wait_for: Duration, now: Now) {
        let op = call.op;
        let callers_now = callers_now(call.sent_at);
        self.commands
            .insert(op, (call.command.clone(), callers_now));
        let is_callers = names::namespace_of(&call.command) == Some(&names::callers());
        let command = self.planted.command(call.command.clone());
        // A lease request in such a namespace carries its caller's time, which only a call can do.
        if let Command::Lease(lease) = &command
            && !is_callers
        {
            let lease = lease.clone();
            let has_left = Rc::default();
            let ticket = SimTicket::lease(op, &self.log, &has_left);
            self.core.push(Request::Lease {
                lease,
                wait_for,
                waiter: WaiterId(op),
                ticket,
            });
            self.waiting.insert(op, has_left);
        } else {
            self.push_marker(TicketEvent::Call(op));
            self.core.push(Request::Call {
                command,
                at: Some(self.planted.callers_time(callers_now.wall, now)),
                ticket: SimTicket::call(op, &self.log),
            });
        }
        self.calls.insert(op, call);
    }

    fn push_marker(&mut self, mark: TicketEvent) {
        self.core.push(Request::AwaitEnd {
            namespace: Namespace::default(),
            id: JobId::made(JobKey(0), IdTag(0)),
            wait_for: Duration::ZERO,
            waiter: WaiterId(u64::MAX),
            ticket: SimTicket::marker(mark, &self.log),
        });
    }

    /// Lets the client of a waiting lease request leave; the core may learn of it only later.
    pub(crate) fn leaves(&mut self, op: u64, is_told: bool) {
        let Some(has_left) = self.waiting.get(&op) else {
            return;
        };
        has_left.set(true);
        self.calls.remove(&op);
        if is_told {
            self.core.push(Request::CancelWaiter(WaiterId(op)));
        }
    }

    /// Ends all waiting lease requests.
    pub(crate) fn all_leave(&mut self) {
        let all: Vec<u64> = self.waiting.keys().copied().collect();
        for op in all {
            self.leaves(op, true);
        }
    }

    /// Lets the core work. Returns true if it handled requests, so that timers fired.
    pub(crate) fn run(&mut self, now: Now) -> bool {
        if !self.is_probing {
            self.is_probing = true;
            self.push_marker(TicketEvent::Probe);
        }
        let is_due = self.is_due(now);
        let waiting = self.core.expired_jobs_waiting();
        self.core.run(self.planted.time(now));
        let has_looked = self.note_moment(now, is_due);
        // The core does its upkeep after the requests.
        if self.core.expired_jobs_waiting() < waiting {
            self.note_retirement(now);
        }
        has_looked
    }

    /// Records that the core removed a slice of the found jobs.
    fn note_retirement(&mut self, now: Now) {
        self.growing.push(MomentRecord {
            now,
            turned_to: Vec::new(),
            retire: Some(Retire {
                jobs: self.found.clone(),
            }),
        });
    }

    /// Whether a timer of the engine is due.
    fn is_due(&self, now: Now) -> bool {
        self.core.engine().is_some_and(|engine| {
            engine.next_due().into_iter().any(|due| match due {
                Due::Elapsed(at) => at <= now.elapsed,
                Due::Wall(at) => at <= now.wall,
            })
        })
    }

    /// Records a time at which the core worked, unless nothing happened.
    fn note_moment(&mut self, now: Now, is_due: bool) -> bool {
        let marks = std::mem::take(&mut *self.log.borrow_mut());
        let has_looked = !marks.is_empty() || (is_due && !self.is_due(now));
        let mut numbered = Vec::new();
        for mark in marks {
            self.tries += 1;
            match mark {
                TicketEvent::Probe => {
                    self.is_probing = false;
                    continue;
                }
                TicketEvent::Try(op) => drop(self.last_try.insert(op, self.tries)),
                TicketEvent::Call(_) => {}
            }
            numbered.push((mark, self.tries));
        }
        // The lead of the wall clock: a jump counts even if nothing else happens.
        let ahead = now.wall.0.saturating_sub(now.elapsed.0);
        let has_jumped = has_looked && ahead.abs_diff(self.ahead) > 1_000_000;
        if has_looked {
            self.ahead = ahead;
        }
        if (has_looked && is_due) || has_jumped || !numbered.is_empty() {
            self.growing.push(MomentRecord {
                now,
                turned_to: numbered,
                retire: None,
            });
        }
        has_looked
    }

    /// Takes the output of the core: tasks, answers, events.
    pub(crate) fn collect(&mut self) -> CallOutcome {
        let mut came = CallOutcome::default();
        for task in self.core.take_store_tasks() {
            match task {
                StoreTask::Find { .. } => self.finds.push_back(task),
                StoreTask::Commit(commit) => {
                    let commit = self.planted.commit(commit);
                    came.commits += 1;
                    self.sent.push_back(CommitInFlight {
                        commit: Arc::clone(&commit),
                        moments: std::mem::take(&mut self.growing),
                    });
                    self.store_tasks.push_back(StoreTask::Commit(commit));
                }
                task => self.store_tasks.push_back(task),
            }
        }
        for output in self.core.take_outputs() {
            match output {
                Output::Events(events) => came.events.extend(events),
                Output::Outbox | Output::Operations | Output::Messages(_) => {}
                Output::Answer(ticket, answer) => {
                    let Some(op) = ticket.op() else { continue };
                    self.waiting.remove(&op);
                    let answer = self.record_answer(op, answer);
                    if let Some(call) = self.calls.remove(&op) {
                        came.answers.push(ClientReply { call, answer });
                    }
                }
            }
        }
        came
    }

    /// Records an answer and returns the one for the client.
    fn record_answer(&mut self, op: u64, answer: Result<CallReply, CallError>) -> Option<Answer> {
        let plain = |mut answer: Answer| {
            self.planted.answer(&self.commands[&op].0, &mut answer);
            (RecordedAnswer::Plain(answer.clone()), answer)
        };
        let (answers, heard) = match answer {
            Ok(CallReply::Reply(reply)) => plain(Ok(reply)),
            Err(CallError::Rejected(why)) => plain(Err(why)),
            Ok(CallReply::Deliveries(mut deliveries)) => {
                self.planted.deliveries(&mut deliveries);
                let grants = deliveries.iter().map(|one| one.grant.clone()).collect();
                (RecordedAnswer::Jobs(deliveries), Ok(Reply::Leased(grants)))
            }
            Ok(_) | Err(_) => return None,
        };
        self.answers.insert(op, answers);
        Some(heard)
    }
}

/// The lease command, if the command is one.
pub(crate) fn lease_of(command: &Command) -> Option<&Lease> {
    match command {
        Command::Lease(lease) => Some(lease),
        _ => None,
    }
}
