//! Forwards one attempt to the server: log and progress while it runs, its outcome at the end.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use ganger_client::{
    FailureReport, LeaseRef, Progress, ReleaseReport, RenewalReport, Report, ReportResult,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::ending::{Ending, RunFailure};
use crate::output_capture::CapturedOutput;
use crate::slot::SlotReport;
use crate::source::Reports;
use crate::stop::{Stop, StopCause};

/// Maximum bytes of log in one report.
const LOG_REPORT_BYTES_MAX: usize = 256 << 10;
/// Shortest interval between two reports of log and progress.
const SEND_INTERVAL: Duration = Duration::from_millis(100);

/// The task that reports a running attempt to the server.
pub(crate) struct AttemptTask<R> {
    pub(crate) lease: LeaseRef,
    pub(crate) job_id: String,
    pub(crate) reports: R,
    pub(crate) stop: Arc<Stop>,
    pub(crate) output: mpsc::UnboundedReceiver<CapturedOutput>,
    pub(crate) done: oneshot::Receiver<SlotReport>,
    /// Index of the slot that runs the job; unset before it starts.
    pub(crate) slot_index: Arc<OnceLock<usize>>,
    /// Delay until a job without a program is offered again.
    pub(crate) no_handler_delay: Duration,
    /// Kind, program directory and worker, for messages about a missing program.
    pub(crate) program_location: String,
}

/// The end of a job, as the pool of slots needs it.
pub(crate) struct FreedSlot {
    pub(crate) lease: LeaseRef,
    /// Index of the slot that is free now; `None` if it has taken the next job.
    pub(crate) slot_index: Option<usize>,
    /// Run time of the job; `None` if it never started.
    pub(crate) took: Option<Duration>,
}

/// The result of an attempt, as the summary counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptResult {
    Succeeded,
    Failed,
    Released,
    Dropped,
}

type InFlight = Pin<Box<dyn Future<Output = Vec<ReportResult>> + Send>>;

/// Log and progress that wait to be sent.
#[derive(Default)]
struct UnsentOutput {
    log: Vec<u8>,
    log_sent: u64,
    progress: Option<Progress>,
}

impl<R: Reports> AttemptTask<R> {
    /// Forwards log and progress until the run has ended, then calls `freed` and delivers the outcome.
    pub(crate) async fn attend(mut self, freed: impl FnOnce(FreedSlot)) -> AttemptResult {
        let mut unsent = UnsentOutput::default();
        let mut in_flight: Option<InFlight> = None;
        let mut next_at = Instant::now();
        let ended = loop {
            if in_flight.is_none() && !unsent.is_empty() && next_at <= Instant::now() {
                let reports = unsent.take(&self.lease);
                let sink = self.reports.clone();
                in_flight = Some(Box::pin(async move { sink.report_all(reports).await }));
                next_at = Instant::now() + SEND_INTERVAL;
            }
            tokio::select! {
                ended = &mut self.done => break ended.unwrap_or_else(|_| slot_lost()),
                Some(output) = self.output.recv() => unsent.add(output),
                answers = answers_in_flight(&mut in_flight) => {
                    in_flight = None;
                    self.receive(&answers);
                }
                () = sleep_until(next_at), if in_flight.is_none() && !unsent.is_empty() => {}
            }
        };
        freed(FreedSlot {
            lease: self.lease.clone(),
            slot_index: self.slot_index.get().copied().filter(|_| ended.is_free),
            took: ended.took,
        });
        while let Ok(output) = self.output.try_recv() {
            unsent.add(output);
        }
        if let Some(in_flight) = in_flight {
            in_flight.await;
        }
        self.deliver(unsent, ended.ending).await
    }

