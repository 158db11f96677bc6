//! The frame of a pool: leases jobs for an executor, which runs them, and delivers their reports to the server.
//!
//! [`run_pool`] does what does not depend on the kind of job: it allows deliveries, hands them over, passes on lost
//! leases, collects reports, and on a stop delivers finished work and deregisters. The [`Executor`] decides what a
//! job is and how many are in hand.

use std::future::Future;
use std::time::Duration;

use ganger_client::{Delivery, LostLease, WorkEvent};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use crate::source::{Deliveries, Reports};

/// Whether and how the worker should stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shutdown {
    /// The worker continues, the default.
    #[default]
    No,
    /// The worker takes no new jobs and gives running ones their grace period.
    Graceful,
    /// The worker kills running jobs and stops.
    AtOnce,
}

/// Longest time for delivering finished work once the last job has ended.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the jobs of a pool. No call may block: reports and renewals of all jobs run on the same threads.
pub trait Executor<R: Reports>: Send {
    /// An event of the executor while jobs run.
    type Event: Send;
    /// Result of a task that reports to the server.
    type TaskResult: Send + 'static;

    /// Number of jobs to have at a time, those on their way included.
    fn jobs_wanted(&self) -> usize;

    /// Number of jobs that were taken and have not ended.
    fn jobs_in_hand(&self) -> usize;

    /// Takes jobs; releases them while the pool stops.
    fn take(&mut self, jobs: Vec<Delivery>, pool: &mut Pool<R, Self::TaskResult>);

    /// Handles the loss of a job's lease.
    fn lose(&mut self, lost: &LostLease);

    /// Waits for the executor's next event, which must not be lost if this wait is dropped early. `is_reporting`:
    /// whether some report has no answer yet.
    fn next_event(&mut self, is_reporting: bool) -> impl Future<Output = Self::Event> + Send;

    /// Handles one of the executor's events.
    fn on_event(&mut self, event: Self::Event, pool: &mut Pool<R, Self::TaskResult>);

    /// Counts the result of a reporting task; an error if it panicked.
    fn count(&mut self, reported: Result<Self::TaskResult, JoinError>);

    /// Stops: releases jobs that have not been started, and at [`Shutdown::AtOnce`] ends running ones. Called once
    /// for each level above [`Shutdown::No`] that is reached.
    fn stop(&mut self, level: Shutdown, pool: &mut Pool<R, Self::TaskResult>);

    /// Starts to end the executor's processes. No job runs any more.
    fn close(&mut self);

    /// Waits until the executor's processes have ended. Returns the number of lost outcomes, given the number of
    /// `unfinished` reporting tasks.
    fn closed(&mut self, unfinished: usize) -> impl Future<Output = u64> + Send;

    /// Records whether the stream to the server is open.
    fn show_connected(&self, _is_connected: bool) {}

    /// Updates the executor's metrics, before each wait.
    fn show(&self) {}
}

/// A pool's connection to the server. `T` is the result of a reporting task.
pub struct Pool<R, T> {
    reports: R,
    /// Number of deliveries allowed and not yet received.
    credits: usize,
    reporting: JoinSet<T>,
    level: Shutdown,
    /// The stop that the executor itself has asked for.
    wish: Shutdown,
    source_ended: bool,
}

/// Runs jobs until `shutdown` or the executor asks to stop and everything is delivered. Returns the executor.
pub async fn run_pool<D: Deliveries, R: Reports, E: Executor<R>>(
    mut executor: E,
    mut deliveries: D,
    reports: R,
    mut shutdown: watch::Receiver<Shutdown>,
) -> E {
    let mut pool = Pool {
        reports,
        credits: 0,
        reporting: JoinSet::new(),
        level: Shutdown::No,
        wish: Shutdown::No,
        source_ended: false,
    };
    let mut level = *shutdown.borrow_and_update();
    let mut may_change = true;
    loop {
        pool.apply_shutdown(level, &mut executor);
        pool.grant(&executor);
        if (pool.is_stopping() || pool.source_ended) && executor.jobs_in_hand() == 0 {
            break;
        }
        executor.show();
        let is_reporting = !pool.reporting.is_empty();
        tokio::select! {
            event = deliveries.next(), if !pool.source_ended => pool.receive(event, &mut executor),
            event = executor.next_event(is_reporting) => executor.on_event(event, &mut pool),
            Some(reported) = pool.reporting.join_next() => executor.count(reported),
            changed = shutdown.changed(), if may_change => {
                may_change = changed.is_ok();
                // The sender of the shutdown level is gone.
                level = if may_change { *shutdown.borrow_and_update() } else { level.max(Shutdown::Graceful) };
            }
        }
    }
    pool.close(&mut executor).await;
    executor
}

