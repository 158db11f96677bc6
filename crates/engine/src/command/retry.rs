//! Retries finished jobs: puts them back on their queue with a new series of attempts.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::Retry;
use ganger_types::{
    Answer, Change, FailurePolicy, HistoryEntry, InputRow, InputState, JobId, JobKey, JobRecord,
    JobState, Outcome, Queue, Reply, RetriedGraph, ShardId, What,
};

use super::cancel::check_bulk;
use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::followers::followers;
use crate::state::{Edge, Job, JobDetails, SpaceIndex};
use crate::transition::Move;
use crate::turn::Turn;

/// The jobs that a retry includes.
pub(crate) enum RetryScope {
    /// The jobs that the command names.
    Named,
    /// Also those that ended because of them, on this and other shards.
    Followers,
    /// All members of a graph.
    Graph(RetriedGraph),
}

/// The jobs to retry.
pub(crate) struct RetryPlan<'a> {
    /// Queue for the named jobs; `None`: their own.
    pub queue: Option<&'a Queue>,
    /// Jobs that are retried with the named ones.
    pub followers: BTreeSet<JobKey>,
    /// Scope of the retry, which decides which other shards are asked.
    pub reach: RetryScope,
}

/// The outcome of a retry.
pub(crate) struct RetryOutcome<'a> {
    /// Jobs that were retried, in order of their numbers.
    pub coming: Vec<&'a JobRecord>,
    /// Jobs that were skipped.
    pub skipped: Vec<JobId>,
    /// Shards that were asked to retry jobs of theirs.
    pub passed_on: BTreeSet<ShardId>,
}

impl Engine {
    /// Retries finished jobs. The reply lists those that were skipped: jobs that have not ended, jobs whose results
    /// live jobs still use, and jobs that would fail again at once because a dependency has failed.
    pub(crate) fn retry_jobs(&mut self, cmd: &Retry, turn: &mut Turn<'_>) -> Answer {
        check_bulk(cmd.jobs.len())?;
        self.check_new_queues(&cmd.namespace, &cmd.queue)?;
        self.refuse_external_item(&cmd.namespace, &cmd.jobs, turn.known)?;
        let mut skipped = Vec::new();
        let mut external_jobs = BTreeSet::new();
        let followers = if cmd.dependents {
            followers(
                &self.keys_of(&cmd.namespace, &cmd.jobs, turn.known),
                turn.known,
            )
        } else {
            Vec::new()
        };
        check_bulk(cmd.jobs.len().max(followers.len()))?;
        let mut named: Vec<&JobRecord> = Vec::new();
        for id in &cmd.jobs {
            match turn.known.find(&cmd.namespace, id) {
                Some(record) if self.may_be_retried(record) => named.push(record),
                Some(_) => skipped.push(id.clone()),
                None if self.find_job(&cmd.namespace, id).is_some() => skipped.push(id.clone()),
                None if self.has_external_job(&cmd.namespace, id) => drop(external_jobs.insert(id)),
                None => return Err(self.no_job(&cmd.namespace, id)),
            }
        }
        let within = cmd.graph.as_ref().map(|graph| RetriedGraph {
            graph: graph.clone(),
            queue: cmd.queue.clone(),
        });

        let mut passed_on = BTreeSet::new();
        if let Some(within) = within.as_ref().filter(|_| cmd.jobs.is_empty()) {
            passed_on = self.retry_graph_elsewhere(&cmd.namespace, within, turn);
        }
        let followers: BTreeSet<JobKey> = followers.iter().map(|record| record.key).collect();
        let plan = RetryPlan {
            queue: cmd.queue.as_ref(),
            followers,
            reach: match within {
                Some(within) => RetryScope::Graph(within),
                None if cmd.dependents => RetryScope::Followers,
                None => RetryScope::Named,
            },
        };
        let back = self.retry_records(&named, &plan, turn);
        skipped.extend(back.skipped);
        passed_on.extend(back.passed_on);
        let coming = back.coming;
        let mut count = u64::try_from(coming.len()).unwrap_or(u64::MAX);
        for id in external_jobs {
            if self.retry_external(&cmd.namespace, id, cmd.queue.as_ref(), turn) {
                count += 1;
            } else {
                skipped.push(id.clone());
            }
        }
        if matches!(plan.reach, RetryScope::Named) {
            return Ok(Reply::Changed { count, skipped });
        }
        let followed = coming.iter();
        let followed = followed.filter(|record| plan.followers.contains(&record.key));
        Ok(Reply::Retried {
            count,
            skipped,
            dependents: followed.map(|record| record.id.clone()).collect(),
            passed_on: passed_on.into_iter().collect(),
        })
    }

