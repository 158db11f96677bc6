//! Several shards, in one process and on servers that know each other, over TCP connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::kit::{Authority, CertificateSpec, WithMetadata, config, start_server, status};
use ganger_access::{Entry, Grant, Grants, Kind, NewSecret, Role};
use ganger_proto::v1;
use ganger_proto::v1::jobs_client::JobsClient;
use ganger_proto::v1::leases_client::LeasesClient;
use ganger_proto::v1::peers_client::PeersClient;
use ganger_proto::v1::queues_client::QueuesClient;
use ganger_router::{REACH_WITHIN, Topology};
use ganger_server::{Config, Limits, Running, Secret, Tls, start};
use ganger_tls::{Connector, Trust};
use ganger_types::ShardId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};

const TOKEN: &str = "a-token-for-tests-only";
const GRPC: &str = "application/grpc";

pub(crate) fn shard(name: &str) -> ShardId {
    ShardId::new(name).expect("a good name")
}

/// Returns a loopback address on which nobody listens at the moment, and which no other test gets: its port is below those
/// that the system gives to connections and to listeners that ask for any.
pub(crate) async fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id() * 20 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + u16::try_from(next % 22_000).expect("it is a port");
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)).await {
            return listener.local_addr().expect("an address");
        }
    }
}

pub(crate) fn topology(shards: &[(&str, SocketAddr)]) -> Topology {
    let list = shards
        .iter()
        .map(|(shard, addr)| (self::shard(shard), addr.to_string()));
    Topology::Static(list.collect())
}

/// Starts two servers, of shards 1 and 2, that know each other.
pub(crate) async fn pair(common: Config) -> [Running; 2] {
    let (one, two) = (free_address().await, free_address().await);
    let topology = topology(&[("1", one), ("2", two)]);
    let server = |name, addr: SocketAddr| Config {
        addr: addr.to_string(),
        shard: shard(name),
        topology: topology.clone(),
        ..common.clone()
    };
    let (one, two) = (server("1", one), server("2", two));
    [start_server(one).await, start_server(two).await]
}

pub(crate) async fn open(addr: SocketAddr, line: &str, headers: &str, body: &str) -> TcpStream {
    let length = body.len();
    let mut stream = TcpStream::connect(addr).await.expect("it listens");
    let request = format!(
        "{line} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    stream
}

pub(crate) async fn fetch(addr: SocketAddr, line: &str, headers: &str, body: &str) -> String {
    let mut stream = open(addr, line, headers, body).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) async fn read_until(stream: &mut TcpStream, words: &str) {
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&answer).contains(words) {
        let count = stream.read(&mut piece).await.expect("readable");
        let text = String::from_utf8_lossy(&answer);
        assert!(count > 0, "it ended before {words:?}: {text}");
        answer.extend_from_slice(&piece[..count]);
    }
}

