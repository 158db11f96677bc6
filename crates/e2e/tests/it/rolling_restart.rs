//! A restart of all nodes, one after the other, under load: no request fails.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use ganger_e2e::command::{Worker, wait_for, write_programs};
use ganger_e2e::http::{Client, RequestError, Response};
use serde_json::{Value, json};

use crate::nodes::{Nodes, ask};

/// Number of shards, which the nodes share.
const SHARDS: usize = 4;
/// Longest time without a job after which a worker ends though some are missing.
const NO_JOB_MAX: Duration = Duration::from_secs(20);
/// Longest wait for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval at which the load balancer asks each node whether it is ready.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Number of requests between two restarts.
const REQUESTS_BETWEEN: usize = 300;

/// Nodes behind a load balancer: it passes requests to those that say they are ready.
struct Balancer {
    nodes: Vec<(SocketAddr, AtomicBool)>,
    next: AtomicUsize,
    failures: Mutex<Vec<String>>,
    requests: AtomicUsize,
    is_over: AtomicBool,
    /// Number of jobs that were enqueued, once that is known, and of those that were completed.
    enqueued: AtomicUsize,
    completed: AtomicUsize,
}

impl Balancer {
    fn new(nodes: Vec<SocketAddr>) -> Self {
        Self {
            nodes: nodes
                .into_iter()
                .map(|node| (node, AtomicBool::new(true)))
                .collect(),
            next: AtomicUsize::new(0),
            failures: Mutex::default(),
            requests: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            enqueued: AtomicUsize::new(usize::MAX),
            completed: AtomicUsize::new(0),
        }
    }

    /// Asks the nodes whether they are ready, until the load ends.
    fn check(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            for (address, is_ready) in &self.nodes {
                let mut client = Client::new(*address, RESPONSE_TIMEOUT);
                let asked = client.request("GET", "/readyz", &Value::Null);
                let answer = asked.is_ok_and(|response| response.status == 200);
                is_ready.store(answer, Ordering::Relaxed);
            }
            thread::sleep(CHECK_EVERY);
        }
    }

    /// Returns a node that was ready when it was asked last.
    fn pick(&self) -> SocketAddr {
        loop {
            let next = self.next.fetch_add(1, Ordering::Relaxed) % self.nodes.len();
            let (address, is_ready) = &self.nodes[next];
            if is_ready.load(Ordering::Relaxed) {
                return *address;
            }
            thread::yield_now();
        }
    }

    /// Waits until clients have sent more requests: the load is there before and after each restart.
    fn wait_for_requests(&self) -> Result<()> {
        let count = || self.requests.load(Ordering::Relaxed);
        let enough = count() + REQUESTS_BETWEEN;
        wait_for("more requests", || Ok((count() >= enough).then_some(())))
    }

    /// Whether every job was completed. A job that waits for one of another shard is ready a moment after that.
    fn has_completed_all(&self) -> bool {
        self.completed.load(Ordering::Relaxed) >= self.enqueued.load(Ordering::Relaxed)
    }

    fn note(&self, failure: String) {
        self.failures.lock().expect("no panic").push(failure);
    }
}

/// A client of the load balancer, with a connection to each node.
struct User<'a> {
    balancer: &'a Balancer,
    connections: BTreeMap<SocketAddr, Client>,
}

impl<'a> User<'a> {
    fn new(balancer: &'a Balancer) -> Self {
        Self {
            balancer,
            connections: BTreeMap::new(),
        }
    }

    /// Sends a request to a node. Everything but success is a failure, which is noted.
    fn call(&mut self, path: &str, body: &Value) -> Option<Response> {
        self.balancer.requests.fetch_add(1, Ordering::Relaxed);
        loop {
            // As pools of connections do, it forgets those that the node has closed.
            let stopped = self.balancer.nodes.iter();
            let stopped = stopped.filter(|(_, is_ready)| !is_ready.load(Ordering::Relaxed));
            stopped.for_each(|(node, _)| drop(self.connections.remove(node)));
            let node = self.balancer.pick();
            let made = || Client::new(node, RESPONSE_TIMEOUT);
            let client = self.connections.entry(node).or_insert_with(made);
            match client.request("POST", path, body) {
                Ok(response) if (200..300).contains(&response.status) => return Some(response),
                Ok(response) => {
                    let answer = response.to_text();
                    self.balancer.note(format!("{node}{path}: {answer}"));
                    return None;
                }
                // No load balancer passes that on to its client.
                Err(RequestError::NotSent(_)) => {}
                Err(error) => {
                    self.balancer.note(format!("{node}{path}: {error:?}"));
                    return None;
                }
            }
        }
    }

    /// Enqueues jobs in all shards in turn; returns their number.
    fn produce(mut self, number: usize) -> usize {
        let mut jobs = 0;
        while !self.balancer.is_over.load(Ordering::Relaxed) {
            let shard = jobs % SHARDS + 1;
            let job = json!({"id": format!("p{number}-{jobs}"), "queue": "q", "kind": "k"});
            self.call(&format!("/api/v1/jobs?shard={shard}"), &job);
            jobs += 1;
            thread::sleep(Duration::from_millis(2));
        }
        jobs
    }

