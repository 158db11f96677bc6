//! The worker: takes as many jobs as it has slots, until it is told to stop.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ganger_client::{Client, Delivery, Held, Lost, WorkEvent, WorkOptions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::attempt_task::{AttemptTask, CountedEnd, FreedSlot};
use crate::environment::{Environment, global_id};
use crate::handler::{Handlers, Mode};
use crate::launch::WorkerContext;
use crate::prefetch::{Pace, Prefetched};
use crate::program::SETTINGS_FILE;
use crate::scratch::Scratch;
use crate::settings::make_name;
use crate::slot::{Slot, Work};
use crate::source::{Deliveries, Reports};
use crate::stop::{Stop, StopCause};
use crate::supervise::Groups;
use crate::{Error, Settings};

/// Whether the worker should go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shutdown {
    /// Go on.
    #[default]
    No,
    /// Take nothing new, give what runs its period of grace.
    Graceful,
    /// Kill what runs.
    AtOnce,
}

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

/// How long finished work may take to be delivered once the last program has ended.
const DELIVER_FOR: Duration = Duration::from_secs(10);

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
    mut deliveries: D,
    reports: R,
    mut shutdown: watch::Receiver<Shutdown>,
) -> Result<Summary, Error> {
    let mut floor = WorkerLoop::open(settings, reports)?;
    let mut level = *shutdown.borrow_and_update();
    let mut may_change = true;
    floor.begin();
    floor.obey(level);
    while !floor.is_done() {
        floor.show();
        let stop_at = floor.stop_at;
        let overdue_at = floor.shop.hand.overdue_at().map(Instant::from_std);
        tokio::select! {
            event = deliveries.next(), if !floor.source_ended => floor.on_event(event),
            Some(freed) = floor.freed.recv() => floor.free(&freed),
            () = sleep_until(overdue_at.unwrap_or_else(Instant::now)), if overdue_at.is_some() => floor.give_back_overdue(),
            Some(ended) = floor.tasks.join_next_with_id() => floor.count(&ended),
            changed = shutdown.changed(), if may_change => {
                may_change = changed.is_ok();
                // The sender of "go on" is gone.
                level = if may_change { *shutdown.borrow_and_update() } else { level.max_graceful() };
                floor.obey(level);
            }
            () = sleep_until(stop_at.unwrap_or_else(Instant::now)), if stop_at.is_some() => floor.interrupt(),
        }
    }
    Ok(floor.close().await)
}

impl Shutdown {
    fn max_graceful(self) -> Self {
        if self == Self::No {
            Self::Graceful
        } else {
            self
        }
    }
}

/// A slot, and what it last ran.
struct WorkerSlot {
    slot: Option<Slot>,
    fed_kinds: Vec<String>,
}

/// All that runs.
struct WorkerLoop<R> {
    shop: Arc<WorkerContext>,
    reports: R,
    places: Vec<WorkerSlot>,
    /// Places without work. The last is taken first, so that few are warm instead of all lukewarm.
    idle: Vec<usize>,
    running: HashMap<Held, Arc<Stop>>,
    tasks: JoinSet<CountedEnd>,
    freed_sender: mpsc::UnboundedSender<FreedSlot>,
    freed: mpsc::UnboundedReceiver<FreedSlot>,
    /// Deliveries allowed and not yet here.
    credits: usize,
    pace: Pace,
    summary: Summary,
    is_stopping: bool,
    at_once: bool,
    /// When programs that still run are asked to end.
    stop_at: Option<Instant>,
    source_ended: bool,
}

