//! A shard over a store on another machine: its commits end later, and others may take it over.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use ganger_shard::core::{StoreExecutor, StoreReport, StoreTask, TaskProgress};
use ganger_shard::{CallError, Handle, Health, Hooks, ManualClock, Settings, Shard, StopCause};
use ganger_store::memory::MemoryReader;
use ganger_store::{CommitError, Loaded, MemoryStore, Opened, Store, StoreError};
use ganger_types::{Commit, Epoch, Meta, Timestamp};
use tokio::sync::watch;

use crate::kit::{enqueue, ids, new_job, settings};

/// How a commit ends.
#[derive(Clone, Copy)]
enum End {
    /// As the rows say: written, or refused because it does not follow the last one.
    Applied,
    /// The commit is not written.
    Refused,
    /// Written, and the answer is lost.
    UnknownButThere,
    /// Not written, and the answer is lost.
    UnknownAndLost,
}

#[derive(Default)]
struct Line {
    /// Commits that were begun and have not ended.
    under_way: VecDeque<Arc<Commit>>,
    /// Number of commits that were ever begun.
    begun: u64,
    /// How the next commits end. They wait for that.
    ends: VecDeque<End>,
    is_unreachable: bool,
    /// Whether the store does not answer when it is read.
    is_silent: bool,
}

/// The line to a store, in the hands of a test.
#[derive(Clone, Default)]
struct Remote {
    shared: Arc<(Mutex<Line>, Condvar)>,
}

impl Remote {
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.shared.0.lock().expect("no test panics with it")
    }

    fn change(&self, change: impl FnOnce(&mut Line)) {
        change(&mut self.lock());
        self.shared.1.notify_all();
    }

    /// Lets the next commits end so.
    fn end(&self, ends: &[End]) {
        self.change(|line| line.ends.extend(ends));
    }

    fn wait_until(&self, is_enough: impl Fn(&Line) -> bool) -> MutexGuard<'_, Line> {
        let waited = self
            .shared
            .1
            .wait_while(self.lock(), |line| !is_enough(line));
        waited.expect("no test panics with it")
    }

    /// Waits until this number of commits was begun.
    fn wait_begun(&self, count: u64) {
        tokio::task::block_in_place(|| drop(self.wait_until(|line| line.begun >= count)));
    }
}

/// A memory store behind that line.
struct RemoteStore {
    inner: MemoryStore,
    remote: Remote,
}

impl RemoteStore {
    fn reach(&self) -> Result<(), StoreError> {
        if self.remote.lock().is_unreachable {
            return Err(StoreError::Unreachable {
                path: "memory".to_owned(),
                reason: "as the test wants".to_owned(),
            });
        }
        Ok(())
    }
}

impl Store for RemoteStore {
    type Reader = MemoryReader;

    fn open(&mut self) -> Result<Opened, StoreError> {
        self.reach()?;
        self.inner.open()
    }

    fn take_back(&mut self, ours: Epoch) -> Result<Opened, StoreError> {
        self.reach()?;
        self.inner.take_back(ours)
    }

    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        drop(self.remote.wait_until(|line| !line.is_silent));
        self.inner.load(each)
    }

    fn commit(&mut self, _: &Arc<Commit>) -> Result<(), CommitError> {
        unreachable!("a shard begins the commits of a remote store")
    }

    fn begin(&mut self, commit: &Arc<Commit>) -> Option<Result<(), CommitError>> {
        self.remote.change(|line| {
            line.begun += 1;
            line.under_way.push_back(Arc::clone(commit));
        });
        None
    }

    fn finished(&mut self) -> Option<(u64, Result<(), CommitError>)> {
        if self.remote.lock().under_way.is_empty() {
            return None;
        }
        let mut line = self.remote.wait_until(|line| !line.ends.is_empty());
        let (commit, end) = (line.under_way.pop_front()?, line.ends.pop_front()?);
        drop(line);
        let unknown = || CommitError::Unknown("the answer was lost".to_owned());
        let ended = match end {
            End::Applied => self.inner.commit(&commit),
            End::Refused => Err(CommitError::NotApplied {
                reason: "as the test wants".to_owned(),
                is_full: false,
            }),
            End::UnknownButThere => self.inner.commit(&commit).and(Err(unknown())),
            End::UnknownAndLost => Err(unknown()),
        };
        Some((commit.sequence, ended))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn reader(&self) -> Result<MemoryReader, StoreError> {
        self.inner.reader()
    }
}

struct Bench {
    store: MemoryStore,
    remote: Remote,
    clock: Arc<ManualClock>,
    handle: Handle,
    stopped: watch::Receiver<Option<StopCause>>,
}

/// Starts a shard that closes a turn after each command.
async fn start() -> Bench {
    let settings = Settings {
        turn_commands_max: 1,
        ..settings()
    };
    let clock = ManualClock::new(Timestamp(1_700_000_000_000_000));
    let (told, stopped) = watch::channel(None);
    let hooks = Hooks {
        on_stopped: Some(Arc::new(move |cause: &StopCause| {
            told.send_replace(Some(cause.clone()));
        })),
        at_point: None,
    };
    let (store, remote) = (MemoryStore::new(), Remote::default());
    let behind = RemoteStore {
        inner: store.clone(),
        remote: remote.clone(),
    };
    let handle = Shard::start(behind, settings, clock.clone(), hooks).expect("it opens");
    handle.ready().await;
    Bench {
        store,
        remote,
        clock,
        handle,
        stopped,
    }
}

type Submitted = tokio::task::JoinHandle<Result<ganger_types::Reply, CallError>>;

