//! A load of producers and workers, which continue through faults of the server and record what they observe.

mod graphs;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::api::Api;
use crate::checker::{self, Counts};
use crate::history::{FinalJob, History, Lease, Operation, Outcome, Recorder};
use crate::http::Client;
use crate::random::Random;
use crate::server::{CLIENT_TIMEOUT, Setup};

/// The queue of all clients.
const QUEUE: &str = "load";
/// Length of the leases. Workers normally renew or report well before the end.
const LEASE_FOR: Duration = Duration::from_secs(5);
/// Pause of a client before it tries again.
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of retries of a job: enough that planned failures never end it.
const RETRIES: u32 = 1_000;

/// Numbers of clients and limits of a load.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed that determines the clients' actions, but not their timing.
    pub seed: u64,
    /// Number of the first producer, which its jobs' ids contain: loads one after the other need different ones.
    pub first_producer: u64,
    /// Number of threads that enqueue.
    pub producers: u64,
    /// Number of threads that lease jobs of the first shard and report.
    pub workers: u64,
    /// Number of shards over which one more thread submits graphs. Each shard but the first has a further worker; 1: there
    /// are no graphs.
    pub graph_shards: u32,
    /// Number of live jobs beyond which producers wait.
    pub backlog_max: usize,
    /// Pause of a producer after each request that enqueues; zero if it sends the next one at once.
    pub every: Duration,
}

/// Running clients of a server.
pub struct Load {
    recorder: Recorder,
    servers: Vec<SocketAddr>,
    timeout: Duration,
    plan: Plan,
    shared: Arc<Shared>,
    producers: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// End of the current pause, in which clients finish their request and then wait; `None` before the first pause.
    pause_until: Mutex<Option<Instant>>,
    enqueuing_is_over: AtomicBool,
    has_ended: AtomicBool,
    enqueued: AtomicUsize,
    completed: AtomicUsize,
    /// Number of completed jobs of graphs.
    completed_of_graphs: AtomicUsize,
}

impl Load {
    /// Starts the clients of a server.
    pub fn start(setup: &Setup, plan: Plan) -> Self {
        Self::start_at(&[setup.address], CLIENT_TIMEOUT, plan)
    }

    /// Starts clients of several servers that serve the same jobs. Each asks one of them, and the next one after it got
    /// no answer within `timeout`.
    pub fn start_at(servers: &[SocketAddr], timeout: Duration, plan: Plan) -> Self {
        let mut load = Self {
            recorder: Recorder::default(),
            servers: servers.to_vec(),
            timeout,
            plan,
            shared: Arc::default(),
            producers: Vec::new(),
            workers: Vec::new(),
            reader: None,
        };
        for number in plan.first_producer..plan.first_producer + plan.producers {
            let client = load.client(number);
            load.producers
                .push(thread::spawn(move || client.produce(number)));
        }
        for number in 0..plan.workers {
            let client = load.client(1_000 + number);
            load.workers
                .push(thread::spawn(move || client.work(number)));
        }
        for shard in 2..=plan.graph_shards {
            let number = 1_500 + u64::from(shard);
            let mut client = load.client(number);
            client.api = client.api.of_shard(&shard.to_string());
            load.workers
                .push(thread::spawn(move || client.work(number)));
        }
        if plan.graph_shards > 1 {
            let number = plan.first_producer;
            let client = load.client(1_800 + number);
            let submit = move || client.submit_graphs(number, plan.graph_shards);
            load.producers.push(thread::spawn(submit));
        }
        let client = load.client(2_000);
        load.reader = Some(thread::spawn(move || client.read()));
        load
    }

    fn client(&self, number: u64) -> LoadClient {
        LoadClient {
            api: self.api(number),
            recorder: self.recorder.clone(),
            random: Random::new(self.plan.seed.wrapping_mul(1_000_003).wrapping_add(number)),
            shared: Arc::clone(&self.shared),
            backlog_max: self.plan.backlog_max,
            every: self.plan.every,
        }
    }

    /// A client that asks first the server that its number chooses.
    fn api(&self, number: u64) -> Api {
        let mut servers = self.servers.clone();
        let first = usize::try_from(number).unwrap_or(0) % servers.len();
        servers.rotate_left(first);
        Api::new(Client::of_any(&servers, self.timeout))
    }

