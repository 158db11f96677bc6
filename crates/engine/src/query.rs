//! Queries, answered from memory. They run in the order of commands, and their answers wait for the same commit as
//! those of earlier commands, so they never show anything that a crash could take back (`rel D4`).

mod lists;

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use ganger_types::limits::SCHEDULE_TIMES_MAX;
use ganger_types::query::Query;
use ganger_types::reply::{QueueView, WorkerView};
use ganger_types::{
    Answer, Day, JobId, JobKey, Namespace, NamespaceRecord, NamespaceSettings, Now, Queue,
    Rejection, Reply, Sample, ScheduleId, StatisticsRecord, Timestamp, Worker,
};

use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::recurrence::Recurrence;
use crate::state::{QueueIndex, Space};

impl Engine {
    pub(crate) fn query(&self, now: Now, query: &Query, known: &FinishedIndex) -> Answer {
        Ok(match query {
            Query::Queues(namespace, after, limit) => {
                Reply::Queues(self.queue_views(now, namespace, after.as_ref(), *limit))
            }
            Query::Queue(namespace, queue) => {
                let found = match self.find_queue(namespace, queue) {
                    Some(index) => Some(self.queue_view(now, index)),
                    None => self.external.queue(namespace, queue),
                };
                let view = found.ok_or_else(|| Rejection::QueueNotFound {
                    queue: queue.clone(),
                })?;
                Reply::Queue(Box::new(view))
            }
            Query::Counts(namespace, queue) => {
                Reply::Counts(self.counts(namespace, queue.as_ref()))
            }
            Query::NextJobs(namespace, queue, after, limit) => {
                Reply::NextJobs(self.next_jobs(namespace, queue, after.as_ref(), *limit))
            }
            Query::QueueWhy(namespace, queue) => {
                Reply::QueueWhy(self.queue_why(now, namespace, queue)?)
            }
            Query::Names(namespace, of, prefix, limit) => {
                Reply::Names(self.list_names(namespace, *of, prefix, *limit))
            }
            Query::Namespaces => Reply::Namespaces(self.namespace_records()),
            Query::Workers(namespace, after, limit) => {
                Reply::Workers(self.worker_views(namespace, after.as_ref(), *limit))
            }
            Query::FailureGroups(namespace) => Reply::FailureGroups(self.failure_groups(namespace)),
            Query::TopTags(namespace, skip, take) => {
                Reply::Tags(self.top_tags(namespace, *skip, *take))
            }
            Query::Tracked(namespace) => Reply::Tracked(self.tracked_jobs(namespace)),
            Query::Schedules(namespace) => Reply::Schedules(self.in_space(namespace, |space| {
                space.schedules.values().cloned().collect()
            })),
            Query::Schedule(namespace, id) => {
                let found = self
                    .find_space(namespace)
                    .and_then(|space| self.spaces[space].schedules.get(id));
                let schedule =
                    found.ok_or_else(|| Rejection::ScheduleNotFound { id: id.clone() })?;
                Reply::Schedule(Box::new(schedule.clone()))
            }
            Query::ScheduleTimes(namespace, id, count) => {
                Reply::Times(self.schedule_times(now, namespace, id, *count)?)
            }
            Query::Statistics(namespace, queue, day) => {
                Reply::Statistics(Box::new(self.statistics_of(namespace, queue, *day)))
            }
            Query::Why(namespace, id) => Reply::Why(Box::new(self.why(now, namespace, id, known)?)),
            Query::CancelEffects(namespace, id) => {
                Reply::CancelEffects(Box::new(self.cancel_effects(now, namespace, id, known)?))
            }
            Query::ExternalJob(namespace, id) => {
                Reply::ExternalJob(self.external_job(now, namespace, id))
            }
            Query::ExternalJobs(query) => {
                let (found, rest) = self.external_jobs(now, query);
                Reply::ExternalJobs(found, rest)
            }
            Query::Peers => self.peer_views(now),
            Query::Waits(shard) => self.waits_due(now, shard),
            Query::Outbox(shard, from, limit) => self.outbox_page(shard, *from, *limit),
            Query::SubmissionAnswer(namespace, key) => {
                let part = self.part_with_key(now, namespace, key);
                Reply::SubmissionAnswer(part.cloned().map(Box::new))
            }
            Query::ExistingIds(namespace, ids) => {
                let looked = ids.iter().map(|(id, print)| {
                    let found = self.same_id(namespace, id, *print, known)?;
                    Ok(found.is_some())
                });
                Reply::ExistingIds(looked.collect::<Result<_, Rejection>>()?)
            }
            Query::Operation(namespace, number) => {
                Reply::Operation(Box::new(self.operation(namespace, *number)?.clone()))
            }
            Query::Operations(namespace, before, limit) => {
                let newest_first = self.operations.iter().rev();
                let theirs = newest_first.filter(|record| record.namespace == *namespace);
                let older = theirs.filter(|record| before.is_none_or(|it| record.number < it));
                Reply::Operations(older.take(*limit).cloned().collect())
            }
            Query::RunningOperations => {
                Reply::Operations(self.operations.running().cloned().collect())
            }
            Query::AuditLog(query) => {
                let (records, next) = self.audit_page(query);
                Reply::AuditLog(records, next)
            }
            Query::Undecided => Reply::Undecided(self.undecided_parts()),
            Query::Audit => Reply::Audit(self.check_invariants()),
        })
    }

    /// Returns the tracked jobs of a namespace, and since when each is tracked; the longest tracked first.
    fn tracked_jobs(&self, namespace: &Namespace) -> Vec<(JobId, Timestamp)> {
        self.in_space(namespace, |space| {
            let mut tracked: Vec<_> = space
                .tracked
                .iter()
                .map(|(id, since)| (id.clone(), *since))
                .collect();
            tracked.sort_by_key(|(_, since)| *since);
            tracked
        })
    }

