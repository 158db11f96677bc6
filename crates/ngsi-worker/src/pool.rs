//! The pool: takes as many tasks as its workers can have in hand, deals them out in batches, reports how they ended.

use std::sync::Arc;
use std::time::Duration;

use ganger_client::{Client, Delivery, Held, TakeFrom, TakeMode, WorkEvent, WorkOptions};
use ganger_ngsi::job::KIND;
use ganger_worker::{Deliveries, Reports, Shutdown, make_name};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use crate::burst;
use crate::metrics::Metrics;
use crate::outcome::{CountedEnd, Outcome};
use crate::reporter::Reporter;
use crate::sample::sample_queue;
use crate::slot::{self, Batches, Ended, PoolContext, WorkerEvent};
use crate::source::{Insight, Server};
use crate::waiting::{BATCH_TASKS_MAX, Task, Waiting};
use crate::{Error, Settings};

/// What a pool did, by tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// In the database.
    pub inserted: u64,
    /// Not there.
    pub failed: u64,
    /// Their process died of them.
    pub lost: u64,
    /// Given back.
    pub released: u64,
    /// Outcomes that nobody wanted any more: the lease was lost.
    pub dropped: u64,
    /// Outcomes that could not be delivered before the pool ended.
    pub undelivered: u64,
}

/// Length of the leases: the tasks of a worker that died are free after so long.
const LEASE_FOR: Duration = Duration::from_secs(15);
/// How long finished work may take to be delivered once the last batch has ended.
const DELIVER_FOR: Duration = Duration::from_secs(10);

/// Runs a pool until `shutdown` says otherwise, its work is done, or its processes cannot be kept running.
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
    tracing::info!(%worker, workers = settings.workers, queue = %settings.queue, "pool starts");
    let reports = stream.reporter();
    let server = Server {
        client,
        queue: settings.queue.clone(),
        worker,
    };
    run_with(settings, stream, reports, server, shutdown).await
}

/// As [`run`], with tasks and reports of any kind.
///
/// # Errors
/// Likewise.
pub async fn run_with<D: Deliveries, R: Reports, I: Insight>(
    settings: Settings,
    mut deliveries: D,
    reports: R,
    server: I,
    mut shutdown: watch::Receiver<Shutdown>,
) -> Result<Summary, Error> {
    let is_burst = settings.is_burst;
    let mut pool = Pool::open(settings, reports).await?;
    if pool.settings.metrics.is_some() {
        tokio::spawn(sample_queue(server.clone(), Arc::clone(&pool.metrics)));
    }
    let mut may_change = true;
    pool.obey(*shutdown.borrow_and_update());
    pool.grant();
    while !pool.is_done() {
        let may_be_drained = is_burst && pool.is_idle();
        tokio::select! {
            event = deliveries.next(), if !pool.source_ended => pool.hear(event),
            Some(said) = pool.said.recv() => pool.listen(said),
            Some(told) = pool.telling.join_next() => pool.count(whole(told)),
            Some(ended) = pool.workers.join_next() => whole(ended),
            changed = shutdown.changed(), if may_change => {
                may_change = changed.is_ok();
                // The sender of "go on" is gone.
                let level = if may_change { *shutdown.borrow_and_update() } else { Shutdown::Graceful };
                pool.obey(level);
            }
            drained = burst::drained(&server), if may_be_drained => pool.drained(drained),
        }
    }
    pool.close().await
}

struct Pool<R> {
    settings: Arc<Settings>,
    reports: R,
    metrics: Arc<Metrics>,
    /// The ways to the workers, by their places.
    ways: Vec<Batches>,
    workers: JoinSet<()>,
    said: mpsc::UnboundedReceiver<WorkerEvent>,
    level: watch::Sender<Shutdown>,
    waiting: Waiting,
    /// Places of workers without a batch. The last is taken first, so that few are warm instead of all lukewarm.
    idle: Vec<usize>,
    /// Tasks that workers have.
    running: usize,
    /// Deliveries allowed and not yet here.
    credits: usize,
    /// Attempts that came to their end.
    attempts: u64,
    teller: Reporter<R>,
    telling: JoinSet<Vec<CountedEnd>>,
    summary: Summary,
    source_ended: bool,
    trouble: Option<Error>,
}

