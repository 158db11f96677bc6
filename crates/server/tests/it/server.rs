//! A whole server in this process, over TCP connections.

use std::net::SocketAddr;
use std::time::Duration;

use ganger_server::{Config, DB_IN_MEMORY, Limits, Running, Secret, StartError, start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const TOKEN: &str = "a-token-for-tests-only";

fn config() -> Config {
    Config {
        addr: "127.0.0.1:0".to_owned(),
        db: DB_IN_MEMORY.into(),
        reserve_bytes: 0,
        stop_timeout: Duration::from_secs(30),
        ..Config::default()
    }
}

async fn start_server(config: Config) -> Running {
    let running = start(config).await.expect("it starts");
    running.ready().await;
    running
}

/// Sends raw bytes over a new connection; returns what the server sends until it closes the connection.
async fn fetch_raw(addr: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.expect("it listens");
    // The server may refuse the head and close the connection before all of it was sent.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends a request with these header lines, each with its line end; returns the whole response.
async fn fetch(addr: SocketAddr, line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    fetch_raw(addr, request.as_bytes()).await
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

const JSON: &str = "Content-Type: application/json\r\n";

#[tokio::test]
async fn a_job_is_accepted_and_shown_over_a_real_connection() {
    let running = start_server(config()).await;
    let addr = running.addr();
    let answer = fetch(addr, "POST /api/v1/jobs", JSON, r#"{"kind":"a","id":"x"}"#).await;
    assert_eq!(status(&answer), "201", "{answer}");
    let answer = fetch(addr, "GET /api/v1/jobs/x", "", "").await;
    assert!(
        answer.contains("\"ready\"") && answer.contains("nosniff"),
        "{answer}"
    );
    let answer = fetch(addr, "GET /metrics", "", "").await;
    assert!(answer.contains("ganger_connections 1"), "{answer}");
    running.stop().await;
}

/// A service manager would restart a server that ends with any other code, again and again.
#[tokio::test]
async fn damage_found_while_rows_are_loaded_ends_the_server_with_the_code_of_an_unusable_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config {
        db: directory.path().join("test.db"),
        ..config()
    };
    start_server(config.clone()).await.stop().await;
    let mut bytes = std::fs::read(&config.db).expect("the store is closed");
    // An empty table is a page without cells; a page of an unknown kind is malformed. The last table and its index are
    // first read when rows are loaded.
    let pages = bytes.chunks_exact_mut(2_048).rev();
    let empty = pages.filter(|page| matches!(page[0], 0x0a | 0x0d) && page[3..5] == [0, 0]);
    for page in empty.take(2) {
        page[0] = 0xff;
    }
    std::fs::write(&config.db, bytes).expect("it can be written");
    let running = start(config).await.expect("its header is whole");
    let (shard, cause) = running.ended().await;
    let error = StartError::ended(&shard, &cause);
    assert_eq!(error.exit_code(), 3, "{error}");
    assert!(error.to_string().contains("malformed"), "{error}");
}

#[tokio::test]
async fn acknowledged_jobs_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config {
        db: directory.path().join("test.db"),
        ..config()
    };
    let running = start_server(config.clone()).await;
    let answer = fetch(
        running.addr(),
        "POST /api/v1/jobs",
        JSON,
        r#"{"kind":"a","id":"x"}"#,
    )
    .await;
    assert_eq!(status(&answer), "201", "{answer}");
    let refused = start(config.clone())
        .await
        .err()
        .expect("the store is in use");
    assert!(matches!(refused, StartError::Store(_)), "{refused}");
    assert_eq!(refused.exit_code(), 3);
    running.stop().await;
    let running = start_server(config).await;
    assert_eq!(
        status(&fetch(running.addr(), "GET /api/v1/jobs/x", "", "").await),
        "200"
    );
    running.stop().await;
}

#[tokio::test]
async fn without_the_token_only_health_is_answered() {
    let running = start_server(Config {
        token: Secret::new(TOKEN).ok(),
        ..config()
    })
    .await;
    let addr = running.addr();
    assert_eq!(status(&fetch(addr, "GET /healthz", "", "").await), "200");
    assert_eq!(status(&fetch(addr, "GET /readyz", "", "").await), "200");
    for path in [
        "/metrics",
        "/version",
        "/openapi.json",
        "/api/v1/jobs",
        "/nowhere",
    ] {
        let answer = fetch(addr, &format!("GET {path}"), "", "").await;
        assert_eq!(status(&answer), "401", "{path}");
        assert!(
            answer.to_lowercase().contains("www-authenticate: bearer"),
            "{answer}"
        );
    }
    let wrong = fetch(addr, "GET /metrics", "Authorization: Bearer wrong\r\n", "").await;
    assert_eq!(status(&wrong), "401", "{wrong}");
    assert!(!wrong.contains(TOKEN));
    let header = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(
        status(&fetch(addr, "GET /api/v1/jobs", &header, "").await),
        "200"
    );
    let grpc = "Content-Type: application/grpc\r\n";
    let answer = fetch(addr, "POST /ganger.v1.Queues/List", grpc, "").await;
    assert!(answer.contains("grpc-status: 16"), "{answer}");
    running.stop().await;
}

#[tokio::test]
async fn a_token_file_is_read_and_one_with_a_short_token_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("token");
    std::fs::write(&path, format!("{TOKEN}\n")).expect("writable");
    let with_file = Config {
        token_file: Some(path.clone()),
        ..config()
    };
    let running = start_server(with_file.clone()).await;
    let header = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(
        status(&fetch(running.addr(), "GET /version", &header, "").await),
        "200"
    );
    running.stop().await;
    std::fs::write(&path, "short").expect("writable");
    let refused = start(with_file).await.err().expect("too short");
    assert!(refused.to_string().contains("at least 16"), "{refused}");
    assert_eq!(refused.exit_code(), 2);
}

#[tokio::test]
async fn requests_of_other_sites_are_refused() {
    let running = start_server(config()).await;
    let addr = running.addr();
    let evil = "GET /api/v1/jobs HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&fetch_raw(addr, evil.as_bytes()).await), "421");
    let origin = format!("{JSON}Origin: https://evil.example\r\n");
    assert_eq!(
        status(&fetch(addr, "POST /api/v1/jobs", &origin, r#"{"kind":"a"}"#).await),
        "403"
    );
    let fetched = format!("{JSON}Sec-Fetch-Site: cross-site\r\n");
    assert_eq!(
        status(&fetch(addr, "POST /api/v1/jobs", &fetched, r#"{"kind":"a"}"#).await),
        "403"
    );
    let own = format!("{JSON}Origin: http://{addr}\r\n");
    assert_eq!(
        status(&fetch(addr, "POST /api/v1/jobs", &own, r#"{"kind":"a"}"#).await),
        "201"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_public_address_needs_protection_or_insecure() {
    let open = Config {
        addr: "0.0.0.0:0".to_owned(),
        ..config()
    };
    let refused = start(open).await.err().expect("not allowed to be public");
    assert!(matches!(refused, StartError::Open { .. }), "{refused}");
    assert!(refused.to_string().contains("--insecure"), "{refused}");
}

#[tokio::test]
async fn an_address_in_use_is_refused_with_the_next_step() {
    let running = start_server(config()).await;
    let again = Config {
        addr: running.addr().to_string(),
        ..config()
    };
    let refused = start(again).await.err().expect("taken");
    assert!(refused.to_string().contains("--addr"), "{refused}");
    assert_eq!(refused.exit_code(), 4);
    running.stop().await;
}

#[tokio::test]
async fn malformed_requests_end_only_their_own_connection() {
    let limits = Limits {
        header_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let running = start_server(Config { limits, ..config() }).await;
    let addr = running.addr();
    for request in [
        &b"NONSENSE\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: nine\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"GET /healthz HTTP/1.1\r\n",
        b"",
    ] {
        let answer = fetch_raw(addr, request).await;
        assert!(!answer.starts_with("HTTP/1.1 2"), "{}: {answer}", request.escape_ascii());
    }
    let many = format!(
        "GET / HTTP/1.1\r\nHost: x\r\n{}\r\n",
        "A: b\r\n".repeat(500)
    );
    assert_eq!(status(&fetch_raw(addr, many.as_bytes()).await), "431");
    let large = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n",
        "x".repeat(200_000)
    );
    assert_eq!(status(&fetch_raw(addr, large.as_bytes()).await), "431");
    assert_eq!(status(&fetch(addr, "GET /healthz", "", "").await), "200");
    running.stop().await;
}

#[tokio::test]
async fn long_polls_are_answered_when_the_server_stops() {
    let running = start_server(config()).await;
    let addr = running.addr();
    let poll = tokio::spawn(async move {
        fetch(
            addr,
            "POST /api/v1/leases",
            JSON,
            r#"{"worker":"w","wait":"5m"}"#,
        )
        .await
    });
    while running
        .shard()
        .metrics()
        .gauges
        .iter()
        .all(|(name, number)| *name != "waiting_workers" || *number == 0)
    {
        tokio::task::yield_now().await;
    }
    running.stop().await;
    let answer = poll.await.expect("no panic");
    assert_eq!(status(&answer), "200", "{answer}");
    assert!(answer.ends_with(r#"{"jobs":[]}"#), "{answer}");
    assert!(
        TcpStream::connect(addr).await.is_err(),
        "nobody listens any more"
    );
}
