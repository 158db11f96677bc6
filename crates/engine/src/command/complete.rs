//! Ends the current attempt with success: the job ends, or goes on in another queue.

use ganger_types::command::{Complete, Next};
use ganger_types::job::{AttemptEnd, ReportKind};
use ganger_types::{
    Answer, Bytes, Change, Due, FailurePolicy, HistoryEntry, JobKey, JobState, Now, Outcome,
    Rejection, What,
};

use super::enqueue::at_most;
use super::report::{Standing, ended, goes_on};
use crate::Effects;
use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::transition::Move;

impl Engine {
    pub(crate) fn complete(
        &mut self,
        now: Now,
        cmd: Complete,
        known: &FinishedIndex,
        out: &mut Effects,
    ) -> Answer {
        if self.is_of_qless(&cmd.held, known) {
            return self.complete_of_qless(now, cmd, out);
        }
        let key = match self.judge(&cmd.held, ReportKind::Complete, known)? {
            Standing::Live(key) => key,
            Standing::Repeat(reply) => return Ok(reply),
        };
        let limit = self.settings(&cmd.held.namespace).payload_bytes_max;
        check_size("the size of a result in bytes", cmd.result.as_ref(), limit)?;
        let next = match cmd.next {
            Some(next) => Some(self.check_next(key, &cmd.held.namespace, next, limit, known)?),
            None => None,
        };

        let queue = self.job(key).queue;
        let granted = self
            .job(key)
            .lease()
            .expect("the lease was judged live")
            .granted_elapsed;
        self.sample_running(now, queue, now.elapsed.since(granted));
        self.accept_report(now, key, ReportKind::Complete, out);
        self.worker_survived(key);
        self.end_attempt(now, key, AttemptEnd::Succeeded);
        match next {
            Some((next, dependencies)) => {
                let state = self.go_on(now, key, next, &dependencies, out);
                Ok(goes_on(state, None))
            }
            None => {
                let to = Move::Finished {
                    outcome: Outcome::Succeeded,
                    result: cmd.result,
                };
                self.transition(now, key, to, "", out);
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
        self.refuse_circles(key, &dependencies)?;
        Ok((next, dependencies))
    }

    /// Puts a completed job into its next queue, with a new series of attempts.
    fn go_on(
        &mut self,
        now: Now,
        key: JobKey,
        next: Next,
        dependencies: &[(JobKey, ganger_types::JobId)],
        out: &mut Effects,
    ) -> JobState {
        let due = (!next.delay.is_zero()).then(|| Due::Elapsed(now.elapsed.after(next.delay)));
        let to = match (dependencies.is_empty(), due) {
            (false, _) => Move::Blocked,
            (true, Some(due)) => Move::Scheduled(due),
            (true, None) => Move::Ready {
                at: now.elapsed,
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
        self.append_history(key, HistoryEntry { at: now.wall, what });
        self.change_queue_while_running(now, key, &next.queue, out);
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
            self.depend(key, *dependency, id.clone(), FailurePolicy::Wait, out);
        }
        self.transition(now, key, to, "next queue", out);
        if let Some(payload) = next.payload {
            out.changes.push(Change::PutPayload { key, payload });
        }
        state
    }
}

pub(crate) fn check_size(
    what: &'static str,
    bytes: Option<&Bytes>,
    limit: u64,
) -> Result<(), Rejection> {
    let size = bytes.map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    at_most(what, size, limit)
}
