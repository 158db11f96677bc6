//! Work queues of raw keys, shown as queues. Counts are the lengths of the lists, as for clients of the work queue.

use ganger_types::reply::QueueView;
use ganger_types::{Queue, QueueCounts, QueueSettings, Timestamp};

use super::KeySpace;
use super::work_queue::Lists;

/// The view of the work queue with this name; `None` if its lists are empty.
pub(super) fn view(space: &KeySpace, queue: &Queue) -> Option<QueueView> {
    Some(QueueView {
        queue: queue.clone(),
        settings: QueueSettings::default(),
        counts: counts(space, queue)?,
        schedules: 0,
        oldest_ready_for: None,
        asked_ago: None,
        created_at: Timestamp(0),
        enqueued_total: 0,
        finished_total: 0,
    })
}

/// Adds the lengths of the lists of that name to the view of a queue.
pub(super) fn add(view: &mut QueueView, space: &KeySpace) {
    if let Some(more) = counts(space, &view.queue) {
        view.counts.ready += more.ready;
        view.counts.running += more.running;
    }
}

/// The lengths of the lists. Ids that occur twice and ids without an item count too, as for the clients.
fn counts(space: &KeySpace, queue: &Queue) -> Option<QueueCounts> {
    if !space.queues.contains(queue.as_bytes()) {
        return None;
    }
    let Lists { main, processing } = space.lists_of(queue.as_bytes())?;
    let length = |list: Option<&super::List>| list.map_or(0, super::List::len);
    let wide = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    Some(QueueCounts {
        ready: wide(length(main)),
        running: wide(length(processing)),
        ..QueueCounts::default()
    })
}
