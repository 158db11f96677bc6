//! Transitions: the only code that writes the state of a job, its indexes, and the change and event of a move.
//! ARCHITECTURE.md has the table of all moves with their causes; a test compares it with [`may_become`].

use ganger_types::{
    Bytes, Change, Due, Elapsed, Failure, Finished, Group, Happening, HistoryEntry, JobKey,
    JobRecord, JobState, LeaseRecord, Outcome, What, Worker,
};

use crate::engine::Engine;
use crate::state::{EndedJob, Job, Occurrence, QueueIndex, SpaceIndex, Timer};
use crate::turn::Turn;

/// The new state of a job, with what belongs to it.
pub(crate) enum Move {
    Blocked,
    Scheduled(Due),
    Ready {
        at: Elapsed,
        is_ahead: bool,
    },
    Running(Box<LeaseRecord>),
    Finished {
        outcome: Outcome,
        result: Option<Bytes>,
    },
}

impl Move {
    fn state(&self) -> JobState {
        match self {
            Self::Blocked => JobState::Blocked,
            Self::Scheduled(_) => JobState::Scheduled,
            Self::Ready { .. } => JobState::Ready,
            Self::Running(_) => JobState::Running,
            Self::Finished { outcome, .. } => outcome.state(),
        }
    }
}

/// Whether a move is allowed. `from` is `None` for a new and for a retried job.
fn may_become(from: Option<JobState>, to: JobState) -> bool {
    use JobState::{Blocked, Cancelled, Failed, Ready, Running, Scheduled, Succeeded};
    match (from, to) {
        (None | Some(Blocked | Scheduled | Ready), Blocked | Scheduled | Ready)
        | (Some(Ready), Running)
        | (Some(Running), Succeeded | Failed | Cancelled | Ready | Scheduled | Blocked)
        | (Some(Blocked | Scheduled | Ready), Failed | Cancelled) => true,
        // A final state has no move: a retried job begins like a new one (`rel A2`).
        _ => false,
    }
}

impl Engine {
    /// Moves a live job. `reason` is for the event: the failure group, or the reason of a release or a cancellation.
    pub(crate) fn transition(&mut self, key: JobKey, to: Move, reason: &str, turn: &mut Turn<'_>) {
        let from = self.job(key).state;
        let state = to.state();
        assert!(
            may_become(Some(from), state),
            "job {key}: {from:?} may not become {state:?}"
        );
        let left = self.leave(key, turn);
        let worker = left.map(|lease| lease.worker.clone());
        self.enter(key, to, turn);
        self.emit(key, Some(from), worker, reason, turn);
    }

    /// Moves a new or retried job, which is in the table but in no index, to its first state.
    pub(crate) fn admit(&mut self, key: JobKey, to: Move, reason: &str, turn: &mut Turn<'_>) {
        let state = to.state();
        assert!(
            may_become(None, state),
            "job {key} may not begin as {state:?}"
        );
        self.enter(key, to, turn);
        self.emit(key, None, None, reason, turn);
    }

    /// Changes the priority or queue of a live job and updates its indexes.
    pub(crate) fn reindex(&mut self, key: JobKey, change: impl FnOnce(&mut Job)) {
        let state = self.job(key).state;
        self.unindex(key, state);
        change(self.job_mut(key));
        self.index(key, state);
    }

    /// Restores the lease of a job that was running before the start.
    pub(crate) fn resume_lease(&mut self, lease: LeaseRecord) {
        let key = lease.key;
        let from = self.job(key).state;
        assert!(
            may_become(Some(from), JobState::Running),
            "job {key} is {from} but has a lease"
        );
        self.unindex(key, from);
        let job = self.job_mut(key);
        job.state = JobState::Running;
        job.attempt = lease.attempt;
        job.attempts_counted = lease.attempts_counted;
        job.details_mut().lease = Some(Box::new(lease));
        self.index(key, JobState::Running);
    }

    /// Removes a job from the indexes of its state. Returns its lease if it had one.
    fn leave(&mut self, key: JobKey, turn: &mut Turn<'_>) -> Option<Box<LeaseRecord>> {
        let state = self.job(key).state;
        self.unindex(key, state);
        let lease = self
            .job_mut(key)
            .details
            .as_mut()
            .and_then(|details| details.lease.take())?;
        turn.out.changes.push(Change::RemoveLease(key));
        Some(lease)
    }

    /// Puts a job into a state: the only place where `state` is written.
    fn enter(&mut self, key: JobKey, to: Move, turn: &mut Turn<'_>) {
        let state = to.state();
        let job = self.job_mut(key);
        job.state = state;
        match to {
            Move::Blocked => {}
            Move::Scheduled(due) => job.details_mut().due = Some(due),
            Move::Ready { at, is_ahead } => {
                job.ready_at = at;
                if is_ahead || job.details.is_some() {
                    let details = job.details_mut();
                    details.is_ahead = is_ahead;
                    details.due = None;
                }
            }
            Move::Running(lease) => {
                job.attempt = lease.attempt;
                job.attempts_counted = lease.attempts_counted;
                let details = job.details_mut();
                details.log_bytes = 0;
                turn.out.changes.push(Change::PutLease(lease.clone()));
                details.lease = Some(lease);
                self.index(key, state);
                return;
            }
            Move::Finished { outcome, result } => {
                self.finish(key, outcome, result, turn);
                return;
            }
        }
        self.index(key, state);
        self.put(key, turn);
    }

