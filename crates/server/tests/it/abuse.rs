//! Small versions of the attacks of `cargo xtask abuse`: what one caller can hold, for how long, and whether others
//! are still served.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::body::Bytes;
use ganger_proto::v1;
use ganger_server::{Config, Limits, Running};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::Request;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::{add_token, config, response_to, start_server, status};

/// Timeout of every wait, so that a failing test does not hang.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Start of a gRPC message: the header announces 4 MiB, of which one byte follows.
const TRUNCATED_MESSAGE: &[u8] = &[0, 0, 0x3f, 0xff, 0xc0, 0x78];

/// A server with three identities.
struct TestServer {
    running: Running,
    access: PathBuf,
    /// Token that may submit and read.
    producer: String,
    /// Token of an administrator, for requests that must still be served.
    admin: String,
    /// Token that may lease jobs.
    worker: String,
    _directory: tempfile::TempDir,
}

/// Returns limits with 3 MiB for all requests, of which one identity may use 512 KiB for large bodies.
fn small_limits() -> Limits {
    Limits {
        bytes_in_flight: 3 << 20,
        ..Limits::default()
    }
}

async fn start_test_server(limits: Limits) -> TestServer {
    let directory = tempfile::tempdir().expect("a directory");
    let access = directory.path().join("access");
    let secret = |name, grants| add_token(&access, name, grants).reveal().to_owned();
    let producer = secret("producer", "producer@default");
    let admin = secret("other", "admin@*");
    let worker = secret("worker", "worker@default");
    let running = start_server(Config {
        access_file: Some(access.clone()),
        audit_log: Some(directory.path().join("audit")),
        limits,
        ..config()
    });
    TestServer {
        running: running.await,
        access,
        producer,
        admin,
        worker,
        _directory: directory,
    }
}

impl TestServer {
    fn addr(&self) -> SocketAddr {
        self.running.addr()
    }

    /// Sends a request over HTTP/1.1; returns the whole response.
    async fn fetch(&self, token: &str, line: &str, body: &str) -> String {
        response_to(self.addr(), &request(self.addr(), token, line, body)).await
    }

