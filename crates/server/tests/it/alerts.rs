//! Alerts of the configuration: a change is reported once, signed, and also after a restart.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ganger_attention::Gravity;
use ganger_attention::alert::{Alert, Condition, Webhook};
use ganger_server::Config;
use ganger_types::{Namespace, Queue};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::kit::{config, response_to, start_server, status};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A request that arrived at the webhook.
struct Received {
    head: String,
    body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> &str {
        let lines = self.head.lines();
        let found = lines.filter_map(|line| line.split_once(": "));
        let mut found = found.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map_or("", |(_, value)| value)
    }

    fn document(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// Checks the signature as a receiver would.
    fn is_genuine(&self) -> bool {
        let (time, sent) = self
            .header("ganger-signature")
            .split_once(',')
            .expect("two parts");
        let time = time.strip_prefix("t=").expect("a time");
        let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any key");
        mac.update(time.as_bytes());
        mac.update(b".");
        mac.update(&self.body);
        let wanted = mac.finalize().into_bytes();
        let mut text = "v1=".to_owned();
        for byte in wanted {
            write!(text, "{byte:02x}").expect("strings take everything");
        }
        sent == text
    }
}

/// A receiver of webhooks.
struct Receiver {
    listener: TcpListener,
}

impl Receiver {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        Self { listener }
    }

    fn addr(&self) -> SocketAddr {
        self.listener.local_addr().expect("an address")
    }

    /// Waits for a request, and answers it with a status.
    async fn next(&self, status: u16) -> Received {
        let (mut stream, _) = self.listener.accept().await.expect("a connection");
        let (mut bytes, mut piece) = (Vec::new(), [0; 4_096]);
        loop {
            let count = stream.read(&mut piece).await.expect("a request");
            assert_ne!(count, 0, "it ended early");
            bytes.extend_from_slice(&piece[..count]);
            let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let received = Received {
                body: bytes[end + 4..].to_vec(),
                head,
            };
            let length: usize = received.header("content-length").parse().expect("a length");
            if received.body.len() == length {
                let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.expect("sent");
                return received;
            }
        }
    }
}

/// A server with an alert on paused work in the queue `mail`.
fn with_alert(directory: &Path, receiver: &Receiver) -> Config {
    let secret_file = directory.join("secret");
    std::fs::write(&secret_file, format!("{SECRET}\n")).expect("writable");
    let alert = |name: &str, webhook| Alert {
        name: name.to_owned(),
        namespace: Namespace::default(),
        queue: Some(Queue::from_static("mail")),
        condition: Condition::OlderThan(Duration::from_millis(1)),
        hold_for: Duration::ZERO,
        gravity: Gravity::Error,
        webhook,
    };
    Config {
        db: directory.join("test.db"),
        alerts: vec![
            alert(
                "late",
                Some(Webhook {
                    url: format!("http://{}/hook?a=b", receiver.addr()),
                    secret_file: Some(secret_file),
                    ca_file: None,
                }),
            ),
            alert("quiet", None),
        ],
        alerts_every: Duration::from_millis(20),
        ..config()
    }
}

async fn fetch(addr: SocketAddr, line: &str, body: &str) -> (String, Value) {
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let answer = response_to(addr, request.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let body = serde_json::from_str(body).unwrap_or(Value::Null);
    (status(head).to_owned(), body)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_sent_once_and_signed_and_a_restart_repeats_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::new().await;
    let running = start_server(with_alert(directory.path(), &receiver)).await;
    let job = r#"{"kind":"a","id":"x","queue":"mail"}"#;
    fetch(running.addr(), "POST /api/v1/jobs", job).await;
    let firing = receiver.next(204).await;
    assert!(
        firing.head.starts_with("POST /hook?a=b HTTP/1.1"),
        "{}",
        firing.head
    );
    assert!(firing.is_genuine(), "{}", firing.head);
    assert_ne!(firing.header("ganger-message"), "");
    let document = firing.document();
    assert_eq!(document["alert"], "late");
    assert_eq!(document["state"], "firing");
    assert_eq!(document["gravity"], "error");
    let text = document["text"].as_str().expect("a text");
    assert!(
        text.starts_with("queue mail: the oldest of 1 ready jobs"),
        "{text}"
    );
    let (_, attention) = fetch(running.addr(), "GET /api/v1/attention", "").await;
    let items = attention["items"].as_array().expect("items");
    let alerts: Vec<_> = items
        .iter()
        .filter(|item| item["code"] == "alert")
        .collect();
    assert_eq!(alerts.len(), 2, "{attention}");
    running.stop().await;

    // It still fires after the restart, and the first that arrives is the end.
    let running = start_server(with_alert(directory.path(), &receiver)).await;
    fetch(running.addr(), "POST /api/v1/jobs/x/cancel", "").await;
    let resolved = receiver.next(200).await.document();
    assert_eq!(resolved["state"], "resolved");
    assert_eq!(resolved["since"], document["since"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_message_tells_what_the_receiver_answered() {
    let directory = tempfile::tempdir().expect("a directory");
    let receiver = Receiver::new().await;
    let running = start_server(with_alert(directory.path(), &receiver)).await;
    let addr = running.addr();
    for (answer, state) in [(204, "succeeded"), (500, "failed")] {
        let (code, test) = fetch(addr, "POST /api/v1/alerts/late/test", "").await;
        assert_eq!(code, "202", "{test}");
        let message = receiver.next(answer).await;
        assert_eq!(message.document()["state"], "test");
        assert!(message.is_genuine());
        let job = test["job"].as_str().expect("a job").replace('/', "%2F");
        let line = format!("GET /api/v1/jobs/{job}?wait=30s&namespace=ganger");
        let (_, job) = fetch(addr, &line, "").await;
        assert_eq!(job["state"], state, "{job}");
        if state == "failed" {
            let reason = &job["failure"]["message"];
            assert_eq!(*reason, json!("the receiver answered with status 500"));
        }
    }
    let (_, list) = fetch(addr, "GET /api/v1/alerts", "").await;
    let late = &list["alerts"][0];
    assert_eq!(
        (&late["delivered"], &late["failed"]),
        (&json!(1), &json!(1)),
        "{list}"
    );
    assert_eq!(late["firing"], false);
    for (name, code, words) in [
        ("quiet", "alert_without_webhook", "has no webhook"),
        ("unknown", "alert_not_found", "it has late, quiet"),
    ] {
        let (_, problem) = fetch(addr, &format!("POST /api/v1/alerts/{name}/test"), "").await;
        assert_eq!(problem["code"], code, "{problem}");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains(words), "{detail}");
    }
    running.stop().await;
}
