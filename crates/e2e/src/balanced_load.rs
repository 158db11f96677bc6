//! Clients of nodes behind a load balancer, which enqueue and complete jobs while nodes are restarted. Every request must
//! succeed: clients repeat none that a node may have received.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::command::wait_for;
use crate::history::Elapsed;
use crate::http::{Client, RequestError, Response};

/// Longest time without a job after which a worker ends though some are missing.
const NO_JOB_MAX: Duration = Duration::from_secs(20);
/// Longest wait for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause after which the load balancer asks a node again whether it is ready.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// Longest wait for the answer to that.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between two graphs.
const GRAPH_EVERY: Duration = Duration::from_millis(10);

/// What the clients do. One worker for each shard completes the jobs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of shards, which are 1, 2 and so on.
    pub shards: usize,
    /// The producers of single jobs, each with its shards, which it uses in turn.
    pub producers: Vec<Vec<usize>>,
    /// Pause of a producer after each answer.
    pub every: Duration,
    /// Whether one more producer submits graphs of two jobs, mostly in two shards.
    pub has_graphs: bool,
}

/// What the clients observed.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Number of requests that were sent.
    pub requests: usize,
    /// Requests that failed, and jobs that were handed out twice, in words.
    pub failures: Vec<String>,
    /// Number of jobs that were to be enqueued.
    pub enqueued: usize,
    /// Ids of the jobs whose completion was acknowledged, in no order.
    pub completed: Vec<String>,
    /// Times at which each producer of single jobs got an answer.
    pub answers: Vec<Vec<Elapsed>>,
}

impl Observed {
    /// Number of completions beyond the first one of each job.
    pub fn completed_again(&self) -> usize {
        let once: BTreeSet<&String> = self.completed.iter().collect();
        self.completed.len() - once.len()
    }

    /// Fails if a request failed, or if not every job was completed once.
    pub fn expect_no_failure(&self) -> Result<()> {
        let first: Vec<_> = self.failures.iter().take(10).collect();
        ensure!(
            self.failures.is_empty(),
            "{} requests failed: {first:#?}",
            self.failures.len()
        );
        let (done, enqueued) = (self.completed.len(), self.enqueued);
        ensure!(self.completed_again() == 0, "a job was completed twice");
        ensure!(done == enqueued, "{done} of {enqueued} jobs were completed");
        Ok(())
    }
}

/// Runs clients of these nodes while `act` restarts some. Returns what `act` returned, and what the clients observed.
///
/// # Panics
/// If a client panics.
pub fn run<T>(
    nodes: &[SocketAddr],
    plan: &Plan,
    act: impl FnOnce(&Balancer) -> Result<T>,
) -> Result<(T, Observed)> {
    let balancer = Balancer::new(nodes);
    let user = || User::new(&balancer);
    let (acted, enqueued, completed, answers) = thread::scope(|scope| {
        for (address, is_ready) in &balancer.nodes {
            scope.spawn(|| balancer.check(*address, is_ready));
        }
        let producers: Vec<_> = plan.producers.iter().enumerate().collect();
        let producers = producers.into_iter().map(|(number, shards)| {
            let user = user();
            scope.spawn(move || user.produce(number, shards, plan.every))
        });
        let producers: Vec<_> = producers.collect();
        let submitter = plan.has_graphs.then(|| {
            let user = user();
            scope.spawn(move || user.submit(plan.shards))
        });
        let workers = (1..=plan.shards).map(|shard| {
            let user = user();
            scope.spawn(move || user.work(shard))
        });
        let workers: Vec<_> = workers.collect();
        let acted = act(&balancer);
        balancer.is_over.store(true, Ordering::Relaxed);
        let produced = producers.into_iter().map(|it| it.join().expect("no panic"));
        let (jobs, answers): (Vec<usize>, Vec<_>) = produced.unzip();
        let in_graphs = submitter.map_or(0, |it| it.join().expect("no panic"));
        let enqueued = jobs.iter().sum::<usize>() + in_graphs;
        balancer.enqueued.store(enqueued, Ordering::Relaxed);
        let completed = workers
            .into_iter()
            .flat_map(|it| it.join().expect("no panic"));
        let completed: Vec<String> = completed.collect();
        (acted, enqueued, completed, answers)
    });
    let observed = Observed {
        requests: balancer.requests.into_inner(),
        failures: balancer.failures.into_inner().expect("no panic"),
        enqueued,
        completed,
        answers,
    };
    acted.map(|acted| (acted, observed))
}

