//! A worker with real programs and a scripted server, checked for processes and files that it leaves behind.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test ends with its first surprise"
)]

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use ganger_client::{
    Delivery, Error, FailureReport, JobState, LeaseRef, LeaseToken, LostLease, ReleaseReport,
    Report, ReportAnswer, ReportResult, WorkEvent,
};
use ganger_worker::{Deliveries, Handlers, Reports, Settings, Shutdown, Summary, run_with};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

/// Timeout of every wait, so that a failing test does not hang.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Length of leases in the tests.
pub const LEASE: Duration = Duration::from_secs(600);

/// The scripted server: records the reports of a worker.
#[derive(Clone, Default)]
pub struct ReportSink {
    received: Arc<Mutex<ReceivedReports>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct ReceivedReports {
    outcomes: HashMap<String, Vec<Report>>,
    logs: HashMap<String, Vec<u8>>,
    progress: HashMap<String, Vec<(u32, String)>>,
    credits: i64,
    abandoned: Vec<String>,
    expires: HashMap<String, Instant>,
    is_unreachable: bool,
}

impl Reports for ReportSink {
    fn grant(&self, credits: u32) {
        self.received.lock().unwrap().credits += i64::from(credits);
        self.changed.notify_waiters();
    }

    fn drop_credits(&self) {
        self.received.lock().unwrap().credits = 0;
    }

    async fn report_all(&self, reports: Vec<(LeaseRef, Report)>) -> Vec<ReportResult> {
        self.wait_until(|received| (!received.is_unreachable).then_some(()))
            .await;
        let mut received = self.received.lock().unwrap();
        let answers = reports
            .into_iter()
            .map(|(lease, report)| Ok(received.take(lease.job, report)))
            .collect();
        drop(received);
        self.changed.notify_waiters();
        answers
    }

    fn expires_at(&self, lease: &LeaseRef) -> Option<Instant> {
        self.received
            .lock()
            .unwrap()
            .expires
            .get(&lease.job)
            .copied()
    }

    fn abandon(&self, lease: &LeaseRef) {
        self.received
            .lock()
            .unwrap()
            .abandoned
            .push(lease.job.clone());
        self.changed.notify_waiters();
    }

