//! Reports of workers of the engine on jobs of qless.
//!
//! A lease is live while the job runs and has its token, even after its lock has expired, until another worker gets
//! the job: that is the rule for workers of qless. Each report is applied as the corresponding command of qless.

use std::time::Duration;

use ganger_qless::{Heartbeat, Qless, list_of, live_lease};
use ganger_types::command::{AppendLog, Complete, Fail, LeaseRef, Release, Renew};
use ganger_types::job::ReportKind;
use ganger_types::qless::{Generation, QlessJob, QlessRequest, QlessState};
use ganger_types::rejection::LeaseEnd;
use ganger_types::{Answer, Bytes, JobState, Now, Rejection, Reply};

use crate::check::check_size;
use crate::engine::Engine;
use crate::external::{job_state, seconds};
use crate::finished_index::FinishedIndex;
use crate::turn::Turn;

/// The result of checking a report: its lease is live, or it is a repeat with this answer.
enum ReportCheck {
    Live(Box<QlessJob>),
    Repeat(Reply),
}

impl Engine {
    /// Whether a report is about a job of qless: qless has a job with this id, and the engine has none.
    pub(crate) fn is_external_lease(&self, held: &LeaseRef, known: &FinishedIndex) -> bool {
        self.external.qless.has_job(&held.namespace, &held.job)
            && self.find_job(&held.namespace, &held.job).is_none()
            && known.find(&held.namespace, &held.job).is_none()
    }

    /// Completes a job of qless. The result is stored in the job's row, where clients of qless do not see it. With a
    /// next queue there is no result.
    pub(crate) fn complete_external(&mut self, cmd: Complete, turn: &mut Turn<'_>) -> Answer {
        let job = match self.check_external_lease(&cmd.held, ReportKind::Complete)? {
            ReportCheck::Live(job) => job,
            ReportCheck::Repeat(reply) => return Ok(reply),
        };
        let limit = self.settings(&cmd.held.namespace).payload_bytes_max;
        check_size("the size of a result in bytes", cmd.result.as_ref(), limit)?;
        let mut words = vec![job.worker.clone(), job.queue.clone(), job.data.clone()];
        let result = cmd.result.filter(|_| cmd.next.is_none());
        if let Some(next) = cmd.next {
            let payload = next.payload.as_ref();
            check_size("the size of a payload in bytes", payload, limit)?;
            if let Some(payload) = next.payload {
                words[2] = payload;
            }
            words.extend([word("next"), Bytes::copy_from_slice(next.queue.as_bytes())]);
            words.extend([word("delay"), delay(next.delay)]);
            let after = next.after.iter();
            let after: Vec<_> = after
                .map(|id| Bytes::copy_from_slice(id.as_bytes()))
                .collect();
            words.extend([word("depends"), list_of(&after)]);
        }
        self.report_to_qless(&cmd.held, "complete", words, turn)?;
        if result.is_some() {
            self.external
                .qless
                .change(&cmd.held.namespace, turn.out, |qless, _| {
                    qless.keep_result(&job.jid, result);
                });
        }
        Ok(self.reported(&cmd.held, ReportKind::Complete, None, turn))
    }

    pub(crate) fn fail_external(&mut self, cmd: Fail, turn: &mut Turn<'_>) -> Answer {
        let job = match self.check_external_lease(&cmd.held, ReportKind::Fail)? {
            ReportCheck::Live(job) => job,
            ReportCheck::Repeat(reply) => return Ok(reply),
        };
        let failure = [
            Bytes::copy_from_slice(cmd.group.as_bytes()),
            Bytes::from(cmd.message),
        ];
        if cmd.permanent && !cmd.lost {
            let mut words = vec![job.worker.clone()];
            words.extend(failure);
            self.report_to_qless(&cmd.held, "fail", words, turn)?;
            return Ok(self.reported(&cmd.held, ReportKind::Fail, None, turn));
        }
        let pause = cmd.retry_after.filter(|_| !cmd.lost).unwrap_or_default();
        let mut words = vec![job.queue.clone(), job.worker.clone(), delay(pause)];
        words.extend(failure);
        self.report_to_qless(&cmd.held, "retry", words, turn)?;
        let again = Some((turn.now, pause));
        Ok(self.reported(&cmd.held, ReportKind::Fail, again, turn))
    }

    pub(crate) fn release_external(&mut self, cmd: &Release, turn: &mut Turn<'_>) -> Answer {
        let job = match self.check_external_lease(&cmd.held, ReportKind::Release)? {
            ReportCheck::Live(job) => job,
            ReportCheck::Repeat(reply) => return Ok(reply),
        };
        if cmd.counted {
            let words = vec![job.queue.clone(), job.worker.clone(), delay(cmd.delay)];
            self.report_to_qless(&cmd.held, "retry", words, turn)?;
        } else {
            self.external
                .qless
                .change(&cmd.held.namespace, turn.out, |qless, _| {
                    let pause = cmd.delay.as_secs_f64();
                    qless.give_back(turn.now.elapsed, seconds(turn.now.wall), &job.jid, pause);
                });
        }
        let again = Some((turn.now, cmd.delay));
        Ok(self.reported(&cmd.held, ReportKind::Release, again, turn))
    }

