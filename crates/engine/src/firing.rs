//! What happens when a timer fires.

use std::time::Duration;

use ganger_types::job::AttemptEnd;
use ganger_types::{
    Change, DueOrder, Elapsed, Failure, Group, JobKey, JobState, Now, Outcome, Reply, UniqueKey,
};

use crate::Effects;
use crate::command::{ended, goes_on};
use crate::engine::Engine;
use crate::index::Timer;
use crate::names::SpaceIndex;
use crate::transition::Move;

impl Engine {
    /// Fires a timer, already taken out of its index, as of `moment`; `now` is what the clock says.
    pub(crate) fn fire(
        &mut self,
        space: SpaceIndex,
        moment: Now,
        now: Now,
        timer: Timer,
        out: &mut Effects,
    ) {
        match timer {
            Timer::LeaseEnd(key) => self.lease_ran_out(moment, key, out),
            Timer::JobDue(key) => self.job_fell_due(moment, key, out),
            Timer::Deadline(key) => self.deadline_passed(moment, key, out),
            Timer::Schedule(id) => self.run_schedule(now, space, &id, out),
            Timer::UniqueEnd(key) => self.unique_ran_out(moment, space, key, out),
            // By the clock: a shard that was away for long asks once, not once for each time that it missed.
            Timer::Part(graph) => self.part_fell_due(now, space, graph, out),
            Timer::IdempotencyKeyEnd(key) => {
                let state = &mut self.spaces[space.at()];
                state.idempotency_records.remove(&key);
                out.changes
                    .push(Change::RemoveIdempotencyRecord(state.name.clone(), key));
            }
        }
    }

    /// A job that is not running may not start any more.
    pub(crate) fn deadline_passed(&mut self, moment: Now, key: JobKey, out: &mut Effects) {
        let message = "its deadline passed before it could run".to_owned();
        self.fail_unstarted(moment, key, "deadline", message, out);
    }

    fn job_fell_due(&mut self, moment: Now, key: JobKey, out: &mut Effects) {
        let queue = &self.queues[self.job(key).queue.at()];
        let is_ahead = queue.settings.due_order == DueOrder::Ahead;
        self.transition(
            moment,
            key,
            Move::Ready {
                at: moment.elapsed,
                is_ahead,
            },
            "due",
            out,
        );
    }

    fn unique_ran_out(
        &mut self,
        moment: Now,
        space: SpaceIndex,
        key: UniqueKey,
        out: &mut Effects,
    ) {
        let state = &mut self.spaces[space.at()];
        let is_over = state
            .unique
            .get(&key)
            .is_some_and(|record| record.until.is_some_and(|until| until <= moment.wall));
        if is_over {
            state.unique.remove(&key);
            out.changes
                .push(Change::RemoveUnique(state.name.clone(), key));
        }
    }

    /// A unique key without a window is free once its job has ended.
    pub(crate) fn free_unique(
        &mut self,
        space: SpaceIndex,
        key: JobKey,
        unique: Option<&UniqueKey>,
        out: &mut Effects,
    ) {
        let Some(unique) = unique else { return };
        let state = &mut self.spaces[space.at()];
        let is_its = state
            .unique
            .get(unique)
            .is_some_and(|record| record.job == key && record.until.is_none());
        if is_its {
            state.unique.remove(unique);
            out.changes
                .push(Change::RemoveUnique(state.name.clone(), unique.clone()));
        }
    }

    /// The lease of a job ran out: its worker is warned if the queue is set so, else the job goes on
    /// without it (`rel L4`, `R6`, `T2`).
    fn lease_ran_out(&mut self, moment: Now, key: JobKey, out: &mut Effects) {
        debug_assert_eq!(
            self.job(key).state,
            JobState::Running,
            "only running jobs have leases"
        );
        let lease = self
            .job(key)
            .lease()
            .expect("a lease timer belongs to a lease");
        let has_timed_out = lease.timeout_at.is_some_and(|at| at <= moment.elapsed);
        let queue = self.job(key).queue;
        let grace_for = self.queues[queue.at()]
            .settings
            .grace_for
            .filter(|grace| !grace.is_zero());
        if let Some(grace_for) = grace_for.filter(|_| !lease.is_warned && !has_timed_out) {
            self.warn(moment, key, grace_for, out);
        } else if has_timed_out {
            self.attempt_timed_out(moment, key, out);
        } else {
            self.worker_was_lost(moment, key, out);
        }
    }

