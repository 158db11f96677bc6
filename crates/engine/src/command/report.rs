//! What all reports share: whether the lease shown is the live one, and what a stale one is told.

use ganger_types::command::Held;
use ganger_types::job::{LastReport, ReportKind};
use ganger_types::rejection::LeaseEnd;
use ganger_types::{JobKey, JobRecord, JobState, Outcome, Rejection, Reply, Timestamp};

use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::turn::Turn;

/// The lease shown is live, or the report is a repeat and this is its answer.
pub(super) enum Standing {
    Live(JobKey),
    Repeat(Reply),
}

impl Engine {
    /// Judges a report of an outcome (`rel L5`, `L7`).
    pub(super) fn judge(
        &self,
        held: &Held,
        kind: ReportKind,
        known: &FinishedIndex,
    ) -> Result<Standing, Rejection> {
        if let Some(key) = self.live_lease(held) {
            return Ok(Standing::Live(key));
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
                Ok(Standing::Repeat(Reply::Reported {
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

    /// The job, if the token shown is that of its live lease.
    pub(super) fn live_lease(&self, held: &Held) -> Option<JobKey> {
        let key = self.find_job(&held.namespace, &held.job)?;
        self.job(key)
            .lease()
            .is_some_and(|lease| lease.token == held.token)
            .then_some(key)
    }

    /// Why the lease shown is not live.
    pub(super) fn lease_lost(&self, held: &Held, known: &FinishedIndex) -> Rejection {
        let live = self.find_job(&held.namespace, &held.job);
        let end = match (live, known.find(&held.namespace, &held.job)) {
            (Some(key), _) => {
                let job = self.job(key);
                if job.attempt == 0 || held.token.epoch > self.draws.epoch() {
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

    /// The worker of a live lease has shown itself, and its report is remembered for repeats.
    pub(super) fn accept_report(&mut self, key: JobKey, kind: ReportKind, turn: &mut Turn<'_>) {
        let space = self.space_of_job(key);
        let lease = self.job(key).lease().expect("the lease was judged live");
        let (worker, token) = (lease.worker.clone(), lease.token);
        self.see_worker(space, &worker, turn);
        self.job_mut(key).details_mut().last_report = Some(LastReport { token, kind });
    }

    /// The worker reported, so the count of lease expirations in a row starts over. A policy that bounds all losses of
    /// a job forgives none.
    pub(super) fn worker_survived(&mut self, key: JobKey) {
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

/// The answer to a report after which the job goes on.
pub(crate) fn goes_on(state: JobState, retry_at: Option<Timestamp>) -> Reply {
    Reply::Reported {
        state,
        retry_at,
        repeat: false,
    }
}
