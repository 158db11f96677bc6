//! Workers' streams: a worker that loses a lease is notified, nothing watches events while no stream is open, and a report
//! and the lease of the next job share a commit.

use crate::support::Server;
use ganger_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// A worker on a stream of its own.
struct Worker {
    /// Ends the stream when it is dropped.
    says: mpsc::UnboundedSender<v1::WorkerMessage>,
    hears: tonic::Streaming<v1::ServerMessage>,
}

impl Worker {
    async fn connect(server: &Server, name: &str) -> Self {
        let (says, said) = mpsc::unbounded_channel();
        let from = v1::TakeFrom {
            queue: "q".into(),
            ..v1::TakeFrom::default()
        };
        let hello = v1::Hello {
            worker: name.to_owned(),
            queues: vec![from],
            ..v1::Hello::default()
        };
        let first = v1::WorkerMessage {
            hello: Some(hello),
            credits_added: 1,
            ..v1::WorkerMessage::default()
        };
        says.send(first).expect("the other end is here");
        let stream = UnboundedReceiverStream::new(said);
        let hears = server.leases().work(stream).await.expect("a stream");
        Self {
            says,
            hears: hears.into_inner(),
        }
    }

    /// What the first message that says such a thing says.
    async fn hear<T>(&mut self, mut of: impl FnMut(v1::ServerMessage) -> Option<T>) -> T {
        loop {
            let message = self.hears.message().await.expect("no error");
            if let Some(said) = of(message.expect("it goes on")) {
                return said;
            }
        }
    }
}

async fn enqueue(server: &Server, id: &str) {
    let job = v1::NewJob {
        kind: "k".into(),
        queue: "q".into(),
        id: Some(id.to_owned()),
        ..v1::NewJob::default()
    };
    let request = v1::EnqueueRequest {
        jobs: vec![job],
        ..v1::EnqueueRequest::default()
    };
    server.jobs().enqueue(request).await.expect("accepted");
}

/// Waits until so many look at the events.
async fn until_subscribed(server: &Server, wanted: u64) {
    loop {
        let numbers = server.handle.metrics_now().await.expect("in service");
        if numbers.gauges.contains(&("subscriptions", wanted)) {
            return;
        }
    }
}

#[tokio::test]
async fn a_worker_that_loses_a_lease_is_notified_on_every_stream_and_nothing_watches_without_one() {
    let server = Server::start().await;
    enqueue(&server, "before").await;
    until_subscribed(&server, 0).await;
    // The second round shows that it begins again when the last stream has gone.
    for round in 0..2 {
        let mut workers = Vec::new();
        for name in ["v", "w"] {
            let mut worker = Worker::connect(&server, name).await;
            let id = format!("{name}{round}");
            if name != "v" || round > 0 {
                enqueue(&server, &id).await;
            }
            let taken = |message: v1::ServerMessage| message.deliveries.into_iter().next();
            let delivery = worker.hear(taken).await;
            workers.push((worker, delivery));
        }
        until_subscribed(&server, 1).await;
        for (worker, delivery) in &mut workers {
            let request = v1::CancelRequest {
                jobs: vec![delivery.job.clone()],
                ..v1::CancelRequest::default()
            };
            server.jobs().cancel(request).await.expect("done");
            let lost = |message: v1::ServerMessage| message.lost.into_iter().next();
            let lost = worker.hear(lost).await;
            assert_eq!(
                (&lost.job, &lost.token),
                (&delivery.job, &delivery.token),
                "{lost:?}"
            );
            assert!(lost.reason.contains("cancelled"), "{lost:?}");
        }
        drop(workers);
        until_subscribed(&server, 0).await;
    }
}

async fn commits(server: &Server) -> u64 {
    let numbers = server.handle.metrics_now().await.expect("in service");
    let found = numbers.counters.iter().find(|one| one.0 == "commits_total");
    found.expect("it is counted").1
}

