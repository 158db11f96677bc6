//! The worker: takes as many jobs as it has slots, until it is stopped.

use std::collections::HashMap;
use std::sync::Arc;

use ganger_client::{Client, Delivery, LeaseRef, LostLease, WorkOptions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until};

use crate::attempt_task::{AttemptResult, AttemptTask, FreedSlot};
use crate::environment::{Environment, global_id};
use crate::handler::{Handlers, Mode};
use crate::launch::WorkerContext;
use crate::pool::{Executor, Pool, Shutdown, run_pool};
use crate::prefetch::{Prefetched, RunTimeAverage};
use crate::program::SETTINGS_FILE;
use crate::scratch::Scratch;
use crate::settings::make_name;
use crate::slot::{Slot, Work};
use crate::source::{Deliveries, Reports};
use crate::stop::{Stop, StopCause};
use crate::supervise::ControlGroups;
use crate::{Error, Settings};

/// Numbers of a worker's jobs by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Jobs reported as succeeded.
    pub succeeded: u64,
    /// Jobs reported as failed.
    pub failed: u64,
    /// Jobs released because this worker has no program for them, or stopped.
    pub released: u64,
    /// Outcomes dropped because the lease had ended.
    pub dropped: u64,
    /// Outcomes that could not be delivered before the worker ended.
    pub undelivered: u64,
}

/// Runs a worker until `shutdown` asks it to stop and everything is delivered.
///
/// # Errors
/// If the settings cannot be used, or the stream ends by itself.
pub async fn run(
    settings: Settings,
    shutdown: watch::Receiver<Shutdown>,
) -> Result<Summary, Error> {
    let name = settings.name.clone().unwrap_or_else(make_name);
    let mut client = Client::new(settings.server.clone()).map_err(Error::Client)?;
    if let Some(shard) = &settings.shard {
        client = client.at_shard(shard);
    }
    let stream = client.work(WorkOptions {
        worker: name.clone(),
        queues: settings.queues.clone(),
        mode: settings.mode,
        lease_for: settings.lease_for,
        credits: 0,
    });
    let reports = stream.reporter();
    run_with(
        Settings {
            name: Some(name),
            ..settings
        },
        stream,
        reports,
        shutdown,
    )
    .await
}

/// Like [`run`], with any source of jobs and destination of reports.
///
/// # Errors
/// If the settings cannot be used.
pub async fn run_with<D: Deliveries, R: Reports>(
    settings: Settings,
    deliveries: D,
    reports: R,
    shutdown: watch::Receiver<Shutdown>,
) -> Result<Summary, Error> {
    let slots = run_pool(Slots::open(settings)?, deliveries, reports, shutdown).await;
    let Summary {
        succeeded,
        failed,
        released,
        dropped,
        undelivered,
    } = slots.summary;
    tracing::info!(
        succeeded,
        failed,
        released,
        dropped,
        undelivered,
        "worker ends"
    );
    Ok(slots.summary)
}

/// A slot, and the kind that it last ran.
struct WorkerSlot {
    slot: Option<Slot>,
    fed_kinds: Vec<String>,
}

/// The slots of a worker and what runs in them.
struct Slots {
    context: Arc<WorkerContext>,
    places: Vec<WorkerSlot>,
    /// Indexes of idle slots. The last is used first, so that few supervisors stay busy and warm.
    idle: Vec<usize>,
    running: HashMap<LeaseRef, Arc<Stop>>,
    freed_sender: mpsc::UnboundedSender<FreedSlot>,
    freed: mpsc::UnboundedReceiver<FreedSlot>,
    pace: RunTimeAverage,
    summary: Summary,
    /// Time at which programs that still run are asked to end.
    stop_at: Option<Instant>,
    /// The task that ends the threads of the slots.
    closing: Option<JoinHandle<()>>,
}

/// An event of the slots.
enum SlotEvent {
    /// A job has ended.
    Freed(FreedSlot),
    /// A prefetched job has waited for too long.
    Overdue,
    /// The grace period has passed.
    GraceOver,
}

impl Slots {
    fn open(settings: Settings) -> Result<Self, Error> {
        let name = settings.name.clone().unwrap_or_else(make_name);
        let handlers = match &settings.handlers {
            Some(handlers) => handlers.clone(),
            None => Handlers::read(&settings.directory.join(SETTINGS_FILE))?.unwrap_or_default(),
        };
        let environment = Environment::new(&settings, &name)?;
        let scratch = Scratch::make(&settings.scratch).map_err(|source| Error::Scratch {
            path: settings.scratch.clone(),
            source,
        })?;
        // Programs of the same user can neither read our token from memory nor trace us.
        let _ =
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
        // If a supervisor is killed, this process becomes the parent of its processes.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let groups = ControlGroups::prepare(handlers.have_bounds());
        let places = settings.concurrency.max(1);
        let directory = settings.directory.display();
        tracing::info!(worker = %name, slots = places, %directory, "worker starts");
        let (freed_sender, freed) = mpsc::unbounded_channel();
        Ok(Self {
            context: Arc::new(WorkerContext {
                settings,
                name,
                handlers,
                environment,
                scratch,
                prefetched: Prefetched::default(),
                groups,
            }),
            places: (0..places)
                .map(|_| WorkerSlot {
                    slot: None,
                    fed_kinds: Vec::new(),
                })
                .collect(),
            idle: (0..places).rev().collect(),
            running: HashMap::new(),
            freed_sender,
            freed,
            pace: RunTimeAverage::default(),
            summary: Summary::default(),
            stop_at: None,
            closing: None,
        })
    }

