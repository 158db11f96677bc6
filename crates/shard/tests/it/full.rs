//! Full devices, and stores that cannot be read: what continues, what is refused, and that no job loses an attempt.

use std::time::Duration;

use ganger_shard::{CallError, Delivery, Health, Settings};
use ganger_store::Reserve;
use ganger_types::command::{NewJob, Renew};
use ganger_types::query::Query;
use ganger_types::{Command, JobId, JobState, Namespace, Reply, RetryPolicy};

use crate::kit::{
    Fault, MemoryStore, TestShard, complete, enqueue, held, ids, lease, new_job, poll_once,
    settings,
};

const WAIT: Duration = Duration::from_secs(60);
const OPEN: Reserve = Reserve {
    held: 0,
    wanted: 1 << 20,
    is_open: true,
};
const WHOLE: Reserve = Reserve {
    held: 1 << 20,
    wanted: 1 << 20,
    is_open: false,
};

fn is_full<T>(answer: &Result<T, CallError>) -> bool {
    matches!(answer, Err(CallError::Full { .. }))
}

async fn bench_without_cache() -> TestShard {
    let settings = Settings {
        blob_cache_bytes: 0,
        ..settings()
    };
    TestShard::start_with(settings, MemoryStore::default()).await
}

/// Enqueues a job that fails for good with its first failure.
async fn enqueue_one_try(bench: &TestShard) -> JobId {
    let job = NewJob {
        retry: Some(RetryPolicy {
            retries_max: 0,
            ..RetryPolicy::default()
        }),
        ..new_job("a", "p")
    };
    let jobs = ids(bench.handle.call(enqueue(vec![job])).await);
    jobs.into_iter().next().expect("one was enqueued")
}

async fn state_and_counted(bench: &TestShard, id: &JobId) -> (JobState, u32) {
    let found = bench.handle.job(&Namespace::default(), id).await;
    let job = found.expect("readable").expect("it is there");
    (job.record.state, job.record.attempts_counted)
}

async fn take(bench: &TestShard, wait_for: Duration) -> Result<Vec<Delivery>, CallError> {
    bench.handle.lease(lease(&["a"], 1), wait_for).await
}

/// Round trips to the shard that a second of the test's clock takes at least, unless the health changes before. The store
/// looks at its device on a thread of its own, which the clock must not leave behind: on a busy machine a minute would
/// pass, and leases expire, before the first look is over.
const ROUND_TRIPS_A_SECOND: usize = 500;

