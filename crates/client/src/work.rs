//! The worker's stream: receives deliveries, sends reports, and reconnects after failures.
//!
//! One task (`driver`) owns the connection and everything that outlives it: held leases, reports without an answer,
//! unused credits. [`WorkStream`] and [`Reporter`] only communicate with that task.

mod driver;
mod leases;
mod link;
mod pending;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::client::Client;
use crate::error::{Error, code};
use crate::model::{
    Delivery, FailureReport, JobState, LeaseRef, Progress, ReleaseReport, RenewalReport, Report,
    ReportResult, TakeFrom, TakeMode,
};
use driver::Driver;
use leases::HeldLeases;

/// Longest wait of a worker without leases for the answer to its deregistration.
const DEREGISTRATION_MAX: Duration = Duration::from_secs(2);
/// Maximum number of reporters' calls that wait for the driver.
const CALLS_MAX: usize = 64;

/// Options of a worker's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkOptions {
    /// Name of the worker. Default: host name and a random suffix, new at each start.
    pub worker: String,
    /// Queues to take jobs from.
    pub queues: Vec<TakeFrom>,
    /// How the queues are combined.
    pub mode: TakeMode,
    /// Length of the leases; `None` for the queue's setting.
    pub lease_for: Option<Duration>,
    /// Number of credits granted at the start; each allows the delivery of one job.
    pub credits: u32,
}

/// An event of the stream.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkEvent {
    /// The stream is connected, for the first time or again.
    Connected {
        /// Version of the server.
        version: String,
        /// Name of the server's shard.
        shard: String,
    },
    /// The connection broke; the stream reconnects by itself.
    Disconnected {
        /// Error that broke the stream.
        error: Error,
        /// Pause before the next try.
        retry_in: Duration,
    },
    /// Jobs to run; each has used one credit.
    Jobs(Vec<Delivery>),
    /// A lease has ended: stop its run and drop its outcome. Not sent for attempts that were reported already.
    LeaseLost(LostLease),
    /// The server is about to stop: no jobs are delivered until the next `Connected`. Reports are still accepted.
    Draining,
}

/// A lease that the worker has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostLease {
    /// The attempt whose lease is lost.
    pub lease: LeaseRef,
    /// Current state of the job; `None` if it is unknown or the job was removed.
    pub state: Option<JobState>,
    /// Reason of the loss.
    pub reason: String,
}

impl LostLease {
    /// Whether the job was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.state == Some(JobState::Cancelled)
    }
}

/// State shared by reporters and the driver.
pub(crate) struct Shared {
    /// Number of credits granted that the driver has not taken over yet.
    granted: AtomicU32,
    are_credits_dropped: AtomicBool,
    is_closed: AtomicBool,
    /// Notified when a value above has changed.
    changed: Notify,
    /// Whether the stream is connected.
    connected: watch::Sender<bool>,
    leases: HeldLeases,
}

/// Reports of one call, and the channel for their answers.
pub(crate) struct Call {
    reports: Vec<(LeaseRef, Report)>,
    answer: oneshot::Sender<Vec<ReportResult>>,
}

/// The receiving side of the stream. Dropping it ends the stream; held leases then last until they expire.
pub struct WorkStream {
    events: mpsc::UnboundedReceiver<WorkEvent>,
    reporter: Reporter,
}

impl WorkStream {
    pub(crate) fn open(client: Client, options: WorkOptions) -> Self {
        let (calls_sender, calls) = mpsc::channel(CALLS_MAX);
        // Bounded by the credits granted: there are never more deliveries than those.
        let (events_sender, events) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            granted: AtomicU32::new(options.credits),
            are_credits_dropped: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            changed: Notify::new(),
            connected: watch::Sender::new(false),
            leases: HeldLeases::default(),
        });
        let reporter = Reporter {
            shared: Arc::clone(&shared),
            calls: calls_sender,
            client: client.clone(),
            worker: options.worker.clone().into(),
        };
        tokio::spawn(Driver::new(client, options, shared, events_sender).run(calls));
        Self { events, reporter }
    }

    /// Waits for the next event; `None` after [`Reporter::close`] or [`Reporter::deregister`].
    pub async fn next(&mut self) -> Option<WorkEvent> {
        self.events.recv().await
    }

    /// Returns a handle for reports and credits, for any number of tasks.
    pub fn reporter(&self) -> Reporter {
        self.reporter.clone()
    }
}

/// Sends reports and credits. Cheap to clone.
///
/// A report resolves once the server has stored it durably, or has refused it; while the server is away it waits.
/// Held leases are renewed automatically until their `complete`, `fail` or `release` was accepted.
#[derive(Clone)]
pub struct Reporter {
    shared: Arc<Shared>,
    calls: mpsc::Sender<Call>,
    client: Client,
    worker: Arc<str>,
}

impl Reporter {
    /// Grants `credits` more credits, each of which allows one delivery. A delivered job uses up its credit, so grant
    /// one for each run that ended.
    pub fn grant(&self, credits: u32) {
        self.shared.granted.fetch_add(credits, Ordering::AcqRel);
        self.shared.changed.notify_one();
    }

