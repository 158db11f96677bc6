//! Jobs of qless through a running shard: found, with their payloads, where no ordinary job is; cancelled like any
//! other.

use std::time::Duration;

use crate::kit::{TestShard, complete, lease, poll_once};
use ganger_shard::{CallError, StoredJob};
use ganger_types::command::{Cancel, NewJob, Selection};
use ganger_types::keys::{Condition, End, KeyCall, KeyCalls};
use ganger_types::qless::{Generation, QlessRequest};
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Command, ExternalReply, Happening, JobId, JobKey, JobState, Namespace, QlessCall, Reply,
};

async fn call(bench: &TestShard, words: &str) {
    let words = words.split(' ').map(str::to_owned).map(Bytes::from);
    let request = QlessRequest::Script {
        generation: Generation::Two,
        words: words.collect(),
    };
    let call = Command::from(QlessCall {
        namespace: Namespace::default(),
        request,
    });
    let reply = bench.handle.call(call).await.expect("in service");
    assert!(
        matches!(reply, Reply::External(ExternalReply::Qless(Ok(_)))),
        "{reply:?}"
    );
}

fn id(text: &str) -> JobId {
    JobId::new(text).expect("short")
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_found_with_its_payload_by_reads_and_by_waits() {
    let bench = TestShard::start().await;
    let (namespace, a) = (Namespace::default(), id("a"));
    let missing = bench.handle.job(&namespace, &a).await.expect("readable");
    assert_eq!(missing, None);
    call(&bench, "put 1 w q a k {\"n\":1} 0").await;
    let job = bench.handle.job(&namespace, &a).await.expect("readable");
    let job = job.expect("it is there");
    assert_eq!(job.record.state, JobState::Ready);
    let payload = bench.handle.payload_of(&job.record).await;
    assert_eq!(payload.expect("readable"), Some("{\"n\":1}".into()));
    let waited = bench.handle.wait(&namespace, &a, Duration::ZERO).await;
    assert_eq!(waited.expect("readable"), Some(job));

    bench.handle.stop().await;
}

type WaitTimes = tokio::task::JoinHandle<Result<Option<StoredJob>, CallError>>;

/// Waits for the end of a job, so long that only an end can cause an answer.
fn spawn_wait(bench: &TestShard, name: &'static str) -> WaitTimes {
    let handle = bench.handle.clone();
    tokio::spawn(async move {
        let wait = Duration::from_secs(3_600);
        handle.wait(&Namespace::default(), &id(name), wait).await
    })
}

/// Waits for the end of a job, and returns once `waiting` requests are registered.
async fn await_end(bench: &TestShard, name: &'static str, waiting: u64) -> WaitTimes {
    let waits = spawn_wait(bench, name);
    wait_until_waiting(bench, waiting).await;
    waits
}

async fn wait_until_waiting(bench: &TestShard, count: u64) {
    let are_waiting = || {
        let gauges = bench.handle.metrics().gauges;
        gauges.contains(&("waiting_ends", count))
    };
    while !are_waiting() {
        tokio::task::yield_now().await;
    }
}

async fn ended(waits: WaitTimes) -> Option<StoredJob> {
    waits.await.expect("no panic").expect("readable")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_its_end_sees_success_and_failure() {
    let bench = TestShard::start().await;
    for words in [
        "put 1 w q a k {} 0",
        "put 1 w q b k {} 0",
        "track 1 track a",
    ] {
        call(&bench, words).await;
    }
    let a = await_end(&bench, "a", 1).await;
    let b = await_end(&bench, "b", 2).await;
    let also = await_end(&bench, "b", 3).await;
    call(&bench, "pop 2 q w 2").await;
    call(&bench, "complete 3 a w q {}").await;
    let job = ended(a).await.expect("it is kept");
    assert_eq!(job.record.state, JobState::Succeeded);
    assert!(job.record.tracked);
    let shown = bench.handle.job(&Namespace::default(), &id("a")).await;
    assert_eq!(shown, Ok(Some(job)), "as it is shown");
    wait_until_waiting(&bench, 2).await;
    // A retry is no end.
    call(&bench, "retry 4 b q w").await;
    call(&bench, "pop 5 q w 1").await;
    call(&bench, "fail 6 b w bad why").await;
    for waits in [b, also] {
        let job = ended(waits).await.expect("it is kept");
        assert_eq!(job.record.state, JobState::Failed);
    }
    // A finished job is returned at once; a job that was put back is waited for.
    let job = ended(spawn_wait(&bench, "b")).await.expect("it is kept");
    assert_eq!(job.record.state, JobState::Failed);
    call(&bench, "unfail 7 q bad 1").await;
    let b = await_end(&bench, "b", 1).await;
    call(&bench, "pop 8 q w 1").await;
    call(&bench, "complete 9 b w q {}").await;
    let job = ended(b).await.expect("it is kept");
    assert_eq!(job.record.state, JobState::Succeeded);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_a_job_that_goes_learns_that_there_is_none() {
    let bench = TestShard::start().await;
    for words in ["put 1 w q a k {} 0", "put 1 w q b k {} 0"] {
        call(&bench, words).await;
    }
    let a = await_end(&bench, "a", 1).await;
    let b = await_end(&bench, "b", 2).await;
    call(&bench, "cancel 2 a").await;
    assert_eq!(ended(a).await, None);
    // Clearing a database sends no events, and the wait is answered all the same.
    let clear = Command::from(QlessCall {
        namespace: Namespace::default(),
        request: QlessRequest::Clear,
    });
    bench.handle.call(clear).await.expect("in service");
    assert_eq!(ended(b).await, None);
    assert_eq!(ended(spawn_wait(&bench, "a")).await, None);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_waited_long_enough_gets_it_as_it_is() {
    let bench = TestShard::start().await;
    call(&bench, "put 1 w q a k {} 0").await;
    let a = await_end(&bench, "a", 1).await;
    // The longest possible wait has passed.
    bench.clock.advance(Duration::from_secs(3_600));
    let job = ended(a).await.expect("it is there");
    assert_eq!(job.record.state, JobState::Ready);
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_moves_are_events_and_none_is_told_before_its_commit() {
    let bench = TestShard::start().await;
    let mut events = bench.handle.events(None).expect("room");
    let arrived = bench.control.arrived();
    bench.control.hold();
    let put = call(&bench, "put 1 w q a k {} 0");
    tokio::pin!(put);
    assert!(poll_once(put.as_mut()).is_none(), "no reply");
    bench.control.wait_arrived(arrived + 1);
    assert!(poll_once(events.next()).is_none(), "no event");
    bench.control.release();
    put.await;
    call(&bench, "cancel 2 a").await;
    let moved = events.next().await.expect("it is told").happening;
    let Happening::JobMoved {
        key, job, from, to, ..
    } = moved
    else {
        panic!("{moved:?}");
    };
    assert_eq!((key, job), (JobKey::OF_QLESS, id("a")));
    assert_eq!((from, to), (None, JobState::Ready));
    let removed = events.next().await.expect("it is told").happening;
    assert!(
        matches!(removed, Happening::JobRemoved { .. }),
        "{removed:?}"
    );
    let count = |name| {
        let counters = bench.handle.metrics().counters;
        let found = counters.iter().find(|(it, _)| *it == name);
        found.map(|(_, count)| *count)
    };
    assert_eq!(count("jobs_enqueued_total"), Some(1));
    assert_eq!(count("jobs_removed_total"), Some(1));
    bench.handle.stop().await;
}

fn enqueue_as(name: &str) -> Command {
    crate::kit::enqueue(vec![NewJob {
        id: Some(id(name)),
        ..crate::kit::new_job("q", "[]")
    }])
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_have_ours_by_number_and_then_the_others_page_by_page() {
    let bench = TestShard::start().await;
    for jid in ["b", "a"] {
        call(&bench, &format!("put 1 w q {jid} k {{}} 0")).await;
    }
    let keys = |call| {
        Command::from(KeyCalls {
            namespace: Namespace::default(),
            watched: Vec::new(),
            calls: vec![call],
        })
    };
    for item in ["i2", "i1"] {
        let set = KeyCall::SetMany {
            pairs: vec![(format!("p:item:{item}").into(), "data".into())],
        };
        let push = KeyCall::Push {
            key: "p:queue".into(),
            end: End::Left,
            values: vec![item.into()],
            condition: Condition::Always,
        };
        bench.handle.call(keys(set)).await.expect("in service");
        bench.handle.call(keys(push)).await.expect("in service");
    }
    // An ordinary job hides an external job that has its id.
    for name in ["a", "z"] {
        bench
            .handle
            .call(enqueue_as(name))
            .await
            .expect("in service");
    }
    let mut query = JobQuery {
        limit: 2,
        ..JobQuery::default()
    };
    let mut pages = Vec::new();
    loop {
        let page = bench.handle.list(query.clone()).await.expect("readable");
        let names = page.jobs.iter().map(|job| job.record.id.to_string());
        pages.push(names.collect::<Vec<_>>());
        let Some(next) = page.next else { break };
        query.go_on(next.to_string().parse().expect("it is the end of a page"));
    }
    assert_eq!(pages, [vec!["a", "z"], vec!["b", "i1"], vec!["i2"]]);
    let item = bench.handle.job(&Namespace::default(), &id("i1")).await;
    let item = item.expect("readable").expect("it is there");
    let payload = bench.handle.payload_of(&item.record).await;
    assert_eq!(payload.expect("readable"), Some("data".into()));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_cancelled() {
    let bench = TestShard::start().await;
    call(&bench, "put 1 w q a k {} 0").await;
    let cancel = Cancel {
        namespace: Namespace::default(),
        jobs: Selection::Jobs(vec![id("a")]),
        reason: String::new(),
    };
    let reply = bench.handle.call(Command::Cancel(Box::new(cancel))).await;
    let expected = Reply::Changed {
        count: 1,
        skipped: Vec::new(),
    };
    assert_eq!(reply, Ok(expected));
    let gone = bench.handle.job(&Namespace::default(), &id("a")).await;
    assert_eq!(gone, Ok(None));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_ours_that_waits_gets_it_with_its_payload_and_completes_it() {
    let bench = TestShard::start().await;
    let handle = bench.handle.clone();
    let wait = Duration::from_secs(60);
    let waits = tokio::spawn(async move { handle.lease(lease(&["q"], 1), wait).await });
    let is_waiting = || {
        let gauges = bench.handle.metrics().gauges;
        gauges.contains(&("waiting_workers", 1))
    };
    while !is_waiting() {
        tokio::task::yield_now().await;
    }
    call(&bench, "put 1 w q a mail {\"n\":1} 0").await;
    let deliveries = waits.await.expect("no panic").expect("in service");
    assert_eq!(deliveries[0].grant.job, id("a"));
    assert_eq!(deliveries[0].payload, "{\"n\":1}");
    let result = "{\"n\":2}";
    let done = bench
        .handle
        .call(complete(&deliveries[0], Some(result)))
        .await;
    assert!(matches!(
        done,
        Ok(Reply::Reported {
            state: JobState::Succeeded,
            ..
        })
    ));
    let job = bench.handle.job(&Namespace::default(), &id("a")).await;
    let job = job.expect("readable").expect("it is kept");
    assert_eq!(job.record.state, JobState::Succeeded);
    let kept = bench.handle.result_of(&job.record).await;
    assert_eq!(kept, Ok(Some(result.into())));
    bench.handle.stop().await;
}
