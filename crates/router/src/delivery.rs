//! Delivers messages between shards: everything in an outbox is sent until the other shard has it durably.
//!
//! There is one task for each pair of shards while messages wait. A shard that is down causes a try at most every 30
//! seconds, and one at once when it calls (`rel X4`). Batches also carry the questions whether the other shard knows
//! the jobs that wait for its own (`rel T1`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use ganger_shard::{Handle, Health};
use ganger_types::command::{Confirm, Receive};
use ganger_types::query::Query;
use ganger_types::reply::PeerView;
use ganger_types::{
    CheckedWaits, Command, JobKey, Message, MessageResult, OutboxRecord, Reply, ShardId,
};
use tokio::sync::Notify;

use crate::{Inner, RouteError, Router};

/// Maximum number of messages in one batch, and approximate bytes of their results.
const BATCH_MESSAGES_MAX: usize = 1_000;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Pause after the first failure; each further failure doubles it, up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Longest time that a submitter waits until the other shards know the decision.
const DELIVER_NOW_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between checks of the outboxes without a notification.
const OUTBOX_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// State of the delivery of one shard's messages to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerState {
    /// Number of failed tries since the last success.
    pub failed_tries: u64,
    /// Error of the last failed try; `None` after a success.
    pub last_error: Option<String>,
    /// Reason why the peer accepts no more messages, as the peer reported; `None` if it accepts them.
    pub stopped_there: Option<String>,
}

/// The delivery tasks, by sender and receiver.
#[derive(Default)]
pub(crate) struct Deliveries {
    carriers: Mutex<BTreeMap<(ShardId, ShardId), Arc<DeliveryTask>>>,
}