    fn warn(&mut self, moment: Now, key: JobKey, grace_for: Duration, out: &mut Effects) {
        let queue = self.job(key).queue;
        self.reindex(key, |job| {
            let lease = job
                .details_mut()
                .lease
                .as_mut()
                .expect("a running job has a lease");
            lease.is_warned = true;
            let end = lease.timeout_at.unwrap_or(Elapsed(u64::MAX));
            lease.expires_at = moment.elapsed.after(grace_for).min(end);
        });
        let lease = self
            .job(key)
            .lease()
            .expect("a running job has a lease")
            .clone();
        out.changes.push(Change::PutLease(Box::new(lease)));
        self.count_retry(moment, queue);
    }

    fn attempt_timed_out(&mut self, moment: Now, key: JobKey, out: &mut Effects) {
        let group = Group::from_static("timeout");
        let message = "the attempt took longer than the job allows".to_owned();
        self.end_attempt(moment, key, AttemptEnd::TimedOut);
        self.count_failure(moment, self.job(key).queue);
        let pause = self.pause(key);
        if !self.may_retry(moment, key, pause) {
            self.fail_for_good(moment, key, group, message, out);
            return;
        }
        let worker = self.job(key).lease().map(|lease| lease.worker.clone());
        self.job_mut(key).details_mut().failure = Some(Failure {
            group,
            message,
            at: moment.wall,
            worker,
        });
        self.count_retry(moment, self.job(key).queue);
        self.retry(moment, key, pause, "timeout", out);
    }

    /// The attempt ends without a verdict: its lease expired, or a report says that its worker died.
    /// Gives what the latter hears.
    pub(crate) fn worker_was_lost(&mut self, now: Now, key: JobKey, out: &mut Effects) -> Reply {
        self.end_attempt(now, key, AttemptEnd::Expired);
        let lease_expirations_max = self.names.retry(self.job(key).retry).lease_expirations_max;
        let job = self.job_mut(key);
        if lease_expirations_max.is_some() {
            job.attempts_counted -= 1;
        }
        let details = job.details_mut();
        details.lease_expirations = details.lease_expirations.saturating_add(1);
        let lease_expirations = details.lease_expirations;
        if let Some(message) = self.suspicion(key, lease_expirations_max, lease_expirations) {
            self.fail_for_good(now, key, Group::from_static("poison"), message, out);
            return ended(Outcome::Failed);
        }
        if !self.may_retry(now, key, Duration::ZERO) {
            let message = "its lease ran out, and no retries were left".to_owned();
            let group = Group::from_static("lease-expired");
            self.fail_for_good(now, key, group, message, out);
            return ended(Outcome::Failed);
        }
        self.count_retry(now, self.job(key).queue);
        let to = Move::Ready {
            at: now.elapsed,
            is_ahead: false,
        };
        self.transition(now, key, to, "lease-expired", out);
        goes_on(JobState::Ready, Some(now.wall))
    }

    /// Why a job is set aside after so many losses; `None` if they are not too many yet.
    fn suspicion(
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
        let lease_expirations_in_a_row_max = self.spaces[self.space_of_job(key).at()]
            .settings
            .lease_expirations_in_a_row_max;
        (lease_expirations_in_a_row_max > 0 && lease_expirations >= lease_expirations_in_a_row_max).then(|| {
            format!("its lease expired {lease_expirations} times in a row: the job may be what kills its workers")
        })
    }
}
