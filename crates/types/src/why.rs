//! Why a job is not running: the causes, each with a code for programs and a sentence for people.
//!
//! Every API and the command line use these codes and sentences.

use std::time::Duration;

use crate::external::ExternalReason;
use crate::id::JobId;
use crate::job::JobState;
use crate::name::{Queue, Worker};
use crate::reference::JobRef;
use crate::span::show_span;
use crate::time::Timestamp;

/// The state of a job and the causes why it does not run.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The id of the job.
    pub job: JobId,
    /// The state of the job.
    pub state: JobState,
    /// The queue of the job, which the sentences name.
    pub queue: Queue,
    /// The causes, most important first; not empty. If the job runs or has ended, that is the only cause.
    pub reasons: Vec<Reason>,
}

/// Jobs of a queue that wait for one cause.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueWait {
    /// The cause that the jobs have in common.
    pub cause: QueueCause,
    /// Number of jobs that wait for it.
    pub jobs: u64,
}

/// A cause why jobs of a queue do not run.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueCause {
    /// The queue is paused.
    Paused,
    /// The queue runs as many jobs as its limit allows.
    Limit {
        /// Number of jobs that run now.
        running: u64,
        /// Number of jobs that may run at once.
        limit: u32,
    },
    /// No worker asks the queue for jobs.
    NoWorker {
        /// Time since a worker last asked; `None`: none has asked since the server started.
        silent_for: Option<Duration>,
    },
    /// Workers ask for jobs, and the ready jobs are leased in their order.
    InOrder,
    /// The jobs are scheduled for later, or pause before their next attempt.
    NotBefore,
    /// The jobs wait for other jobs.
    WaitsFor,
    /// The store confirms no commits now, so that nothing changes and no worker gets a job.
    StoreHeldUp {
        /// What the store waits for, and the next step; not empty.
        detail: String,
    },
}

/// Adds that the store confirms no commits now, as the first cause of all jobs of a queue that wait.
pub fn hold_up_queue(waits: &mut Vec<QueueWait>, detail: String) {
    let jobs = waits.iter().map(|wait| wait.jobs).sum();
    waits.retain(|wait| wait.cause != QueueCause::InOrder);
    if jobs > 0 {
        let cause = QueueCause::StoreHeldUp { detail };
        waits.insert(0, QueueWait { cause, jobs });
    }
}

impl QueueCause {
    /// The stable code of the cause: that of the same cause of a single job.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Paused => "queue_paused",
            Self::Limit { .. } => "queue_limit",
            Self::NoWorker { .. } => "no_worker",
            Self::InOrder => "next",
            Self::NotBefore => "not_before",
            Self::WaitsFor => "waits_for",
            Self::StoreHeldUp { .. } => "store_held_up",
        }
    }

    /// The cause as a sentence, in lower case and without a full stop.
    pub fn text(&self, queue: &Queue) -> String {
        match self {
            Self::Paused => Reason::QueuePaused.text(queue),
            Self::Limit { running, limit } => Reason::QueueLimit {
                running: *running,
                limit: *limit,
            }
            .text(queue),
            Self::NoWorker { silent_for } => Reason::NoWorker {
                silent_for: *silent_for,
            }
            .text(queue),
            Self::InOrder => "workers take these jobs in their order".to_owned(),
            Self::NotBefore => "these jobs are scheduled for later".to_owned(),
            Self::WaitsFor => "these jobs wait for other jobs".to_owned(),
            Self::StoreHeldUp { detail } => detail.clone(),
        }
    }
}