    /// Enqueues jobs for a worker with programs; returns their number.
    fn produce_programs(mut self) -> usize {
        let mut jobs = 0;
        while !self.balancer.is_over.load(Ordering::Relaxed) {
            let job =
                json!({"id": format!("program-{jobs}"), "queue": "programs", "kind": "hello"});
            self.call("/api/v1/jobs?shard=1", &job);
            jobs += 1;
            thread::sleep(Duration::from_millis(50));
        }
        jobs
    }

    /// Submits graphs of two jobs, mostly in two shards, the second after the first; returns the number of jobs.
    fn submit(mut self) -> usize {
        let mut graphs = 0;
        while !self.balancer.is_over.load(Ordering::Relaxed) {
            let shard = |at: usize| (at % SHARDS + 1).to_string();
            let job = |name: &str, at: usize| json!({"id": format!("g{graphs}-{name}"), "name": name, "queue": "q", "kind": "k", "shard": shard(at)});
            let other = graphs + usize::from(graphs % 3 > 0);
            let (first, mut second) = (job("first", graphs), job("second", other));
            second["after"] = json!(["first"]);
            self.call("/api/v1/graphs", &json!({"jobs": [first, second]}));
            graphs += 1;
            thread::sleep(Duration::from_millis(10));
        }
        graphs * 2
    }

    /// Leases and completes the jobs of a shard until all are completed, or none has come for long; returns their ids.
    fn work(mut self, shard: usize) -> Vec<String> {
        let lease = json!({"queues": [{"queue": "q"}], "worker": format!("w{shard}"), "max": 20,
            "lease_for": "30s", "wait": "500ms"});
        let (mut done, mut handed_out) = (Vec::new(), BTreeSet::new());
        let mut last = Instant::now();
        loop {
            let is_over = self.balancer.is_over.load(Ordering::Relaxed)
                && (self.balancer.has_completed_all() || last.elapsed() > NO_JOB_MAX);
            let leased = self.call(&format!("/api/v1/leases?shard={shard}"), &lease);
            let leased = leased.map_or(Value::Null, |response| response.json());
            let jobs = leased["jobs"].as_array().cloned().unwrap_or_default();
            if jobs.is_empty() && is_over {
                return done;
            }
            if !jobs.is_empty() {
                last = Instant::now();
            }
            for job in jobs {
                // A grant that nobody got is released, and has used a number: attempts do not tell.
                if !handed_out.insert(job["id"].to_string()) {
                    let again = format!("a job was handed out twice: {job}");
                    self.balancer.note(again);
                }
                let report = json!({"job": job["id"], "token": job["token"], "result": 1});
                let path = format!("/api/v1/leases/complete?shard={shard}");
                if self.call(&path, &report).is_some() {
                    self.balancer.completed.fetch_add(1, Ordering::Relaxed);
                    done.push(job["id"].as_str().unwrap_or_default().to_owned());
                }
            }
        }
    }
}

