//! Jobs of qless, and items of raw keys, among the jobs of the gRPC interface.

use crate::support::Server;
use ganger_proto::v1;
use ganger_types::keys::{Condition, End, Expiry, KeyCall, KeyCalls};
use ganger_types::qless::{Generation, QlessRequest};
use ganger_types::{Bytes, Command, ExternalReply, Namespace, QlessCall, Reply};
use tonic::Status;
use v1::event::Happening;

impl Server {
    async fn qless(&self, words: &str) {
        let words = words.split(' ').map(str::to_owned).map(Bytes::from);
        let call = QlessCall {
            namespace: Namespace::default(),
            request: QlessRequest::Script {
                generation: Generation::Three,
                words: words.collect(),
            },
        };
        let reply = self.handle.call(Command::from(call)).await;
        assert!(
            matches!(reply, Ok(Reply::External(ExternalReply::Qless(Ok(_))))),
            "{reply:?}"
        );
    }

    /// An item of a work queue of raw keys.
    async fn add(&self, queue: &str, id: &str) {
        let set = KeyCall::Set {
            key: format!("{queue}:item:{id}").into(),
            value: "data".into(),
            expiry: Expiry::Never,
            condition: Condition::Always,
            gets: false,
        };
        let push = KeyCall::Push {
            key: format!("{queue}:queue").into(),
            end: End::Left,
            values: vec![id.to_owned().into()],
            condition: Condition::Always,
        };
        let calls = KeyCalls {
            namespace: Namespace::default(),
            watched: Vec::new(),
            calls: vec![set, push],
        };
        let reply = self.handle.call(Command::from(calls)).await;
        reply.expect("in service");
    }

    async fn enqueue(&self, id: &str, delay_ms: u64) {
        let job = v1::NewJob {
            kind: "k".into(),
            queue: "q".into(),
            id: Some(id.to_owned()),
            start: Some(v1::Start {
                when: Some(v1::start::When::AfterMs(delay_ms)),
            }),
            ..v1::NewJob::default()
        };
        let request = v1::EnqueueRequest {
            jobs: vec![job],
            ..v1::EnqueueRequest::default()
        };
        self.jobs().enqueue(request).await.expect("accepted");
    }

    async fn list(&self, request: v1::ListRequest) -> v1::ListReply {
        let reply = self.jobs().list(request).await;
        reply.expect("listed").into_inner()
    }

    async fn get(&self, job: &str) -> Result<v1::Job, Status> {
        Ok(self.jobs().get(named(job)).await?.into_inner())
    }

    async fn result(&self, job: &str) -> v1::ResultReply {
        let reply = self.jobs().result(named(job)).await;
        reply.expect("it is there").into_inner()
    }

    /// A client that waits for a job's end; the wait has begun when this returns.
    async fn wait(&self, job: &str, waiting: u64) -> Waits {
        let request = v1::WaitRequest {
            job: job.to_owned(),
            wait_ms: 300_000,
            ..v1::WaitRequest::default()
        };
        let mut jobs = self.jobs();
        let waits = tokio::spawn(async move { Ok(jobs.wait(request).await?.into_inner()) });
        let are_waiting = || {
            let gauges = self.handle.metrics().gauges;
            gauges.contains(&("waiting_ends", waiting))
        };
        while !are_waiting() {
            tokio::task::yield_now().await;
        }
        waits
    }

    async fn follow(&self, request: v1::EventsRequest) -> tonic::Streaming<v1::EventBatch> {
        let stream = self.insight().events(request).await;
        let mut stream = stream.expect("room").into_inner();
        // The first batch comes at once: from then on nothing is missed.
        stream.message().await.expect("it lives");
        stream
    }
}

type Waits = tokio::task::JoinHandle<Result<v1::Job, Status>>;

fn named(job: &str) -> v1::GetRequest {
    v1::GetRequest {
        job: job.to_owned(),
        ..v1::GetRequest::default()
    }
}

fn ids(page: &v1::ListReply) -> Vec<&str> {
    page.jobs.iter().map(|job| &*job.id).collect()
}

fn code(status: &Status) -> &str {
    let code = status.metadata().get("ganger-code");
    code.and_then(|code| code.to_str().ok()).unwrap_or_default()
}

/// Reads events until so many have come; each as a line.
async fn lines(stream: &mut tonic::Streaming<v1::EventBatch>, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < count {
        let batch = stream.message().await.expect("it lives").expect("more");
        lines.extend(batch.events.into_iter().map(|event| line(&event)));
    }
    lines
}