/// A cause why a job does not run.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The job waits for other jobs of its shard.
    WaitsFor {
        /// The number of these jobs.
        count: u64,
        /// Some of these jobs, as examples.
        some: Vec<(JobId, JobState)>,
    },
    /// The job waits for jobs of other shards.
    WaitsElsewhere {
        /// The number of these jobs.
        count: u64,
        /// Some of these jobs, as examples.
        some: Vec<JobRef>,
        /// When this shard last asked those shards whether they know that it waits; the earliest of several. `None`: never.
        asked_at: Option<Timestamp>,
    },
    /// The job is scheduled for later.
    NotBefore {
        /// When it becomes ready, on the wall clock.
        at: Timestamp,
        /// The attempt that failed, if this is the pause after it; 0 otherwise.
        after_attempt: u32,
    },
    /// The queue of the job is paused.
    QueuePaused,
    /// The queue runs as many jobs as its limit allows.
    QueueLimit {
        /// How many jobs run now.
        running: u64,
        /// How many jobs may run at once.
        limit: u32,
    },
    /// Other jobs of the queue go first.
    Behind {
        /// How many jobs go first.
        jobs: u64,
        /// Whether there are more than were counted.
        more: bool,
    },
    /// No worker asks the queue for jobs.
    NoWorker {
        /// Time since a worker last asked; `None`: none has asked since the server started.
        silent_for: Option<Duration>,
    },
    /// A worker gave the job back.
    Released {
        /// How often workers have given it back.
        times: u32,
        /// The worker that gave it back last.
        worker: Worker,
        /// The reason that this worker gave; may be empty.
        reason: String,
    },
    /// The job runs now.
    Runs {
        /// The worker that has the job.
        worker: Worker,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The time until the lease expires.
        lease_left: Duration,
    },
    /// A cause that only a job of an external system has.
    External(ExternalReason),
    /// The job has ended.
    Ended {
        /// Failure group and message, or the reason of the cancellation; empty after success.
        detail: String,
    },
    /// The store confirms no commits now, so that nothing changes and no worker gets the job.
    StoreHeldUp {
        /// What the store waits for, and the next step; not empty.
        detail: String,
    },
    /// The job may run now: the next worker that asks gets it.
    Next,
}

impl Explanation {
    /// Adds that the store confirms no commits now, as the first cause of a job that has not ended.
    pub fn hold_up(&mut self, detail: String) {
        if self.state.is_terminal() {
            return;
        }
        self.reasons.retain(|reason| *reason != Reason::Next);
        self.reasons.insert(0, Reason::StoreHeldUp { detail });
    }
}

impl Reason {
    /// The stable code of the cause.
    pub fn code(&self) -> &'static str {
        match self {
            Self::WaitsFor { .. } => "waits_for",
            Self::WaitsElsewhere { .. } => "waits_elsewhere",
            Self::NotBefore { .. } => "not_before",
            Self::QueuePaused => "queue_paused",
            Self::QueueLimit { .. } => "queue_limit",
            Self::Behind { .. } => "behind",
            Self::NoWorker { .. } => "no_worker",
            Self::Released { .. } => "released",
            Self::Runs { .. } => "runs",
            Self::External(reason) => reason.code(),
            Self::Ended { .. } => "ended",
            Self::StoreHeldUp { .. } => "store_held_up",
            Self::Next => "next",
        }
    }

    /// The cause as a sentence about a job of `queue`, in lower case and without a full stop. It contains no time of
    /// day, because only the client knows the time zone.
    pub fn text(&self, queue: &Queue) -> String {
        match self {
            Self::WaitsFor { count: 1, .. } => "the job waits for another job".to_owned(),
            Self::WaitsFor { count, .. } => format!("the job waits for {count} other jobs"),
            Self::WaitsElsewhere { count: 1, .. } => {
                "the job waits for a job of another shard".to_owned()
            }
            Self::WaitsElsewhere { count, .. } => {
                format!("the job waits for {count} jobs of other shards")
            }
            Self::NotBefore {
                after_attempt: 0, ..
            } => "the job is scheduled for later".to_owned(),
            Self::NotBefore { after_attempt, .. } => {
                format!("attempt {after_attempt} failed, and the job waits for its next attempt")
            }
            Self::QueuePaused => format!("the queue {queue} is paused"),
            Self::QueueLimit { running, limit } => {
                format!("the queue {queue} runs {running} of at most {limit} jobs")
            }
            Self::Behind { jobs, more } => behind(queue, *jobs, *more),
            Self::NoWorker { silent_for: None } => {
                format!("no worker has asked the queue {queue} since the server started")
            }
            Self::NoWorker {
                silent_for: Some(silent),
            } => format!(
                "no worker has asked the queue {queue} for {}",
                whole(*silent)
            ),
            Self::Released {
                times,
                worker,
                reason,
            } => released(*times, worker, reason),
            Self::Runs {
                worker, attempt, ..
            } => format!("worker {worker} runs attempt {attempt}"),
            Self::External(reason) => reason.text(),
            Self::Ended { detail } if detail.is_empty() => "the job has ended".to_owned(),
            Self::Ended { detail } => format!("the job has ended: {detail}"),
            Self::StoreHeldUp { detail } => detail.clone(),
            Self::Next => format!("the next worker that asks the queue {queue} gets the job"),
        }
    }
}

