//! Removes jobs, by hand or because their retention has passed.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::{Delete, ExpiredJob, ExpiredJobsQuery, Retire};
use ganger_types::{
    Answer, Change, Happening, JobId, JobKey, JobRecord, Now, Outcome, Reply, Timestamp,
};

use super::cancel::check_bulk;
use crate::endings::DEPENDENCY_GROUP;
use crate::engine::Engine;
use crate::state::{QueueIndex, outcome_place};
use crate::turn::Turn;

/// Searches per maximum age: finished jobs of one queue and outcome are searched for again after this part of their
/// retention.
const LOOKS_PER_AGE: u64 = 100;

impl Engine {
    /// Removes jobs; live ones are cancelled first, with all consequences for their dependents. The reply lists those
    /// that were skipped: jobs whose results live jobs still use, jobs that an undecided submission waits for, external
    /// jobs that the rules of their system keep. A job that waits for the retry of a removed job would
    /// wait forever, so it fails, on this shard and on others (`rel T1`).
    pub(crate) fn delete(&mut self, cmd: &Delete, turn: &mut Turn<'_>) -> Answer {
        check_bulk(cmd.jobs.len())?;
        self.refuse_external_item(&cmd.namespace, &cmd.jobs, turn.known)?;
        let mut external_jobs = BTreeSet::new();
        for id in &cmd.jobs {
            let is_ours = self.find_job(&cmd.namespace, id).is_some()
                || turn.known.find(&cmd.namespace, id).is_some();
            if is_ours {
                continue;
            }
            if !self.has_external_job(&cmd.namespace, id) {
                return Err(self.no_job(&cmd.namespace, id));
            }
            external_jobs.insert(id.clone());
        }
        let named = external_jobs.iter().cloned().collect();
        let (mut count, mut skipped) = self.cancel_external(&cmd.namespace, named, turn);
        // A refused command has changed nothing.
        if let ([id], [_]) = (&cmd.jobs[..], &skipped[..]) {
            return Err(self.refuse_delete_external(&cmd.namespace, id));
        }

        // Cancel all live jobs before any of their endings has consequences, so that the outcome does not depend on
        // the order of the list (`rel K5`).
        let mut gone = BTreeMap::new();
        for id in &cmd.jobs {
            let live = self.find_job(&cmd.namespace, id);
            if let Some(key) = live.filter(|key| !self.is_needed_by_part(*key)) {
                gone.insert(id, self.record(key));
                self.cancel_job(key, "deleted", turn);
            }
        }
        self.propagate_endings(turn);
        for record in gone.values() {
            self.fail_those_who_wait(record, turn);
        }
        self.propagate_endings(turn);

        for id in cmd.jobs.iter().filter(|id| !external_jobs.contains(*id)) {
            let is_removed = match gone.remove(id) {
                Some(record) => {
                    self.remove(&record, Outcome::Cancelled, turn);
                    true
                }
                None => self.delete_finished(&cmd.namespace, id, turn),
            };
            if is_removed {
                count += 1;
            } else {
                skipped.push(id.clone());
            }
        }
        Ok(Reply::Changed { count, skipped })
    }

    fn fail_those_who_wait(&mut self, dependency: &JobRecord, turn: &mut Turn<'_>) {
        for (dependent, ..) in self.edges.waiting_for(dependency.key) {
            if self.is_live(dependent) {
                let message = format!("dependency {} was deleted", dependency.id);
                self.fail_unstarted(dependent, DEPENDENCY_GROUP, message, turn);
            }
        }
    }

    fn delete_finished(
        &mut self,
        namespace: &ganger_types::Namespace,
        id: &JobId,
        turn: &mut Turn<'_>,
    ) -> bool {
        let Some(record) = turn.known.find(namespace, id) else {
            return false;
        };
        let Some(finished) = &record.finished else {
            return false;
        };
        // The job is named twice, or a turn that the host had not seen removed it.
        if self.removed.contains(record.key) || self.is_needed(record.key) {
            return false;
        }
        self.remove(record, finished.outcome, turn);
        true
    }

    /// Removes those candidates whose retention has really passed and that no job needs (`rel K1` to `K4`).
    pub(crate) fn retire(&mut self, cmd: Retire, turn: &mut Turn<'_>) -> Reply {
        let mut count = 0;
        for expired in cmd.jobs {
            if let Some(outcome) = self.may_retire(turn.now, &expired) {
                self.remove(&expired.record, outcome, turn);
                count += 1;
            }
        }
        Reply::Changed {
            count,
            skipped: Vec::new(),
        }
    }

