//! A pool with a scripted server and with a shell script as its children.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use ganger_client::{
    Delivery, Error, FailureReport, JobState, LeaseRef, LeaseToken, LostLease, ReleaseReport,
    Report, ReportAnswer, ReportResult, WorkEvent,
};
use ganger_ngsi::job::KIND;
use ganger_ngsi_worker::{
    Deliveries, Error as PoolError, Program, QueueState, Reports, ServerQueries, Settings,
    Shutdown, Summary, run_with,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

/// Longest wait of a test.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Length of the leases.
const LEASE: Duration = Duration::from_secs(600);

/// The state of the scripted server.
#[derive(Clone, Default)]
pub struct ScriptedServer {
    state: Arc<Mutex<ServerState>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct ServerState {
    outcomes: HashMap<String, Vec<Report>>,
    held: HashSet<String>,
    credits: u32,
    granted: u32,
    queue_state: QueueState,
    queries: u32,
}

impl Reports for ScriptedServer {
    fn grant(&self, credits: u32) {
        let mut state = self.state.lock().unwrap();
        state.credits += credits;
        state.granted += credits;
        drop(state);
        self.changed.notify_waiters();
    }

    fn drop_credits(&self) {
        self.state.lock().unwrap().credits = 0;
    }

    async fn report_all(&self, reports: Vec<(LeaseRef, Report)>) -> Vec<ReportResult> {
        let mut state = self.state.lock().unwrap();
        let answers = reports
            .into_iter()
            .map(|(held, report)| {
                state.held.remove(&held.job);
                state.outcomes.entry(held.job).or_default().push(report);
                Ok(ReportAnswer::Ended {
                    state: JobState::Succeeded,
                    retry_at: None,
                    repeat: false,
                })
            })
            .collect();
        drop(state);
        self.changed.notify_waiters();
        answers
    }

    fn abandon(&self, held: &LeaseRef) {
        panic!("the pool gave up leases without a report: {held:?}");
    }

    fn expires_at(&self, held: &LeaseRef) -> Option<Instant> {
        let state = self.state.lock().unwrap();
        state
            .held
            .contains(&held.job)
            .then(|| Instant::now() + LEASE)
    }

    async fn deregister(&self, _patience: Duration) -> Result<(), Error> {
        Ok(())
    }
}

impl ServerQueries for ScriptedServer {
    async fn queue_state(&self) -> Result<QueueState, Error> {
        let mut state = self.state.lock().unwrap();
        state.queries += 1;
        let queue_state = state.queue_state;
        drop(state);
        self.changed.notify_waiters();
        Ok(queue_state)
    }

    async fn held_tasks(&self) -> Result<usize, Error> {
        Ok(self.state.lock().unwrap().held.len())
    }
}

impl ScriptedServer {
    async fn until<T>(&self, mut look: impl FnMut(&mut ServerState) -> Option<T>) -> T {
        let wait = async {
            loop {
                let change = self.changed.notified();
                tokio::pin!(change);
                change.as_mut().enable();
                if let Some(found) = look(&mut self.state.lock().unwrap()) {
                    return found;
                }
                change.await;
            }
        };
        tokio::time::timeout(TIMEOUT, wait)
            .await
            .expect("it should happen before the timeout")
    }

    /// Waits for the outcome of a task, which must be the only one.
    pub async fn outcome(&self, job: &str) -> Report {
        let mut all = self.until(|state| state.outcomes.get(job).cloned()).await;
        assert_eq!(all.len(), 1, "{job}: {all:?}");
        all.remove(0)
    }

    /// Returns the number of reported outcomes of a task.
    pub fn outcomes(&self, job: &str) -> usize {
        let state = self.state.lock().unwrap();
        state.outcomes.get(job).map_or(0, Vec::len)
    }

    /// Waits for the result of a task that must succeed.
    pub async fn result(&self, job: &str) -> String {
        match self.outcome(job).await {
            Report::Complete { result, .. } => String::from_utf8(result.unwrap().to_vec()).unwrap(),
            other => panic!("{job} should have succeeded: {other:?}"),
        }
    }

    /// Waits for the failure of a task that must fail.
    pub async fn failure(&self, job: &str) -> FailureReport {
        match self.outcome(job).await {
            Report::Fail(failing) => failing,
            other => panic!("{job} should have failed: {other:?}"),
        }
    }

    /// Waits for the release of a task that must be released.
    pub async fn release(&self, job: &str) -> ReleaseReport {
        match self.outcome(job).await {
            Report::Release(releasing) => releasing,
            other => panic!("{job} should have been released: {other:?}"),
        }
    }

    /// Waits until the pool has granted this many credits.
    pub async fn credits(&self, wanted: u32) {
        self.until(|state| (state.credits == wanted).then_some(()))
            .await;
    }

    /// Returns the sum of all granted credits.
    pub fn granted(&self) -> u32 {
        self.state.lock().unwrap().granted
    }

    /// Sets the state of the queue.
    pub fn set_queue_state(&self, queue_state: QueueState) {
        self.state.lock().unwrap().queue_state = queue_state;
    }

    /// Waits for the next query of the queue's state.
    pub async fn wait_for_query(&self) {
        let before = self.state.lock().unwrap().queries;
        self.until(|state| (state.queries > before).then_some(()))
            .await;
    }
}

/// Deliveries of the scripted server.
struct TestDeliveries(mpsc::UnboundedReceiver<WorkEvent>);

impl Deliveries for TestDeliveries {
    async fn next(&mut self) -> Option<WorkEvent> {
        self.0.recv().await
    }
}

/// A pool that runs against the scripted server.
pub struct TestPool {
    pub server: ScriptedServer,
    directory: tempfile::TempDir,
    events: mpsc::UnboundedSender<WorkEvent>,
    shutdown: watch::Sender<Shutdown>,
    task: JoinHandle<Result<Summary, PoolError>>,
}

impl TestPool {
    /// Starts a pool with one worker and default settings.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// Starts a pool with changed settings.
    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::at(&ScriptedServer::default(), change)
    }

    /// Starts a pool with this server and changed settings.
    pub fn at(server: &ScriptedServer, change: impl FnOnce(&mut Settings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let gate = directory.path().join("gate");
        let made = Command::new("mkfifo").arg(&gate).status().unwrap();
        assert!(made.success());
        let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/child.sh");
        let mut settings = Settings {
            program: Program {
                path: "/bin/sh".into(),
                arguments: vec![script.into()],
                variables: vec![
                    ("LOG".into(), path("asked")),
                    ("PIDS".into(), path("pids")),
                    ("GATE".into(), path("gate")),
                ],
                hidden: Vec::new(),
            },
            ..Settings::default()
        };
        change(&mut settings);
        let (events, source) = mpsc::unbounded_channel();
        let (shutdown, follow) = watch::channel(Shutdown::No);
        let task = run_with(
            settings,
            TestDeliveries(source),
            server.clone(),
            server.clone(),
            follow,
        );
        Self {
            server: server.clone(),
            directory,
            events,
            shutdown,
            task: tokio::spawn(task),
        }
    }

    /// Delivers tasks in one message. The name of each is its input.
    pub fn deliver(&self, jobs: &[&str]) {
        let jobs = jobs.iter().map(|job| delivery(job)).collect();
        self.deliver_jobs(jobs);
    }

    /// Delivers jobs of any kind.
    pub fn deliver_jobs(&self, jobs: Vec<Delivery>) {
        let mut state = self.server.state.lock().unwrap();
        for job in &jobs {
            state.held.insert(job.lease.job.clone());
            state.credits -= 1;
        }
        drop(state);
        self.events.send(WorkEvent::Jobs(jobs)).unwrap();
    }

    /// Reports the lease of a task as lost.
    pub fn lose(&self, job: &str) {
        self.server.state.lock().unwrap().held.remove(job);
        let lost = LostLease {
            lease: held(job),
            state: None,
            reason: "lost on purpose".into(),
        };
        self.events.send(WorkEvent::LeaseLost(lost)).unwrap();
    }

    /// Waits until a child blocks on the gate, and lets it continue.
    pub async fn open_gate(&self) {
        let gate = self.directory.path().join("gate");
        // The open call blocks until a child reads from the fifo.
        let opened = tokio::task::spawn_blocking(move || fs::write(gate, "go\n"));
        tokio::time::timeout(TIMEOUT, opened)
            .await
            .expect("a child should open the gate")
            .unwrap()
            .unwrap();
    }

    /// Waits until a child has received a request that contains `text`.
    pub async fn wait_for_request(&self, text: &str) {
        let begun = Instant::now();
        while !self.requests().iter().any(|line| line.contains(text)) {
            assert!(
                begun.elapsed() < TIMEOUT,
                "no child received a request with {text}"
            );
            tokio::task::yield_now().await;
        }
    }

    /// Returns the requests to children so far, without the empty ones that test whether they are ready.
    pub fn requests(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file("asked")).unwrap_or_default();
        let lines = text.lines().filter(|line| line.contains("uuid"));
        lines.map(str::to_owned).collect()
    }

    /// Returns the process ids of all children so far, oldest first.
    pub fn children(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.file("pids")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Waits until this many children have been started.
    pub async fn wait_for_children(&self, count: usize) {
        let begun = Instant::now();
        while self.children().len() < count {
            assert!(
                begun.elapsed() < TIMEOUT,
                "fewer than {count} children were started"
            );
            tokio::task::yield_now().await;
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Sets the shutdown level of the pool.
    pub fn set_shutdown(&self, level: Shutdown) {
        self.shutdown.send_replace(level);
    }

    /// Waits for the end of the pool.
    pub async fn wait(self) -> Result<Summary, PoolError> {
        tokio::time::timeout(TIMEOUT, self.task)
            .await
            .expect("the pool should end")
            .unwrap()
    }

    /// Stops the pool gracefully.
    pub async fn stop(self) -> Summary {
        self.set_shutdown(Shutdown::Graceful);
        self.wait().await.unwrap()
    }
}

pub fn held(job: &str) -> LeaseRef {
    LeaseRef {
        job: job.into(),
        token: LeaseToken(Bytes::from(job.to_owned())),
    }
}

/// Returns a task whose input is its name.
pub fn delivery(job: &str) -> Delivery {
    Delivery {
        lease: held(job),
        shard: "1".into(),
        number: 1,
        queue: "quantumleap".into(),
        kind: KIND.into(),
        attempt: 1,
        retries_left: 0,
        lease_for: LEASE,
        expires_at: Instant::now() + LEASE,
        timeout: None,
        deadline: None,
        created_at: SystemTime::now(),
        priority: 0,
        payload: Bytes::from(format!("{{\"input of\": \"{job}\"}}")),
        inputs: Vec::new(),
        graph: None,
        tags: Vec::new(),
        labels: Vec::new(),
    }
}
