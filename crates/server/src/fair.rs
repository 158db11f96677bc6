//! Which connection an I/O thread serves next: the one that has used the threads least lately.
//!
//! Tokio polls tasks in the order in which they became ready, so a call would wait for all 30,000 requests that other
//! connections sent before it. Here, while the threads are behind with what is ready, a task of a connection that has used
//! more than [`LIGHT_USE_MAX`] does not run when Tokio polls it, but queues. The dispatcher lets a few of the queue run each time all
//! other ready tasks have been polled: of the connections that have used least, each in its turn. All other tasks run at
//! once.
//!
//! Whether the threads are behind tells the dispatcher, too: it is asked to run now and then, and is late if what was ready
//! before it took long.
//!
//! Requests that wait hold memory that no budget counts yet. So where many wait, a connection reads a little at a time, and
//! not before all that it has read has begun.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt::Executor;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Time on the I/O threads that a connection uses before its tasks queue.
const LIGHT_USE_MAX: Duration = Duration::from_micros(100);
/// What a connection has used counts half after so long.
const HALF_LIFE: Duration = Duration::from_millis(500);
/// Classes of use: less than [`LIGHT_USE_MAX`], less than twice as much, and so on.
const CLASSES: usize = 16;
/// Tasks of the queue that run for each I/O thread before all other ready tasks are polled again.
const BATCH: usize = 8;
/// The threads are behind when the dispatcher does not run for so long although it is ready.
const LAG_MAX: Duration = Duration::from_millis(2);
/// It is asked to run so long after it did, if there is a connection whose tasks may have to queue.
const ASK_AFTER: Duration = Duration::from_millis(1);
/// How long a connection may go on reading before the others have their turn. One whose tasks do not queue may do so for
/// [`LIGHT_USE_MAX`] only while the threads are behind: a thousand new ones can come at once.
const READING_TIME_MAX: Duration = Duration::from_millis(1);

tokio::task_local! {
    /// Ends the request that the task works for.
    static REQUEST_END: CancellationToken;
}

/// Requests that have not begun, of all connections, from which on each connection reads little at a time.
const UNSTARTED_MANY: usize = 512;
/// Bytes that are read then.
pub(crate) const SMALL_READ_BYTES: usize = 1 << 10;

/// The poll of a connection's task that a thread is in.
#[derive(Clone, Copy)]
struct CurrentPoll {
    begun: Instant,
    /// It reads a little at a time, and not for long.
    is_short: bool,
}

thread_local! {
    static TURN: Cell<Option<CurrentPoll>> = const { Cell::new(None) };
}

/// Whether the task that runs now has been reading for long enough, so that it should wake itself and return.
pub(crate) fn has_read_enough() -> bool {
    TURN.get().is_some_and(|turn| {
        let most = if turn.is_short {
            LIGHT_USE_MAX
        } else {
            READING_TIME_MAX
        };
        turn.begun.elapsed() > most
    })
}

/// What ends the request of the task that runs now, as if its client had taken it back; absent over HTTP/1, where the
/// request is the connection's.
pub(crate) fn request_end() -> Option<CancellationToken> {
    REQUEST_END.try_with(CancellationToken::clone).ok()
}

/// Decides which connections go first. Clones share the decision.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Something is in the queue that may run.
    waiting: Notify,
    /// Requests that have not begun.
    unstarted: AtomicUsize,
    /// Tasks of the queue that may run at a time.
    batch: usize,
    lag: DispatchLag,
}

/// How late the dispatcher runs.
#[derive(Debug)]
struct DispatchLag {
    /// The beginning of the times below, which are in microseconds.
    epoch: Instant,
    /// When the dispatcher was asked to run; 0 if it has run since.
    asked: AtomicU64,
    /// When it ran last.
    answered: AtomicU64,
    /// The threads are behind if it runs so much later than asked; always if this is zero.
    behind: Duration,
}

impl DispatchLag {
    fn new(behind: Duration) -> Self {
        Self {
            epoch: Instant::now(),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            behind,
        }
    }

