//! A broken invariant ends the shard: no caller waits forever, and nothing durable is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::kit::{Fault, MemoryStore, TestShard, enqueue, ids, lease, new_job, settings};
use ganger_shard::{CallError, Health, PipelinePoint, StopCause};
use ganger_types::{JobState, Namespace};

const WAIT: Duration = Duration::from_secs(60);

/// Asserts that the shard has ended with a broken invariant, reports it everywhere, and leaves no caller waiting.
async fn assert_broken(mut bench: TestShard) {
    let cause = bench.stopped.wait_for(Option::is_some).await;
    let cause = cause.expect("told").clone();
    assert!(
        matches!(cause, Some(StopCause::InvariantBroken { .. })),
        "{cause:?}"
    );
    let Health::Stopped { reason } = bench.handle.health() else {
        panic!("it is {:?}", bench.handle.health());
    };
    assert!(reason.contains("see the log"), "{reason}");
    let refused = bench.handle.call(enqueue(vec![new_job("a", "p")])).await;
    match refused {
        Err(CallError::Unavailable { reason: told, .. }) => assert_eq!(told, reason),
        other => panic!("it still answers: {other:?}"),
    }
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_shard_ends_it_and_leaves_nobody_waiting() {
    let breaks = Arc::new(AtomicBool::new(false));
    let hook = Arc::clone(&breaks);
    let at_point = Arc::new(move |point| {
        assert!(
            point != PipelinePoint::BeforeRelease || !hook.load(Ordering::Relaxed),
            "as the test wants"
        );
    });
    let store = MemoryStore::default();
    let bench = TestShard::start_hooked(settings(), store.clone(), Some(at_point)).await;
    let mut events = bench.handle.events(None).expect("room");
    let waiting = tokio::spawn({
        let handle = bench.handle.clone();
        async move { handle.lease(lease(&["b"], 1), WAIT).await }
    });
    loop {
        let metrics = bench.handle.metrics_now().await.expect("in service");
        if metrics.gauges.contains(&("waiting_workers", 1)) {
            break;
        }
    }
    // The gauge may come from a turn after the answer. The next answer follows all outputs of that turn, so none is
    // left at which the shard would break before it has taken the job.
    bench.handle.metrics_now().await.expect("in service");
    breaks.store(true, Ordering::Relaxed);
    let lost = bench.handle.call(enqueue(vec![new_job("a", "p")])).await;
    assert!(
        matches!(lost, Err(CallError::Unavailable { .. })),
        "{lost:?}"
    );
    let waiting = waiting.await.expect("no panic");
    assert!(
        matches!(waiting, Err(CallError::Unavailable { .. })),
        "{waiting:?}"
    );
    // The subscription ends after the events published before.
    while events.next().await.is_ok() {}
    assert_broken(bench).await;
    // It broke after the commit: the job is there.
    let bench = TestShard::start_with(settings(), store).await;
    let jobs = bench.handle.lease(lease(&["a"], 1), Duration::ZERO).await;
    assert_eq!(jobs.expect("in service").len(), 1);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_store_ends_the_shard_and_loses_nothing_acknowledged() {
    let store = MemoryStore::default();
    let bench = TestShard::start_with(settings(), store.clone()).await;
    let id = ids(bench.handle.call(enqueue(vec![new_job("a", "p")])).await).remove(0);
    bench.control.script(&[Fault::Panics]);
    // The clock does not move, so only the end of the store's thread can wake the shard.
    let lost = bench.handle.call(enqueue(vec![new_job("a", "q")])).await;
    assert!(
        matches!(lost, Err(CallError::Unavailable { .. })),
        "{lost:?}"
    );
    assert_broken(bench).await;
    let bench = TestShard::start_with(settings(), store).await;
    let job = bench.handle.job(&Namespace::default(), &id).await;
    let job = job.expect("readable").expect("it was acknowledged");
    assert_eq!(job.record.state, JobState::Ready);
    bench.handle.stop().await;
}
