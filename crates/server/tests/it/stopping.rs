//! What delays a stop of the server, and what does not. The stop timeout is an hour in most tests, so a stop that
//! waits for it fails the test.

use std::future::Future;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use ganger_client::{
    Client, Delivery, NewJob, Options, TakeFrom, TakeMode, WorkEvent, WorkOptions, WorkStream,
};
use ganger_proto::v1;
use ganger_proto::v1::insight_client::InsightClient;
use ganger_proto::v1::jobs_client::JobsClient;
use ganger_proto::v1::leases_client::LeasesClient;
use ganger_server::{Config, Running, start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::kit::{WithMetadata, config, read_head};
use crate::shards::{jobs_client, pair};

/// Timeout of every wait, so that a failing test does not hang.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

async fn start_server() -> Running {
    let config = Config {
        stop_timeout: HOUR,
        ..config()
    };
    let running = start(config).await.expect("it starts");
    running.ready().await;
    running
}

async fn within_timeout<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(TEST_TIMEOUT, future).await;
    done.unwrap_or_else(|_| panic!("{what} takes too long"))
}

async fn client(running: &Running) -> Client {
    let options = Options::new(running.addr().to_string());
    Client::connect(options).await.expect("it answers")
}

async fn channel(running: &Running) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", running.addr()));
    let endpoint = endpoint.expect("an address");
    endpoint.connect().await.expect("it listens")
}

fn open_stream(client: &Client, credits: u32) -> WorkStream {
    client.work(WorkOptions {
        worker: "w".to_owned(),
        queues: vec![TakeFrom::new("default")],
        mode: TakeMode::Ordered,
        lease_for: None,
        credits,
    })
}

async fn wait_connected(worker: &mut WorkStream) {
    while !matches!(
        within_timeout("connecting", worker.next()).await,
        Some(WorkEvent::Connected { .. })
    ) {}
}

async fn next_delivery(worker: &mut WorkStream) -> Delivery {
    loop {
        if let Some(WorkEvent::Jobs(mut jobs)) = within_timeout("a delivery", worker.next()).await {
            return jobs.remove(0);
        }
    }
}

/// Returns a request stream that sends `first` and is never closed.
fn endless<T: Send + 'static>(first: T) -> impl futures::Stream<Item = T> + Send + 'static {
    stream::once(std::future::ready(first)).chain(stream::pending())
}

/// Returns a channel to `running` whose calls are for shard 2.
async fn channel_to_shard_2(running: &Running) -> InterceptedService<Channel, WithMetadata> {
    let two = WithMetadata(vec![("ganger-shard", "2".to_owned())]);
    InterceptedService::new(channel(running).await, two)
}

/// Starts two servers whose stop timeout is an hour.
async fn pair_with_long_timeout() -> [Running; 2] {
    pair(Config {
        stop_timeout: HOUR,
        ..config()
    })
    .await
}

/// Returns the first request of a tool that reads the schema.
fn list_services() -> ServerReflectionRequest {
    ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    }
}

/// Reads a response to its end; returns its error, or `None` if it ended without one.
async fn end_status<T>(answers: &mut Streaming<T>) -> Option<(Code, String)> {
    loop {
        match within_timeout("the end", answers.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(status) => return Some((status.code(), status.message().to_owned())),
        }
    }
}

/// Returns the error of calls that a stopping server ends.
fn stopping_status() -> (Code, String) {
    let words = "the server is stopping: try again".to_owned();
    (Code::Unavailable, words)
}

fn hello() -> v1::WorkerMessage {
    v1::WorkerMessage {
        hello: Some(v1::Hello {
            worker: "another".to_owned(),
            queues: vec![v1::TakeFrom {
                queue: "default".to_owned(),
                weight: 1,
            }],
            ..v1::Hello::default()
        }),
        credits_added: 1,
        ..v1::WorkerMessage::default()
    }
}

#[tokio::test]
async fn idle_workers_do_not_delay_a_stop() {
    let running = start_server().await;
    let client = client(&running).await;
    let mut ours = open_stream(&client, 1);
    wait_connected(&mut ours).await;
    let mut leases = LeasesClient::new(channel(&running).await);
    let opened = leases.work(endless(hello())).await.expect("opened");
    let mut foreign = opened.into_inner();
    let welcome = foreign.message().await.expect("well").expect("a message");
    assert!(welcome.welcome.is_some());

    within_timeout("the stop", running.stop()).await;
    let last = foreign.message().await.expect("well").expect("a message");
    assert!(last.drain, "the server announces the stop");
    assert_eq!(foreign.message().await.expect("a good end"), None);
}

