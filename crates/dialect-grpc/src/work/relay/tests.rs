//! A relay between a worker and shards that the tests play.

use std::sync::atomic::Ordering;

use ganger_proto::v1;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::codec::{BufferSettings, EncodeBody, SingleMessageCompressionOverride, Streaming};
use tonic_prost::{ProstDecoder, ProstEncoder};

use super::*;
use crate::problem::Problem;

/// Room in the channels of a test.
const ROOM: usize = 100;

type ServerMessage = Result<v1::ServerMessage, Status>;

/// The shard's end of an inner stream.
struct ShardEnd {
    incoming: Streaming<v1::WorkerMessage>,
    says: mpsc::Sender<ServerMessage>,
}

impl ShardEnd {
    async fn hears(&mut self) -> v1::WorkerMessage {
        let heard = self.incoming.message().await;
        heard.expect("no error").expect("the stream goes on")
    }

    async fn says(&self, message: ServerMessage) {
        self.says.send(message).await.expect("the relay is there");
    }
}

/// A worker's stream through a relay.
struct Test {
    relay: WorkerRelay,
    draining: watch::Sender<bool>,
    says: mpsc::Sender<v1::WorkerMessage>,
    request: Option<Request<Body>>,
    connect: Connect,
    /// The inner streams that the relay opens.
    opened: mpsc::Receiver<ShardEnd>,
}

impl Test {
    fn new() -> Self {
        let (draining, drained) = watch::channel(false);
        let (says, said) = mpsc::channel(ROOM);
        let encoder = ProstEncoder::<v1::WorkerMessage>::new(BufferSettings::default());
        let said = futures::StreamExt::map(ReceiverStream::new(said), Ok);
        let body = Body::new(EncodeBody::new_client(encoder, said, None, None));
        let (opens, opened) = mpsc::channel(ROOM);
        Self {
            relay: WorkerRelay {
                draining: drained,
                stopping: CancellationToken::new(),
                reopened: Arc::default(),
            },
            draining,
            says,
            request: Some(Request::new(body)),
            connect: Arc::new(move |request| Box::pin(shard(request, opens.clone()))),
            opened,
        }
    }

    /// Opens the stream, whose shard welcomes the worker.
    async fn open(&mut self) -> (Streaming<v1::ServerMessage>, ShardEnd) {
        let hello = v1::Hello {
            worker: "w".to_owned(),
            session: "s".to_owned(),
            ..v1::Hello::default()
        };
        self.says(v1::WorkerMessage {
            hello: Some(hello),
            credits_added: 10,
            ..v1::WorkerMessage::default()
        })
        .await;
        let request = self.request.take().expect("it is opened once");
        let response = self.relay.answer(request, Arc::clone(&self.connect)).await;
        let mut shard = self.opened.recv().await.expect("an inner stream");
        assert!(shard.hears().await.hello.is_some());
        shard.says(Ok(welcome())).await;
        let decoder = ProstDecoder::new(BufferSettings::default());
        let (code, body) = (response.status(), response.into_body());
        let messages = Streaming::new_response(decoder, body, code, None, None);
        (messages, shard)
    }

    async fn says(&self, message: v1::WorkerMessage) {
        self.says.send(message).await.expect("the relay is there");
    }
}

/// Answers a request for an inner stream, and hands its end to the test.
async fn shard(request: Request<Body>, opens: mpsc::Sender<ShardEnd>) -> Response<Body> {
    let decoder = ProstDecoder::new(BufferSettings::default());
    let incoming = Streaming::new_request(decoder, request.into_body(), None, None);
    let (says, said) = mpsc::channel::<ServerMessage>(ROOM);
    let encoder = ProstEncoder::new(BufferSettings::default());
    let single = SingleMessageCompressionOverride::default();
    let said = ReceiverStream::new(said);
    let body = EncodeBody::new_server(encoder, said, None, single, None);
    let end = ShardEnd { incoming, says };
    assert!(opens.send(end).await.is_ok(), "the test looks");
    Response::new(Body::new(body))
}

fn welcome() -> v1::ServerMessage {
    v1::ServerMessage {
        welcome: Some(v1::Welcome::default()),
        ..v1::ServerMessage::default()
    }
}

fn delivery(job: &str) -> v1::ServerMessage {
    let delivery = v1::Delivery {
        job: job.to_owned(),
        token: bytes::Bytes::from(format!("token {job}")),
        ..v1::Delivery::default()
    };
    v1::ServerMessage {
        deliveries: vec![delivery],
        heard: 1,
        ..v1::ServerMessage::default()
    }
}

