//! The threads around the core: one applies turns, one commits them, some read.

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use ganger_store::{Opened, Reader, Store, StoreError};
use ganger_types::command::ExpiredJobsQuery;
use ganger_types::{Commit, Elapsed, Now};
use tokio::sync::watch;

use crate::admission::AdmissionControl;
use crate::clock::{Clock, TimeLine};
use crate::commit_executor::CommitExecutor;
use crate::core::{Core, Output, RowRead, Seeds, StoreExecutor, StoreReport, StoreTask};
use crate::events::EventHub;
use crate::handle::{Handle, Shared};
use crate::inbox::{self, Inbox, InboxSender};
use crate::message_listener::MessageListener;
use crate::metrics::ShardMetrics;
use crate::numbers::CommitRate;
use crate::ownership::OwnershipCheck;
use crate::pause::PauseWatch;
use crate::readers::ReadPool;
use crate::ticket::{QueueSnapshot, ReplyChannel, ThreadMessage};
use crate::{Health, Hooks, PipelinePoint, Settings, StopCause};

/// Entry point that starts shards.
pub struct Shard;

impl Shard {
    /// Opens the store, starts the threads, and returns a handle. The engine is loaded meanwhile: calls wait for
    /// that, [`Handle::health`] shows the progress, [`Handle::ready`] waits for the end.
    ///
    /// # Errors
    /// If the store cannot be opened, or no threads can be started.
    pub fn start<S: Store>(
        mut store: S,
        settings: Settings,
        clock: Arc<dyn Clock>,
        hooks: Hooks,
    ) -> Result<Handle, StoreError> {
        let opened = store.open()?;
        let readers = (0..settings.reader_threads.max(1))
            .map(|_| store.reader())
            .collect::<Result<Vec<_>, _>>()?;
        spawn(store, opened, readers, settings, clock, hooks).map_err(|error| StoreError::Io {
            path: "the shard's threads".into(),
            doing: "started",
            reason: error.to_string(),
        })
    }
}

fn spawn<S: Store>(
    store: S,
    opened: Opened,
    readers: Vec<S::Reader>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    hooks: Hooks,
) -> std::io::Result<Handle> {
    let metrics = Arc::new(ShardMetrics::default());
    let (inbox, messages) = inbox::inbox();
    let (health_out, health) = watch::channel(Health::Starting { jobs: 0 });
    let (over_out, is_over) = watch::channel(false);
    let (outbox_out, outbox) = watch::channel(0);
    let (operations_out, operations) = watch::channel(0);
    let listener = Arc::new(MessageListener::default());
    let check = OwnershipCheck {
        shard: settings.shard.clone(),
        clock: Arc::clone(&clock),
        ownership: settings.ownership.clone(),
    };
    let (reads, mut threads) = ReadPool::start(
        check.clone(),
        settings.reads_max,
        Arc::clone(&metrics),
        readers,
    )?;
    let hub = EventHub::new(
        settings.shard.clone(),
        settings.events_kept,
        settings.subscriptions_max,
        opened.meta.next_event,
        Arc::clone(&metrics),
    );
    let (is_remote, hold) = (store.is_remote(), store.hold());
    let (store_tasks, ordered) = channel();
    let (reports_out, reports) = channel();
    let executor = StoreExecutor::new(store, Arc::clone(&metrics), hooks.clone());
    let executor = CommitExecutor::new(executor, Arc::clone(&clock), Arc::clone(&metrics));
    let committer = StoreThread {
        executor: executor.clone(),
        ordered,
        reports: reports_out,
        wake: WakeOnDrop(inbox.clone()),
    };
    let thread = std::thread::Builder::new().name(format!("store-{}", settings.shard));
    threads.push(thread.spawn(move || committer.run())?);

    let line = TimeLine::resume(&opened, &*clock);
    let now = line.now(&*clock);
    let name = format!("shard-{}", settings.shard);
    let handle = Handle {
        shared: Arc::new(Shared {
            id: settings.shard.clone(),
            inbox: inbox.clone(),
            admission: AdmissionControl::new(&settings, Arc::clone(&metrics)),
            hub: Arc::clone(&hub),
            reads: Arc::clone(&reads),
            metrics: Arc::clone(&metrics),
            clock: Arc::clone(&clock),
            check,
            health,
            is_over,
            outbox,
            operations,
            commit_rate: CommitRate::new(clock.monotonic()),
            listener: Arc::clone(&listener),
            hold,
            snapshot: Arc::new(Mutex::new(QueueSnapshot::default())),
            next_waiter: AtomicU64::new(1),
        }),
    };
    let batch_max = settings.turn_commands_max;
    let moved = inbox.clone();
    clock.on_move(Arc::new(move || drop(moved.send(ThreadMessage::Look))));
    let core = Core::new(settings, metrics, opened, now, system_seeds());
    let host = ShardThread {
        core: if is_remote {
            core.reading_beside()
        } else {
            core
        },
        line,
        clock,
        messages,
        store_tasks: Some(store_tasks),
        reports,
        unreported: 0,
        executor: (!is_remote).then_some(executor),
        reader_reports: channel(),
        wake: inbox,
        ending: StopGuard {
            hub,
            reads,
            threads,
            health: health_out,
            over: over_out,
            outbox: outbox_out,
            operations: operations_out,
            listener,
            hooks,
        },
        batch_max,
        pauses: PauseWatch::default(),
    };
    std::thread::Builder::new()
        .name(name)
        .spawn(move || host.run())?;
    Ok(handle)
}