    /// Retries the named jobs and their followers, except those that would fail again at once or wait forever, and
    /// asks other shards to retry theirs if the scope includes them.
    pub(crate) fn retry_records<'a>(
        &mut self,
        named: &[&'a JobRecord],
        plan: &RetryPlan,
        turn: &mut Turn<'a>,
    ) -> RetryOutcome<'a> {
        let followers = plan.followers.iter();
        let followers = followers.filter_map(|key| turn.known.by_key(*key));
        let all = followers.chain(named.iter().copied());
        let mut records: Vec<&JobRecord> =
            all.filter(|record| self.may_be_retried(record)).collect();
        records.sort_by_key(|record| record.key);
        records.dedup_by_key(|record| record.key);
        let mut skipped = Vec::new();
        let coming = self.retryable(&records, turn.known, &mut skipped);
        let mut passed_on = BTreeSet::new();
        for record in &coming {
            self.retry_dependents_elsewhere(record, &plan.reach, &mut passed_on, turn);
        }
        for record in &coming {
            let queue = plan.queue;
            let queue = queue.filter(|_| !plan.followers.contains(&record.key));
            let space = self.make_space(&record.namespace);
            self.readmit(space, record, queue, turn);
        }
        for record in &coming {
            self.restart(record, &plan.reach, turn);
            if matches!(plan.reach, RetryScope::Followers) {
                let dependencies = self.remote_edges(record.key);
                passed_on.extend(dependencies.map(|(_, edge)| edge.dependency.shard.clone()));
            }
        }
        RetryOutcome {
            coming,
            skipped,
            passed_on,
        }
    }

    pub(crate) fn may_be_retried(&self, record: &JobRecord) -> bool {
        let is_gone = self.removed.contains(record.key) || self.is_live(record.key);
        let succeeded = record
            .finished
            .as_ref()
            .is_some_and(|finished| finished.outcome == Outcome::Succeeded);
        let is_used = succeeded && self.is_needed(record.key);
        !(is_gone || is_used)
    }

    /// Separates the jobs that can be retried from those that would fail again at once or wait forever. Skipping one
    /// job may make others fail, so this repeats until nothing changes.
    fn retryable<'a>(
        &self,
        records: &[&'a JobRecord],
        known: &FinishedIndex,
        skipped: &mut Vec<JobId>,
    ) -> Vec<&'a JobRecord> {
        let mut coming: BTreeSet<JobKey> = records.iter().map(|record| record.key).collect();
        loop {
            let mut dropped: Vec<JobKey> = coming
                .iter()
                .copied()
                .filter(|key| {
                    let inputs = known.inputs_of(*key);
                    !inputs
                        .iter()
                        .all(|row| self.is_obtainable(&row.state, &coming, known))
                })
                .collect();
            if dropped.is_empty() {
                dropped = self.in_cycles(&coming, known);
            }
            if dropped.is_empty() {
                break;
            }
            for key in dropped {
                coming.remove(&key);
            }
        }
        let (kept, left): (Vec<_>, Vec<_>) = records
            .iter()
            .copied()
            .partition(|record| coming.contains(&record.key));
        skipped.extend(left.into_iter().map(|record| record.id.clone()));
        kept
    }

    /// Whether an input of a retried job is stored or can still be delivered. The result of a dependency whose
    /// retention has passed is gone.
    fn is_obtainable(
        &self,
        input: &InputState,
        coming: &BTreeSet<JobKey>,
        known: &FinishedIndex,
    ) -> bool {
        let (dependency, may_wait) = match input {
            InputState::Missing {
                policy: FailurePolicy::Ignore,
                ..
            }
            | InputState::Value(_)
            | InputState::Ignored { .. }
            // The other shard is asked again, and answers if the job does not exist.
            | InputState::Remote { .. }
            | InputState::Received { .. } => return true,
            InputState::Missing {
                dependency, policy, ..
            } => (*dependency, *policy == FailurePolicy::Wait),
            InputState::Delivered { dependency, .. } => (*dependency, false),
        };
        coming.contains(&dependency)
            || self.is_live(dependency)
            || has_succeeded(known, dependency)
            || (may_wait && known.by_key(dependency).is_some())
    }

    /// The jobs that would wait for themselves, at any distance, or for such a job. That can happen if, after a job
    /// ended, one of its dependencies came to wait for it.
    fn in_cycles(&self, coming: &BTreeSet<JobKey>, known: &FinishedIndex) -> Vec<JobKey> {
        let dependencies = |job: JobKey| -> Vec<JobKey> {
            if !coming.contains(&job) {
                return self
                    .edges
                    .of(job)
                    .map(|(_, edge)| edge.dependency)
                    .collect();
            }
            let dependency = |row: &&InputRow| match &row.state {
                InputState::Missing { dependency, .. }
                | InputState::Delivered { dependency, .. } => Some(*dependency),
                InputState::Value(_)
                | InputState::Ignored { .. }
                | InputState::Remote { .. }
                | InputState::Received { .. } => None,
            };
            known.inputs_of(job).iter().filter_map(dependency).collect()
        };
        let mut waits_for: BTreeMap<JobKey, usize> = BTreeMap::new();
        let mut dependents: BTreeMap<JobKey, Vec<JobKey>> = BTreeMap::new();
        let mut open: Vec<JobKey> = coming.iter().copied().collect();
        let mut seen = coming.clone();
        while let Some(job) = open.pop() {
            let needs = dependencies(job);
            waits_for.insert(job, needs.len());
            for dependency in needs {
                dependents.entry(dependency).or_default().push(job);
                if seen.insert(dependency) {
                    open.push(dependency);
                }
            }
        }
        let mut free: Vec<JobKey> = waits_for
            .iter()
            .filter(|(_, needs)| **needs == 0)
            .map(|(job, _)| *job)
            .collect();
        while let Some(job) = free.pop() {
            waits_for.remove(&job);
            for dependent in dependents.remove(&job).unwrap_or_default() {
                let needs = waits_for
                    .get_mut(&dependent)
                    .expect("it has not been freed yet");
                *needs -= 1;
                if *needs == 0 {
                    free.push(dependent);
                }
            }
        }
        waits_for
            .into_keys()
            .filter(|job| coming.contains(job))
            .collect()
    }

    /// Adds a finished job to the table of live jobs, but to no index yet.
    fn readmit(
        &mut self,
        space: SpaceIndex,
        record: &JobRecord,
        queue: Option<&Queue>,
        turn: &mut Turn<'_>,
    ) {
        let outcome = record
            .finished
            .as_ref()
            .expect("only finished jobs are retried")
            .outcome;
        self.uncount_finished(record, outcome);
        let queue = queue.unwrap_or(&record.queue);
        let queue = self.make_queue(space, queue, turn.now.wall);
        self.queues[queue].known = true;
        self.queues.mark_changed(queue);
        let job = job_of(record, queue, self);
        let state = &mut self.spaces[space];
        state.live += 1;
        if record.id_is_given {
            state.given.insert(record.id.clone(), record.key);
        }
        if let Some(graph) = &record.graph {
            state
                .graphs
                .entry(graph.clone())
                .or_default()
                .insert(record.key);
        }
        self.jobs.insert(Job {
            attempts_counted: 0,
            ready_at: turn.now.elapsed,
            state: JobState::Blocked,
            ..job
        });
        let details = self.job_mut(record.key).details_mut();
        details.releases = 0;
        details.lease_expirations = 0;
        details.unique = None;
        details.progress = None;
        details.due = None;
        details.deadline = details
            .deadline
            .filter(|deadline| *deadline > turn.now.wall);
        self.append_history(
            record.key,
            HistoryEntry {
                at: turn.now.wall,
                what: What::Retried,
            },
        );
        turn.out.changes.push(Change::RetryJob(record.key));
    }

    /// Gives a readmitted job its edges and its first state.
    fn restart(&mut self, record: &JobRecord, reach: &RetryScope, turn: &mut Turn<'_>) {
        let key = record.key;
        let mut missing = 0;
        let mut rows = Vec::new();
        for row in turn.known.inputs_of(key) {
            if let InputState::Remote {
                dependency, policy, ..
            } = &row.state
            {
                missing += 1;
                let place = (key, row.slot);
                let retries = matches!(reach, RetryScope::Followers);
                rows.push(self.link_again(place, (dependency, *policy), retries, turn));
                continue;
            }
            let Some(state) = self.renewed(&row.state, turn.known) else {
                continue;
            };
            if let InputState::Missing {
                dependency, policy, ..
            }
            | InputState::Delivered {
                dependency, policy, ..
            } = &state
            {
                let is_delivered = matches!(state, InputState::Delivered { .. });
                missing += u32::from(!is_delivered);
                let edge = Edge {
                    dependency: *dependency,
                    policy: *policy,
                    is_delivered,
                };
                self.edges.add(key, row.slot, edge);
            }
            if state != row.state {
                rows.push(InputRow {
                    job: key,
                    slot: row.slot,
                    state,
                });
            }
        }
        self.job_mut(key).details_mut().missing = missing;
        let to = if missing > 0 {
            Move::Blocked
        } else {
            Move::Ready {
                at: turn.now.elapsed,
                is_ahead: false,
            }
        };
        self.admit(key, to, "retried", turn);
        turn.out
            .changes
            .extend(rows.into_iter().map(Change::PutInput));
    }

    /// The new state of an input of a retried job; `None` if it is not an edge to a job of this shard.
    fn renewed(&self, input: &InputState, known: &FinishedIndex) -> Option<InputState> {
        let (dependency, id, policy) = match input {
            InputState::Missing {
                dependency,
                id,
                policy,
            }
            | InputState::Delivered {
                dependency,
                id,
                policy,
            } => (*dependency, id.clone(), *policy),
            InputState::Value(_)
            | InputState::Ignored { .. }
            | InputState::Remote { .. }
            | InputState::Received { .. } => return None,
        };
        let was_missing = matches!(input, InputState::Missing { .. });
        Some(if self.is_live(dependency) {
            InputState::Missing {
                dependency,
                id,
                policy,
            }
        } else if has_succeeded(known, dependency) {
            InputState::Delivered {
                dependency,
                id,
                policy,
            }
        } else if was_missing && policy == FailurePolicy::Ignore {
            InputState::Ignored { id }
        } else {
            InputState::Missing {
                dependency,
                id,
                policy,
            }
        })
    }

    /// Decreases the counts of finished jobs for a job that is removed or retried.
    pub(super) fn uncount_finished(&mut self, record: &JobRecord, outcome: Outcome) {
        let Some(queue) = self.find_queue(&record.namespace, &record.queue) else {
            return;
        };
        let state = &mut self.queues[queue];
        let count = state.counts.of_mut(outcome.state());
        *count = count.saturating_sub(1);
        let space = state.space;
        self.queues.mark_changed(queue);
        if let (Outcome::Failed, Some(failure)) = (outcome, &record.failure) {
            self.spaces[space].count_group(&failure.group, -1);
        }
    }
}

fn has_succeeded(known: &FinishedIndex, key: JobKey) -> bool {
    known
        .by_key(key)
        .and_then(|record| record.finished.as_ref())
        .is_some_and(|finished| finished.outcome == Outcome::Succeeded)
}

/// Makes a live job of its stored record. The job is in no index yet.
pub(crate) fn job_of(
    record: &JobRecord,
    queue: crate::state::QueueIndex,
    engine: &mut Engine,
) -> Job {
    let details = JobDetails::of_record(record);
    Job {
        key: record.key,
        priority: record.priority,
        created_at: record.created_at,
        ready_at: record.ready_at,
        queue,
        kind: engine.names.kind_index(&record.kind),
        retry: engine.names.retry_index(&record.retry),
        id_tag: record.id_tag,
        attempt: record.attempt,
        attempts_counted: record.attempts_counted,
        payload_bytes: u32::try_from(record.payload_bytes).unwrap_or(u32::MAX),
        state: record.state,
        details: (!details.is_plain()).then(|| Box::new(details)),
    }
}