    /// Asserts that another identity can submit a job, and that health checks are answered.
    async fn assert_served(&self) {
        let submitted = self.fetch(&self.admin, "POST /api/v1/jobs", r#"{"kind":"a"}"#);
        let submitted = submitted.await;
        assert_eq!(status(&submitted), "201", "{submitted}");
        let alive = response_to(
            self.addr(),
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        )
        .await;
        assert_eq!(status(&alive), "200", "{alive}");
    }

    fn revoke(&self, name: &str) {
        ganger_access::revoke(&self.access, name).expect("the token exists");
        self.running.reload();
    }
}

fn request(addr: SocketAddr, token: &str, line: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{line} HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// Opens an HTTP/2 connection; `window` is the number of bytes that the server may send on a stream before it waits.
async fn connect_http2(addr: SocketAddr, window: u32) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(addr).await.expect("it listens");
    let handshake = h2::client::Builder::new()
        .initial_window_size(window)
        .handshake(stream)
        .await;
    let (sender, connection) = handshake.expect("HTTP/2");
    tokio::spawn(connection);
    sender.ready().await.expect("open")
}

/// Starts a gRPC call without a token if `token` is `None`; its messages go into the returned stream.
fn start_grpc_call(
    sender: &mut SendRequest<Bytes>,
    addr: SocketAddr,
    token: Option<&str>,
    method: &str,
) -> (ResponseFuture, SendStream<Bytes>) {
    let mut request = Request::post(format!("http://{addr}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(()).expect("a request");
    sender.send_request(request, false).expect("sent")
}

/// Returns the status of a call, from its headers or its trailers; `None` if the stream was reset or timed out.
async fn grpc_status(answering: ResponseFuture) -> Option<String> {
    let answer = tokio::time::timeout(TEST_TIMEOUT, answering)
        .await
        .ok()?
        .ok()?;
    let status_in = |headers: &http::HeaderMap| {
        let status = headers.get("grpc-status")?;
        status.to_str().ok().map(str::to_owned)
    };
    if let Some(status) = status_in(answer.headers()) {
        return Some(status);
    }
    let mut body: RecvStream = answer.into_body();
    while let Some(data) = body.data().await {
        let length = data.ok()?.len();
        let _ = body.flow_control().release_capacity(length);
    }
    status_in(&body.trailers().await.ok()??)
}

fn grpc_frame(body: &[u8]) -> Bytes {
    let length = u32::try_from(body.len()).expect("short").to_be_bytes();
    [&[0], &length[..], body].concat().into()
}

#[tokio::test]
async fn an_announced_message_to_the_health_service_reserves_no_memory() {
    let server = start_test_server(Limits::default()).await;
    let mut sender = connect_http2(server.addr(), 1 << 20).await;
    let health = "grpc.health.v1.Health/Check";
    let (answering, mut body) = start_grpc_call(&mut sender, server.addr(), None, health);
    body.send_data(Bytes::from_static(TRUNCATED_MESSAGE), false)
        .expect("sent");
    // 11 is OUT_OF_RANGE: the message is larger than the service accepts.
    assert_eq!(grpc_status(answering).await.as_deref(), Some("11"));
    // A shorter message that never ends holds one of the few permits of the connection.
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let (answering, mut body) = start_grpc_call(&mut sender, server.addr(), None, health);
        body.send_data(Bytes::from_static(&[0, 0, 0, 0, 9, 1]), false)
            .expect("sent");
        waiting.push((answering, body));
    }
    let (answering, _body) = start_grpc_call(&mut sender, server.addr(), None, health);
    assert_eq!(grpc_status(answering).await.as_deref(), Some("14"));
    server.assert_served().await;
    drop(waiting);
    server.running.stop().await;
}

#[tokio::test]
async fn grpc_bodies_count_in_their_senders_share_and_others_are_served() {
    let server = start_test_server(small_limits()).await;
    let mut sender = connect_http2(server.addr(), 1 << 20).await;
    let mut waiting = Vec::new();
    let mut refused = 0;
    for _ in 0..8 {
        let token = Some(&*server.producer);
        let (answering, mut body) =
            start_grpc_call(&mut sender, server.addr(), token, "ganger.v1.Jobs/Enqueue");
        // Announces 4 MiB, of which 300 KiB are sent.
        let sent = [TRUNCATED_MESSAGE, &vec![0; 300 << 10]].concat();
        body.send_data(sent.into(), false).expect("sent");
        let answered = tokio::time::timeout(Duration::from_millis(300), grpc_status(answering));
        match answered.await {
            Ok(status) => {
                assert_eq!(status.as_deref(), Some("14"));
                refused += 1;
            }
            Err(_) => waiting.push(body),
        }
    }
    assert!(refused >= 5, "{refused} of 8 were refused");
    server.assert_served().await;
    server.running.stop().await;
}

/// A gRPC message of one batch with a job whose payload has `bytes`.
fn batch_frame(number: u64, bytes: usize) -> Bytes {
    let job = v1::NewJob {
        kind: "k".into(),
        payload: vec![b' '; bytes].into(),
        ..v1::NewJob::default()
    };
    let batch = v1::EnqueueBatch {
        number,
        request: Some(v1::EnqueueRequest {
            jobs: vec![job],
            ..v1::EnqueueRequest::default()
        }),
    };
    grpc_frame(&batch.encode_to_vec())
}

/// Sends bytes as far as the receiver takes them, and ends the stream. Stops if the receiver ends it.
async fn send_all(body: &mut SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        body.reserve_capacity(bytes.len());
        let capacity = std::future::poll_fn(|cx| body.poll_capacity(cx)).await;
        let Some(Ok(capacity)) = capacity else { return };
        let piece = bytes.split_to(capacity.min(bytes.len()));
        if body.send_data(piece, bytes.is_empty()).is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn many_full_streams_of_one_identity_slow_down_and_all_are_answered() {
    const STREAMS: u64 = 6;
    const BATCHES: u64 = 48;
    // A share of 512 KiB, and streams that send 48 batches of 100 KiB each as fast as they can.
    let server = start_test_server(small_limits()).await;
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..STREAMS {
        let (addr, token) = (server.addr(), server.producer.clone());
        streams.spawn(async move {
            let mut sender = connect_http2(addr, 1 << 20).await;
            let method = "ganger.v1.Jobs/EnqueueStream";
            let (answering, mut body) = start_grpc_call(&mut sender, addr, Some(&token), method);
            let frames: Vec<_> = (0..BATCHES).map(|at| batch_frame(at, 100 << 10)).collect();
            let sent = send_all(&mut body, frames.concat().into());
            tokio::join!(sent, grpc_status(answering)).1
        });
    }
    while let Some(status) = streams.join_next().await {
        let status = status.expect("no stream panics");
        assert_eq!(status.as_deref(), Some("0"), "every stream ends well");
    }
    let counts = server.fetch(&server.admin, "GET /api/v1/queues/default", "");
    let counts = counts.await;
    let ready = format!("\"ready\":{}", STREAMS * BATCHES);
    assert!(counts.contains(&ready), "{counts}");
    server.assert_served().await;
    server.running.stop().await;
}

#[tokio::test]
async fn slow_bodies_leave_room_for_others() {
    let server = start_test_server(small_limits()).await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(server.addr()).await.expect("it listens");
        let body = "x".repeat(900 << 10);
        let mut sent = request(
            server.addr(),
            &server.producer,
            "POST /api/v1/graphs",
            &body,
        );
        sent.truncate(sent.len() - 500);
        let _ = stream.write_all(&sent).await;
        slow.push(stream);
    }
    for _ in 0..4 {
        server.assert_served().await;
    }
    // Another identity can send a large body too.
    let large = format!(r#"{{"kind":"a","payload":"{}"}}"#, "x".repeat(300 << 10));
    let taken = server
        .fetch(&server.admin, "POST /api/v1/jobs", &large)
        .await;
    assert_eq!(status(&taken), "201", "{taken}");
    server.running.stop().await;
}

#[tokio::test]
async fn an_unread_response_counts_in_the_share_until_the_write_timeout() {
    let server = start_test_server(Limits {
        write_timeout: Duration::from_millis(800),
        ..small_limits()
    })
    .await;
    let payload = "x".repeat(200 << 10);
    let job = format!(r#"{{"id":"big","kind":"a","payload":"{payload}"}}"#);
    let taken = server.fetch(&server.admin, "POST /api/v1/jobs", &job).await;
    assert_eq!(status(&taken), "201", "{taken}");
    let mut sender = connect_http2(server.addr(), 0).await;
    let mut unread = Vec::new();
    for _ in 0..6 {
        let request = Request::get(format!("http://{}/api/v1/jobs/big/payload", server.addr()))
            .header("authorization", format!("Bearer {}", server.producer))
            .body(())
            .expect("a request");
        let (answering, _) = sender.send_request(request, true).expect("sent");
        let answer = answering.await.expect("a head");
        unread.push(answer);
    }
    let refused = unread
        .iter()
        .filter(|answer| answer.status() == 503)
        .count();
    assert_eq!(
        refused, 3,
        "three responses fit into the share and the reserve"
    );
    server.assert_served().await;
    // Once the responses are dropped, the share is free again.
    let line = "GET /api/v1/jobs/big/payload";
    let asked = async {
        while status(&server.fetch(&server.producer, line, "").await) != "200" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, asked)
        .await
        .expect("dropped");
    server.running.stop().await;
}

#[tokio::test]
async fn a_waiting_caller_whose_token_is_revoked_gets_no_job() {
    let server = start_test_server(Limits::default()).await;
    let lease = r#"{"worker":"w","wait":"120s"}"#;
    let mut http = TcpStream::connect(server.addr()).await.expect("it listens");
    let line = "POST /api/v1/leases";
    let sent = request(server.addr(), &server.worker, line, lease);
    http.write_all(&sent).await.expect("sent");
    let mut sender = connect_http2(server.addr(), 1 << 20).await;
    let token = Some(&*server.worker);
    let (grpc, mut body) =
        start_grpc_call(&mut sender, server.addr(), token, "ganger.v1.Leases/Lease");
    let asked = {
        use prost::Message as _;
        ganger_proto::v1::LeaseRequest {
            worker: "g".to_owned(),
            queues: vec![ganger_proto::v1::TakeFrom::default()],
            wait_ms: 120_000,
            ..Default::default()
        }
        .encode_to_vec()
    };
    body.send_data(grpc_frame(&asked), true).expect("sent");
    let made = r#"{"id":"later","kind":"a","delay":"1h"}"#;
    server.fetch(&server.admin, "POST /api/v1/jobs", made).await;
    let mut reader = TcpStream::connect(server.addr()).await.expect("it listens");
    let line = "GET /api/v1/jobs/later?wait=120s";
    let sent = request(server.addr(), &server.producer, line, "");
    reader.write_all(&sent).await.expect("sent");
    // The server has handled these after the three waiting requests.
    for _ in 0..3 {
        server.fetch(&server.admin, "GET /api/v1/jobs", "").await;
    }
    server.revoke("worker");
    server.revoke("producer");
    for stream in [&mut http, &mut reader] {
        let mut answer = [0; 12];
        let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_exact(&mut answer));
        read.await.expect("answered").expect("answered");
        assert_eq!(&answer, b"HTTP/1.1 401");
    }
    assert_eq!(grpc_status(grpc).await.as_deref(), Some("16"));
    // A job that is enqueued now is not leased.
    let made = r#"{"id":"now","kind":"a"}"#;
    server.fetch(&server.admin, "POST /api/v1/jobs", made).await;
    let job = server
        .fetch(&server.admin, "GET /api/v1/jobs/now", "")
        .await;
    assert!(job.contains(r#""state":"ready""#), "{job}");
    server.running.stop().await;
}

#[tokio::test]
async fn a_batch_ends_when_its_senders_token_is_revoked() {
    let server = start_test_server(Limits::default()).await;
    let mut stream = TcpStream::connect(server.addr()).await.expect("it listens");
    let head = format!(
        "POST /api/v1/jobs/batch?answers=errors HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n12\r\n{{\"kind\":\"a\"}}      \r\n",
        server.producer
    );
    let head = head.replace("Host: x", &format!("Host: {}", server.addr()));
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).await.expect("a head");
    assert_eq!(&begun, b"HTTP/1.1 200");
    server.revoke("producer");
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the batch goes on");
    server.running.stop().await;
}

#[tokio::test]
async fn one_identity_gets_a_quarter_of_the_streams() {
    let server = start_test_server(Limits {
        streams: 8,
        ..Limits::default()
    })
    .await;
    let mut open = Vec::new();
    for index in 0..3 {
        let mut stream = TcpStream::connect(server.addr()).await.expect("it listens");
        let sent = request(server.addr(), &server.producer, "GET /api/v1/events", "");
        stream.write_all(&sent).await.expect("sent");
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).await.expect("a head");
        let wanted = if index < 2 {
            b"HTTP/1.1 200"
        } else {
            b"HTTP/1.1 503"
        };
        assert_eq!(&begun, wanted, "stream {index}");
        open.push(stream);
    }
    let mut sender = connect_http2(server.addr(), 1 << 20).await;
    let token = Some(&*server.producer);
    let (grpc, mut body) = start_grpc_call(
        &mut sender,
        server.addr(),
        token,
        "ganger.v1.Insight/Events",
    );
    body.send_data(grpc_frame(&[]), true).expect("sent");
    assert_eq!(
        grpc_status(grpc).await.as_deref(),
        Some("8"),
        "the same share over gRPC"
    );
    let mut stream = TcpStream::connect(server.addr()).await.expect("it listens");
    let sent = request(server.addr(), &server.admin, "GET /api/v1/events", "");
    stream.write_all(&sent).await.expect("sent");
    let mut begun = [0; 12];
    stream.read_exact(&mut begun).await.expect("a head");
    assert_eq!(&begun, b"HTTP/1.1 200", "another identity");
    server.running.stop().await;
}

#[tokio::test]
async fn a_small_unread_response_ends_after_the_write_timeout() {
    let server = start_test_server(Limits {
        write_timeout: Duration::from_millis(400),
        ..Limits::default()
    })
    .await;
    let mut sender = connect_http2(server.addr(), 0).await;
    for (path, status) in [("/version", 200), ("/api/v1/jobs/none", 404)] {
        let request = Request::get(format!("http://{}{path}", server.addr()))
            .header("authorization", format!("Bearer {}", server.producer))
            .body(())
            .expect("a request");
        let (answering, _) = sender.send_request(request, true).expect("sent");
        let answer = answering.await.expect("a head");
        assert_eq!(answer.status(), status);
        let mut body = answer.into_body();
        // The window is 0, so nothing can be read: the server resets the stream.
        let ended = tokio::time::timeout(TEST_TIMEOUT / 4, body.data()).await;
        let ended = ended
            .expect("the stream stays open")
            .expect("the body is incomplete");
        assert!(
            ended.expect_err("the body is incomplete").is_reset(),
            "{path}"
        );
    }
    server.assert_served().await;
    server.running.stop().await;
}

#[tokio::test]
async fn one_identity_gets_a_share_of_the_waits() {
    let server = start_test_server(small_limits()).await;
    let made = r#"{"id":"later","kind":"a","delay":"1h"}"#;
    server.fetch(&server.admin, "POST /api/v1/jobs", made).await;
    let wait = async || {
        let line = "GET /api/v1/jobs/later?wait=120s";
        let mut stream = TcpStream::connect(server.addr()).await.expect("it listens");
        let sent = request(server.addr(), &server.producer, line, "");
        stream.write_all(&sent).await.expect("sent");
        stream
    };
    let mut waiting = Vec::new();
    // Room for 64 waits of 16 KiB each: 512 KiB of the reserve, and as much of the rest.
    for _ in 0..64 {
        waiting.push(wait().await);
    }
    let refused = async {
        loop {
            let line = "GET /api/v1/jobs/later";
            let answer = server.fetch(&server.producer, line, "").await;
            if status(&answer) == "503" {
                return answer;
            }
            // A wait may have been refused because another request like this one held its memory.
            waiting.push(wait().await);
        }
    };
    let refused = tokio::time::timeout(TEST_TIMEOUT, refused).await;
    let refused = refused.expect("the waits use up the share");
    assert!(
        refused.contains("share of the server's memory"),
        "{refused}"
    );
    let read = server
        .fetch(&server.admin, "GET /api/v1/jobs/later", "")
        .await;
    assert_eq!(status(&read), "200", "{read}");
    server.assert_served().await;
    drop(waiting);
    server.running.stop().await;
}

#[tokio::test]
async fn event_streams_end_when_their_readers_token_is_revoked() {
    let server = start_test_server(Limits::default()).await;
    let mut open = Vec::new();
    for line in ["GET /api/v1/events", "GET /api/v1/jobs/a/log?follow=true"] {
        let made = r#"{"id":"a","kind":"a","delay":"1h"}"#;
        server.fetch(&server.admin, "POST /api/v1/jobs", made).await;
        let mut stream = TcpStream::connect(server.addr()).await.expect("it listens");
        let sent = request(server.addr(), &server.producer, line, "");
        stream.write_all(&sent).await.expect("sent");
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).await.expect("a head");
        assert_eq!(&begun, b"HTTP/1.1 200", "{line}");
        open.push(stream);
    }
    server.revoke("producer");
    for mut stream in open {
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the stream goes on");
    }
    server.running.stop().await;
}