    /// Runs a job in an idle slot, or prefetches it. A job that arrives while the worker stops is released.
    fn start<R: Reports>(&mut self, job: Delivery, pool: &mut Pool<R, AttemptResult>) {
        let job_id = global_id(&job);
        let stop = match Stop::new() {
            Ok(stop) => Arc::new(stop),
            Err(error) => {
                let reason = format!("this machine is out of a resource: {error}");
                return refuse(&job, &reason, pool);
            }
        };
        if pool.is_stopping() {
            return refuse(&job, "the worker stops", pool);
        }
        let lease = job.lease.clone();
        let (sender, output) = mpsc::unbounded_channel();
        let (finish, done) = oneshot::channel();
        let (lease_reports, lease_copy) = (pool.reports().clone(), lease.clone());
        let attempt_task = AttemptTask {
            lease: lease.clone(),
            job_id: job_id.clone(),
            reports: pool.reports().clone(),
            stop: Arc::clone(&stop),
            output,
            done,
            slot_index: Arc::default(),
            no_handler_delay: self.context.settings.no_handler_delay,
            program_location: self.program_location(&job.kind),
        };
        let chosen = self.choose(&job.kind);
        let work = Work {
            job,
            job_id,
            stop: Arc::clone(&stop),
            lease_ends: Box::new(move || lease_reports.expires_at(&lease_copy)),
            send: Box::new(move |one| drop(sender.send(one))),
            slot_index: Arc::clone(&attempt_task.slot_index),
            done: Box::new(move |ended| drop(finish.send(ended))),
        };
        self.running.insert(lease, stop);
        match chosen {
            Some(slot_index) => self.hand_over(slot_index, Box::new(work)),
            None => self.context.prefetched.put(Box::new(work)),
        }
        let freed = self.freed_sender.clone();
        pool.report(attempt_task.attend(move |one| drop(freed.send(one))));
    }

    fn program_location(&self, kind: &str) -> String {
        let kind = crate::text::excerpt(kind.as_bytes(), 255);
        let directory = &self.context.settings.directory;
        // The reader of the message has another current directory.
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
        format!("{kind} in {} on {}", directory.display(), self.context.name)
    }

    /// Chooses an idle slot, preferably one that keeps a program of this kind running.
    fn choose(&mut self, kind: &str) -> Option<usize> {
        let is_warm = |slot_index: &usize| {
            self.places[*slot_index]
                .fed_kinds
                .iter()
                .any(|one| one == kind)
        };
        let warm = self.idle.iter().rposition(is_warm);
        match warm {
            Some(position) => Some(self.idle.remove(position)),
            None => self.idle.pop(),
        }
    }

    fn hand_over(&mut self, slot_index: usize, work: Box<Work>) {
        // Set here too, in case no thread can be started.
        let _ = work.slot_index.set(slot_index);
        let here = &mut self.places[slot_index];
        let kind = &work.job.kind;
        if self.context.handlers.of(kind).mode == Mode::Fed && !here.fed_kinds.contains(kind) {
            here.fed_kinds.push(kind.clone());
        }
        let work = match &here.slot {
            Some(slot) => match slot.run(work) {
                Ok(()) => return,
                // The slot's thread has ended, which was logged there.
                Err(work) => work,
            },
            None => work,
        };
        // If no thread can be started, the work is dropped, which its attempt task reports.
        here.slot = Slot::start(Arc::clone(&self.context), slot_index).ok();
        if let Some(slot) = &here.slot {
            drop(slot.run(work));
        }
    }

    fn free(&mut self, freed: &FreedSlot) {
        self.running.remove(&freed.lease);
        if let Some(took) = freed.took {
            self.pace.ran(took);
            self.context.settings.metrics.ran(took);
        }
        if let Some(slot_index) = freed.slot_index {
            // A job may have arrived while the slot was reporting that it is free.
            match self.context.prefetched.take() {
                Some(work) => self.hand_over(slot_index, work),
                None => self.idle.push(slot_index),
            }
        }
    }

