//! The shard's own core over a store, driven call by call.
//!
//! This drives the core and keeps the books: which commands each commit carries, at which moments
//! they were applied, what was answered, and which of it the store holds.

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
use ganger_store::{CommitError, MemoryStore, Store, StoreError};
use ganger_types::command::{Lease, Retire};
use ganger_types::{
    Answer, Change, Command, Commit, Due, Event, Happening, IdTag, JobId, JobKey, Namespace, Now,
    Reply,
};

use crate::actor::names;
use crate::clock::callers_now;
use crate::decisions::{Decisions, Recoveries};
use crate::faulty_store::{CommitOutcome, FaultyStore};
use crate::oracle::{Applied, Moment};
use crate::planted::PlantedBug;
use crate::rng::Rng;
use crate::sim_ticket::{SimTicket, TicketEvent, TicketLog};
use crate::world::Call;

/// A commit that was given to the store, with the moments at which its turn grew.
pub(crate) struct CommitInFlight {
    pub(crate) commit: Arc<Commit>,
    moments: Vec<MomentRecord>,
}

/// What the core turned to at one moment; a try has a number of its own.
struct MomentRecord {
    now: Now,
    turned_to: Vec<(TicketEvent, u64)>,
    /// What retention then sent to the engine.
    retire: Option<Retire>,
}

/// An answer as the core gave it.
enum RecordedAnswer {
    Plain(Answer),
    Jobs(Vec<Delivery>),
}

/// An answer for a client; `None` when the shard said that it could not.
pub(crate) struct ClientReply {
    pub(crate) call: Call,
    pub(crate) answer: Option<Answer>,
}

/// What came of a call into the core.
#[derive(Default)]
pub(crate) struct CallOutcome {
    pub(crate) answers: Vec<ClientReply>,
    pub(crate) events: Vec<Event>,
    /// Commits of turns that were just closed.
    pub(crate) commits: u64,
    /// The engine was read back, and began at this moment.
    pub(crate) restarted: Option<Now>,
}

/// A turn that became durable, for the oracle.
pub(crate) struct DurableTurn {
    pub(crate) commit: Arc<Commit>,
    pub(crate) moments: Vec<Moment>,
    pub(crate) deliveries: Vec<Delivery>,
}

/// A process: core, keeper, what is between them, and the books.
pub(crate) struct ShardProcess {
    core: Core<MemoryReader, SimTicket>,
    executor: StoreExecutor<FaultyStore>,
    store: MemoryStore,
    log: TicketLog,
    /// Orders that the store has not turned to.
    store_tasks: VecDeque<StoreTask>,
    /// Looks for finished jobs, carried out beside the rest.
    finds: VecDeque<StoreTask>,
    reports: VecDeque<StoreReport<MemoryReader>>,
    sent: VecDeque<CommitInFlight>,
    growing: Vec<MomentRecord>,
    /// Sequence of the last commit that the oracle has checked.
    checked: u64,
    answers: BTreeMap<u64, RecordedAnswer>,
    /// Every command that was taken in, with the reading that its caller's clock had then.
    commands: BTreeMap<u64, (Command, Now)>,
    calls: BTreeMap<u64, Call>,
    /// Waiting lease requests: how their clients leave.
    waiting: BTreeMap<u64, Rc<Cell<bool>>>,
    tries: u64,
    last_try: BTreeMap<u64, u64>,
    load_began: Now,
    pub(crate) decisions: Decisions,
    recoveries: Recoveries,
    next_event: u64,
    claimed: BTreeSet<u64>,
    /// A probe is among the requests that wait.
    is_probing: bool,
    /// Wall reading minus elapsed reading when the engine last looked.
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
            reports: VecDeque::new(),
            sent: VecDeque::new(),
            growing: Vec::new(),
            checked: opened.sequence,
            answers: BTreeMap::new(),
            commands: BTreeMap::new(),
            calls: BTreeMap::new(),
            waiting: BTreeMap::new(),
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

