//! `timeout jid...`: takes jobs from their workers. These jobs run before all others of their queue.

use std::collections::BTreeSet;

use bytes::Bytes;
use ganger_types::qless::{
    QlessAnswer, QlessPlace, QlessRefusal, QlessReply, QlessSet, QlessState, QlessTime,
};

use crate::call::{Arguments, Call, refuse};
use crate::events;
use crate::procedures::history::{self, Limit};
use crate::procedures::throttles;
use crate::state::Qless;

/// Takes all given jobs from their workers and returns nil; refuses the call if one of them does not run.
pub(super) fn timeout(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let jids = arguments.from(0);
    let limit = history::limit(state)?;
    let mut before = BTreeSet::new();
    for jid in jids {
        check(state, jid, before.insert(jid))?;
    }
    for jid in jids {
        time_out(state, call, jid, limit);
    }
    Ok(QlessReply::Nil)
}

/// Refuses the call unless the job runs. `is_new` is false for a repeated jid, which no longer runs when its turn
/// comes.
fn check(state: &Qless, jid: &Bytes, is_new: bool) -> Result<(), QlessRefusal> {
    let Some(job) = state.job(jid) else {
        return Err(refuse(&[b"Timeout(): Job ", jid, b" does not exist"]));
    };
    if job.state != QlessState::Running || !is_new {
        return Err(refuse(&[b"Timeout(): Job ", jid, b" not running"]));
    }
    Ok(())
}

/// Takes one job from its worker. The worker's list and the job's record still show both together.
fn time_out(state: &mut Qless, call: &mut Call<'_>, jid: &Bytes, limit: Limit) {
    let Some(job) = state.job(jid) else { return };
    let (queue, worker) = (job.queue.clone(), job.worker.clone());
    history::timed_out(state, jid, limit, call.now);
    let first = QlessPlace {
        queue,
        set: QlessSet::Work,
        rank: f64::INFINITY,
        // All timed-out jobs have the same time, so that only their jids order them.
        at: QlessTime::default(),
    };
    state.move_to(jid, Some(first));
    state.edit(jid, |job| {
        *job.state = QlessState::Stalled;
        *job.expires = 0.0;
    });
    throttles::release(state, call, jid);
    events::lock_lost(call, jid, &worker);
}
