//! Scheduled jobs become ready when their time has come. Commands that look at the queue check this.

use bytes::Bytes;
use ganger_types::qless::{QlessSet, QlessTime};

use super::links::make_ready;
use crate::state::{Qless, between};

/// Makes up to `count` scheduled jobs of the queue ready whose time is from 0 to `now`. They are ordered among the
/// ready jobs by `now`, not by their scheduled time.
pub(crate) fn promote(state: &mut Qless, queue: &Bytes, now: QlessTime, count: usize) {
    let scheduled = state.time_index(queue, QlessSet::Scheduled);
    let due: Vec<Bytes> = between(scheduled, QlessTime::default(), now)
        .take(count)
        .map(|(_, jid)| jid.clone())
        .collect();
    for jid in due {
        make_ready(state, &jid, queue, now);
    }
}
