//! Events about the moves of jobs of qless.
//!
//! After each call, the state of every touched job is compared with its state before, both in terms of the engine, so
//! only visible changes cause events. A job whose jid or queue name is too long causes none.

use ganger_qless::{JobPosition, Qless, Touched};
use ganger_types::qless::{QlessFailure, QlessJob, QlessState};
use ganger_types::{Bytes, Group, Happening, JobId, JobKey, JobState, Kind, Queue};

use super::as_job;
use crate::external::short;

/// Emits the events of the last call, in the order in which it touched the jobs.
pub(super) fn take(qless: &mut Qless, mut tell: impl FnMut(Happening)) {
    qless.take_touched(|touched| {
        if let Some(moved) = moved(&touched) {
            tell(moved);
        }
        if touched.is_gone
            && let Some(removed) = removed(&touched)
        {
            tell(removed);
        }
    });
}

fn moved(touched: &Touched<'_>) -> Option<Happening> {
    let Touched { before, job, .. } = *touched;
    let (from, to) = (before.map(state_before), as_job::state(job));
    // A removed job leaves its place, which is no move of its own. But the same call may have completed the job.
    if touched.is_gone && to != JobState::Succeeded {
        return None;
    }
    let has_moved = before.is_none_or(|before| {
        from != Some(to) || before.queue != job.queue || before.handed_out != job.handed_out
    });
    if !has_moved {
        return None;
    }
    let worker = match (from, to) {
        (_, JobState::Running) => Some(&job.worker),
        (Some(JobState::Running), _) => before.map(|before| &before.worker),
        _ => None,
    };
    Some(Happening::JobMoved {
        key: JobKey::OF_QLESS,
        job: JobId::new(&job.jid).ok()?,
        queue: Queue::new(queue(before, job)).ok()?,
        kind: short(&job.klass, Kind::new)?,
        from,
        to,
        attempt: as_job::attempts(job),
        worker: worker.map(as_job::worker),
        reason: reason(touched, from, to),
    })
}

fn removed(touched: &Touched<'_>) -> Option<Happening> {
    let Touched { before, job, .. } = *touched;
    Some(Happening::JobRemoved {
        key: JobKey::OF_QLESS,
        job: JobId::new(&job.jid).ok()?,
        queue: Queue::new(queue(before, job)).ok()?,
    })
}

fn state_before(before: &JobPosition) -> JobState {
    as_job::state_of(before.is_scheduled, before.state)
}

/// The queue of the job. For a job that was just completed it is the previous one, which saves a search of the
/// history.
fn queue(before: Option<&JobPosition>, job: &QlessJob) -> Bytes {
    let last = before.filter(|before| job.queue.is_empty() && !before.queue.is_empty());
    last.map_or_else(|| as_job::queue(job), |before| before.queue.clone())
}

/// The failure group, or the reason of the move in the terms of the engine's own jobs, as far as it is known.
fn reason(touched: &Touched<'_>, from: Option<JobState>, to: JobState) -> String {
    let group = |failure: &QlessFailure| short(&failure.group, Group::new);
    if touched.has_failed
        && let Some(group) = touched.job.failure.as_ref().and_then(group)
    {
        return group.to_text().into_owned();
    }
    let words = match (from, to) {
        (Some(JobState::Running), JobState::Running) => "lease-expired",
        (Some(JobState::Running), _) if touched.job.state == QlessState::Stalled => {
            "timed out by hand"
        }
        (Some(from), to) if from.is_terminal() && !to.is_terminal() => "retried",
        _ => "",
    };
    words.to_owned()
}