/// Returns the times for which shards answered no request while they were handed over, as the log of a node shows them.
fn pauses(log: &str) -> Vec<String> {
    let lines = log
        .lines()
        .filter(|line| line.contains("another node serves the shard"));
    let pauses = lines.filter_map(|line| line.split("pause=").nth(1));
    pauses
        .map(|rest| {
            rest.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

/// Starts a worker that knows all nodes, and is connected to one of them at a time.
fn start_worker(directory: &Path, nodes: &[SocketAddr]) -> Result<Worker> {
    let programs = [("hello", "#!/bin/sh\necho 1\n")];
    let programs = write_programs(&directory.join("programs"), &programs)?;
    let nodes: Vec<String> = nodes.iter().map(SocketAddr::to_string).collect();
    let nodes = nodes.join(",");
    let arguments = ["--server", &nodes, "--shard", "1", "--queue", "programs"];
    Worker::start(&programs, &directory.join("worker.log"), &arguments, &[])
}

/// Waits until the worker has run every program: each in its first attempt, though its node was restarted.
fn expect_programs_ran_once(nodes: &Nodes, programs: usize) -> Result<()> {
    let path = "/api/v1/jobs?queue=programs&limit=1000&shard=1";
    let done = wait_for("the programs", || {
        let path = "/api/v1/jobs/count?queue=programs&state=succeeded&shard=1";
        let done = ask(nodes.setup("a"), path)?.json()["count"].as_u64();
        Ok((done == Some(u64::try_from(programs)?)).then_some(()))
    });
    done.with_context(|| {
        let path = "/api/v1/jobs?queue=programs&state=ready,running,scheduled,failed&shard=1";
        let left = ask(nodes.setup("a"), path).map(|left| left.to_text());
        format!("of {programs}: {left:?}")
    })?;
    let listed = ask(nodes.setup("a"), path)?.json();
    let jobs = listed["jobs"].as_array().cloned().unwrap_or_default();
    eprintln!("{programs} programs ran");
    ensure!(
        programs > 0 && jobs.len() == programs.min(1_000),
        "{listed}"
    );
    let again = jobs.iter().find(|job| job["attempt"] != 1);
    ensure!(again.is_none(), "not in its first attempt: {again:?}");
    Ok(())
}

#[test]
fn no_request_fails_while_all_nodes_are_restarted_in_turn() -> Result<()> {
    const NAME: &str = "no_request_fails_while_all_nodes_are_restarted";
    let names = ["a", "b", "c"];
    let Some(mut nodes) = Nodes::start(NAME, u32::try_from(SHARDS)?, &names)? else {
        return Ok(());
    };
    let addresses = names.map(|name| nodes.setup(name).address);
    let balancer = Balancer::new(addresses.to_vec());
    let directory = tempfile::tempdir()?;
    let mut worker = start_worker(directory.path(), &addresses)?;
    let (enqueued, programs, done) = thread::scope(|scope| -> Result<_> {
        let user = User::new(&balancer);
        let programs = scope.spawn(move || user.produce_programs());
        let checks = scope.spawn(|| balancer.check());
        let mut producers: Vec<_> = (0..2)
            .map(|number| {
                let user = User::new(&balancer);
                scope.spawn(move || user.produce(number))
            })
            .collect();
        let user = User::new(&balancer);
        producers.push(scope.spawn(move || user.submit()));
        let workers: Vec<_> = (1..=SHARDS)
            .map(|shard| {
                let user = User::new(&balancer);
                scope.spawn(move || user.work(shard))
            })
            .collect();
        let restarted = (|| {
            for name in names {
                balancer.wait_for_requests()?;
                let begun = Instant::now();
                nodes.server(name).stop()?;
                eprintln!("{name} stopped after {:?}", begun.elapsed());
                let server = nodes.setup(name).start()?;
                *nodes.server(name) = server;
            }
            balancer.wait_for_requests()
        })();
        balancer.is_over.store(true, Ordering::Relaxed);
        let enqueued: usize = producers
            .into_iter()
            .map(|it| it.join().expect("no panic"))
            .sum();
        balancer.enqueued.store(enqueued, Ordering::Relaxed);
        let programs = programs.join().expect("no panic");
        let done: Vec<_> = workers
            .into_iter()
            .flat_map(|it| it.join().expect("no panic"))
            .collect();
        checks.join().expect("no panic");
        restarted.map(|()| (enqueued, programs, done))
    })?;
    let failures = balancer.failures.into_inner().expect("no panic");
    let requests = balancer.requests.into_inner();
    let mut handed_over = 0;
    for name in names {
        let pauses = pauses(&nodes.setup(name).log_text());
        eprintln!("{name} handed shards over: {pauses:?}");
        handed_over += pauses.len();
    }
    eprintln!(
        "{requests} requests, {enqueued} jobs, {} failures",
        failures.len()
    );
    let first: Vec<_> = failures.iter().take(10).collect();
    ensure!(
        failures.is_empty(),
        "{} requests failed: {first:#?}",
        failures.len()
    );
    let mut once = done.clone();
    once.sort_unstable();
    once.dedup();
    ensure!(once.len() == done.len(), "a job was completed twice");
    ensure!(
        done.len() == enqueued,
        "{} of {enqueued} jobs were completed",
        done.len()
    );
    expect_programs_ran_once(&nodes, programs)?;
    ensure!(worker.stop()?.success(), "the worker stops in order");
    ensure!(
        handed_over >= SHARDS,
        "each shard had to move at least once"
    );
    nodes.stop()
}

#[test]
fn a_request_for_the_shard_of_a_dead_node_waits_for_the_next_owner() -> Result<()> {
    const NAME: &str = "a_request_for_the_shard_of_a_dead_node_waits";
    /// Every request waits so long before it is refused.
    const WAITS_FOR: Duration = Duration::from_secs(5);
    let Some(mut nodes) = Nodes::start(NAME, 1, &["a", "b"])? else {
        return Ok(());
    };
    // The first node came alone, and owns the shard.
    let mut client = Client::new(nodes.setup("b").address, RESPONSE_TIMEOUT);
    let mut enqueue = |id: &str| {
        let job = json!({"id": id, "queue": "q", "kind": "k"});
        let answer = client.request("POST", "/api/v1/jobs", &job);
        answer.map_err(|error| anyhow!("{error:?}"))
    };
    ensure!(enqueue("before")?.status < 300);
    nodes.server("a").kill()?;
    for attempt in 0.. {
        let begun = Instant::now();
        let answer = enqueue("after")?;
        if answer.status < 300 {
            break;
        }
        // On a machine that does other things too, the shard may be taken over later.
        let (text, took) = (answer.to_text(), begun.elapsed());
        ensure!(
            took >= WAITS_FOR.mul_f64(0.9),
            "refused after {took:?}: {text}"
        );
        ensure!(attempt < 10, "nobody takes the shard over: {text}");
    }
    let server = nodes.setup("a").start()?;
    *nodes.server("a") = server;
    nodes.stop()
}