fn system_seeds() -> Seeds {
    Box::new(|| {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).expect("the system gives random bytes");
        seed
    })
}

/// State of the thread that runs the store's tasks.
struct StoreThread<S: Store> {
    executor: CommitExecutor<S>,
    ordered: Receiver<StoreTask>,
    /// Sends one report for each task; `None` for a turn that was dropped.
    reports: Sender<Option<StoreReport<S::Reader>>>,
    /// Declared last, so that its drop wakes the shard after `reports` is closed.
    wake: WakeOnDrop,
}

/// Wakes the shard thread, also when the store thread ends, even by a panic.
struct WakeOnDrop(InboxSender<ThreadMessage>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        drop(self.0.send(ThreadMessage::Look));
    }
}

impl<S: Store> StoreThread<S> {
    fn run(self) {
        loop {
            let next = if self.executor.under_way() > 0 {
                self.ordered.try_recv().ok()
            } else {
                let Ok(task) = self.ordered.recv() else {
                    return;
                };
                Some(task)
            };
            let reports = match next {
                Some(task) => self.executor.execute_next(task),
                None => self.executor.finish(),
            };
            for report in reports {
                if self.reports.send(report).is_err()
                    || self.wake.0.send(ThreadMessage::Look).is_err()
                {
                    return;
                }
            }
        }
    }
}

/// Largest number of changes that the shard's own thread commits while the store is idle, whatever the store: for so
/// few, switching threads costs more than applying commands in parallel saves.
const DIRECT_CHANGES_MAX: usize = 64;
/// Likewise while commits are quick: on a busy machine two changes of threads take longer than a quick commit.
const DIRECT_CHANGES_QUICK_MAX: usize = 2_048;
/// Average duration up to which commits count as quick.
const QUICK_COMMIT: Duration = Duration::from_millis(2);

/// Both ends of a channel.
type ChannelEnds<M> = (Sender<M>, Receiver<M>);

/// State of the thread that runs the store's tasks.
struct ShardThread<S: Store> {
    core: Core<S::Reader, ReplyChannel>,
    line: TimeLine,
    clock: Arc<dyn Clock>,
    messages: Inbox<ThreadMessage>,
    store_tasks: Option<Sender<StoreTask>>,
    reports: Receiver<Option<StoreReport<S::Reader>>>,
    /// Number of tasks sent to the store thread whose reports have not arrived.
    unreported: usize,
    /// Executor for small commits; `None` for a remote store, and at the end.
    executor: Option<CommitExecutor<S>>,
    /// Reports of reader threads, separate from the store's reports, so that the end of the store thread
    /// is still noticed.
    reader_reports: ChannelEnds<StoreReport<S::Reader>>,
    wake: InboxSender<ThreadMessage>,
    ending: StopGuard,
    batch_max: usize,
    pauses: PauseWatch,
}

