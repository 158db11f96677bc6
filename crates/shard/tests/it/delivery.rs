//! What is delivered with a job: payload, inputs, results of dependencies, wherever they are stored at that moment.

use std::time::Duration;

use crate::kit::{TestShard, complete, enqueue, held, ids, lease, new_job, poll_once};
use ganger_shard::{CallError, Delivery, Settings};
use ganger_store::MemoryStore;
use ganger_types::command::{
    ConfigureNamespace, ConfigureQueue, Dependency, Fail, NewEdge, NewInput, NewJob, QueueChange,
    Retry,
};
use ganger_types::{
    Bytes, Clock, Command, FailurePolicy, Group, JobState, Namespace, NamespaceSettings, Queue,
    Rejection, Reply, Timestamp,
};

fn result_of(member: u32, policy: FailurePolicy) -> NewInput {
    NewInput::Result(NewEdge {
        dependency: Dependency::Member(member),
        policy,
    })
}

fn fan_in() -> Vec<NewJob> {
    let mut last = new_job("last", "");
    last.inputs = vec![
        NewInput::Value(Bytes::from_static(b"given")),
        result_of(0, FailurePolicy::Fail),
        result_of(1, FailurePolicy::Fail),
        result_of(2, FailurePolicy::Ignore),
    ];
    vec![
        new_job("first", "0"),
        new_job("first", "1"),
        new_job("first", "2"),
        last,
    ]
}

async fn take(bench: &TestShard, queue: &'static str, count: u32) -> Vec<Delivery> {
    bench
        .handle
        .lease(lease(&[queue], count), Duration::ZERO)
        .await
        .expect("granted")
}

fn fail(delivery: &Delivery) -> Command {
    Command::Fail(Box::new(Fail {
        held: held(delivery),
        group: Group::from_static("broken"),
        message: "as the test wants".into(),
        permanent: true,
        retry_after: None,
        lost: false,
    }))
}

async fn run_fan_in(bench: &TestShard) {
    ids(bench.handle.call(enqueue(fan_in())).await);
    let firsts = take(bench, "first", 3).await;
    let payloads: Vec<_> = firsts.iter().map(|one| one.payload.clone()).collect();
    assert_eq!(payloads, ["0", "1", "2"]);
    let reports = vec![
        complete(&firsts[0], Some("r0")),
        complete(&firsts[1], None),
        fail(&firsts[2]),
    ];
    for reply in bench.handle.call_all(reports).await.expect("applied") {
        reply.expect("accepted");
    }
}