    /// Finishes a job that was removed from its indexes.
    fn finish(
        &mut self,
        key: JobKey,
        outcome: Outcome,
        result: Option<Bytes>,
        turn: &mut Turn<'_>,
    ) {
        let mut record = self.record(key);
        record.due = None;
        let keep = match outcome {
            Outcome::Succeeded => record.keep_succeeded,
            Outcome::Failed | Outcome::Cancelled => record.keep_failed,
        };
        record.finished = Some(Finished {
            outcome,
            at: turn.now.wall,
            order: self.meta.next_order,
            result_bytes: result
                .as_ref()
                .map(|bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            keep_until: keep.map(|keep| keep.map(|keep| turn.now.wall.after(keep))),
        });
        self.meta.next_order += 1;
        let job = self.job(key);
        let (queue, space) = (job.queue, self.space_of_job(key));
        let state = &mut self.queues[queue];
        *state.counts.of_mut(outcome.state()) += 1;
        state.finished_total += 1;
        self.queues.mark_changed(queue);
        if let (Outcome::Failed, Some(failure)) = (outcome, &record.failure) {
            self.spaces[space].count_group(&failure.group, 1);
            self.count(turn.now, queue, Occurrence::Failed);
        }
        self.free_unique(space, key, record.unique.as_ref(), turn);
        self.ended.push_back(EndedJob {
            key,
            id: record.id.clone(),
            outcome,
            graph: record.graph.clone(),
            namespace: record.namespace.clone(),
            has_result: result.is_some(),
        });
        turn.out.changes.push(Change::FinishJob {
            record: Box::new(record),
            result,
        });
    }

    pub(crate) fn index(&mut self, key: JobKey, state: JobState) {
        let job = self.jobs.get(key).expect("callers have looked the job up");
        let queue = &mut self.queues[job.queue];
        let space = &mut self.spaces[queue.space];
        *queue.counts.of_mut(state) += 1;
        match state {
            JobState::Ready => {
                queue.ready.insert(job.place());
                self.queues.wake(job.queue);
            }
            JobState::Scheduled => {
                let due = job.details.as_deref().and_then(|details| details.due);
                space
                    .timers
                    .arm(due.expect("a scheduled job has a time"), Timer::JobDue(key));
            }
            JobState::Running => {
                let lease = job.lease().expect("a running job has a lease");
                space
                    .timers
                    .arm(Due::Elapsed(lease.expires_at), Timer::LeaseEnd(key));
                if let Some(worker) = space.workers.get_mut(&lease.worker) {
                    worker.holds.insert(key);
                }
                if let Some(request) = &lease.request {
                    let asked = (lease.worker.clone(), request.clone());
                    space.requests.entry(asked).or_default().insert(key);
                }
                return;
            }
            _ => {}
        }
        if let Some(deadline) = job.deadline() {
            space.timers.arm(Due::Wall(deadline), Timer::Deadline(key));
        }
    }

    fn unindex(&mut self, key: JobKey, state: JobState) {
        let job = self.jobs.get(key).expect("callers have looked the job up");
        let queue = &mut self.queues[job.queue];
        let space = &mut self.spaces[queue.space];
        *queue.counts.of_mut(state) -= 1;
        match state {
            JobState::Ready => {
                let was_there = queue.ready.remove(&job.place());
                assert!(was_there, "job {key} is ready but not in line");
            }
            JobState::Scheduled => {
                let due = job.details.as_deref().and_then(|details| details.due);
                let due = due.expect("a scheduled job has a time");
                space.timers.disarm_if_armed(due, Timer::JobDue(key));
            }
            JobState::Running => {
                let lease = job.lease().expect("a running job has a lease");
                space
                    .timers
                    .disarm_if_armed(Due::Elapsed(lease.expires_at), Timer::LeaseEnd(key));
                if let Some(worker) = space.workers.get_mut(&lease.worker) {
                    worker.holds.remove(&key);
                }
                if let Some(request) = &lease.request {
                    let asked = (lease.worker.clone(), request.clone());
                    if let Some(keys) = space.requests.get_mut(&asked) {
                        keys.remove(&key);
                        if keys.is_empty() {
                            space.requests.remove(&asked);
                        }
                    }
                }
                if queue.settings.running_max.is_some() {
                    self.queues.wake(job.queue);
                }
                return;
            }
            _ => {}
        }
        if let Some(deadline) = job.deadline() {
            space
                .timers
                .disarm_if_armed(Due::Wall(deadline), Timer::Deadline(key));
        }
    }

    fn emit(
        &mut self,
        key: JobKey,
        from: Option<JobState>,
        worker: Option<Worker>,
        reason: &str,
        turn: &mut Turn<'_>,
    ) {
        let job = self.job(key);
        let queue: QueueIndex = job.queue;
        let happening = Happening::JobMoved {
            key,
            job: job.id(),
            queue: self.queues[queue].name.clone(),
            kind: self.names.kind(job.kind).clone(),
            from,
            to: job.state,
            attempt: job.attempt,
            worker: worker.or_else(|| job.lease().map(|lease| lease.worker.clone())),
            reason: reason.to_owned(),
        };
        let (space, is_over) = (self.queues[queue].space, job.state.is_terminal());
        self.announce(space, turn.now.wall, happening, turn);
        if is_over {
            self.drop_live(space, key);
        }
    }

    /// Removes an ended job from the table of live jobs. Its edges stay until the consequences of its end are
    /// applied.
    fn drop_live(&mut self, space: SpaceIndex, key: JobKey) {
        let job = self
            .jobs
            .remove(key)
            .expect("callers have looked the job up");
        let space = &mut self.spaces[space];
        space.live -= 1;
        let Some(details) = job.details else { return };
        if let Some(id) = details.id {
            space.given.remove(&id);
        }
        if let Some(graph) = details.graph
            && let Some(members) = space.graphs.get_mut(&graph)
        {
            members.remove(&key);
            if members.is_empty() {
                space.graphs.remove(&graph);
            }
        }
    }

    /// Writes the row of a live job.
    pub(crate) fn put(&mut self, key: JobKey, turn: &mut Turn<'_>) {
        let record = self.record(key);
        turn.out.changes.push(Change::PutJob(Box::new(record)));
    }

    /// The record of a live job. It is never `Running`: the lease row shows that the job runs.
    pub(crate) fn record(&self, key: JobKey) -> JobRecord {
        let job = self.job(key);
        let queue = &self.queues[job.queue];
        let namespace = self.spaces[queue.space].name.clone();
        let kind = self.names.kind(job.kind).clone();
        let state = if job.state == JobState::Running {
            JobState::Ready
        } else {
            job.state
        };
        let mut record = JobRecord {
            id_tag: job.id_tag,
            state,
            priority: job.priority,
            created_at: job.created_at,
            ready_at: job.ready_at,
            retry: self.names.retry(job.retry).clone(),
            attempt: job.attempt,
            attempts_counted: job.attempts_counted,
            payload_bytes: u64::from(job.payload_bytes),
            ..JobRecord::new(key, job.id(), namespace, queue.name.clone(), kind)
        };
        if let Some(details) = job.details.as_deref() {
            details.write_to(&mut record);
        }
        record
    }

    /// Appends to the history of a live job, which keeps its first entry and the newest others.
    pub(crate) fn append_history(&mut self, key: JobKey, entry: HistoryEntry) {
        let space = self.space_of_job(key);
        let max = usize::try_from(self.spaces[space].settings.history_max)
            .unwrap_or(usize::MAX)
            .max(2);
        let queue = self.queues[self.job(key).queue].name.clone();
        let job = self.job_mut(key);
        let created_at = job.created_at;
        let details = job.details_mut();
        if details.history.is_empty() {
            let what = What::Enqueued { queue };
            details.history.push(HistoryEntry {
                at: created_at,
                what,
            });
        }
        while details.history.len() >= max {
            details.history.remove(1);
            details.history_dropped += 1;
        }
        details.history.push(entry);
    }

    /// Ends a live job with a failure.
    pub(crate) fn fail_for_good(
        &mut self,
        key: JobKey,
        group: Group,
        message: String,
        turn: &mut Turn<'_>,
    ) {
        let worker = self.job(key).lease().map(|lease| lease.worker.clone());
        let reason = group.to_text().into_owned();
        self.job_mut(key).details_mut().failure = Some(Failure {
            group,
            message,
            at: turn.now.wall,
            worker,
        });
        let to = Move::Finished {
            outcome: Outcome::Failed,
            result: None,
        };
        self.transition(key, to, &reason, turn);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A move: from a state, or `None` for a new job, to a state.
    type Row = (Option<JobState>, JobState);

    /// The rows of the table in ARCHITECTURE.md.
    fn documented() -> BTreeSet<Row> {
        let text = include_str!("../../../ARCHITECTURE.md");
        let (_, table) = text
            .split_once("| from | to | when |\n|---|---|---|\n")
            .expect("the table of moves");
        let states = |cell: &str| -> Vec<Option<JobState>> {
            let state = |word: &str| match word {
                "new" => None,
                word => Some(JobState::parse(word).expect("a state")),
            };
            cell.split(',').map(|word| state(word.trim())).collect()
        };
        let mut rows = BTreeSet::new();
        for line in table.lines().take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.split('|').collect();
            for from in states(cells[1]) {
                for to in states(cells[2]) {
                    rows.insert((from, to.expect("no job becomes new")));
                }
            }
        }
        rows
    }

    #[test]
    fn the_documented_moves_are_the_allowed_ones() {
        let from = JobState::ALL.into_iter().map(Some).chain([None]);
        let all = from.flat_map(|from| JobState::ALL.map(|to| (from, to)));
        let allowed: BTreeSet<Row> = all.filter(|(from, to)| may_become(*from, *to)).collect();
        assert_eq!(documented(), allowed);
    }
}
