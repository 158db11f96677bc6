//! The core under random interleavings of requests, time and commit completions, with commits that fail in every way:
//! no reply before its commit, nothing acknowledged is lost, every request is answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::kit::{
    Fault, GatedReader, GatedStore, StoreControl, as_stored, complete, enqueue, held, lease,
    new_job,
};
use ganger_shard::core::{
    CallReply, Core, Output, Request, StoreExecutor, StoreReport, StoreTask, WaiterId,
};
use ganger_shard::{Hooks, Settings, ShardMetrics};
use ganger_store::{Loaded, MemoryStore, Reader, Reserve, Store};
use ganger_types::qless::{Generation, QlessJob, QlessReply, QlessRequest, QlessRow, QlessState};
use ganger_types::{
    Bytes, Command, Elapsed, ExternalReply, ExternalRow, Happening, JobId, JobKey, JobState,
    Namespace, Now, QlessCall, QlessMessage, Reply, Timestamp,
};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Enqueue(usize),
    Lease { jobs: u32, waits: bool },
    Complete(usize),
    CancelOnDrop(usize),
    Ask,
    AwaitEnd(usize),
    AwaitEndOfQless(usize),
    Qless(usize),
    Run,
    StoreWorks(Fault),
    ReadsFail(bool),
    Reserve(bool),
    Undelivered(usize),
    Time(u64),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        20 => Just(Fault::None),
        1 => Just(Fault::NotApplied),
        1 => Just(Fault::Full),
        1 => Just(Fault::UnknownButThere),
        1 => Just(Fault::UnknownAndLost),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_usize..4).prop_map(Step::Enqueue),
        4 => (1_u32..4, any::<bool>()).prop_map(|(jobs, waits)| Step::Lease { jobs, waits }),
        4 => any::<usize>().prop_map(Step::Complete),
        1 => any::<usize>().prop_map(Step::CancelOnDrop),
        1 => Just(Step::Ask),
        2 => any::<usize>().prop_map(Step::AwaitEnd),
        1 => any::<usize>().prop_map(Step::AwaitEndOfQless),
        4 => (0_usize..6).prop_map(Step::Qless),
        6 => Just(Step::Run),
        6 => fault().prop_map(Step::StoreWorks),
        1 => any::<bool>().prop_map(Step::ReadsFail),
        1 => any::<bool>().prop_map(Step::Reserve),
        1 => any::<usize>().prop_map(Step::Undelivered),
        1 => (0_u64..2_000_000).prop_map(Step::Time),
    ]
}

/// One core and its store, driven step by step.
struct World {
    core: Core<GatedReader, u64>,
    executor: StoreExecutor<GatedStore>,
    store: MemoryStore,
    control: StoreControl,
    store_tasks: VecDeque<StoreTask>,
    now: Now,
    next_ticket: u64,
    /// Requests without an answer yet.
    open: BTreeSet<u64>,
    waiting: Vec<WaiterId>,
    deliveries: Vec<ganger_shard::Delivery>,
    acknowledged: BTreeSet<JobId>,
    completed: BTreeSet<JobId>,
    completing: BTreeMap<u64, JobId>,
    next_event: u64,
    held_tokens: BTreeSet<JobId>,
    /// Ids of qless jobs whose put is not answered yet.
    putting: BTreeMap<u64, Bytes>,
    /// Ids of qless jobs that a message has announced.
    told: BTreeSet<Bytes>,
}

/// Returns the namespace of a qless job, by the number in its id.
fn namespace_of(number: u64) -> Namespace {
    Namespace::from_static(["one", "two"][usize::from(number.is_multiple_of(2))])
}

/// Returns the words of a qless call on the jobs of a shared queue.
fn words_of_qless(which: usize, number: u64) -> String {
    match which {
        0..=2 => format!("put {number}.5 w q {number} k {{}} 0"),
        3 => format!("pop {number} q w 2"),
        4 => format!("complete {number} {} w q {{}}", number.saturating_sub(4)),
        _ => format!("queues {number} q"),
    }
}

impl World {
    fn new() -> Self {
        Self::with_turns_of(6)
    }