#[tokio::test]
async fn open_streams_and_waiting_calls_do_not_delay_a_stop() {
    let running = start_server().await;
    let client = client(&running).await;
    let job = client.enqueue(NewJob::new("k")).await.expect("accepted").id;
    let channel = channel(&running).await;
    let mut jobs = JobsClient::new(channel.clone());

    let mut insight = InsightClient::new(channel.clone());
    let events = insight.events(v1::EventsRequest::default()).await;
    let mut events = events.expect("opened").into_inner();
    events
        .message()
        .await
        .expect("well")
        .expect("a first message");
    let asked = v1::LogRequest {
        job: job.clone(),
        ..v1::LogRequest::default()
    };
    let mut log = jobs.follow_log(asked).await.expect("opened").into_inner();
    let batch = v1::EnqueueBatch {
        number: 7,
        request: Some(v1::EnqueueRequest {
            jobs: vec![v1::NewJob {
                kind: "k".to_owned(),
                ..v1::NewJob::default()
            }],
            ..v1::EnqueueRequest::default()
        }),
    };
    let batches = jobs.enqueue_stream(endless(batch)).await.expect("opened");
    let mut batches = batches.into_inner();
    let answer = batches.message().await.expect("well").expect("an answer");
    assert_eq!(answer.number, 7);
    let waiting = tokio::spawn({
        let (mut jobs, job) = (jobs.clone(), job.clone());
        async move {
            let wait = v1::WaitRequest {
                job,
                wait_ms: 300_000,
                ..v1::WaitRequest::default()
            };
            jobs.wait(wait).await
        }
    });
    let leasing = tokio::spawn({
        let mut leases = LeasesClient::new(channel);
        async move {
            let lease = v1::LeaseRequest {
                queues: vec![v1::TakeFrom {
                    queue: "empty".to_owned(),
                    weight: 1,
                }],
                worker: "w".to_owned(),
                jobs_max: 1,
                wait_ms: 300_000,
                ..v1::LeaseRequest::default()
            };
            leases.lease(lease).await
        }
    });
    let is_waiting = |(name, number): &(&str, u64)| *name == "waiting_workers" && *number > 0;
    while !running.shard().metrics().gauges.iter().any(is_waiting) {
        tokio::task::yield_now().await;
    }

    within_timeout("the stop", running.stop()).await;
    assert_eq!(end_status(&mut events).await, Some(stopping_status()));
    assert_eq!(end_status(&mut log).await, Some(stopping_status()));
    assert_eq!(end_status(&mut batches).await, Some(stopping_status()));
    let leased = leasing.await.expect("no panic").expect("an answer");
    assert_eq!(leased.into_inner().deliveries.len(), 0);
    // The wait may not have reached the server before the stop.
    if let Ok(waited) = waiting.await.expect("no panic") {
        assert_eq!(waited.into_inner().id, job);
    }
}

#[tokio::test]
async fn a_leased_job_is_reported_and_new_jobs_are_accepted_while_the_server_stops() {
    let running = start_server().await;
    let client = client(&running).await;
    let leased = client.enqueue(NewJob::new("k")).await.expect("accepted").id;
    let mut worker = open_stream(&client, 1);
    let reporter = worker.reporter();
    let job = next_delivery(&mut worker).await;
    let addr = running.addr().to_string();
    let stop = tokio::spawn(running.stop());
    while within_timeout("the announcement", worker.next()).await != Some(WorkEvent::Draining) {}

    // Over a second connection.
    let other = Client::connect(Options::new(addr)).await;
    let other = other.expect("it still listens");
    let late = other.enqueue(NewJob::new("k")).await.expect("accepted").id;
    assert!(!stop.is_finished(), "the worker still holds a job");
    reporter
        .complete(&job.lease, None)
        .await
        .expect("it still takes reports");
    within_timeout("the stop", stop).await.expect("no panic");
    assert_ne!(leased, late);
}

