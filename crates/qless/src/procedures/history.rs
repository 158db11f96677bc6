//! The history of a job: its entries, and the limit on their number.

use bytes::Bytes;
use ganger_types::qless::{QlessHistoryEntry, QlessRefusal};

use super::configuration::{JOB_HISTORY_MAX, number_of};
use crate::json::Writer;
use crate::number;
use crate::state::Qless;

/// Maximum number of entries of a history; 0 means no limit. Commands read it among their checks, because the option
/// may not be a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(usize);

/// Returns the limit that the option `max-job-history` sets.
pub(crate) fn limit(state: &Qless) -> Result<Limit, QlessRefusal> {
    let entries = number_of(state, "max-job-history", JOB_HISTORY_MAX)?;
    // A fraction above 0 is a limit of one entry, not the absence of a limit.
    let entries = number::truncate(entries.ceil().max(0.0));
    Ok(Limit(usize::try_from(entries).unwrap_or(usize::MAX)))
}

/// Appends an entry. Before that, it removes the oldest entries but the very first, so that the list with the new entry
/// is within the limit. The very first entry always stays.
pub(crate) fn append(
    state: &mut Qless,
    jid: &Bytes,
    limit: Limit,
    what: Bytes,
    when: f64,
    extra: Vec<(Bytes, Bytes)>,
) {
    state.edit(jid, |job| {
        let (Limit(limit), length) = (limit, job.history.len());
        if limit > 0 && length > 0 {
            let others = length - 1;
            let kept = others.min(limit.saturating_sub(2));
            job.history.drain(1..=others - kept);
        }
        job.history.push(QlessHistoryEntry {
            what,
            when: when.floor(),
            extra,
        });
    });
}

/// Returns a further key of an entry, with a text as its value.
pub(crate) fn text(key: &'static str, value: &[u8]) -> (Bytes, Bytes) {
    let mut json = Writer::with_capacity(value.len() + 2);
    json.string(value);
    (Bytes::from_static(key.as_bytes()), json.finish().into())
}

/// Appends an entry for a job that was put into a queue.
pub(crate) fn put(state: &mut Qless, jid: &Bytes, limit: Limit, queue: &Bytes, when: f64) {
    let what = Bytes::from_static(b"put");
    append(state, jid, limit, what, when, vec![text("q", queue)]);
}

/// Appends an entry for a job whose lock expired or was taken away.
pub(crate) fn timed_out(state: &mut Qless, jid: &Bytes, limit: Limit, when: f64) {
    let what = Bytes::from_static(b"timed-out");
    append(state, jid, limit, what, when, Vec::new());
}