impl<R: Reports, T: Send + 'static> Pool<R, T> {
    /// Returns the reporter of the slots.
    pub fn reports(&self) -> &R {
        &self.reports
    }

    /// Whether the pool takes no new jobs.
    pub fn is_stopping(&self) -> bool {
        self.level != Shutdown::No
    }

    /// Stops as if `shutdown` had asked for it, after the current call of the executor.
    pub fn stop(&mut self) {
        self.wish = Shutdown::Graceful;
    }

    /// Runs a task that reports to the server. Its result goes to [`Executor::count`].
    pub fn report(&mut self, task: impl Future<Output = T> + Send + 'static) {
        self.reporting.spawn(task);
    }

    /// Allows as many deliveries as the executor lacks jobs. Called after every event; an executor calls it if
    /// credits should go out with the reports that it is about to send.
    pub fn grant<E: Executor<R>>(&mut self, executor: &E) {
        let expected = executor.jobs_in_hand() + self.credits;
        let more = executor.jobs_wanted().saturating_sub(expected);
        if more > 0 && !self.is_stopping() {
            self.credits += more;
            self.reports.grant(u32::try_from(more).unwrap_or(u32::MAX));
        }
    }

    fn receive<E: Executor<R, TaskResult = T>>(
        &mut self,
        event: Option<WorkEvent>,
        executor: &mut E,
    ) {
        match event {
            Some(WorkEvent::Jobs(jobs)) => {
                self.credits = self.credits.saturating_sub(jobs.len());
                executor.take(jobs, self);
            }
            Some(WorkEvent::LeaseLost(lost)) => executor.lose(&lost),
            Some(WorkEvent::Connected { version, shard }) => {
                executor.show_connected(true);
                tracing::info!(%version, %shard, "connected");
            }
            Some(WorkEvent::Disconnected { error, retry_in }) => {
                executor.show_connected(false);
                tracing::warn!(%error, ?retry_in, "the server is unreachable; running jobs continue");
            }
            Some(WorkEvent::Draining) => {
                tracing::info!("the server is about to stop; running jobs continue");
            }
            None => self.source_ended = true,
        }
    }

    fn apply_shutdown<E: Executor<R, TaskResult = T>>(
        &mut self,
        level: Shutdown,
        executor: &mut E,
    ) {
        let level = level.max(self.wish);
        if level <= self.level {
            return;
        }
        let was_stopping = self.is_stopping();
        self.level = level;
        if !was_stopping {
            self.reports.drop_credits();
            executor.stop(Shutdown::Graceful, self);
        }
        if level == Shutdown::AtOnce {
            tracing::warn!(running = executor.jobs_in_hand(), "stopping at once");
            executor.stop(Shutdown::AtOnce, self);
        }
    }

    /// Delivers finished work, ends the executor's processes, and deregisters.
    async fn close<E: Executor<R, TaskResult = T>>(mut self, executor: &mut E) {
        let patience = if self.level == Shutdown::AtOnce {
            DELIVERY_TIMEOUT / 10
        } else {
            DELIVERY_TIMEOUT
        };
        let deadline = Instant::now() + patience;
        executor.close();
        while let Ok(Some(reported)) = timeout_at(deadline, self.reporting.join_next()).await {
            executor.count(reported);
        }
        executor.show();
        let undelivered = executor.closed(self.reporting.len()).await;
        if undelivered > 0 {
            tracing::error!(
                undelivered,
                "the server is unreachable: outcomes are lost, and their leases will expire"
            );
        }
        let deregister = timeout(patience, self.reports.deregister(patience)).await;
        if let Ok(Err(error)) = deregister {
            tracing::warn!(%error, "the server could not deregister this worker");
        }
    }
}
