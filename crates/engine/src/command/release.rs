//! Gives a leased job back to its queue.

use crate::check::cut;
use std::time::Duration;

use ganger_types::command::Release;
use ganger_types::history::AttemptEnd;
use ganger_types::job::ReportKind;
use ganger_types::limits::{MESSAGE_BYTES_MAX, RELEASES_MAX};
use ganger_types::{Answer, Group, Outcome};

use super::report::{ReportCheck, ended, goes_on};
use crate::engine::Engine;
use crate::transition::Move;
use crate::turn::Turn;

/// Failure group of jobs that were given back too often.
const GROUP: &str = "released-too-often";

impl Engine {
    pub(crate) fn release(&mut self, mut cmd: Release, turn: &mut Turn<'_>) -> Answer {
        if self.is_external_lease(&cmd.held, turn.known) {
            return self.release_external(&cmd, turn);
        }
        let key = match self.check_report(&cmd.held, ReportKind::Release, turn.known)? {
            ReportCheck::Live(key) => key,
            ReportCheck::Repeat(reply) => return Ok(reply),
        };

        cut(&mut cmd.reason, MESSAGE_BYTES_MAX);
        self.accept_report(key, ReportKind::Release, turn);
        self.reset_lease_expirations(key);
        let releases = self
            .job(key)
            .details
            .as_deref()
            .map_or(0, |details| details.releases);
        let counted = !cmd.by_server && (cmd.counted || releases >= RELEASES_MAX);
        let end = AttemptEnd::Released {
            counted,
            reason: cmd.reason.clone(),
        };
        self.end_attempt(turn.now, key, end);
        let job = self.job_mut(key);
        if !counted {
            job.attempts_counted -= 1;
            if !cmd.by_server {
                job.details_mut().releases += 1;
            }
        }
        if counted && !self.may_retry(turn.now, key, cmd.delay) {
            self.fail_for_good(key, Group::from_static(GROUP), cmd.reason, turn);
            return Ok(ended(Outcome::Failed));
        }
        if cmd.keep_place && cmd.delay == Duration::ZERO {
            let job = self.job(key);
            let at = job.ready_at;
            let is_ahead = job
                .details
                .as_deref()
                .is_some_and(|details| details.is_ahead);
            self.transition(key, Move::Ready { at, is_ahead }, &cmd.reason, turn);
            return Ok(goes_on(ganger_types::JobState::Ready, Some(turn.now.wall)));
        }
        let (state, retry_at) = self.retry(key, cmd.delay, &cmd.reason, turn);
        Ok(goes_on(state, retry_at))
    }
}
