//! Attacks of unidentified clients: each ends its own connection, and others are still served (`rel S13`).

use std::net::SocketAddr;
use std::time::Duration;

use ganger_server::{Config, DB_IN_MEMORY, Limits, Running, start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Connection preface of an HTTP/2 client, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `:method GET`, `:scheme http`, `:path /`, as indexes into the static table of HPACK.
const GET: [u8; 3] = [0x82, 0x86, 0x84];

const HEADERS: u8 = 1;
const RESET: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Timeout of every wait, so that a failing test does not hang.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

async fn start_server(limits: Limits) -> Running {
    let config = Config {
        addr: "127.0.0.1:0".to_owned(),
        db: DB_IN_MEMORY.into(),
        reserve_bytes: 0,
        limits,
        ..Config::default()
    };
    let running = start(config).await.expect("it starts");
    running.ready().await;
    running
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .expect("a short payload")
        .to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Sends up to `pieces` pieces, each made by `next`; returns whether the server closes the connection.
async fn flood(addr: SocketAddr, pieces: u32, next: impl Fn(u32) -> Vec<u8>) -> bool {
    let stream = TcpStream::connect(addr).await.expect("it listens");
    let (mut reader, mut writer) = stream.into_split();
    let reading = tokio::spawn(async move {
        let mut answer = Vec::new();
        // A reset ends the connection as well.
        let _ = reader.read_to_end(&mut answer).await;
    });
    let _ = writer.write_all(PREFACE).await;
    for piece in 0..pieces {
        if writer.write_all(&next(piece)).await.is_err() || reading.is_finished() {
            return true;
        }
    }
    tokio::time::timeout(TEST_TIMEOUT, reading).await.is_ok()
}

/// Asserts that another connection is still served.
async fn assert_served(addr: SocketAddr) {
    let mut stream = TcpStream::connect(addr).await.expect("it listens");
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_flood_of_resets_ends_the_connection() {
    let running = start_server(Limits::default()).await;
    let ended = flood(running.addr(), 2_000, |piece| {
        let each = |number: u32| {
            let stream = 2 * (piece * 100 + number) + 1;
            let mut frames = frame(HEADERS, END_STREAM | END_HEADERS, stream, &GET);
            frames.extend(frame(RESET, 0, stream, &8_u32.to_be_bytes()));
            frames
        };
        (0..100).flat_map(each).collect()
    });
    assert!(ended.await);
    assert_served(running.addr()).await;
    running.stop().await;
}

#[tokio::test]
async fn endless_headers_end_the_connection() {
    let running = start_server(Limits::default()).await;
    let ended = flood(running.addr(), 20_000, |piece| match piece {
        0 => frame(HEADERS, END_STREAM, 1, &GET),
        // `x: y`, literal, not indexed.
        _ => frame(CONTINUATION, 0, 1, &[0, 1, b'x', 1, b'y'].repeat(100)),
    });
    assert!(ended.await);
    assert_served(running.addr()).await;
    running.stop().await;
}

#[tokio::test]
async fn a_head_that_arrives_too_slowly_ends_the_connection() {
    let limits = Limits {
        header_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let running = start_server(limits).await;
    let mut stream = TcpStream::connect(running.addr())
        .await
        .expect("it listens");
    let begun = b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ";
    stream.write_all(begun).await.expect("sent");
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "the server waits for the rest of the head");
    assert_served(running.addr()).await;
    running.stop().await;
}

#[tokio::test]
async fn an_endless_head_is_refused_once_it_exceeds_the_limit() {
    let running = start_server(Limits::default()).await;
    let mut stream = TcpStream::connect(running.addr())
        .await
        .expect("it listens");
    let begun = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}",
        "x".repeat(17 << 10)
    );
    stream.write_all(begun.as_bytes()).await.expect("sent");
    let mut answer = [0; 12];
    let answered = tokio::time::timeout(TEST_TIMEOUT / 4, stream.read_exact(&mut answer)).await;
    answered
        .expect("the server waits for more")
        .expect("answered");
    assert_eq!(&answer, b"HTTP/1.1 431");
    assert_served(running.addr()).await;
    running.stop().await;
}
