//! The shard as a deterministic state machine: turns, commits, replies, waiting requests, recovery.
//!
//! The core has no thread, channel or clock. The host (the shard's threads, or a simulator) calls
//!
//! 1. [`Core::push`] with requests and [`Core::report`] with the store's reports,
//! 2. [`Core::run`] with the time,
//! 3. [`Core::take_store_tasks`], and passes them in order to the [`StoreExecutor`] of the store,
//! 4. [`Core::take_outputs`], and sends them out: all of it is durable,
//! 5. [`Core::sleep_for`] to know when to call again if nothing happens.
//!
//! While the store commits a turn the next one is already applied; its replies wait for its own commit and for all
//! earlier ones. The same calls in the same order give the same results.

mod apply;
mod beside;
mod blobs;
mod deliver;
mod external;
mod lookup;
mod pipeline;
mod recovery;
mod recovery_backoff;
mod request;
mod row_query;
mod space;
mod store_executor;
mod turn;
mod upkeep;
mod waiters;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ganger_engine::Engine;
use ganger_store::{Opened, Reader, RepeatedWarning};
use ganger_types::{Due, Elapsed, Epoch, Meta, Now, ShardId};

pub use self::external::UndeliveredElement;
pub use self::request::{CallReply, Output, QueueGauge, Request, Ticket, WaiterId};
pub use self::row_query::{RowAnswer, RowQuery, RowRead, RowsRead};
pub use self::store_executor::{
    ReloadedEngine, StoreExecutor, StoreReport, StoreTask, TaskProgress,
};

use self::beside::BesideReads;
use self::blobs::BlobCache;
use self::recovery_backoff::{DeliveryPause, RecoveryBackoff, RecoveryKind};
use self::row_query::RowsBeside;
use self::space::Space;
use self::turn::{PendingRows, Turn, TurnInFlight, TurnSizeHint};
use self::upkeep::Upkeep;
use self::waiters::Waiters;
use self::waiting::LatestRequests;
use crate::metrics::ShardMetrics;
use crate::{CallError, Health, Settings, StopCause};

/// Maximum number of turns submitted to the store: one that it commits and one that waits behind it.
pub const IN_FLIGHT_TURNS_MAX: usize = 2;

/// Interval between checks of the wall clock, which may jump, for what is due by it.
const WALL_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Source of unpredictable random bits, called once for each engine.
pub type Seeds = Box<dyn FnMut() -> [u8; 32] + Send>;

/// State of the shard.
enum CoreState {
    /// The engine is being loaded from the store; requests wait.
    Loading,
    /// The shard takes requests and carries them out.
    Running,
    /// New requests are refused; admitted ones are completed.
    Stopping,
    /// The shard has ended, for this reason.
    Stopped(StopCause),
}

/// The loaded engine, and a reader for rows that are not in memory.
struct ActiveEngine<R> {
    engine: Engine,
    reader: R,
}