    /// Takes all unused credits back; jobs on their way still arrive.
    pub fn drop_credits(&self) {
        self.shared.granted.store(0, Ordering::Release);
        self.shared
            .are_credits_dropped
            .store(true, Ordering::Release);
        self.shared.changed.notify_one();
    }

    /// Sends one report.
    ///
    /// # Errors
    /// If the server refused it (`lease_lost`, ...), or the stream was closed.
    pub async fn report(&self, lease: &LeaseRef, report: Report) -> ReportResult {
        let mut answers = self.report_all(vec![(lease.clone(), report)]).await;
        answers.pop().unwrap_or_else(|| Err(closed()))
    }

    /// Sends many reports in order, in as few messages as possible; answers in the same order.
    pub async fn report_all(&self, reports: Vec<(LeaseRef, Report)>) -> Vec<ReportResult> {
        let count = reports.len();
        let (answer, answered) = oneshot::channel();
        let refused = || (0..count).map(|_| Err(closed())).collect();
        // A failed send returns the call, and with it the sender of its answer.
        if self.calls.send(Call { reports, answer }).await.is_err() {
            return refused();
        }
        answered.await.unwrap_or_else(|_| refused())
    }

    /// Ends an attempt with success.
    ///
    /// # Errors
    /// See [`Reporter::report`].
    pub async fn complete(&self, lease: &LeaseRef, result: Option<Bytes>) -> ReportResult {
        self.report(lease, Report::Complete { result, next: None })
            .await
    }

    /// Ends an attempt with a failure.
    ///
    /// # Errors
    /// See [`Reporter::report`].
    pub async fn fail(&self, lease: &LeaseRef, failing: FailureReport) -> ReportResult {
        self.report(lease, Report::Fail(failing)).await
    }

    /// Releases a job.
    ///
    /// # Errors
    /// See [`Reporter::report`].
    pub async fn release(&self, lease: &LeaseRef, releasing: ReleaseReport) -> ReportResult {
        self.report(lease, Report::Release(releasing)).await
    }

    /// Reports the progress of an attempt, which also renews its lease.
    ///
    /// # Errors
    /// See [`Reporter::report`].
    pub async fn progress(&self, lease: &LeaseRef, progress: Progress) -> ReportResult {
        let renewing = RenewalReport {
            progress: Some(progress),
            ..RenewalReport::default()
        };
        self.report(lease, Report::Renew(renewing)).await
    }

    /// Appends to the attempt's log; `offset` is the number of bytes sent before.
    ///
    /// # Errors
    /// See [`Reporter::report`].
    pub async fn log(&self, lease: &LeaseRef, offset: u64, bytes: Bytes) -> ReportResult {
        self.report(lease, Report::Log { offset, bytes }).await
    }

    /// Returns the time until which the lease surely lasts; `None` once it is reported or lost. Kill the program
    /// before that time.
    pub fn expires_at(&self, lease: &LeaseRef) -> Option<Instant> {
        self.shared.leases.expires_at(lease)
    }

    /// Stops renewing an attempt whose outcome will not be reported; its lease expires.
    pub fn abandon(&self, lease: &LeaseRef) {
        self.shared.leases.remove(&lease.token);
    }

    /// Waits until all reports so far are answered (at most `patience`), deregisters the worker, and ends the stream:
    /// leases still held end as released. Without a connection the stream ends at once.
    ///
    /// # Errors
    /// If the server could not be reached.
    pub async fn deregister(&self, patience: Duration) -> Result<(), Error> {
        self.drop_credits();
        let mut connected = self.shared.connected.subscribe();
        let result = tokio::select! {
            // Polled first: nothing is sent if nothing receives it.
            biased;
            _ = connected.wait_for(|connected| !connected) => Err(Error::unreachable("the server is away")),
            result = self.flush_and_deregister(patience) => result,
        };
        self.close();
        result
    }

    async fn flush_and_deregister(&self, patience: Duration) -> Result<(), Error> {
        // An empty call is answered after all calls before it.
        let flushed = tokio::time::timeout(patience, self.report_all(Vec::new())).await;
        if flushed.is_err() {
            let message = format!("reports were not answered within {patience:?}");
            return Err(Error::timed_out(message));
        }
        // The server notices the end of a worker without leases later by itself.
        let patience = if self.shared.leases.lock().is_empty() {
            patience.min(DEREGISTRATION_MAX)
        } else {
            patience
        };
        let result = tokio::time::timeout(patience, self.client.deregister(&self.worker)).await;
        result.unwrap_or_else(|_| {
            let message = format!("the deregistration was not answered within {patience:?}");
            Err(Error::timed_out(message))
        })
    }

    /// Ends the stream at once; held leases last until they expire.
    pub fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.changed.notify_one();
    }
}

fn closed() -> Error {
    Error::local(
        code::CLOSED,
        "the worker's stream was closed before the report was answered",
    )
}