impl<R: Reports> Pool<R> {
    async fn open(settings: Settings, reports: R) -> Result<Self, Error> {
        let metrics = Arc::new(Metrics::new(settings.workers));
        if let Some(address) = settings.metrics {
            let shown = Arc::clone(&metrics);
            ganger_worker::show_metrics(address, move || shown.text())
                .await
                .map_err(|source| Error::Listen { address, source })?;
        }
        let teller = Reporter::open(
            reports.clone(),
            Arc::clone(&metrics),
            settings.telemetry.as_deref(),
        )?;
        let settings = Arc::new(settings);
        let (level, follow_level) = watch::channel(Shutdown::No);
        let (say, said) = mpsc::unbounded_channel();
        let shop = PoolContext {
            settings: Arc::clone(&settings),
            reports: reports.clone(),
            metrics: Arc::clone(&metrics),
            said: say,
            level: follow_level,
        };
        let mut workers = JoinSet::new();
        let ways = (0..settings.workers.max(1))
            .map(|place| slot::start(&mut workers, shop.clone(), place))
            .collect();
        Ok(Self {
            settings,
            reports,
            metrics,
            ways,
            workers,
            said,
            level,
            waiting: Waiting::default(),
            idle: Vec::new(),
            running: 0,
            credits: 0,
            attempts: 0,
            teller,
            telling: JoinSet::new(),
            summary: Summary::default(),
            source_ended: false,
            trouble: None,
        })
    }

    fn is_stopping(&self) -> bool {
        *self.level.borrow() != Shutdown::No
    }

    fn is_done(&self) -> bool {
        (self.is_stopping() || self.source_ended) && self.running == 0 && self.waiting.len() == 0
    }

