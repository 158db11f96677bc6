//! Work queues of raw keys as queues: counts are the lengths of their lists, as their own clients count.

use ganger_types::reply::QueueView;
use ganger_types::{Namespace, Queue, QueueCounts, QueueSettings, Timestamp};

use super::work_queue::Lists;
use super::{KeySpace, Keys};

impl Keys {
    /// Namespaces that have work queues.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        let with_queues = self.spaces.iter();
        let with_queues = with_queues.filter(|(_, space)| !space.queues.is_empty());
        with_queues.map(|(namespace, _)| namespace)
    }

    /// Its work queues whose names may be those of ours.
    pub(crate) fn queues(&self, namespace: &Namespace) -> Vec<Queue> {
        let names = self.spaces.get(namespace).map(|space| &space.queues);
        let names = names.into_iter().flatten();
        names.filter_map(|name| Queue::new(name).ok()).collect()
    }

    /// The work queue of that name, if one of its lists has elements.
    pub(crate) fn queue(&self, namespace: &Namespace, queue: &Queue) -> Option<QueueView> {
        let space = self.spaces.get(namespace)?;
        let counts = counts(space, queue)?;
        Some(QueueView {
            queue: queue.clone(),
            settings: QueueSettings::default(),
            counts,
            schedules: 0,
            oldest_ready_for: None,
            created_at: Timestamp(0),
            enqueued_total: 0,
            finished_total: 0,
        })
    }

    /// Adds what is in its lists of that name to the view of a queue.
    pub(crate) fn add_to(&self, namespace: &Namespace, view: &mut QueueView) {
        let space = self.spaces.get(namespace);
        let Some(more) = space.and_then(|space| counts(space, &view.queue)) else {
            return;
        };
        view.counts.ready += more.ready;
        view.counts.running += more.running;
    }
}

/// The lengths of its lists: ids that are there twice, and ids without an item, count as for the clients.
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