/// The state machine of one shard. `R` reads its store; `T` identifies where a reply goes.
pub struct Core<R, T> {
    settings: Settings,
    metrics: Arc<ShardMetrics>,
    seeds: Seeds,
    stage: CoreState,
    /// The loaded engine; `None` while loading and after the end.
    live: Option<ActiveEngine<R>>,
    epoch: Epoch,
    /// Sequence of the last commit submitted to the store.
    last_submitted: u64,
    /// Sequence and counters of the last durable commit.
    durable: u64,
    durable_meta: Meta,
    /// Counters of the last closed turn.
    closed_meta: Meta,
    inbox: VecDeque<Request<T>>,
    open: Option<Turn<T>>,
    expected: TurnSizeHint,
    /// Closed turns in order. Those with a commit are submitted to the store in the same order.
    turns_in_flight: VecDeque<TurnInFlight<T>>,
    waiters: Waiters<T>,
    latest_requests: LatestRequests,
    blobs: BlobCache,
    /// What waits for rows of the store that are read beside this core.
    beside: BesideReads<T>,
    /// The rows that were read for the request in hand; `None` if rows are read at once.
    rows_beside: Option<RowsBeside>,
    upkeep: Upkeep,
    space: Space,
    /// Requests that give leases back and wait until that can be written.
    deferred: Vec<Request<T>>,
    backoff: RecoveryBackoff,
    /// The kind of the last recovery that was ordered.
    recovery: RecoveryKind,
    /// Reason why a store on another machine took no write or could not be read again; `None` once it is in service.
    unreachable: Option<String>,
    /// Limits how often failed writes and reads are logged.
    failures: RepeatedWarning,
    delivery: DeliveryPause,
    /// Number of commands that recently arrived together: how many a turn can expect to batch.
    recent_batch: usize,
    /// Time since which the store has been idle.
    store_idle_since: Elapsed,
    /// How long a commit takes, as a moving average.
    commit_takes: Duration,
    has_more_timers: bool,
    store_tasks: Vec<StoreTask>,
    outputs: Vec<Output<T>>,
}

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Creates the core of a shard over a store that was just opened. Its first store task loads the rows.
    pub fn new(
        settings: Settings,
        metrics: Arc<ShardMetrics>,
        opened: Opened,
        now: Now,
        seeds: Seeds,
    ) -> Self {
        let mut core = Self {
            blobs: BlobCache::new(settings.blob_cache_bytes),
            beside: BesideReads::default(),
            rows_beside: None,
            upkeep: Upkeep::new(now.elapsed),
            space: Space::default(),
            deferred: Vec::new(),
            backoff: RecoveryBackoff::default(),
            recovery: RecoveryKind::Load,
            unreachable: None,
            failures: RepeatedWarning::default(),
            delivery: DeliveryPause::default(),
            settings,
            metrics,
            seeds,
            stage: CoreState::Loading,
            live: None,
            epoch: opened.epoch,
            last_submitted: opened.sequence,
            durable: opened.sequence,
            durable_meta: opened.meta,
            closed_meta: opened.meta,
            inbox: VecDeque::new(),
            open: None,
            expected: TurnSizeHint::default(),
            turns_in_flight: VecDeque::new(),
            waiters: Waiters::default(),
            latest_requests: LatestRequests::default(),
            recent_batch: 0,
            store_idle_since: now.elapsed,
            commit_takes: Duration::ZERO,
            has_more_timers: false,
            store_tasks: Vec::new(),
            outputs: Vec::new(),
        };
        core.order_load(now);
        core
    }

    /// Id of the shard.
    pub fn shard(&self) -> &ShardId {
        &self.settings.shard
    }

    /// Queues a request for [`Core::run`].
    pub fn push(&mut self, request: Request<T>) {
        self.inbox.push_back(request);
    }

    /// Does all work that is due at `now`.
    pub fn run(&mut self, now: Now) {
        self.expire_waiters(now);
        match self.stage {
            CoreState::Stopped(_) => self.refuse_inbox(),
            CoreState::Loading => self.recover_when_due(now),
            CoreState::Running | CoreState::Stopping => {
                self.fire_timers(now);
                self.resume_deliveries(now);
                self.resume_reads(now);
                self.take_requests(now);
                self.run_upkeep(now);
                self.close_when_due(now);
                self.finish_stopping();
            }
        }
        self.gauge();
    }

    /// Gives every lease its full length again, after a time in which this core could not run. Call it before anything
    /// else of this moment.
    pub fn grant_grace(&mut self, now: Now) {
        if let Some(live) = &mut self.live {
            live.engine.extend_leases(now);
        }
    }

    /// Takes the store's next tasks, in order.
    pub fn take_store_tasks(&mut self) -> Vec<StoreTask> {
        self.order_reads();
        std::mem::take(&mut self.store_tasks)
    }

    /// Takes the outputs, in order; everything in them is durable.
    pub fn take_outputs(&mut self) -> Vec<Output<T>> {
        std::mem::take(&mut self.outputs)
    }

    /// Time until the next work is due unless a request or a report arrives; `None` if none is.
    pub fn sleep_for(&self, now: Now) -> Option<Duration> {
        let patience = self.waiters.next_deadline();
        let Some(live) = self.live.as_ref() else {
            let next = patience.into_iter().chain(self.backoff.due_at()).min();
            return next.map(|at| at.since(now.elapsed));
        };
        if self.may_retire() || self.may_end() {
            return Some(Duration::ZERO);
        }
        let mut next = self.upkeep.next_at(self.settings.upkeep_every);
        if self.has_room() {
            let timers_run = !self.is_write_stopped() && !self.is_held_up(now);
            let has_requests = !self.inbox.is_empty() || self.beside.has_resumed();
            if self.has_more_timers && timers_run || has_requests {
                return Some(Duration::ZERO);
            }
            for due in live.engine.next_due().into_iter().filter(|_| timers_run) {
                next = next.min(match due {
                    Due::Elapsed(at) => at,
                    Due::Wall(at) => now
                        .elapsed
                        .after(at.since(now.wall).min(WALL_CHECK_INTERVAL)),
                });
            }
        }
        if let Some(until) = self.batching_until() {
            next = next.min(until);
        }
        if let Some(pause) = self.delivery.ends_at().filter(|_| !self.is_on_reserve()) {
            next = next.min(pause);
        }
        if let Some(patience) = patience {
            next = next.min(patience);
        }
        Some(next.since(now.elapsed))
    }

    /// Refuses new requests and completes admitted ones; see [`Core::stopped`].
    pub fn stop(&mut self) {
        match self.stage {
            CoreState::Running => self.stage = CoreState::Stopping,
            CoreState::Loading => self.end(StopCause::Requested),
            CoreState::Stopping | CoreState::Stopped(_) => {}
        }
    }

    /// Whether the shard refuses new requests and completes admitted ones.
    pub fn is_stopping(&self) -> bool {
        matches!(self.stage, CoreState::Stopping)
    }

    /// Returns why the shard has ended; `None` while it has not.
    pub fn stopped(&self) -> Option<&StopCause> {
        match &self.stage {
            CoreState::Stopped(cause) => Some(cause),
            _ => None,
        }
    }

    /// Returns whether the shard can work.
    pub fn health(&self) -> Health {
        match &self.stage {
            CoreState::Loading => match &self.unreachable {
                Some(reason) => Health::Unreachable {
                    reason: reason.clone(),
                },
                None => Health::Starting {
                    jobs: self.metrics.gauges.loaded_jobs.get(),
                },
            },
            CoreState::Running | CoreState::Stopping if self.is_full() => Health::Full,
            CoreState::Running => Health::Ready,
            CoreState::Stopping => Health::Stopped {
                reason: StopCause::Requested.to_string(),
            },
            CoreState::Stopped(cause) => Health::Stopped {
                reason: cause.to_string(),
            },
        }
    }

    /// Returns the loaded engine, for audits; `None` while there is none. It may be ahead of what is durable.
    pub fn engine(&self) -> Option<&Engine> {
        self.live.as_ref().map(|live| &live.engine)
    }

    /// Returns the sequence of the last commit known to be durable.
    pub fn durable_sequence(&self) -> u64 {
        self.durable
    }

    /// Number of turns closed and not yet released.
    pub fn turns_in_flight(&self) -> usize {
        self.turns_in_flight.len()
    }

    fn unavailable(&self, reason: &str) -> CallError {
        CallError::unavailable(&self.settings.shard, reason)
    }

    fn live(&mut self) -> &mut ActiveEngine<R> {
        self.live
            .as_mut()
            .expect("commands are applied only while an engine is in service")
    }

    fn pending(&mut self) -> PendingRows<'_, T> {
        PendingRows {
            open: self.open.as_mut(),
            turns_in_flight: Some(&mut self.turns_in_flight),
            kept: self.beside.kept_mut(),
        }
    }

    /// Returns the engine and the open turn; opens a turn if there is none.
    fn engine_and_turn(&mut self, now: Now) -> (&mut Engine, &mut Turn<T>) {
        let turn = self.open.get_or_insert_with(|| Turn::new(now));
        let live = self
            .live
            .as_mut()
            .expect("turns are open only while an engine is in service");
        (&mut live.engine, turn)
    }

    fn gauge(&self) {
        let gauges = &self.metrics.gauges;
        let (leases, slots, ends, pops) = self.waiters.sizes();
        gauges.waiting_workers.set(crate::metrics::count(leases));
        gauges.waiting_ends.set(crate::metrics::count(ends));
        let waiting_pops = &self.metrics.external.waiting_pops;
        waiting_pops.set(crate::metrics::count(pops));
        self.metrics.slots_waiting.set(slots);
        gauges
            .turns_in_flight
            .set(crate::metrics::count(self.turns_in_flight.len()));
        gauges
            .blob_cache_bytes
            .set(crate::metrics::count(self.blobs.bytes()));
        gauges.commit_sequence.set(self.durable);
        gauges.epoch.set(self.epoch.0);
        if let Some(live) = &self.live {
            gauges
                .live_jobs
                .set(crate::metrics::count(live.engine.live_jobs()));
            self.metrics.external.observe(&live.engine);
        }
    }
}
