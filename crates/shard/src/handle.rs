//! The handle through which dialects call a shard.

mod external;
mod gathered;
mod graph;
mod groups;
mod lists;
mod names;
mod observed;
mod why;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ganger_metrics::Histogram;
use ganger_store::{LogChunk, StoreHold, StoredJob};
use ganger_types::command::Lease;
use ganger_types::query::Query;
use ganger_types::time::MICROS_PER_SECOND;
use ganger_types::{
    Bytes, Command, Day, InputRow, JobId, JobKey, Namespace, Position, Queue, Reply, ShardId,
    StatisticsRecord, Timestamp,
};
use tokio::sync::watch;

use crate::admission::AdmissionControl;
use crate::clock::Clock;
use crate::core::{Request, WaiterId};
use crate::events::{EventHub, PastEvents, Subscription};
use crate::inbox::InboxSender;
use crate::message_listener::{Listener, MessageListener};
use crate::metrics::{MetricsSnapshot, ShardMetrics};
use crate::numbers::CommitRate;
use crate::ownership::{OwnershipCheck, may_need_no_commit};
use crate::readers::ReadPool;
use crate::reply_slot::{Answered, reply_slot};
use crate::series::SeriesTable;
use crate::ticket::{LeaseOrigin, QueueSnapshot, ReplyChannel, ThreadMessage};
use crate::{CallError, Delivery, Health};
pub use external::Page;
pub use gathered::GatheredRequests;
pub use graph::GraphTotals;
pub use groups::GroupView;
pub use lists::NextPage;
pub use names::NamesOf;
pub use observed::worker_state;

/// A handle to a running shard, cheap to clone. All methods may be called from any task.
///
/// When the last handle is dropped the shard stops.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

/// State shared by all handles of a shard.
pub(crate) struct Shared {
    pub(crate) id: ShardId,
    pub(crate) inbox: InboxSender<ThreadMessage>,
    pub(crate) admission: Arc<AdmissionControl>,
    pub(crate) hub: Arc<EventHub>,
    pub(crate) reads: Arc<ReadPool>,
    pub(crate) metrics: Arc<ShardMetrics>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Refuses reads while another process may own the shard.
    pub(crate) check: OwnershipCheck,
    pub(crate) health: watch::Receiver<Health>,
    /// True once every thread has ended and the store is closed.
    pub(crate) is_over: watch::Receiver<bool>,
    /// Changes whenever new messages for other shards are in the outbox.
    pub(crate) outbox: watch::Receiver<u64>,
    /// Measures commits a second.
    pub(crate) commit_rate: CommitRate,
    /// Changes whenever an operation has begun, made progress or ended.
    pub(crate) operations: watch::Receiver<u64>,
    pub(crate) listener: Arc<MessageListener>,
    /// What holds up the store's commits; `None` if it cannot tell.
    pub(crate) hold: Option<StoreHold>,
    pub(crate) snapshot: Arc<Mutex<QueueSnapshot>>,
    pub(crate) next_waiter: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop(self.inbox.send(ThreadMessage::Stop));
    }
}

/// Notifies the shard when the waiting caller has gone.
struct CancelOnDrop {
    inbox: InboxSender<ThreadMessage>,
    waiter: Option<WaiterId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            drop(
                self.inbox
                    .send(ThreadMessage::Request(Request::CancelWaiter(waiter))),
            );
        }
    }
}

impl Handle {
    /// Returns the id of the shard.
    pub fn id(&self) -> &ShardId {
        &self.shared.id
    }

