//! The orders of the script's sets, including how ties are broken.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bytes::Bytes;
use ganger_types::qless::{QlessPlace, QlessTime};

/// Names ordered by time, the earliest first; ties by the bytes of the name.
pub(crate) type TimeIndex = BTreeSet<(QlessTime, Bytes)>;

/// The empty set, for names that have no entries.
pub(super) static EMPTY: TimeIndex = TimeIndex::new();

/// Returns the entries of `set` with a time from `from` to `to`, both included, in order.
pub(crate) fn between(
    set: &TimeIndex,
    from: QlessTime,
    to: QlessTime,
) -> impl Iterator<Item = &(QlessTime, Bytes)> {
    set.range((from, Bytes::new())..)
        .take_while(move |(at, _)| *at <= to)
}

/// Returns the entries of `set` with a time up to and including `to`, in order.
pub(crate) fn until(set: &TimeIndex, to: QlessTime) -> impl Iterator<Item = &(QlessTime, Bytes)> {
    set.iter().take_while(move |(at, _)| *at <= to)
}

/// Returns the entries of `set` with a time of `from` or later, in order.
pub(crate) fn since(set: &TimeIndex, from: QlessTime) -> impl Iterator<Item = &(QlessTime, Bytes)> {
    set.range((from, Bytes::new())..)
}

/// Entry of a ready job in its queue. The largest rank comes first, then the earliest time, then the jid that is
/// **last** by its bytes: the script keeps one score per job and reads the list from its end.
#[derive(Clone, Debug)]
pub(crate) struct ReadyEntry {
    /// The job's priority, or infinity for a job that was timed out.
    rank: f64,
    /// The time when the job became ready; 0 if its priority was changed since, or if it was timed out.
    at: QlessTime,
    /// The id of the job.
    pub(crate) jid: Bytes,
}

impl ReadyEntry {
    pub(super) fn new(jid: &Bytes, place: &QlessPlace) -> Self {
        Self {
            rank: place.rank,
            at: place.at,
            jid: jid.clone(),
        }
    }
}

impl Ord for ReadyEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.rank.total_cmp(&self.rank))
            .then_with(|| self.at.cmp(&other.at))
            .then_with(|| other.jid.cmp(&self.jid))
    }
}

impl PartialOrd for ReadyEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ReadyEntry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ReadyEntry {}