    /// Microseconds between the epoch and a moment, at least 1.
    fn micros(&self, moment: Instant) -> u64 {
        u64::try_from(moment.duration_since(self.epoch).as_micros())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// Whether the threads are behind; `ask` has the dispatcher run.
    fn is_behind(&self, now: Instant, ask: impl FnOnce()) -> bool {
        let now = self.micros(now);
        let since = |then: u64| Duration::from_micros(now.saturating_sub(then));
        let asked = self.asked.load(Ordering::Relaxed);
        if asked == 0 && since(self.answered.load(Ordering::Relaxed)) >= ASK_AFTER {
            self.asked.store(now, Ordering::Relaxed);
            ask();
        }
        self.behind.is_zero() || (asked > 0 && since(asked) >= self.behind)
    }

    fn answer(&self) {
        let now = self.micros(Instant::now());
        self.answered.store(now, Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
    }
}

/// The connections with tasks that wait.
#[derive(Debug, Default)]
struct Queue {
    classes: [VecDeque<Lane>; CLASSES],
    /// Tasks that were let run, and have not been polled since.
    running: usize,
}

/// One connection, with all tasks that work for it. Clones are the same connection.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    scheduler: Scheduler,
    state: Arc<Mutex<LaneState>>,
}

#[derive(Debug)]
struct LaneState {
    used: Duration,
    /// When `used` was halved last.
    halved: Instant,
    waiting: VecDeque<Arc<QueuedTask>>,
    is_queued: bool,
    /// Requests of it that have not begun.
    unstarted: usize,
    /// What wakes the task that reads from the connection when they all have.
    reader: Option<Waker>,
}

/// How much a connection may read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAllowance {
    /// As much as there is.
    All,
    /// The connection may read at most [`SMALL_READ_BYTES`].
    Little,
}

/// The place of a task in the queue.
#[derive(Debug, Default)]
struct QueuedTask(Mutex<TaskState>);

#[derive(Debug, Default)]
enum TaskState {
    /// It does not wait.
    #[default]
    Outside,
    Waiting(Waker),
    /// It may run when Tokio polls it.
    Chosen,
    /// Its task has ended.
    Gone,
}

impl Scheduler {
    /// For so many I/O threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self::with_lag(threads, DispatchLag::new(LAG_MAX))
    }

    fn with_lag(threads: usize, lag: DispatchLag) -> Self {
        Self(Arc::new(Shared {
            lag,
            queue: Mutex::default(),
            waiting: Notify::new(),
            unstarted: AtomicUsize::new(0),
            batch: threads.max(1) * BATCH,
        }))
    }

    /// A connection that has used nothing yet.
    pub(crate) fn lane(&self) -> Lane {
        Lane {
            scheduler: self.clone(),
            state: Arc::new(Mutex::new(LaneState {
                used: Duration::ZERO,
                halved: Instant::now(),
                waiting: VecDeque::new(),
                is_queued: false,
                unstarted: 0,
                reader: None,
            })),
        }
    }

    /// Lets tasks of the queue run, until `ended`.
    pub(crate) async fn dispatch(self, ended: CancellationToken) {
        let waiting = || ended.run_until_cancelled(self.0.waiting.notified());
        while waiting().await.is_some() {
            // Comes back when the tasks that are ready have been polled, and those found that became so.
            tokio::task::yield_now().await;
            self.0.lag.answer();
            self.choose();
        }
    }

    /// Whether tasks of connections that have used much have to queue.
    fn is_behind(&self, now: Instant) -> bool {
        self.0.lag.is_behind(now, || self.0.waiting.notify_one())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets as many tasks run as may at a time.
    fn choose(&self) {
        let mut chosen = Vec::new();
        let mut queue = self.queue();
        while queue.running < self.0.batch {
            let first = queue.classes.iter_mut().find_map(VecDeque::pop_front);
            let Some(lane) = first else {
                break;
            };
            let mut state = lane.state();
            while let Some(ticket) = state.waiting.pop_front() {
                if let Some(waker) = ticket.choose() {
                    queue.running += 1;
                    chosen.push(waker);
                    break;
                }
            }
            if state.waiting.is_empty() {
                state.is_queued = false;
                continue;
            }
            let class = state.class();
            drop(state);
            queue.classes[class].push_back(lane);
        }
        drop(queue);
        for waker in chosen {
            waker.wake();
        }
    }

    /// A task that was let run has run, or ended.
    fn ran(&self) {
        let mut queue = self.queue();
        queue.running = queue.running.saturating_sub(1);
        let is_waited_for = queue.classes.iter().any(|lanes| !lanes.is_empty());
        drop(queue);
        if is_waited_for {
            self.0.waiting.notify_one();
        }
    }
}

impl Lane {
    /// The future as a task of this connection.
    pub(crate) fn scheduled<F: Future>(&self, future: F) -> Scheduled<F> {
        Scheduled {
            future: Box::pin(future),
            lane: self.clone(),
            ticket: Arc::default(),
        }
    }

