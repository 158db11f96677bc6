//! Decides which connection an I/O thread serves next: the one that has used the threads least recently.
//!
//! Tokio polls tasks in the order in which they became ready, so a call would wait for all 30,000 requests that other
//! connections sent before it. Here, while the threads lag behind the ready tasks, a task of a connection that has
//! used more than [`LIGHT_USE_MAX`] does not run when Tokio polls it, but queues. The dispatcher lets a few queued
//! tasks run each time all other ready tasks have been polled: those of the connections that have used least, in
//! turn. All other tasks run at once.
//!
//! The dispatcher also measures the lag: it is scheduled from time to time, and runs late if the tasks that were
//! ready before it took long.
//!
//! Waiting requests hold memory that no budget counts yet. So where many wait, a connection reads a little at a time,
//! and only after everything that it has read has started.

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

/// Time on the I/O threads that a connection may use before its tasks queue.
const LIGHT_USE_MAX: Duration = Duration::from_micros(100);
/// Time after which the used time of a connection counts half.
const HALF_LIFE: Duration = Duration::from_millis(500);
/// Number of classes of use: less than [`LIGHT_USE_MAX`], less than twice as much, and so on.
const CLASSES: usize = 16;
/// Number of queued tasks per I/O thread that run before all other ready tasks are polled again.
const BATCH: usize = 8;
/// The threads lag if the dispatcher waits this long to run although it is ready.
const LAG_MAX: Duration = Duration::from_millis(2);
/// Time after its last run at which the dispatcher is scheduled again, if there is a connection whose tasks may have
/// to queue.
const ASK_AFTER: Duration = Duration::from_millis(1);
/// Longest time that a connection reads before others have their turn. A connection whose tasks do not queue may read
/// for [`LIGHT_USE_MAX`] only while the threads lag: a thousand new ones can arrive at once.
const READING_TIME_MAX: Duration = Duration::from_millis(1);

tokio::task_local! {
    /// Ends the request that the current task works for.
    static REQUEST_END: CancellationToken;
}

/// Number of unstarted requests of all connections from which each connection reads little at a time.
const UNSTARTED_MANY: usize = 512;
/// Bytes that a connection then reads at a time.
pub(crate) const SMALL_READ_BYTES: usize = 1 << 10;

/// The current poll of a connection's task on this thread.
#[derive(Clone, Copy)]
struct CurrentPoll {
    begun: Instant,
    /// Whether it may read only a little, and not for long.
    is_short: bool,
}

thread_local! {
    static TURN: Cell<Option<CurrentPoll>> = const { Cell::new(None) };
}

/// Whether the current task has read for long enough, so that it should wake itself and return.
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

/// Returns the token that ends the current task's request, as if its client had cancelled it; `None` over HTTP/1,
/// where the request is the connection's.
pub(crate) fn request_end() -> Option<CancellationToken> {
    REQUEST_END.try_with(CancellationToken::clone).ok()
}

/// Decides which connections run first. Clones share the decision.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Notified when a queued task may run.
    waiting: Notify,
    /// Number of unstarted requests.
    unstarted: AtomicUsize,
    /// Number of queued tasks that may run at a time.
    batch: usize,
    lag: DispatchLag,
}

/// Measures how late the dispatcher runs.
#[derive(Debug)]
struct DispatchLag {
    /// Start of the times below, which are in microseconds.
    epoch: Instant,
    /// Time at which the dispatcher was scheduled; 0 if it has run since.
    asked: AtomicU64,
    /// Time of its last run.
    answered: AtomicU64,
    /// Lag from which the threads count as behind; always if zero.
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

    /// Returns the microseconds from the epoch to a moment, at least 1.
    fn micros(&self, moment: Instant) -> u64 {
        u64::try_from(moment.duration_since(self.epoch).as_micros())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// Whether the threads lag; `ask` schedules the dispatcher.
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

/// The connections with queued tasks.
#[derive(Debug, Default)]
struct Queue {
    classes: [VecDeque<Lane>; CLASSES],
    /// Number of tasks allowed to run that have not been polled yet.
    running: usize,
}

/// One connection with all its tasks. Clones are the same connection.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    scheduler: Scheduler,
    state: Arc<Mutex<LaneState>>,
}

#[derive(Debug)]
struct LaneState {
    used: Duration,
    /// Time at which `used` was last halved.
    halved: Instant,
    waiting: VecDeque<Arc<QueuedTask>>,
    is_queued: bool,
    /// Number of its unstarted requests.
    unstarted: usize,
    /// Wakes the task that reads from the connection once all its requests have started.
    reader: Option<Waker>,
}

/// Amount that a connection may read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAllowance {
    /// The connection may read all available bytes.
    All,
    /// The connection may read at most [`SMALL_READ_BYTES`].
    Little,
}