impl Bench {
    fn submit(&self) -> Submitted {
        let handle = self.handle.clone();
        tokio::spawn(async move { handle.call(enqueue(vec![new_job("a", "p")])).await })
    }

    /// Submits a job and waits until its commit was begun.
    fn begin(&self) -> Submitted {
        let before = self.remote.lock().begun;
        let submitted = self.submit();
        self.remote.wait_begun(before + 1);
        submitted
    }
}

async fn refused(submitted: Submitted) -> String {
    match submitted.await.expect("it does not panic") {
        Err(error @ CallError::Unavailable { .. }) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_wait_for_their_commit_and_the_shard_for_none() {
    let bench = start().await;
    let first = bench.begin();
    let second = bench.submit();
    // A read of the engine is answered while the store is silent.
    assert_eq!(bench.handle.health(), Health::Ready);
    assert!(!first.is_finished() && !second.is_finished());
    bench.remote.end(&[End::Applied, End::Applied]);
    ids(first.await.expect("it does not panic"));
    ids(second.await.expect("it does not panic"));
    assert_eq!(bench.store.sequence(), 2);
    bench.handle.stop().await;
}

/// Begins two commits, of which the second is sent before the first has ended, and returns the report of the first.
fn two_under_way(ends: [End; 2]) -> CommitError {
    let remote = Remote::default();
    let inner = MemoryStore::new();
    let epoch = inner.clone().open().expect("it opens").epoch;
    let store = RemoteStore {
        inner,
        remote: remote.clone(),
    };
    let mut executor = StoreExecutor::new(store, Arc::default(), Hooks::default());
    for sequence in [1, 2] {
        let commit = Commit {
            epoch,
            sequence,
            meta: Meta::default(),
            changes: Vec::new(),
        };
        let begun = executor.execute(StoreTask::Commit(Arc::new(commit)));
        assert!(matches!(begun, TaskProgress::Begun));
    }
    remote.end(&ends);
    let mut reports = executor.finish();
    assert_eq!((reports.len(), executor.under_way()), (2, 0));
    assert!(reports.pop().flatten().is_none(), "the second is dropped");
    match reports.pop().flatten() {
        Some(StoreReport::Failed { sequence: 1, error }) => error,
        _ => panic!("the first has failed"),
    }
}

#[test]
fn a_commit_behind_one_that_failed_is_dropped() {
    // The second finds that the record before it is missing.
    let error = two_under_way([End::Refused, End::Applied]);
    assert!(matches!(error, CommitError::NotApplied { .. }), "{error}");
}

#[test]
fn a_failure_is_unknown_while_a_later_commit_may_still_arrive() {
    let error = two_under_way([End::Refused, End::UnknownAndLost]);
    assert!(matches!(error, CommitError::Unknown(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_is_settled_by_taking_the_store_back() {
    let bench = start().await;
    for (end, is_there) in [(End::UnknownButThere, true), (End::UnknownAndLost, false)] {
        let submitted = bench.begin();
        bench.remote.end(&[end]);
        let answer = submitted.await.expect("it does not panic");
        assert_eq!(answer.is_ok(), is_there, "{answer:?}");
        bench.remote.end(&[End::Applied]);
        ids(bench.submit().await.expect("it does not panic"));
    }
    // Each take raises the epoch, so that a straggler of the old one is shut out.
    let next = bench.store.clone().open().expect("it opens").epoch;
    assert_eq!(next, Epoch(4));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_somebody_else_has_taken_is_not_taken_back() {
    let mut bench = start().await;
    let submitted = bench.begin();
    let theirs = bench.store.clone().open().expect("it opens").epoch;
    bench.remote.end(&[End::UnknownAndLost]);
    let reason = refused(submitted).await;
    assert!(reason.contains("another process owns it"), "{reason}");
    let stopped = bench.stopped.wait_for(Option::is_some).await;
    let cause = stopped.expect("it is reported").clone();
    assert!(matches!(cause, Some(StopCause::Fenced { .. })), "{cause:?}");
    let still = bench.store.clone().take_back(theirs);
    assert!(still.is_ok(), "the other owner was not shut out: {still:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_reached_refuses_calls_until_it_answers() {
    let bench = start().await;
    let submitted = bench.begin();
    bench.remote.change(|line| line.is_unreachable = true);
    bench.remote.end(&[End::UnknownButThere]);
    let reason = refused(submitted).await;
    assert!(reason.contains("as the test wants"), "{reason}");
    let health = bench.handle.health();
    assert!(matches!(health, Health::Unreachable { .. }), "{health:?}");
    bench.remote.change(|line| line.is_unreachable = false);
    bench.clock.advance(Duration::from_secs(2));
    assert_eq!(bench.handle.ready().await, Health::Ready);
    // The job whose answer was lost is there.
    bench.remote.end(&[End::Applied]);
    ids(bench.submit().await.expect("it does not panic"));
    assert_eq!(bench.store.sequence(), 2);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_took_no_write_is_unreachable_until_it_is_read_again() {
    let bench = start().await;
    let submitted = bench.begin();
    bench.remote.change(|line| line.is_silent = true);
    bench.remote.end(&[End::Refused]);
    let reason = refused(submitted).await;
    assert!(reason.contains("did not take the write"), "{reason}");
    let health = bench.handle.health();
    bench.remote.change(|line| line.is_silent = false);
    assert!(matches!(health, Health::Unreachable { .. }), "{health:?}");
    assert_eq!(bench.handle.ready().await, Health::Ready);
    bench.handle.stop().await;
}
