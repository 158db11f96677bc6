//! Why a job of qless is not running.

use ganger_qless::Qless;
use ganger_types::external::ExternalReason;
use ganger_types::qless::{QlessJob, QlessState};
use ganger_types::why::{Explanation, Reason};
use ganger_types::{Elapsed, JobId, JobState, Queue, Timestamp};

use super::as_job::{attempts, count, moment, queue, state, worker};

/// Maximum number of jobs to count ahead of a job.
const COUNTED_MAX: usize = 10_000;
/// Maximum number of dependencies to name.
const NAMED_MAX: usize = 10;

/// The causes, most important first; `None` if the job does not exist. `server` is the server's elapsed time, for the
/// expiry of throttles; `wall` is its wall clock, the likely time of the next pop.
pub(super) fn explain(
    qless: &Qless,
    id: &JobId,
    server: Elapsed,
    wall: Timestamp,
) -> Option<Explanation> {
    let job = qless.job_by_id(id.as_bytes())?;
    let reasons = match state(job) {
        JobState::Blocked => vec![waits_for(qless, job)],
        JobState::Scheduled => vec![not_before(job)],
        JobState::Running => vec![
            ExternalReason::Locked {
                worker: worker(&job.worker),
                attempt: attempts(job),
                until: moment(job.expires),
            }
            .into(),
        ],
        JobState::Failed => vec![ended(job)],
        JobState::Ready => ready(qless, job, server, wall),
        JobState::Succeeded | JobState::Cancelled => vec![Reason::Ended {
            detail: String::new(),
        }],
    };
    Some(Explanation {
        job: id.clone(),
        state: state(job),
        queue: Queue::new(queue(job)).ok()?,
        reasons,
    })
}

fn waits_for(qless: &Qless, job: &QlessJob) -> Reason {
    let others = job.dependencies.iter().filter_map(|jid| {
        let other = qless.job_by_id(jid)?;
        Some((JobId::new(jid).ok()?, state(other)))
    });
    Reason::WaitsFor {
        count: wide(job.dependencies.len()),
        some: others.take(NAMED_MAX).collect(),
    }
}

fn not_before(job: &QlessJob) -> Reason {
    let at = job
        .place
        .as_ref()
        .map_or(job.time, |place| place.at.seconds());
    Reason::NotBefore {
        at: moment(at),
        after_attempt: 0,
    }
}

fn ended(job: &QlessJob) -> Reason {
    let detail = job.failure.as_ref().map(|failure| {
        let [group, message] =
            [&failure.group, &failure.message].map(|it| String::from_utf8_lossy(it));
        format!("{group}: {message}")
    });
    Reason::Ended {
        detail: detail.unwrap_or_default(),
    }
}

fn ready(qless: &Qless, job: &QlessJob, server: Elapsed, wall: Timestamp) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if qless.is_paused_queue(&job.queue) {
        reasons.push(Reason::QueuePaused);
    }
    if job.state == QlessState::Throttled && !job.pending.is_empty() {
        let names = job.pending.iter();
        let names = names.map(|(name, _)| String::from_utf8_lossy(name).into_owned());
        reasons.push(
            ExternalReason::Throttled {
                by: names.collect(),
            }
            .into(),
        );
    }
    if let Some((running, limit)) = qless.limit_reached(&job.queue, super::seconds(wall), server) {
        reasons.push(Reason::QueueLimit {
            running: wide(running),
            limit: count(limit),
        });
    }
    let ahead = qless.ahead_of(job, COUNTED_MAX + 1);
    if ahead > 0 {
        reasons.push(Reason::Behind {
            jobs: wide(ahead.min(COUNTED_MAX)),
            more: ahead > COUNTED_MAX,
        });
    }
    if reasons.is_empty() {
        reasons.push(Reason::Next);
    }
    reasons
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
