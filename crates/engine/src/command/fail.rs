//! Ends the current attempt with a failure: the job is retried later, or fails.

use crate::check::cut;
use std::time::Duration;

use ganger_types::command::Fail;
use ganger_types::history::AttemptEnd;
use ganger_types::job::ReportKind;
use ganger_types::limits::MESSAGE_BYTES_MAX;
use ganger_types::{Answer, Backoff, Due, Failure, JobKey, JobState, Now, Outcome, RetryPolicy};

use super::report::{ReportCheck, ended, goes_on};
use crate::engine::Engine;
use crate::state::Occurrence;
use crate::transition::Move;
use crate::turn::Turn;

impl Engine {
    pub(crate) fn fail(&mut self, mut cmd: Fail, turn: &mut Turn<'_>) -> Answer {
        cut(&mut cmd.message, MESSAGE_BYTES_MAX);
        if self.is_external_lease(&cmd.held, turn.known) {
            return self.fail_external(cmd, turn);
        }
        let key = match self.check_report(&cmd.held, ReportKind::Fail, turn.known)? {
            ReportCheck::Live(key) => key,
            ReportCheck::Repeat(reply) => return Ok(reply),
        };

        self.accept_report(key, ReportKind::Fail, turn);
        if cmd.lost {
            return Ok(self.end_lost_attempt(key, turn));
        }
        self.reset_lease_expirations(key);
        self.end_attempt(
            turn.now,
            key,
            AttemptEnd::Failed {
                group: cmd.group.clone(),
                message: cmd.message.clone(),
                permanent: cmd.permanent,
            },
        );
        self.count(turn.now, self.job(key).queue, Occurrence::Failure);
        let pause = cmd.retry_after.unwrap_or_else(|| self.pause(key));
        if cmd.permanent || !self.may_retry(turn.now, key, pause) {
            self.fail_for_good(key, cmd.group, cmd.message, turn);
            return Ok(ended(Outcome::Failed));
        }
        let worker = self.job(key).lease().map(|lease| lease.worker.clone());
        let reason = cmd.group.to_text().into_owned();
        self.job_mut(key).details_mut().failure = Some(Failure {
            group: cmd.group,
            message: cmd.message,
            at: turn.now.wall,
            worker,
        });
        self.count(turn.now, self.job(key).queue, Occurrence::Retry);
        let (state, retry_at) = self.retry(key, pause, &reason, turn);
        Ok(goes_on(state, retry_at))
    }

    /// Whether retries are left and the next attempt would start before the deadline (`rel R1`, `R5`).
    pub(crate) fn may_retry(&self, now: Now, key: JobKey, pause: Duration) -> bool {
        let job = self.job(key);
        let retries_max = self.names.retry(job.retry).retries_max;
        job.attempts_counted <= retries_max
            && job
                .deadline()
                .is_none_or(|deadline| now.wall.after(pause) < deadline)
    }

    /// Schedules the next attempt of a job after a pause.
    pub(crate) fn retry(
        &mut self,
        key: JobKey,
        pause: Duration,
        reason: &str,
        turn: &mut Turn<'_>,
    ) -> (JobState, Option<ganger_types::Timestamp>) {
        if pause.is_zero() {
            let to = Move::Ready {
                at: turn.now.elapsed,
                is_ahead: false,
            };
            self.transition(key, to, reason, turn);
            return (JobState::Ready, Some(turn.now.wall));
        }
        let to = Move::Scheduled(Due::Elapsed(turn.now.elapsed.after(pause)));
        self.transition(key, to, reason, turn);
        (JobState::Scheduled, Some(turn.now.wall.after(pause)))
    }

    /// The pause before the next retry by the job's policy, with jitter. The resulting time is stored, so the jitter
    /// is drawn once (`rel R3`).
    pub(crate) fn pause(&mut self, key: JobKey) -> Duration {
        let job = self.job(key);
        let policy = self.names.retry(job.retry).clone();
        let pause = pause_before(&policy, job.attempts_counted);
        if policy.jitter_percent == 0 {
            return pause;
        }
        let draw = u64::from(self.random.up_to(2_000));
        let percent = u64::from(policy.jitter_percent);
        let micros = ganger_types::time::micros(pause);
        let spread = (u128::from(micros) * u128::from(percent) * u128::from(draw)) / 100_000;
        let least = u128::from(micros) * u128::from(100 - percent) / 100;
        Duration::from_micros(u64::try_from(least + spread).unwrap_or(u64::MAX))
    }
}

/// The pause before retry `k`, from 1, without jitter.
fn pause_before(policy: &RetryPolicy, k: u32) -> Duration {
    let k = k.max(1);
    match &policy.backoff {
        Backoff::Fixed(pause) => *pause,
        Backoff::List(pauses) => {
            let place = usize::try_from(k - 1)
                .unwrap_or(usize::MAX)
                .min(pauses.len() - 1);
            pauses[place]
        }
        Backoff::Exponential { base, cap } => {
            let factor = 1_u32.checked_shl(k - 1).unwrap_or(u32::MAX);
            base.checked_mul(factor).unwrap_or(Duration::MAX).min(*cap)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap() {
        let policy = RetryPolicy::default();
        let pauses: Vec<u64> = (1..=9)
            .map(|k| pause_before(&policy, k).as_secs())
            .collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600]);
        assert_eq!(pause_before(&policy, 1_000_000).as_secs(), 3_600);
    }

    #[test]
    fn the_last_pause_of_a_list_repeats() {
        let backoff = Backoff::List(vec![Duration::from_secs(1), Duration::from_secs(5)]);
        let policy = RetryPolicy {
            backoff,
            ..RetryPolicy::default()
        };
        assert_eq!(pause_before(&policy, 7).as_secs(), 5);
    }

    #[test]
    fn text_is_cut_between_characters() {
        let mut text = "a\u{e4}".repeat(4);
        cut(&mut text, 5);
        assert_eq!(text, "a\u{e4}a");
    }
}
