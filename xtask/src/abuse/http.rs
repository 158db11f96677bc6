//! Attacks over HTTP and gRPC.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Result;

use super::meter::{call, request};
use super::wire::Connection;
use super::{Attack, OpenConnections, Target, each};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "grpc-health-announced",
        run: |target| announced(target, None, "/grpc.health.v1.Health/Check", 1_000, 32),
    },
    Attack {
        name: "grpc-health-watched",
        run: |target| announced(target, None, "/grpc.health.v1.Health/Watch", 1_000, 32),
    },
    Attack {
        name: "grpc-announced",
        run: |target| announced(target, Some("attacker"), ENQUEUE, 100, 200),
    },
    Attack {
        name: "grpc-partial",
        run: grpc_partial,
    },
    Attack {
        name: "http-slow-bodies",
        run: http_slow_bodies,
    },
    Attack {
        name: "http-small-slow-bodies",
        run: http_small_slow_bodies,
    },
    Attack {
        name: "http2-unread-answers",
        run: |target| http2_unread(target, 0),
    },
    Attack {
        name: "http2-barely-read-answers",
        run: |target| http2_unread(target, 1),
    },
    Attack {
        name: "grpc-unread-answers",
        run: grpc_unread,
    },
    Attack {
        name: "http1-unread-answers",
        run: http1_unread,
    },
    Attack {
        name: "waits",
        run: waits,
    },
    Attack {
        name: "streams",
        run: streams,
    },
    Attack {
        name: "half-heads",
        run: half_heads,
    },
    Attack {
        name: "denied-and-wrong-tokens",
        run: denied,
    },
];

const ENQUEUE: &str = "/ganger.v1.Jobs/Enqueue";
const PAYLOAD: &str = "/ganger.v1.Jobs/Payload";
/// Id of the job that attackers read.
const LARGE_JOB: &str = "large";

/// Submits the job with the payload that attackers read.
pub(super) fn submit_large_job(target: &Target, bytes: usize) -> Result<()> {
    let payload = "x".repeat(bytes);
    let body = format!(r#"{{"id":"{LARGE_JOB}","kind":"a","payload":"{payload}","delay":"1h"}}"#);
    let sent = request("POST", "/api/v1/jobs", target.token("victim"), &body);
    call(target.address, &sent, "201")
}

/// Returns the header fields of a request.
fn fields<'a>(
    method: &'a str,
    path: &'a str,
    authorization: &'a str,
    media_type: &'a str,
) -> Vec<(&'a str, &'a str)> {
    let mut fields = vec![
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", media_type),
        ("te", "trailers"),
    ];
    if !authorization.is_empty() {
        fields.push(("authorization", authorization));
    }
    fields
}

fn bearer(target: &Target, name: &str) -> String {
    format!("Bearer {}", target.token(name))
}

/// Sends messages that announce 4 MiB and contain one byte.
fn announced(
    target: &Target,
    who: Option<&str>,
    path: &str,
    connections: usize,
    streams: usize,
) -> OpenConnections {
    let authorization = who.map_or(String::new(), |who| bearer(target, who));
    each(target, connections, |open| {
        let mut connection = Connection::open(target.address, 1 << 20)?;
        for _ in 0..streams {
            let fields = fields("POST", path, &authorization, "application/grpc");
            let stream = connection.begin(&fields, true)?;
            connection.send(stream, &[0, 0, 0x3f, 0xff, 0xc0, 0x78])?;
        }
        open.push(Box::new(connection));
        Ok(())
    })
}

/// Sends messages almost completely.
fn grpc_partial(target: &Target) -> OpenConnections {
    let authorization = bearer(target, "attacker");
    let message = [&[0, 0, 0x3f, 0xff, 0xc0][..], &vec![0; 4_100_000]].concat();
    each(target, 100, |open| {
        let mut connection = Connection::open(target.address, 1 << 20)?;
        for _ in 0..4 {
            let fields = fields("POST", ENQUEUE, &authorization, "application/grpc");
            let stream = connection.begin(&fields, true)?;
            connection.send(stream, &message)?;
        }
        open.push(Box::new(connection));
        Ok(())
    })
}

fn slow_body(target: &Target, path: &str, announced: usize, sent: usize) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(target.address)?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    let token = target.token("attacker");
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {announced}\r\n\r\n"
    )?;
    // The server may refuse the body before all of it is sent.
    let _ = stream.write_all(&vec![b' '; sent]);
    Ok(stream)
}

/// Submits graphs of which the last 500 bytes are missing.
fn http_slow_bodies(target: &Target) -> OpenConnections {
    each(target, 40, |open| {
        let bytes = 30 << 20;
        open.push(Box::new(slow_body(
            target,
            "/api/v1/graphs",
            bytes,
            bytes - 500,
        )?));
        Ok(())
    })
}

