//! The orders of the dialect's sets, ties included.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bytes::Bytes;
use ganger_types::qless::{QlessPlace, QlessTime};

/// Names by a time, earliest first; ties by their bytes.
pub(crate) type ByTime = BTreeSet<(QlessTime, Bytes)>;

/// A set without anything, for what nobody has put anything in.
pub(super) static NOTHING: ByTime = ByTime::new();

/// The entries of `set` with a time from `from` to `to`, both included, in order.
pub(crate) fn between(
    set: &ByTime,
    from: QlessTime,
    to: QlessTime,
) -> impl Iterator<Item = &(QlessTime, Bytes)> {
    set.range((from, Bytes::new())..)
        .take_while(move |(at, _)| *at <= to)
}

/// The entries of `set` with a time up to `to`, itself included, in order.
pub(crate) fn until(set: &ByTime, to: QlessTime) -> impl Iterator<Item = &(QlessTime, Bytes)> {
    set.iter().take_while(move |(at, _)| *at <= to)
}

/// The entries of `set` with a time from `from` on, itself included, in order.
pub(crate) fn since(set: &ByTime, from: QlessTime) -> impl Iterator<Item = &(QlessTime, Bytes)> {
    set.range((from, Bytes::new())..)
}

/// A job among the ready ones of a queue. The greatest rank is first; then the earliest time; then the jid that is
/// **last** by its bytes, as in a list that is kept by one score and read from its end.
#[derive(Clone, Debug)]
pub(crate) struct InLine {
    rank: f64,
    at: QlessTime,
    pub(crate) jid: Bytes,
}

impl InLine {
    pub(super) fn new(jid: &Bytes, place: &QlessPlace) -> Self {
        Self {
            rank: place.rank,
            at: place.at,
            jid: jid.clone(),
        }
    }
}

impl Ord for InLine {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.rank.total_cmp(&self.rank))
            .then_with(|| self.at.cmp(&other.at))
            .then_with(|| other.jid.cmp(&self.jid))
    }
}

impl PartialOrd for InLine {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InLine {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for InLine {}
