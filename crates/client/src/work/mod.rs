//! The worker's stream: deliveries in, reports out, alive through failures.
//!
//! One task (`driver`) owns the connection and all that must outlive it: what is held, reports without
//! an answer, unused credits. [`WorkStream`] and [`Reporter`] only talk to that task.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::Error;
use crate::model::{
    Delivery, Failing, Held, JobState, Progress, Releasing, Report, ReportResult, TakeFrom,
    TakeMode,
};

/// What to take, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkOptions {
    /// Who: host name plus something random, new at each start.
    pub worker: String,
    /// From where.
    pub queues: Vec<TakeFrom>,
    /// In which manner.
    pub mode: TakeMode,
    /// Length of the leases; `None`: the queue's.
    pub lease_for: Option<Duration>,
    /// Credits granted at the start; each is one job that may be delivered.
    pub credits: u32,
}

/// What the stream tells.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkEvent {
    /// The stream stands, for the first time or again.
    Connected {
        /// Version of the server.
        version: String,
        /// Its shard.
        shard: String,
    },
    /// The stream broke; it will be tried again by itself.
    Disconnected {
        /// Why.
        error: Error,
        /// After which pause.
        retry_in: Duration,
    },
    /// Jobs to run; each has used one credit.
    Jobs(Vec<Delivery>),
    /// A lease is lost: stop that run and drop its outcome. Not told for what was reported already.
    Lost(Lost),
    /// The server is about to stop: nothing new comes until the next `Connected`. Reports still go.
    Draining,
}

/// A lost lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Which.
    pub held: Held,
    /// Where the job stands now; `None`: unknown, the lease ran out while the server was away.
    pub state: Option<JobState>,
    /// Why, for people.
    pub reason: String,
}

impl Lost {
    /// Whether somebody called the job off.
    pub fn is_cancelled(&self) -> bool {
        self.state == Some(JobState::Cancelled)
    }
}

/// Deliveries and notices. Dropping it ends the stream; leases then live until they run out.
pub struct WorkStream {
    _private: (),
}

impl WorkStream {
    pub(crate) fn open(_client: crate::Client, _options: WorkOptions) -> Self {
        unimplemented!()
    }

    /// The next event; `None` after [`Reporter::close`] or [`Reporter::goodbye`].
    pub async fn next(&mut self) -> Option<WorkEvent> {
        unimplemented!()
    }

    /// A handle for reports and credits, for any number of tasks.
    pub fn reporter(&self) -> Reporter {
        unimplemented!()
    }
}

/// Reports and credits. Cheap to clone.
///
/// A report resolves once the server has it durably, or has refused it; while the server is away it
/// waits. What is held is renewed by itself until its `complete`, `fail` or `release` was taken.
#[derive(Clone)]
pub struct Reporter {
    _private: (),
}

impl Reporter {
    /// Grants credits: so many more jobs may be delivered. A delivered job uses one up for good, so
    /// grant one for each run that ended.
    pub fn grant(&self, _credits: u32) {
        unimplemented!()
    }

    /// Takes all unused credits back; what is on its way still comes.
    pub fn drop_credits(&self) {
        unimplemented!()
    }

    /// Sends one report.
    ///
    /// # Errors
    /// If the server refused it (`lease_lost`, …), or the stream was closed.
    pub async fn report(&self, _held: &Held, _report: Report) -> ReportResult {
        unimplemented!()
    }

    /// Sends many reports in order, in as few messages as possible; answers in the same order.
    pub async fn report_all(&self, _reports: Vec<(Held, Report)>) -> Vec<ReportResult> {
        unimplemented!()
    }

    /// Ends an attempt with success.
    ///
    /// # Errors
    /// As [`Reporter::report`].
    pub async fn complete(&self, held: &Held, result: Option<Bytes>) -> ReportResult {
        self.report(held, Report::Complete { result, next: None })
            .await
    }

    /// Ends an attempt with a failure.
    ///
    /// # Errors
    /// As [`Reporter::report`].
    pub async fn fail(&self, held: &Held, failing: Failing) -> ReportResult {
        self.report(held, Report::Fail(failing)).await
    }

    /// Gives a job back.
    ///
    /// # Errors
    /// As [`Reporter::report`].
    pub async fn release(&self, held: &Held, releasing: Releasing) -> ReportResult {
        self.report(held, Report::Release(releasing)).await
    }

    /// Tells how far an attempt is; renews its lease too.
    ///
    /// # Errors
    /// As [`Reporter::report`].
    pub async fn progress(&self, held: &Held, progress: Progress) -> ReportResult {
        let renewing = crate::Renewing {
            progress: Some(progress),
            ..crate::Renewing::default()
        };
        self.report(held, Report::Renew(renewing)).await
    }

    /// Appends to the attempt's log; `offset` is the number of bytes sent before.
    ///
    /// # Errors
    /// As [`Reporter::report`].
    pub async fn log(&self, held: &Held, offset: u64, bytes: Bytes) -> ReportResult {
        self.report(held, Report::Log { offset, bytes }).await
    }

    /// Until when the lease surely lasts; `None` once it is reported or lost. Kill the program before.
    pub fn expires_at(&self, _held: &Held) -> Option<Instant> {
        unimplemented!()
    }

    /// Stops renewing an attempt whose outcome nobody will report; its lease runs out.
    pub fn abandon(&self, _held: &Held) {
        unimplemented!()
    }

    /// Waits until all reports are answered (at most `patience`), says goodbye to the server, and
    /// ends the stream: leases still held end as released.
    ///
    /// # Errors
    /// If the server could not be told.
    pub async fn goodbye(&self, _patience: Duration) -> Result<(), Error> {
        unimplemented!()
    }

    /// Ends the stream at once; leases live until they run out.
    pub fn close(&self) {
        unimplemented!()
    }
}
