//! The pool: leases as many tasks as its workers can handle, distributes them in batches, and reports the outcomes.

use std::sync::Arc;
use std::time::Duration;

use ganger_client::{Client, Delivery, LostLease, TakeFrom, TakeMode, WorkOptions};
use ganger_ngsi::job::KIND;
use ganger_worker::{Deliveries, Executor, Pool, Reports, Shutdown, make_name, run_pool};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use crate::burst;
use crate::metrics::Metrics;
use crate::outcome::{Outcome, TaskResult};
use crate::reporter::Reporter;
use crate::sample::sample_queue;
use crate::slot::{self, Batches, FinishedTask, PoolContext, WorkerEvent};
use crate::source::{Server, ServerQueries};
use crate::waiting::{BATCH_TASKS_MAX, Task, WaitingTasks};
use crate::{Error, Settings};

/// Numbers of a pool's tasks by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tasks whose rows are in the database.
    pub inserted: u64,
    /// Tasks whose rows could not be inserted.
    pub failed: u64,
    /// Tasks whose process died while inserting them.
    pub lost: u64,
    /// Tasks that were released.
    pub released: u64,
    /// Outcomes dropped because the lease had ended.
    pub dropped: u64,
    /// Outcomes that could not be delivered before the pool ended.
    pub undelivered: u64,
}

/// Length of the leases, after which the tasks of a dead pool are leased to others.
const LEASE_FOR: Duration = Duration::from_secs(15);
/// Runs a pool until `shutdown` asks it to stop, its work is done, or its processes cannot be kept running.
///
/// # Errors
/// If the settings cannot be used, or the pool gave up.
pub async fn run(
    settings: Settings,
    shutdown: watch::Receiver<Shutdown>,
) -> Result<Summary, Error> {
    let worker = settings.name.clone().unwrap_or_else(make_name);
    let mut client = Client::new(settings.server.clone())?;
    if let Some(shard) = &settings.shard {
        client = client.at_shard(shard);
    }
    let stream = client.work(WorkOptions {
        worker: worker.clone(),
        queues: vec![TakeFrom::new(&settings.queue)],
        mode: TakeMode::Ordered,
        lease_for: Some(LEASE_FOR),
        credits: 0,
    });
    tracing::info!(%worker, workers = settings.workers, queue = %settings.queue, "the pool starts");
    let reports = stream.reporter();
    let server = Server {
        client,
        queue: settings.queue.clone(),
        worker,
    };
    run_with(settings, stream, reports, server, shutdown).await
}

/// Like [`run`], with any source of tasks and destination of reports.
///
/// # Errors
/// Likewise.
pub async fn run_with<D: Deliveries, R: Reports, I: ServerQueries>(
    settings: Settings,
    deliveries: D,
    reports: R,
    server: I,
    shutdown: watch::Receiver<Shutdown>,
) -> Result<Summary, Error> {
    let workers = InsertWorkers::open(settings, reports.clone(), server).await?;
    let ended = run_pool(workers, deliveries, reports, shutdown).await;
    ended.reporter.flush();
    tracing::info!(?ended.summary, "the pool has ended");
    match ended.error {
        Some(error) => Err(error),
        None => Ok(ended.summary),
    }
}

/// The workers of a pool and their tasks.
struct InsertWorkers<I> {
    settings: Arc<Settings>,
    server: I,
    metrics: Arc<Metrics>,
    /// Senders of batches to the workers, by index.
    batch_senders: Vec<Batches>,
    workers: JoinSet<()>,
    events: mpsc::UnboundedReceiver<WorkerEvent>,
    level: watch::Sender<Shutdown>,
    waiting: WaitingTasks,
    /// Indexes of workers without a batch. The last one is used first, so that few processes do most of the work.
    idle: Vec<usize>,
    /// Number of tasks at the workers.
    running: usize,
    /// Number of attempts that ended.
    attempts: u64,
    reporter: Reporter,
    summary: Summary,
    error: Option<Error>,
}