    fn with_turns_of(turn_commands_max: usize) -> Self {
        let (store, control) = (MemoryStore::new(), StoreControl::default());
        let mut gate = GatedStore::new(store.clone(), &control);
        let opened = gate.open().expect("memory opens");
        let metrics: Arc<ShardMetrics> = Arc::default();
        let settings = Settings {
            turn_commands_max,
            group_wait: Duration::from_micros(500),
            // Without a cache payloads are read from the store.
            blob_cache_bytes: 0,
            ..Settings::default()
        };
        let now = Now {
            elapsed: Elapsed(0),
            wall: Timestamp(1_700_000_000_000_000),
        };
        let mut drawn = 0_u8;
        let seeds = Box::new(move || {
            drawn += 1;
            [drawn; 32]
        });
        Self {
            core: as_stored(Core::new(
                settings,
                Arc::clone(&metrics),
                opened,
                now,
                seeds,
            )),
            executor: StoreExecutor::new(gate, metrics, Hooks::default()),
            store,
            control,
            store_tasks: VecDeque::new(),
            now,
            next_ticket: 0,
            open: BTreeSet::new(),
            waiting: Vec::new(),
            deliveries: Vec::new(),
            acknowledged: BTreeSet::new(),
            completed: BTreeSet::new(),
            completing: BTreeMap::new(),
            next_event: 1,
            held_tokens: BTreeSet::new(),
            putting: BTreeMap::new(),
            told: BTreeSet::new(),
        }
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.open.insert(self.next_ticket);
        self.next_ticket
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Enqueue(count) => {
                let command = enqueue((0..count).map(|_| new_job("a", "p")).collect());
                let ticket = self.ticket();
                self.core.push(Request::Call {
                    command,
                    at: None,
                    ticket,
                });
            }
            Step::Lease { jobs, waits } => {
                let ticket = self.ticket();
                let waiter = WaiterId(ticket);
                let wait_for = if waits {
                    Duration::from_secs(1)
                } else {
                    Duration::ZERO
                };
                self.waiting.push(waiter);
                let lease = Box::new(lease(&["a"], jobs));
                self.core.push(Request::Lease {
                    lease,
                    wait_for,
                    waiter,
                    ticket,
                });
            }
            Step::Complete(which) if !self.deliveries.is_empty() => {
                let delivery = self.deliveries.swap_remove(which % self.deliveries.len());
                let ticket = self.ticket();
                self.completing.insert(ticket, delivery.grant.job.clone());
                let command = complete(&delivery, Some("r"));
                self.core.push(Request::Call {
                    command,
                    at: None,
                    ticket,
                });
            }
            Step::CancelOnDrop(which) if !self.waiting.is_empty() => {
                let waiter = self.waiting.swap_remove(which % self.waiting.len());
                // A client that has gone reads no more; an answer may or may not come.
                self.open.remove(&waiter.0);
                self.core.push(Request::CancelWaiter(waiter));
            }
            Step::AwaitEnd(which) if !self.acknowledged.is_empty() => {
                let id = self
                    .acknowledged
                    .iter()
                    .nth(which % self.acknowledged.len());
                let id = id.expect("it is within").clone();
                self.await_end(Namespace::default(), id);
            }
            Step::AwaitEndOfQless(which) if !self.told.is_empty() => {
                let jid = self.told.iter().nth(which % self.told.len());
                let jid = jid.expect("it is within");
                let number = String::from_utf8_lossy(jid).parse().expect("a number");
                let id = JobId::new(jid).expect("short");
                self.await_end(namespace_of(number), id);
            }
            Step::Ask => {
                let query = ganger_types::query::Query::Queues(Namespace::default(), None, 1_000);
                let ticket = self.ticket();
                let command = Command::Query(Box::new(query));
                self.core.push(Request::Call {
                    command,
                    at: None,
                    ticket,
                });
            }
            Step::Qless(which) => self.call_qless(which),
            Step::Run => self.run(),
            Step::StoreWorks(fault) => self.let_store_work(fault),
            Step::ReadsFail(fail) => self.control.fail_reads(fail),
            Step::Reserve(is_open) => {
                self.control.set_free(if is_open { 0 } else { 1 << 40 });
                self.control.set_reserve(Reserve {
                    held: u64::from(!is_open),
                    wanted: 1,
                    is_open,
                });
            }
            Step::Undelivered(which) if !self.deliveries.is_empty() => {
                let delivery = self.deliveries.swap_remove(which % self.deliveries.len());
                self.core.push(Request::Undelivered {
                    held: vec![held(&delivery)],
                    request: None,
                    waiter: WaiterId(0),
                });
            }
            Step::Time(micros) => {
                self.now.elapsed = self.now.elapsed.after(Duration::from_micros(micros));
                self.now.wall = self.now.wall.after(Duration::from_micros(micros));
            }
            Step::Complete(_)
            | Step::Undelivered(_)
            | Step::CancelOnDrop(_)
            | Step::AwaitEnd(_)
            | Step::AwaitEndOfQless(_) => {}
        }
    }

    fn await_end(&mut self, namespace: Namespace, id: JobId) {
        let ticket = self.ticket();
        self.core.push(Request::AwaitEnd {
            namespace,
            id,
            wait_for: Duration::from_secs(1),
            waiter: WaiterId(ticket),
            ticket,
        });
    }

    fn call_qless(&mut self, which: usize) {
        let ticket = self.ticket();
        let words = words_of_qless(which, ticket);
        if words.starts_with("put") {
            self.putting.insert(ticket, ticket.to_string().into());
        }
        self.push_words(&words, namespace_of(ticket), ticket);
    }

    fn push_words(&mut self, words: &str, namespace: Namespace, ticket: u64) {
        let words = words.split(' ').map(str::to_owned).map(Bytes::from);
        let request = QlessRequest::Script {
            generation: Generation::Two,
            words: words.collect(),
        };
        self.core.push(Request::Call {
            command: Command::from(QlessCall { namespace, request }),
            at: None,
            ticket,
        });
    }

    fn run(&mut self) {
        self.core.run(self.now);
        self.store_tasks.extend(self.core.take_store_tasks());
        for output in self.core.take_outputs() {
            self.check(output);
        }
    }

    fn let_store_work(&mut self, fault: Fault) {
        let Some(task) = self.store_tasks.pop_front() else {
            return;
        };
        if matches!(task, StoreTask::Commit(_)) {
            self.control.script(&[fault]);
        }
        let report: Option<StoreReport<_>> = self.executor.execute(task).report();
        self.control.clear_script();
        if let Some(report) = report {
            self.core.report(report, self.now);
        }
        self.run();
    }

    fn state_of(&self, id: &JobId) -> Option<JobState> {
        let mut reader = self.store.reader().expect("memory reads");
        let found = reader
            .find(&Namespace::default(), id)
            .expect("memory reads");
        found.map(|job| {
            if job.lease.is_some() {
                JobState::Running
            } else {
                job.record.state
            }
        })
    }

    /// Checks that everything in an output is in the store by then.
    fn check(&mut self, output: Output<u64>) {
        let (ticket, answer) = match output {
            Output::Events(events) => return self.check_events(events),
            Output::Messages(messages) => return self.check_messages(&messages),
            Output::Outbox | Output::Operations => return,
            Output::Answer(ticket, answer) => (ticket, answer),
        };
        let was_open = self.open.remove(&ticket);
        assert!(
            was_open || self.waiting.iter().all(|waiter| waiter.0 != ticket),
            "answered twice"
        );
        self.waiting.retain(|waiter| waiter.0 != ticket);
        if let Some(jid) = self.putting.remove(&ticket) {
            let is_put = matches!(&answer, Ok(CallReply::Reply(Reply::External(ExternalReply::Qless(Ok(QlessReply::Text(put)))))) if *put == jid);
            assert_eq!(is_put, answer.is_ok(), "{answer:?}");
            assert_eq!(is_put, self.told.contains(&jid), "told before, or never");
        }
        match answer {
            Ok(CallReply::Reply(Reply::Enqueued { jobs, .. })) => {
                for job in jobs {
                    assert!(
                        self.state_of(&job.id).is_some(),
                        "acknowledged before its commit"
                    );
                    self.acknowledged.insert(job.id);
                }
            }
            Ok(CallReply::Reply(Reply::Reported { .. })) => {
                let id = self.completing.remove(&ticket).expect("a report was sent");
                assert_eq!(self.state_of(&id), Some(JobState::Succeeded));
                assert!(self.completed.insert(id), "one success per job");
            }
            Ok(CallReply::Deliveries(deliveries)) => {
                for delivery in deliveries {
                    let state = self.state_of(&delivery.grant.job);
                    assert_eq!(
                        state,
                        Some(JobState::Running),
                        "handed out before its commit"
                    );
                    assert_eq!(&delivery.payload[..], b"p");
                    self.held_tokens.insert(delivery.grant.job.clone());
                    if was_open {
                        self.deliveries.push(delivery);
                    }
                }
            }
            Ok(CallReply::Job(Some(job))) if job.record.key == JobKey::OF_QLESS => {
                let stored = self.job_of_qless(&job.record.namespace, &job.record.id);
                let has_ended = stored.state == QlessState::Complete;
                assert!(
                    has_ended || job.record.finished.is_none(),
                    "told before its commit"
                );
            }
            Ok(CallReply::Job(Some(job))) if job.record.finished.is_some() => {
                assert_eq!(self.state_of(&job.record.id), Some(job.record.state));
            }
            _ => {}
        }
    }

    /// Checks that no job lost an attempt. Leases are as long as the run, so an attempt counts only while it lives or
    /// has ended by a report: neither an unusable store nor an undelivered grant is the job's fault.
    fn check_that_no_job_paid(&self) {
        let mut reader = self.store.reader().expect("memory reads");
        for id in &self.acknowledged {
            let found = reader.find(&Namespace::default(), id);
            let job = found.expect("memory reads").expect("it is there");
            let has_run = job.lease.is_some() || job.record.finished.is_some();
            assert_eq!(
                job.record.attempts_counted,
                u32::from(has_run),
                "job {id} in state {:?}",
                job.record.state
            );
        }
    }

    /// Returns the rows of external systems in the store, as an engine loads them.
    fn stored_external_rows(&self) -> Vec<ExternalRow> {
        let mut rows = Vec::new();
        let each = &mut |row| {
            if let Loaded::External(row) = row {
                rows.push(row);
            }
        };
        self.store.clone().load(each).expect("memory reads");
        rows
    }

    /// Returns the qless rows in the store.
    fn stored_qless(&self) -> Vec<(Namespace, QlessRow)> {
        let rows = self.stored_external_rows().into_iter();
        let qless = rows.filter_map(|row| match row {
            ExternalRow::Qless(namespace, row) => Some((namespace, *row)),
            ExternalRow::Key(_) | ExternalRow::Element(_) => None,
        });
        qless.collect()
    }

    fn job_of_qless(&self, namespace: &Namespace, id: &JobId) -> QlessJob {
        let jobs = self.stored_qless().into_iter();
        let mut jobs = jobs.filter_map(|(of, row)| match row {
            QlessRow::Job(job) if of == *namespace => Some(QlessJob::clone(&job)),
            _ => None,
        });
        let found = jobs.find(|job| job.jid == id.as_bytes());
        found.expect("told before its commit")
    }

    fn check_messages(&mut self, messages: &[(Namespace, QlessMessage)]) {
        let stored = self.stored_qless();
        for (namespace, message) in messages {
            let text = String::from_utf8_lossy(&message.payload);
            let Some(jid) = text.strip_suffix(r#"","event":"put","queue":"q"}"#) else {
                continue;
            };
            let jid = jid.strip_prefix(r#"{"jid":""#).expect("it has this form");
            let is_it = |row: &QlessRow| matches!(row, QlessRow::Job(job) if job.jid == jid);
            let is_there = stored.iter().any(|(of, row)| of == namespace && is_it(row));
            assert!(is_there, "told of job {jid} before its commit");
            assert!(self.told.insert(jid.to_owned().into()), "told twice");
        }
    }

    fn check_events(&mut self, events: Vec<ganger_types::Event>) {
        for event in events {
            assert_eq!(
                event.position.0, self.next_event,
                "positions are consecutive"
            );
            self.next_event += 1;
            match &event.happening {
                Happening::JobMoved { key, job, to, .. } if *key == JobKey::OF_QLESS => {
                    let stored = self.job_of_qless(&event.namespace, job);
                    let has_ended = stored.state == QlessState::Complete;
                    assert!(has_ended || !to.is_terminal(), "told before its commit");
                }
                Happening::JobMoved {
                    job, from: None, ..
                } => {
                    assert!(self.state_of(job).is_some(), "told before its commit");
                }
                _ => {}
            }
        }
    }

    /// Stops the faults; every request must then be answered, and everything acknowledged must be stored.
    fn heal(&mut self) {
        self.control.fail_reads(false);
        self.control.set_free(1 << 40);
        self.control.set_reserve(Reserve::default());
        for _ in 0..2_000 {
            self.now.elapsed = self.now.elapsed.after(Duration::from_millis(10));
            self.now.wall = self.now.wall.after(Duration::from_millis(10));
            self.run();
            while !self.store_tasks.is_empty() {
                self.let_store_work(Fault::None);
            }
            if self.open.is_empty() {
                break;
            }
        }
        assert!(self.open.is_empty(), "never answered: {:?}", self.open);
        for id in &self.acknowledged {
            assert!(
                self.state_of(id).is_some(),
                "job {id} was acknowledged and is gone"
            );
        }
        for id in &self.completed {
            assert_eq!(self.state_of(id), Some(JobState::Succeeded));
        }
        self.check_that_no_job_paid();
        let engine = self.core.engine().expect("in service");
        assert_eq!(engine.check_invariants(), Vec::<String>::new());
        let known = engine.dump().into_iter();
        let known: Vec<_> = known.filter(|line| line.starts_with("external ")).collect();
        let stored = self.stored_external_rows().into_iter();
        let mut stored: Vec<_> = stored.map(|row| format!("external {row:?}")).collect();
        stored.sort();
        assert_eq!(known, stored, "the store has what the engine knows");
        assert_eq!(self.core.turns_in_flight(), 0);
        assert_eq!(self.core.durable_sequence(), self.store.sequence());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_interleaving_answers_before_its_commit_or_loses_what_was_acknowledged(
        steps in proptest::collection::vec(step(), 1..150)
    ) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.heal();
    }
}

