//! The worker: takes as many jobs as it has slots, until it is told to stop.

use std::collections::HashMap;
use std::sync::Arc;

use ganger_client::{Client, Delivery, Held, Lost, WorkOptions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until};

use crate::attempt_task::{AttemptTask, CountedEnd, FreedSlot};
use crate::environment::{Environment, global_id};
use crate::handler::{Handlers, Mode};
use crate::launch::WorkerContext;
use crate::pool::{Executor, Pool, Shutdown, run_pool};
use crate::prefetch::{Pace, Prefetched};
use crate::program::SETTINGS_FILE;
use crate::scratch::Scratch;
use crate::settings::make_name;
use crate::slot::{Slot, Work};
use crate::source::{Deliveries, Reports};
use crate::stop::{Stop, StopCause};
use crate::supervise::Groups;
use crate::{Error, Settings};

/// What a worker did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Jobs reported as succeeded.
    pub succeeded: u64,
    /// Jobs reported as failed.
    pub failed: u64,
    /// Jobs given back: no program for them here, or the worker stopped.
    pub released: u64,
    /// Outcomes that nobody wanted any more: the lease was lost.
    pub dropped: u64,
    /// Outcomes that could not be delivered before the worker ended.
    pub undelivered: u64,
}

/// Runs a worker until `shutdown` says otherwise and all is delivered.
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

/// As [`run`], with jobs and reports of any kind.
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

/// A slot, and what it last ran.
struct WorkerSlot {
    slot: Option<Slot>,
    fed_kinds: Vec<String>,
}

/// The slots of a worker and what runs in them.
struct Slots {
    shop: Arc<WorkerContext>,
    places: Vec<WorkerSlot>,
    /// Places without work. The last is taken first, so that few are warm instead of all lukewarm.
    idle: Vec<usize>,
    running: HashMap<Held, Arc<Stop>>,
    freed_sender: mpsc::UnboundedSender<FreedSlot>,
    freed: mpsc::UnboundedReceiver<FreedSlot>,
    pace: Pace,
    summary: Summary,
    /// When programs that still run are asked to end.
    stop_at: Option<Instant>,
    /// Ends the threads of the slots.
    closing: Option<JoinHandle<()>>,
}

/// What happens in the slots.
enum SlotEvent {
    /// A job has ended.
    Freed(FreedSlot),
    /// A job waits in hand for too long.
    Overdue,
    /// The period of grace is over.
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
        // Should a supervisor be killed, what it watched over comes to us.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let groups = Groups::prepare(handlers.have_bounds());
        let places = settings.concurrency.max(1);
        let directory = settings.directory.display();
        tracing::info!(worker = %name, slots = places, %directory, "worker starts");
        let (freed_sender, freed) = mpsc::unbounded_channel();
        Ok(Self {
            shop: Arc::new(WorkerContext {
                settings,
                name,
                handlers,
                environment,
                scratch,
                hand: Prefetched::default(),
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
            pace: Pace::default(),
            summary: Summary::default(),
            stop_at: None,
            closing: None,
        })
    }

    /// Runs a job in an idle place, or takes it into hand. One that comes while the worker stops is given back.
    fn start<R: Reports>(&mut self, job: Delivery, pool: &mut Pool<R, CountedEnd>) {
        let task = global_id(&job);
        let stop = match Stop::new() {
            Ok(stop) => Arc::new(stop),
            Err(error) => {
                let reason = format!("the worker is out of something: {error}");
                return refuse(&job, &reason, pool);
            }
        };
        if pool.is_stopping() {
            return refuse(&job, "the worker stops", pool);
        }
        let held = job.held.clone();
        let (sender, sent) = mpsc::unbounded_channel();
        let (finish, done) = oneshot::channel();
        let (lease_holder, lease_held) = (pool.reports().clone(), held.clone());
        let attended = AttemptTask {
            held: held.clone(),
            task: task.clone(),
            reports: pool.reports().clone(),
            stop: Arc::clone(&stop),
            sent,
            done,
            place: Arc::default(),
            no_handler_delay: self.shop.settings.no_handler_delay,
            looked_in: self.looked_for(&job.kind),
        };
        let chosen = self.choose(&job.kind);
        let work = Work {
            job,
            task,
            stop: Arc::clone(&stop),
            lease_ends: Box::new(move || lease_holder.expires_at(&lease_held)),
            send: Box::new(move |one| drop(sender.send(one))),
            place: Arc::clone(&attended.place),
            done: Box::new(move |ended| drop(finish.send(ended))),
        };
        self.running.insert(held, stop);
        match chosen {
            Some(place) => self.hand_over(place, Box::new(work)),
            None => self.shop.hand.put(Box::new(work)),
        }
        let freed = self.freed_sender.clone();
        pool.report(attended.attend(move |one| drop(freed.send(one))));
    }

    fn looked_for(&self, kind: &str) -> String {
        let kind = crate::text::excerpt(kind.as_bytes(), 255);
        let directory = &self.shop.settings.directory;
        // Its reader is elsewhere.
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
        format!("{kind} in {} on {}", directory.display(), self.shop.name)
    }

    /// An idle place, one that keeps a program of this kind running if there is one.
    fn choose(&mut self, kind: &str) -> Option<usize> {
        let is_warm = |place: &usize| self.places[*place].fed_kinds.iter().any(|one| one == kind);
        let warm = self.idle.iter().rposition(is_warm);
        match warm {
            Some(position) => Some(self.idle.remove(position)),
            None => self.idle.pop(),
        }
    }

    fn hand_over(&mut self, place: usize, work: Box<Work>) {
        // Said here too, for the case that no thread can be started.
        let _ = work.place.set(place);
        let here = &mut self.places[place];
        let kind = &work.job.kind;
        if self.shop.handlers.of(kind).mode == Mode::Fed && !here.fed_kinds.contains(kind) {
            here.fed_kinds.push(kind.clone());
        }
        let work = match &here.slot {
            Some(slot) => match slot.run(work) {
                Ok(()) => return,
                // Its thread is gone, which is told where that happened.
                Err(work) => work,
            },
            None => work,
        };
        // If no thread can be started, the work is dropped, and its listener reports that.
        here.slot = Slot::start(Arc::clone(&self.shop), place).ok();
        if let Some(slot) = &here.slot {
            drop(slot.run(work));
        }
    }

    fn free(&mut self, freed: &FreedSlot) {
        self.running.remove(&freed.held);
        if let Some(took) = freed.took {
            self.pace.ran(took);
            self.shop.settings.metrics.ran(took);
        }
        if let Some(place) = freed.place {
            // It may have come while the slot was already on its way to say that it is free.
            match self.shop.hand.take() {
                Some(work) => self.hand_over(place, work),
                None => self.idle.push(place),
            }
        }
    }

    /// Gives back what no slot was free for in time.
    fn give_back_overdue(&mut self) {
        for work in self.shop.hand.take_overdue(std::time::Instant::now()) {
            work.give_back("no slot was free in time");
            // What runs is no longer short: nothing more is asked for until it is again.
            self.pace = Pace::default();
        }
    }

    /// Asks all that runs to end.
    fn interrupt(&mut self) {
        self.stop_at = None;
        self.running
            .values()
            .for_each(|stop| stop.ask(StopCause::Interrupted));
    }
}

impl<R: Reports> Executor<R> for Slots {
    type Event = SlotEvent;
    type Reported = CountedEnd;

