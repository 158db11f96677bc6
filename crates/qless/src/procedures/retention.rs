//! Deletes jobs: completed jobs after their retention, and cancelled jobs.

use bytes::Bytes;
use ganger_types::qless::{QlessRefusal, QlessTime};

use super::configuration::{JOBS_HISTORY, JOBS_HISTORY_COUNT, number_of};
use super::tags;
use crate::call::{Call, limit_of_count};
use crate::number;
use crate::state::{Qless, between};

/// How long completed jobs are kept, and how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    /// Maximum age in seconds, counted from completion.
    seconds: f64,
    /// Maximum number of completed jobs.
    count: usize,
}

/// Returns the retention that the options `jobs-history` and `jobs-history-count` set.
pub(crate) fn retention(state: &Qless) -> Result<Retention, QlessRefusal> {
    let count = number_of(state, "jobs-history-count", JOBS_HISTORY_COUNT)?;
    Ok(Retention {
        seconds: number_of(state, "jobs-history", JOBS_HISTORY)?,
        count: limit_of_count(number::truncate(count)),
    })
}

/// Deletes jobs that completed too long ago, then the oldest ones above the maximum number.
pub(crate) fn prune(state: &mut Qless, call: &Call<'_>, retention: Retention) {
    let until = call.after(-retention.seconds);
    let old: Vec<Bytes> = between(state.completed(), QlessTime::default(), until)
        .map(|(_, jid)| jid.clone())
        .collect();
    for jid in old {
        delete_job(state, call, &jid);
    }
    let excess = state.completed().len().saturating_sub(retention.count);
    let oldest: Vec<Bytes> = (state.completed().iter().take(excess))
        .map(|(_, jid)| jid.clone())
        .collect();
    for jid in oldest {
        delete_job(state, call, &jid);
    }
}

/// Deletes a job with its tags and history.
pub(crate) fn delete_job(state: &mut Qless, call: &Call<'_>, jid: &Bytes) {
    tags::remove_all(state, call, jid);
    state.remove_job(jid);
}