fn behind(queue: &Queue, jobs: u64, more: bool) -> String {
    match (jobs, more) {
        (jobs, true) => format!("at least {jobs} jobs of the queue {queue} go first"),
        (1, false) => format!("one job of the queue {queue} goes first"),
        (jobs, false) => format!("{jobs} jobs of the queue {queue} go first"),
    }
}

fn released(times: u32, worker: &Worker, reason: &str) -> String {
    let because = match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    match times {
        0 | 1 => format!("worker {worker} gave the job back{because}"),
        times => {
            format!("the job was given back {times} times, last by worker {worker}{because}")
        }
    }
}

/// The duration in whole seconds, such as `1h30m`.
pub(crate) fn whole(span: Duration) -> String {
    show_span(Duration::from_secs(span.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_confirms_nothing_is_the_first_reason_of_a_job_that_has_not_ended() {
        let explain = |state| {
            let mut why = Explanation {
                job: JobId::new(b"j").expect("it is an id"),
                state,
                queue: Queue::from_static("q"),
                reasons: vec![Reason::Next],
            };
            why.hold_up("no standby".to_owned());
            why.reasons
        };
        let detail = "no standby".to_owned();
        assert_eq!(explain(JobState::Ready), [Reason::StoreHeldUp { detail }]);
        assert_eq!(explain(JobState::Succeeded), [Reason::Next]);
    }

    #[test]
    fn a_store_that_confirms_nothing_is_the_first_cause_of_all_waiting_jobs_of_a_queue() {
        let wait = |cause, jobs| QueueWait { cause, jobs };
        let mut waits = vec![wait(QueueCause::InOrder, 2), wait(QueueCause::WaitsFor, 3)];
        hold_up_queue(&mut waits, "no standby".to_owned());
        let detail = "no standby".to_owned();
        let first = wait(QueueCause::StoreHeldUp { detail }, 5);
        assert_eq!(waits, [first, wait(QueueCause::WaitsFor, 3)]);
        let mut none = Vec::new();
        hold_up_queue(&mut none, "no standby".to_owned());
        assert_eq!(none, []);
    }

    #[test]
    fn a_sentence_names_numbers_workers_and_what_happens_next() {
        let seconds = |count| Some(Duration::from_secs(count));
        let worker = Worker::from_static("w1");
        let queue = Queue::from_static("mail");
        let behind = |jobs, more| Reason::Behind { jobs, more };
        let released = |times, reason: &str| Reason::Released {
            times,
            worker: worker.clone(),
            reason: reason.to_owned(),
        };
        for (reason, text) in [
            (behind(1, false), "one job of the queue mail goes first"),
            (
                behind(5, true),
                "at least 5 jobs of the queue mail go first",
            ),
            (released(1, ""), "worker w1 gave the job back"),
            (
                released(2, "no disk"),
                "the job was given back 2 times, last by worker w1: no disk",
            ),
            (
                Reason::NoWorker {
                    silent_for: seconds(70),
                },
                "no worker has asked the queue mail for 1m10s",
            ),
        ] {
            assert_eq!(reason.text(&queue), text, "{}", reason.code());
        }
    }
}
