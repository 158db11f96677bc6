//! One worker of the pool: a task that keeps a child process running and gives it one batch at a time.
//!
//! The death of a process affects only the task that caused it: the batch is repeated task by task, each under its
//! lease, and only the task whose process dies again fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ganger_client::LeaseRef;
use ganger_ngsi::postgres::protocol::{Outcome as Answered, Request, RequestedInsert};
use ganger_worker::{Reports, Shutdown};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::Settings;
use crate::child::{Child, ChildFailure};
use crate::metrics::Metrics;
use crate::outcome::Outcome;
use crate::restarts::{ChildDeath, RestartDecision, Restarts};
use crate::waiting::Task;

/// Message of a task that had to be killed: that of QuantumLeap's queue.
const TIMED_OUT: &str = "JobTimeoutException('Task exceeded maximum timeout value (180 seconds)')";

/// An event that a worker sends to its pool.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// The worker can take a batch. Sent once for each batch.
    Idle(usize),
    /// Tasks have ended.
    Finished(Vec<FinishedTask>),
    /// No process can be kept running.
    GaveUp(String),
}

/// A task that has ended.
#[derive(Debug)]
pub(crate) struct FinishedTask {
    /// Attempt and token of the task's lease.
    pub(crate) held: LeaseRef,
    /// How the task ended.
    pub(crate) outcome: Outcome,
    /// Time at which its worker started it.
    pub(crate) began_at: Instant,
}

/// Sends batches to a worker. Dropping it ends the worker after its current batch.
pub(crate) type Batches = mpsc::UnboundedSender<Vec<Task>>;

/// State shared by all workers of a pool.
#[derive(Clone)]
pub(crate) struct PoolContext<R> {
    pub(crate) settings: Arc<Settings>,
    pub(crate) reports: R,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: mpsc::UnboundedSender<WorkerEvent>,
    pub(crate) level: watch::Receiver<Shutdown>,
}

/// Starts the worker with the index `place`. It ends when its process is gone.
pub(crate) fn start<R: Reports>(
    workers: &mut JoinSet<()>,
    context: PoolContext<R>,
    place: usize,
) -> Batches {
    let (batches, inbox) = mpsc::unbounded_channel();
    let restarts = Restarts::new(context.settings.restart_pause);
    let worker = Worker {
        context,
        place,
        inbox,
        child: None,
        restarts,
        pause: Duration::ZERO,
        is_idle: false,
    };
    workers.spawn(worker.serve());
    batches
}

struct Worker<R> {
    context: PoolContext<R>,
    place: usize,
    inbox: mpsc::UnboundedReceiver<Vec<Task>>,
    child: Option<Child>,
    restarts: Restarts,
    /// Pause before the next start.
    pause: Duration,
    /// Whether the pool has been told that the worker can take a batch.
    is_idle: bool,
}

impl<R: Reports> Worker<R> {
    async fn serve(mut self) {
        while self.has_child().await {
            if !self.is_idle {
                self.is_idle = true;
                self.say(WorkerEvent::Idle(self.place));
            }
            let Some(child) = &mut self.child else { break };
            tokio::select! {
                // A task given to a dead process would be taken for the cause of its death.
                biased;
                silence = child.ended() => self.reap(&silence, false),
                batch = self.inbox.recv() => match batch {
                    Some(batch) => self.attend(batch).await,
                    None => break,
                },
            }
        }
        // Every task that was handed over must get an outcome.
        self.inbox.close();
        while let Some(batch) = self.inbox.recv().await {
            self.give_back(batch);
        }
        if let Some(child) = self.child.take() {
            child.end().await;
        }
    }

    /// Inserts a batch: at once, and task by task if the process dies.
    async fn attend(&mut self, batch: Vec<Task>) {
        self.is_idle = false;
        let began_at = Instant::now();
        if self.level() != Shutdown::No {
            return self.give_back(batch);
        }
        self.context.metrics.began_batch();
        if let Some(outcomes) = self.run(&batch, false).await {
            let tasks = batch.into_iter().zip(outcomes);
            self.tell(tasks.map(|(task, outcome)| (task.held, outcome)), began_at);
        } else {
            self.attend_one_by_one(batch, began_at).await;
        }
        self.retire();
    }

    async fn attend_one_by_one(&mut self, batch: Vec<Task>, began_at: Instant) {
        tracing::warn!(
            tasks = batch.len(),
            "goes through the batch once more, task by task"
        );
        for task in batch {
            let may_run = self.level() == Shutdown::No && self.has_child().await;
            let outcome = if may_run {
                let outcomes = self.run(std::slice::from_ref(&task), true).await;
                outcomes.and_then(|mut outcomes| outcomes.pop())
            } else {
                Some(Outcome::Unstarted)
            };
            let outcome = outcome.unwrap_or(Outcome::Lost);
            self.tell([(task.held, outcome)].into_iter(), began_at);
        }
    }

