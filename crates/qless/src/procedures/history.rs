//! What happened to a job.

use bytes::Bytes;
use ganger_types::qless::{QlessHappening, QlessRefusal};

use super::configuration::{JOB_HISTORY_MAX, number_of};
use crate::json::Writer;
use crate::number;
use crate::state::Qless;

/// How long a history may become; 0: as long as it likes. Commands get it among their checks, since the option may be
/// no number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(usize);

/// The limit as it is configured.
pub(crate) fn limit(state: &Qless) -> Result<Limit, QlessRefusal> {
    let entries = number_of(state, "max-job-history", JOB_HISTORY_MAX)?;
    // Above 0, and so less than one entry is still a limit.
    let entries = number::cut(entries.ceil().max(0.0));
    Ok(Limit(usize::try_from(entries).unwrap_or(usize::MAX)))
}

/// Appends an entry, and cuts the list before: the oldest entry always stays, and of the others as many of the newest as
/// make the list, with this entry, no longer than the limit.
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
        job.history.push(QlessHappening {
            what,
            when: when.floor(),
            extra,
        });
    });
}

/// A key of an entry with a text as its value.
pub(crate) fn text(key: &'static str, value: &[u8]) -> (Bytes, Bytes) {
    let mut json = Writer::with_room(value.len() + 2);
    json.string(value);
    (Bytes::from_static(key.as_bytes()), json.finish().into())
}

/// Appends that the job was put into a queue.
pub(crate) fn put(state: &mut Qless, jid: &Bytes, limit: Limit, queue: &Bytes, when: f64) {
    let what = Bytes::from_static(b"put");
    append(state, jid, limit, what, when, vec![text("q", queue)]);
}

/// Appends that the job's lock ran out, or was taken.
pub(crate) fn timed_out(state: &mut Qless, jid: &Bytes, limit: Limit, when: f64) {
    let what = Bytes::from_static(b"timed-out");
    append(state, jid, limit, what, when, Vec::new());
}
