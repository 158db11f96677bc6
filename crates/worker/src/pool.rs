//! The frame of a pool: leases jobs for an executor, which runs them, and takes their reports to the server.
//!
//! [`run_pool`] does what is the same whatever a job is: it allows deliveries, hands them over, passes on which leases
//! were lost, collects reports, and on a stop delivers what is finished and deregisters. What a job is and how many of
//! them are in hand is the [`Executor`]'s.

use std::future::Future;
use std::time::Duration;

use ganger_client::{Delivery, Lost, WorkEvent};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use crate::source::{Deliveries, Reports};

/// Whether the worker should go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shutdown {
    /// The worker goes on, the default.
    #[default]
    No,
    /// Take nothing new, give what runs its period of grace.
    Graceful,
    /// The worker kills what runs and stops.
    AtOnce,
}

/// How long finished work may take to be delivered once the last job has ended.
const DELIVER_FOR: Duration = Duration::from_secs(10);

/// What runs the jobs of a pool. No call may block: reports and renewals of all jobs run on the same threads.
pub trait Executor<R: Reports>: Send {
    /// What happens in it while jobs run.
    type Event: Send;
    /// What one task that reports to the server gives.
    type Reported: Send + 'static;

    /// Jobs to have at a time: those in hand and those that are on their way here.
    fn jobs_wanted(&self) -> usize;

    /// Jobs that were taken and have not come to their end.
    fn jobs_in_hand(&self) -> usize;

    /// Takes jobs. While the pool stops it gives them back.
    fn take(&mut self, jobs: Vec<Delivery>, pool: &mut Pool<R, Self::Reported>);

    /// Learns that the lease of a job is gone.
    fn lose(&mut self, lost: &Lost);

    /// Waits for its next event, which must not be lost if this wait is dropped before its end. `is_reporting`: some
    /// report has no answer yet.
    fn next_event(&mut self, is_reporting: bool) -> impl Future<Output = Self::Event> + Send;

    /// Acts on an event of its own.
    fn on_event(&mut self, event: Self::Event, pool: &mut Pool<R, Self::Reported>);

    /// Counts what a task that reported has given; an error if it panicked.
    fn count(&mut self, reported: Result<Self::Reported, JoinError>);

    /// Stops: gives back what has not been started, and at [`Shutdown::AtOnce`] ends what runs. Called once for each
    /// level above [`Shutdown::No`] that is reached.
    fn stop(&mut self, level: Shutdown, pool: &mut Pool<R, Self::Reported>);

    /// Begins to end its processes. No job runs any more.
    fn close(&mut self);

    /// Waits until its processes have ended. Gives the number of outcomes that are lost, when so many tasks that report
    /// are `unfinished`.
    fn closed(&mut self, unfinished: usize) -> impl Future<Output = u64> + Send;

    /// Shows whether the stream to the server is open.
    fn show_connected(&self, _is_connected: bool) {}

    /// Shows its numbers, before each wait.
    fn show(&self) {}
}

/// A pool's side towards the server. `T`: what one task that reports gives.
pub struct Pool<R, T> {
    reports: R,
    /// Deliveries allowed and not yet here.
    credits: usize,
    reporting: JoinSet<T>,
    level: Shutdown,
    /// How far the executor wants to stop by itself.
    wish: Shutdown,
    source_ended: bool,
}

/// Runs jobs until `shutdown` or the executor says otherwise and all is delivered. Gives the executor back.
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
        pool.obey(level, &mut executor);
        pool.grant(&executor);
        if (pool.is_stopping() || pool.source_ended) && executor.jobs_in_hand() == 0 {
            break;
        }
        executor.show();
        let is_reporting = !pool.reporting.is_empty();
        tokio::select! {
            event = deliveries.next(), if !pool.source_ended => pool.hear(event, &mut executor),
            event = executor.next_event(is_reporting) => executor.on_event(event, &mut pool),
            Some(reported) = pool.reporting.join_next() => executor.count(reported),
            changed = shutdown.changed(), if may_change => {
                may_change = changed.is_ok();
                // The sender of "go on" is gone.
                level = if may_change { *shutdown.borrow_and_update() } else { level.max(Shutdown::Graceful) };
            }
        }
    }
    pool.close(&mut executor).await;
    executor
}

impl<R: Reports, T: Send + 'static> Pool<R, T> {
    /// Returns the place where the slots' reports go.
    pub fn reports(&self) -> &R {
        &self.reports
    }

    /// Whether nothing new is taken.
    pub fn is_stopping(&self) -> bool {
        self.level != Shutdown::No
    }

    /// Stops as if the shutdown had asked for it, after the current call of the executor.
    pub fn stop(&mut self) {
        self.wish = Shutdown::Graceful;
    }

    /// Runs a task that reports to the server, beside everything else. What it gives goes to [`Executor::count`].
    pub fn report(&mut self, task: impl Future<Output = T> + Send + 'static) {
        self.reporting.spawn(task);
    }

    /// Allows as many deliveries as the executor lacks jobs. Called after everything that happens; an executor calls it
    /// if credits should travel with the reports that it is about to send.
    pub fn grant<E: Executor<R>>(&mut self, executor: &E) {
        let expected = executor.jobs_in_hand() + self.credits;
        let more = executor.jobs_wanted().saturating_sub(expected);
        if more > 0 && !self.is_stopping() {
            self.credits += more;
            self.reports.grant(u32::try_from(more).unwrap_or(u32::MAX));
        }
    }

    fn hear<E: Executor<R, Reported = T>>(&mut self, event: Option<WorkEvent>, executor: &mut E) {
        match event {
            Some(WorkEvent::Jobs(jobs)) => {
                self.credits = self.credits.saturating_sub(jobs.len());
                executor.take(jobs, self);
            }
            Some(WorkEvent::Lost(lost)) => executor.lose(&lost),
            Some(WorkEvent::Connected { version, shard }) => {
                executor.show_connected(true);
                tracing::info!(%version, %shard, "connected");
            }
            Some(WorkEvent::Disconnected { error, retry_in }) => {
                executor.show_connected(false);
                tracing::warn!(%error, ?retry_in, "the server is away; what runs goes on");
            }
            Some(WorkEvent::Draining) => {
                tracing::info!("the server is about to stop; what runs goes on");
            }
            None => self.source_ended = true,
        }
    }

    fn obey<E: Executor<R, Reported = T>>(&mut self, level: Shutdown, executor: &mut E) {
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
            tracing::warn!(running = executor.jobs_in_hand(), "stops at once");
            executor.stop(Shutdown::AtOnce, self);
        }
    }

    /// Delivers what is finished, ends the executor's processes, and deregisters.
    async fn close<E: Executor<R, Reported = T>>(mut self, executor: &mut E) {
        let patience = if self.level == Shutdown::AtOnce {
            DELIVER_FOR / 10
        } else {
            DELIVER_FOR
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
                "the server is away: outcomes are lost, their leases will run out"
            );
        }
        let deregister = timeout(patience, self.reports.deregister(patience)).await;
        if let Ok(Err(error)) = deregister {
            tracing::warn!(%error, "the server could not deregister this worker");
        }
    }
}