    /// Returns the recorder of all clients.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Pauses all clients, to test what the server does while it is idle.
    pub fn pause(&self, length: Duration) {
        let until = Instant::now() + length;
        *self
            .shared
            .pause_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Returns the number of completed jobs that clients know of.
    pub fn completed(&self) -> usize {
        self.shared.completed.load(Ordering::Relaxed)
    }

    /// Returns the number of completed jobs of graphs that clients know of; `None` if there are no graphs.
    pub fn completed_of_graphs(&self) -> Option<usize> {
        let completed = || self.shared.completed_of_graphs.load(Ordering::Relaxed);
        (self.plan.graph_shards > 1).then(completed)
    }

    /// Stops the producers, lets the workers finish all jobs within `timeout`, and reads every job: also those that have
    /// not ended then.
    ///
    /// # Panics
    /// If a client panicked.
    pub fn end(mut self, timeout: Duration) -> Result<History> {
        self.shared.enqueuing_is_over.store(true, Ordering::Relaxed);
        for producer in self.producers.drain(..) {
            producer.join().expect("a producer does not panic");
        }
        let exchanges = self.recorder.exchanges();
        let mut jobs: Vec<String> = Vec::new();
        for exchange in &exchanges {
            let created = exchange.operation.created();
            jobs.extend(created.into_iter().map(str::to_owned));
        }
        jobs.sort();
        jobs.dedup();
        let found = self.read_final_jobs(&jobs, timeout)?;
        self.shared.has_ended.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..).chain(self.reader.take()) {
            worker.join().expect("a client does not panic");
        }
        Ok(History {
            exchanges: self.recorder.exchanges(),
            found,
        })
    }

    /// Waits until all jobs have ended, or until the time is over, and returns them.
    fn read_final_jobs(&self, jobs: &[String], timeout: Duration) -> Result<Vec<FinalJob>> {
        let begun = Instant::now();
        let mut found = Vec::new();
        let mut apis = BTreeMap::new();
        for job in jobs {
            let shard = graphs::shard_of(job);
            let api = apis.entry(shard).or_insert_with(|| match shard {
                Some(shard) => self.api(0).of_shard(shard),
                None => self.api(0),
            });
            while let Some(state) = api.find(job)? {
                let has_ended =
                    matches!(state.state.as_str(), "succeeded" | "failed" | "cancelled");
                if has_ended || begun.elapsed() > timeout {
                    found.push(state);
                    break;
                }
                thread::sleep(PAUSE);
            }
        }
        Ok(found)
    }

    /// Ends the load as [`Load::end`] does, and checks the history.
    ///
    /// # Panics
    /// If a client panicked.
    pub fn finish(self, timeout: Duration) -> Result<(History, Counts)> {
        let history = self.end(timeout)?;
        let (violations, counts) = checker::check(&history);
        if !violations.is_empty() {
            let shown: Vec<_> = violations
                .iter()
                .take(20)
                .map(|it| format!("{}: {}", it.rule, it.evidence))
                .collect();
            let first = violations[0]
                .evidence
                .split(':')
                .next()
                .unwrap_or_default()
                .replace("job ", "");
            bail!(
                "{} violations:\n{}\n{}",
                violations.len(),
                shown.join("\n"),
                describe_job(&history, &first)
            );
        }
        Ok((history, counts))
    }
}

/// Describes all exchanges about one job, for an error message.
fn describe_job(history: &History, job: &str) -> String {
    let exchanges = history
        .exchanges
        .iter()
        .filter(|exchange| format!("{exchange:?}").contains(job));
    let mut lines: Vec<String> = exchanges.map(|exchange| format!("{exchange:?}")).collect();
    lines.extend(
        history
            .found
            .iter()
            .filter(|found| found.job == job)
            .map(|found| format!("{found:?}")),
    );
    lines.join("\n")
}

/// One client, on its own thread.
struct LoadClient {
    api: Api,
    recorder: Recorder,
    random: Random,
    shared: Arc<Shared>,
    backlog_max: usize,
    every: Duration,
}