    /// Returns the statistics of a queue on one day; zeros if nothing happened there.
    fn statistics_of(&self, namespace: &Namespace, queue: &Queue, day: Day) -> StatisticsRecord {
        let found = self
            .find_queue(namespace, queue)
            .and_then(|index| self.statistics.find(index, day));
        found.cloned().unwrap_or_else(|| StatisticsRecord {
            namespace: namespace.clone(),
            queue: queue.clone(),
            day,
            failed: 0,
            failures: 0,
            retries: 0,
            waiting: Sample::default(),
            running: Sample::default(),
        })
    }

    pub(super) fn in_space<T: Default>(
        &self,
        namespace: &Namespace,
        show: impl FnOnce(&Space) -> T,
    ) -> T {
        self.find_space(namespace)
            .map(|space| show(&self.spaces[space]))
            .unwrap_or_default()
    }

    /// The next times of a schedule, as if it were not paused.
    fn schedule_times(
        &self,
        now: Now,
        namespace: &Namespace,
        id: &ScheduleId,
        count: usize,
    ) -> Result<Vec<Timestamp>, Rejection> {
        let space = self.find_space(namespace);
        let found = space.and_then(|space| self.spaces[space].schedules.get(id));
        let schedule = found.ok_or_else(|| Rejection::ScheduleNotFound { id: id.clone() })?;
        let recurrence = Recurrence::read(&schedule.spec)?;
        let first = schedule.next_at.filter(|at| *at >= now.wall);
        let first = first.or_else(|| recurrence.after(now.wall));
        let times = std::iter::successors(first, |at| recurrence.after(*at));
        Ok(times.take(count.min(SCHEDULE_TIMES_MAX)).collect())
    }

    /// At most `limit` queues after `after`, in order of their names, including those of external systems.
    fn queue_views(
        &self,
        now: Now,
        namespace: &Namespace,
        after: Option<&Queue>,
        limit: usize,
    ) -> Vec<QueueView> {
        let is_behind = |queue: &Queue| after.is_none_or(|after| queue > after);
        let mut names = self.external.queues(namespace);
        names.retain(is_behind);
        let ours = self.find_space(namespace).map(|space| {
            let start = after.map_or(Bound::Unbounded, Bound::Excluded);
            self.spaces[space]
                .queues
                .range::<Queue, _>((start, Bound::Unbounded))
        });
        let is_shown = |queue: &QueueIndex| self.queues[*queue].known;
        let ours = ours.into_iter().flatten();
        let ours = ours.filter(|(_, index)| is_shown(index)).take(limit);
        names.extend(ours.map(|(name, _)| name.clone()));
        let view = |name: &Queue| {
            let index = self.find_queue(namespace, name).filter(is_shown);
            match index {
                Some(index) => Some(self.queue_view(now, index)),
                None => self.external.queue(namespace, name),
            }
        };
        names.iter().filter_map(view).take(limit).collect()
    }

    /// The namespaces that jobs of the engine or external jobs have used.
    fn namespace_records(&self) -> Vec<NamespaceRecord> {
        let ours = self.spaces.iter().map(Space::record);
        let others: BTreeSet<&Namespace> = self
            .external
            .namespaces()
            .into_iter()
            .filter(|name| self.find_space(name).is_none())
            .collect();
        let others = others.into_iter().map(|namespace| NamespaceRecord {
            namespace: namespace.clone(),
            settings: NamespaceSettings::default(),
        });
        ours.chain(others).collect()
    }

    pub(super) fn queue_view(&self, now: Now, index: QueueIndex) -> QueueView {
        let queue = &self.queues[index];
        let schedules = self.spaces[queue.space]
            .schedules
            .values()
            .filter(|schedule| schedule.queue == queue.name)
            .count();
        let mut view = QueueView {
            queue: queue.name.clone(),
            settings: queue.settings.clone(),
            counts: queue.counts,
            schedules: u64::try_from(schedules).unwrap_or(u64::MAX),
            oldest_ready_for: queue
                .ready
                .first()
                .map(|(_, _, key)| now.elapsed.since(self.job(*key).ready_at)),
            asked_ago: queue.asked.map(|asked| now.elapsed.since(asked)),
            created_at: queue.created_at,
            enqueued_total: queue.enqueued_total,
            finished_total: queue.finished_total,
        };
        let namespace = &self.spaces[queue.space].name;
        self.external.add_to(namespace, &mut view);
        view
    }

    /// At most `limit` workers after `after`, in order of their names.
    fn worker_views(
        &self,
        namespace: &Namespace,
        after: Option<&Worker>,
        limit: usize,
    ) -> Vec<WorkerView> {
        self.in_space(namespace, |space| {
            let held = |key: &JobKey| self.job(*key).lease().map(|lease| lease.lease_for);
            let view = |(worker, state): (&Worker, &crate::state::WorkerState)| WorkerView {
                worker: worker.clone(),
                seen_at: state.seen_at,
                lease_for: state
                    .holds
                    .iter()
                    .filter_map(held)
                    .fold(state.lease_for, Duration::max),
                holds: state
                    .holds
                    .iter()
                    .map(|key| {
                        let job = self.job(*key);
                        let queue = self.queues[job.queue].name.clone();
                        let since = job.lease().map_or(job.created_at, |lease| lease.granted_at);
                        (job.id(), queue, self.names.kind(job.kind).clone(), since)
                    })
                    .collect(),
            };
            let start = after.map_or(Bound::Unbounded, Bound::Excluded);
            let workers = space.workers.range::<Worker, _>((start, Bound::Unbounded));
            workers.take(limit).map(view).collect()
        })
    }
}
