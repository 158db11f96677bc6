//! Ends the current attempt with success: the job ends, or continues in another queue.

use crate::check::check_size;
use ganger_types::command::{Complete, Next};
use ganger_types::history::AttemptEnd;
use ganger_types::job::ReportKind;
use ganger_types::{
    Answer, Change, Due, FailurePolicy, HistoryEntry, JobKey, JobState, Outcome, Rejection, What,
};

use super::report::{ReportCheck, ended, goes_on};
use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::state::Occurrence;
use crate::transition::Move;
use crate::turn::Turn;

impl Engine {
    pub(crate) fn complete(&mut self, cmd: Complete, turn: &mut Turn<'_>) -> Answer {
        if self.is_external_lease(&cmd.held, turn.known) {
            return self.complete_external(cmd, turn);
        }
        let key = match self.check_report(&cmd.held, ReportKind::Complete, turn.known)? {
            ReportCheck::Live(key) => key,
            ReportCheck::Repeat(reply) => return Ok(reply),
        };
        let limit = self.settings(&cmd.held.namespace).payload_bytes_max;
        check_size("the size of a result in bytes", cmd.result.as_ref(), limit)?;
        let next = match cmd.next {
            Some(next) => {
                Some(self.check_next(key, &cmd.held.namespace, next, limit, turn.known)?)
            }
            None => None,
        };

        let queue = self.job(key).queue;
        let granted = self
            .job(key)
            .lease()
            .expect("the lease was judged live")
            .granted_elapsed;
        self.count(
            turn.now,
            queue,
            Occurrence::Ran(turn.now.elapsed.since(granted)),
        );
        self.accept_report(key, ReportKind::Complete, turn);
        self.reset_lease_expirations(key);
        self.end_attempt(turn.now, key, AttemptEnd::Succeeded);
        match next {
            Some((next, dependencies)) => {
                let state = self.go_on(key, next, &dependencies, turn);
                Ok(goes_on(state, None))
            }
            None => {
                let to = Move::Finished {
                    outcome: Outcome::Succeeded,
                    result: cmd.result,
                };
                self.transition(key, to, "", turn);
                Ok(ended(Outcome::Succeeded))
            }
        }
    }

    fn check_next(
        &self,
        key: JobKey,
        namespace: &ganger_types::Namespace,
        next: Next,
        limit: u64,
        known: &FinishedIndex,
    ) -> Result<(Next, Vec<(JobKey, ganger_types::JobId)>), Rejection> {
        check_size(
            "the size of a payload in bytes",
            next.payload.as_ref(),
            limit,
        )?;
        self.check_new_queues(namespace, [&next.queue])?;
        let dependencies = self.unmet(namespace, &next.after, known)?;
        self.refuse_cycles(key, &dependencies)?;
        Ok((next, dependencies))
    }

    /// Puts a completed job into its next queue with a new series of attempts.
    fn go_on(
        &mut self,
        key: JobKey,
        next: Next,
        dependencies: &[(JobKey, ganger_types::JobId)],
        turn: &mut Turn<'_>,
    ) -> JobState {
        let due = (!next.delay.is_zero()).then(|| Due::Elapsed(turn.now.elapsed.after(next.delay)));
        let to = match (dependencies.is_empty(), due) {
            (false, _) => Move::Blocked,
            (true, Some(due)) => Move::Scheduled(due),
            (true, None) => Move::Ready {
                at: turn.now.elapsed,
                is_ahead: false,
            },
        };
        let state = match to {
            Move::Blocked => JobState::Blocked,
            Move::Scheduled(_) => JobState::Scheduled,
            _ => JobState::Ready,
        };
        let what = What::Enqueued {
            queue: next.queue.clone(),
        };
        self.append_history(
            key,
            HistoryEntry {
                at: turn.now.wall,
                what,
            },
        );
        self.change_queue_while_running(key, &next.queue, turn);
        let job = self.job_mut(key);
        job.attempts_counted = 0;
        if let Some(payload) = &next.payload {
            job.payload_bytes = u32::try_from(payload.len()).expect("payloads were checked");
        }
        let details = job.details_mut();
        details.releases = 0;
        details.lease_expirations = 0;
        details.failure = None;
        details.progress = None;
        details.due = due;
        for (dependency, id) in dependencies {
            self.add_dependency(key, *dependency, id.clone(), FailurePolicy::Wait, turn);
        }
        self.transition(key, to, "next queue", turn);
        if let Some(payload) = next.payload {
            turn.out.changes.push(Change::PutPayload { key, payload });
        }
        state
    }
}