/// An event of a pool while tasks run.
enum PoolEvent {
    /// A worker has sent an event.
    Worker(WorkerEvent),
    /// A worker has ended.
    WorkerEnded,
    /// No task is left, or the server cannot be asked.
    Drained(Result<(), Error>),
}

impl<I: ServerQueries> InsertWorkers<I> {
    async fn open<R: Reports>(settings: Settings, reports: R, server: I) -> Result<Self, Error> {
        let metrics = Arc::new(Metrics::new(settings.workers));
        if let Some(address) = settings.metrics {
            let shown = Arc::clone(&metrics);
            ganger_worker::show_metrics(address, move || shown.text())
                .await
                .map_err(|source| Error::Listen { address, source })?;
        }
        let reporter = Reporter::open(Arc::clone(&metrics), settings.telemetry.as_deref())?;
        if settings.metrics.is_some() {
            tokio::spawn(sample_queue(server.clone(), Arc::clone(&metrics)));
        }
        let settings = Arc::new(settings);
        let (level, follow_level) = watch::channel(Shutdown::No);
        let (say, events) = mpsc::unbounded_channel();
        let context = PoolContext {
            settings: Arc::clone(&settings),
            reports,
            metrics: Arc::clone(&metrics),
            events: say,
            level: follow_level,
        };
        let mut workers = JoinSet::new();
        let batch_senders = (0..settings.workers.max(1))
            .map(|index| slot::start(&mut workers, context.clone(), index))
            .collect();
        Ok(Self {
            settings,
            server,
            metrics,
            batch_senders,
            workers,
            events,
            level,
            waiting: WaitingTasks::default(),
            idle: Vec::new(),
            running: 0,
            attempts: 0,
            reporter,
            summary: Summary::default(),
            error: None,
        })
    }

    /// Sends batches of waiting tasks to idle workers.
    fn distribute(&mut self) {
        while let Some(index) = self.idle.last() {
            let Some(batch) = self.waiting.batch(self.idle.len()) else {
                return;
            };
            self.running += batch.len();
            self.batch_senders[*index]
                .send(batch)
                .expect("a worker takes batches until the pool stops");
            self.idle.pop();
        }
    }

    fn report_finished<R: Reports>(
        &mut self,
        ended: Vec<FinishedTask>,
        pool: &mut Pool<R, Vec<TaskResult>>,
    ) {
        self.running -= ended.len();
        let attempts = ended.iter().filter(|one| one.outcome.is_attempt()).count();
        self.attempts += u64::try_from(attempts).unwrap_or(u64::MAX);
        // Grant credits first, so that they are sent together with the reports.
        pool.grant(self);
        self.reporter.report_outcomes(pool, ended);
        if self
            .settings
            .tasks_max
            .is_some_and(|max| self.attempts >= max)
        {
            tracing::info!(attempts = self.attempts, "reached the limit of --max-tasks");
            pool.stop();
        }
    }

    fn give_back_waiting<R: Reports>(&mut self, pool: &mut Pool<R, Vec<TaskResult>>) {
        let now = std::time::Instant::now();
        let tasks = self.waiting.take_all().into_iter();
        let ended: Vec<_> = tasks
            .map(|task| FinishedTask {
                held: task.held,
                outcome: Outcome::Unstarted,
                began_at: now,
            })
            .collect();
        if !ended.is_empty() {
            self.reporter.report_outcomes(pool, ended);
        }
    }
}

impl<R: Reports, I: ServerQueries> Executor<R> for InsertWorkers<I> {
    type Event = PoolEvent;
    type TaskResult = Vec<TaskResult>;