fn completion(number: u64) -> v1::WorkerMessage {
    let what = v1::report::What::Complete(v1::Completion::default());
    v1::WorkerMessage {
        reports: vec![v1::Report {
            number,
            what: Some(what),
        }],
        ..v1::WorkerMessage::default()
    }
}

#[tokio::test]
async fn a_stream_goes_on_at_another_node() {
    let mut test = Test::new();
    let (mut worker, mut first) = test.open().await;
    assert!(
        worker
            .message()
            .await
            .expect("no error")
            .expect("one")
            .welcome
            .is_some()
    );
    first.says(Ok(delivery("a"))).await;
    let came = worker.message().await.expect("no error").expect("a job");
    assert_eq!(came.deliveries[0].job, "a");
    test.says(completion(1)).await;
    assert_eq!(first.hears().await.reports[0].number, 1);
    // The shard moves before it has answered.
    first.says(Err(Problem::stopping().into())).await;
    let mut second = test.opened.recv().await.expect("it is opened again");
    let resumed = second.hears().await;
    assert_eq!(resumed.hello.expect("first").worker, "w");
    assert_eq!(resumed.credits_added, 9, "one of ten is used");
    assert_eq!(resumed.reports[0].number, 1, "it was not answered");
    second.says(Ok(welcome())).await;
    let mut answer = v1::ServerMessage::default();
    answer.completed.push(1);
    second.says(Ok(answer)).await;
    let next = worker.message().await.expect("no error").expect("one");
    assert!(next.welcome.is_none(), "the worker was welcomed before");
    let next = worker.message().await.expect("no error").expect("one");
    assert_eq!(next.completed, [1]);
    assert_eq!(test.relay.reopened.load(Ordering::Relaxed), 1);
    // A connection that breaks is no end either.
    drop(second);
    let mut third = test.opened.recv().await.expect("it is opened again");
    assert!(third.hears().await.reports.is_empty(), "all is answered");
    third
        .says(Err(Status::invalid_argument("no such field")))
        .await;
    let end = worker.message().await.expect_err("the shard refuses");
    assert_eq!(end.code(), Code::InvalidArgument);
    assert!(test.opened.try_recv().is_err(), "it is over");
}

#[tokio::test]
async fn jobs_that_did_not_reach_their_worker_are_given_back() {
    let mut test = Test::new();
    let (worker, mut shard) = test.open().await;
    for job in ["a", "b", "c", "d"] {
        shard.says(Ok(delivery(job))).await;
    }
    // The relay takes what it has room for. Nobody reads it, and the connection ends.
    for _ in 0..ROOM {
        tokio::task::yield_now().await;
    }
    drop(worker);
    let released = shard.hears().await;
    assert!(released.credits_dropped);
    let jobs = released
        .reports
        .into_iter()
        .map(|report| match report.what {
            Some(v1::report::What::Release(release)) => {
                assert!(release.keep_place && !release.counted);
                release.held.expect("a job").job
            }
            other => panic!("it is released: {other:?}"),
        });
    let jobs: Vec<_> = jobs.collect();
    assert!(!jobs.is_empty());
    assert!(["a", "b", "c", "d"].starts_with(&jobs.iter().map(String::as_str).collect::<Vec<_>>()));
}

#[tokio::test]
async fn a_worker_is_told_when_its_node_stops() {
    let mut test = Test::new();
    let (mut worker, shard) = test.open().await;
    // Another node's stop does not concern it.
    let drained = v1::ServerMessage {
        drain: true,
        ..v1::ServerMessage::default()
    };
    shard.says(Ok(drained)).await;
    for _ in 0..2 {
        let message = worker.message().await.expect("no error").expect("one");
        assert!(!message.drain);
    }
    test.draining.send_replace(true);
    let message = worker.message().await.expect("no error").expect("one");
    assert!(message.drain);
    test.relay.stopping.cancel();
    let end = worker.message().await.expect_err("the server stops");
    assert_eq!(end.code(), Code::Unavailable);
}

#[tokio::test]
async fn a_stream_whose_worker_ends_it_ends_without_an_error() {
    let mut test = Test::new();
    let (mut worker, mut shard) = test.open().await;
    assert!(worker.message().await.expect("no error").is_some());
    let says = std::mem::replace(&mut test.says, mpsc::channel(1).0);
    drop(says);
    assert!(shard.incoming.message().await.expect("no error").is_none());
    drop(shard);
    assert!(worker.message().await.expect("no error").is_none());
}