    fn may_retire(&self, now: Now, expired: &ExpiredJob) -> Option<Outcome> {
        let record = &expired.record;
        let finished = record.finished.as_ref()?;
        let is_gone = self.removed.contains(record.key) || self.is_live(record.key);
        if is_gone || self.is_needed(record.key) {
            return None;
        }
        let queue = &self.queues[self.find_queue(&record.namespace, &record.queue)?];
        let space = &self.spaces[queue.space];
        let keep = queue.keep(space, finished.outcome);
        let is_over_count = keep
            .count
            .is_some_and(|max| queue.counts.of(finished.outcome.state()) > max);
        let is_old = match (finished.keep_until, keep.age) {
            (Some(until), _) => until.is_some_and(|until| until <= now.wall),
            (None, Some(age)) => finished.at.after(age) <= now.wall,
            (None, None) => false,
        };
        let is_due = (expired.beyond_count && is_over_count && finished.keep_until.is_none())
            || (is_old && self.clock.trusts_age(now, finished.order));
        is_due.then_some(finished.outcome)
    }

    /// Removes a finished job for good.
    fn remove(&mut self, record: &JobRecord, outcome: Outcome, turn: &mut Turn<'_>) {
        self.uncount_finished(record, outcome);
        self.removed.add(record.key);
        let Some(space) = self.find_space(&record.namespace) else {
            return;
        };
        for tag in &record.tags {
            self.spaces[space].count_tag(tag, -1);
        }
        self.take_failed_dependents(record.key, turn);
        self.reject_follows(&record.namespace, record.key, &record.id, turn);
        turn.out.changes.push(Change::RemoveJob(record.key));
        let happening = Happening::JobRemoved {
            key: record.key,
            job: record.id.clone(),
            queue: record.queue.clone(),
        };
        self.announce(space, turn.now.wall, happening, turn);
    }

    /// The searches for expired jobs that the host should run in the store; it sends what it finds back as `Retire`.
    pub fn retention_due(&mut self, now: Now) -> Vec<ExpiredJobsQuery> {
        let mut queries = Vec::new();
        for queue in self.queues.indexes() {
            for outcome in [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled] {
                self.find_expired(now, queue, outcome, &mut queries);
            }
        }
        if self.clock.trusts_any_age(now, self.meta.next_order) {
            queries.push(ExpiredJobsQuery::ByOwnTime { before: now.wall });
        }
        queries
    }

    fn find_expired(
        &mut self,
        now: Now,
        index: QueueIndex,
        outcome: Outcome,
        queries: &mut Vec<ExpiredJobsQuery>,
    ) {
        let queue = &self.queues[index];
        let space = &self.spaces[queue.space];
        let (namespace, name) = (space.name.clone(), queue.name.clone());
        let kept = queue.counts.of(outcome.state());
        let keep = queue.keep(space, outcome);
        if let Some(excess) = keep
            .count
            .and_then(|max| kept.checked_sub(max))
            .filter(|n| *n > 0)
        {
            let (namespace, queue) = (namespace.clone(), name.clone());
            queries.push(ExpiredJobsQuery::ByCount {
                namespace,
                queue,
                outcome,
                excess,
            });
        }
        let Some(age) = keep
            .age
            .filter(|_| kept > 0 && self.clock.trusts_any_age(now, self.meta.next_order))
        else {
            return;
        };
        let before = now.wall.before(age);
        let is_trusted = self.clock.trusts_wall(now);
        let looked = &mut self.queues[index].retired_until[outcome_place(outcome)];
        let step = ganger_types::time::micros(age) / LOOKS_PER_AGE;
        if before.0 > looked.0.saturating_add(step) || before < *looked {
            if is_trusted {
                *looked = before;
            }
            queries.push(ExpiredJobsQuery::ByAge {
                namespace,
                queue: name,
                outcome,
                before,
            });
        }
    }

    /// Repeats a search of [`Engine::retention_due`] that the host did not finish.
    pub fn look_again(&mut self, query: &ExpiredJobsQuery) {
        if let ExpiredJobsQuery::ByAge {
            namespace,
            queue,
            outcome,
            ..
        } = query
            && let Some(queue) = self.find_queue(namespace, queue)
        {
            self.queues[queue].retired_until[outcome_place(*outcome)] = Timestamp(0);
        }
    }

    /// Whether a finished job was removed in one of the recent turns.
    pub fn was_removed(&self, key: JobKey) -> bool {
        self.removed.contains(key)
    }
}