impl LoadClient {
    /// Waits until the current pause is over.
    fn wait_while_paused(&self) {
        let until = *self
            .shared
            .pause_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = until {
            thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }

    /// Lists, counts and reads jobs between the writes of the other clients, and during pauses. The answers are not checked;
    /// the reads force the server to write pending rows to its tables.
    fn read(mut self) {
        let reads = [
            "jobs?limit=5",
            "jobs/count?state=ready",
            "jobs/p0-0",
            "queues",
        ];
        let mut next = 0_usize;
        while !self.shared.has_ended.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(self.random.below(150)));
            next += 1;
            let _ = self
                .api
                .call("GET", reads[next % reads.len()], &Value::Null);
            if self.random.chance(50) {
                self.wait_while_paused();
            }
        }
    }

    /// Waits until a producer may enqueue more; `None` once the producers are stopped.
    fn next_turn(&self) -> Option<()> {
        while !self.shared.enqueuing_is_over.load(Ordering::Relaxed) {
            self.wait_while_paused();
            let completed = self.shared.completed.load(Ordering::Relaxed);
            let enqueued = self.shared.enqueued.load(Ordering::Relaxed);
            if enqueued.saturating_sub(completed) <= self.backlog_max {
                return Some(());
            }
            thread::sleep(PAUSE);
        }
        None
    }

    fn has_enqueued(&self, jobs: usize) {
        self.shared.enqueued.fetch_add(jobs, Ordering::Relaxed);
    }

    fn produce(mut self, number: u64) {
        let mut count = 0_u64;
        while let Some(()) = self.next_turn() {
            let size = if self.random.chance(25) {
                2 + self.random.below(9)
            } else {
                1
            };
            let ids: Vec<String> = (count..count + size)
                .map(|count| format!("p{number}-{count}"))
                .collect();
            count += size;
            self.enqueue(&ids);
            thread::sleep(self.every);
        }
    }

    /// Enqueues jobs. Repeats half of the requests without an answer, which is safe because of the ids.
    fn enqueue(&mut self, ids: &[String]) {
        let jobs: Vec<Value> = ids.iter().map(|id| job(id)).collect();
        for _ in 0..100 {
            let operation = Operation::Enqueue { jobs: ids.to_vec() };
            let api = &mut self.api;
            let outcome = self.recorder.exchange(operation, || match jobs.as_slice() {
                [job] => api.enqueue(job),
                jobs => api.submit(jobs),
            });
            match outcome {
                Outcome::Done { .. } => return self.has_enqueued(ids.len()),
                Outcome::Unknown if self.random.chance(50) => return,
                Outcome::Unknown | Outcome::NotSent => thread::sleep(PAUSE),
                _ => return,
            }
        }
    }

    fn work(mut self, number: u64) {
        let worker = format!("w{number}");
        while !self.shared.has_ended.load(Ordering::Relaxed) {
            self.wait_while_paused();
            let max = 1 + u32::try_from(self.random.below(5)).unwrap_or(0);
            let operation = Operation::Lease {
                worker: worker.clone(),
                lease_for: LEASE_FOR,
            };
            let api = &mut self.api;
            let wait = Duration::from_millis(200);
            let outcome = self.recorder.exchange(operation, || {
                api.lease(QUEUE, &worker, max, LEASE_FOR, wait)
            });
            match outcome {
                Outcome::Leased(jobs) => jobs.iter().for_each(|lease| self.run(lease)),
                _ => thread::sleep(PAUSE),
            }
        }
    }

    /// Handles a job: mostly completes it, sometimes after a while; otherwise fails, releases or abandons it.
    fn run(&mut self, lease: &Lease) {
        match self.random.below(100) {
            // Only in the first attempt: a job whose lease expires too often fails.
            0..3 if lease.attempt == 1 => {}
            3..8 => {
                let api = &mut self.api;
                let operation = Operation::Fail {
                    lease: lease.clone(),
                };
                self.recorder
                    .exchange(operation, || api.fail(lease, Duration::from_millis(50)));
            }
            8..13 => {
                let api = &mut self.api;
                self.recorder.exchange(
                    Operation::Release {
                        lease: lease.clone(),
                    },
                    || api.release(lease),
                );
            }
            13..23 => {
                let api = &mut self.api;
                self.recorder.exchange(
                    Operation::Renew {
                        lease: lease.clone(),
                    },
                    || api.renew(lease),
                );
                thread::sleep(Duration::from_millis(self.random.below(300)));
                self.complete(lease);
            }
            _ => self.complete(lease),
        }
    }

    /// Completes a job. Repeats until there is an answer, which is safe because of the token.
    fn complete(&mut self, lease: &Lease) {
        let result = format!("{} by attempt {}", lease.job, lease.attempt);
        for _ in 0..200 {
            let operation = Operation::Complete {
                lease: lease.clone(),
                result: result.clone(),
            };
            let api = &mut self.api;
            let outcome = self
                .recorder
                .exchange(operation, || api.complete(lease, &result));
            match outcome {
                Outcome::Done { .. } => {
                    self.shared.completed.fetch_add(1, Ordering::Relaxed);
                    if graphs::shard_of(&lease.job).is_some() {
                        let of_graphs = &self.shared.completed_of_graphs;
                        of_graphs.fetch_add(1, Ordering::Relaxed);
                    }
                    return;
                }
                Outcome::Unknown | Outcome::NotSent => thread::sleep(PAUSE),
                _ => return,
            }
        }
    }
}

/// Returns a job with more retries than planned failures.
fn job(id: &str) -> Value {
    json!({
        "id": id,
        "queue": QUEUE,
        "kind": "load",
        "payload": { "id": id, "filler": "x".repeat(100) },
        "retry": { "max": RETRIES, "backoff": "50ms" },
    })
}
