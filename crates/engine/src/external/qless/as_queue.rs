//! Queues of qless, shown as queues of the engine. The counts of a queue that both have are added.

use ganger_qless::{Qless, QueueSizes};
use ganger_types::reply::QueueView;
use ganger_types::{Queue, QueueCounts, QueueSettings, Timestamp};

use super::as_job::moment;

/// The view of a queue that only qless has. Counts that qless does not keep are 0: jobs ever enqueued, and completed
/// jobs. The time since which a job is ready is absent, because the clocks of callers need not be real.
pub(super) fn view(qless: &Qless, queue: &Queue) -> QueueView {
    let name = queue.as_bytes();
    let sizes = qless.sizes(name);
    let seen = qless.seen_since(name);
    QueueView {
        queue: queue.clone(),
        settings: QueueSettings {
            paused: qless.is_paused_queue(name),
            ..QueueSettings::default()
        },
        counts: counts(sizes),
        schedules: wide(sizes.recurring),
        oldest_ready_for: None,
        asked_ago: None,
        created_at: seen.map_or(Timestamp(0), |at| moment(at.seconds())),
        enqueued_total: 0,
        finished_total: 0,
    }
}

/// Adds the jobs of the qless queue of that name to the view of a queue; its settings stay.
pub(super) fn add(view: &mut QueueView, qless: &Qless) {
    let sizes = qless.sizes(view.queue.as_bytes());
    let more = counts(sizes);
    for state in ganger_types::JobState::ALL {
        *view.counts.of_mut(state) += more.of(state);
    }
    view.schedules += wide(sizes.recurring);
}

fn counts(sizes: QueueSizes) -> QueueCounts {
    QueueCounts {
        blocked: wide(sizes.depends),
        scheduled: wide(sizes.scheduled),
        ready: wide(sizes.ready),
        running: wide(sizes.locked),
        failed: wide(sizes.failed),
        ..QueueCounts::default()
    }
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