    /// Takes a request in. Its caller's clock goes right, and counts in a namespace on its callers' clocks.
    pub(crate) fn push(&mut self, call: Call, wait_for: Duration, now: Now) {
        let op = call.op;
        let callers_now = callers_now(call.sent_at);
        self.commands
            .insert(op, (call.command.clone(), callers_now));
        let is_callers = names::namespace_of(&call.command) == Some(&names::callers());
        let command = self.planted.command(call.command.clone());
        // A lease request there brings its caller's time, which only a call can.
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

    /// A client that waited for a job has gone; the core may learn of it only later.
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

    /// All that wait for jobs give up.
    pub(crate) fn all_leave(&mut self) {
        let all: Vec<u64> = self.waiting.keys().copied().collect();
        for op in all {
            self.leaves(op, true);
        }
    }

    /// Lets the core work. True if it took requests, so that timers were looked at.
    pub(crate) fn run(&mut self, now: Now) -> bool {
        if !self.is_probing {
            self.is_probing = true;
            self.push_marker(TicketEvent::Probe);
        }
        let is_due = self.is_due(now);
        self.core.run(self.planted.time(now));
        self.note_moment(now, is_due)
    }

    /// Whether a timer of the engine is to fire.
    fn is_due(&self, now: Now) -> bool {
        self.core.engine().is_some_and(|engine| {
            engine.next_due().into_iter().any(|due| match due {
                Due::Elapsed(at) => at <= now.elapsed,
                Due::Wall(at) => at <= now.wall,
            })
        })
    }

    /// Remembers a moment, unless nothing came of it.
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
        // How far the wall clock is ahead: a jump is seen even where nothing else happens.
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

    /// Gives the core the store's next report.
    pub(crate) fn report(&mut self, now: Now) -> CallOutcome {
        let Some(report) = self.reports.pop_front() else {
            return CallOutcome::default();
        };
        let is_loaded = matches!(report, StoreReport::Loaded(Ok(_)));
        let is_unknown = matches!(
            &report,
            StoreReport::Failed {
                error: CommitError::Unknown(_),
                ..
            }
        );
        let has_failed = matches!(report, StoreReport::Failed { .. });
        if matches!(report, StoreReport::Committed { .. }) {
            self.recoveries.forget();
        }
        self.core.report(report, self.planted.time(now));
        if has_failed {
            // What was applied since the last commit was given is lost with the engine.
            self.growing.clear();
        }
        if has_failed && !is_unknown {
            let durable = self.core.durable_sequence();
            self.sent.retain(|sent| sent.commit.sequence <= durable);
        }
        let mut came = self.collect();
        if is_loaded && self.core.engine().is_some() {
            came.restarted = Some(self.load_began);
            let durable = self.core.durable_sequence();
            self.sent.retain(|sent| sent.commit.sequence <= durable);
        }
        if is_loaded {
            self.note_moment(now, false);
        }
        came
    }

    /// Carries out a look for finished jobs, if there is one, and reports it.
    pub(crate) fn find(&mut self, now: Now) -> CallOutcome {
        let report = self
            .finds
            .pop_front()
            .and_then(|task| self.executor.execute(task));
        if let Some(report) = report {
            if let StoreReport::Found { jobs: Ok(jobs), .. } = &report
                && self.core.engine().is_some()
            {
                self.growing.push(MomentRecord {
                    now,
                    turned_to: Vec::new(),
                    retire: Some(Retire { jobs: jobs.clone() }),
                });
            }
            self.core.report(report, self.planted.time(now));
        }
        self.collect()
    }

    pub(crate) fn has_finds(&self) -> bool {
        !self.finds.is_empty()
    }

    /// Takes what the core has to say: orders, answers, events.
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
                Output::Outbox | Output::Messages(_) => {}
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

    /// Writes an answer into the books, and says what the client hears.
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

    /// The next turn that the core has let out, if there is one the oracle has not seen. `Err` with
    /// its sequence if the store does not hold it.
    pub(crate) fn next_durable(&mut self) -> Option<Result<DurableTurn, u64>> {
        let first = self.sent.front()?.commit.sequence;
        if first > self.core.durable_sequence() {
            return None;
        }
        if first > self.store.sequence() {
            return Some(Err(first));
        }
        let sent = self.sent.pop_front()?;
        self.checked = sent.commit.sequence;
        let mut deliveries = Vec::new();
        let moments = sent
            .moments
            .into_iter()
            .map(|marks| self.moment(marks, &mut deliveries))
            .collect();
        Some(Ok(DurableTurn {
            commit: sent.commit,
            moments,
            deliveries,
        }))
    }

    fn moment(&mut self, marks: MomentRecord, deliveries: &mut Vec<Delivery>) -> Moment {
        let mut applied = Vec::new();
        for (mark, number) in marks.turned_to {
            let (op, answer) = match mark {
                TicketEvent::Probe => continue,
                TicketEvent::Call(op) => match self.answers.remove(&op) {
                    Some(RecordedAnswer::Plain(answer)) => (op, answer),
                    // Refused before the engine saw it: for lack of space.
                    _ => continue,
                },
                TicketEvent::Try(op) => (op, self.tried(op, number, deliveries)),
            };
            let (command, callers_now) = self.commands[&op].clone();
            applied.push(Applied {
                op,
                command,
                answer,
                callers_now,
            });
        }
        applied.extend(marks.retire.map(|retire| Applied {
            op: 0,
            command: Command::Retire(retire),
            answer: Ok(Reply::Done),
            callers_now: Now::default(),
        }));
        Moment {
            now: marks.now,
            applied,
        }
    }

    /// What a try came to: only the last one can have given jobs.
    fn tried(&mut self, op: u64, number: u64, deliveries: &mut Vec<Delivery>) -> Answer {
        if self.last_try.get(&op) != Some(&number) {
            return Ok(Reply::Leased(Vec::new()));
        }
        match self.answers.remove(&op) {
            Some(RecordedAnswer::Plain(answer)) => answer,
            Some(RecordedAnswer::Jobs(jobs)) => {
                let grants = jobs.iter().map(|one| one.grant.clone()).collect();
                deliveries.extend(jobs);
                Ok(Reply::Leased(grants))
            }
            None => Ok(Reply::Leased(Vec::new())),
        }
    }

    /// Whether the store has something to do.
    pub(crate) fn next_store_task(&self) -> Option<&StoreTask> {
        self.store_tasks.front()
    }

    /// The dice of a command of the commit that the store turns to next. Each command decides once:
    /// a lease request that waits is tried again and again, and must not meet the same outcome forever.
    pub(crate) fn rng_of_next(&mut self) -> Option<Rng> {
        let Some(StoreTask::Commit(commit)) = self.store_tasks.front() else {
            return None;
        };
        let sent = self
            .sent
            .iter()
            .find(|sent| sent.commit.sequence == commit.sequence)?;
        let marks = sent.moments.iter().flat_map(|moment| &moment.turned_to);
        let (op, rng) = marks.into_iter().find_map(|(mark, _)| match mark {
            TicketEvent::Call(op) | TicketEvent::Try(op) if self.decisions.is_open(*op) => {
                self.calls.get(op).map(|call| (*op, call.rng.clone()))
            }
            _ => None,
        })?;
        self.decisions.close(op);
        Some(rng)
    }

    pub(crate) fn recovers_without_pause(&self) -> bool {
        self.recoveries.are_without_pause()
    }

    fn note_recovery(&mut self, began: Now) {
        self.load_began = began;
        self.recoveries.note(began.elapsed);
    }

    /// The store carries out its next order; the report waits to be given to the core.
    pub(crate) fn work(&mut self, end: CommitOutcome) {
        let Some(task) = self.store_tasks.pop_front() else {
            return;
        };
        match &task {
            StoreTask::Commit(_) => self.executor.store_mut().next_outcome = end,
            StoreTask::Load { start } => self.note_recovery(start.now),
            StoreTask::Reopen { now, .. } => self.note_recovery(*now),
            _ => {}
        }
        let report = self.executor.execute(task);
        self.executor.store_mut().next_outcome = CommitOutcome::Success;
        let is_known = |report: &StoreReport<_>| matches!(report, StoreReport::Committed { sequence, .. } if self.claimed.contains(sequence));
        self.reports
            .extend(report.filter(|report| !is_known(report)));
    }

    /// A planted mistake: commits count as durable before the store has turned to them. Says how many.
    pub(crate) fn claim(&mut self) -> usize {
        let mut count = 0;
        for task in &self.store_tasks {
            if let StoreTask::Commit(commit) = task
                && self.claimed.insert(commit.sequence)
            {
                let sequence = commit.sequence;
                self.reports.push_back(StoreReport::Committed {
                    sequence,
                    is_reserve_open: false,
                });
                count += 1;
            }
        }
        count
    }

    pub(crate) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    pub(crate) fn is_turn_in_flight(&self) -> bool {
        !self.sent.is_empty()
    }

    /// The process is dead. What the store holds of it must have been let out in time, had it lived:
    /// so it is let out now, for the oracle alone.
    pub(crate) fn release_after_crash(&mut self, mut now: Now) -> CallOutcome {
        let mut all = CallOutcome::default();
        for _ in 0..8 {
            while self.has_reports() {
                all.events.extend(self.report(now).events);
            }
            let holds_more = self.store.sequence() > self.core.durable_sequence();
            if holds_more && let Some(pause) = self.core.sleep_for(now) {
                // It may have died while its recovery waited.
                now.elapsed = now.elapsed.after(pause);
                now.wall = now.wall.after(pause);
                self.core.run(self.planted.time(now));
                all.events.extend(self.collect().events);
            }
            let Some(place) = self
                .store_tasks
                .iter()
                .position(|task| matches!(task, StoreTask::Reopen { .. }))
                .filter(|_| holds_more)
            else {
                break;
            };
            self.store_tasks.rotate_left(place);
            self.work(CommitOutcome::Success);
        }
        self.sent
            .retain(|sent| sent.commit.sequence <= self.core.durable_sequence());
        all
    }

    /// Where the store and the oracle stand.
    pub(crate) fn sequences(&self) -> (u64, u64) {
        (self.store.sequence(), self.checked)
    }

    /// Events must come out whole and in order, across recoveries.
    pub(crate) fn check_events(&mut self, events: &[Event]) -> Result<(), String> {
        self.next_event = check_events(events, self.next_event)?;
        Ok(())
    }
}

/// The lease of a command, if it is one.
pub(crate) fn lease_of(command: &Command) -> Option<&Lease> {
    match command {
        Command::Lease(lease) => Some(lease),
        _ => None,
    }
}

/// The jobs that changes touch.
pub(crate) fn touched(changes: &[Change]) -> BTreeSet<JobKey> {
    changes
        .iter()
        .filter_map(|change| match change {
            Change::PutJob(record)
            | Change::PutFinished(record)
            | Change::FinishJob { record, .. } => Some(record.key),
            Change::PutPayload { key, .. }
            | Change::RemoveLease(key)
            | Change::RetryJob(key)
            | Change::RemoveJob(key)
            | Change::AppendLog { key, .. } => Some(*key),
            Change::PutInput(row) => Some(row.job),
            Change::RemoveInput { job, .. } => Some(*job),
            Change::PutLease(lease) => Some(lease.key),
            _ => None,
        })
        .collect()
}

/// Checks that events have consecutive places and tell only allowed moves.
fn check_events(events: &[Event], from: u64) -> Result<u64, String> {
    let mut next = from;
    for event in events {
        if event.position.0 != next {
            return Err(format!(
                "event {} follows {next} (rel P5)",
                event.position.0
            ));
        }
        next += 1;
        if let Happening::JobMoved {
            from: Some(from),
            to,
            job,
            ..
        } = &event.happening
            && from.is_terminal()
            && (to.is_terminal() || from == to)
        {
            return Err(format!("job {job} moved from {from} to {to} (rel A2)"));
        }
    }
    Ok(next)
}