    /// Renews the lock of a job of qless. Progress is not stored.
    pub(crate) fn renew_external(&mut self, cmd: Renew, turn: &mut Turn<'_>) -> Answer {
        let job = self.live_external_job(&cmd.held)?;
        let limit = self.settings(&cmd.held.namespace).payload_bytes_max;
        let payload = cmd.payload.as_ref();
        check_size("the size of a payload in bytes", payload, limit)?;
        let lease_for = cmd
            .lease_for
            .unwrap_or(self.settings(&cmd.held.namespace).lease_for);
        let heartbeat = Heartbeat {
            seconds: lease_for.as_secs_f64(),
            data: cmd.payload,
        };
        let wall = seconds(turn.now.wall);
        let expires = self
            .external
            .qless
            .change(&cmd.held.namespace, turn.out, |qless, _| {
                qless.keep(wall, &job.jid, heartbeat)
            });
        let left = expires.map_err(|_| refused())? - wall;
        Ok(Reply::Renewed {
            lease_for: Duration::try_from_secs_f64(left.max(0.0)).unwrap_or(Duration::MAX),
        })
    }

    /// Answers a log report as if the log had a limit of 0 bytes: jobs of qless have no log.
    pub(crate) fn append_log_external(&self, cmd: &AppendLog) -> Answer {
        self.live_external_job(&cmd.held)?;
        let sent = u64::try_from(cmd.bytes.len()).unwrap_or(u64::MAX);
        Ok(Reply::LogAppended {
            bytes: 0,
            dropped: cmd.offset.saturating_add(sent),
        })
    }

    /// Calls the script with a command about the job: its id first, then `words`.
    fn report_to_qless(
        &mut self,
        held: &LeaseRef,
        command: &'static str,
        words: Vec<Bytes>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let mut all = vec![
            word(command),
            Bytes::from(seconds(turn.now.wall).to_string()),
            Bytes::copy_from_slice(held.job.as_bytes()),
        ];
        all.extend(words);
        let request = QlessRequest::Script {
            generation: Generation::Three,
            words: all,
        };
        let answer = self
            .external
            .qless
            .change(&held.namespace, turn.out, |qless, messages| {
                qless.call(turn.now.elapsed, request, messages)
            });
        answer.map(drop).map_err(|_| refused())
    }

    /// Stores the report that was just applied, for repeats, and returns the answer. `again` is the time of the next
    /// attempt and the delay before it; `None` if the job has failed for good.
    fn reported(
        &mut self,
        held: &LeaseRef,
        kind: ReportKind,
        again: Option<(Now, Duration)>,
        turn: &mut Turn<'_>,
    ) -> Reply {
        let jid = Bytes::copy_from_slice(held.job.as_bytes());
        let state = self
            .external
            .qless
            .change(&held.namespace, turn.out, |qless, _| {
                qless.note_report(&jid, kind);
                stands(qless, &jid)
            });
        let again = again.filter(|_| !state.is_terminal());
        Reply::Reported {
            state,
            retry_at: again.map(|(now, pause)| now.wall.after(pause)),
            repeat: false,
        }
    }

    fn check_external_lease(
        &self,
        held: &LeaseRef,
        kind: ReportKind,
    ) -> Result<ReportCheck, Rejection> {
        let lost = match self.live_external_job(held) {
            Ok(job) => return Ok(ReportCheck::Live(Box::new(job))),
            Err(lost) => lost,
        };
        let qless = self.external.qless.space(&held.namespace);
        let job = qless.and_then(|qless| qless.job_by_id(held.job.as_bytes()));
        let Some((job, lease)) = job.and_then(|job| Some((job, job.lease.as_ref()?))) else {
            return Err(lost);
        };
        match lease.report {
            Some(said) if lease.token == held.token && said == kind => {
                Ok(ReportCheck::Repeat(Reply::Reported {
                    state: job_state(job),
                    retry_at: None,
                    repeat: true,
                }))
            }
            Some(_) if lease.token == held.token => Err(Rejection::ReportConflict {
                job: held.job.clone(),
            }),
            _ => Err(lost),
        }
    }

    /// The job, if the token is that of its live lease.
    fn live_external_job(&self, held: &LeaseRef) -> Result<QlessJob, Rejection> {
        let qless = self.external.qless.space(&held.namespace);
        let job = qless.and_then(|qless| qless.job_by_id(held.job.as_bytes()));
        let job = job.ok_or_else(|| self.no_job(&held.namespace, &held.job))?;
        if live_lease(job).is_some_and(|lease| lease.token == held.token) {
            return Ok(job.clone());
        }
        let end = match job.state {
            _ if job.handed_out == 0 || held.token.epoch > self.random.epoch() => LeaseEnd::Unknown,
            QlessState::Running => LeaseEnd::Replaced,
            QlessState::Failed | QlessState::Complete => LeaseEnd::Finished,
            _ => LeaseEnd::Expired,
        };
        Err(Rejection::LeaseLost {
            job: held.job.clone(),
            end,
        })
    }
}

/// The state of a job after a report; a job that retention has removed at once is complete.
fn stands(qless: &Qless, jid: &[u8]) -> JobState {
    qless.job_by_id(jid).map_or(JobState::Succeeded, job_state)
}

fn word(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn delay(pause: Duration) -> Bytes {
    Bytes::from(pause.as_secs_f64().to_string())
}

/// The rejection if the script refuses: the data is not JSON, or a configuration option is not a number.
fn refused() -> Rejection {
    Rejection::OutOfRange {
        what: "the payload or an option of a job of qless",
        expected: "what its rules accept: JSON, and options that are numbers",
    }
}
