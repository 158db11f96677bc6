//! The rules of retries: how the end of an attempt moves its job.

use std::time::Duration;

use ganger_types::{Backoff, Due, Elapsed, JobKey, JobState, RetryPolicy};

use super::Oracle;
use super::job::{DueTime, LeaseModel, PossibleState};

/// The pause before retry `k` (1, 2, 3 ...), by the definition of the policy.
pub(super) fn pause(policy: &RetryPolicy, k: u32) -> Duration {
    match &policy.backoff {
        Backoff::Fixed(pause) => *pause,
        Backoff::List(pauses) => {
            let place = usize::try_from(k.max(1) - 1).expect("a small number");
            pauses
                .get(place)
                .or(pauses.last())
                .copied()
                .unwrap_or_default()
        }
        Backoff::Exponential { base, cap } => {
            let mut pause = *base;
            for _ in 1..k.min(64) {
                pause = pause.saturating_mul(2);
                if pause >= *cap {
                    break;
                }
            }
            pause.min(*cap)
        }
    }
}

impl Oracle {
    /// The possible states of a job after an attempt that counts ended at `at`.
    ///
    /// `stand` is its state with that attempt counted.
    pub(super) fn after_failure(
        &self,
        key: JobKey,
        at: Elapsed,
        stand: PossibleState,
        may_retry: bool,
        pause_asked: Option<Duration>,
    ) -> Vec<PossibleState> {
        let job = self.known(key);
        let failed = stand.moved(JobState::Failed);
        let is_late = job
            .spec
            .deadline
            .is_some_and(|deadline| deadline <= self.now.wall);
        if !may_retry || stand.counted > job.retry.retries_max || is_late {
            return vec![failed];
        }
        let jitter = if pause_asked.is_some() {
            0
        } else {
            job.retry.jitter_percent
        };
        let pause = pause_asked.unwrap_or_else(|| pause(&job.retry, stand.counted));
        let mut stands = vec![scheduled_or_ready(stand, at, pause, jitter)];
        // No retry is scheduled after the deadline (`rel R5`); one that would begin after it may be
        // given up at once, or when the deadline comes.
        let begins = self
            .now
            .wall
            .after(pause.mul_f64(1.0 + f64::from(jitter) / 100.0));
        if job.spec.deadline.is_some_and(|deadline| deadline <= begins) {
            stands.push(failed);
        }
        stands
    }

    /// The possible states of a job after its lease expired or its attempt timed out.
    pub(super) fn after_expiry(
        &self,
        key: JobKey,
        hold: &LeaseModel,
        stand: PossibleState,
    ) -> Vec<PossibleState> {
        let mut stands = Vec::new();
        // The earlier of the two ends the attempt; at the same time, the timeout does.
        let at = |end: Elapsed| end.max(self.settled);
        let runs_out_first = hold
            .times_out
            .is_none_or(|(_, last)| at(hold.ends.0) < at(last));
        if hold.ends.0 <= self.now.elapsed && runs_out_first {
            let (died, is_poison) = self.worker_lost(key, stand);
            let pause = Some(Duration::ZERO);
            stands.extend(self.after_end_within(key, hold.ends, died, !is_poison, pause));
        }
        if let Some(times_out) = hold
            .times_out
            .filter(|(first, _)| *first <= self.now.elapsed && at(*first) <= at(hold.ends.1))
        {
            stands.extend(self.after_end_within(key, times_out, stand, true, None));
        }
        stands
    }

    /// The state of a job after a lease expiration, and whether it has had too many. The job is due again at once
    /// (`rel O4`).
    pub(super) fn worker_lost(&self, key: JobKey, stand: PossibleState) -> (PossibleState, bool) {
        let job = self.known(key);
        let lease_expirations = stand.lease_expirations + 1;
        match job.retry.lease_expirations_max {
            Some(lease_expirations_max) => {
                let counted = stand.counted - 1;
                let died = PossibleState {
                    counted,
                    lease_expirations,
                    ..stand
                };
                (died, lease_expirations > lease_expirations_max)
            }
            None => {
                let lease_expirations_in_a_row_max = self
                    .namespace(&job.namespace)
                    .lease_expirations_in_a_row_max;
                let is_poison = lease_expirations_in_a_row_max > 0
                    && lease_expirations >= lease_expirations_in_a_row_max;
                (
                    PossibleState {
                        lease_expirations,
                        ..stand
                    },
                    is_poison,
                )
            }
        }
    }

    /// The state of a job after a report, which resets the number of lease expirations in a row.
    pub(super) fn worker_seen(&self, key: JobKey, stand: PossibleState) -> PossibleState {
        let lease_expirations = match self.known(key).retry.lease_expirations_max {
            Some(_) => stand.lease_expirations,
            None => 0,
        };
        PossibleState {
            lease_expirations,
            ..stand
        }
    }

    /// The possible states of a job after an attempt that ended between two readings.
    fn after_end_within(
        &self,
        key: JobKey,
        (first, last): (Elapsed, Elapsed),
        stand: PossibleState,
        may_retry: bool,
        pause: Option<Duration>,
    ) -> Vec<PossibleState> {
        let at = first.max(self.settled);
        let after = self.after_failure(key, at, stand, may_retry, pause);
        if first == last {
            return after;
        }
        let span = self.now.elapsed.since(at);
        after
            .into_iter()
            .map(|stand| loosened(stand, span))
            .collect()
    }
}

/// The state if the attempt ended within `span` after the time of `stand`.
fn loosened(stand: PossibleState, span: Duration) -> PossibleState {
    match stand.due {
        DueTime::At(Due::Elapsed(at)) => PossibleState {
            due: DueTime::Between(at, at.after(span)),
            ..stand
        },
        DueTime::Between(low, high) => PossibleState {
            due: DueTime::Between(low, high.after(span)),
            ..stand
        },
        _ => PossibleState {
            ready_at: None,
            ..stand
        },
    }
}

/// Scheduled, or ready from the end of the attempt on if the pause is zero (`rel O4`).
fn scheduled_or_ready(
    stand: PossibleState,
    at: Elapsed,
    pause: Duration,
    jitter: u8,
) -> PossibleState {
    if pause.is_zero() {
        return PossibleState {
            ready_at: Some(at),
            ..stand.moved(JobState::Ready)
        };
    }
    if jitter == 0 {
        return stand.scheduled(DueTime::At(Due::Elapsed(at.after(pause))));
    }
    let share = f64::from(jitter) / 100.0;
    let micro = Duration::from_micros(2);
    let low = at.after(pause.mul_f64((1.0 - share).max(0.0)).saturating_sub(micro));
    let high = at.after(pause.mul_f64(1.0 + share) + micro);
    stand.scheduled(DueTime::Between(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_cap() {
        let second = Duration::from_secs(1);
        let backoff = Backoff::Exponential {
            base: second,
            cap: 5 * second,
        };
        let policy = RetryPolicy {
            retries_max: 9,
            backoff,
            ..RetryPolicy::default()
        };
        let pauses: Vec<u64> = (1..=5).map(|k| pause(&policy, k).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
    }
}