    /// Whether both are handles of the same shard, opened once.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Applies a command; the reply comes when its effects are durable.
    ///
    /// Dropping the future does not cancel the command: its outcome is then unknown to the caller.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(&self, command: Command) -> Result<Reply, CallError> {
        self.call_with(command, None).await
    }

    /// Applies a command at the caller's time, for namespaces that run on their callers' clocks. Other namespaces
    /// ignore the time.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call_at(&self, command: Command, now: Timestamp) -> Result<Reply, CallError> {
        self.call_with(command, Some(now)).await
    }

    async fn call_with(&self, command: Command, at: Option<Timestamp>) -> Result<Reply, CallError> {
        self.refuse_held_up(std::slice::from_ref(&command))?;
        if self.shared.hold.is_some()
            && let Command::Query(query) = &command
        {
            match &**query {
                Query::Why(namespace, id) => {
                    let (namespace, id) = (namespace.clone(), id.clone());
                    let asked = self.call_shard(command, at);
                    return Box::pin(self.explain(namespace, id, asked)).await;
                }
                Query::QueueWhy(..) => {
                    let asked = self.call_shard(command, at);
                    return Box::pin(self.explain_queue(asked)).await;
                }
                _ => {}
            }
        }
        self.call_shard(command, at).await
    }

    async fn call_shard(
        &self,
        command: Command,
        at: Option<Timestamp>,
    ) -> Result<Reply, CallError> {
        let permit = self.shared.admission.enter(1, command.bytes())?;
        let origin = match &command {
            Command::Lease(lease) => Some(self.origin(lease)),
            _ => None,
        };
        let is_read = may_need_no_commit(&command);
        let (answer, answered) = reply_slot();
        let ticket = ReplyChannel::Call(answer, permit, origin);
        self.send(Request::Call {
            command,
            at,
            ticket,
        })?;
        let reply = self.receive(answered).await;
        self.shared.check.pass_reply(reply, is_read)
    }

    /// Applies commands in order, in one turn; each is accepted or refused separately. The replies come, in order,
    /// when all effects are durable. Much cheaper than separate calls.
    ///
    /// # Errors
    /// If no command was applied; see [`CallError`]. A refusal of a single command is its own reply.
    pub async fn call_all(
        &self,
        commands: Vec<Command>,
    ) -> Result<Vec<Result<Reply, CallError>>, CallError> {
        let (request, replies) = self.replies_to(commands)?;
        self.send(request)?;
        replies.receive().await
    }

    /// Leases jobs, waiting up to `wait_for` until there is at least one; empty if there is none in that time.
    /// Dropping the future ends the wait; a grant that was not received is released, and its attempt does not count.
    ///
    /// Waits longer than the configured maximum (300 s) are shortened to it. Fewer jobs than asked for are returned
    /// if their payloads are large.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn lease(
        &self,
        lease: Lease,
        wait_for: Duration,
    ) -> Result<Vec<Delivery>, CallError> {
        let (request, jobs) = self.jobs_for(lease, wait_for)?;
        self.send(request)?;
        jobs.receive().await
    }

    /// Reads a job; `None` if there is none. An id that no ordinary job has may belong to an external job,
    /// which the engine knows.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn job(
        &self,
        namespace: &Namespace,
        id: &JobId,
    ) -> Result<Option<StoredJob>, CallError> {
        let wanted = (namespace.clone(), id.clone());
        let stored = self
            .shared
            .reads
            .read(move |reader| reader.find(&wanted.0, &wanted.1))
            .await?;
        if stored.is_some() {
            return Ok(stored);
        }
        let found = self.external_job(namespace, id).await?;
        Ok(found.map(|job| StoredJob::new(job.record, job.lease)))
    }

    /// Waits until a job has ended, and returns it as it is then or after `wait_for`; `None` if there is no such job
    /// or it was removed. A job whose end is not announced is returned at once ([`JobKey::announces_end`]).
    pub(crate) async fn await_end(
        &self,
        namespace: &Namespace,
        id: &JobId,
        wait_for: Duration,
    ) -> Result<Option<StoredJob>, CallError> {
        let permit = self.shared.admission.enter_waiting()?;
        let waiter = self.new_waiter();
        let (answer, answered) = reply_slot();
        let (namespace, id) = (namespace.clone(), id.clone());
        let ticket = ReplyChannel::End(answer, permit);
        self.send(Request::AwaitEnd {
            namespace,
            id,
            wait_for,
            waiter,
            ticket,
        })?;
        let mut guard = CancelOnDrop {
            inbox: self.shared.inbox.clone(),
            waiter: Some(waiter),
        };
        let job = self.receive(answered).await;
        guard.waiter = None;
        self.shared.check.pass(job)
    }

    /// Reads a job's payload.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn payload(&self, key: JobKey) -> Result<Option<Bytes>, CallError> {
        self.shared
            .reads
            .read(move |reader| reader.payload(key))
            .await
    }

    /// Reads a finished job's result. For external jobs use [`Handle::result_of`].
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn result(&self, key: JobKey) -> Result<Option<Bytes>, CallError> {
        self.shared
            .reads
            .read(move |reader| reader.result(key))
            .await
    }

    /// Reads a job's inputs and dependencies, from a slot on.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn inputs(
        &self,
        key: JobKey,
        from: u32,
        limit: usize,
    ) -> Result<Vec<InputRow>, CallError> {
        self.shared
            .reads
            .read(move |reader| reader.inputs(key, from, limit))
            .await
    }

    /// Returns the time of the shard's calendar clock.
    pub fn wall_time(&self) -> Timestamp {
        self.shared.clock.wall()
    }

    /// Returns the jobs that depend, or depended, on this one.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn dependents(&self, key: JobKey, limit: usize) -> Result<Vec<JobKey>, CallError> {
        self.shared
            .reads
            .read(move |reader| reader.dependents(key, limit))
            .await
    }

    /// Reads the job with this number.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn job_by_key(&self, key: JobKey) -> Result<Option<StoredJob>, CallError> {
        self.shared.reads.read(move |reader| reader.job(key)).await
    }

    /// Reads a chunk of a job's log after (attempt, offset). To follow the log, wait for `LogAppended` events.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn log(
        &self,
        key: JobKey,
        after: (u32, u64),
        bytes: usize,
    ) -> Result<Vec<LogChunk>, CallError> {
        self.shared
            .reads
            .read(move |reader| reader.log(key, after, bytes))
            .await
    }

    /// Returns statistics of a queue and day: from memory for today and yesterday, otherwise from the store.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn statistics(
        &self,
        namespace: &Namespace,
        queue: &Queue,
        day: Day,
    ) -> Result<Option<StatisticsRecord>, CallError> {
        let (namespace, queue) = (namespace.clone(), queue.clone());
        let today = self.shared.clock.wall().0 / MICROS_PER_SECOND / 86_400;
        if u64::from(day.0) + 1 >= today {
            let query = Query::Statistics(namespace.clone(), queue.clone(), day);
            if let Ok(Reply::Statistics(record)) = self.call(Command::Query(Box::new(query))).await
            {
                return Ok(Some(*record));
            }
        }
        self.shared
            .reads
            .read(move |reader| reader.statistics(&namespace, &queue, day))
            .await
    }

    /// Reads the series for charts. They are locked meanwhile, and the shard waits for the lock: `read` must be quick.
    ///
    /// # Errors
    /// If this process may not own the shard any more.
    pub fn series<V>(&self, read: impl FnOnce(&SeriesTable) -> V) -> Result<V, CallError> {
        let read = read(&self.shared.metrics.series());
        self.shared.check.pass(Ok(read))
    }

    /// Returns the time from which on the series count, and loaded the shard; `None` if it is being loaded.
    pub fn series_began(&self) -> Option<Timestamp> {
        self.shared.metrics.series().began()
    }

    /// Subscribes to events after `after`, or from now on. The stream ends with an error if the reader is too slow.
    ///
    /// # Errors
    /// If the position is too old, there are too many subscriptions, or this process may not own the shard any more.
    pub fn events(&self, after: Option<Position>) -> Result<Subscription, CallError> {
        let subscription = self.shared.hub.subscribe(after);
        self.shared.check.pass(subscription)
    }

    /// Reads events back, the newest first: those before a position, or the newest, that `is_wanted` selects, at most
    /// `limit`. Looks at no more than `looked_max` events.
    ///
    /// # Errors
    /// If this process may not own the shard any more.
    pub fn past_events(
        &self,
        before: Option<Position>,
        limit: usize,
        looked_max: u64,
        is_wanted: impl Fn(&ganger_types::Event) -> bool,
    ) -> Result<PastEvents, CallError> {
        let past = self.shared.hub.past(before, limit, looked_max, is_wanted);
        self.shared.check.pass(Ok(past))
    }

    /// Returns a value that changes whenever new messages for other shards are durable in the outbox.
    pub fn outbox(&self) -> watch::Receiver<u64> {
        self.shared.outbox.clone()
    }

    /// Passes the messages of external systems to `listener` from now on, instead of the earlier listener. It is called on the
    /// shard's thread: turn by turn in the order of commits, once a turn is durable and before its replies go out. So
    /// it must be quick and must not block. Without a listener messages are dropped.
    pub fn listen(&self, listener: Listener) {
        self.shared.listener.listen(listener);
    }

    /// Why the store confirms no commits now, with the next step; `None` if it does, as far as is known.
    fn held_up(&self) -> Option<String> {
        self.shared.hold.as_ref().and_then(StoreHold::reason)
    }

    /// Refuses new work while the store confirms nothing: it would only wait for the same.
    fn refuse_held_up(&self, commands: &[Command]) -> Result<(), CallError> {
        match self.held_up() {
            Some(reason) if commands.iter().any(Command::is_new_work) => {
                Err(CallError::unavailable(&self.shared.id, reason))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the shard can work.
    pub fn health(&self) -> Health {
        let hold = self.held_up();
        match &*self.shared.health.borrow() {
            Health::Ready | Health::Full if hold.is_some() => Health::Unreachable {
                reason: hold.unwrap_or_default(),
            },
            Health::Starting { .. } => Health::Starting {
                jobs: self.shared.metrics.gauges.loaded_jobs.get(),
            },
            health => health.clone(),
        }
    }

    /// Waits until the shard is in service or has ended. Calls made earlier wait by themselves.
    pub async fn ready(&self) -> Health {
        let mut health = self.shared.health.clone();
        let settled = health
            .wait_for(|health| {
                !matches!(health, Health::Starting { .. } | Health::Unreachable { .. })
            })
            .await;
        settled.map_or_else(|_| self.health(), |health| health.clone())
    }

    /// Returns the metrics of this shard. Counters and gauges are current; the queues are those of the last snapshot,
    /// and a new snapshot is started for the next call.
    pub fn metrics(&self) -> MetricsSnapshot {
        let mut snapshot = self
            .shared
            .snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_asked = std::mem::replace(&mut snapshot.is_asked, true);
        let queues = snapshot.queues.clone();
        drop(snapshot);
        if !is_asked {
            let ticket = ReplyChannel::QueueSnapshot(None, Arc::clone(&self.shared.snapshot));
            drop(self.send(Request::QueueSnapshot { ticket }));
        }
        let hold = self.shared.hold.as_ref().and_then(StoreHold::reason);
        let is_held_up = u64::from(hold.is_some());
        self.shared.metrics.gauges.store_held_up.set(is_held_up);
        let held_up = self
            .shared
            .hold
            .as_ref()
            .map_or(0, |hold| hold.total().as_secs());
        let shown = &self.shared.metrics.counters.store_held_up_seconds_total;
        shown.add(held_up.saturating_sub(shown.get()));
        self.shared.metrics.snapshot(queues)
    }

    /// Returns how long the commits of the store took since the start, in seconds.
    pub fn commit_seconds(&self) -> Histogram {
        self.shared.metrics.commit.snapshot()
    }

    /// Returns the free bytes on the store's device, `None` if unknown, and those held in reserve, 0 if none are.
    pub fn store_space(&self) -> (Option<u64>, u64) {
        let gauges = &self.shared.metrics.gauges;
        let free = gauges.store_free_bytes.get();
        ((free > 0).then_some(free), gauges.store_reserve_bytes.get())
    }

    /// Returns the metrics of this shard with a new snapshot of the queues.
    ///
    /// # Errors
    /// If the shard has ended.
    pub async fn metrics_now(&self) -> Result<MetricsSnapshot, CallError> {
        let (answer, answered) = reply_slot();
        let ticket = ReplyChannel::QueueSnapshot(Some(answer), Arc::clone(&self.shared.snapshot));
        self.send(Request::QueueSnapshot { ticket })?;
        self.receive(answered).await?;
        let snapshot = self
            .shared
            .snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(self.shared.metrics.snapshot(snapshot.queues.clone()))
    }

    /// Refuses new commands, commits admitted ones, ends the threads, and closes the store.
    pub async fn stop(&self) {
        drop(self.shared.inbox.send(ThreadMessage::Stop));
        let mut is_over = self.shared.is_over.clone();
        // An error means that the thread which would report it has ended already.
        drop(is_over.wait_for(|is_over| *is_over).await);
    }

    fn new_waiter(&self) -> WaiterId {
        WaiterId(self.shared.next_waiter.fetch_add(1, Ordering::Relaxed))
    }

    fn origin(&self, lease: &Lease) -> LeaseOrigin {
        let request = lease
            .request
            .clone()
            .map(|request| (lease.namespace.clone(), request));
        LeaseOrigin {
            home: self.shared.inbox.clone(),
            waiter: self.new_waiter(),
            request,
        }
    }

    fn send(&self, request: Request<ReplyChannel>) -> Result<(), CallError> {
        self.shared
            .inbox
            .send(ThreadMessage::Request(request))
            .map_err(|_| self.ended())
    }

    async fn receive<V>(&self, answered: Answered<Result<V, CallError>>) -> Result<V, CallError> {
        answered.await.unwrap_or_else(|| Err(self.ended()))
    }

    fn ended(&self) -> CallError {
        let reason = match self.health() {
            Health::Stopped { reason } => reason,
            _ => "it has ended".to_owned(),
        };
        CallError::unavailable(&self.shared.id, reason)
    }
}