    /// How much may be read; pending while requests that it has read wait, and those of others too.
    pub(crate) fn poll_reading(&self, cx: &Context<'_>) -> Poll<ReadAllowance> {
        if self.scheduler.0.unstarted.load(Ordering::Relaxed) <= UNSTARTED_MANY {
            let is_short = TURN.get().is_some_and(|turn| turn.is_short);
            return Poll::Ready(if is_short {
                ReadAllowance::Little
            } else {
                ReadAllowance::All
            });
        }
        let mut state = self.state();
        if state.unstarted == 0 {
            return Poll::Ready(ReadAllowance::Little);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Counts a request that has not begun.
    fn unstarted(&self) -> UnstartedRequest {
        self.scheduler.0.unstarted.fetch_add(1, Ordering::Relaxed);
        self.state().unstarted += 1;
        UnstartedRequest(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its tasks run at once in any case.
    fn is_light(&self) -> bool {
        let mut state = self.state();
        state.waiting.is_empty() && state.class() == 0
    }

    fn charge(&self, time: Duration) {
        let mut state = self.state();
        state.age();
        state.used += time;
    }

    /// Puts a task behind the others of this connection.
    fn wait(&self, ticket: &Arc<QueuedTask>) {
        let mut queue = self.scheduler.queue();
        let mut state = self.state();
        state.waiting.push_back(Arc::clone(ticket));
        if !state.is_queued {
            state.is_queued = true;
            let class = state.class();
            drop(state);
            queue.classes[class].push_back(self.clone());
        }
        drop(queue);
        self.scheduler.0.waiting.notify_one();
    }
}

impl LaneState {
    fn age(&mut self) {
        let halves = self.halved.elapsed().as_nanos() / HALF_LIFE.as_nanos();
        let Some(halves) = u32::try_from(halves).ok().filter(|halves| *halves < 32) else {
            self.used = Duration::ZERO;
            self.halved = Instant::now();
            return;
        };
        self.used /= 1 << halves;
        self.halved += HALF_LIFE * halves;
    }

    fn class(&mut self) -> usize {
        self.age();
        let times = self.used.as_nanos() / LIGHT_USE_MAX.as_nanos();
        let class = usize::try_from(times.checked_ilog2().map_or(0, |power| power + 1));
        class.unwrap_or(CLASSES).min(CLASSES - 1)
    }
}

impl QueuedTask {
    fn stage(&self) -> MutexGuard<'_, TaskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the task was let run; `None` if it waits.
    fn is_chosen(&self, cx: &Context<'_>) -> Option<bool> {
        let mut stage = self.stage();
        match &mut *stage {
            TaskState::Waiting(waker) => {
                waker.clone_from(cx.waker());
                None
            }
            TaskState::Chosen => {
                *stage = TaskState::Outside;
                Some(true)
            }
            TaskState::Outside | TaskState::Gone => Some(false),
        }
    }

    /// Lets the task run when it is polled; what wakes it, unless it has ended.
    fn choose(&self) -> Option<Waker> {
        let mut stage = self.stage();
        match std::mem::take(&mut *stage) {
            TaskState::Waiting(waker) => {
                *stage = TaskState::Chosen;
                Some(waker)
            }
            other => {
                *stage = other;
                None
            }
        }
    }
}

/// A task of a connection.
pub(crate) struct Scheduled<F> {
    future: Pin<Box<F>>,
    lane: Lane,
    ticket: Arc<QueuedTask>,
}

impl<F: Future> Future for Scheduled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(was_chosen) = self.ticket.is_chosen(cx) else {
            return Poll::Pending;
        };
        let begun = Instant::now();
        let is_light = self.lane.is_light();
        let is_behind = self.lane.scheduler.is_behind(begun);
        if !was_chosen && !is_light && is_behind {
            *self.ticket.stage() = TaskState::Waiting(cx.waker().clone());
            self.lane.wait(&self.ticket);
            return Poll::Pending;
        }
        let _ran = was_chosen.then(|| PollGuard(self.lane.scheduler.clone()));
        let turn = CurrentPoll {
            begun,
            is_short: is_light && is_behind,
        };
        let outer = TURN.replace(Some(turn));
        let polled = self.future.as_mut().poll(cx);
        TURN.set(outer);
        self.lane.charge(begun.elapsed());
        polled
    }
}

/// Tells the scheduler, also after a panic.
struct PollGuard(Scheduler);

impl Drop for PollGuard {
    fn drop(&mut self) {
        self.0.ran();
    }
}

impl<F> Drop for Scheduled<F> {
    fn drop(&mut self) {
        let last = std::mem::replace(&mut *self.ticket.stage(), TaskState::Gone);
        if matches!(last, TaskState::Chosen) {
            self.lane.scheduler.ran();
        }
    }
}

/// A request that has not begun.
struct UnstartedRequest(Lane);

impl Drop for UnstartedRequest {
    fn drop(&mut self) {
        let lane = &self.0;
        lane.scheduler.0.unstarted.fetch_sub(1, Ordering::Relaxed);
        let mut state = lane.state();
        state.unstarted = state.unstarted.saturating_sub(1);
        let reader = if state.unstarted == 0 {
            state.reader.take()
        } else {
            None
        };
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// Runs what the HTTP library spawns: over HTTP/2 each request is a task of its own.
impl<F> Executor<F> for Lane
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let end = CancellationToken::new();
        let until_ended = end.clone().run_until_cancelled_owned(future);
        let unstarted = self.unstarted();
        let request = async move {
            drop(unstarted);
            until_ended.await
        };
        tokio::spawn(self.scheduled(REQUEST_END.scope(end, request)));
    }
}

#[cfg(test)]
mod tests;
