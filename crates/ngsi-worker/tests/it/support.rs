//! A pool with a scripted server and with children that are a script too.
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

/// Longer than anything here takes: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Length of the leases of the test.
const LEASE: Duration = Duration::from_secs(600);

/// What the scripted server has heard.
#[derive(Clone, Default)]
pub struct Sink {
    heard: Arc<Mutex<Heard>>,
    rings: Arc<Notify>,
}

#[derive(Default)]
struct Heard {
    outcomes: HashMap<String, Vec<Report>>,
    held: HashSet<String>,
    credits: u32,
    granted: u32,
    queue_state: QueueState,
    asked: u32,
}

impl Reports for Sink {
    fn grant(&self, credits: u32) {
        let mut heard = self.heard.lock().unwrap();
        heard.credits += credits;
        heard.granted += credits;
        drop(heard);
        self.rings.notify_waiters();
    }

    fn drop_credits(&self) {
        self.heard.lock().unwrap().credits = 0;
    }

    async fn report_all(&self, reports: Vec<(LeaseRef, Report)>) -> Vec<ReportResult> {
        let mut heard = self.heard.lock().unwrap();
        let answers = reports
            .into_iter()
            .map(|(held, report)| {
                heard.held.remove(&held.job);
                heard.outcomes.entry(held.job).or_default().push(report);
                Ok(ReportAnswer::Ended {
                    state: JobState::Succeeded,
                    retry_at: None,
                    repeat: false,
                })
            })
            .collect();
        drop(heard);
        self.rings.notify_waiters();
        answers
    }

    fn abandon(&self, held: &LeaseRef) {
        panic!("a pool gives no lease up silently: {held:?}");
    }

    fn expires_at(&self, held: &LeaseRef) -> Option<Instant> {
        let heard = self.heard.lock().unwrap();
        heard
            .held
            .contains(&held.job)
            .then(|| Instant::now() + LEASE)
    }

    async fn deregister(&self, _patience: Duration) -> Result<(), Error> {
        Ok(())
    }
}

impl ServerQueries for Sink {
    async fn queue_state(&self) -> Result<QueueState, Error> {
        let mut heard = self.heard.lock().unwrap();
        heard.asked += 1;
        let queue_state = heard.queue_state;
        drop(heard);
        self.rings.notify_waiters();
        Ok(queue_state)
    }

    async fn held_tasks(&self) -> Result<usize, Error> {
        Ok(self.heard.lock().unwrap().held.len())
    }
}

