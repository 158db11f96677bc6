//! Timers: what happens when one fires.

use std::time::Duration;

use ganger_types::history::AttemptEnd;
use ganger_types::{
    Change, DueOrder, Elapsed, Failure, Group, JobKey, JobState, Now, Outcome, Reply, UniqueKey,
};

use crate::command::{ended, goes_on};
use crate::engine::Engine;
use crate::state::{Occurrence, SpaceIndex, Timer};
use crate::transition::Move;
use crate::turn::Turn;

impl Engine {
    /// Fires a timer that was removed from its index, as of the time of `turn`; `clock` is the actual time.
    pub(crate) fn fire(
        &mut self,
        space: SpaceIndex,
        timer: Timer,
        clock: Now,
        turn: &mut Turn<'_>,
    ) {
        match timer {
            Timer::LeaseEnd(key) => self.expire_lease(key, turn),
            Timer::JobDue(key) => self.job_fell_due(key, turn),
            Timer::Deadline(key) => self.deadline_passed(key, turn),
            Timer::Schedule(id) => self.run_schedule(space, &id, &mut turn.at(clock)),
            Timer::UniqueEnd(key) => self.unique_ran_out(space, key, turn),
            // Use the actual time, so that a shard that was down for long asks once and not for each time that it
            // missed.
            Timer::Part(graph) => self.part_fell_due(space, graph, &mut turn.at(clock)),
            Timer::OperationEnd(number) => self.operation_fell_due(number, turn),
            Timer::IdempotencyKeyEnd(key) => {
                let state = &mut self.spaces[space];
                state.idempotency_records.remove(&key);
                turn.out
                    .changes
                    .push(Change::RemoveIdempotencyRecord(state.name.clone(), key));
            }
        }
    }

    /// Fails a job whose deadline has passed, unless it runs.
    pub(crate) fn deadline_passed(&mut self, key: JobKey, turn: &mut Turn<'_>) {
        let message = "its deadline passed before it could run".to_owned();
        self.fail_unstarted(key, "deadline", message, turn);
    }

    fn job_fell_due(&mut self, key: JobKey, turn: &mut Turn<'_>) {
        let queue = &self.queues[self.job(key).queue];
        let is_ahead = queue.settings.due_order == DueOrder::Ahead;
        self.transition(
            key,
            Move::Ready {
                at: turn.now.elapsed,
                is_ahead,
            },
            "due",
            turn,
        );
    }

    fn unique_ran_out(&mut self, space: SpaceIndex, key: UniqueKey, turn: &mut Turn<'_>) {
        let state = &mut self.spaces[space];
        let is_over = state
            .unique
            .get(&key)
            .is_some_and(|record| record.until.is_some_and(|until| until <= turn.now.wall));
        if is_over {
            state.unique.remove(&key);
            turn.out
                .changes
                .push(Change::RemoveUnique(state.name.clone(), key));
        }
    }

    /// Frees the unique key of a job that has ended, if the key has no window.
    pub(crate) fn free_unique(
        &mut self,
        space: SpaceIndex,
        key: JobKey,
        unique: Option<&UniqueKey>,
        turn: &mut Turn<'_>,
    ) {
        let Some(unique) = unique else { return };
        let state = &mut self.spaces[space];
        let is_its = state
            .unique
            .get(unique)
            .is_some_and(|record| record.job == key && record.until.is_none());
        if is_its {
            state.unique.remove(unique);
            turn.out
                .changes
                .push(Change::RemoveUnique(state.name.clone(), unique.clone()));
        }
    }

    /// Handles the expiration of a lease: in a queue with a grace period the lease lives on for that time, else the
    /// attempt ends (`rel L4`, `R6`, `T2`).
    fn expire_lease(&mut self, key: JobKey, turn: &mut Turn<'_>) {
        debug_assert_eq!(
            self.job(key).state,
            JobState::Running,
            "only running jobs have leases"
        );
        let lease = self
            .job(key)
            .lease()
            .expect("a lease timer belongs to a lease");
        let has_timed_out = lease.timeout_at.is_some_and(|at| at <= turn.now.elapsed);
        let queue = self.job(key).queue;
        let grace_for = self.queues[queue]
            .settings
            .grace_for
            .filter(|grace| !grace.is_zero());
        if let Some(grace_for) = grace_for.filter(|_| !lease.is_warned && !has_timed_out) {
            self.warn(key, grace_for, turn);
        } else if has_timed_out {
            self.attempt_timed_out(key, turn);
        } else {
            self.end_lost_attempt(key, turn);
        }
    }

