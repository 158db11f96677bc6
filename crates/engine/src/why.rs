//! Why a job is not running: the causes, most important first.

use ganger_types::history::AttemptEnd;
use ganger_types::why::{Explanation, Reason};
use ganger_types::{JobId, JobKey, JobRecord, JobState, Namespace, Now, Rejection, What};

use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::state::Job;

/// Maximum number of jobs to count ahead of a job.
const COUNTED_MAX: usize = 10_000;
/// Maximum number of dependencies to name.
const NAMED_MAX: usize = 10;

impl Engine {
    pub(crate) fn why(
        &self,
        now: Now,
        namespace: &Namespace,
        id: &JobId,
        known: &FinishedIndex,
    ) -> Result<Explanation, Rejection> {
        let Some(key) = self.find_job(namespace, id) else {
            return match known.find(namespace, id) {
                Some(record) => Ok(explain_ended(record)),
                None => {
                    let why = self.external.why(now, namespace, id);
                    why.ok_or_else(|| self.no_job(namespace, id))
                }
            };
        };
        let job = self.job(key);
        let mut reasons = match job.state {
            JobState::Blocked => self.waits_for(key),
            JobState::Scheduled => vec![not_before(now, job)],
            JobState::Running => vec![runs(now, job)],
            _ => self.ready_reasons(now, job),
        };
        if let Some(released) = was_released(job) {
            // Only the last attempt explains the wait.
            let place = if ended_released(job) {
                0
            } else {
                reasons.len()
            };
            reasons.insert(place, released);
        }
        Ok(Explanation {
            job: job.id(),
            state: job.state,
            queue: self.queues[job.queue].name.clone(),
            reasons,
        })
    }

    fn waits_for(&self, key: JobKey) -> Vec<Reason> {
        let missing = || self.edges.of(key).filter(|(_, edge)| !edge.is_delivered);
        let some = missing()
            .take(NAMED_MAX)
            .map(|(_, edge)| match self.jobs.get(edge.dependency) {
                Some(job) => (job.id(), job.state),
                // The dependency did not succeed, and this job waits for its retry.
                None => (
                    JobId::made(edge.dependency, self.random.id_tag()),
                    JobState::Failed,
                ),
            })
            .collect();
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        let here = Reason::WaitsFor {
            count: count(missing().count()),
            some,
        };
        let edges = || self.remote_edges(key).map(|(_, edge)| &edge.dependency);
        let elsewhere = Reason::WaitsElsewhere {
            count: count(edges().count()),
            some: edges().take(NAMED_MAX).cloned().collect(),
            asked_at: self.asked_at(key),
        };
        let mut reasons = Vec::new();
        if missing().next().is_some() {
            reasons.push(here);
        }
        if edges().next().is_some() {
            reasons.push(elsewhere);
        }
        reasons
    }

    fn ready_reasons(&self, now: Now, job: &Job) -> Vec<Reason> {
        let queue = &self.queues[job.queue];
        let mut reasons = Vec::new();
        if queue.settings.paused {
            reasons.push(Reason::QueuePaused);
        }
        if let Some(limit) = queue
            .settings
            .running_max
            .filter(|_| queue.slots() == 0 && !queue.settings.paused)
        {
            reasons.push(Reason::QueueLimit {
                running: queue.counts.running,
                limit,
            });
        }
        let silent_for = queue.asked.map(|asked| now.elapsed.since(asked));
        if silent_for.is_none_or(|silent| silent > ganger_types::limits::LEASE_FOR_DEFAULT) {
            reasons.push(Reason::NoWorker { silent_for });
        }
        let ahead = queue.ready.count_before(&job.place(), COUNTED_MAX + 1);
        if ahead > 0 {
            let jobs = u64::try_from(ahead.min(COUNTED_MAX)).unwrap_or(u64::MAX);
            reasons.push(Reason::Behind {
                jobs,
                more: ahead > COUNTED_MAX,
            });
        }
        if reasons.is_empty() {
            reasons.push(Reason::Next);
        }
        reasons
    }
}

fn not_before(now: Now, job: &Job) -> Reason {
    let due = job.details.as_deref().and_then(|details| details.due);
    let at = due.map_or(now.wall, |due| due.expected_at(now));
    let is_retry = !ended_released(job);
    Reason::NotBefore {
        at,
        after_attempt: if is_retry { job.attempt } else { 0 },
    }
}

fn runs(now: Now, job: &Job) -> Reason {
    let lease = job.lease().expect("a running job has a lease");
    Reason::Runs {
        worker: lease.worker.clone(),
        attempt: lease.attempt,
        lease_left: lease.expires_at.since(now.elapsed),
    }
}

/// Whether the last attempt ended with a release.
fn ended_released(job: &Job) -> bool {
    let history = job.details.as_deref().map(|details| &details.history[..]);
    let mut entries = history.unwrap_or_default().iter().rev();
    let last = entries.find_map(|entry| match &entry.what {
        What::Attempt { end, .. } => Some(end),
        _ => None,
    });
    matches!(last, Some(AttemptEnd::Released { .. }))
}

fn was_released(job: &Job) -> Option<Reason> {
    let details = job.details.as_deref()?;
    let (worker, reason) = details
        .history
        .iter()
        .rev()
        .find_map(|entry| match &entry.what {
            What::Attempt {
                worker,
                end: AttemptEnd::Released { reason, .. },
                ..
            } => Some((worker.clone(), reason.clone())),
            _ => None,
        })?;
    (details.releases > 0).then_some(Reason::Released {
        times: details.releases,
        worker,
        reason,
    })
}

fn explain_ended(record: &JobRecord) -> Explanation {
    let state = record
        .finished
        .as_ref()
        .map_or(record.state, |end| end.outcome.state());
    let cancelled = record
        .history
        .iter()
        .rev()
        .find_map(|entry| match &entry.what {
            What::Cancelled { reason } => Some(reason.clone()),
            _ => None,
        });
    let detail = match (state, &record.failure, cancelled) {
        (JobState::Failed, Some(failure), _) => format!("{}: {}", failure.group, failure.message),
        (JobState::Cancelled, _, Some(reason)) => reason,
        _ => String::new(),
    };
    Explanation {
        job: record.id.clone(),
        state,
        queue: record.queue.clone(),
        reasons: vec![Reason::Ended { detail }],
    }
}
