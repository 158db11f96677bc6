//! Nothing is visible before it is durable (`rel D1`, `D4`).

use std::time::Duration;

use crate::kit::{TestShard, complete, enqueue, ids, lease, new_job, poll_once, queue};
use ganger_shard::CallError;
use ganger_types::query::JobQuery;
use ganger_types::{Happening, JobState, Namespace, Position, Reply};

const WAIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn while_a_commit_is_held_back_nothing_of_it_is_seen() {
    let bench = TestShard::start().await;
    let mut events = bench.handle.events(None).expect("room");
    let waiting = {
        let handle = bench.handle.clone();
        tokio::spawn(async move { handle.lease(lease(&["a"], 1), WAIT).await })
    };
    let seen = events
        .next()
        .await
        .expect("its request is applied")
        .happening;
    assert!(matches!(seen, Happening::WorkerSeen { .. }), "{seen:?}");
    let arrived = bench.control.arrived();
    bench.control.hold();
    let handle = bench.handle.clone();
    let call = tokio::spawn(async move { handle.call(enqueue(vec![new_job("a", "p")])).await });
    bench.control.wait_arrived(arrived + 1);

    let query = JobQuery {
        limit: 10,
        ..JobQuery::default()
    };
    assert!(
        bench
            .handle
            .list(query)
            .await
            .expect("reads go on")
            .jobs
            .is_empty()
    );
    assert!(!call.is_finished(), "no reply");
    assert!(!waiting.is_finished(), "no wake-up");
    assert!(poll_once(events.next()).is_none(), "no event");

    bench.control.release();
    let id = ids(call.await.expect("no panic")).remove(0);
    let deliveries = waiting.await.expect("no panic").expect("granted");
    assert_eq!(deliveries[0].grant.job, id);
    assert_eq!(&deliveries[0].payload[..], b"p");
    let event = events.next().await.expect("now it is told");
    assert!(
        matches!(
            event.happening,
            Happening::JobMoved {
                to: JobState::Ready,
                ..
            }
        ),
        "{event:?}"
    );
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_after_the_turns_it_has_seen() {
    let bench = TestShard::start().await;
    let arrived = bench.control.arrived();
    bench.control.hold();
    let handle = bench.handle.clone();
    let call = tokio::spawn(async move { handle.call(enqueue(vec![new_job("a", "p")])).await });
    bench.control.wait_arrived(arrived + 1);
    let handle = bench.handle.clone();
    let question = tokio::spawn(async move {
        let query = ganger_types::query::Query::Queue(Namespace::default(), queue("a"));
        handle
            .call(ganger_types::Command::Query(Box::new(query)))
            .await
    });
    // A read of committed state succeeds while both wait.
    let query = JobQuery {
        limit: 10,
        ..JobQuery::default()
    };
    assert!(
        bench
            .handle
            .list(query)
            .await
            .expect("reads go on")
            .jobs
            .is_empty()
    );
    assert!(!question.is_finished());
    bench.control.release();
    let Reply::Queue(view) = question.await.expect("no panic").expect("answered") else {
        panic!("not a queue")
    };
    assert_eq!(view.counts.ready, 1);
    assert!(call.is_finished() || call.await.is_ok());
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_grow_while_the_store_is_busy() {
    let bench = TestShard::start().await;
    let arrived = bench.control.arrived();
    bench.control.hold();
    let mut calls = Vec::new();
    for number in 0..200 {
        let handle = bench.handle.clone();
        calls.push(tokio::spawn(async move {
            handle.call(enqueue(vec![new_job("a", "p")])).await
        }));
        if number == 0 {
            bench.control.wait_arrived(arrived + 1);
        }
    }
    while gauge(&bench, "inbox_commands") < 200 {
        tokio::task::yield_now().await;
    }
    bench.control.release();
    for call in calls {
        ids(call.await.expect("no panic"));
    }
    let commits = bench.control.arrived() - arrived;
    assert!(commits <= 4, "200 commands took {commits} commits");
    bench.handle.stop().await;
}

fn gauge(bench: &TestShard, wanted: &str) -> u64 {
    let gauges = bench.handle.metrics().gauges;
    gauges
        .into_iter()
        .find(|(name, _)| *name == wanted)
        .map_or(0, |(_, value)| value)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answered_command_is_seen_by_every_later_read() {
    let bench = TestShard::start().await;
    for _ in 0..50 {
        let id = ids(bench.handle.call(enqueue(vec![new_job("a", "p")])).await).remove(0);
        let job = bench
            .handle
            .job(&Namespace::default(), &id)
            .await
            .expect("readable");
        assert_eq!(job.expect("there").record.id, id);
        let deliveries = bench
            .handle
            .lease(lease(&["a"], 1), Duration::ZERO)
            .await
            .expect("there");
        bench
            .handle
            .call(complete(&deliveries[0], Some("r")))
            .await
            .expect("accepted");
        let job = bench
            .handle
            .job(&Namespace::default(), &id)
            .await
            .expect("readable");
        assert_eq!(job.expect("there").record.state, JobState::Succeeded);
    }
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_commands_at_once_are_answered_in_order_each_for_itself() {
    let bench = TestShard::start().await;
    ids(bench
        .handle
        .call(enqueue((0..10).map(|_| new_job("a", "p")).collect()))
        .await);
    let deliveries = bench
        .handle
        .lease(lease(&["a"], 10), Duration::ZERO)
        .await
        .expect("there");
    assert_eq!(deliveries.len(), 10);
    let mut commands: Vec<_> = deliveries.iter().map(|one| complete(one, None)).collect();
    commands.insert(3, enqueue(Vec::new()));
    let replies = bench.handle.call_all(commands).await.expect("applied");
    assert_eq!(replies.len(), 11);
    assert!(matches!(replies[3], Err(CallError::Rejected(_))));
    assert_eq!(replies.iter().filter(|reply| reply.is_ok()).count(), 10);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_resume_over_a_restart_without_a_gap() {
    let bench = TestShard::start().await;
    let mut events = bench.handle.events(None).expect("room");
    ids(bench.handle.call(enqueue(vec![new_job("a", "p")])).await);
    let last = events.next().await.expect("told").position;
    let bench = bench.restart().await;
    let mut resumed = bench.handle.events(Some(last)).expect("nothing was missed");
    ids(bench.handle.call(enqueue(vec![new_job("a", "p")])).await);
    assert_eq!(
        resumed.next().await.expect("told").position,
        Position(last.0 + 1)
    );
    let too_old = last.0.checked_sub(1).map(Position);
    assert!(too_old.is_none_or(|old| bench.handle.events(Some(old)).is_err()));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_named_points_come_in_the_order_of_the_promise() {
    use ganger_shard::{Hooks, ManualClock, PipelinePoint, Shard};
    use std::sync::{Arc, Mutex};

    let reached: Arc<Mutex<Vec<PipelinePoint>>> = Arc::default();
    let noted = Arc::clone(&reached);
    let at_point = Arc::new(move |point| noted.lock().expect("no test panics with it").push(point));
    let hooks = Hooks {
        on_stopped: None,
        at_point: Some(at_point),
    };
    let clock = ManualClock::new(ganger_types::Timestamp(1));
    let handle = Shard::start(
        crate::kit::MemoryStore::new(),
        crate::kit::settings(),
        clock,
        hooks,
    );
    let handle = handle.expect("a memory store opens");
    ids(handle.call(enqueue(vec![new_job("a", "p")])).await);
    handle.stop().await;
    let reached = reached.lock().expect("no test panics with it").clone();
    let expected = [
        PipelinePoint::BeforeLoad,
        PipelinePoint::AfterLoad,
        PipelinePoint::BeforeCommit,
        PipelinePoint::AfterCommit,
        PipelinePoint::BeforeRelease,
        PipelinePoint::AfterRelease,
    ];
    assert_eq!(reached, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_the_first_answer_finds_the_shard_ready() {
    use ganger_shard::{Health, Hooks, ManualClock, PipelinePoint, Shard};
    use std::sync::{Arc, Mutex, mpsc};

    // The shard's thread stops at the release of its first replies until the health has been checked.
    let (go_on, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let at_point = Arc::new(move |point| {
        if point == PipelinePoint::AfterRelease {
            let gate = gate.lock().expect("no test panics with it");
            gate.recv().ok();
        }
    });
    let hooks = Hooks {
        on_stopped: None,
        at_point: Some(at_point),
    };
    let clock = ManualClock::new(ganger_types::Timestamp(1));
    let handle = Shard::start(
        crate::kit::MemoryStore::new(),
        crate::kit::settings(),
        clock,
        hooks,
    );
    let handle = handle.expect("a memory store opens");
    ids(handle.call(enqueue(vec![new_job("a", "p")])).await);
    let health = handle.health();
    drop(go_on);
    assert!(matches!(health, Health::Ready), "{health:?}");
    handle.stop().await;
}
