//! ganger itself: over HTTP with the same plain sockets as the others, and over gRPC with its own `ganger bench`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::load::{self, Link, Peer};
use super::programs::per_second;
use super::report::Report;
use super::scratch::{Process, free_address};
use super::wire::Wire;
use crate::process::{built, output};

/// The queue of the loads.
const QUEUE: &str = "bench";

/// The columns that are ours.
pub(super) const GRPC: &str = "ganger gRPC";
pub(super) const HTTP: &str = "ganger HTTP";

/// A private server with an empty store.
pub(super) struct Server {
    _process: Process,
    address: SocketAddr,
    program: PathBuf,
}

impl Server {
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let address = free_address()?;
        let program = built("release", "ganger");
        let mut command = Command::new(&program);
        command
            .args(["server", "--addr", &address.to_string(), "--db"])
            .arg(folder.join("bench.db"));
        let process = Process::start(&mut command, folder, address)?;
        let server = Self {
            _process: process,
            address,
            program,
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let begun = Instant::now();
        while self.http()?.call("GET", "/readyz", "", b"").is_err() {
            ensure!(
                begun.elapsed() < Duration::from_secs(30),
                "ganger does not get ready"
            );
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn http(&self) -> Result<Http> {
        Ok(Http {
            wire: Wire::connect(self.address)?,
            host: self.address.to_string(),
        })
    }

    /// Runs so many jobs of a program with `ganger worker`; returns programs per second.
    pub(super) fn programs(
        &self,
        program: &str,
        count: usize,
        at_once: usize,
        folder: &Path,
    ) -> Result<f64> {
        let kinds = folder.join("kinds");
        fs::create_dir(&kinds)?;
        fs::copy(program, kinds.join("copy"))?;
        let mut link = self.http()?;
        let job = json!({ "kind": "copy", "queue": "programs", "inputs": [{ "value": { "uid": 1234 } }] });
        let lines = format!("{job}\n").repeat(count);
        link.call(
            "POST",
            "/api/v1/jobs/batch?answers=errors",
            "application/x-ndjson",
            lines.as_bytes(),
        )?;
        let mut command = Command::new(&self.program);
        command
            .args([
                "worker",
                "--server",
                &self.address.to_string(),
                "--id",
                "bench",
                "--queue",
                "programs",
            ])
            .args(["--concurrency", &at_once.to_string(), "--dir"])
            .arg(&kinds);
        let begun = Instant::now();
        let _worker = Process::start(&mut command, folder, self.address)?;
        loop {
            let queue = link.call("GET", "/api/v1/queues/programs", "", b"")?;
            let counts = &queue["counts"];
            let failed = counts["failed"].as_u64().unwrap_or(0);
            ensure!(failed == 0, "{failed} programs failed: {queue}");
            if counts["succeeded"]
                .as_u64()
                .is_some_and(|done| usize::try_from(done).is_ok_and(|done| done >= count))
            {
                return Ok(per_second(count, begun.elapsed()));
            }
            ensure!(
                begun.elapsed() < Duration::from_secs(300),
                "the programs do not end: {queue}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The same loads through gRPC: `ganger bench` runs them, with a server and a store of its own.
pub(super) fn measure_grpc(folder: &Path, report: &mut Report) -> Result<()> {
    println!("measuring {GRPC}");
    let mut command = Command::new(built("release", "ganger"));
    command
        .args(["bench", "--json", "--faces", "grpc", "--time", "5s"])
        .args(["--loads", "enqueue,take,mix,latency,lives,deep"])
        .args(["--connections", "64", "--batches", "256"])
        .args(["--rates", "1000", "--dir"])
        .arg(folder);
    let text = output(&mut command)?;
    let document: Value =
        serde_json::from_str(&text).context("`ganger bench --json` is no JSON")?;
    let rate = |load: &str| -> Result<f64> {
        let loads = document["loads"].as_array();
        let row = loads.and_then(|rows| rows.iter().find(|row| row["load"] == load));
        row.and_then(|row| row["per_second"].as_f64())
            .with_context(|| format!("`ganger bench` did not measure {load}"))
    };
    report.add(load::ENQUEUE, GRPC, "jobs/s", rate("enqueue")?);
    report.add(load::TAKE, GRPC, "jobs/s", rate("take")?);
    report.add(load::MIX, GRPC, "jobs/s", rate("mix")?);
    let deep = rate("mix_deep")?;
    report.add(load::DEEP, GRPC, "jobs/s", deep);
    report.add(load::DEPTH, GRPC, "x", deep / rate("mix_empty")?);
    for (row, pointer) in [
        (load::P50, "/latency/0/p50_ms"),
        (load::P99, "/latency/0/p99_ms"),
    ] {
        let time = document.pointer(pointer).and_then(Value::as_f64);
        let time = time.context("`ganger bench` measured no latency")?;
        report.add(row, GRPC, "us", time * 1_000.0);
    }
    add_lives(&document, report)
}

fn add_lives(document: &Value, report: &mut Report) -> Result<()> {
    for life in document["lives"]
        .as_array()
        .context("`ganger bench` measured no lives")?
    {
        let row = format!(
            "full lives, {} connections, batches of {}",
            life["connections"], life["batch"]
        );
        for (server, field) in [(GRPC, "per_second"), ("bare log", "bare_log_per_second")] {
            if let Some(rate) = life[field].as_f64() {
                report.add(&row, server, "lives/s", rate);
            }
        }
    }
    Ok(())
}

impl Peer for Server {
    fn connect(&self) -> Result<Box<dyn Link>> {
        Ok(Box::new(Batches {
            http: self.http()?,
            taken: Vec::new(),
        }))
    }
}

/// One HTTP connection.
struct Http {
    wire: Wire,
    host: String,
}

impl Http {
    /// A request whose answer must be good; returns its body as JSON, the last line of it if it is a stream.
    fn call(&mut self, method: &str, path: &str, content: &str, body: &[u8]) -> Result<Value> {
        let kind = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Type: {content}\r\n")
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{kind}Content-Length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        self.wire.add(head.as_bytes());
        self.wire.add(body);
        self.wire.flush()?;
        let status = self.wire.line()?;
        let body = self.body()?;
        let text = String::from_utf8_lossy(&body);
        if !status.starts_with("HTTP/1.1 2") {
            bail!("{method} {path} was answered with {status}: {text}");
        }
        let last = text.trim_end().lines().next_back().unwrap_or("null");
        serde_json::from_str(last)
            .with_context(|| format!("{method} {path} was answered with {text:?}"))
    }

    fn body(&mut self) -> Result<Vec<u8>> {
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let line = self.wire.line()?.to_ascii_lowercase();
            match line
                .split_once(':')
                .map(|(name, value)| (name, value.trim()))
            {
                None => break,
                Some(("content-length", value)) => length = value.parse()?,
                Some(("transfer-encoding", "chunked")) => is_chunked = true,
                Some(_) => {}
            }
        }
        if !is_chunked {
            return self.wire.bytes(length);
        }
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.wire.line()?, 16)?;
            body.extend(self.wire.bytes(size)?);
            self.wire.line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
}

/// One connection and the leases it holds.
struct Batches {
    http: Http,
    taken: Vec<Value>,
}

impl Batches {
    fn lease(&mut self, jobs: usize, wait: &str) -> Result<Vec<Vec<u8>>> {
        let body =
            json!({ "queues": [{ "queue": QUEUE }], "worker": "bench", "max": jobs, "wait": wait });
        let answer = self.http.call(
            "POST",
            "/api/v1/leases",
            "application/json",
            body.to_string().as_bytes(),
        )?;
        let mut payloads = Vec::new();
        for job in answer["jobs"].as_array().context("a lease without jobs")? {
            self.taken
                .push(json!({ "job": job["id"], "token": job["token"] }));
            payloads.push(
                job["payload"]
                    .as_str()
                    .context("a job without its payload")?
                    .as_bytes()
                    .to_vec(),
            );
        }
        Ok(payloads)
    }
}

/// A job as a line of a batch.
fn line(payload: &[u8]) -> String {
    let text = String::from_utf8_lossy(payload);
    format!("{{\"kind\":\"bench\",\"queue\":\"{QUEUE}\",\"payload\":\"{text}\"}}\n")
}

impl Link for Batches {
    fn put(&mut self, payloads: &[Vec<u8>]) -> Result<()> {
        let lines: String = payloads.iter().map(|payload| line(payload)).collect();
        let answer = self.http.call(
            "POST",
            "/api/v1/jobs/batch?answers=errors",
            "application/x-ndjson",
            lines.as_bytes(),
        )?;
        ensure!(
            answer["accepted"] == payloads.len(),
            "not all jobs were taken: {answer}"
        );
        Ok(())
    }

    fn take(&mut self, jobs: usize) -> Result<Vec<Vec<u8>>> {
        self.lease(jobs, "0s")
    }

    fn take_one_waiting(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.lease(1, "1s")?.pop())
    }

    fn finish(&mut self) -> Result<()> {
        let reports = Value::Array(std::mem::take(&mut self.taken));
        if reports.as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        let answer = self.http.call(
            "POST",
            "/api/v1/leases/complete",
            "application/json",
            reports.to_string().as_bytes(),
        )?;
        let refused = answer
            .as_array()
            .and_then(|all| all.iter().find(|it| !it["error"].is_null()));
        match refused {
            None => Ok(()),
            Some(refused) => bail!("a completion was refused: {refused}"),
        }
    }

    fn waits(&self) -> bool {
        true
    }
}
