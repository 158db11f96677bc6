//! Clients at work: producers and workers that go on while their server is hurt, and record what they see.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use crate::api::Api;
use crate::checker::{self, Counts};
use crate::history::{History, Lease, Operation, Outcome, Recorder};
use crate::random::Random;
use crate::server::Setup;

/// The queue that everybody uses.
const QUEUE: &str = "load";
/// How long workers hold jobs; renewed or reported well before in honest cases.
const LEASE_FOR: Duration = Duration::from_secs(5);
/// How long a client that finds nobody waits before it tries again.
const PAUSE: Duration = Duration::from_millis(10);
/// Times that a job's attempts may count: enough that no planned failure ends a job.
const RETRIES: u32 = 1_000;

/// How many clients there are.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// From it follows what clients do, though not when.
    pub seed: u64,
    /// Number of threads that enqueue.
    pub producers: u64,
    /// Threads that take and report.
    pub workers: u64,
    /// Live jobs beyond which producers wait.
    pub backlog_max: usize,
}

/// Clients that are running against the server.
pub struct Load {
    recorder: Recorder,
    setup: Setup,
    plan: Plan,
    shared: Arc<Shared>,
    producers: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Until when all clients rest; each finishes what it is doing.
    pause_until: Mutex<Option<Instant>>,
    enqueuing_is_over: AtomicBool,
    has_ended: AtomicBool,
    enqueued: AtomicUsize,
    completed: AtomicUsize,
}

impl Load {
    /// Starts the clients of a server.
    pub fn start(setup: &Setup, plan: Plan) -> Self {
        let mut load = Self {
            recorder: Recorder::default(),
            setup: setup.clone(),
            plan,
            shared: Arc::default(),
            producers: Vec::new(),
            workers: Vec::new(),
            reader: None,
        };
        for number in 0..plan.producers {
            let client = load.client(number);
            load.producers
                .push(thread::spawn(move || client.produce(number)));
        }
        for number in 0..plan.workers {
            let client = load.client(1_000 + number);
            load.workers
                .push(thread::spawn(move || client.work(number)));
        }
        let client = load.client(2_000);
        load.reader = Some(thread::spawn(move || client.read()));
        load
    }

    fn client(&self, number: u64) -> LoadClient {
        LoadClient {
            api: Api::new(self.setup.client()),
            recorder: self.recorder.clone(),
            random: Random::new(self.plan.seed.wrapping_mul(1_000_003).wrapping_add(number)),
            shared: Arc::clone(&self.shared),
            backlog_max: self.plan.backlog_max,
        }
    }

    /// What the clients see is recorded here.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Lets all clients rest for a while: what a server does when nothing is asked of it is tested too.
    pub fn pause(&self, length: Duration) {
        let until = Instant::now() + length;
        *self
            .shared
            .pause_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Jobs completed so far, as far as the clients know.
    pub fn completed(&self) -> usize {
        self.shared.completed.load(Ordering::Relaxed)
    }

    /// Stops the producers, lets the workers finish everything, reads every job, and judges the whole.
    ///
    /// # Panics
    /// If a client did.
    pub fn finish(mut self, timeout: Duration) -> Result<(History, Counts)> {
        self.shared.enqueuing_is_over.store(true, Ordering::Relaxed);
        for producer in self.producers.drain(..) {
            producer.join().expect("a producer does not panic");
        }
        let exchanges = self.recorder.exchanges();
        let mut jobs: Vec<String> = Vec::new();
        for exchange in &exchanges {
            if let Operation::Enqueue { jobs: ids } = &exchange.operation {
                jobs.extend(ids.iter().cloned());
            }
        }
        jobs.sort();
        jobs.dedup();
        let mut api = Api::new(self.setup.client());
        let found = wait_for_final_jobs(&mut api, &jobs, timeout)?;
        self.shared.has_ended.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..).chain(self.reader.take()) {
            worker.join().expect("a client does not panic");
        }
        let history = History {
            exchanges: self.recorder.exchanges(),
            found,
        };
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

/// Everything that was seen of one job, for people.
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

/// Every job as found once all have ended.
fn wait_for_final_jobs(
    api: &mut Api,
    jobs: &[String],
    timeout: Duration,
) -> Result<Vec<crate::history::FinalJob>> {
    let begun = Instant::now();
    let mut found = Vec::new();
    for job in jobs {
        loop {
            match api.find(job)? {
                None => break,
                Some(state)
                    if matches!(state.state.as_str(), "succeeded" | "failed" | "cancelled") =>
                {
                    found.push(state);
                    break;
                }
                Some(state) => {
                    ensure!(
                        begun.elapsed() < timeout,
                        "after {timeout:?} job {job} is still {}",
                        state.state
                    );
                    thread::sleep(PAUSE);
                }
            }
        }
    }
    Ok(found)
}

/// One client, on its own thread.
struct LoadClient {
    api: Api,
    recorder: Recorder,
    random: Random,
    shared: Arc<Shared>,
    backlog_max: usize,
}

impl LoadClient {
    /// Rests while the load does.
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

    /// Lists, counts and looks at jobs between the writes of others, and once more when all of them rest. What it sees is
    /// not judged here; it makes the server bring what it has acknowledged to where it can be read.
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

    fn produce(mut self, number: u64) {
        let mut count = 0_u64;
        while !self.shared.enqueuing_is_over.load(Ordering::Relaxed) {
            self.wait_while_paused();
            let live = self
                .shared
                .enqueued
                .load(Ordering::Relaxed)
                .saturating_sub(self.shared.completed.load(Ordering::Relaxed));
            if live > self.backlog_max {
                thread::sleep(PAUSE);
                continue;
            }
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
        }
    }

    /// Enqueues, and repeats in half of the cases in which there was no answer: under the same ids that is safe.
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
                Outcome::Done { .. } => {
                    self.shared.enqueued.fetch_add(ids.len(), Ordering::Relaxed);
                    return;
                }
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

    /// What becomes of one job: mostly completed, at times after a while; else failed, given back, or forgotten.
    fn run(&mut self, lease: &Lease) {
        match self.random.below(100) {
            // Only the first attempt: a job whose worker vanished three times in a row would rightly be set aside.
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

    /// Completes; repeats until there is an answer, which is safe under the same token.
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
                    return;
                }
                Outcome::Unknown | Outcome::NotSent => thread::sleep(PAUSE),
                _ => return,
            }
        }
    }
}

/// A job whose planned failures never use up its retries.
fn job(id: &str) -> Value {
    json!({
        "id": id,
        "queue": QUEUE,
        "kind": "load",
        "payload": { "id": id, "filler": "x".repeat(100) },
        "retry": { "max": RETRIES, "backoff": "50ms" },
    })
}