/// State of a task in the queue.
#[derive(Debug, Default)]
struct QueuedTask(Mutex<TaskState>);

#[derive(Debug, Default)]
enum TaskState {
    /// The task does not wait.
    #[default]
    Outside,
    Waiting(Waker),
    /// The task may run when Tokio polls it.
    Chosen,
    /// The task has ended.
    Gone,
}

impl Scheduler {
    /// Creates a scheduler for this number of I/O threads.
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

    /// Returns a connection that has used nothing yet.
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

    /// Lets queued tasks run, until `ended`.
    pub(crate) async fn dispatch(self, ended: CancellationToken) {
        let waiting = || ended.run_until_cancelled(self.0.waiting.notified());
        while waiting().await.is_some() {
            // Returns after the ready tasks have been polled and newly ready ones found.
            tokio::task::yield_now().await;
            self.0.lag.answer();
            self.choose();
        }
    }

    /// Whether tasks of connections that have used much must queue.
    fn is_behind(&self, now: Instant) -> bool {
        self.0.lag.is_behind(now, || self.0.waiting.notify_one())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets as many tasks run as are allowed at a time.
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
            let class = state.class(Instant::now());
            drop(state);
            queue.classes[class].push_back(lane);
        }
        drop(queue);
        for waker in chosen {
            waker.wake();
        }
    }

    /// Records that an allowed task has run, or ended.
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
    /// Makes the future a task of this connection.
    pub(crate) fn scheduled<F: Future>(&self, future: F) -> Scheduled<F> {
        Scheduled {
            future: Box::pin(future),
            lane: self.clone(),
            ticket: Arc::default(),
        }
    }

    /// Returns how much may be read; pending while many requests wait and this connection's own have not started.
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

    /// Counts an unstarted request.
    fn unstarted(&self) -> UnstartedRequest {
        self.scheduler.0.unstarted.fetch_add(1, Ordering::Relaxed);
        self.state().unstarted += 1;
        UnstartedRequest(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection's tasks always run at once.
    fn is_light(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.waiting.is_empty() && state.class(now) == 0
    }

    fn charge(&self, time: Duration, now: Instant) {
        let mut state = self.state();
        state.age(now);
        state.used += time;
    }

    /// Queues a task after the others of this connection.
    fn wait(&self, ticket: &Arc<QueuedTask>) {
        let mut queue = self.scheduler.queue();
        let mut state = self.state();
        state.waiting.push_back(Arc::clone(ticket));
        if !state.is_queued {
            state.is_queued = true;
            let class = state.class(Instant::now());
            drop(state);
            queue.classes[class].push_back(self.clone());
        }
        drop(queue);
        self.scheduler.0.waiting.notify_one();
    }
}

impl LaneState {
    /// Halves the used time once for each half-life that has passed.
    fn age(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.halved);
        if since < HALF_LIFE {
            return;
        }
        let halves = u32::try_from(since.as_micros() / HALF_LIFE.as_micros());
        let Some(halves) = halves.ok().filter(|halves| *halves < 32) else {
            self.used = Duration::ZERO;
            self.halved = now;
            return;
        };
        self.used /= 1 << halves;
        self.halved += HALF_LIFE * halves;
    }

    fn class(&mut self, now: Instant) -> usize {
        self.age(now);
        if self.used < LIGHT_USE_MAX {
            return 0;
        }
        let times = self.used.as_nanos() / LIGHT_USE_MAX.as_nanos();
        let class = usize::try_from(times.checked_ilog2().map_or(0, |power| power + 1));
        class.unwrap_or(CLASSES).min(CLASSES - 1)
    }
}

impl QueuedTask {
    fn stage(&self) -> MutexGuard<'_, TaskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the task may run; `None` if it waits.
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

    /// Allows the task to run when it is polled; returns its waker, unless it has ended.
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
        let is_light = self.lane.is_light(begun);
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
        let ended = Instant::now();
        self.lane
            .charge(ended.saturating_duration_since(begun), ended);
        polled
    }
}

/// Notifies the scheduler when dropped, also after a panic.
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

/// A request that has not started; counted until it is dropped.
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

/// Runs the tasks that the HTTP library spawns: over HTTP/2 each request is a task.
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
