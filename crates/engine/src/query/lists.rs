//! Answers about many jobs or names at once: counts, next jobs, causes of waiting, names that begin alike.

use std::collections::BTreeMap;

use ganger_types::query::{Named, ReadyPlace};
use ganger_types::reply::QueueView;
use ganger_types::why::{QueueCause, QueueWait};
use ganger_types::{
    Group, Namespace, Now, Queue, QueueCounts, Rejection, ScheduleId, Tag, Worker, limits,
};

use crate::engine::Engine;
use crate::state::QueueIndex;

impl Engine {
    /// The number of jobs in each state: of a queue, or of all queues of a namespace.
    pub(super) fn counts(&self, namespace: &Namespace, queue: Option<&Queue>) -> QueueCounts {
        let mut sum = QueueCounts::default();
        let external = match queue {
            Some(queue) => [queue.clone()].into(),
            None => self.external.queues(namespace),
        };
        let external = external.iter();
        for view in external.filter_map(|name| self.external.queue(namespace, name)) {
            sum.add(&view.counts);
        }
        let indexes: Vec<QueueIndex> = match queue {
            Some(queue) => self.find_queue(namespace, queue).into_iter().collect(),
            None => self.in_space(namespace, |space| space.queues.values().copied().collect()),
        };
        for index in indexes {
            sum.add(&self.queues[index].counts);
        }
        sum
    }

    /// At most `limit` ready jobs of a queue after a place, in the order in which they are leased.
    pub(super) fn next_jobs(
        &self,
        namespace: &Namespace,
        queue: &Queue,
        after: Option<&ReadyPlace>,
        limit: usize,
    ) -> Vec<ReadyPlace> {
        let Some(index) = self.find_queue(namespace, queue) else {
            return Vec::new();
        };
        let places = self.queues[index].ready.after(after);
        places
            .take(limit.min(limits::PAGE_JOBS_MAX))
            .copied()
            .collect()
    }

    /// Why the jobs of a queue are not running, most important first.
    pub(super) fn queue_why(
        &self,
        now: Now,
        namespace: &Namespace,
        queue: &Queue,
    ) -> Result<Vec<QueueWait>, Rejection> {
        let index = self.find_queue(namespace, queue);
        let view = match index {
            Some(index) => Some(self.queue_view(now, index)),
            None => self.external.queue(namespace, queue),
        };
        let view = view.ok_or_else(|| Rejection::QueueNotFound {
            queue: queue.clone(),
        })?;
        let waits = [
            (self.ready_cause(now, &view, index), view.counts.ready),
            (QueueCause::NotBefore, view.counts.scheduled),
            (QueueCause::WaitsFor, view.counts.blocked),
        ];
        let waits = waits.into_iter().filter(|(_, jobs)| *jobs > 0);
        Ok(waits
            .map(|(cause, jobs)| QueueWait { cause, jobs })
            .collect())
    }

    /// The cause that all ready jobs of a queue have in common.
    fn ready_cause(&self, now: Now, view: &QueueView, index: Option<QueueIndex>) -> QueueCause {
        let running = view.counts.running;
        if view.settings.paused {
            return QueueCause::Paused;
        }
        let is_reached = |limit: &u32| running >= u64::from(*limit);
        if let Some(limit) = view.settings.running_max.filter(is_reached) {
            return QueueCause::Limit { running, limit };
        }
        // Requests for the jobs of external systems are not recorded.
        let Some(index) = index.filter(|index| self.queues[*index].ready.len() > 0) else {
            return QueueCause::InOrder;
        };
        let asked = self.queues[index].asked;
        match asked.map(|asked| now.elapsed.since(asked)) {
            Some(silent) if silent <= limits::LEASE_FOR_DEFAULT => QueueCause::InOrder,
            silent_for => QueueCause::NoWorker { silent_for },
        }
    }

    /// The failure groups with the number of kept jobs in each, in order of names.
    pub(super) fn failure_groups(&self, namespace: &Namespace) -> Vec<(Group, u64)> {
        let mut groups = self.in_space(namespace, |space| space.group_counts.clone());
        for (group, count) in self.external.failure_groups(namespace) {
            *groups.entry(group).or_default() += count;
        }
        groups.into_iter().collect()
    }

    /// The most used tags, most used first.
    pub(super) fn top_tags(
        &self,
        namespace: &Namespace,
        skip: usize,
        take: usize,
    ) -> Vec<(Tag, u64)> {
        let mut tags: Vec<_> = self.in_space(namespace, |space| {
            let counts = space.tag_counts.iter();
            counts.map(|(tag, count)| (tag.clone(), *count)).collect()
        });
        tags.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| b.0.cmp(&a.0)));
        tags.into_iter().skip(skip).take(take).collect()
    }

    /// At most `limit` names that begin with `prefix`, in order.
    pub(super) fn list_names(
        &self,
        namespace: &Namespace,
        of: Named,
        prefix: &[u8],
        limit: usize,
    ) -> Vec<Vec<u8>> {
        let external = match of {
            Named::Queue => {
                let queues = self.external.queues(namespace).into_iter();
                queues.map(|queue| queue.as_bytes().to_vec()).collect()
            }
            Named::Group => {
                let groups = self.external.failure_groups(namespace).into_iter();
                groups.map(|(group, _)| group.as_bytes().to_vec()).collect()
            }
            Named::Tag | Named::Worker | Named::Schedule => Vec::new(),
        };
        let limit = limit.min(limits::PAGE_NAMES_MAX);
        let mut names = self.in_space(namespace, |space| match of {
            Named::Queue => from(&space.queues, Queue::new(prefix), Queue::as_bytes, limit),
            Named::Tag => from(&space.tag_counts, Tag::new(prefix), Tag::as_bytes, limit),
            Named::Worker => from(&space.workers, Worker::new(prefix), Worker::as_bytes, limit),
            Named::Group => from(
                &space.group_counts,
                Group::new(prefix),
                Group::as_bytes,
                limit,
            ),
            Named::Schedule => from(
                &space.schedules,
                ScheduleId::new(prefix),
                ScheduleId::as_bytes,
                limit,
            ),
        });
        names.extend(external.into_iter().filter(|name| name.starts_with(prefix)));
        names.sort_unstable();
        names.dedup();
        names.truncate(limit);
        names
    }
}

/// The keys of a map from `first` on that begin with it. A prefix that is too long for a name has none.
fn from<K: Ord, V, E>(
    map: &BTreeMap<K, V>,
    first: Result<K, E>,
    bytes: impl Fn(&K) -> &[u8],
    limit: usize,
) -> Vec<Vec<u8>> {
    let Ok(first) = first else {
        return Vec::new();
    };
    let names = map.range(&first..).map(|(name, _)| bytes(name));
    let names = names.take_while(|name| name.starts_with(bytes(&first)));
    names.take(limit).map(<[u8]>::to_vec).collect()
}
