//! The QuantumLeap port: authentication, paths, memory limits, and metrics.

use std::net::SocketAddr;

use crate::kit::{add_token, config, response_head, response_to, start_server, status};
use ganger_ngsi::environment::{self, Environment};
use ganger_server::{Config, Limits, QuantumLeapPort, Running, Secret, start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const TOKEN: &str = "a-token-for-tests-only";
const NOTIFICATION: &str =
    r#"{"data": [{"id": "e1", "type": "Room", "x": {"type": "Number", "value": 1}}]}"#;

fn environment() -> Environment {
    let variable = |name: &str| (name == "WQ_OFFLOAD_WORK").then(|| "true".to_owned());
    let no_file = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    environment::read(variable, no_file).expect("readable")
}

fn config_with_port() -> Config {
    Config {
        quantumleap: QuantumLeapPort {
            addr: Some("127.0.0.1:0".to_owned()),
            environment: Some(environment()),
            ..QuantumLeapPort::default()
        },
        ..config()
    }
}

fn port(running: &Running) -> SocketAddr {
    running.addr_of("quantumleap").expect("it listens")
}

fn request(line: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn notify(headers: &str) -> Vec<u8> {
    let headers = format!("Content-Type: application/json\r\n{headers}");
    request("POST /v2/notify", &headers, NOTIFICATION)
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_become_jobs_of_the_first_shard() {
    let running = start_server(config_with_port()).await;
    let port = port(&running);
    let answer = response_to(port, &notify("")).await;
    assert_eq!(status(&answer), "200", "{answer}");
    let count = response_to(port, &request("GET /wq/notifications/count", "", "")).await;
    assert!(count.ends_with("\r\n\r\n1\n"), "{count}");
    let jobs = request("GET /api/v1/jobs?queue=quantumleap", "", "");
    let jobs = response_to(running.addr(), &jobs).await;
    assert!(jobs.contains("ngsi-insert"), "{jobs}");
    let metrics = response_to(running.addr(), &request("GET /metrics", "", "")).await;
    let wanted = "ganger_quantumleap_notifications_total{outcome=\"accepted\"} 1";
    assert!(metrics.contains(wanted), "{metrics}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_port_has_its_own_paths_only() {
    let running = start_server(config_with_port()).await;
    let port = port(&running);
    for line in ["GET /api/v1/jobs", "GET /metrics", "GET /healthz"] {
        let answer = response_to(port, &request(line, "", "")).await;
        assert_eq!(status(&answer), "404", "{line}");
        assert!(answer.contains("about:blank"), "{answer}");
    }
    let answer = response_head(running.addr(), &notify("")).await;
    assert_eq!(status(&answer), "404");
    // A gRPC request is a notification of the wrong content type here.
    let grpc = request("POST /v2/notify", "Content-Type: application/grpc\r\n", "");
    assert_eq!(status(&response_head(port, &grpc).await), "415");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_configured_only_health_is_open() {
    let running = start_server(Config {
        token: Secret::new(TOKEN).ok(),
        ..config_with_port()
    })
    .await;
    let port = port(&running);
    for line in ["GET /wq/notifications", "GET /version", "GET /nowhere"] {
        let answer = response_head(port, &request(line, "", "")).await;
        assert_eq!(status(&answer), "401", "{line}: {answer}");
    }
    assert_eq!(status(&response_head(port, &notify("")).await), "401");
    // The check needs no token, and fails because there is no database.
    let health = response_head(port, &request("GET /health", "", "")).await;
    assert_eq!(status(&health), "503", "{health}");
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let answer = response_head(port, &notify(&token)).await;
    assert_eq!(status(&answer), "200", "{answer}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_may_not_send_notifications() {
    let running = start_server(config_with_port()).await;
    let answer = response_head(port(&running), &notify("Origin: https://evil.example\r\n")).await;
    assert_eq!(status(&answer), "403", "{answer}");
    running.stop().await;
}

#[tokio::test]
async fn a_public_address_needs_encryption_and_authentication_or_insecure() {
    let mut open = config_with_port();
    open.quantumleap.addr = Some("0.0.0.0:0".to_owned());
    let refused = start(open).await.err().expect("refused");
    assert_eq!(refused.exit_code(), 2);
    assert!(refused.to_string().contains("--insecure"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_are_written_when_the_server_stops() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut config = config_with_port();
    config.quantumleap.telemetry_dir = Some(directory.path().join("samples"));
    let running = start_server(config).await;
    let answer = response_head(port(&running), &notify("")).await;
    assert_eq!(status(&answer), "200", "{answer}");
    running.stop().await;
    let files = std::fs::read_dir(directory.path().join("samples")).expect("made");
    let names: Vec<String> = files
        .map(|file| file.expect("readable").file_name().into_string())
        .map(|name| name.expect("plain"))
        .collect();
    for prefix in ["duration.", "runtime."] {
        assert!(
            names.iter().any(|name| name.starts_with(prefix)),
            "{names:?}"
        );
    }
    assert!(
        names
            .iter()
            .all(|name| name.rsplit('.').next() == Some("csv")),
        "{names:?}"
    );
}

/// Returns a notification with a list of `count` ones.
fn notification_of_ones(count: usize) -> Vec<u8> {
    let list = vec!["1"; count].join(",");
    let body = format!(
        r#"{{"data":[{{"id":"e","type":"t","a":{{"type":"StructuredValue","value":[{list}]}}}}]}}"#
    );
    request(
        "POST /v2/notify",
        "Content-Type: application/json\r\n",
        &body,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_would_take_much_memory_is_refused_before_it_is_parsed() {
    let running = start_server(Config {
        limits: Limits {
            bytes_in_flight: 3 << 20,
            ..Limits::default()
        },
        ..config_with_port()
    })
    .await;
    let port = port(&running);
    // 20 KB, which parse into 1.6 MB; the share is 512 KiB.
    let answer = response_to(port, &notification_of_ones(10_000)).await;
    assert_eq!(status(&answer), "413", "{answer}");
    assert!(answer.contains("bytes of memory"), "{answer}");
    let answer = response_to(port, &notification_of_ones(2_000)).await;
    assert_eq!(status(&answer), "200", "{answer}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_the_limit_is_refused_before_it_is_sent() {
    let running = start_server(config_with_port()).await;
    let mut stream = TcpStream::connect(port(&running))
        .await
        .expect("it listens");
    let head = "POST /v2/notify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 30000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("answered");
    assert_eq!(&answer, b"HTTP/1.1 413");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_is_refused_if_its_senders_token_is_revoked_meanwhile() {
    let directory = tempfile::tempdir().expect("a directory");
    let access = directory.path().join("access");
    let secret = add_token(&access, "broker", "producer@default");
    let running = start_server(Config {
        access_file: Some(access.clone()),
        ..config_with_port()
    })
    .await;
    let mut stream = TcpStream::connect(port(&running))
        .await
        .expect("it listens");
    let headers = format!(
        "Authorization: Bearer {}\r\nExpect: 100-continue\r\n",
        secret.reveal()
    );
    let mut sent = notify(&headers);
    sent.pop();
    let body_at = sent.len() + 1 - NOTIFICATION.len();
    stream.write_all(&sent[..body_at]).await.expect("sent");
    let mut answer = [0; 12];
    // The server has started to read the body.
    stream.read_exact(&mut answer).await.expect("answered");
    assert_eq!(&answer, b"HTTP/1.1 100");
    stream.write_all(&sent[body_at..]).await.expect("sent");
    ganger_access::revoke(&access, "broker").expect("it is there");
    running.reload();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.contains("HTTP/1.1 401"), "{rest}");
    running.stop().await;
}