impl<S: Store> ShardThread<S> {
    fn run(mut self) {
        loop {
            let now = self.line.now(&*self.clock);
            self.notice_pause(now);
            if self.take_reports(now) {
                // First the store gets its next turn, then the replies are sent, then work continues.
                self.submit_tasks();
                self.send_outputs();
                if self.core.is_stopping() {
                    // Grants that nobody took come back before the shard may end.
                    self.take_queued_messages();
                }
            }
            self.core.run(now);
            // Replies to reads are sent before the writes that came with them are flushed.
            self.send_outputs();
            self.submit_tasks();
            self.send_outputs();
            self.ending.publish_health(self.core.health());
            if let Some(cause) = self.core.stopped() {
                let cause = cause.clone();
                return self.finish(&cause);
            }
            self.take_messages(now);
        }
    }

    /// Gives leases their full length again if this thread stood still: their workers could not renew them.
    fn notice_pause(&mut self, now: Now) {
        if let Some(late) = self.pauses.wake(now.elapsed.since(Elapsed(0))) {
            let shard = self.core.shard();
            tracing::warn!(%shard, ?late, "the shard stood still; leases get their full length again");
            self.core.grant_grace(now);
        }
    }

    /// Handles the store's reports; returns whether there were any.
    fn take_reports(&mut self, now: Now) -> bool {
        let mut were_any = false;
        while let Ok(report) = self.reader_reports.1.try_recv() {
            self.core.report(report, now);
        }
        loop {
            match self.reports.try_recv() {
                Ok(report) => {
                    self.unreported -= 1;
                    if let Some(report) = report {
                        self.core.report(report, now);
                    }
                }
                Err(TryRecvError::Empty) => return were_any,
                Err(TryRecvError::Disconnected) => {
                    panic!("the store thread has ended before the shard asked it to");
                }
            }
            were_any = true;
        }
    }

    /// Sends the store its tasks, including those that follow from a commit on this thread.
    fn submit_tasks(&mut self) {
        loop {
            let store_tasks = self.core.take_store_tasks();
            if store_tasks.is_empty() {
                return;
            }
            for order in store_tasks {
                self.give(order);
            }
            // Outputs of a commit on this thread are sent before anything else is done.
            self.send_outputs();
        }
    }

    fn give(&mut self, order: StoreTask) {
        match order {
            StoreTask::Find {
                round,
                query,
                limit,
            } => self.find(round, query, limit),
            StoreTask::Read { reads } => self.read(reads),
            StoreTask::Commit(commit) if self.may_commit_here(&commit) => self.commit_here(commit),
            order => {
                if let Some(store_tasks) = &self.store_tasks {
                    self.unreported += 1;
                    // An ended store thread is noticed at the next report.
                    drop(store_tasks.send(order));
                }
            }
        }
    }

    fn may_commit_here(&self, commit: &Commit) -> bool {
        let Some(executor) = &self.executor else {
            return false;
        };
        let changes_max = if executor.average_commit() <= QUICK_COMMIT {
            DIRECT_CHANGES_QUICK_MAX
        } else {
            DIRECT_CHANGES_MAX
        };
        self.unreported == 0 && commit.changes.len() <= changes_max
    }

    /// Executes a small commit on this thread.
    fn commit_here(&mut self, commit: Arc<Commit>) {
        let executor = self.executor.as_ref();
        let report = executor.and_then(|executor| executor.execute(StoreTask::Commit(commit)));
        if let Some(report) = report {
            let now = self.line.now(&*self.clock);
            self.core.report(report, now);
        }
    }

    /// Searches for expired jobs on a reader thread. If the threads are too busy, a later search follows.
    fn find(&mut self, round: u64, query: ExpiredJobsQuery, limit: usize) {
        let (reader_reports, wake) = (self.reader_reports.0.clone(), self.wake.clone());
        let task = self.ending.reads.push(Box::new(move |reader| {
            let jobs = reader.expired_jobs(&query, limit);
            if reader_reports
                .send(StoreReport::Found { round, jobs })
                .is_ok()
            {
                drop(wake.send(ThreadMessage::Look));
            }
        }));
        if task.is_err() {
            drop(self.reader_reports.0.send(StoreReport::Found {
                round,
                jobs: Ok(Vec::new()),
            }));
        }
    }

    /// Reads rows on a reader thread.
    fn read(&mut self, reads: Vec<RowRead>) {
        let (reports, wake) = (self.reader_reports.0.clone(), self.wake.clone());
        let busy = StoreError::Unreachable {
            path: "the reader threads".to_owned(),
            reason: "too many reads wait".to_owned(),
        };
        let refused: Vec<_> = reads.iter().map(|read| read.clone().fail(&busy)).collect();
        let task = self.ending.reads.push(Box::new(move |reader| {
            let rows = reads.into_iter().map(|read| read.run(reader)).collect();
            if reports.send(StoreReport::Rows(rows)).is_ok() {
                drop(wake.send(ThreadMessage::Look));
            }
        }));
        if task.is_err() {
            drop(self.reader_reports.0.send(StoreReport::Rows(refused)));
            drop(self.wake.send(ThreadMessage::Look));
        }
    }