fn document(answer: &str) -> serde_json::Value {
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Returns an input that is the result of the named job of the same submission.
fn reference(name: &str) -> v1::Input {
    let edge = v1::Edge {
        dependency: Some(v1::edge::Dependency::Name(name.to_owned())),
        ..v1::Edge::default()
    };
    v1::Input {
        input: Some(v1::input::Input::Result(edge)),
    }
}

/// Returns a request for one job that waits until the job is ready.
fn lease_request() -> v1::LeaseRequest {
    v1::LeaseRequest {
        namespace: "default".into(),
        queues: vec![v1::TakeFrom {
            queue: "default".into(),
            ..v1::TakeFrom::default()
        }],
        worker: "w".into(),
        wait_ms: 30_000,
        ..v1::LeaseRequest::default()
    }
}

/// Leases the one ready job of a shard; returns its lease token.
async fn lease(addr: SocketAddr, headers: &str) -> String {
    let answer = fetch(addr, "POST /api/v1/leases", headers, r#"{"worker":"w"}"#).await;
    let token = document(&answer)["jobs"][0]["token"].clone();
    token
        .as_str()
        .unwrap_or_else(|| panic!("no job: {answer}"))
        .to_owned()
}

/// Returns a client of the service `Jobs` whose calls go to `shard` through the server at `addr`.
pub(crate) async fn jobs_client(
    addr: SocketAddr,
    shard: &str,
) -> JobsClient<InterceptedService<Channel, WithMetadata>> {
    let channel = Endpoint::from_shared(format!("http://{addr}")).expect("an address");
    let channel = channel.connect().await.expect("it listens");
    JobsClient::with_interceptor(
        channel,
        WithMetadata(vec![("ganger-shard", shard.to_owned())]),
    )
}

fn get_request(job: &str) -> v1::GetRequest {
    v1::GetRequest {
        namespace: "default".to_owned(),
        job: job.to_owned(),
    }
}

/// Asks a server what needs attention until an item contains `words`; returns all items.
async fn attention(addr: SocketAddr, words: &str) -> String {
    loop {
        let answer = fetch(addr, "GET /api/v1/attention", "", "").await;
        assert_eq!(status(&answer), "200", "{answer}");
        if answer.contains(words) {
            return answer;
        }
        // An answer is up to a second old, that of another server up to two.
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_attention_at_another_server_is_listed_and_so_is_its_absence() {
    let [one, two] = pair(config()).await;
    let (here, there) = (one.addr(), two.addr());
    let job = r#"{"kind":"a","queue":"far"}"#;
    let answer = fetch(there, "POST /api/v1/jobs", "", job).await;
    assert_eq!(status(&answer), "201", "{answer}");
    let answer = attention(here, "Queue far: 1 ready, no worker has asked").await;
    let item = &document(&answer)["items"][0];
    assert_eq!(
        (&item["code"], &item["shard"]),
        (&"no_worker".into(), &"2".into())
    );
    two.stop().await;
    let answer = attention(here, "Shard 2 cannot be reached").await;
    let item = &document(&answer)["items"][0];
    assert_eq!(item["code"], "shard_unreachable");
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_reached_through_a_server_of_another_shard() {
    let [one, two] = pair(config()).await;
    let (here, there) = (one.addr(), two.addr());
    let to_two = "Ganger-Shard: 2\r\n";
    // Submitted, read, and waited for through the server of the other shard.
    let answer = fetch(
        here,
        "POST /api/v1/jobs",
        to_two,
        r#"{"kind":"a","id":"x"}"#,
    )
    .await;
    assert_eq!(status(&answer), "201", "{answer}");
    assert_eq!(
        status(&fetch(there, "GET /api/v1/jobs/x", "", "").await),
        "200"
    );
    assert_eq!(
        status(&fetch(here, "GET /api/v1/jobs/x", "", "").await),
        "404"
    );
    for path in ["/api/v1/jobs/2%2Fx", "/api/v1/jobs/x?shard=2"] {
        let answer = fetch(here, &format!("GET {path}"), "", "").await;
        assert!(answer.contains("\"ready\""), "{path}: {answer}");
        assert!(answer.contains("nosniff"), "{path}: {answer}");
    }
    let token = lease(here, to_two).await;
    let waiting =
        tokio::spawn(async move { fetch(here, "GET /api/v1/jobs/2%2Fx?wait=60s", "", "").await });
    let mut log = open(here, "GET /api/v1/jobs/2%2Fx/log?follow=true", "", "").await;
    let piece = format!(r#"{{"job":"x","token":"{token}","offset":0,"text":"first line"}}"#);
    let answer = fetch(there, "POST /api/v1/leases/log", "", &piece).await;
    assert_eq!(status(&answer), "200", "{answer}");
    read_until(&mut log, "first line").await;
    let report = format!(r#"{{"job":"x","token":"{token}","result":7}}"#);
    let answer = fetch(here, "POST /api/v1/leases/complete", to_two, &report).await;
    assert_eq!(status(&answer), "200", "{answer}");
    let answer = waiting.await.expect("no panic");
    assert!(answer.contains("\"succeeded\""), "{answer}");
    let mut rest = Vec::new();
    log.read_to_end(&mut rest)
        .await
        .expect("the log ends with the job");
    // Cancelled.
    let answer = fetch(there, "POST /api/v1/jobs", "", r#"{"kind":"a","id":"y"}"#).await;
    assert_eq!(status(&answer), "201", "{answer}");
    let answer = fetch(here, "POST /api/v1/jobs/2%2Fy/cancel", "", "").await;
    assert_eq!(status(&answer), "200", "{answer}");
    let answer = fetch(there, "GET /api/v1/jobs/y", "", "").await;
    assert!(answer.contains("\"cancelled\""), "{answer}");
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_names_the_shard_by_metadata() {
    let [one, two] = pair(config()).await;
    let mut jobs = jobs_client(one.addr(), "2").await;
    let answer = fetch(
        two.addr(),
        "POST /api/v1/jobs",
        "",
        r#"{"kind":"a","id":"x"}"#,
    )
    .await;
    assert_eq!(status(&answer), "201", "{answer}");
    for name in ["x", "2/x"] {
        let job = jobs
            .get(get_request(name))
            .await
            .expect("found")
            .into_inner();
        assert_eq!((job.id.as_str(), job.shard.as_str()), ("x", "2"));
    }
    let missing = jobs.get(get_request("z")).await.expect_err("not there");
    assert_eq!(missing.code(), Code::NotFound, "{missing:?}");
    let mut waiting = jobs.clone();
    let waiting = tokio::spawn(async move {
        let request = v1::WaitRequest {
            namespace: "default".to_owned(),
            job: "x".to_owned(),
            wait_ms: 60_000,
        };
        waiting.wait(request).await
    });
    let request = v1::LogRequest {
        namespace: "default".to_owned(),
        job: "x".to_owned(),
        ..v1::LogRequest::default()
    };
    let mut log = jobs
        .follow_log(request)
        .await
        .expect("followed")
        .into_inner();
    let request = v1::CancelRequest {
        namespace: "default".to_owned(),
        jobs: vec!["2/x".to_owned()],
        ..v1::CancelRequest::default()
    };
    jobs.cancel(request).await.expect("cancelled");
    let job = waiting
        .await
        .expect("no panic")
        .expect("it ended")
        .into_inner();
    assert_eq!(job.state(), v1::JobState::Cancelled);
    while let Some(piece) = log.message().await.expect("it ends in order") {
        assert!(piece.chunks.is_empty());
    }
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rel_p4_an_absent_shard_is_reported_unreachable_and_never_not_found() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let topology = topology(&[
        ("2", free_address().await),
        ("3", silent.local_addr().expect("an address")),
    ]);
    let running = start_server(Config {
        topology,
        ..config()
    })
    .await;
    let addr = running.addr();
    let patience = REACH_WITHIN * 4;
    for away in ["2", "3"] {
        let path = format!("GET /api/v1/jobs/{away}%2Fx?wait=60s");
        let answer = tokio::time::timeout(patience, fetch(addr, &path, "", "")).await;
        let answer = answer.expect("answered in time");
        assert_eq!(status(&answer), "503", "{answer}");
        assert!(answer.contains("shard_unreachable"), "{answer}");
        assert!(answer.to_lowercase().contains("retry-after"), "{answer}");
        let mut jobs = jobs_client(addr, away).await;
        let error = tokio::time::timeout(patience, jobs.get(get_request("x"))).await;
        let error = error.expect("answered in time").expect_err("away");
        assert_eq!(error.code(), Code::Unavailable, "{error:?}");
        let code = error.metadata().get("ganger-code").expect("a code");
        assert_eq!(code, "shard_unreachable");
    }
    let answer = fetch(addr, "GET /api/v1/jobs/4%2Fx", "", "").await;
    assert_eq!(status(&answer), "422", "{answer}");
    assert!(
        answer.contains("unknown_shard") && answer.contains("1, 2, 3"),
        "{answer}"
    );
    let error = jobs_client(addr, "4")
        .await
        .get(get_request("x"))
        .await
        .expect_err("unknown");
    assert_eq!(error.code(), Code::InvalidArgument, "{error:?}");
    let answer = fetch(addr, "GET /api/v1/jobs", "Ganger-Shard: a/b\r\n", "").await;
    assert_eq!(status(&answer), "400", "{answer}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rel_x5_messages_that_wait_for_another_shard_are_listed_with_the_error() {
    let [one, two] = pair(config()).await;
    let addr = one.addr();
    let answer = fetch(
        two.addr(),
        "POST /api/v1/jobs",
        "",
        r#"{"kind":"a","id":"x"}"#,
    )
    .await;
    assert_eq!(status(&answer), "201", "{answer}");
    let body = r#"{"kind":"b","id":"y","inputs":[{"result_of_job":"2/x"}]}"#;
    let answer = fetch(addr, "POST /api/v1/jobs", "", body).await;
    assert_eq!(status(&answer), "201", "{answer}");
    // Shard 2 has received all messages.
    let mut peer = serde_json::Value::Null;
    while peer["waiting"] != 0 {
        let answer = fetch(addr, "GET /api/v1/peers", "", "").await;
        peer = document(&answer)["peers"][0].clone();
    }
    assert_eq!(peer["shard"], "2", "{peer}");
    two.stop().await;
    let answer = fetch(addr, "POST /api/v1/jobs/y/cancel", "", "").await;
    assert_eq!(status(&answer), "200", "{answer}");
    while peer["last_error"].is_null() {
        let answer = fetch(addr, "GET /api/v1/peers", "", "").await;
        peer = document(&answer)["peers"][0].clone();
    }
    assert_eq!(peer["waiting"], 1, "{peer}");
    assert!(peer["oldest_at"].is_string(), "{peer}");
    let answer = fetch(addr, "GET /api/v1/peers/2/outbox?limit=1", "", "").await;
    let page = document(&answer);
    assert_eq!(page["messages"][0]["kind"], "let_go", "{page}");
    let next = page["next"].as_u64().expect("the page is full");
    let line = format!("GET /api/v1/peers/2/outbox?after={next}");
    let page = document(&fetch(addr, &line, "", "").await);
    assert_eq!(page["messages"], serde_json::json!([]), "{page}");
    let answer = fetch(addr, "POST /api/v1/peers/2/reconcile", "", "").await;
    assert!(answer.contains("peer_not_stopped"), "{answer}");
    let answer = fetch(addr, "GET /metrics", "", "").await;
    let line = "ganger_peer_messages_waiting{shard=\"1\",peer=\"2\"} 1";
    assert!(answer.contains(line), "{answer}");
    one.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_forwarded_at_most_once() {
    let [one, two] = pair(config()).await;
    // Each of the two believes that the other has shard 3.
    let (first, second) = (free_address().await, free_address().await);
    let wrong = |name, addr: SocketAddr, other| Config {
        addr: addr.to_string(),
        shard: shard(name),
        topology: topology(&[("3", other)]),
        ..config()
    };
    let a = start_server(wrong("a", first, second)).await;
    let b = start_server(wrong("b", second, first)).await;
    let answer = fetch(a.addr(), "GET /api/v1/jobs/3%2Fx", "", "").await;
    assert_eq!(status(&answer), "503", "{answer}");
    assert!(
        answer.contains("the server of shard a has passed"),
        "{answer}"
    );
    for running in [one, two, a, b] {
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_shards_live_in_one_process_each_with_its_own_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config {
        shards: vec![shard("1"), shard("2"), shard("3")],
        db: directory.path().join("test.db"),
        ..config()
    };
    let running = start_server(config.clone()).await;
    let addr = running.addr();
    for name in ["1", "2", "3"] {
        let header = format!("Ganger-Shard: {name}\r\n");
        let answer = fetch(
            addr,
            "POST /api/v1/jobs",
            &header,
            r#"{"kind":"a","id":"x"}"#,
        )
        .await;
        assert_eq!(status(&answer), "201", "{answer}");
        assert!(directory.path().join(format!("test-{name}.db")).exists());
    }
    let answer = fetch(addr, "POST /api/v1/jobs/2%2Fx/cancel", "", "").await;
    assert_eq!(status(&answer), "200", "{answer}");
    let answer = fetch(addr, "GET /readyz", "", "").await;
    assert!(answer.contains(r#""shard":"3""#), "{answer}");
    let answer = fetch(addr, "GET /metrics", "", "").await;
    for name in ["1", "2", "3"] {
        let line = format!("ganger_commits_total{{shard=\"{name}\"}} ");
        assert!(answer.contains(&line), "{answer}");
    }
    running.stop().await;
    let running = start_server(config).await;
    for (name, state) in [("1", "ready"), ("2", "cancelled"), ("3", "ready")] {
        let line = format!("GET /api/v1/jobs/{name}%2Fx");
        let answer = fetch(running.addr(), &line, "", "").await;
        assert!(answer.contains(&format!("\"{state}\"")), "{answer}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_gains_no_right_through_another_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access");
    let secret = NewSecret::make().expect("random");
    let entry = Entry {
        name: "ci".to_owned(),
        kind: Kind::Token(secret.hash()),
        grants: Grants(vec![Grant::new(Role::Producer, "mine")]),
        expires: None,
        created: None,
    };
    ganger_access::add(&path, &entry).expect("added");
    let audit = directory.path().join("audit.log");
    let [one, two] = pair(Config {
        token: Secret::new(TOKEN).ok(),
        access_file: Some(path),
        audit_log: Some(audit.clone()),
        ..config()
    })
    .await;
    let addr = one.addr();
    let header = |namespace: &str| {
        let secret = secret.reveal();
        format!("Authorization: Bearer {secret}\r\nGanger-Namespace: {namespace}\r\n")
    };
    let body = r#"{"kind":"a","id":"x"}"#;
    let line = "POST /api/v1/jobs?shard=2";
    let answer = fetch(addr, line, &header("mine"), body).await;
    assert_eq!(status(&answer), "201", "{answer}");
    let answer = fetch(addr, line, &header("other"), body).await;
    assert_eq!(status(&answer), "403", "{answer}");
    assert!(answer.contains("token \\\"ci\\\" may not"), "{answer}");
    let channel = Endpoint::from_shared(format!("http://{addr}")).expect("an address");
    let metadata = WithMetadata(vec![
        ("ganger-shard", "2".to_owned()),
        ("authorization", format!("Bearer {}", secret.reveal())),
    ]);
    let mut jobs = JobsClient::with_interceptor(channel.connect_lazy(), metadata);
    let mut request = get_request("x");
    request.namespace = "mine".to_owned();
    jobs.get(request.clone()).await.expect("allowed");
    request.namespace = "other".to_owned();
    let denied = jobs.get(request).await.expect_err("another namespace");
    assert_eq!(denied.code(), Code::PermissionDenied, "{denied:?}");
    // Nor may the caller impersonate another one, or act as a server.
    let headers = format!(
        "{}Ganger-On-Behalf-Of: shared-token;x;admin@*\r\n",
        header("other")
    );
    let answer = fetch(two.addr(), "POST /api/v1/jobs", &headers, body).await;
    assert_eq!(status(&answer), "403", "{answer}");
    let headers = header("mine").replace("\r\nGanger", "\r\nX");
    let answer = fetch(two.addr(), "POST /ganger.v1.Peers/Receive", &headers, "").await;
    assert_ne!(status(&answer), "200", "only gRPC goes there: {answer}");
    let mut stream = TcpStream::connect(two.addr()).await.expect("it listens");
    let request = format!(
        "POST /ganger.v1.Peers/Receive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {GRPC}\r\nContent-Length: 0\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("text");
    assert!(answer.contains("grpc-status: 7"), "{answer}");
    let cancelled = fetch(addr, "POST /api/v1/jobs/2%2Fx/cancel", &header("mine"), "").await;
    assert_eq!(status(&cancelled), "200", "{cancelled}");
    one.stop().await;
    two.stop().await;
    let audit = std::fs::read_to_string(audit).expect("a log");
    let line = audit.lines().find(|line| line.contains("cancelJob"));
    assert!(line.expect("audited").contains("ci"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_rejects_this_one_is_reported_as_unreachable_not_as_the_callers_error() {
    let there = start_server(Config {
        token: Secret::new("quite-another-token").ok(),
        shard: shard("2"),
        ..config()
    })
    .await;
    let here = start_server(Config {
        token: Secret::new(TOKEN).ok(),
        topology: topology(&[("2", there.addr())]),
        ..config()
    })
    .await;
    let header = format!("Authorization: Bearer {TOKEN}\r\n");
    let answer = fetch(here.addr(), "GET /api/v1/jobs/2%2Fx", &header, "").await;
    assert_eq!(status(&answer), "503", "{answer}");
    assert!(answer.contains("peer_token_file"), "{answer}");
    here.stop().await;
    there.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_through_another_server_may_carry_more_than_one_caller_may_hold() {
    // One caller may hold 512 KiB.
    let limits = Limits {
        bytes_in_flight: 3 << 20,
        ..Limits::default()
    };
    let [one, _two] = pair(Config { limits, ..config() }).await;
    let mut jobs = jobs_client(one.addr(), "2").await;
    let batches = (1..=40).map(|number| v1::EnqueueBatch {
        number,
        request: Some(v1::EnqueueRequest {
            jobs: vec![v1::NewJob {
                kind: "k".to_owned(),
                payload: vec![b'1'; 100 << 10].into(),
                ..v1::NewJob::default()
            }],
            ..v1::EnqueueRequest::default()
        }),
    });
    let answers = jobs.enqueue_stream(futures::stream::iter(batches)).await;
    let mut answers = answers.expect("opened").into_inner();
    let mut last = 0;
    while let Some(answer) = answers.message().await.expect("no error") {
        last = answer.number;
    }
    assert_eq!(last, 40, "four megabytes of payloads");
}

fn trust_with_certificate(authority: &Authority, name: &str, uris: &[&str]) -> Trust {
    let wanted = CertificateSpec {
        name,
        hosts: &["127.0.0.1"],
        uris,
        ..CertificateSpec::default()
    };
    let (certificate, key) = authority.sign(name, &wanted);
    Trust {
        ca: Some(authority.ca()),
        certificate: Some(certificate),
        key: Some(key),
    }
}

fn tls_channel(addr: SocketAddr, trust: &Trust) -> Channel {
    let endpoint = Endpoint::from_shared(format!("https://{addr}")).expect("an address");
    endpoint.connect_with_connector_lazy(Connector::new(trust.clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn rel_x7_servers_identify_by_certificate_and_speak_only_for_their_own_shard() {
    let authority = Authority::new();
    let (first, second) = (free_address().await, free_address().await);
    let trusts = [
        trust_with_certificate(&authority, "one", &["ganger://shard/1"]),
        trust_with_certificate(&authority, "two", &["ganger://shard/2"]),
    ];
    let worker = trust_with_certificate(&authority, "worker", &[]);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access");
    let secret = NewSecret::make().expect("random");
    let entry = Entry {
        name: "root".to_owned(),
        kind: Kind::Token(secret.hash()),
        grants: Grants::everything(),
        expires: None,
        created: None,
    };
    ganger_access::add(&path, &entry).expect("added");
    let server = |name, addr: SocketAddr, trust: &Trust| Config {
        addr: addr.to_string(),
        shard: shard(name),
        // The topology claims that shard 3 is where shard 2 is.
        topology: topology(&[("1", first), ("2", second), ("3", second)]),
        access_file: Some(path.clone()),
        tls: Tls {
            cert: trust.certificate.clone(),
            key: trust.key.clone(),
            client_ca: trust.ca.clone(),
            ..Tls::default()
        },
        ..config()
    };
    let one = start_server(server("1", first, &trusts[0])).await;
    let two = start_server(server("2", second, &trusts[1])).await;
    let trust = Trust {
        ca: Some(authority.ca()),
        ..Trust::default()
    };
    let root = |shard: &str| {
        let metadata = WithMetadata(vec![
            ("ganger-shard", shard.to_owned()),
            ("authorization", format!("Bearer {}", secret.reveal())),
        ]);
        JobsClient::with_interceptor(tls_channel(first, &trust), metadata)
    };
    let missing = root("2")
        .get(get_request("x"))
        .await
        .expect_err("not there");
    assert_eq!(
        missing.code(),
        Code::NotFound,
        "shard 2 answered: {missing:?}"
    );
    let error = root("3")
        .get(get_request("x"))
        .await
        .expect_err("another shard");
    assert_eq!(error.code(), Code::Unavailable, "{error:?}");
    assert!(error.message().contains("not of shard 3"), "{error:?}");

    let find = v1::FindMissingRequest {
        shard: "1".to_owned(),
        namespace: "default".into(),
        jobs: Vec::new(),
    };
    let mut peers = PeersClient::new(tls_channel(first, &trusts[1]));
    peers.find_missing(find.clone()).await.expect("a peer");
    let denied = PeersClient::new(tls_channel(first, &worker))
        .find_missing(find)
        .await;
    let denied = denied.expect_err("a worker");
    assert_eq!(denied.code(), Code::PermissionDenied, "{denied:?}");
    let message_batch = |from: &str| v1::MessageBatch {
        to: "1".to_owned(),
        from: from.to_owned(),
        stream_epoch: 1,
        ..v1::MessageBatch::default()
    };
    peers
        .receive(message_batch("2"))
        .await
        .expect("it speaks for itself");
    let denied = peers
        .receive(message_batch("3"))
        .await
        .expect_err("for another");
    assert_eq!(denied.code(), Code::PermissionDenied, "{denied:?}");
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rel_x7_one_certificate_names_all_shards_of_a_process_and_no_others() {
    let authority = Authority::new();
    let (first, second) = (free_address().await, free_address().await);
    let alone = trust_with_certificate(&authority, "one", &["ganger://shard/1"]);
    let both = trust_with_certificate(
        &authority,
        "several",
        &["ganger://shard/2", "ganger://shard/3"],
    );
    let server = |addr: SocketAddr, shards: &[&str], trust: &Trust| Config {
        addr: addr.to_string(),
        shard: shard(shards[0]),
        shards: shards.iter().map(|name| shard(name)).collect(),
        topology: topology(&[("1", first), ("2", second), ("3", second), ("4", second)]),
        tls: Tls {
            cert: trust.certificate.clone(),
            key: trust.key.clone(),
            client_ca: trust.ca.clone(),
            ..Tls::default()
        },
        ..config()
    };
    let one = start_server(server(first, &["1"], &alone)).await;
    let several = start_server(server(second, &["2", "3"], &both)).await;

    // A chain 1 <- 3 <- 2, submitted to either server: each server speaks for its own shards.
    for addr in [first, second] {
        let mut jobs = JobsClient::new(tls_channel(addr, &alone));
        let job = |name: &str, shard: &str, dependency: Option<&str>| v1::NewJob {
            kind: "k".into(),
            name: name.into(),
            shard: shard.into(),
            inputs: dependency.iter().map(|name| reference(name)).collect(),
            ..v1::NewJob::default()
        };
        let submission = v1::EnqueueRequest {
            namespace: "default".into(),
            jobs: vec![
                job("a", "2", None),
                job("b", "3", Some("a")),
                job("c", "1", Some("b")),
            ],
            graph: true,
            ..v1::EnqueueRequest::default()
        };
        let reply = jobs.enqueue(submission).await.expect("taken").into_inner();
        for job in &reply.jobs {
            let mut leases = LeasesClient::with_interceptor(
                tls_channel(addr, &alone),
                WithMetadata(vec![("ganger-shard", job.shard.clone())]),
            );
            let answer = leases
                .lease(lease_request())
                .await
                .expect("leased")
                .into_inner();
            let delivery = answer.deliveries.first().expect("it is ready").clone();
            assert_eq!((&delivery.job, &delivery.shard), (&job.id, &job.shard));
            let report = v1::CompleteRequest {
                namespace: "default".into(),
                items: vec![v1::Completion {
                    held: Some(v1::Held {
                        job: delivery.job,
                        token: delivery.token,
                    }),
                    ..v1::Completion::default()
                }],
            };
            leases.complete(report).await.expect("completed");
        }
    }
    let message_batch = |from: &str| v1::MessageBatch {
        to: "1".to_owned(),
        from: from.to_owned(),
        stream_epoch: 1,
        ..v1::MessageBatch::default()
    };
    let mut peers = PeersClient::new(tls_channel(first, &both));
    let denied = peers
        .receive(message_batch("4"))
        .await
        .expect_err("not its own");
    assert_eq!(denied.code(), Code::PermissionDenied, "{denied:?}");
    assert!(
        denied
            .message()
            .contains("shards \"2\", \"3\" may not speak for shard 4"),
        "{denied:?}"
    );
    let mut root = JobsClient::with_interceptor(
        tls_channel(first, &alone),
        WithMetadata(vec![("ganger-shard", "4".to_owned())]),
    );
    let error = root.get(get_request("x")).await.expect_err("another shard");
    assert!(
        error.message().contains("not of shard 4")
            && error
                .message()
                .contains("ganger://shard/2, ganger://shard/3"),
        "{error:?}"
    );
    one.stop().await;
    several.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_does_not_start_with_an_empty_store_beside_the_old_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let one = Config {
        db: directory.path().join("test.db"),
        ..config()
    };
    start_server(one.clone()).await.stop().await;
    let several = Config {
        shards: vec![shard("1"), shard("2")],
        stop_timeout: Duration::from_secs(1),
        ..one
    };
    let refused = start(several).await.err().expect("refused");
    assert!(refused.to_string().contains("rename"), "{refused}");
    assert_eq!(refused.exit_code(), 2);
}

#[tokio::test]
async fn lists_of_all_shards_are_merged_and_say_which_shard_is_away() {
    let [one, two] = pair(config()).await;
    let enqueue = async |addr, id: &str| {
        let body = format!("{{\"kind\": \"k\", \"id\": \"{id}\", \"queue\": \"q-{id}\"}}");
        fetch(addr, "POST /api/v1/jobs", "", &body).await;
    };
    for id in ["a", "c"] {
        enqueue(one.addr(), id).await;
        enqueue(two.addr(), &format!("{id}2")).await;
    }
    let list =
        async |path: &str| document(&fetch(one.addr(), &format!("GET {path}"), "", "").await);
    let mut seen = Vec::new();
    let mut path = "/api/v1/jobs?shard=all&limit=3".to_owned();
    loop {
        let page = list(&path).await;
        for job in page["jobs"].as_array().expect("jobs") {
            seen.push(format!("{}/{}", job["shard"], job["id"]).replace('"', ""));
        }
        assert_eq!(page["unreachable"], serde_json::json!([]));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!(
            "/api/v1/jobs?shard=all&limit=3&after={}",
            next.replace('%', "%25")
        );
    }
    assert_eq!(seen, ["1/a", "2/a2", "1/c", "2/c2"]);
    let count = list("/api/v1/jobs/count?shard=all").await;
    assert_eq!(
        (&count["count"], &count["exact"]),
        (&4.into(), &true.into())
    );
    let queues = list("/api/v1/queues?shard=all").await;
    let names: Vec<_> = queues["queues"]
        .as_array()
        .expect("queues")
        .iter()
        .collect();
    let names: Vec<_> = names.iter().map(|queue| queue["queue"].clone()).collect();
    assert_eq!(names, ["q-a", "q-a2", "q-c", "q-c2"]);
    let refused = list("/api/v1/stats?shard=all").await;
    assert_eq!(refused["code"], "invalid_value");
    two.stop().await;
    let alone = list("/api/v1/jobs?shard=all").await;
    assert_eq!(alone["unreachable"], serde_json::json!(["2"]));
    assert_eq!(alone["jobs"].as_array().map(Vec::len), Some(2));
    one.stop().await;
}

#[tokio::test]
async fn calls_for_all_shards_are_merged_and_say_which_shard_is_away() {
    let [one, two] = pair(config()).await;
    let channel = Endpoint::from_shared(format!("http://{}", one.addr()));
    let channel = channel.expect("an address").connect_lazy();
    let at = |shard: &str| WithMetadata(vec![("ganger-shard", shard.to_owned())]);
    let jobs = |shard: &str| JobsClient::with_interceptor(channel.clone(), at(shard));
    for (shard, priority) in [("1", 5), ("2", -1), ("1", 7), ("2", 6)] {
        let request = v1::EnqueueRequest {
            jobs: vec![v1::NewJob {
                kind: "k".into(),
                queue: "q".into(),
                priority,
                ..v1::NewJob::default()
            }],
            ..v1::EnqueueRequest::default()
        };
        jobs(shard).enqueue(request).await.expect("accepted");
    }
    let mut request = v1::ListRequest {
        queue: Some("q".into()),
        order: v1::ListOrder::RunsNext.into(),
        budget_ms: Some(1_000),
        limit: 3,
        ..v1::ListRequest::default()
    };
    let mut seen = Vec::new();
    loop {
        let page = jobs("all").list(request.clone()).await.expect("merged");
        let page = page.into_inner();
        assert_eq!((page.complete, page.unreachable.len()), (Some(true), 0));
        seen.extend(page.jobs.into_iter().map(|job| (job.shard, job.priority)));
        if page.next.is_empty() {
            break;
        }
        request.cursor = page.next;
    }
    let places = [("2", -1), ("1", 5), ("2", 6), ("1", 7)];
    assert_eq!(seen, places.map(|(shard, rank)| (shard.to_owned(), rank)));
    let count = jobs("all").count(v1::ListRequest::default()).await;
    let count = count.expect("added up").into_inner();
    assert_eq!((count.count, count.exact), (4, true));
    let mut queues = QueuesClient::with_interceptor(channel.clone(), at("all"));
    let listed = queues.list(v1::QueuesRequest::default()).await;
    let listed = listed.expect("merged").into_inner().queues;
    let names: Vec<_> = listed
        .iter()
        .map(|view| (&*view.queue, &*view.shard))
        .collect();
    assert_eq!(names, [("q", "1"), ("q", "2")]);
    let refused = jobs("all").get(v1::GetRequest::default()).await;
    let refused = refused.expect_err("one job is of one shard");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    request.limit = 1_001;
    let refused = jobs("all").list(request).await.expect_err("too many");
    assert!(refused.message().starts_with("limit"), "{refused}");
    two.stop().await;
    let alone = jobs("all").list(v1::ListRequest::default()).await;
    let alone = alone.expect("the other shard is there").into_inner();
    assert_eq!(
        (alone.jobs.len(), alone.unreachable),
        (2, vec!["2".to_owned()])
    );
    let count = jobs("all").count(v1::ListRequest::default()).await;
    let count = count.expect("the other shard is there").into_inner();
    assert_eq!((count.count, count.exact), (2, false));
    one.stop().await;
}
