//! The metrics of a server with all of its ports: the text is valid, and docs/metrics.md lists every family.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::kit::{config, response_to, start_server, status};
use ganger_attention::Gravity;
use ganger_attention::alert::{Alert, Condition};
use ganger_ngsi::environment;
use ganger_server::{Config, QuantumLeapPort, RedisPort};
use ganger_types::{Namespace, ShardId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PAGE: &str = include_str!("../../../../docs/metrics.md");
const LOOPBACK: &str = "127.0.0.1:0";

/// Sends a request to a shard; returns the head and the body of the response.
async fn fetch(addr: SocketAddr, line: &str, shard: &str, body: &str) -> (String, String) {
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nGanger-Shard: {shard}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let answer = response_to(addr, request.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head.to_owned(), body.to_owned())
}

async fn enqueue(addr: SocketAddr, shard: &str, body: &str) {
    let (head, body) = fetch(addr, "POST /api/v1/jobs", shard, body).await;
    assert_eq!(status(&head), "201", "{head} {body}");
}

/// Returns the name and type of each metric family that the page documents for servers that are no nodes of a cluster; a
/// test in `e2e` compares those of nodes.
fn documented() -> BTreeMap<&'static str, &'static str> {
    let (servers, _) = PAGE.split_once("\n## Workers\n").expect("a section");
    let mut families = BTreeMap::new();
    for row in servers
        .lines()
        .filter(|line| line.starts_with("| `ganger_") && !line.starts_with("| `ganger_cluster_"))
    {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let (names, kind) = (cells.next(), cells.next().expect("a type"));
        for name in names.expect("a name").split(", ") {
            let name = name.trim_matches('`').split('{').next().expect("a name");
            assert_eq!(families.insert(name, kind), None, "{name} comes twice");
        }
    }
    families
}

/// Returns the name and type of each metric family in a text.
fn exported(text: &str) -> BTreeMap<&str, &str> {
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    kinds.filter_map(|line| line.split_once(' ')).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_exports_exactly_the_documented_metrics() {
    let directory = tempfile::tempdir().expect("a directory");
    let no_file = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let config = Config {
        shards: ["1", "2"].map(|id| ShardId::new(id).expect("short")).into(),
        db: directory.path().join("test.db"),
        redis: RedisPort {
            addr: Some(LOOPBACK.to_owned()),
            ..RedisPort::default()
        },
        quantumleap: QuantumLeapPort {
            addr: Some(LOOPBACK.to_owned()),
            environment: Some(environment::read(|_| None, no_file).expect("readable")),
            ..QuantumLeapPort::default()
        },
        alerts: vec![Alert {
            name: "disk".to_owned(),
            namespace: Namespace::default(),
            queue: None,
            condition: Condition::DiskFreeBelow(1),
            hold_for: Duration::ZERO,
            gravity: Gravity::Warning,
            webhook: None,
        }],
        ..config()
    };
    let running = start_server(config).await;
    let addr = running.addr();
    enqueue(addr, "2", r#"{"kind":"a","id":"x"}"#).await;
    // A job that waits for a job of another shard makes the two shards peers.
    let waits = r#"{"kind":"b","queue":"a\"} 1\n\t\\","inputs":[{"result_of_job":"2/x"}]}"#;
    enqueue(addr, "1", waits).await;
    let redis = running.addr_of("redis").expect("it listens");
    let mut redis = TcpStream::connect(redis).await.expect("it listens");
    redis.write_all(b"PING\r\n").await.expect("sent");
    let mut pong = [0; 7];
    redis.read_exact(&mut pong).await.expect("an answer");
    assert_eq!(&pong, b"+PONG\r\n");

    // Queues are counted after a request, and peers are known once a message is stored.
    let text = loop {
        let (head, text) = fetch(addr, "GET /metrics", "1", "").await;
        assert_eq!(status(&head), "200", "{head}");
        assert!(head.contains(ganger_metrics::CONTENT_TYPE), "{head}");
        assert_eq!(ganger_metrics::check(&text), Ok(()));
        if text.contains("ganger_queue_depth{") && text.contains("ganger_peer_stopped{") {
            break text;
        }
    };
    assert_eq!(exported(&text), documented());
    let lines: Vec<&str> = text.lines().collect();
    for line in [
        r#"ganger_queue_depth{shard="2",namespace="default",queue="default",state="ready"} 1"#,
        r#"ganger_queue_depth{shard="1",namespace="default",queue="a\"} 1\n\\x09\\",state="blocked"} 1"#,
        r#"ganger_jobs_enqueued_total{shard="2",namespace="default",queue="default",kind="a"} 1"#,
        r#"ganger_lease_expired_total{shard="1",namespace="",queue="other",kind="other"} 0"#,
        r#"ganger_alert_firing{alert="disk"} 0"#,
        "ganger_resp_connections 1",
        "ganger_resp_commands_total 1",
        r#"ganger_http_requests_total{class="5xx"} 0"#,
        r#"ganger_quantumleap_request_seconds_bucket{operation="notify",le="+Inf"} 0"#,
    ] {
        assert!(lines.contains(&line), "{line} is missing in\n{text}");
    }
    running.stop().await;
}