impl<R: Reports> WorkerLoop<R> {
    fn open(settings: Settings, reports: R) -> Result<Self, Error> {
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
            reports,
            places: (0..places)
                .map(|_| WorkerSlot {
                    slot: None,
                    fed_kinds: Vec::new(),
                })
                .collect(),
            idle: (0..places).rev().collect(),
            running: HashMap::new(),
            tasks: JoinSet::new(),
            freed_sender,
            freed,
            credits: 0,
            pace: Pace::default(),
            summary: Summary::default(),
            is_stopping: false,
            at_once: false,
            stop_at: None,
            source_ended: false,
        })
    }

    /// Shows how it stands.
    fn show(&self) {
        let metrics = &self.shop.settings.metrics;
        metrics.show(self.places.len(), self.running.len(), &self.summary);
    }

    fn begin(&mut self) {
        let (name, slots) = (&self.shop.name, self.places.len());
        let directory = self.shop.settings.directory.display();
        tracing::info!(worker = %name, slots, %directory, "worker starts");
        self.grant();
    }

    /// Allows as many deliveries as there are idle places, and some more while programs are short.
    fn grant(&mut self) {
        if self.is_stopping {
            return;
        }
        let wanted = self.places.len() + self.pace.ahead(self.places.len());
        let more = wanted.saturating_sub(self.running.len() + self.credits);
        if more > 0 {
            self.credits += more;
            self.reports.grant(u32::try_from(more).unwrap_or(u32::MAX));
        }
    }

    fn is_done(&self) -> bool {
        let is_over = self.is_stopping || self.source_ended;
        is_over && self.running.is_empty()
    }

    fn on_event(&mut self, event: Option<WorkEvent>) {
        match event {
            Some(WorkEvent::Jobs(jobs)) => jobs.into_iter().for_each(|job| self.start(job)),
            Some(WorkEvent::Lost(lost)) => self.lose(&lost),
            Some(WorkEvent::Connected { version, shard }) => {
                self.shop.settings.metrics.connected(true);
                tracing::info!(%version, %shard, "connected");
            }
            Some(WorkEvent::Disconnected { error, retry_in }) => {
                self.shop.settings.metrics.connected(false);
                tracing::warn!(%error, ?retry_in, "the server is away; what runs goes on");
            }
            Some(WorkEvent::Draining) => {
                tracing::info!("the server is about to stop; what runs goes on");
            }
            None => self.source_ended = true,
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

    /// Runs a job in an idle place, or takes it into hand. One that comes while the worker stops is given back.
    fn start(&mut self, job: Delivery) {
        self.credits = self.credits.saturating_sub(1);
        let task = global_id(&job);
        let stop = match Stop::new() {
            Ok(stop) => Arc::new(stop),
            Err(error) => {
                return self.refuse(&job, &format!("the worker is out of something: {error}"));
            }
        };
        if self.is_stopping {
            return self.refuse(&job, "the worker stops");
        }
        let held = job.held.clone();
        let (sender, sent) = mpsc::unbounded_channel();
        let (finish, done) = oneshot::channel();
        let (lease_holder, lease_held) = (self.reports.clone(), held.clone());
        let attended = AttemptTask {
            held: held.clone(),
            task: task.clone(),
            reports: self.reports.clone(),
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
        self.tasks
            .spawn(attended.attend(move |one| drop(freed.send(one))));
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

    fn refuse(&mut self, job: &Delivery, reason: &str) {
        let (held, reports) = (job.held.clone(), self.reports.clone());
        let releasing = ganger_client::Releasing {
            keep_place: true,
            reason: reason.into(),
            ..Default::default()
        };
        tracing::info!(job = %global_id(job), "given back: {reason}");
        self.tasks.spawn(async move {
            let report = ganger_client::Report::Release(releasing);
            reports.report_all(vec![(held, report)]).await;
            CountedEnd::Released
        });
        self.grant();
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
        self.grant();
    }

    /// Gives back what no slot was free for in time.
    fn give_back_overdue(&mut self) {
        for work in self.shop.hand.take_overdue(std::time::Instant::now()) {
            work.give_back("no slot was free in time");
            // What runs is no longer short: nothing more is asked for until it is again.
            self.pace = Pace::default();
        }
    }

    fn count(&mut self, ended: &Result<(tokio::task::Id, CountedEnd), tokio::task::JoinError>) {
        let of = match ended {
            Ok((_, CountedEnd::Succeeded)) => &mut self.summary.succeeded,
            Ok((_, CountedEnd::Failed)) => &mut self.summary.failed,
            Ok((_, CountedEnd::Released)) => &mut self.summary.released,
            Ok((_, CountedEnd::Dropped)) | Err(_) => &mut self.summary.dropped,
        };
        *of += 1;
    }

    fn obey(&mut self, level: Shutdown) {
        if level == Shutdown::No {
            return;
        }
        if !self.is_stopping {
            self.is_stopping = true;
            self.reports.drop_credits();
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
        if level == Shutdown::AtOnce && !self.at_once {
            self.at_once = true;
            tracing::warn!(running = self.running.len(), "stops at once");
            self.interrupt();
            self.running.values().for_each(|stop| stop.hurry());
        }
    }

    /// Asks all that runs to end.
    fn interrupt(&mut self) {
        self.stop_at = None;
        self.running
            .values()
            .for_each(|stop| stop.ask(StopCause::Interrupted));
    }

    /// Delivers what is finished, and deregisters.
    async fn close(mut self) -> Summary {
        let slots: Vec<Slot> = self
            .places
            .drain(..)
            .filter_map(|place| place.slot)
            .collect();
        let ended = tokio::task::spawn_blocking(|| slots.into_iter().for_each(Slot::end));
        let patience = if self.at_once {
            DELIVER_FOR / 10
        } else {
            DELIVER_FOR
        };
        let deadline = Instant::now() + patience;
        while let Ok(Some(ended)) =
            tokio::time::timeout_at(deadline, self.tasks.join_next_with_id()).await
        {
            self.count(&ended);
        }
        self.show();
        // Every slot kills what it holds, so this is short.
        let _ = ended.await;
        self.summary.undelivered = u64::try_from(self.tasks.len()).unwrap_or(u64::MAX);
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
        let Summary {
            succeeded,
            failed,
            released,
            dropped,
            undelivered,
        } = self.summary;
        tracing::info!(
            succeeded,
            failed,
            released,
            dropped,
            undelivered,
            "worker ends"
        );
        self.summary
    }
}