/// Submits many jobs whose small bodies are incomplete.
fn http_small_slow_bodies(target: &Target) -> OpenConnections {
    each(target, 1_000, |open| {
        let bytes = 64 << 10;
        open.push(Box::new(slow_body(
            target,
            "/api/v1/jobs",
            bytes,
            bytes - 500,
        )?));
        Ok(())
    })
}

/// Requests answers of 1 MB over HTTP/2 and reads at most `window` bytes of each.
fn http2_unread(target: &Target, window: u32) -> OpenConnections {
    let authorization = bearer(target, "attacker");
    let path = format!("/api/v1/jobs/{LARGE_JOB}/payload");
    each(target, 20, |open| {
        let mut connection = Connection::open(target.address, window)?;
        for _ in 0..200 {
            let fields = fields("GET", &path, &authorization, "application/json");
            connection.begin(&fields, false)?;
        }
        open.push(Box::new(connection));
        Ok(())
    })
}

/// Requests answers of 1 MB over gRPC and reads none of them.
fn grpc_unread(target: &Target) -> OpenConnections {
    let authorization = bearer(target, "attacker");
    // Field 2, of 5 bytes: the job's id.
    let message = [&[0, 0, 0, 0, 7, 0x12, 5][..], LARGE_JOB.as_bytes()].concat();
    each(target, 20, |open| {
        let mut connection = Connection::open(target.address, 0)?;
        for _ in 0..200 {
            let fields = fields("POST", PAYLOAD, &authorization, "application/grpc");
            let stream = connection.begin(&fields, true)?;
            connection.send_last(stream, &message)?;
        }
        open.push(Box::new(connection));
        Ok(())
    })
}

/// Requests answers of 1 MB over HTTP/1.1 and reads none of them.
fn http1_unread(target: &Target) -> OpenConnections {
    let path = format!("/api/v1/jobs/{LARGE_JOB}/payload");
    let sent = request("GET", &path, target.token("attacker"), "");
    each(target, 1_000, |open| {
        let mut stream = TcpStream::connect(target.address)?;
        stream.write_all(&sent)?;
        open.push(Box::new(stream));
        Ok(())
    })
}

/// Waits for the end of a job that does not end, and for jobs in an empty queue.
fn waits(target: &Target) -> OpenConnections {
    let reader = bearer(target, "attacker");
    let worker = bearer(target, "attacker-worker");
    let path = format!("/api/v1/jobs/{LARGE_JOB}?wait=120s");
    each(target, 100, |open| {
        let mut connection = Connection::open(target.address, 1 << 20)?;
        for _ in 0..100 {
            let fields_of = fields("GET", &path, &reader, "application/json");
            connection.begin(&fields_of, false)?;
            let fields_of = fields("POST", "/api/v1/leases", &worker, "application/json");
            let stream = connection.begin(&fields_of, true)?;
            connection.send_last(stream, br#"{"worker":"w","queues":["none"],"wait":"120s"}"#)?;
        }
        open.push(Box::new(connection));
        Ok(())
    })
}

/// Opens streams of events and reads none of them.
fn streams(target: &Target) -> OpenConnections {
    let authorization = bearer(target, "attacker");
    each(target, 20, |open| {
        let mut connection = Connection::open(target.address, 0)?;
        for _ in 0..100 {
            let fields = fields("GET", "/api/v1/events", &authorization, "application/json");
            connection.begin(&fields, false)?;
        }
        open.push(Box::new(connection));
        Ok(())
    })
}

/// Sends heads that do not end.
fn half_heads(target: &Target) -> OpenConnections {
    let head = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: {}",
        "x".repeat(15 << 10)
    );
    each(target, 1_000, |open| {
        let mut stream = TcpStream::connect(target.address)?;
        let _ = stream.write_all(head.as_bytes());
        open.push(Box::new(stream));
        Ok(())
    })
}

/// Sends requests that are denied, each of which writes a line of the audit log.
fn denied(target: &Target) -> OpenConnections {
    let long = "x".repeat(2_000);
    let path = format!("/api/v1/jobs?namespace=foreign&queue={long}");
    let authorization = bearer(target, "attacker");
    each(target, 100, |open| {
        let mut connection = Connection::open(target.address, 1 << 20)?;
        for _ in 0..100 {
            connection.begin(
                &fields("GET", &path, &authorization, "application/json"),
                false,
            )?;
        }
        for _ in 0..20 {
            let wrong = fields("GET", "/version", "Bearer wrong", "application/json");
            connection.begin(&wrong, false)?;
        }
        open.push(Box::new(connection));
        Ok(())
    })
}