    fn warn(&mut self, key: JobKey, grace_for: Duration, turn: &mut Turn<'_>) {
        let queue = self.job(key).queue;
        self.reindex(key, |job| {
            let lease = job
                .details_mut()
                .lease
                .as_mut()
                .expect("a running job has a lease");
            lease.is_warned = true;
            let end = lease.timeout_at.unwrap_or(Elapsed(u64::MAX));
            lease.expires_at = turn.now.elapsed.after(grace_for).min(end);
        });
        let lease = self
            .job(key)
            .lease()
            .expect("a running job has a lease")
            .clone();
        turn.out.changes.push(Change::PutLease(Box::new(lease)));
        self.count(turn.now, queue, Occurrence::Retry);
    }

    fn attempt_timed_out(&mut self, key: JobKey, turn: &mut Turn<'_>) {
        let group = Group::from_static("timeout");
        let message = "the attempt took longer than the job allows".to_owned();
        self.end_attempt(turn.now, key, AttemptEnd::TimedOut);
        self.count(turn.now, self.job(key).queue, Occurrence::Failure);
        let pause = self.pause(key);
        if !self.may_retry(turn.now, key, pause) {
            self.fail_for_good(key, group, message, turn);
            return;
        }
        let worker = self.job(key).lease().map(|lease| lease.worker.clone());
        self.job_mut(key).details_mut().failure = Some(Failure {
            group,
            message,
            at: turn.now.wall,
            worker,
        });
        self.count(turn.now, self.job(key).queue, Occurrence::Retry);
        self.retry(key, pause, "timeout", turn);
    }

    /// Ends an attempt without an outcome: its lease expired, or a report says that its worker died. Returns the
    /// answer to such a report.
    pub(crate) fn end_lost_attempt(&mut self, key: JobKey, turn: &mut Turn<'_>) -> Reply {
        self.end_attempt(turn.now, key, AttemptEnd::Expired);
        let lease_expirations_max = self.names.retry(self.job(key).retry).lease_expirations_max;
        let job = self.job_mut(key);
        if lease_expirations_max.is_some() {
            job.attempts_counted -= 1;
        }
        let details = job.details_mut();
        details.lease_expirations = details.lease_expirations.saturating_add(1);
        let lease_expirations = details.lease_expirations;
        if let Some(message) =
            self.expirations_failure(key, lease_expirations_max, lease_expirations)
        {
            self.fail_for_good(key, Group::from_static("poison"), message, turn);
            return ended(Outcome::Failed);
        }
        if !self.may_retry(turn.now, key, Duration::ZERO) {
            let message = "its lease ran out, and no retries were left".to_owned();
            let group = Group::from_static("lease-expired");
            self.fail_for_good(key, group, message, turn);
            return ended(Outcome::Failed);
        }
        self.count(turn.now, self.job(key).queue, Occurrence::Retry);
        let to = Move::Ready {
            at: turn.now.elapsed,
            is_ahead: false,
        };
        self.transition(key, to, "lease-expired", turn);
        goes_on(JobState::Ready, Some(turn.now.wall))
    }

    /// The failure message of a job with too many lease expirations; `None` if they are within the limit.
    fn expirations_failure(
        &self,
        key: JobKey,
        lease_expirations_max: Option<u32>,
        lease_expirations: u32,
    ) -> Option<String> {
        if let Some(lease_expirations_max) = lease_expirations_max {
            return (lease_expirations > lease_expirations_max).then(|| {
                format!(
                    "its lease expired {lease_expirations} times, and {lease_expirations_max} are allowed: the job may be what kills its workers"
                )
            });
        }
        let lease_expirations_in_a_row_max = self.spaces[self.space_of_job(key)]
            .settings
            .lease_expirations_in_a_row_max;
        (lease_expirations_in_a_row_max > 0 && lease_expirations >= lease_expirations_in_a_row_max).then(|| {
            format!("its lease expired {lease_expirations} times in a row: the job may be what kills its workers")
        })
    }
}
