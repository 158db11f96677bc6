//! Creates the children of recurring jobs when they are due.

use bytes::Bytes;
use ganger_types::qless::{QlessRecurring, QlessSet, QlessState, QlessTime};

use super::history::{self, Limit};
use super::{tags, throttles};
use crate::call::Call;
use crate::number;
use crate::state::{JobFields, Qless, between};

/// Maximum number of children that one call creates. Without it, a short interval and a large count would create any
/// number. Later calls create the rest.
const SPAWNED_MAX: usize = 10_000;

/// Creates the children that are due, at most `count` over all recurring jobs of the queue. This does not make the
/// queue known.
pub(crate) fn spawn(
    state: &mut Qless,
    call: &Call<'_>,
    queue: &Bytes,
    count: usize,
    history: Limit,
) {
    let mut wanted = count.min(SPAWNED_MAX);
    let recur = state.time_index(queue, QlessSet::Recur);
    let due: Vec<Bytes> = between(recur, QlessTime::default(), call.at())
        .take(wanted)
        .map(|(_, jid)| jid.clone())
        .collect();
    for jid in due {
        if let Some(recurring) = state.recurring(&jid).cloned() {
            wanted -= spawn_of(state, call, recurring, wanted, history);
        }
    }
}

/// Creates the due children of one recurring job, at most `wanted`, and returns how many it created.
fn spawn_of(
    state: &mut Qless,
    call: &Call<'_>,
    mut recurring: QlessRecurring,
    wanted: usize,
    history: Limit,
) -> usize {
    let mut due = first_due(&recurring, call.now);
    let mut made = 0;
    while due <= call.now && made < wanted {
        recurring.count += 1;
        add_child(state, call, &recurring, due, history);
        due = number::sum(due, recurring.interval);
        made += 1;
    }
    // Runs that the backlog skips are final only once the recurring job has created a child.
    if made > 0 {
        recurring.next_at = QlessTime::new(due);
        state.put_recurring(recurring);
    }
    made
}

/// Returns when the first child is due, in whole seconds. Skips older runs, so that at most as many are made up for as
/// the backlog allows; a backlog of 0 skips none.
fn first_due(recurring: &QlessRecurring, now: f64) -> f64 {
    let due = recurring.next_at.seconds().floor();
    if recurring.backlog == 0.0 {
        return due;
    }
    let runs = (now - due) / recurring.interval;
    if runs > recurring.backlog {
        let skipped = (runs - recurring.backlog).ceil();
        number::sum(due, number::sum(skipped * recurring.interval, 0.0))
    } else {
        due
    }
}

fn add_child(
    state: &mut Qless,
    call: &Call<'_>,
    recurring: &QlessRecurring,
    due: f64,
    limit: Limit,
) {
    let count = recurring.count.to_string();
    let jid = Bytes::from([&recurring.jid[..], b"-", count.as_bytes()].concat());
    remove_older_job(state, call, &jid);
    state.ensure_job(&jid);
    tags::add_all(state, &jid, &recurring.tags, call.at());
    state.edit(&jid, |mut job| write_record(&mut job, recurring, due));
    history::put(state, &jid, limit, &recurring.queue, due);
    state.make_ready(&jid, &recurring.queue, QlessTime::new(due));
}

/// Removes an older job with that jid from its sets and lists, without a message. There is one if a recurring job was
/// removed and created again, because the new one counts its children from 1. The older job's history, its entries in
/// the tag index, and its dependents stay.
fn remove_older_job(state: &mut Qless, call: &Call<'_>, jid: &Bytes) {
    let Some(older) = state.job(jid) else { return };
    let worker = older.worker.clone();
    state.move_to(jid, None);
    state.set_worker_entry(jid, &worker, None);
    throttles::stop_waiting(state, jid);
    throttles::release(state, call, jid);
    state.set_completed_at(jid, None);
    state.set_failure(jid, None);
    state.unlink_all(jid);
}

fn write_record(job: &mut JobFields<'_>, recurring: &QlessRecurring, due: f64) {
    job.klass.clone_from(&recurring.klass);
    job.data.clone_from(&recurring.data);
    *job.state = QlessState::Waiting;
    job.queue.clone_from(&recurring.queue);
    *job.worker = Bytes::new();
    *job.priority = recurring.priority;
    *job.expires = 0.0;
    *job.retries = recurring.retries;
    *job.remaining = recurring.retries;
    job.tags.clone_from(&recurring.tags);
    *job.spawned_from = Some(recurring.jid.clone());
    *job.time = due;
    *job.is_warned = false;
    *job.scheduled = None;
    job.throttles.clone_from(&recurring.throttles);
}