    /// Whether nothing is to be done here, as far as one can see from here.
    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.len() == 0 && self.telling.is_empty()
    }

    /// Allows as many deliveries as the workers can have in their batches.
    fn grant(&mut self) {
        if self.is_stopping() {
            return;
        }
        let in_hand = self.running + self.waiting.len() + self.credits;
        let mut wanted = self.ways.len() * BATCH_TASKS_MAX;
        if let Some(tasks_max) = self.settings.tasks_max {
            let left = tasks_max.saturating_sub(self.attempts);
            wanted = wanted.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        let more = wanted.saturating_sub(in_hand);
        if more > 0 {
            self.credits += more;
            self.reports.grant(u32::try_from(more).unwrap_or(u32::MAX));
        }
    }

    fn hear(&mut self, event: Option<WorkEvent>) {
        match event {
            Some(WorkEvent::Jobs(jobs)) => {
                for job in jobs {
                    self.take(job);
                }
                self.deal();
            }
            Some(WorkEvent::Lost(lost)) => self.lose(&lost.held),
            Some(WorkEvent::Connected { version, shard }) => {
                tracing::info!(%version, %shard, "connected");
            }
            Some(WorkEvent::Disconnected { error, retry_in }) => {
                tracing::warn!(%error, ?retry_in, "the server is away; what runs goes on");
            }
            Some(WorkEvent::Draining) => {
                tracing::info!("the server is about to stop; what runs goes on");
            }
            None => self.source_ended = true,
        }
    }

    /// Takes a task in. One that comes while the pool stops is given back, and so is what is none.
    fn take(&mut self, job: Delivery) {
        self.credits = self.credits.saturating_sub(1);
        if job.kind != KIND {
            self.teller.refuse(&mut self.telling, job);
            return self.grant();
        }
        self.waiting.push(Task::from(job));
        if self.is_stopping() {
            self.give_back_waiting();
        }
    }

    /// A lost lease: what waits is forgotten; the outcome of what runs will be dropped.
    fn lose(&mut self, held: &Held) {
        if self.waiting.forget(held) {
            self.summary.dropped += 1;
            self.metrics.ended(CountedEnd::Dropped);
            self.grant();
        }
    }

    /// Gives waiting tasks to idle workers.
    fn deal(&mut self) {
        while let Some(place) = self.idle.last() {
            let Some(batch) = self.waiting.batch(self.idle.len()) else {
                return;
            };
            self.running += batch.len();
            self.ways[*place]
                .send(batch)
                .expect("a worker takes batches until the pool stops");
            self.idle.pop();
        }
    }

    fn listen(&mut self, said: WorkerEvent) {
        match said {
            WorkerEvent::Idle(place) => {
                self.idle.push(place);
                self.deal();
            }
            WorkerEvent::Ended(ended) => self.end(ended),
            WorkerEvent::GaveUp(how) => {
                self.trouble = Some(Error::GaveUp { how });
                self.obey(Shutdown::Graceful);
            }
        }
    }

    fn end(&mut self, ended: Vec<Ended>) {
        self.running -= ended.len();
        let attempts = ended.iter().filter(|one| one.outcome.is_attempt()).count();
        self.attempts += u64::try_from(attempts).unwrap_or(u64::MAX);
        // Credits first: they travel with the reports.
        self.grant();
        self.teller.tell(&mut self.telling, ended);
        if self
            .settings
            .tasks_max
            .is_some_and(|max| self.attempts >= max)
        {
            tracing::info!(
                attempts = self.attempts,
                "all tasks that --max-tasks allows are done"
            );
            self.obey(Shutdown::Graceful);
        }
    }

    fn give_back_waiting(&mut self) {
        let now = std::time::Instant::now();
        let tasks = self.waiting.take_all().into_iter();
        let ended: Vec<_> = tasks
            .map(|task| Ended {
                held: task.held,
                outcome: Outcome::Unstarted,
                began_at: now,
            })
            .collect();
        if !ended.is_empty() {
            self.teller.tell(&mut self.telling, ended);
        }
    }

    fn count(&mut self, told: Vec<CountedEnd>) {
        for one in told {
            let of = match one {
                CountedEnd::Inserted => &mut self.summary.inserted,
                CountedEnd::Failed | CountedEnd::Refused => &mut self.summary.failed,
                CountedEnd::Lost => &mut self.summary.lost,
                CountedEnd::Released => &mut self.summary.released,
                CountedEnd::Dropped => &mut self.summary.dropped,
            };
            *of += 1;
        }
    }

    /// Nothing is left to do for a pool that ends when its queue is empty.
    fn drained(&mut self, drained: Result<(), Error>) {
        match drained {
            Ok(()) => tracing::info!("nothing is ready, and nothing runs here"),
            Err(error) => self.trouble = Some(error),
        }
        self.obey(Shutdown::Graceful);
    }

    fn obey(&mut self, level: Shutdown) {
        let before = *self.level.borrow();
        if level <= before {
            return;
        }
        self.level.send_replace(level);
        if before == Shutdown::No {
            self.reports.drop_credits();
            self.give_back_waiting();
            tracing::info!(running = self.running, "stops: takes nothing new");
        }
        if level == Shutdown::AtOnce {
            tracing::warn!(running = self.running, "stops at once");
        }
    }

    /// Delivers what is finished, ends the workers, and deregisters.
    async fn close(mut self) -> Result<Summary, Error> {
        let at_once = *self.level.borrow() == Shutdown::AtOnce;
        let patience = if at_once {
            DELIVER_FOR / 10
        } else {
            DELIVER_FOR
        };
        let deadline = Instant::now() + patience;
        // Without the way to it, a worker ends.
        self.ways.clear();
        while let Ok(Some(told)) = timeout_at(deadline, self.telling.join_next()).await {
            self.count(whole(told));
        }
        while let Some(ended) = self.workers.join_next().await {
            whole(ended);
        }
        self.summary.undelivered = self.teller.undelivered();
        if self.summary.undelivered > 0 {
            let undelivered = self.summary.undelivered;
            tracing::error!(
                undelivered,
                "the server is away: outcomes are lost, their leases will run out"
            );
        }
        let deregister = timeout(patience, self.reports.deregister(patience)).await;
        if let Ok(Err(error)) = deregister {
            tracing::warn!(%error, "the server could not deregister this worker");
        }
        self.teller.flush();
        tracing::info!(?self.summary, "pool ends");
        match self.trouble {
            Some(error) => Err(error),
            None => Ok(self.summary),
        }
    }
}

/// What a task of ours gave. One that panicked takes the pool with it: its leases run out, and nothing hangs.
fn whole<T>(ended: Result<T, JoinError>) -> T {
    match ended {
        Ok(given) => given,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