fn line(event: &v1::Event) -> String {
    match event.happening.as_ref().expect("it tells something") {
        Happening::JobMoved(moved) => {
            let (from, to) = (moved.from().as_str_name(), moved.to().as_str_name());
            let short = |state: &str| state.trim_start_matches("JOB_STATE_").to_lowercase();
            let v1::JobMoved {
                job,
                queue,
                kind,
                attempt,
                worker,
                reason,
                ..
            } = moved;
            let words = [job, queue, kind, &short(from), &short(to), worker, reason];
            format!("{} {attempt}", words.map(String::as_str).join(" "))
        }
        Happening::JobRemoved(removed) => format!("{} {} removed", removed.job, removed.queue),
        other => format!("{other:?}"),
    }
}

/// Three jobs of qless, an item, and two of ours.
async fn mixed() -> Server {
    let server = Server::start().await;
    server.enqueue("o1", 0).await;
    server.enqueue("o2", 3_600_000).await;
    for words in [
        "put 1 w q j1 mail {} 0",
        "put 1 w q j2 mail {} 0 priority 1",
        "put 1 w q j3 mail {} 60",
        "pop 2 q w 1",
        "fail 3 j2 w bad why",
    ] {
        server.qless(words).await;
    }
    server.add("q", "i").await;
    server
}

#[tokio::test]
async fn several_states_are_listed_page_by_page_and_counted_over_jobs_of_all_kinds() {
    use v1::JobState::{Failed, Ready, Running, Scheduled};
    let server = mixed().await;
    let cases: [(&[v1::JobState], &str, &[&str]); 6] = [
        (&[], "", &["o1", "o2", "j1", "j2", "j3", "i"]),
        (&[Ready], "", &["o1", "j1", "i"]),
        (&[Scheduled, Failed], "", &["o2", "j2", "j3"]),
        (&[Failed, Running], "", &["j2"]),
        (&[Ready, Scheduled], "mail", &["j1", "j3"]),
        (&[Running], "", &[]),
    ];
    for (states, kind, expected) in cases {
        let mut request = v1::ListRequest {
            state: states.iter().map(|state| i32::from(*state)).collect(),
            kind: (!kind.is_empty()).then(|| kind.to_owned()),
            ..v1::ListRequest::default()
        };
        assert_eq!(ids(&server.list(request.clone()).await), expected);
        let counted = server.jobs().count(request.clone()).await;
        let count = usize::try_from(counted.expect("counted").into_inner().count);
        assert_eq!(count, Ok(expected.len()), "{states:?}");
        request.limit = 1;
        let mut seen = Vec::new();
        loop {
            let page = server.list(request.clone()).await;
            seen.extend(page.jobs.into_iter().map(|job| job.id));
            if page.next.is_empty() {
                break;
            }
            request.cursor = page.next;
        }
        assert_eq!(seen, expected, "{states:?}");
    }
    let unknown = v1::ListRequest {
        state: vec![99],
        ..v1::ListRequest::default()
    };
    let refused = server
        .jobs()
        .list(unknown)
        .await
        .expect_err("no such state");
    assert_eq!(code(&refused), "invalid_value");
}

#[tokio::test]
async fn a_job_of_qless_is_shown_explained_and_counted_in_its_queue() {
    let server = mixed().await;
    let job = server.get("j2").await.expect("it is there");
    assert_eq!((&*job.kept_by, &*job.kind), ("qless", "mail"));
    assert_eq!(job.state(), v1::JobState::Failed);
    assert_eq!(job.failure.expect("it says why").group, "bad");
    let item = server.get("i").await.expect("it is there");
    assert_eq!(item.kept_by, "keys");
    let payload = server.jobs().payload(named("i")).await;
    assert_eq!(payload.expect("it is there").into_inner().payload, "data");

    let why = |job: &'static str| {
        let mut jobs = server.jobs();
        async move {
            let why = jobs
                .why(named(job))
                .await
                .expect("it is there")
                .into_inner();
            let codes = why.reasons.into_iter().map(|reason| reason.code);
            codes.collect::<Vec<_>>()
        }
    };
    assert_eq!(why("j2").await, ["ended"]);
    server.qless("pause 4 q").await;
    assert!(why("j1").await.contains(&"queue_paused".to_owned()));
    server.qless("unpause 4 q").await;
    server.qless("pop 4 q v 1").await;
    assert_eq!(why("j1").await, ["locked"]);

    let queues = server.queues().list(v1::QueuesRequest::default()).await;
    let queues = queues.expect("listed").into_inner().queues;
    let [queue] = &queues[..] else {
        panic!("{queues:?}");
    };
    let counts = queue.counts.as_ref().expect("they are counted");
    assert_eq!(queue.queue, "q");
    assert_eq!((counts.ready, counts.running), (2, 1));
    assert_eq!((counts.scheduled, counts.failed), (2, 1));
    let request = v1::InsightRequest::default();
    let groups = server.insight().failure_groups(request).await;
    let groups = groups.expect("listed").into_inner().groups;
    assert_eq!((&*groups[0].group, groups[0].jobs), ("bad", 1));
}