    /// Inserts those tasks whose lease is still live. `None` if the process died while inserting several.
    async fn run(&mut self, tasks: &[Task], is_again: bool) -> Option<Vec<Outcome>> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(tasks.len());
        let mut inserts = Vec::with_capacity(tasks.len());
        // Placeholder for a pending outcome.
        let mut open = Vec::with_capacity(tasks.len());
        for task in tasks {
            outcomes.push(match self.request_for(task, is_again) {
                Ok(insert) => {
                    inserts.push(insert);
                    open.push(outcomes.len());
                    Outcome::Unstarted
                }
                Err(outcome) => outcome,
            });
        }
        if inserts.is_empty() {
            return Some(outcomes);
        }
        match self.ask(Request { inserts }).await {
            Ok(answers) => {
                for (place, answer) in open.into_iter().zip(answers) {
                    outcomes[place] = answer.into();
                }
            }
            Err(_) if open.len() > 1 && self.level() != Shutdown::AtOnce => return None,
            Err(silence) => {
                for place in open {
                    outcomes[place] = outcome_of(&silence);
                }
            }
        }
        Some(outcomes)
    }

    /// Returns the request for a task, or its outcome without one.
    fn request_for(&self, task: &Task, is_again: bool) -> Result<RequestedInsert, Outcome> {
        let Some(expires_at) = self.context.reports.expires_at(&task.held) else {
            return Err(Outcome::Dropped);
        };
        let text = String::from_utf8(task.input.to_vec()).map_err(|error| unreadable(&error))?;
        let input = RawValue::from_string(text).map_err(|error| unreadable(&error))?;
        // Half of the time, because the process learns of it later than this one.
        let sole_for = expires_at.saturating_duration_since(Instant::now()) / 2;
        Ok(RequestedInsert {
            uuid: task.held.job.clone(),
            is_repeat: is_again || task.attempt > 1,
            sole_for_ms: Some(u64::try_from(sole_for.as_millis()).unwrap_or(u64::MAX)),
            input,
        })
    }

    /// Asks the process; kills it if the pool stops at once. Without an answer it has ended.
    async fn ask(&mut self, request: Request) -> Result<Vec<Answered>, ChildFailure> {
        let patience = self.context.settings.patience;
        let Some(mut child) = self.child.take() else {
            return Err(ChildFailure::Killed);
        };
        let mut level = self.context.level.clone();
        let asked = tokio::select! {
            asked = child.ask(&request, patience) => asked,
            _ = level.wait_for(|level| *level == Shutdown::AtOnce) => Err(ChildFailure::Killed),
        };
        self.child = Some(child);
        match &asked {
            Ok(_) => self.restarts.did_well(),
            Err(silence) => self.reap(silence, true),
        }
        asked
    }

    /// Handles the death of the process.
    fn reap(&mut self, silence: &ChildFailure, had_task: bool) {
        let lived_for = self
            .child
            .take()
            .map_or(Duration::ZERO, |child| child.lived_for());
        self.note_death(
            silence,
            ChildDeath {
                lived_for,
                had_task,
            },
        );
    }

    fn note_death(&mut self, silence: &ChildFailure, death: ChildDeath) {
        let (worker, lived_for) = (self.place, death.lived_for);
        tracing::warn!(
            worker,
            ?lived_for,
            "the process that inserts is gone: {silence}"
        );
        match self.restarts.died(death) {
            RestartDecision::StartAfter(pause) => {
                self.pause = pause;
                self.context.metrics.restarted();
            }
            RestartDecision::GiveUp => self.say(WorkerEvent::GaveUp(silence.to_string())),
        }
    }

    /// Starts a process if there is none; returns false if the pool stops.
    async fn has_child(&mut self) -> bool {
        while self.child.is_none() {
            let mut level = self.context.level.clone();
            let program = self.context.settings.program.clone();
            let started_at = Instant::now();
            let starting = async {
                tokio::time::sleep(self.pause).await;
                Child::start(&program).await
            };
            let started = tokio::select! {
                // The pool may have given up, or been stopped, before this began.
                biased;
                _ = level.wait_for(|level| *level != Shutdown::No) => return false,
                started = starting => started,
            };
            match started {
                Ok(child) => {
                    self.pause = Duration::ZERO;
                    self.child = Some(child);
                }
                Err(silence) => {
                    let lived_for = started_at.elapsed().saturating_sub(self.pause);
                    self.note_death(
                        &silence,
                        ChildDeath {
                            lived_for,
                            had_task: false,
                        },
                    );
                }
            }
        }
        true
    }

    /// Replaces a process that may have leaked.
    fn retire(&mut self) {
        if let Some(reason) = self.child.as_ref().and_then(Child::replacement_reason)
            && let Some(child) = self.child.take()
        {
            tracing::info!(
                worker = self.place,
                "the process that inserts is replaced: {reason}"
            );
            self.context.metrics.restarted();
            // The next process need not wait for its end.
            tokio::spawn(child.end());
        }
    }

    fn give_back(&self, batch: Vec<Task>) {
        let tasks = batch
            .into_iter()
            .map(|task| (task.held, Outcome::Unstarted));
        self.tell(tasks, Instant::now());
    }

    fn tell(&self, tasks: impl Iterator<Item = (LeaseRef, Outcome)>, began_at: Instant) {
        let ended = tasks.map(|(held, outcome)| FinishedTask {
            held,
            outcome,
            began_at,
        });
        self.say(WorkerEvent::Finished(ended.collect()));
    }

    fn say(&self, events: WorkerEvent) {
        // A pool that has ended needs no event.
        let _ = self.context.events.send(events);
    }

    fn level(&self) -> Shutdown {
        *self.context.level.borrow()
    }
}

impl From<Answered> for Outcome {
    fn from(answered: Answered) -> Self {
        match answered {
            Answered::Inserted { rows } => Self::Inserted { rows },
            Answered::Failed { error, curable } => Self::Failed {
                message: error,
                is_curable: curable,
            },
        }
    }
}

/// Returns the outcome of the single task that a process did not answer.
fn outcome_of(silence: &ChildFailure) -> Outcome {
    match silence {
        ChildFailure::Hung(_) => Outcome::Failed {
            message: TIMED_OUT.into(),
            is_curable: false,
        },
        _ => Outcome::Lost,
    }
}

/// Returns the outcome of a job whose payload is no task.
fn unreadable(error: &dyn std::error::Error) -> Outcome {
    Outcome::Failed {
        message: format!("this is not the input of an insert: {error}"),
        is_curable: false,
    }
}
