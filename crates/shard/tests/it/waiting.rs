//! Waiting requests: woken exactly, in order, without loss (`rel T5`, `kickq R6, R7, R37, R38, R44`).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::kit::{TestShard, complete, enqueue, ids, lease, new_job, poll_once};
use ganger_shard::{CallError, Settings};
use ganger_types::command::{Cancel, NewJob, Selection};
use ganger_types::{Command, JobId, JobState, Namespace, Queue, RequestId};

const WAIT: Duration = Duration::from_secs(60);

fn number(bench: &TestShard, wanted: &str) -> u64 {
    let shown = bench.handle.metrics();
    let all = shown.counters.into_iter().chain(shown.gauges);
    all.into_iter()
        .find(|(name, _)| *name == wanted)
        .map_or(0, |(_, value)| value)
}

async fn until(bench: &TestShard, name: &str, value: u64) {
    while number(bench, name) != value {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_job_wakes_one_of_a_thousand_waiting_workers() {
    let bench = TestShard::start().await;
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let handle = bench.handle.clone();
        workers.spawn(async move { handle.lease(lease(&["a", "b"], 1), WAIT).await });
    }
    until(&bench, "waiting_workers", 1_000).await;
    for count in 1..=500 {
        let name = if count % 2 == 0 { "a" } else { "b" };
        let id = ids(bench.handle.call(enqueue(vec![new_job(name, "p")])).await).remove(0);
        let deliveries = workers
            .join_next()
            .await
            .expect("one is woken")
            .expect("no panic");
        assert_eq!(deliveries.expect("granted")[0].grant.job, id);
        assert_eq!(number(&bench, "wakes_total"), count);
        assert_eq!(number(&bench, "waiting_workers"), 1_000 - count);
    }
    ids(bench
        .handle
        .call(enqueue((0..500).map(|_| new_job("a", "p")).collect()))
        .await);
    let mut delivered = BTreeSet::new();
    while let Some(deliveries) = workers.join_next().await {
        let deliveries = deliveries.expect("no panic").expect("granted");
        assert!(
            delivered.insert(deliveries[0].grant.job.clone()),
            "one job, one worker"
        );
    }
    assert_eq!(delivered.len(), 500);
    assert_eq!(number(&bench, "wakes_total"), 1_000);
    assert_eq!(number(&bench, "wakes_served_total"), 1_000);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_waiters_cause_no_work() {
    let bench = TestShard::start().await;
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..10_000 {
        let handle = bench.handle.clone();
        workers.spawn(async move { handle.lease(lease(&["a"], 1), WAIT).await });
    }
    until(&bench, "waiting_workers", 10_000).await;
    let before = (
        number(&bench, "commands_total"),
        number(&bench, "wakes_total"),
    );
    for _ in 0..20 {
        bench.clock.advance(Duration::from_secs(1));
        // After a round trip through the shard it has seen the time.
        bench.handle.metrics_now().await.expect("in service");
    }
    assert_eq!(number(&bench, "wakes_total"), before.1);
    // Only this test's own snapshot has been asked for.
    assert!(
        number(&bench, "commands_total") - before.0 <= 100,
        "nobody polls"
    );
    bench.clock.advance(WAIT);
    while let Some(answer) = workers.join_next().await {
        assert_eq!(
            answer.expect("no panic").expect("the time is over"),
            Vec::new()
        );
    }
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_name_queues_with_live_jobs_and_a_bounded_number_of_them() {
    let bench = TestShard::start().await;
    let queue = |number: usize| format!("q{number:04}");
    let job = |number: usize| NewJob {
        queue: Queue::new(queue(number)).expect("short"),
        ..new_job("a", "p")
    };
    let jobs = |metrics: std::ops::Range<usize>| enqueue(metrics.map(job).collect());
    let named = async || bench.handle.metrics_now().await.expect("counted").queues;
    let first = ids(bench.handle.call(jobs(0..999)).await);
    assert_eq!(named().await.len(), 999);
    assert_eq!(number(&bench, "queues_left_out"), 0);
    ids(bench.handle.call(jobs(999..1_005)).await);
    let shown = named().await;
    assert_eq!(shown.len(), 1_001);
    let (namespace, queue_of_others, counts, _) = &shown[1_000];
    assert_eq!(namespace.as_bytes(), b"");
    assert_eq!(queue_of_others.to_string(), "other");
    assert_eq!(counts.ready, 5);
    assert_eq!(number(&bench, "queues_left_out"), 5);
    // A queue without live jobs makes room for one that has some.
    let cancel = Cancel {
        namespace: Namespace::default(),
        jobs: Selection::Jobs(first[..5].to_vec()),
        reason: String::new(),
    };
    let cancel = Command::Cancel(Box::new(cancel));
    bench.handle.call(cancel).await.expect("cancelled");
    let shown = named().await;
    assert_eq!(shown.len(), 1_000);
    assert_eq!(shown[0].1.to_string(), queue(5));
    assert_eq!(number(&bench, "queues_left_out"), 0);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_wait_never_swallows_a_job() {
    let bench = TestShard::start().await;
    let mut delivered = 0;
    for round in 0..10_000_u32 {
        let waiting = tokio::spawn({
            let handle = bench.handle.clone();
            async move { handle.lease(lease(&["a"], 1), WAIT).await }
        });
        let creating = tokio::spawn({
            let handle = bench.handle.clone();
            async move { ids(handle.call(enqueue(vec![new_job("a", "p")])).await).remove(0) }
        });
        for _ in 0..round % 50 {
            tokio::task::yield_now().await;
        }
        let id = if round % 3 == 0 {
            let id = creating.await.expect("no panic");
            waiting.abort();
            id
        } else {
            waiting.abort();
            creating.await.expect("no panic")
        };
        let deliveries = match waiting.await {
            Ok(deliveries) => {
                delivered += 1;
                deliveries.expect("granted")
            }
            // The job is still ready, or will be once its grant has come back.
            Err(_) => bench
                .handle
                .lease(lease(&["a"], 2), WAIT)
                .await
                .expect("there"),
        };
        let delivered: Vec<_> = deliveries.iter().map(|one| one.grant.job.clone()).collect();
        assert_eq!(delivered, [id]);
        bench
            .handle
            .call(complete(&deliveries[0], None))
            .await
            .expect("the lease is ours");
    }
    assert!(
        (1..10_000).contains(&delivered),
        "both ways were taken, {delivered} times the first"
    );
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_waiter_left_before_the_commit_goes_back_to_its_place_uncounted() {
    let bench = TestShard::start().await;
    let all = ids(bench
        .handle
        .call(enqueue(vec![new_job("a", "1"), new_job("a", "2")]))
        .await);
    let arrived = bench.control.arrived();
    bench.control.hold();
    let waiting = tokio::spawn({
        let handle = bench.handle.clone();
        async move { handle.lease(lease(&["a"], 1), WAIT).await }
    });
    bench.control.wait_arrived(arrived + 1);
    waiting.abort();
    assert!(
        waiting.await.is_err(),
        "it was cancelled while its grant was being written"
    );
    bench.control.release();
    until(&bench, "undelivered_total", 1).await;
    let deliveries = bench
        .handle
        .lease(lease(&["a"], 2), Duration::ZERO)
        .await
        .expect("there");
    let delivered: Vec<_> = deliveries.iter().map(|one| one.grant.job.clone()).collect();
    assert_eq!(delivered, all, "the first one is first again");
    assert_eq!(
        deliveries[0].grant.attempt, 2,
        "numbers are never used twice"
    );
    assert_eq!(
        deliveries[0].grant.retries_left, deliveries[1].grant.retries_left,
        "uncounted"
    );
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_nobody_gets_is_released_before_the_shard_stops() {
    let bench = TestShard::start().await;
    ids(bench.handle.call(enqueue(vec![new_job("a", "1")])).await);
    let arrived = bench.control.arrived();
    bench.control.hold();
    let waiting = tokio::spawn({
        let handle = bench.handle.clone();
        async move { handle.lease(lease(&["a"], 1), WAIT).await }
    });
    bench.control.wait_arrived(arrived + 1);
    waiting.abort();
    assert!(waiting.await.is_err(), "it was cancelled");
    // The shard is asked to stop while the grant is being written.
    let mut stopped = Box::pin(bench.handle.stop());
    assert!(poll_once(&mut stopped).is_none());
    bench.control.release();
    stopped.await;
    let counters = bench.handle.metrics().counters;
    let released = counters
        .iter()
        .find(|(name, _)| *name == "undelivered_total");
    assert_eq!(released.expect("it is counted").1, 1);
    assert_eq!(bench.control.arrived(), arrived + 2, "it is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_of_a_request_keeps_the_grants_that_its_first_sender_lost() {
    let bench = TestShard::start().await;
    ids(bench.handle.call(enqueue(vec![new_job("a", "1")])).await);
    let mut named = lease(&["a"], 1);
    named.request = Some(RequestId::from_static("r1"));
    let arrived = bench.control.arrived();
    bench.control.hold();
    let first = tokio::spawn({
        let (handle, lease) = (bench.handle.clone(), named.clone());
        async move { handle.lease(lease, WAIT).await }
    });
    bench.control.wait_arrived(arrived + 1);
    // The request reaches the shard once it is polled, before the grants of the first one can come back.
    let mut again = Box::pin(bench.handle.lease(named, WAIT));
    assert!(poll_once(&mut again).is_none());
    first.abort();
    assert!(first.await.is_err());
    bench.control.release();
    let deliveries = again.await.expect("the same grants");
    assert_eq!(deliveries[0].grant.attempt, 1);
    // The first one's undelivered jobs may still be on their way back; they must not end the repeat's lease.
    bench.handle.metrics_now().await.expect("in service");
    bench
        .handle
        .call(complete(&deliveries[0], None))
        .await
        .expect("the lease is ours");
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_requests_are_bounded() {
    let settings = Settings {
        waiters_max: 2,
        ..crate::kit::settings()
    };
    let bench = TestShard::start_with(settings, crate::kit::MemoryStore::default()).await;
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let handle = bench.handle.clone();
        workers.spawn(async move { handle.lease(lease(&["a"], 1), WAIT).await });
    }
    until(&bench, "waiting_workers", 2).await;
    let third = bench.handle.lease(lease(&["a"], 1), WAIT).await;
    assert!(
        matches!(third, Err(CallError::Overloaded { limit: 2, .. })),
        "{third:?}"
    );
    assert_eq!(
        bench.handle.lease(lease(&["a"], 1), Duration::ZERO).await,
        Ok(Vec::new())
    );
    workers.shutdown().await;
    until(&bench, "waiting_workers", 0).await;
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_job_is_told_whether_it_came_before_the_wait_or_after() {
    let bench = TestShard::start().await;
    let space = Namespace::default();
    for round in 0..2_000 {
        let id = ids(bench.handle.call(enqueue(vec![new_job("a", "p")])).await).remove(0);
        let deliveries = bench
            .handle
            .lease(lease(&["a"], 1), WAIT)
            .await
            .expect("there");
        let waiting = tokio::spawn({
            let (handle, space, id) = (bench.handle.clone(), space.clone(), id.clone());
            async move {
                if round % 2 == 0 {
                    tokio::task::yield_now().await;
                }
                handle.wait(&space, &id, WAIT).await
            }
        });
        bench
            .handle
            .call(complete(&deliveries[0], Some("r")))
            .await
            .expect("accepted");
        let job = waiting
            .await
            .expect("no panic")
            .expect("told")
            .expect("there");
        assert_eq!((job.record.id, job.record.state), (id, JobState::Succeeded));
    }
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_its_time_or_with_the_removal_of_the_job() {
    let bench = TestShard::start().await;
    let space = Namespace::default();
    let unknown = JobId::new("unknown").expect("short");
    assert_eq!(bench.handle.wait(&space, &unknown, WAIT).await, Ok(None));
    let id = ids(bench.handle.call(enqueue(vec![new_job("a", "p")])).await).remove(0);
    let now = bench
        .handle
        .wait(&space, &id, Duration::ZERO)
        .await
        .expect("read")
        .expect("there");
    assert_eq!(now.record.state, JobState::Ready);

    let spawn_wait = || {
        let (handle, space, id) = (bench.handle.clone(), space.clone(), id.clone());
        tokio::spawn(async move { handle.wait(&space, &id, WAIT).await })
    };
    let waiting = spawn_wait();
    until(&bench, "waiting_ends", 1).await;
    bench.clock.advance(WAIT);
    let late = waiting
        .await
        .expect("no panic")
        .expect("read")
        .expect("there");
    assert_eq!(late.record.state, JobState::Ready);

    let waiting = spawn_wait();
    until(&bench, "waiting_ends", 1).await;
    let delete = ganger_types::command::Delete {
        namespace: space.clone(),
        jobs: vec![id.clone()],
    };
    bench
        .handle
        .call(ganger_types::Command::Delete(delete))
        .await
        .expect("accepted");
    assert_eq!(waiting.await.expect("no panic"), Ok(None));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn due_jobs_and_expired_leases_wake_waiting_workers() {
    let bench = TestShard::start().await;
    let mut later = new_job("a", "later");
    later.start = ganger_types::command::Start::After(Duration::from_secs(5));
    ids(bench.handle.call(enqueue(vec![later])).await);
    let mut waiting = Box::pin(bench.handle.lease(lease(&["a"], 1), WAIT));
    assert!(poll_once(&mut waiting).is_none());
    bench.clock.advance(Duration::from_secs(5));
    let deliveries = waiting.await.expect("granted");
    assert_eq!(deliveries[0].grant.attempt, 1);
    let mut waiting = Box::pin(
        bench
            .handle
            .lease(lease(&["a"], 1), Duration::from_secs(300)),
    );
    assert!(poll_once(&mut waiting).is_none());
    until(&bench, "waiting_workers", 1).await;
    bench.clock.advance(Duration::from_secs(61));
    assert_eq!(waiting.await.expect("granted")[0].grant.attempt, 2);
    assert_eq!(number(&bench, "lease_expired_total"), 1);
    bench.handle.stop().await;
}