#[tokio::test]
async fn it_is_cancelled_and_the_refusal_for_an_item_says_how() {
    let server = mixed().await;
    let waits = server.wait("j1", 1).await;
    let cancel = |jobs: &[&str]| v1::CancelRequest {
        jobs: jobs.iter().map(|job| (*job).to_owned()).collect(),
        ..v1::CancelRequest::default()
    };
    let changed = server.jobs().cancel(cancel(&["j1", "i"])).await;
    let changed = changed.expect("accepted").into_inner();
    assert_eq!((changed.count, changed.skipped.len()), (1, 1));
    let gone = server.get("j1").await.expect_err("it is gone");
    assert_eq!(code(&gone), "job_not_found");
    let waited = waits.await.expect("no panic").expect_err("it is gone");
    assert_eq!(code(&waited), "job_not_found");
    let refused = server.jobs().cancel(cancel(&["i"])).await;
    let refused = refused.expect_err("an item is not ours to cancel");
    assert_eq!(code(&refused), "wrong_state");
    assert!(refused.message().contains("DEL its key"), "{refused:?}");
}

#[tokio::test]
async fn its_events_are_told_and_filtered_and_items_have_none() {
    let server = Server::start().await;
    let mut all = server.follow(v1::EventsRequest::default()).await;
    let mut one = server
        .follow(v1::EventsRequest {
            jobs: vec!["j2".to_owned()],
            moves_only: true,
            ..v1::EventsRequest::default()
        })
        .await;
    let mut queue = server
        .follow(v1::EventsRequest {
            queues: vec!["p".to_owned()],
            ..v1::EventsRequest::default()
        })
        .await;
    server.add("q", "i").await;
    for words in [
        "put 1 w q j1 mail {} 0",
        "put 1 w p j2 mail {} 60",
        "pop 2 q w 1",
        "complete 3 j1 w q {}",
        "cancel 4 j2",
    ] {
        server.qless(words).await;
    }
    let expected = [
        "1/j1 q mail unspecified ready   0",
        "1/j2 p mail unspecified scheduled   0",
        "1/j1 q mail ready running w  1",
        "1/j1 q mail running succeeded w  1",
        "1/j2 p removed",
    ];
    assert_eq!(lines(&mut all, 5).await, expected);
    for stream in [&mut one, &mut queue] {
        assert_eq!(lines(stream, 2).await, [expected[1], expected[4]]);
    }
}

#[tokio::test]
async fn its_result_is_kept_for_clients_that_wait_or_ask_later() {
    let server = Server::start().await;
    server.qless("put 1 w q j mail {} 0").await;
    let early = server.result("j").await;
    assert_eq!(
        (early.result.as_ref(), early.state()),
        (None, v1::JobState::Ready)
    );
    let waits = server.wait("j", 1).await;
    let request = v1::LeaseRequest {
        queues: vec![v1::TakeFrom {
            queue: "q".into(),
            ..v1::TakeFrom::default()
        }],
        worker: "ours".into(),
        ..v1::LeaseRequest::default()
    };
    let leased = server.leases().lease(request).await.expect("leased");
    let [delivery] = &leased.into_inner().deliveries[..] else {
        panic!("there is one job");
    };
    let completion = v1::Completion {
        held: Some(v1::Held {
            job: delivery.job.clone(),
            token: delivery.token.clone(),
        }),
        result: Some("\"done\"".into()),
        next: None,
    };
    let request = v1::CompleteRequest {
        items: vec![completion],
        ..v1::CompleteRequest::default()
    };
    server.leases().complete(request).await.expect("reported");
    let waited = waits.await.expect("no panic").expect("it is kept");
    assert_eq!(waited.state(), v1::JobState::Succeeded);
    assert_eq!(waited.finished.expect("it has ended").result_bytes, Some(6));
    let kept = server.result("j").await;
    assert_eq!(kept.result.expect("there is one"), "\"done\"");
    server.qless("requeue 2 w q j mail {} 0").await;
    let gone = server.result("j").await;
    assert_eq!(
        (gone.result.as_ref(), gone.state()),
        (None, v1::JobState::Ready)
    );
}

#[tokio::test]
async fn a_follower_of_the_log_of_a_job_of_qless_sees_its_end() {
    let server = Server::start().await;
    for words in [
        "put 1 w q j mail {} 0",
        "put 1 w q other mail {} 0",
        "pop 2 q w 2",
    ] {
        server.qless(words).await;
    }
    let request = v1::LogRequest {
        job: "j".into(),
        ..v1::LogRequest::default()
    };
    let stream = server.jobs().follow_log(request).await;
    let mut stream = stream.expect("it is there").into_inner();
    server.qless("complete 3 other w q {}").await;
    server.qless("complete 3 j w q {}").await;
    let last = stream.message().await.expect("it lives").expect("an end");
    assert!(last.end && last.chunks.is_empty(), "{last:?}");
    assert!(stream.message().await.expect("it lives").is_none());
}
