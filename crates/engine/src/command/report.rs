//! Rules that all reports share: whether the lease is live, and the answer to a report under a stale one.

use ganger_types::command::LeaseRef;
use ganger_types::job::{LastReport, ReportKind};
use ganger_types::rejection::LeaseEnd;
use ganger_types::{JobKey, JobRecord, JobState, Outcome, Rejection, Reply, Timestamp};

use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::turn::Turn;

/// The result of checking a report: its lease is live, or it is a repeat with this answer.
pub(super) enum ReportCheck {
    Live(JobKey),
    Repeat(Reply),
}

impl Engine {
    /// Checks a report of an outcome (`rel L5`, `L7`).
    pub(super) fn check_report(
        &self,
        held: &LeaseRef,
        kind: ReportKind,
        known: &FinishedIndex,
    ) -> Result<ReportCheck, Rejection> {
        if let Some(key) = self.live_lease(held) {
            return Ok(ReportCheck::Live(key));
        }
        let (last, state) = match self.find_job(&held.namespace, &held.job) {
            Some(key) => {
                let job = self.job(key);
                (
                    job.details
                        .as_deref()
                        .and_then(|details| details.last_report),
                    job.state,
                )
            }
            None => {
                let record = known.find(&held.namespace, &held.job);
                let record = record.ok_or_else(|| self.no_job(&held.namespace, &held.job))?;
                (record.last_report, ended_as(record))
            }
        };
        match last {
            Some(last) if last.token == held.token && last.kind == kind => {
                Ok(ReportCheck::Repeat(Reply::Reported {
                    state,
                    retry_at: None,
                    repeat: true,
                }))
            }
            Some(last) if last.token == held.token => Err(Rejection::ReportConflict {
                job: held.job.clone(),
            }),
            _ => Err(self.lease_lost(held, known)),
        }
    }

    /// The job, if the token is that of its live lease.
    pub(super) fn live_lease(&self, held: &LeaseRef) -> Option<JobKey> {
        let key = self.find_job(&held.namespace, &held.job)?;
        self.job(key)
            .lease()
            .is_some_and(|lease| lease.token == held.token)
            .then_some(key)
    }

    /// The rejection of a report whose lease is not live.
    pub(super) fn lease_lost(&self, held: &LeaseRef, known: &FinishedIndex) -> Rejection {
        let live = self.find_job(&held.namespace, &held.job);
        let end = match (live, known.find(&held.namespace, &held.job)) {
            (Some(key), _) => {
                let job = self.job(key);
                if job.attempt == 0 || held.token.epoch > self.random.epoch() {
                    LeaseEnd::Unknown
                } else if job.state == JobState::Running {
                    LeaseEnd::Replaced
                } else {
                    LeaseEnd::Expired
                }
            }
            (None, Some(record)) if ended_as(record) == JobState::Cancelled => LeaseEnd::Cancelled,
            (None, Some(_)) => LeaseEnd::Finished,
            (None, None) => return self.no_job(&held.namespace, &held.job),
        };
        Rejection::LeaseLost {
            job: held.job.clone(),
            end,
        }
    }

    /// Records a request of the worker, and the report for repeats of it.
    pub(super) fn accept_report(&mut self, key: JobKey, kind: ReportKind, turn: &mut Turn<'_>) {
        let space = self.space_of_job(key);
        let lease = self.job(key).lease().expect("the lease was judged live");
        let (worker, token) = (lease.worker.clone(), lease.token);
        self.record_worker(space, &worker, turn);
        self.job_mut(key).details_mut().last_report = Some(LastReport { token, kind });
    }

    /// Resets the count of lease expirations in a row after a report. If the retry policy limits all expirations of
    /// the job, the count stays.
    pub(super) fn reset_lease_expirations(&mut self, key: JobKey) {
        let job = self.job(key);
        if self.names.retry(job.retry).lease_expirations_max.is_none() {
            self.job_mut(key).details_mut().lease_expirations = 0;
        }
    }
}

fn ended_as(record: &JobRecord) -> JobState {
    record
        .finished
        .as_ref()
        .map_or(record.state, |finished| finished.outcome.state())
}

/// The answer to a report that ended the job.
pub(crate) fn ended(outcome: Outcome) -> Reply {
    goes_on(outcome.state(), None)
}

/// The answer to a report after which the job is live.
pub(crate) fn goes_on(state: JobState, retry_at: Option<Timestamp>) -> Reply {
    Reply::Reported {
        state,
        retry_at,
        repeat: false,
    }
}