#[derive(Default)]
struct DeliveryTask {
    /// Notified when there may be messages to deliver.
    wake: Notify,
    /// Notified when the peer has called, which ends a pause.
    peer_called_notify: Notify,
    /// Notified when a try has ended.
    try_ended: Notify,
    /// Whether the shard that sends is not here any more.
    ended: AtomicBool,
    state: Mutex<PeerState>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Router {
    /// Returns what waits at a shard of this process for other shards, with the state of each delivery.
    ///
    /// # Errors
    /// If the shard does not answer.
    pub async fn peers(&self, shard: &Handle) -> Result<Vec<(PeerView, PeerState)>, RouteError> {
        let views = views(shard).await?;
        let carriers = lock(&self.0.deliveries.carriers);
        let with_state = views.into_iter().map(|view| {
            let pair = (shard.id().clone(), view.record.shard.clone());
            let state = carriers.get(&pair).map(|task| lock(&task.state).clone());
            (view, state.unwrap_or_default())
        });
        Ok(with_state.collect())
    }

    /// Starts a try at once, because the peer has called.
    pub(crate) fn peer_called(&self, peer: &ShardId) {
        let carriers = lock(&self.0.deliveries.carriers);
        for ((_, to), task) in carriers.iter() {
            if to == peer {
                task.peer_called_notify.notify_waiters();
                task.wake.notify_one();
            }
        }
    }

    /// Waits until the current messages of a shard are durable at their receivers, except those that do not respond,
    /// and for a short time only.
    pub(crate) async fn deliver_now(&self, from: &Handle, to: &[ShardId]) {
        let until = tokio::time::Instant::now() + DELIVER_NOW_TIMEOUT;
        for shard in to.iter().filter(|shard| *shard != from.id()) {
            let task = self.task(from, shard);
            task.wake.notify_one();
            loop {
                let mut try_ended = std::pin::pin!(task.try_ended.notified());
                try_ended.as_mut().enable();
                let waits = views(from).await.is_ok_and(|views| {
                    let mut views = views.iter();
                    views.any(|view| view.record.shard == *shard && view.waiting > 0)
                });
                if !waits || lock(&task.state).failed_tries > 0 {
                    break;
                }
                if tokio::time::timeout_at(until, try_ended).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Starts the delivery of the messages of a shard of this process.
    pub(crate) fn start_deliveries(&self, handle: &Handle) {
        let watcher = watch_outbox(Arc::downgrade(&self.0), handle.clone());
        tokio::spawn(watcher);
    }

    /// Ends the delivery of the messages of a shard that is not here any more, or is here again.
    pub(crate) fn forget_deliveries(&self, from: &ShardId) {
        let mut carriers = lock(&self.0.deliveries.carriers);
        for task in carriers.extract_if(.., |(sender, _), _| sender == from) {
            task.1.ended.store(true, Ordering::Release);
            task.1.wake.notify_one();
            task.1.peer_called_notify.notify_waiters();
        }
    }

    fn task(&self, from: &Handle, to: &ShardId) -> Arc<DeliveryTask> {
        let pair = (from.id().clone(), to.clone());
        let mut carriers = lock(&self.0.deliveries.carriers);
        Arc::clone(carriers.entry(pair).or_insert_with(|| {
            let task = Arc::new(DeliveryTask::default());
            let (router, from, to) = (Arc::downgrade(&self.0), from.clone(), to.clone());
            tokio::spawn(deliver_all(router, from, to, Arc::clone(&task)));
            task
        }))
    }
}

async fn views(shard: &Handle) -> Result<Vec<PeerView>, RouteError> {
    let query = Command::Query(Box::new(Query::Peers));
    match shard.call(query).await? {
        Reply::Peers(views) => Ok(views),
        _ => Ok(Vec::new()),
    }
}

/// Wakes the delivery tasks of a shard whenever its outbox has new messages. Ends with the router or the shard.
async fn watch_outbox(router: Weak<Inner>, handle: Handle) {
    let mut outbox = handle.outbox();
    loop {
        outbox.mark_unchanged();
        let Some(inner) = router.upgrade() else {
            return;
        };
        if matches!(handle.health(), Health::Stopped { .. }) {
            return;
        }
        let router_now = Router(inner);
        if let Ok(views) = views(&handle).await {
            for view in views
                .iter()
                .filter(|view| view.waiting > 0 || view.is_to_ask)
            {
                let task = router_now.task(&handle, &view.record.shard);
                task.wake.notify_one();
            }
        }
        drop(router_now);
        if let Ok(Err(_)) = tokio::time::timeout(OUTBOX_CHECK_INTERVAL, outbox.changed()).await {
            return;
        }
    }
}

/// Delivers the messages of one shard for another.
async fn deliver_all(router: Weak<Inner>, from: Handle, to: ShardId, task: Arc<DeliveryTask>) {
    let mut pause = FIRST_PAUSE;
    while !task.ended.load(Ordering::Acquire) {
        let Some(inner) = router.upgrade() else {
            return;
        };
        let outcome = deliver_batch(&Router(inner), &from, &to).await;
        let is_done = matches!(outcome, Ok(Progress::Nothing));
        let failed = note(&task, &from, &to, outcome);
        task.try_ended.notify_waiters();
        if failed {
            let until = Instant::now() + pause;
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => pause = (pause * 2).min(PAUSE_MAX),
                () = task.peer_called_notify.notified() => pause = FIRST_PAUSE,
            }
        } else {
            pause = FIRST_PAUSE;
            if is_done {
                let woken = tokio::time::timeout(OUTBOX_CHECK_INTERVAL * 12, task.wake.notified());
                // The wait is limited, to notice that the router has gone.
                let _ = woken.await;
            }
        }
    }
}

enum Progress {
    Nothing,
    MessageResult,
    StoppedHere,
    StoppedThere(String),
}

/// Records the result of a try; returns true if the next try must wait for a pause.
fn note(
    task: &DeliveryTask,
    from: &Handle,
    to: &ShardId,
    outcome: Result<Progress, RouteError>,
) -> bool {
    let mut state = lock(&task.state);
    match outcome {
        Ok(Progress::Nothing | Progress::MessageResult) => {
            if state.failed_tries > 0 {
                tracing::info!(from = %from.id(), %to, tries = state.failed_tries, "messages go through again");
            }
            *state = PeerState::default();
            false
        }
        Ok(Progress::StoppedHere) => true,
        Ok(Progress::StoppedThere(reason)) => {
            if state.stopped_there.is_none() {
                tracing::error!(from = %from.id(), %to, %reason, "the peer takes no messages until it is reconciled");
            }
            state.failed_tries += 1;
            state.stopped_there = Some(reason);
            true
        }
        Err(error) => {
            if state.failed_tries == 0 {
                tracing::warn!(from = %from.id(), %to, %error, "messages wait");
            }
            state.failed_tries += 1;
            state.last_error = Some(error.to_string());
            true
        }
    }
}

/// Sends one batch of messages, and questions about waits if they are due, from a shard to a peer.
async fn deliver_batch(
    router: &Router,
    from: &Handle,
    to: &ShardId,
) -> Result<Progress, RouteError> {
    let views = views(from).await?;
    let Some(view) = views.into_iter().find(|view| view.record.shard == *to) else {
        return Ok(Progress::Nothing);
    };
    if view.waiting == 0 && !view.is_to_ask {
        return Ok(Progress::Nothing);
    }
    let record = view.record;
    if record.stopped.is_some() {
        return Ok(Progress::StoppedHere);
    }
    let waits = if view.is_to_ask {
        let query = Query::Waits(to.clone());
        match from.call(Command::Query(Box::new(query))).await? {
            Reply::Waits(waits) => waits,
            _ => Vec::new(),
        }
    } else {
        Vec::new()
    };
    let last_wait = waits.last().map(|wait| (wait.dependent, wait.slot));
    let query = Query::Outbox(to.clone(), 0, BATCH_MESSAGES_MAX);
    let messages = match from.call(Command::Query(Box::new(query))).await? {
        Reply::Outbox(messages) => fill(from, messages).await?,
        _ => Vec::new(),
    };
    let batch = Receive {
        from: from.id().clone(),
        stream_epoch: record.stream_epoch,
        last_sent: record.last_sent,
        confirmed: record.confirmed,
        messages,
        waits,
    };
    let receipt = router.reach(to)?.receive(batch).await?;
    let is_news = receipt.line != record.stream_epoch || receipt.up_to > record.confirmed;
    let unknown = receipt.unknown;
    let looked = last_wait.map(|up_to| CheckedWaits { up_to, unknown });
    if (is_news || looked.is_some()) && receipt.stopped.is_none() {
        let confirm = Confirm {
            peer: to.clone(),
            stream_epoch: receipt.line,
            up_to: receipt.up_to,
            tag: receipt.tag,
            checked_waits: looked,
        };
        from.call(Command::Confirm(confirm)).await?;
    }
    Ok(receipt
        .stopped
        .map_or(Progress::MessageResult, Progress::StoppedThere))
}

/// Fills results into the messages that carry them, for as many messages as make a full batch.
async fn fill(from: &Handle, messages: Vec<OutboxRecord>) -> Result<Vec<OutboxRecord>, RouteError> {
    let mut filled = Vec::with_capacity(messages.len());
    let mut bytes = 0;
    let mut last: Option<(JobKey, bytes::Bytes)> = None;
    for mut record in messages {
        if let Message::Ended { result, .. } = &mut record.message
            && let MessageResult::Stored(key) = *result
        {
            // One result may be for many dependents.
            let value = match &last {
                Some((known, value)) if *known == key => value.clone(),
                _ => from.result(key).await?.unwrap_or_default(),
            };
            bytes += value.len();
            last = Some((key, value.clone()));
            *result = MessageResult::Bytes(value);
        }
        filled.push(record);
        if bytes >= BATCH_BYTES_MAX {
            break;
        }
    }
    Ok(filled)
}