    /// Handles refused reports: a refused log chunk means that the lease has ended, if nothing else has reported
    /// that.
    fn receive(&self, answers: &[ReportResult]) {
        for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            tracing::debug!(job = %self.job_id, %error, "a report was refused");
            if error.code() == ganger_client::code::LEASE_LOST {
                self.stop.ask(StopCause::LeaseLost(error.to_string()));
            }
        }
    }

    async fn deliver(&self, mut unsent: UnsentOutput, ending: Ending) -> AttemptResult {
        let Some((last, counted)) = self.outcome(ending) else {
            self.reports.abandon(&self.lease);
            return AttemptResult::Dropped;
        };
        // Progress is not needed after the end; the log is.
        unsent.progress = None;
        let mut reports = unsent.take(&self.lease);
        reports.push((self.lease.clone(), last));
        let answers = self.reports.report_all(reports).await;
        match answers.last() {
            Some(Ok(_)) => counted,
            Some(Err(error)) => {
                tracing::warn!(job = %self.job_id, code = error.code(), "the outcome is dropped: {error}");
                AttemptResult::Dropped
            }
            None => AttemptResult::Dropped,
        }
    }

    fn outcome(&self, ending: Ending) -> Option<(Report, AttemptResult)> {
        match ending {
            Ending::Completed(result) => Some((
                Report::Complete {
                    result: Some(result),
                    next: None,
                },
                AttemptResult::Succeeded,
            )),
            Ending::Failed(RunFailure {
                group,
                message,
                is_permanent,
            }) => Some((
                Report::Fail(FailureReport {
                    group,
                    message,
                    permanent: is_permanent,
                    retry_after: None,
                    lost: false,
                }),
                AttemptResult::Failed,
            )),
            Ending::NoHandler(reason) => {
                let reason = format!("no program {}: {reason}", self.program_location);
                Some((
                    released(self.no_handler_delay, false, reason),
                    AttemptResult::Released,
                ))
            }
            Ending::Unstarted(reason) => Some((
                released(Duration::ZERO, true, reason),
                AttemptResult::Released,
            )),
            Ending::Dropped(_) => None,
        }
    }
}

impl UnsentOutput {
    fn is_empty(&self) -> bool {
        self.log.is_empty() && self.progress.is_none()
    }

    fn add(&mut self, output: CapturedOutput) {
        match output {
            CapturedOutput::Log(bytes) => self.log.extend_from_slice(&bytes),
            CapturedOutput::Progress(millionths, message) => {
                self.progress = Some(Progress {
                    millionths,
                    message,
                });
            }
        }
    }

    /// Takes everything that waits, as reports in order.
    fn take(&mut self, lease: &LeaseRef) -> Vec<(LeaseRef, Report)> {
        let log = Bytes::from(std::mem::take(&mut self.log));
        let mut reports = Vec::new();
        let mut from = 0;
        while from < log.len() {
            let bytes = log.slice(from..log.len().min(from + LOG_REPORT_BYTES_MAX));
            from += bytes.len();
            let offset = self.log_sent;
            self.log_sent += u64::try_from(bytes.len()).unwrap_or(0);
            reports.push((lease.clone(), Report::Log { offset, bytes }));
        }
        if let Some(progress) = self.progress.take() {
            let renewing = RenewalReport {
                progress: Some(progress),
                ..RenewalReport::default()
            };
            reports.push((lease.clone(), Report::Renew(renewing)));
        }
        reports
    }
}

fn released(delay: Duration, keep_place: bool, reason: String) -> Report {
    Report::Release(ReleaseReport {
        delay,
        counted: false,
        keep_place,
        reason,
    })
}

/// Waits for the answers to the reports in flight; pending forever if there are none.
async fn answers_in_flight(in_flight: &mut Option<InFlight>) -> Vec<ReportResult> {
    match in_flight {
        Some(in_flight) => in_flight.await,
        None => std::future::pending().await,
    }
}

fn slot_lost() -> SlotReport {
    let ending = Ending::retriable(
        crate::group::START_FAILED,
        "the worker's own thread for this job ended unexpectedly",
    );
    SlotReport {
        ending,
        is_free: true,
        took: None,
    }
}