    async fn deregister(&self, _patience: Duration) -> Result<(), Error> {
        Ok(())
    }
}

impl ReceivedReports {
    fn take(&mut self, job: String, report: Report) -> ReportAnswer {
        match report {
            Report::Log { offset, bytes } => {
                let log = self.logs.entry(job).or_default();
                assert_eq!(
                    offset,
                    u64::try_from(log.len()).unwrap(),
                    "the log has no hole and no repeat"
                );
                log.extend_from_slice(&bytes);
                return ReportAnswer::Logged {
                    bytes: 0,
                    dropped: 0,
                };
            }
            Report::Renew(renewing) => {
                let progress = renewing.progress.map(|one| (one.millionths, one.message));
                self.progress.entry(job).or_default().extend(progress);
                return ReportAnswer::Renewed { lease_for: LEASE };
            }
            outcome => self.outcomes.entry(job).or_default().push(outcome),
        }
        ReportAnswer::Ended {
            state: JobState::Succeeded,
            retry_at: None,
            repeat: false,
        }
    }
}

impl ReportSink {
    async fn wait_until<T>(&self, mut find: impl FnMut(&mut ReceivedReports) -> Option<T>) -> T {
        let wait = async {
            loop {
                let notified = self.changed.notified();
                tokio::pin!(notified);
                notified.as_mut().enable();
                if let Some(found) = find(&mut self.received.lock().unwrap()) {
                    return found;
                }
                notified.await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, wait)
            .await
            .expect("it happens in time")
    }

    /// Waits for the outcome of a job.
    pub async fn outcome(&self, job: &str) -> Report {
        self.wait_until(|received| received.outcomes.get(job).map(|all| all[0].clone()))
            .await
    }

    /// Returns how many outcomes of a job were reported.
    pub fn outcome_count(&self, job: &str) -> usize {
        self.received
            .lock()
            .unwrap()
            .outcomes
            .get(job)
            .map_or(0, Vec::len)
    }

    /// Waits until a job has succeeded; returns its result.
    pub async fn result(&self, job: &str) -> String {
        match self.outcome(job).await {
            Report::Complete { result, .. } => String::from_utf8(result.unwrap().to_vec()).unwrap(),
            other => panic!("job {job} should have succeeded: {other:?}"),
        }
    }

    /// Waits until a job has failed; returns the failure.
    pub async fn failure(&self, job: &str) -> FailureReport {
        match self.outcome(job).await {
            Report::Fail(failing) => failing,
            other => panic!("job {job} should have failed: {other:?}"),
        }
    }

    /// Waits until a job was released; returns the release.
    pub async fn release(&self, job: &str) -> ReleaseReport {
        match self.outcome(job).await {
            Report::Release(releasing) => releasing,
            other => panic!("job {job} should have been released: {other:?}"),
        }
    }

    /// Waits until a job's lease was abandoned.
    pub async fn wait_until_abandoned(&self, job: &str) {
        self.wait_until(|received| {
            received
                .abandoned
                .iter()
                .any(|one| one == job)
                .then_some(())
        })
        .await;
    }

    /// Waits until the lease of a job was abandoned or released.
    pub async fn wait_until_abandoned_or_released(&self, job: &str) {
        self.wait_until(|received| {
            let is_released = |all: &Vec<Report>| matches!(all[0], Report::Release(_));
            let is_given_up = received.abandoned.iter().any(|one| one == job)
                || received.outcomes.get(job).is_some_and(is_released);
            is_given_up.then_some(())
        })
        .await;
    }

    /// Returns the number of deliveries that the worker allows now.
    pub fn credits_now(&self) -> i64 {
        self.received.lock().unwrap().credits
    }

    /// Waits until a job's log has `text`.
    pub async fn wait_for_log(&self, job: &str, text: &str) {
        let has = |log: &Vec<u8>| String::from_utf8_lossy(log).contains(text);
        self.wait_until(|received| received.logs.get(job).filter(|log| has(log)).map(|_| ()))
            .await;
    }

    /// Returns the log of a job so far.
    pub fn log(&self, job: &str) -> Vec<u8> {
        self.received
            .lock()
            .unwrap()
            .logs
            .get(job)
            .cloned()
            .unwrap_or_default()
    }

    /// Waits for the first progress of a job: millionths, and the message.
    pub async fn first_progress(&self, job: &str) -> (u32, String) {
        self.wait_until(|received| {
            received
                .progress
                .get(job)
                .and_then(|all| all.first().cloned())
        })
        .await
    }

    /// Waits until exactly `credits` deliveries are allowed.
    pub async fn wait_for_credits(&self, credits: i64) {
        self.wait_until(|received| (received.credits == credits).then_some(()))
            .await;
    }

    /// Makes the server unreachable, or reachable again.
    pub fn set_unreachable(&self, is_unreachable: bool) {
        self.received.lock().unwrap().is_unreachable = is_unreachable;
        self.changed.notify_waiters();
    }

    fn use_credit(&self, job: &str, expires_at: Instant) {
        let mut received = self.received.lock().unwrap();
        received.credits -= 1;
        received.expires.insert(job.into(), expires_at);
    }
}

struct ScriptedEvents(mpsc::UnboundedReceiver<WorkEvent>);

impl Deliveries for ScriptedEvents {
    async fn next(&mut self) -> Option<WorkEvent> {
        self.0.recv().await
    }
}

/// A running worker with its scripted server.
pub struct TestWorker {
    pub programs: tempfile::TempDir,
    pub scratch: tempfile::TempDir,
    pub sink: ReportSink,
    pub name: String,
    events: mpsc::UnboundedSender<WorkEvent>,
    shutdown: watch::Sender<Shutdown>,
    worker: JoinHandle<Result<Summary, ganger_worker::Error>>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl TestWorker {
    /// Starts a worker with one slot.
    pub fn new() -> Self {
        Self::with("", |_| {})
    }

    /// Starts a worker with one slot, with this `handlers.toml` and with changed settings.
    pub fn with(handlers: &str, change: impl FnOnce(&mut Settings)) -> Self {
        let programs = tempfile::tempdir().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-worker-{}-{number}", std::process::id());
        let mut settings = Settings {
            name: Some(name.clone()),
            directory: programs.path().into(),
            concurrency: 1,
            grace: Duration::from_millis(300),
            scratch: scratch.path().into(),
            handlers: Some(Handlers::parse(handlers).unwrap()),
            supervisor: supervisor(),
            ..Settings::default()
        };
        change(&mut settings);
        let (events, script) = mpsc::unbounded_channel();
        let (shutdown, last_event) = watch::channel(Shutdown::No);
        let sink = ReportSink::default();
        let worker = tokio::spawn(run_with(
            settings,
            ScriptedEvents(script),
            sink.clone(),
            last_event,
        ));
        Self {
            programs,
            scratch,
            sink,
            name,
            events,
            shutdown,
            worker,
        }
    }

    /// Adds a shell script as the program of a kind.
    pub fn sh(&self, kind: &str, script: &str) -> &Self {
        self.add_program(kind, &format!("#!/bin/sh\n{script}\n"))
    }

    /// Adds a Python script as the program of a kind.
    pub fn python(&self, kind: &str, script: &str) -> &Self {
        self.add_program(kind, &format!("#!/usr/bin/env python3\n{script}\n"))
    }

    /// Adds a file with this text as the program of a kind.
    pub fn add_program(&self, kind: &str, text: &str) -> &Self {
        let path = self.programs.path().join(kind);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// Delivers a job with a payload.
    pub fn deliver_job(&self, job: &str, kind: &str, payload: &str) {
        let mut delivery = delivery(job, kind);
        delivery.payload = Bytes::copy_from_slice(payload.as_bytes());
        self.deliver(delivery);
    }

    /// Delivers a job to the worker.
    pub fn deliver(&self, delivery: Delivery) {
        self.sink
            .use_credit(&delivery.lease.job, delivery.expires_at);
        self.events.send(WorkEvent::Jobs(vec![delivery])).unwrap();
    }

    /// Reports to the worker that the lease of a job is lost.
    pub fn lose_lease(&self, job: &str) {
        let lost = LostLease {
            lease: lease_of(job),
            state: Some(JobState::Cancelled),
            reason: "a test".into(),
        };
        self.events.send(WorkEvent::LeaseLost(lost)).unwrap();
    }

    /// Requests a stop of the worker.
    pub fn stop(&self, level: Shutdown) {
        self.shutdown.send_replace(level);
    }

    /// Stops the worker gracefully; asserts that it leaves no process and no file.
    pub async fn end(self) -> Summary {
        self.stop(Shutdown::Graceful);
        self.join().await
    }

    /// Waits until the worker has ended; asserts that it leaves no process and no file.
    pub async fn join(self) -> Summary {
        let summary = tokio::time::timeout(TEST_TIMEOUT, self.worker)
            .await
            .expect("it ends in time")
            .unwrap()
            .unwrap();
        assert_eq!(
            processes(&self.name),
            Vec::<String>::new(),
            "no process is left"
        );
        until_true("no file is left", || {
            fs::read_dir(self.scratch.path()).unwrap().count() == 0
        });
        summary
    }

    /// Asserts that no program of this worker runs.
    pub fn assert_no_process(&self) {
        assert_eq!(
            processes(&self.name),
            Vec::<String>::new(),
            "no process is left"
        );
    }
}

/// Returns a delivery of a job without a payload.
pub fn delivery(job: &str, kind: &str) -> Delivery {
    Delivery {
        lease: lease_of(job),
        shard: "1".into(),
        number: 1,
        queue: "default".into(),
        kind: kind.into(),
        attempt: 1,
        retries_left: 3,
        lease_for: LEASE,
        expires_at: Instant::now() + LEASE,
        timeout: None,
        deadline: None,
        created_at: SystemTime::now(),
        priority: 0,
        payload: Bytes::new(),
        inputs: Vec::new(),
        graph: None,
        tags: Vec::new(),
        labels: Vec::new(),
    }
}

fn lease_of(job: &str) -> LeaseRef {
    LeaseRef {
        job: job.into(),
        token: LeaseToken(Bytes::copy_from_slice(job.as_bytes())),
    }
}

/// Returns the path of the supervisor binary.
pub fn supervisor() -> PathBuf {
    env!("CARGO_BIN_EXE_ganger-supervisor").into()
}

/// Returns the command lines of all living programs of the worker `name`, found by their environment.
pub fn processes(name: &str) -> Vec<String> {
    let mark = format!("GANGER_WORKER={name}");
    let is_marked = |path: &Path| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|one| one == mark.as_bytes())
    };
    let entries = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let found = entries.filter(|path| is_marked(path));
    found
        .map(|path| {
            fs::read_to_string(path.join("cmdline"))
                .unwrap_or_default()
                .replace('\0', " ")
        })
        .collect()
}

/// Polls until `is_so`, for state of the kernel that has no notification.
pub fn until_true(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up_at = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < give_up_at, "{what}");
        std::thread::yield_now();
    }
}
