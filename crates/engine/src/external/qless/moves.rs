//! Moves of jobs of qless, as events of ours.
//!
//! Each call is looked at by itself: what it touched is compared with how it stood before, in our words, so that what is
//! not seen from here is no event. A job whose jid or queue can be no name of ours has none.

use ganger_qless::{JobPosition, Qless, Touched};
use ganger_types::qless::{QlessFailure, QlessJob, QlessState};
use ganger_types::{Bytes, Group, Happening, JobId, JobKey, JobState, Kind, Queue};

use super::as_job;
use crate::external::short;

/// What came of the last call, in the order in which it touched the jobs.
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
    // On its way out a job leaves its place, which moves it nowhere; but it may have been completed by the same call.
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

/// The job's queue; of one that was just completed the one where it was, which spares a look into its history.
fn queue(before: Option<&JobPosition>, job: &QlessJob) -> Bytes {
    let last = before.filter(|before| job.queue.is_empty() && !before.queue.is_empty());
    last.map_or_else(|| as_job::queue(job), |before| before.queue.clone())
}

/// The failure's group, or in the words of our own jobs why it moved, as far as that can be told.
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