/// Nodes behind a load balancer: it passes requests to those that say they are ready.
pub struct Balancer {
    begun: Instant,
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
    fn new(nodes: &[SocketAddr]) -> Self {
        let nodes = nodes.iter().map(|node| (*node, AtomicBool::new(true)));
        Self {
            begun: Instant::now(),
            nodes: nodes.collect(),
            next: AtomicUsize::new(0),
            failures: Mutex::default(),
            requests: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            enqueued: AtomicUsize::new(usize::MAX),
            completed: AtomicUsize::new(0),
        }
    }

    /// Returns the time since the start of the load.
    pub fn now(&self) -> Elapsed {
        self.begun.elapsed()
    }

    /// Waits until clients have sent so many requests more.
    pub fn wait_for_requests(&self, number: usize) -> Result<()> {
        let count = || self.requests.load(Ordering::Relaxed);
        let enough = count() + number;
        wait_for("more requests", || Ok((count() >= enough).then_some(())))
    }

    /// Asks a node whether it is ready, until the load ends.
    fn check(&self, node: SocketAddr, is_ready: &AtomicBool) {
        while !self.is_over.load(Ordering::Relaxed) {
            let mut client = Client::new(node, CHECK_TIMEOUT);
            let asked = client.request("GET", "/readyz", &Value::Null);
            let answer = asked.is_ok_and(|response| response.status == 200);
            is_ready.store(answer, Ordering::Relaxed);
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

    /// Whether every job was completed. A job that waits for one of another shard is ready a moment after that.
    fn has_completed_all(&self) -> bool {
        self.completed.load(Ordering::Relaxed) >= self.enqueued.load(Ordering::Relaxed)
    }

    fn note(&self, failure: &str) {
        let failure = format!("{:?}: {failure}", self.now());
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
            let begun = Instant::now();
            match client.request("POST", path, body) {
                Ok(response) if (200..300).contains(&response.status) => return Some(response),
                Ok(response) => {
                    let answer = response.to_text();
                    let path = format!("{node}{path} after {:?}", begun.elapsed());
                    self.balancer.note(&format!("{path}: {answer}"));
                    return None;
                }
                // No load balancer passes that on to its client.
                Err(RequestError::NotSent(_)) => {}
                Err(error) => {
                    let path = format!("{node}{path} after {:?}", begun.elapsed());
                    self.balancer.note(&format!("{path}: {error:?}"));
                    return None;
                }
            }
        }
    }

    /// Enqueues jobs in these shards in turn; returns their number, and when those that succeeded were answered.
    fn produce(
        mut self,
        number: usize,
        shards: &[usize],
        every: Duration,
    ) -> (usize, Vec<Elapsed>) {
        let (mut jobs, mut answers) = (0, Vec::new());
        for shard in shards.iter().cycle() {
            if self.balancer.is_over.load(Ordering::Relaxed) {
                break;
            }
            let job = json!({"id": format!("p{number}-{jobs}"), "queue": "q", "kind": "k"});
            let answer = self.call(&format!("/api/v1/jobs?shard={shard}"), &job);
            answers.extend(answer.map(|_| self.balancer.now()));
            jobs += 1;
            thread::sleep(every);
        }
        (jobs, answers)
    }

    /// Submits graphs of two jobs, mostly in two shards, the second after the first; returns the number of jobs.
    fn submit(mut self, shards: usize) -> usize {
        let mut graphs = 0;
        while !self.balancer.is_over.load(Ordering::Relaxed) {
            let shard = |at: usize| (at % shards + 1).to_string();
            let job = |name: &str, at: usize| json!({"id": format!("g{graphs}-{name}"), "name": name, "queue": "q", "kind": "k", "shard": shard(at)});
            let other = graphs + usize::from(graphs % 3 > 0);
            let (first, mut second) = (job("first", graphs), job("second", other));
            second["after"] = json!(["first"]);
            self.call("/api/v1/graphs", &json!({"jobs": [first, second]}));
            graphs += 1;
            thread::sleep(GRAPH_EVERY);
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
                    self.balancer.note(&again);
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