#[tokio::test]
async fn a_report_and_the_next_lease_are_one_commit_and_one_message() {
    const JOBS: u64 = 5;
    let server = Server::start().await;
    for number in 0..JOBS {
        enqueue(&server, &number.to_string()).await;
    }
    let before = commits(&server).await;
    let mut worker = Worker::connect(&server, "w").await;
    for number in 0..JOBS {
        let (completed, delivery) = worker
            .hear(|message| {
                let delivery = message.deliveries.into_iter().next()?;
                Some((message.completed, delivery))
            })
            .await;
        let last = (number > 0).then_some(number);
        assert_eq!(completed, Vec::from_iter(last), "the last report's answer");
        assert_eq!(delivery.job, number.to_string());
        let completion = v1::Completion {
            held: Some(v1::Held {
                job: delivery.job,
                token: delivery.token,
            }),
            ..v1::Completion::default()
        };
        let report = v1::Report {
            number: number + 1,
            what: Some(v1::report::What::Complete(completion)),
        };
        let message = v1::WorkerMessage {
            credits_added: 1,
            reports: vec![report],
            ..v1::WorkerMessage::default()
        };
        worker.says.send(message).expect("the stream is open");
    }
    let completed = |message: v1::ServerMessage| message.completed.first().copied();
    assert_eq!(worker.hear(completed).await, JOBS);
    // One for the first lease, and one for each report.
    assert_eq!(commits(&server).await - before, JOBS + 1);
}

#[tokio::test]
async fn a_stream_of_submissions_says_why_it_ends_after_its_answers() {
    let server = Server::start().await;
    let batch = |number, payload: usize| v1::EnqueueBatch {
        number,
        request: Some(v1::EnqueueRequest {
            jobs: vec![v1::NewJob {
                kind: "k".into(),
                queue: "q".into(),
                payload: vec![b' '; payload].into(),
                ..v1::NewJob::default()
            }],
            ..v1::EnqueueRequest::default()
        }),
    };
    // The second is larger than any message may be.
    let batches = tokio_stream::iter([batch(1, 1), batch(2, 80 << 20)]);
    let answers = server.jobs().enqueue_stream(batches).await;
    let mut answers = answers.expect("a stream").into_inner();
    let first = answers.message().await.expect("no error");
    assert_eq!(first.expect("an answer").number, 1);
    let refusal = answers.message().await.expect_err("it is refused");
    assert_eq!(refusal.code(), tonic::Code::OutOfRange, "{refusal:?}");
}

/// What the server lists of a worker.
async fn listed(server: &Server, name: &str) -> v1::WorkerView {
    let request = v1::InsightRequest::default();
    let reply = server.insight().workers(request).await.expect("a list");
    let mut workers = reply.into_inner().workers.into_iter();
    let found = workers.find(|worker| worker.worker == name);
    found.expect("it is listed")
}

#[tokio::test]
async fn a_worker_is_listed_with_its_address_and_program_by_calls_and_by_streams() {
    let server = Server::start().await;
    enqueue(&server, "first").await;
    enqueue(&server, "second").await;
    let from = v1::TakeFrom {
        queue: "q".into(),
        ..v1::TakeFrom::default()
    };
    let request = v1::LeaseRequest {
        worker: "caller".into(),
        queues: vec![from],
        jobs_max: 1,
        ..v1::LeaseRequest::default()
    };
    server.leases().lease(request).await.expect("leased");
    let mut worker = Worker::connect(&server, "streamer").await;
    worker
        .hear(|message| message.deliveries.into_iter().next())
        .await;
    for name in ["caller", "streamer"] {
        let worker = listed(&server, name).await;
        let facts = worker.facts.expect("it has asked");
        assert_eq!(facts.address, crate::support::PEER, "{name}");
        assert!(
            facts.version.starts_with("mailer/1.2"),
            "{name}: {}",
            facts.version
        );
        assert_eq!((facts.slots, facts.free_slots), (1, 0), "{name}");
    }
}