    /// Returns the number of tasks that the workers can have in their batches.
    fn jobs_wanted(&self) -> usize {
        let wanted = self.batch_senders.len() * BATCH_TASKS_MAX;
        let Some(tasks_max) = self.settings.tasks_max else {
            return wanted;
        };
        let left = tasks_max.saturating_sub(self.attempts);
        wanted.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    fn jobs_in_hand(&self) -> usize {
        self.running + self.waiting.len()
    }

    /// Accepts tasks. Tasks that arrive while the pool stops are released, and so are jobs of other kinds.
    fn take(&mut self, jobs: Vec<Delivery>, pool: &mut Pool<R, Vec<TaskResult>>) {
        for job in jobs {
            if job.kind == KIND {
                self.waiting.push(Task::from(job));
            } else {
                self.reporter.release_foreign_job(pool, job);
            }
        }
        if pool.is_stopping() {
            self.give_back_waiting(pool);
        }
        self.distribute();
    }

    /// Drops a waiting task; the outcome of a running one will be dropped.
    fn lose(&mut self, lost: &LostLease) {
        if self.waiting.remove(&lost.lease) {
            self.summary.dropped += 1;
            self.metrics.count_task(TaskResult::Dropped);
        }
    }

    async fn next_event(&mut self, is_reporting: bool) -> PoolEvent {
        let is_idle = self.running == 0 && self.waiting.len() == 0 && !is_reporting;
        let may_be_drained = self.settings.is_burst && is_idle;
        tokio::select! {
            Some(events) = self.events.recv() => PoolEvent::Worker(events),
            Some(ended) = self.workers.join_next() => {
                unwrap_task(ended);
                PoolEvent::WorkerEnded
            }
            drained = burst::drained(&self.server), if may_be_drained => PoolEvent::Drained(drained),
            else => std::future::pending().await,
        }
    }

    fn on_event(&mut self, event: PoolEvent, pool: &mut Pool<R, Vec<TaskResult>>) {
        match event {
            PoolEvent::Worker(WorkerEvent::Idle(index)) => {
                self.idle.push(index);
                self.distribute();
            }
            PoolEvent::Worker(WorkerEvent::Finished(ended)) => self.report_finished(ended, pool),
            PoolEvent::Worker(WorkerEvent::GaveUp(how)) => {
                self.error = Some(Error::GaveUp { how });
                pool.stop();
            }
            PoolEvent::WorkerEnded => {}
            PoolEvent::Drained(drained) => {
                match drained {
                    Ok(()) => tracing::info!("no task is ready or running here"),
                    Err(error) => self.error = Some(error),
                }
                pool.stop();
            }
        }
    }

    fn count(&mut self, reported: Result<Vec<TaskResult>, JoinError>) {
        for one in unwrap_task(reported) {
            let of = match one {
                TaskResult::Inserted => &mut self.summary.inserted,
                TaskResult::Failed | TaskResult::FailedPermanently => &mut self.summary.failed,
                TaskResult::Lost => &mut self.summary.lost,
                TaskResult::Released => &mut self.summary.released,
                TaskResult::Dropped => &mut self.summary.dropped,
            };
            *of += 1;
        }
    }

    fn stop(&mut self, level: Shutdown, pool: &mut Pool<R, Vec<TaskResult>>) {
        self.level.send_replace(level);
        if level == Shutdown::Graceful {
            self.give_back_waiting(pool);
            tracing::info!(
                running = self.running,
                "stopping: the pool takes no new tasks"
            );
        }
    }

    fn close(&mut self) {
        // A worker ends when its sender is dropped.
        self.batch_senders.clear();
    }

    async fn closed(&mut self, _: usize) -> u64 {
        while let Some(ended) = self.workers.join_next().await {
            unwrap_task(ended);
        }
        self.summary.undelivered = self.reporter.undelivered();
        self.summary.undelivered
    }
}

/// Returns the result of an asynchronous task. A panic in it ends the pool: its leases expire, and nothing hangs.
fn unwrap_task<T>(ended: Result<T, JoinError>) -> T {
    match ended {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