/// Returns a world with an open turn of seven commands that hopes for three more, while the store is idle. The first
/// commit took as many microseconds as given, and the second one an eighth of that.
fn world_with_a_turn_that_hopes(first_commit_micros: u64) -> World {
    let mut world = World::with_turns_of(64);
    world.run();
    world.let_store_work(Fault::None);
    // A single command is committed at once.
    world.take(Step::Enqueue(1));
    world.run();
    assert_eq!(world.store_tasks.len(), 1);
    // Three commands that arrived meanwhile make one turn. Four together are no load: the turn is committed at once.
    for _ in 0..3 {
        world.take(Step::Enqueue(1));
    }
    world.run();
    assert_eq!(
        world.store_tasks.len(),
        1,
        "the store is busy: the turn stays open"
    );
    world.take(Step::Time(first_commit_micros));
    world.let_store_work(Fault::None);
    assert_eq!(world.store_tasks.len(), 1, "so few do not wait for more");
    // Seven that arrived meanwhile, after three: a batch of ten is expected.
    for _ in 0..7 {
        world.take(Step::Enqueue(1));
    }
    world.run();
    world.take(Step::Time(first_commit_micros / 8));
    world.let_store_work(Fault::None);
    assert!(
        world.store_tasks.is_empty(),
        "seven of ten are there: it waits a little"
    );
    world
}