fn check_inputs(delivery: &Delivery) {
    assert_eq!(delivery.inputs, ["given", "r0", "null", "null"]);
    assert_eq!(delivery.payload, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_come_in_order_from_memory() {
    let bench = TestShard::start().await;
    run_fan_in(&bench).await;
    check_inputs(&take(&bench, "last", 1).await[0]);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_come_in_order_from_the_store_after_a_restart() {
    let bench = TestShard::start().await;
    run_fan_in(&bench).await;
    let bench = bench.restart().await;
    check_inputs(&take(&bench, "last", 1).await[0]);
    let counters = bench.handle.metrics().counters;
    assert!(counters.contains(&("blob_hits_total", 0)), "{counters:?}");
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_come_in_order_from_turns_that_are_on_their_way() {
    let bench = TestShard::start().await;
    ids(bench.handle.call(enqueue(fan_in())).await);
    let firsts = take(&bench, "first", 3).await;
    let waiting = tokio::spawn({
        let handle = bench.handle.clone();
        async move {
            handle
                .lease(lease(&["last"], 1), Duration::from_secs(60))
                .await
        }
    });
    // The first two reports are in one turn, held back, while the last one is applied on top of it.
    let arrived = bench.control.arrived();
    bench.control.hold();
    let two = tokio::spawn({
        let handle = bench.handle.clone();
        let reports = vec![complete(&firsts[0], Some("r0")), complete(&firsts[1], None)];
        async move { handle.call_all(reports).await }
    });
    bench.control.wait_arrived(arrived + 1);
    let third = tokio::spawn({
        let (handle, report) = (bench.handle.clone(), fail(&firsts[2]));
        async move { handle.call(report).await }
    });
    bench.control.release();
    check_inputs(&waiting.await.expect("no panic").expect("granted")[0]);
    two.await.expect("no panic").expect("applied");
    third.await.expect("no panic").expect("accepted");
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_payload_is_handed_out_without_reading_it() {
    let bench = TestShard::start().await;
    let jobs = ["", "full", ""].map(|payload| new_job("texts", payload));
    ids(bench.handle.call(enqueue(jobs.into())).await);
    let bench = bench.restart().await;
    let taken = take(&bench, "texts", 3).await;
    let payloads: Vec<_> = taken.iter().map(|one| one.payload.clone()).collect();
    assert_eq!(payloads, ["", "full", ""]);
    assert_eq!(bench.control.payload_reads(), 1);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_graph_reads_its_inputs_in_pages() {
    let settings = Settings {
        blob_cache_bytes: 0,
        ..crate::kit::settings()
    };
    let bench = TestShard::start_with(settings, MemoryStore::default()).await;
    let mut jobs: Vec<_> = (0..3_000).map(|_| new_job("first", "p")).collect();
    let mut last = new_job("last", "");
    last.inputs = (0..3_000)
        .map(|member| result_of(member, FailurePolicy::Fail))
        .collect();
    jobs.push(last);
    ids(bench.handle.call(enqueue(jobs)).await);
    let firsts = take(&bench, "first", 3_000).await;
    assert_eq!(firsts.len(), 3_000);
    let reports = firsts.iter().map(|one| complete(one, Some("r"))).collect();
    bench.handle.call_all(reports).await.expect("applied");
    let last = take(&bench, "last", 1).await;
    assert_eq!(last[0].inputs.len(), 3_000);
    assert!(last[0].inputs.iter().all(|input| input == "r"));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_hands_out_no_more_bytes_than_it_may_but_always_one_job() {
    let settings = Settings {
        delivery_bytes_max: 10,
        ..crate::kit::settings()
    };
    let bench = TestShard::start_with(settings, MemoryStore::default()).await;
    let jobs = (0..200)
        .map(|_| new_job("a", "a payload of some length"))
        .collect();
    ids(bench.handle.call(enqueue(jobs)).await);
    let some = take(&bench, "a", 200).await;
    assert!((1..200).contains(&some.len()), "{}", some.len());
    let rest = take(&bench, "a", 200).await;
    assert!(!rest.is_empty());
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_job_of_a_graph_gets_its_inputs_again() {
    let bench = TestShard::start().await;
    run_fan_in(&bench).await;
    let last = take(&bench, "last", 1).await;
    bench.handle.call(fail(&last[0])).await.expect("accepted");
    let retry = Retry {
        namespace: Namespace::default(),
        jobs: vec![last[0].grant.job.clone()],
        queue: None,
        dependents: false,
        graph: None,
    };
    bench
        .handle
        .call(Command::Retry(Box::new(retry)))
        .await
        .expect("accepted");
    check_inputs(&take(&bench, "last", 1).await[0]);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_callers_clock_commands_bring_their_time_and_nothing_else_moves() {
    let bench = TestShard::start().await;
    let namespace = Namespace::from_static("theirs");
    let settings = NamespaceSettings {
        clock: Clock::Caller,
        ..NamespaceSettings::default()
    };
    let configure = ConfigureNamespace {
        namespace: namespace.clone(),
        settings,
    };
    let configure = Command::ConfigureNamespace(Box::new(configure));
    bench.handle.call(configure).await.expect("accepted");
    let submit = || {
        let Command::Enqueue(mut submission) = enqueue(vec![new_job("a", "p")]) else {
            unreachable!()
        };
        submission.namespace = namespace.clone();
        Command::Enqueue(submission)
    };
    let refused = bench.handle.call(submit()).await;
    assert_eq!(refused, Err(CallError::Rejected(Rejection::ClockMissing)));
    let id = ids(bench.handle.call_at(submit(), Timestamp(1_000_000)).await).remove(0);
    let mut taking = lease(&["a"], 1);
    taking.namespace = namespace.clone();
    let taking = Command::Lease(Box::new(taking));
    let at = |seconds: u64| Timestamp(seconds * 1_000_000);
    let Reply::Leased(grants) = bench
        .handle
        .call_at(taking.clone(), at(2))
        .await
        .expect("applied")
    else {
        panic!("not a lease")
    };
    assert_eq!(grants[0].job, id);
    // A day on the server's clock expires no lease on the callers' clocks.
    bench.clock.advance(Duration::from_secs(86_400));
    bench.handle.metrics_now().await.expect("in service");
    let none = bench.handle.call_at(taking.clone(), at(61)).await;
    assert_eq!(none, Ok(Reply::Leased(Vec::new())));
    let again = bench
        .handle
        .call_at(taking, at(100))
        .await
        .expect("applied");
    assert!(matches!(again, Reply::Leased(grants) if grants[0].attempt == 2));
    let job = bench
        .handle
        .job(&namespace, &id)
        .await
        .expect("readable")
        .expect("there");
    assert!(job.lease.is_some() || job.record.state == JobState::Running);
    bench.handle.stop().await;
}

/// Starts a shard with a namespace on its callers' clocks, and returns a command that submits one job there.
async fn on_callers_clocks(new: NewJob) -> (TestShard, Namespace, Command) {
    let bench = TestShard::start().await;
    let namespace = Namespace::from_static("theirs");
    let settings = NamespaceSettings {
        clock: Clock::Caller,
        ..NamespaceSettings::default()
    };
    let configure = ConfigureNamespace {
        namespace: namespace.clone(),
        settings,
    };
    let configure = Command::ConfigureNamespace(Box::new(configure));
    bench.handle.call(configure).await.expect("accepted");
    let Command::Enqueue(mut submission) = enqueue(vec![new]) else {
        unreachable!()
    };
    submission.namespace = namespace.clone();
    (bench, namespace, Command::Enqueue(submission))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_ends_by_the_time_its_caller_brings_is_found_by_the_same_command() {
    let late = NewJob {
        deadline: Some(Timestamp(5_000_000)),
        ..new_job("a", "p")
    };
    let (bench, namespace, submit) = on_callers_clocks(late).await;
    let id = ids(bench.handle.call_at(submit, Timestamp(1_000_000)).await).remove(0);
    let retry = Command::Retry(Box::new(Retry {
        namespace: namespace.clone(),
        jobs: vec![id],
        queue: None,
        dependents: false,
        graph: None,
    }));
    let retried = bench.handle.call_at(retry, Timestamp(6_000_000)).await;
    let Reply::Changed { count, skipped } = retried.expect("it is there") else {
        panic!("not a count")
    };
    assert_eq!((count, skipped), (1, Vec::new()));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_settings_fires_nothing_on_callers_clocks() {
    let waiting = NewJob {
        deadline: Some(Timestamp(5_000_000)),
        ..new_job("a", "p")
    };
    let (bench, namespace, submit) = on_callers_clocks(waiting).await;
    let id = ids(bench.handle.call_at(submit, Timestamp(1_000_000)).await).remove(0);
    // The shard's own clock is decades after that deadline.
    let configure = ConfigureQueue {
        namespace: namespace.clone(),
        queue: Queue::from_static("a"),
        change: QueueChange::Paused(false),
    };
    let configure = Command::ConfigureQueue(Box::new(configure));
    bench.handle.call(configure).await.expect("accepted");
    let job = bench.handle.job(&namespace, &id).await.expect("readable");
    assert_eq!(job.expect("there").record.state, JobState::Ready);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_of_the_store_is_read_though_a_dependency_is_met_in_the_same_turn() {
    let bench = TestShard::start().await;
    let mut last = new_job("last", "");
    last.inputs = vec![result_of(0, FailurePolicy::Fail)];
    last.after = vec![NewEdge {
        dependency: Dependency::Member(1),
        policy: FailurePolicy::Fail,
    }];
    let jobs = vec![new_job("first", "0"), new_job("first", "1"), last];
    ids(bench.handle.call(enqueue(jobs)).await);
    let firsts = take(&bench, "first", 2).await;
    let first = bench.handle.call(complete(&firsts[0], Some("r0"))).await;
    first.expect("accepted");
    let patience = Duration::from_secs(60);
    let mut waiting = Box::pin(bench.handle.lease(lease(&["last"], 1), patience));
    // Once polled the request is in the inbox, before the completion.
    assert!(crate::kit::poll_once(waiting.as_mut()).is_none());
    let second = bench.handle.call(complete(&firsts[1], None)).await;
    second.expect("accepted");
    let delivered = waiting.await.expect("granted");
    assert_eq!(delivered[0].inputs, ["r0"]);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gathered_requests_are_one_commit_and_end_with_it() {
    let bench = TestShard::start().await;
    ids(bench
        .handle
        .call(enqueue(vec![new_job("q", "a"), new_job("q", "b")]))
        .await);
    let first = take(&bench, "q", 1).await;
    let arrived = bench.control.arrived();
    bench.control.hold();
    let mut requests = bench.handle.gather();
    let replies = requests.call_all(vec![complete(&first[0], None)]);
    let next = requests.lease(lease(&["q"], 1), Duration::from_secs(60));
    requests.send();
    bench.control.wait_arrived(arrived + 1);
    let (mut replies, mut next) = (Box::pin(replies), Box::pin(next));
    assert!(poll_once(replies.as_mut()).is_none(), "it is not durable");
    assert!(poll_once(next.as_mut()).is_none(), "it is not durable");
    bench.control.release();
    replies.await.expect("applied")[0]
        .as_ref()
        .expect("accepted");
    assert_eq!(next.await.expect("granted")[0].payload, "b");
    assert_eq!(bench.control.arrived(), arrived + 1);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gathered_requests_of_a_shard_that_has_ended_are_refused() {
    let bench = TestShard::start().await;
    bench.handle.stop().await;
    let mut requests = bench.handle.gather();
    let next = requests.lease(lease(&["q"], 1), Duration::from_secs(60));
    requests.send();
    let refused = next.await;
    assert!(
        matches!(refused, Err(CallError::Unavailable { .. })),
        "{refused:?}"
    );
}