    /// As many as there are places, and some more while programs are short.
    fn jobs_wanted(&self) -> usize {
        self.places.len() + self.pace.ahead(self.places.len())
    }

    fn jobs_in_hand(&self) -> usize {
        self.running.len()
    }

    fn take(&mut self, jobs: Vec<Delivery>, pool: &mut Pool<R, CountedEnd>) {
        for job in jobs {
            self.start(job, pool);
        }
    }

    fn lose(&mut self, lost: &Lost) {
        if let Some(stop) = self.running.get(&lost.held) {
            let reason = if lost.is_cancelled() {
                "the job was cancelled"
            } else {
                "the lease is lost"
            };
            stop.ask(StopCause::Lost(format!("{reason}: {}", lost.reason)));
        }
    }

    async fn next_event(&mut self, _: bool) -> SlotEvent {
        let stop_at = self.stop_at;
        let overdue_at = self.shop.hand.overdue_at().map(Instant::from_std);
        tokio::select! {
            Some(freed) = self.freed.recv() => SlotEvent::Freed(freed),
            () = sleep_until(overdue_at.unwrap_or_else(Instant::now)), if overdue_at.is_some() => SlotEvent::Overdue,
            () = sleep_until(stop_at.unwrap_or_else(Instant::now)), if stop_at.is_some() => SlotEvent::GraceOver,
        }
    }

    fn on_event(&mut self, event: SlotEvent, _: &mut Pool<R, CountedEnd>) {
        match event {
            SlotEvent::Freed(freed) => self.free(&freed),
            SlotEvent::Overdue => self.give_back_overdue(),
            SlotEvent::GraceOver => self.interrupt(),
        }
    }

    fn count(&mut self, reported: Result<CountedEnd, JoinError>) {
        let of = match reported {
            Ok(CountedEnd::Succeeded) => &mut self.summary.succeeded,
            Ok(CountedEnd::Failed) => &mut self.summary.failed,
            Ok(CountedEnd::Released) => &mut self.summary.released,
            Ok(CountedEnd::Dropped) | Err(_) => &mut self.summary.dropped,
        };
        *of += 1;
    }

    fn stop(&mut self, level: Shutdown, _: &mut Pool<R, CountedEnd>) {
        if level == Shutdown::AtOnce {
            self.interrupt();
            self.running.values().for_each(|stop| stop.hurry());
            return;
        }
        for work in self.shop.hand.take_all() {
            work.give_back("the worker stops");
        }
        let grace = self.shop.settings.grace;
        self.stop_at = Some(Instant::now() + grace);
        tracing::info!(
            running = self.running.len(),
            ?grace,
            "stops: takes nothing new"
        );
    }

    fn close(&mut self) {
        let places = self.places.drain(..);
        let slots: Vec<Slot> = places.filter_map(|place| place.slot).collect();
        let end = || slots.into_iter().for_each(Slot::end);
        self.closing = Some(tokio::task::spawn_blocking(end));
    }

    async fn closed(&mut self, unfinished: usize) -> u64 {
        if let Some(closing) = self.closing.take() {
            // Every slot kills what it holds, so this is short.
            let _ = closing.await;
        }
        self.summary.undelivered = u64::try_from(unfinished).unwrap_or(u64::MAX);
        self.summary.undelivered
    }

    fn show_connected(&self, is_connected: bool) {
        self.shop.settings.metrics.connected(is_connected);
    }

    fn show(&self) {
        let metrics = &self.shop.settings.metrics;
        metrics.show(self.places.len(), self.running.len(), &self.summary);
    }
}

fn refuse<R: Reports>(job: &Delivery, reason: &str, pool: &mut Pool<R, CountedEnd>) {
    let (held, reports) = (job.held.clone(), pool.reports().clone());
    let releasing = ganger_client::Releasing {
        keep_place: true,
        reason: reason.into(),
        ..Default::default()
    };
    tracing::info!(job = %global_id(job), "given back: {reason}");
    pool.report(async move {
        let report = ganger_client::Report::Release(releasing);
        reports.report_all(vec![(held, report)]).await;
        CountedEnd::Released
    });
}