#[test]
fn a_turn_waits_for_more_commands_only_while_it_may_hope_for_them() {
    let mut world = world_with_a_turn_that_hopes(8_000);
    let sleep = world.core.sleep_for(world.now).expect("it wakes by itself");
    assert_eq!(sleep, Duration::from_micros(500));
    world.take(Step::Time(500));
    world.run();
    assert_eq!(
        world.store_tasks.len(),
        1,
        "no longer than the settings say"
    );
}

#[test]
fn a_turn_waits_for_more_commands_no_longer_than_a_commit_takes() {
    let mut world = world_with_a_turn_that_hopes(800);
    let sleep = world.core.sleep_for(world.now).expect("it wakes by itself");
    assert_eq!(sleep, Duration::from_micros(100), "the average of commits");
    world.take(Step::Time(100));
    world.run();
    assert_eq!(world.store_tasks.len(), 1);
}

#[test]
fn an_end_of_a_job_of_qless_whose_commit_failed_or_seemed_to_is_told_once_it_is_there() {
    let faults = [
        (Fault::None, true),
        (Fault::UnknownButThere, true),
        (Fault::UnknownAndLost, false),
        (Fault::NotApplied, false),
    ];
    for (fault, is_there) in faults {
        let mut world = World::new();
        let namespace = namespace_of(2);
        let settle = |world: &mut World, fault: Fault| {
            world.run();
            world.let_store_work(fault);
            while !world.store_tasks.is_empty() {
                world.let_store_work(Fault::None);
            }
        };
        settle(&mut world, Fault::None);
        let call = |world: &mut World, words: &str, fault: Fault| {
            let ticket = world.ticket();
            world.push_words(words, namespace_of(2), ticket);
            settle(world, fault);
        };
        call(&mut world, "put 1 w q 2 k {} 0", Fault::None);
        world.await_end(namespace, JobId::new("2").expect("short"));
        let waits = *world.open.last().expect("somebody waits");
        settle(&mut world, Fault::None);
        call(&mut world, "pop 2 q w 1", Fault::None);
        assert!(world.open.contains(&waits), "it runs");
        call(&mut world, "complete 3 2 w q {}", fault);
        assert_eq!(!world.open.contains(&waits), is_there, "{fault:?}");
        if !is_there {
            call(&mut world, "complete 4 2 w q {}", Fault::None);
        }
        assert!(world.open.is_empty(), "{fault:?}: {:?}", world.open);
    }
}