#[tokio::test]
async fn http_connections_end_with_their_next_response_while_the_server_stops() {
    let running = start_server().await;
    let client = client(&running).await;
    client.enqueue(NewJob::new("k")).await.expect("accepted");
    let mut worker = open_stream(&client, 1);
    let reporter = worker.reporter();
    let job = next_delivery(&mut worker).await;
    let mut kept = TcpStream::connect(running.addr()).await.expect("listens");
    let request = format!(
        "GET /api/v1/server HTTP/1.1\r\nHost: {}\r\n\r\n",
        running.addr()
    );
    let request = request.as_bytes();
    kept.write_all(request).await.expect("sent");
    let before = read_head(&mut kept).await;
    assert!(!before.contains("connection: close"), "{before}");

    let stop = tokio::spawn(running.stop());
    while within_timeout("the announcement", worker.next()).await != Some(WorkEvent::Draining) {}
    kept.write_all(request).await.expect("sent");
    let mut last = Vec::new();
    let ended = within_timeout("the end", kept.read_to_end(&mut last)).await;
    ended.expect("it ends in order");
    let last = String::from_utf8_lossy(&last);
    assert!(last.contains("HTTP/1.1 200"), "{last}");
    assert!(last.contains("connection: close"), "{last}");
    assert!(!stop.is_finished(), "the worker still holds a job");
    let taken = reporter.complete(&job.lease, None).await;
    taken.expect("it still takes reports");
    within_timeout("the stop", stop).await.expect("no panic");
}

#[tokio::test]
async fn a_worker_that_never_reports_delays_a_stop_by_the_stop_timeout_at_most() {
    let config = Config {
        stop_timeout: Duration::from_millis(50),
        ..config()
    };
    let running = start(config).await.expect("it starts");
    running.ready().await;
    let client = client(&running).await;
    client.enqueue(NewJob::new("k")).await.expect("accepted");
    let mut worker = open_stream(&client, 1);
    next_delivery(&mut worker).await;
    within_timeout("the stop", running.stop()).await;
}

#[tokio::test]
async fn an_open_reflection_stream_does_not_delay_a_stop() {
    let [one, two] = pair_with_long_timeout().await;
    let asked = || endless(list_services());
    let mut here = ServerReflectionClient::new(channel(&one).await);
    let here = here.server_reflection_info(asked()).await;
    let mut there = ServerReflectionClient::new(channel_to_shard_2(&one).await);
    let there = there.server_reflection_info(asked()).await;
    let mut open = [here, there].map(|answer| answer.expect("opened").into_inner());
    for answers in &mut open {
        let first: Option<ServerReflectionResponse> = answers.message().await.expect("well");
        assert!(first.is_some(), "the list of services");
    }
    within_timeout("the stop of the first", one.stop()).await;
    within_timeout("the stop of the other", two.stop()).await;
    let [here, there] = &mut open;
    assert_eq!(end_status(here).await, None);
    assert_eq!(end_status(there).await, Some(stopping_status()));
}

#[tokio::test]
async fn a_forwarded_worker_stream_does_not_delay_a_stop() {
    let [one, two] = pair_with_long_timeout().await;
    let mut leases = LeasesClient::new(channel_to_shard_2(&one).await);
    let worker = leases.work(endless(hello())).await.expect("opened");
    let mut worker = worker.into_inner();
    let welcome = worker.message().await.expect("well").expect("a message");
    assert_eq!(welcome.welcome.expect("a welcome").shard, "2");

    within_timeout("the stop of the first", one.stop()).await;
    assert_eq!(end_status(&mut worker).await, Some(stopping_status()));
    // The other server has noticed that the worker is gone, so the worker does not delay its stop either.
    within_timeout("the stop of the other", two.stop()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_neither_loses_nor_duplicates_forwarded_batches() {
    let [one, two] = pair_with_long_timeout().await;
    let mut through_one = jobs_client(one.addr(), "2").await;
    let batches = stream::iter(1..).map(|number| v1::EnqueueBatch {
        number,
        request: Some(v1::EnqueueRequest {
            jobs: vec![v1::NewJob {
                kind: "k".to_owned(),
                ..v1::NewJob::default()
            }],
            ..v1::EnqueueRequest::default()
        }),
    });
    let answers = through_one.enqueue_stream(batches).await.expect("opened");
    let mut answers = answers.into_inner();
    let mut accepted = 0;
    let mut one = Some(one);
    let mut stop = None;
    let end = loop {
        match within_timeout("an answer", answers.message()).await {
            Ok(Some(answer)) => accepted = answer.number,
            Ok(None) => panic!("the stream ended without an error"),
            Err(status) => break status,
        }
        if accepted >= 100
            && let Some(one) = one.take()
        {
            stop = Some(tokio::spawn(one.stop()));
        }
    };
    assert_eq!((end.code(), end.message().to_owned()), stopping_status());
    within_timeout("the stop", stop.expect("begun"))
        .await
        .expect("no panic");
    let mut at_two = jobs_client(two.addr(), "2").await;
    let count = at_two.count(v1::ListRequest::default()).await;
    let stored = count.expect("counted").into_inner().count;
    assert_eq!(stored, accepted, "every stored job was acknowledged");
    within_timeout("the stop of the other", two.stop()).await;
}