    /// Releases prefetched jobs that no slot was free for in time.
    fn release_overdue(&mut self) {
        for work in self
            .context
            .prefetched
            .take_overdue(std::time::Instant::now())
        {
            work.release("no slot was free in time");
            // Programs are no longer short: no job is prefetched until they are again.
            self.pace = RunTimeAverage::default();
        }
    }

    /// Asks all running programs to end.
    fn interrupt(&mut self) {
        self.stop_at = None;
        self.running
            .values()
            .for_each(|stop| stop.ask(StopCause::Interrupted));
    }
}

impl<R: Reports> Executor<R> for Slots {
    type Event = SlotEvent;
    type TaskResult = AttemptResult;

    /// Returns the number of slots, and some more while programs are short.
    fn jobs_wanted(&self) -> usize {
        self.places.len() + self.pace.prefetch_count(self.places.len())
    }

    fn jobs_in_hand(&self) -> usize {
        self.running.len()
    }

    fn take(&mut self, jobs: Vec<Delivery>, pool: &mut Pool<R, AttemptResult>) {
        for job in jobs {
            self.start(job, pool);
        }
    }

    fn lose(&mut self, lost: &LostLease) {
        if let Some(stop) = self.running.get(&lost.lease) {
            let reason = if lost.is_cancelled() {
                "the job was cancelled"
            } else {
                "the lease is lost"
            };
            stop.ask(StopCause::LeaseLost(format!("{reason}: {}", lost.reason)));
        }
    }

    async fn next_event(&mut self, _: bool) -> SlotEvent {
        let stop_at = self.stop_at;
        let overdue_at = self.context.prefetched.overdue_at().map(Instant::from_std);
        tokio::select! {
            Some(freed) = self.freed.recv() => SlotEvent::Freed(freed),
            () = sleep_until(overdue_at.unwrap_or_else(Instant::now)), if overdue_at.is_some() => SlotEvent::Overdue,
            () = sleep_until(stop_at.unwrap_or_else(Instant::now)), if stop_at.is_some() => SlotEvent::GraceOver,
        }
    }

    fn on_event(&mut self, event: SlotEvent, _: &mut Pool<R, AttemptResult>) {
        match event {
            SlotEvent::Freed(freed) => self.free(&freed),
            SlotEvent::Overdue => self.release_overdue(),
            SlotEvent::GraceOver => self.interrupt(),
        }
    }

    fn count(&mut self, reported: Result<AttemptResult, JoinError>) {
        let of = match reported {
            Ok(AttemptResult::Succeeded) => &mut self.summary.succeeded,
            Ok(AttemptResult::Failed) => &mut self.summary.failed,
            Ok(AttemptResult::Released) => &mut self.summary.released,
            Ok(AttemptResult::Dropped) | Err(_) => &mut self.summary.dropped,
        };
        *of += 1;
    }

    fn stop(&mut self, level: Shutdown, _: &mut Pool<R, AttemptResult>) {
        if level == Shutdown::AtOnce {
            self.interrupt();
            self.running.values().for_each(|stop| stop.skip_grace());
            return;
        }
        for work in self.context.prefetched.take_all() {
            work.release("the worker stops");
        }
        let grace = self.context.settings.grace;
        self.stop_at = Some(Instant::now() + grace);
        tracing::info!(
            running = self.running.len(),
            ?grace,
            "stopping: no new jobs are leased"
        );
    }

    fn close(&mut self) {
        let places = self.places.drain(..);
        let slots: Vec<Slot> = places.filter_map(|slot_index| slot_index.slot).collect();
        let end = || slots.into_iter().for_each(Slot::end);
        self.closing = Some(tokio::task::spawn_blocking(end));
    }

    async fn closed(&mut self, unfinished: usize) -> u64 {
        if let Some(closing) = self.closing.take() {
            // Every slot kills its programs, so this is short.
            let _ = closing.await;
        }
        self.summary.undelivered = u64::try_from(unfinished).unwrap_or(u64::MAX);
        self.summary.undelivered
    }

    fn show_connected(&self, is_connected: bool) {
        self.context.settings.metrics.connected(is_connected);
    }

    fn show(&self) {
        let metrics = &self.context.settings.metrics;
        metrics.show(self.places.len(), self.running.len(), &self.summary);
    }
}

fn refuse<R: Reports>(job: &Delivery, reason: &str, pool: &mut Pool<R, AttemptResult>) {
    let (lease, reports) = (job.lease.clone(), pool.reports().clone());
    let releasing = ganger_client::ReleaseReport {
        keep_place: true,
        reason: reason.into(),
        ..Default::default()
    };
    tracing::info!(job = %global_id(job), "released: {reason}");
    pool.report(async move {
        let report = ganger_client::Report::Release(releasing);
        reports.report_all(vec![(lease, report)]).await;
        AttemptResult::Released
    });
}