impl Sink {
    async fn until<T>(&self, mut look: impl FnMut(&mut Heard) -> Option<T>) -> T {
        let wait = async {
            loop {
                let rung = self.rings.notified();
                tokio::pin!(rung);
                rung.as_mut().enable();
                if let Some(found) = look(&mut self.heard.lock().unwrap()) {
                    return found;
                }
                rung.await;
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .expect("it happens in time")
    }

    /// Waits for the outcome of a task; there is never a second one.
    pub async fn outcome(&self, job: &str) -> Report {
        let mut all = self.until(|heard| heard.outcomes.get(job).cloned()).await;
        assert_eq!(all.len(), 1, "{job}: {all:?}");
        all.remove(0)
    }

    /// Outcomes reported of a task so far.
    pub fn outcomes(&self, job: &str) -> usize {
        let heard = self.heard.lock().unwrap();
        heard.outcomes.get(job).map_or(0, Vec::len)
    }

    /// The result of a task that must succeed.
    pub async fn result(&self, job: &str) -> String {
        match self.outcome(job).await {
            Report::Complete { result, .. } => String::from_utf8(result.unwrap().to_vec()).unwrap(),
            other => panic!("{job} should have succeeded: {other:?}"),
        }
    }

    /// The failure of a task that must fail.
    pub async fn failure(&self, job: &str) -> FailureReport {
        match self.outcome(job).await {
            Report::Fail(failing) => failing,
            other => panic!("{job} should have failed: {other:?}"),
        }
    }

    /// How a task was given back that must be.
    pub async fn release(&self, job: &str) -> ReleaseReport {
        match self.outcome(job).await {
            Report::Release(releasing) => releasing,
            other => panic!("{job} should have been released: {other:?}"),
        }
    }

    /// Waits until so many deliveries are allowed.
    pub async fn credits(&self, wanted: u32) {
        self.until(|heard| (heard.credits == wanted).then_some(()))
            .await;
    }

    /// Number of deliveries ever allowed so far.
    pub fn granted(&self) -> u32 {
        self.heard.lock().unwrap().granted
    }

    /// Says from now on that the queue stands so.
    pub fn stand(&self, queue_state: QueueState) {
        self.heard.lock().unwrap().queue_state = queue_state;
    }

    /// Waits until the pool has asked how the queue stands, once more.
    pub async fn asked(&self) {
        let before = self.heard.lock().unwrap().asked;
        self.until(|heard| (heard.asked > before).then_some(()))
            .await;
    }
}

/// Deliveries of a test.
struct Source(mpsc::UnboundedReceiver<WorkEvent>);

impl Deliveries for Source {
    async fn next(&mut self) -> Option<WorkEvent> {
        self.0.recv().await
    }
}

/// A pool that runs against the test server.
pub struct Rig {
    pub sink: Sink,
    directory: tempfile::TempDir,
    events: mpsc::UnboundedSender<WorkEvent>,
    shutdown: watch::Sender<Shutdown>,
    pool: JoinHandle<Result<Summary, PoolError>>,
}

impl Rig {
    /// One worker, settings as usual.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// Settings changed by `change`, which may look at the directory of the test too.
    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::at(&Sink::default(), change)
    }

    /// Likewise, with a server that has been told something.
    pub fn at(sink: &Sink, change: impl FnOnce(&mut Settings)) -> Self {
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
        let pool = run_with(settings, Source(source), sink.clone(), sink.clone(), follow);
        Self {
            sink: sink.clone(),
            directory,
            events,
            shutdown,
            pool: tokio::spawn(pool),
        }
    }

    /// Delivers tasks in one message; each is called as what its input says.
    pub fn deliver(&self, jobs: &[&str]) {
        let jobs = jobs.iter().map(|job| delivery(job)).collect();
        self.deliver_jobs(jobs);
    }

    /// Delivers jobs of any kind.
    pub fn deliver_jobs(&self, jobs: Vec<Delivery>) {
        let mut heard = self.sink.heard.lock().unwrap();
        for job in &jobs {
            heard.held.insert(job.lease.job.clone());
            heard.credits -= 1;
        }
        drop(heard);
        self.events.send(WorkEvent::Jobs(jobs)).unwrap();
    }

    /// The lease of a task is lost.
    pub fn lose(&self, job: &str) {
        self.sink.heard.lock().unwrap().held.remove(job);
        let lost = LostLease {
            lease: held(job),
            state: None,
            reason: "as planned".into(),
        };
        self.events.send(WorkEvent::LeaseLost(lost)).unwrap();
    }

    /// Waits until a child stands at the gate, and lets it through.
    pub async fn open_gate(&self) {
        let gate = self.directory.path().join("gate");
        // Opening it waits for a reader.
        let opened = tokio::task::spawn_blocking(move || fs::write(gate, "go\n"));
        tokio::time::timeout(PATIENCE, opened)
            .await
            .expect("a child comes to the gate")
            .unwrap()
            .unwrap();
    }

    /// Waits until a child has been asked something that contains `text`.
    pub async fn asked_for(&self, text: &str) {
        let begun = Instant::now();
        while !self.asked().iter().any(|line| line.contains(text)) {
            assert!(begun.elapsed() < PATIENCE, "no child was asked for {text}");
            tokio::task::yield_now().await;
        }
    }

    /// What children were asked so far, but for whether they are ready.
    pub fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file("asked")).unwrap_or_default();
        let lines = text.lines().filter(|line| line.contains("uuid"));
        lines.map(str::to_owned).collect()
    }

    /// The processes that were children so far, oldest first.
    pub fn children(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.file("pids")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Waits until so many children have been started.
    pub async fn until_children(&self, count: usize) {
        let begun = Instant::now();
        while self.children().len() < count {
            assert!(begun.elapsed() < PATIENCE, "not {count} children");
            tokio::task::yield_now().await;
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Says whether the pool should go on.
    pub fn say(&self, level: Shutdown) {
        self.shutdown.send_replace(level);
    }

    /// Waits for the pool's end.
    pub async fn ended(self) -> Result<Summary, PoolError> {
        tokio::time::timeout(PATIENCE, self.pool)
            .await
            .expect("the pool ends")
            .unwrap()
    }

    /// Stops the pool gracefully.
    pub async fn stop(self) -> Summary {
        self.say(Shutdown::Graceful);
        self.ended().await.unwrap()
    }
}

pub fn held(job: &str) -> LeaseRef {
    LeaseRef {
        job: job.into(),
        token: LeaseToken(Bytes::from(job.to_owned())),
    }
}

/// A task whose input is its name.
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