/// Advances the clock until the health is as wanted.
async fn pass_until(bench: &TestShard, health: Health) {
    while bench.handle.health() != health {
        bench.clock.advance(Duration::from_secs(1));
        for _ in 0..ROUND_TRIPS_A_SECOND {
            // The shard has seen that second, and what the store has answered by now.
            bench.handle.metrics_now().await.expect("in service");
            if bench.handle.health() == health {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rel_r1_a_job_that_cannot_be_read_is_given_back_forever_and_never_fails() {
    let bench = bench_without_cache().await;
    let id = enqueue_one_try(&bench).await;
    bench.control.fail_reads(true);
    for _ in 0..150 {
        let refused = take(&bench, Duration::ZERO).await;
        assert!(
            matches!(refused, Err(CallError::Unavailable { .. })),
            "{refused:?}"
        );
        bench.clock.advance(Duration::from_secs(2));
    }
    assert!(
        bench.control.payload_reads() > 100,
        "it was tried again and again"
    );
    assert_eq!(state_and_counted(&bench, &id).await, (JobState::Ready, 0));
    bench.control.fail_reads(false);
    let deliveries = take(&bench, Duration::ZERO).await.expect("readable");
    let report = bench.handle.call(complete(&deliveries[0], None)).await;
    report.expect("accepted");
    assert_eq!(
        state_and_counted(&bench, &id).await,
        (JobState::Succeeded, 1)
    );
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_cannot_be_read_are_tried_again_after_a_pause_and_not_in_a_circle() {
    let bench = bench_without_cache().await;
    enqueue_one_try(&bench).await;
    enqueue_one_try(&bench).await;
    bench.control.fail_reads(true);
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let handle = bench.handle.clone();
            tokio::spawn(async move { handle.lease(lease(&["a"], 1), WAIT).await })
        })
        .collect();
    // The clock does not move: each snapshot would reveal an endless loop.
    for _ in 0..200 {
        bench.handle.metrics_now().await.expect("in service");
    }
    assert!(
        bench.control.payload_reads() <= 2,
        "{}",
        bench.control.payload_reads()
    );
    bench.control.fail_reads(false);
    bench.clock.advance(Duration::from_secs(2));
    while waiting
        .iter()
        .filter(|waiting| waiting.is_finished())
        .count()
        < 2
    {
        tokio::task::yield_now().await;
    }
    bench.clock.advance(WAIT);
    let mut delivered = 0;
    for waiting in waiting {
        let deliveries = waiting.await.expect("no panic").expect("in service");
        delivered += deliveries.len();
    }
    assert_eq!(
        delivered, 2,
        "those who waited get them without asking again"
    );
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rel_d9_from_the_reserve_running_jobs_end_and_none_is_started() {
    let bench = bench_without_cache().await;
    bench.control.set_reserve(WHOLE);
    enqueue_one_try(&bench).await;
    let second = enqueue_one_try(&bench).await;
    let running = take(&bench, Duration::ZERO).await.expect("there");
    bench.control.set_reserve(OPEN);
    // The commit that uses the reserve reports it, without a check of the device.
    let renew = Command::Renew(Box::new(Renew {
        held: held(&running[0]),
        lease_for: None,
        progress: None,
        payload: None,
    }));
    bench.handle.call(renew).await.expect("renewals go on");
    bench
        .handle
        .call(complete(&running[0], Some("r")))
        .await
        .expect("reports go on");
    assert_eq!(bench.handle.health(), Health::Full);
    assert!(is_full(&take(&bench, Duration::ZERO).await));
    let refused = bench.handle.call(enqueue(vec![new_job("a", "p")])).await;
    assert!(is_full(&refused), "{refused:?}");
    let waiting = tokio::spawn({
        let handle = bench.handle.clone();
        async move { handle.lease(lease(&["a"], 1), WAIT).await }
    });
    bench.handle.metrics_now().await.expect("in service");
    bench.control.set_reserve(WHOLE);
    // One check of the device is enough.
    bench.clock.advance(Duration::from_secs(2));
    let deliveries = waiting.await.expect("no panic").expect("in service");
    assert_eq!(deliveries[0].grant.job, second);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rel_d9_without_any_room_reads_go_on_and_leases_are_whole_once_there_is_some() {
    let bench = bench_without_cache().await;
    let id = enqueue_one_try(&bench).await;
    let lost = enqueue_one_try(&bench).await;
    let running = take(&bench, Duration::ZERO).await.expect("there");
    let undelivered = take(&bench, Duration::ZERO).await.expect("there");
    assert_eq!(undelivered[0].grant.job, lost);
    bench.control.set_free(0);
    pass_until(&bench, Health::Full).await;
    bench.control.script(&[Fault::Full; 3]);
    let report = complete(&running[0], Some("r"));
    let refused = bench.handle.call(report.clone()).await;
    assert!(is_full(&refused), "{refused:?}");
    let arrived = bench.control.arrived();
    for _ in 0..100 {
        let refused = bench.handle.call(report.clone()).await;
        assert!(is_full(&refused), "{refused:?}");
        let query = Command::Query(Box::new(Query::Queues(Namespace::default(), None, 1_000)));
        bench.handle.call(query).await.expect("reads go on");
        bench.clock.advance(Duration::from_secs(3));
    }
    assert_eq!(
        bench.control.arrived(),
        arrived,
        "nothing was tried without room"
    );
    bench.control.clear_script();
    bench.control.set_free(1 << 40);
    pass_until(&bench, Health::Ready).await;
    // More time than a lease has passed, and it could not be renewed.
    bench
        .handle
        .call(report)
        .await
        .expect("it still has its lease");
    assert_eq!(
        state_and_counted(&bench, &id).await,
        (JobState::Succeeded, 1)
    );
    bench.handle.stop().await;
}

/// A query shares its turn with the writes of others. That those find no space is no reason to refuse the query.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_in_the_turn_of_a_write_that_finds_no_space_is_answered() {
    let bench = TestShard::start().await;
    ids(bench.handle.call(enqueue(vec![new_job("a", "1")])).await);
    let query = || Command::Query(Box::new(Query::Queues(Namespace::default(), None, 10)));
    bench.control.script(&[Fault::None, Fault::Full]);
    bench.control.hold();
    let arrived = bench.control.arrived();
    let call = |command: Command| {
        let handle = bench.handle.clone();
        tokio::spawn(async move { handle.call(command).await })
    };
    let first = call(enqueue(vec![new_job("a", "2")]));
    bench.control.wait_arrived(arrived + 1);
    // Both arrive while the first write is in the store, so they share the next turn.
    let mut write = Box::pin(bench.handle.call(enqueue(vec![new_job("a", "3")])));
    let mut read = Box::pin(bench.handle.call(query()));
    assert!(poll_once(write.as_mut()).is_none());
    assert!(poll_once(read.as_mut()).is_none());
    bench.control.release();
    ids(first.await.expect("no panic"));
    let refused = write.await;
    assert!(is_full(&refused), "{refused:?}");
    let answered = read.await.expect("the query is answered");
    let Reply::Queues(queues) = answered else {
        panic!("{answered:?}");
    };
    assert_eq!(
        queues[0].counts.ready, 2,
        "the write that failed is not seen"
    );
    bench.handle.stop().await;
}
