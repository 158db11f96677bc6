//! Commits that fail, or may have; restarts; full devices; damage; overload.

use std::time::Duration;

use ganger_shard::{CallError, Clock, Health, Hooks, ManualClock, Settings, Shard, StopCause};

use crate::kit::{
    Fault, GatedStore, MemoryStore, StoreControl, TestShard, complete, enqueue, held, ids, lease,
    new_job,
};
use ganger_types::command::PutSchedule;
use ganger_types::{
    Bytes, CatchUp, Command, JobState, Kind, Namespace, Overlap, Priority, Queue, ScheduleId,
    ScheduleRecord, ScheduleSpec, Timestamp,
};

const WAIT: Duration = Duration::from_secs(60);

async fn jobs_there(bench: &TestShard) -> usize {
    let query = ganger_types::query::JobQuery {
        limit: 1_000,
        ..Default::default()
    };
    bench.handle.list(query).await.expect("readable").jobs.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_did_not_take_place_acknowledges_nothing_and_service_goes_on() {
    let bench = TestShard::start().await;
    let arrived = bench.control.arrived();
    bench.control.hold();
    bench.control.script(&[Fault::NotApplied]);
    let spawn_call = || {
        let handle = bench.handle.clone();
        tokio::spawn(async move { handle.call(enqueue(vec![new_job("a", "p")])).await })
    };
    let first = spawn_call();
    bench.control.wait_arrived(arrived + 1);
    let second = spawn_call();
    while bench
        .handle
        .metrics()
        .gauges
        .iter()
        .all(|(name, count)| (*name, *count) != ("inbox_commands", 2))
    {
        tokio::task::yield_now().await;
    }
    let waiting = tokio::spawn({
        let handle = bench.handle.clone();
        async move { handle.lease(lease(&["b"], 1), WAIT).await }
    });
    bench.control.release();
    let first = first.await.expect("no panic");
    assert!(
        matches!(first, Err(CallError::Unavailable { .. })),
        "{first:?}"
    );
    // The second one was applied on top of the first, or arrived after the recovery.
    let second = second.await.expect("no panic");
    let kept = usize::from(second.is_ok());
    bench.handle.ready().await;
    assert_eq!(jobs_there(&bench).await, kept);
    let id = ids(bench.handle.call(enqueue(vec![new_job("b", "p")])).await).remove(0);
    match waiting.await.expect("no panic") {
        Ok(deliveries) => assert_eq!(deliveries[0].grant.job, id),
        Err(error) => assert!(matches!(error, CallError::Unavailable { .. }), "{error}"),
    }
    assert!(audit(&bench).await.is_empty());
    bench.handle.stop().await;
}

async fn audit(bench: &TestShard) -> Vec<String> {
    let query = ganger_types::query::Query::Audit;
    match bench
        .handle
        .call(ganger_types::Command::Query(Box::new(query)))
        .await
    {
        Ok(ganger_types::Reply::Audit(found)) => found,
        other => panic!("not an audit: {other:?}"),
    }
}

/// Commits with unknown outcome that were in the store when it was opened again, and those that were not.
fn unknown_commits(bench: &TestShard) -> [u64; 2] {
    let counters = bench.handle.metrics().counters;
    let count = |wanted| counters.iter().find(|(name, _)| *name == wanted);
    [
        "commits_unknown_kept_total",
        "commits_unknown_missing_total",
    ]
    .map(|name| count(name).expect("it is counted").1)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_commit_that_is_there_is_acknowledged_after_reopening() {
    let bench = TestShard::start().await;
    let mut events = bench.handle.events(None).expect("room");
    bench.control.script(&[Fault::UnknownButThere]);
    let id = ids(bench.handle.call(enqueue(vec![new_job("a", "p")])).await).remove(0);
    let job = bench
        .handle
        .job(&Namespace::default(), &id)
        .await
        .expect("readable");
    assert_eq!(job.expect("there").record.state, JobState::Ready);
    let first = events.next().await.expect("told").position;
    ids(bench.handle.call(enqueue(vec![new_job("a", "p")])).await);
    assert_eq!(events.next().await.expect("told").position.0, first.0 + 1);
    assert_eq!(unknown_commits(&bench), [1, 0]);
    assert!(audit(&bench).await.is_empty());
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_commit_that_is_lost_is_not_acknowledged() {
    let bench = TestShard::start().await;
    let mut events = bench.handle.events(None).expect("room");
    bench.control.script(&[Fault::UnknownAndLost]);
    let lost = bench.handle.call(enqueue(vec![new_job("a", "lost")])).await;
    assert!(
        matches!(lost, Err(CallError::Unavailable { .. })),
        "{lost:?}"
    );
    assert_eq!(jobs_there(&bench).await, 0);
    let id = ids(bench.handle.call(enqueue(vec![new_job("a", "kept")])).await).remove(0);
    let event = events.next().await.expect("told");
    assert!(format!("{event:?}").contains(&id.to_string()), "{event:?}");
    assert_eq!(jobs_there(&bench).await, 1);
    assert_eq!(unknown_commits(&bench), [0, 1]);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_shard_stops_for_good_and_says_so() {
    let mut bench = TestShard::start().await;
    bench.control.script(&[Fault::Fenced]);
    let waiting = tokio::spawn({
        let handle = bench.handle.clone();
        async move { handle.lease(lease(&["b"], 1), WAIT).await }
    });
    let refused = bench.handle.call(enqueue(vec![new_job("a", "p")])).await;
    assert!(
        matches!(refused, Err(CallError::Unavailable { .. })),
        "{refused:?}"
    );
    let cause = bench
        .stopped
        .wait_for(Option::is_some)
        .await
        .expect("told")
        .clone();
    assert!(matches!(cause, Some(StopCause::Fenced { .. })), "{cause:?}");
    assert!(matches!(bench.handle.health(), Health::Stopped { .. }));
    assert!(waiting.await.expect("no panic").is_err());
    assert!(
        bench
            .handle
            .call(enqueue(vec![new_job("a", "p")]))
            .await
            .is_err()
    );
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_opened_again_stops_the_shard() {
    let mut bench = TestShard::start().await;
    bench.control.fail_open();
    bench.control.script(&[Fault::UnknownAndLost]);
    let refused = bench.handle.call(enqueue(vec![new_job("a", "p")])).await;
    assert!(
        matches!(refused, Err(CallError::Unavailable { .. })),
        "{refused:?}"
    );
    let cause = bench
        .stopped
        .wait_for(Option::is_some)
        .await
        .expect("told")
        .clone();
    assert!(
        matches!(cause, Some(StopCause::StoreLost { .. })),
        "{cause:?}"
    );
    assert!(matches!(bench.handle.health(), Health::Stopped { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_leases_with_their_tokens() {
    let bench = TestShard::start().await;
    ids(bench.handle.call(enqueue(vec![new_job("a", "p")])).await);
    let deliveries = bench
        .handle
        .lease(lease(&["a"], 1), Duration::ZERO)
        .await
        .expect("there");
    let bench = bench.restart().await;
    assert_eq!(
        bench.handle.lease(lease(&["a"], 1), Duration::ZERO).await,
        Ok(Vec::new())
    );
    bench.clock.advance(Duration::from_secs(59));
    let reply = bench.handle.call(complete(&deliveries[0], Some("r"))).await;
    reply.expect("a full lease from the restart");
    assert!(audit(&bench).await.is_empty());
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_device_refuses_new_work_and_lets_the_rest_go_on() {
    let bench = TestShard::start().await;
    ids(bench
        .handle
        .call(enqueue(vec![new_job("a", "1"), new_job("a", "2")]))
        .await);
    let deliveries = bench
        .handle
        .lease(lease(&["a"], 1), Duration::ZERO)
        .await
        .expect("there");
    bench.control.set_free(1_000);
    bench.clock.advance(Duration::from_secs(2));
    while bench.handle.health() != Health::Full {
        tokio::task::yield_now().await;
    }
    let refused = bench.handle.call(enqueue(vec![new_job("a", "3")])).await;
    assert!(
        matches!(refused, Err(CallError::Full { free: 1_000, .. })),
        "{refused:?}"
    );
    bench
        .handle
        .call(complete(&deliveries[0], None))
        .await
        .expect("reports go on");
    assert_eq!(
        bench
            .handle
            .lease(lease(&["a"], 1), Duration::ZERO)
            .await
            .expect("goes on")
            .len(),
        1
    );
    bench.control.set_free(1 << 40);
    bench.clock.advance(Duration::from_secs(2));
    while bench.handle.health() != Health::Ready {
        tokio::task::yield_now().await;
    }
    ids(bench.handle.call(enqueue(vec![new_job("a", "3")])).await);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_space_keeps_new_work_out_for_a_while() {
    let bench = TestShard::start().await;
    bench.control.script(&[Fault::Full]);
    let refused = bench.handle.call(enqueue(vec![new_job("a", "1")])).await;
    assert!(
        matches!(refused, Err(CallError::Full { .. })),
        "{refused:?}"
    );
    let refused = bench.handle.call(enqueue(vec![new_job("a", "1")])).await;
    assert!(
        matches!(refused, Err(CallError::Full { .. })),
        "{refused:?}"
    );
    while bench
        .handle
        .call(enqueue(vec![new_job("a", "1")]))
        .await
        .is_err()
    {
        bench.clock.advance(Duration::from_secs(1));
    }
    bench.handle.stop().await;
}

/// A schedule that was set up in time continues: its runs were accepted with the schedule, each is bounded by the
/// policies for catching up and overlap, and they are written from the reserve.
#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_runs_on_while_the_device_is_full_and_a_new_one_is_refused() {
    let bench = TestShard::start().await;
    let put = Command::PutSchedule(Box::new(PutSchedule {
        schedule: every_minute(bench.clock.wall()),
    }));
    bench.handle.call(put.clone()).await.expect("room");
    bench.control.set_free(1_000);
    bench.clock.advance(Duration::from_secs(2));
    while bench.handle.health() != Health::Full {
        tokio::task::yield_now().await;
    }
    let refused = bench.handle.call(put).await;
    assert!(
        matches!(refused, Err(CallError::Full { .. })),
        "{refused:?}"
    );
    let waiting = tokio::spawn({
        let handle = bench.handle.clone();
        async move { handle.lease(lease(&["a"], 1), 2 * WAIT).await }
    });
    // The lease request waits before the schedule is due.
    bench.handle.metrics_now().await.expect("in service");
    bench.clock.advance(Duration::from_secs(60));
    let deliveries = waiting.await.expect("no panic").expect("in service");
    assert_eq!(deliveries[0].grant.attempt, 1);
    let report = bench.handle.call(complete(&deliveries[0], None)).await;
    report.expect("reports go on");
    assert_eq!(bench.handle.health(), Health::Full);
    bench.handle.stop().await;
}

fn every_minute(now: Timestamp) -> ScheduleRecord {
    let minute = Duration::from_secs(60);
    ScheduleRecord {
        namespace: Namespace::default(),
        id: ScheduleId::from_static("s"),
        spec: ScheduleSpec::Interval {
            every: minute,
            first_at: now.after(minute),
        },
        catch_up: CatchUp::Last,
        overlap: Overlap::Allow,
        paused: false,
        queue: Queue::from_static("a"),
        kind: Kind::from_static("tick"),
        payload: Bytes::new(),
        priority: Priority::default(),
        retry: None,
        timeout: None,
        tags: Vec::new(),
        labels: Vec::new(),
        created_at: Timestamp(0),
        next_at: None,
        runs: 0,
        last_job: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_payload_harms_only_its_own_job() {
    let settings = Settings {
        blob_cache_bytes: 0,
        ..crate::kit::settings()
    };
    let bench = TestShard::start_with(settings, MemoryStore::default()).await;
    let all = ids(bench
        .handle
        .call(enqueue((0..10).map(|_| new_job("a", "p")).collect()))
        .await);
    let third = bench
        .handle
        .job(&Namespace::default(), &all[3])
        .await
        .expect("readable");
    bench.control.damage(third.expect("there").record.key);
    let deliveries = bench
        .handle
        .lease(lease(&["a"], 10), Duration::ZERO)
        .await
        .expect("there");
    let delivered: Vec<_> = deliveries.iter().map(|one| one.grant.job.clone()).collect();
    let healthy: Vec<_> = all.iter().filter(|id| **id != all[3]).cloned().collect();
    assert_eq!(delivered, healthy);
    let broken = bench
        .handle
        .job(&Namespace::default(), &all[3])
        .await
        .expect("readable");
    let broken = broken.expect("kept for inspection").record;
    assert_eq!(broken.state, JobState::Failed);
    let failure = broken.failure.expect("it says why");
    assert_eq!(failure.group.to_text(), "damaged");
    assert!(failure.message.contains("checksum"), "{}", failure.message);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overload_is_refused_at_the_door_and_passes() {
    let settings = Settings {
        inbox_commands_max: 10,
        ..crate::kit::settings()
    };
    let bench = TestShard::start_with(settings, MemoryStore::default()).await;
    let arrived = bench.control.arrived();
    bench.control.hold();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let handle = bench.handle.clone();
        calls.spawn(async move { handle.call(enqueue(vec![new_job("a", "p")])).await });
    }
    let mut refused = 0;
    while refused < 90 {
        let answer = calls
            .join_next()
            .await
            .expect("there are more")
            .expect("no panic");
        assert!(
            matches!(answer, Err(CallError::Overloaded { limit: 10, .. })),
            "{answer:?}"
        );
        refused += 1;
    }
    bench.control.wait_arrived(arrived + 1);
    bench.control.release();
    while let Some(answer) = calls.join_next().await {
        ids(answer.expect("no panic"));
    }
    ids(bench.handle.call(enqueue(vec![new_job("a", "p")])).await);
    assert_eq!(jobs_there(&bench).await, 11, "what was accepted is kept");
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_answers_what_was_taken_and_closes_the_store() {
    let mut bench = TestShard::start().await;
    let arrived = bench.control.arrived();
    bench.control.hold();
    let call = tokio::spawn({
        let handle = bench.handle.clone();
        async move { handle.call(enqueue(vec![new_job("a", "p")])).await }
    });
    bench.control.wait_arrived(arrived + 1);
    let stopping = tokio::spawn({
        let handle = bench.handle.clone();
        async move { handle.stop().await }
    });
    bench.control.release();
    stopping.await.expect("no panic");
    ids(call.await.expect("no panic"));
    assert_eq!(
        *bench.stopped.borrow_and_update(),
        Some(StopCause::Requested)
    );
    let refused = bench.handle.call(enqueue(vec![new_job("a", "p")])).await;
    assert!(
        matches!(refused, Err(CallError::Unavailable { .. })),
        "{refused:?}"
    );
    assert!(bench.handle.metrics_now().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_handle_stops_the_shard() {
    let bench = TestShard::start().await;
    let TestShard {
        handle,
        mut stopped,
        ..
    } = bench;
    drop(handle);
    let cause = stopped
        .wait_for(Option::is_some)
        .await
        .expect("told")
        .clone();
    assert_eq!(cause, Some(StopCause::Requested));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_report_after_a_lost_grant_is_refused_distinctly() {
    let bench = TestShard::start().await;
    ids(bench.handle.call(enqueue(vec![new_job("a", "p")])).await);
    let deliveries = bench
        .handle
        .lease(lease(&["a"], 1), Duration::ZERO)
        .await
        .expect("there");
    bench.clock.advance(Duration::from_secs(61));
    let late = bench.handle.call(complete(&deliveries[0], None)).await;
    assert!(matches!(late, Err(CallError::Rejected(_))), "{late:?}");
    assert_eq!(held(&deliveries[0]).token, deliveries[0].grant.token);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_jobs_are_retired_in_slices_once_their_time_is_over() {
    let settings = Settings {
        retire_slice: 7,
        ..crate::kit::settings()
    };
    let bench = TestShard::start_with(settings, MemoryStore::default()).await;
    ids(bench
        .handle
        .call(enqueue((0..100).map(|_| new_job("a", "p")).collect()))
        .await);
    let deliveries = bench
        .handle
        .lease(lease(&["a"], 100), Duration::ZERO)
        .await
        .expect("there");
    let reports = deliveries
        .iter()
        .map(|one| complete(one, Some("r")))
        .collect();
    bench.handle.call_all(reports).await.expect("applied");
    assert_eq!(jobs_there(&bench).await, 100);
    // The clock moves in steps, since retention distrusts a clock that jumps.
    while jobs_there(&bench).await > 0 {
        bench.clock.advance(Duration::from_secs(3_600));
        bench.handle.metrics_now().await.expect("in service");
    }
    assert!(audit(&bench).await.is_empty());
    bench.handle.stop().await;
}

/// Jobs of a loaded shard expire as fast as they are done. Slices that stay small fall behind, and the store grows without
/// end.
#[tokio::test(flavor = "multi_thread")]
async fn slices_of_retention_grow_while_more_expires_than_they_remove() {
    const JOBS: usize = 4_000;
    let settings = Settings {
        retire_slice: 7,
        ..crate::kit::settings()
    };
    let bench = TestShard::start_with(settings, MemoryStore::default()).await;
    let jobs = (0..JOBS).map(|_| new_job("a", "p")).collect();
    ids(bench.handle.call(enqueue(jobs)).await);
    let mut left = JOBS;
    while left > 0 {
        let deliveries = bench.handle.lease(lease(&["a"], 100), Duration::ZERO).await;
        let deliveries = deliveries.expect("there");
        left -= deliveries.len();
        let reports = deliveries.iter().map(|one| complete(one, None)).collect();
        bench.handle.call_all(reports).await.expect("applied");
    }
    let commits = async || {
        let metrics = bench.handle.metrics_now().await.expect("in service");
        let mut counters = metrics.counters.into_iter();
        counters
            .find(|(name, _)| *name == "commits_total")
            .map_or(0, |(_, count)| count)
    };
    let before = commits().await;
    while jobs_there(&bench).await > 0 {
        bench.clock.advance(Duration::from_secs(3_600));
    }
    let slices = commits().await - before;
    // 572 slices of 7 jobs.
    assert!(slices < 150, "{slices} slices");
    bench.handle.stop().await;
}

#[test]
fn a_store_that_cannot_be_opened_is_told_at_once() {
    let control = StoreControl::default();
    control.fail_open();
    let gate = GatedStore::new(MemoryStore::default(), &control);
    let clock = ManualClock::new(Timestamp(1));
    let started = Shard::start(gate, Settings::default(), clock, Hooks::default());
    assert!(started.is_err());
}