    fn send_outputs(&mut self) {
        let outputs = self.core.take_outputs();
        if outputs.is_empty() {
            return;
        }
        // A client that has a reply knows that the shard works, and may ask for its health next.
        self.ending.publish_health(self.core.health());
        self.ending.hooks.reach(PipelinePoint::BeforeRelease);
        // A task is woken when all its replies are there.
        let mut wakes = Vec::new();
        let mut has_events = false;
        for output in outputs {
            match output {
                Output::Answer(channel, answer) => wakes.extend(channel.send(answer)),
                Output::Events(events) => {
                    self.ending.hub.add(events);
                    has_events = true;
                }
                Output::Messages(messages) => self.ending.listener.notify(&messages),
                Output::Outbox => self.ending.outbox.send_modify(|times| *times += 1),
                Output::Operations => self.ending.operations.send_modify(|times| *times += 1),
            }
        }
        drop(wakes);
        if has_events {
            self.ending.hub.wake_readers();
        }
        self.ending.hooks.reach(PipelinePoint::AfterRelease);
    }

    /// Waits for the next message, no longer than the core may sleep, and takes all queued ones.
    fn take_messages(&mut self, now: Now) {
        let wanted = self.core.sleep_for(now);
        let at_most = match wanted {
            Some(Duration::ZERO) => wanted,
            wanted => wanted.and_then(|wanted| self.clock.sleep_for(wanted)),
        };
        self.pauses.sleep(now.elapsed.since(Elapsed(0)), at_most);
        let first = match wanted {
            Some(Duration::ZERO) => self.messages.take(),
            _ => self.messages.wait(at_most),
        };
        if let Some(message) = first {
            take_message(&mut self.core, message);
        }
        self.take_queued_messages();
    }

    /// Takes the messages that wait, up to a limit.
    fn take_queued_messages(&mut self) {
        let queued = std::iter::from_fn(|| self.messages.take());
        for message in queued.take(self.batch_max) {
            take_message(&mut self.core, message);
        }
    }

    /// Refuses the messages left in the channel, ends the threads and closes the store.
    fn finish(mut self, cause: &StopCause) {
        while let Some(message) = self.messages.take() {
            take_message(&mut self.core, message);
        }
        self.core.run(self.line.now(&*self.clock));
        self.send_outputs();
        self.store_tasks = None;
        self.executor = None;
        drop(self.core);
        drop(self.messages);
        self.ending.end(cause);
    }
}

fn take_message<R: Reader>(core: &mut Core<R, ReplyChannel>, message: ThreadMessage) {
    match message {
        ThreadMessage::Request(request) => core.push(request),
        ThreadMessage::Requests(requests) => {
            for request in requests {
                core.push(request);
            }
        }
        ThreadMessage::Look => {}
        ThreadMessage::Stop => core.stop(),
    }
}

/// Announces the end of a shard, also if its thread panics.
struct StopGuard {
    hub: Arc<EventHub>,
    reads: Arc<ReadPool>,
    threads: Vec<JoinHandle<()>>,
    health: watch::Sender<Health>,
    outbox: watch::Sender<u64>,
    operations: watch::Sender<u64>,
    listener: Arc<MessageListener>,
    over: watch::Sender<bool>,
    hooks: Hooks,
}

impl StopGuard {
    fn publish_health(&self, health: Health) {
        let is_same =
            std::mem::discriminant(&*self.health.borrow()) == std::mem::discriminant(&health);
        if !is_same {
            self.health.send_replace(health);
        }
    }

    fn end(&mut self, cause: &StopCause) {
        let reason = cause.to_string();
        self.publish_health(Health::Stopped {
            reason: reason.clone(),
        });
        self.hub.close(reason);
        self.reads.close();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the shard has panicked");
            }
        }
        self.hooks.stopped(cause);
        self.over.send_replace(true);
    }
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "a rule of the engine was broken; see the log".to_owned();
            self.threads.clear();
            self.end(&StopCause::InvariantBroken { reason });
        }
    }
}
