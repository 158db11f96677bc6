//! A worker of the pool: an asynchronous task that keeps a child process running and sends it one batch at a time.
//!
//! If the process dies, the worker repeats the batch task by task, each under its lease. Only a task whose process dies
//! again fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ganger_client::LeaseRef;
use ganger_ngsi::postgres::protocol::{InsertRequest, Outcome as InsertOutcome, Request};
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

/// Message of a task whose process had to be killed, as in QuantumLeap.
const TIMED_OUT: &str = "JobTimeoutException('Task exceeded maximum timeout value (180 seconds)')";

/// An event from a worker to its pool.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// The worker with this index can take a batch. Sent once for each batch.
    Idle(usize),
    /// The process has ended these tasks.
    Finished(Vec<FinishedTask>),
    /// No process can be kept running, for this reason.
    GaveUp(String),
}

/// A task that has ended.
#[derive(Debug)]
pub(crate) struct FinishedTask {
    /// Job and token of the task's lease.
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

/// Starts the worker with this index. It ends when its process is gone.
pub(crate) fn start<R: Reports>(
    workers: &mut JoinSet<()>,
    context: PoolContext<R>,
    index: usize,
) -> Batches {
    let (batches, inbox) = mpsc::unbounded_channel();
    let restarts = Restarts::new(context.settings.restart_pause);
    let worker = Worker {
        context,
        index,
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
    index: usize,
    inbox: mpsc::UnboundedReceiver<Vec<Task>>,
    child: Option<Child>,
    restarts: Restarts,
    /// Pause before the next start.
    pause: Duration,
    /// Whether the worker has reported that it can take a batch.
    is_idle: bool,
}

impl<R: Reports> Worker<R> {
    async fn serve(mut self) {
        while self.has_child().await {
            if !self.is_idle {
                self.is_idle = true;
                self.send_event(WorkerEvent::Idle(self.index));
            }
            let Some(child) = &mut self.child else { break };
            tokio::select! {
                // A batch sent to a dead process would count as the cause of its death.
                biased;
                failure = child.wait_for_exit() => self.reap(&failure, false),
                batch = self.inbox.recv() => match batch {
                    Some(batch) => self.insert_batch(batch).await,
                    None => break,
                },
            }
        }
        // Every received task must get an outcome.
        self.inbox.close();
        while let Some(batch) = self.inbox.recv().await {
            self.give_back(batch);
        }
        if let Some(child) = self.child.take() {
            child.end().await;
        }
    }

    /// Inserts a batch: together, and task by task if the process dies.
    async fn insert_batch(&mut self, batch: Vec<Task>) {
        self.is_idle = false;
        let began_at = Instant::now();
        if self.level() != Shutdown::No {
            return self.give_back(batch);
        }
        self.context.metrics.count_batch();
        if let Some(outcomes) = self.run(&batch, false).await {
            let tasks = batch.into_iter().zip(outcomes);
            self.send_finished(tasks.map(|(task, outcome)| (task.held, outcome)), began_at);
        } else {
            self.insert_one_by_one(batch, began_at).await;
        }
        self.retire();
    }

    async fn insert_one_by_one(&mut self, batch: Vec<Task>, began_at: Instant) {
        tracing::warn!(tasks = batch.len(), "repeating the batch task by task");
        for task in batch {
            let may_run = self.level() == Shutdown::No && self.has_child().await;
            let outcome = if may_run {
                let outcomes = self.run(std::slice::from_ref(&task), true).await;
                outcomes.and_then(|mut outcomes| outcomes.pop())
            } else {
                Some(Outcome::Unstarted)
            };
            let outcome = outcome.unwrap_or(Outcome::Lost);
            self.send_finished([(task.held, outcome)].into_iter(), began_at);
        }
    }

    /// Inserts those tasks whose lease is still live. `None` if the process died while inserting several.
    async fn run(&mut self, tasks: &[Task], is_again: bool) -> Option<Vec<Outcome>> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(tasks.len());
        let mut inserts = Vec::with_capacity(tasks.len());
        // Indexes of the outcomes that the process will report.
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
                for (index, answer) in open.into_iter().zip(answers) {
                    outcomes[index] = answer.into();
                }
            }
            Err(_) if open.len() > 1 && self.level() != Shutdown::AtOnce => return None,
            Err(failure) => {
                for index in open {
                    outcomes[index] = outcome_of(&failure);
                }
            }
        }
        Some(outcomes)
    }

    /// Returns the request for a task, or its outcome without one.
    fn request_for(&self, task: &Task, is_again: bool) -> Result<InsertRequest, Outcome> {
        let Some(expires_at) = self.context.reports.expires_at(&task.held) else {
            return Err(Outcome::Dropped);
        };
        let text = String::from_utf8(task.input.to_vec()).map_err(|error| unreadable(&error))?;
        let input = RawValue::from_string(text).map_err(|error| unreadable(&error))?;
        // Half of the remaining time, because the process starts to count later.
        let exclusive_for = expires_at.saturating_duration_since(Instant::now()) / 2;
        Ok(InsertRequest {
            uuid: task.held.job.clone(),
            is_repeat: is_again || task.attempt > 1,
            exclusive_for_ms: Some(u64::try_from(exclusive_for.as_millis()).unwrap_or(u64::MAX)),
            input,
        })
    }

    /// Sends a request to the process, which is killed if the pool stops at once. After an error it has ended.
    async fn ask(&mut self, request: Request) -> Result<Vec<InsertOutcome>, ChildFailure> {
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
            Ok(_) => self.restarts.record_success(),
            Err(failure) => self.reap(failure, true),
        }
        asked
    }

    /// Handles the death of the process.
    fn reap(&mut self, failure: &ChildFailure, had_task: bool) {
        let lived_for = self
            .child
            .take()
            .map_or(Duration::ZERO, |child| child.lived_for());
        self.note_death(
            failure,
            ChildDeath {
                lived_for,
                had_task,
            },
        );
    }

    fn note_death(&mut self, failure: &ChildFailure, death: ChildDeath) {
        let (worker, lived_for) = (self.index, death.lived_for);
        tracing::warn!(
            worker,
            ?lived_for,
            "the insert process has ended: {failure}"
        );
        match self.restarts.record_death(death) {
            RestartDecision::StartAfter(pause) => {
                self.pause = pause;
                self.context.metrics.count_restart();
            }
            RestartDecision::GiveUp => self.send_event(WorkerEvent::GaveUp(failure.to_string())),
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
                Err(failure) => {
                    let lived_for = started_at.elapsed().saturating_sub(self.pause);
                    self.note_death(
                        &failure,
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
                worker = self.index,
                "replacing the insert process: {reason}"
            );
            self.context.metrics.count_restart();
            // The next process does not wait for the end of this one.
            tokio::spawn(child.end());
        }
    }

    fn give_back(&self, batch: Vec<Task>) {
        let tasks = batch
            .into_iter()
            .map(|task| (task.held, Outcome::Unstarted));
        self.send_finished(tasks, Instant::now());
    }

    fn send_finished(&self, tasks: impl Iterator<Item = (LeaseRef, Outcome)>, began_at: Instant) {
        let ended = tasks.map(|(held, outcome)| FinishedTask {
            held,
            outcome,
            began_at,
        });
        self.send_event(WorkerEvent::Finished(ended.collect()));
    }

    fn send_event(&self, events: WorkerEvent) {
        // A pool that has ended needs no event.
        let _ = self.context.events.send(events);
    }

    fn level(&self) -> Shutdown {
        *self.context.level.borrow()
    }
}

impl From<InsertOutcome> for Outcome {
    fn from(outcome: InsertOutcome) -> Self {
        match outcome {
            InsertOutcome::Inserted { rows } => Self::Inserted { rows },
            InsertOutcome::Failed {
                error,
                is_retryable,
            } => Self::Failed {
                message: error,
                is_retryable,
            },
        }
    }
}

/// Returns the outcome of a single task whose process failed.
fn outcome_of(failure: &ChildFailure) -> Outcome {
    match failure {
        ChildFailure::TimedOut(_) => Outcome::Failed {
            message: TIMED_OUT.into(),
            is_retryable: false,
        },
        _ => Outcome::Lost,
    }
}

/// Returns the outcome of a job whose payload is not a task.
fn unreadable(error: &dyn std::error::Error) -> Outcome {
    Outcome::Failed {
        message: format!("the payload is not the input of an insert: {error}"),
        is_retryable: false,
    }
}
