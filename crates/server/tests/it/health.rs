//! Health checks are answered even while the threads that serve connections are busy.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use crate::kit::{config, start_server, status};

/// Timeout of every read, so that a failing test does not hang.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a request and reads until the connection closes, without using a thread of the runtime.
fn fetch(addr: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a time");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("a response, then the end of the connection");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn health_is_answered_while_the_io_threads_are_busy() {
    let running = start_server(config()).await;
    let (busy, is_busy) = mpsc::channel();
    let (free, until_free) = mpsc::channel::<()>();
    // Blocks the only thread that serves connections.
    let work = tokio::spawn(async move {
        busy.send(()).expect("the test waits");
        let _ = until_free.recv();
    });
    is_busy.recv().expect("it runs");
    for path in ["/healthz", "/readyz"] {
        let answer = fetch(
            running.addr(),
            &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        );
        assert_eq!(status(&answer), "200", "{path}: {answer}");
        assert!(
            answer.to_ascii_lowercase().contains("connection: close"),
            "{path}: {answer}"
        );
    }
    drop(free);
    work.await.expect("no panic");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_pipelined_after_a_health_check_is_not_served() {
    let running = start_server(config()).await;
    let addr = running.addr();
    let pipelined = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = tokio::task::spawn_blocking(move || fetch(addr, pipelined))
        .await
        .expect("no panic");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    running.stop().await;
}
