//! Jobs of qless through a running shard: found, with their payloads, where no job of ours is; cancelled like any other.

mod kit;

use std::time::Duration;

use ganger_types::command::{Cancel, Selection};
use ganger_types::qless::{Generation, QlessRequest};
use ganger_types::{Bytes, Command, JobId, JobState, Namespace, QlessCall, Reply};
use kit::{Bench, complete, lease};

async fn call(bench: &Bench, words: &str) {
    let words = words.split(' ').map(str::to_owned).map(Bytes::from);
    let request = QlessRequest::Script {
        generation: Generation::Two,
        words: words.collect(),
    };
    let call = Command::Qless(Box::new(QlessCall {
        namespace: Namespace::default(),
        request,
    }));
    let reply = bench.handle.call(call).await.expect("in service");
    assert!(matches!(reply, Reply::Qless(Ok(_))), "{reply:?}");
}

fn id(text: &str) -> JobId {
    JobId::new(text).expect("short")
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_found_with_its_payload_by_reads_and_by_waits() {
    let bench = Bench::start().await;
    let (namespace, a) = (Namespace::default(), id("a"));
    let missing = bench.handle.job(&namespace, &a).await.expect("readable");
    assert_eq!(missing, None);
    call(&bench, "put 1 w q a k {\"n\":1} 0").await;
    let job = bench.handle.job(&namespace, &a).await.expect("readable");
    let job = job.expect("it is there");
    assert_eq!(job.record.state, JobState::Ready);
    let payload = bench.handle.payload_of(&job.record).await;
    assert_eq!(payload.expect("readable"), Some("{\"n\":1}".into()));
    let wait = Duration::from_secs(60);
    let waited = bench.handle.wait(&namespace, &a, wait).await;
    assert_eq!(waited.expect("readable"), Some(job));
    bench.handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_cancelled() {
    let bench = Bench::start().await;
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
    let bench = Bench::start().await;
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
    let done = bench.handle.call(complete(&deliveries[0], None)).await;
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
    bench.handle.stop().await;
}
