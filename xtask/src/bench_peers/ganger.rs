//! ganger: `ganger bench` over HTTP and gRPC, and a server whose worker runs programs.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ganger_bench::http::Http;
use ganger_bench::rate;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::load;
use super::report::Report;
use super::scratch::{Process, free_address};
use crate::process::{built, output};

/// Name of the column for gRPC.
pub(super) const GRPC: &str = "ganger gRPC";
/// Name of the column for HTTP.
pub(super) const HTTP: &str = "ganger HTTP";

/// A private ganger server with an empty store.
pub(super) struct Server {
    _process: Process,
    address: SocketAddr,
    program: PathBuf,
}

impl Server {
    pub(super) async fn start(directory: &Path) -> Result<Self> {
        let address = free_address()?;
        let program = built("release", "ganger");
        let mut command = Command::new(&program);
        command
            .args(["server", "--addr", &address.to_string(), "--db"])
            .arg(directory.join("bench.db"));
        let process = Process::start(&mut command, directory, address)?;
        let server = Self {
            _process: process,
            address,
            program,
        };
        server.wait_until_ready().await?;
        Ok(server)
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let begun = Instant::now();
        while self.http().await?.get("/readyz").await.is_err() {
            ensure!(
                begun.elapsed() < Duration::from_secs(30),
                "ganger does not become ready"
            );
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn http(&self) -> Result<Http> {
        Ok(Http::connect(&self.address.to_string(), "").await?)
    }

    /// Runs jobs of a program with `ganger worker`; returns programs per second.
    pub(super) async fn programs(
        &self,
        program: &str,
        count: usize,
        at_once: usize,
        directory: &Path,
    ) -> Result<f64> {
        let kinds = directory.join("kinds");
        fs::create_dir(&kinds)?;
        fs::copy(program, kinds.join("copy"))?;
        let mut http = self.http().await?;
        let job = json!({ "kind": "copy", "queue": "programs", "inputs": [{ "value": { "uid": 1234 } }] });
        let lines = format!("{job}\n").repeat(count);
        http.post(
            "/api/v1/jobs/batch?answers=errors",
            "application/x-ndjson",
            lines.as_bytes(),
        )
        .await?;
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
        let _worker = Process::start(&mut command, directory, self.address)?;
        loop {
            let queue = http.get("/api/v1/queues/programs").await?;
            let queue: Value = serde_json::from_slice(queue)?;
            let counts = &queue["counts"];
            let failed = counts["failed"].as_u64().unwrap_or(0);
            ensure!(failed == 0, "{failed} programs failed: {queue}");
            if counts["succeeded"]
                .as_u64()
                .is_some_and(|done| usize::try_from(done).is_ok_and(|done| done >= count))
            {
                return Ok(rate(u64::try_from(count)?, begun.elapsed()));
            }
            ensure!(
                begun.elapsed() < Duration::from_secs(300),
                "the programs do not end: {queue}"
            );
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Measures the loads over gRPC, and full lives beside a bare log.
pub(super) fn measure_grpc(directory: &Path, report: &mut Report) -> Result<()> {
    let document = bench(
        GRPC,
        "grpc",
        "enqueue,take,mix,latency,lives,deep",
        directory,
    )?;
    add_loads(GRPC, &document, report)?;
    add_lives(&document, report)
}

/// Measures the loads over HTTP.
pub(super) fn measure_http(directory: &Path, report: &mut Report) -> Result<()> {
    let document = bench(HTTP, "http", "enqueue,take,mix,latency,deep", directory)?;
    add_loads(HTTP, &document, report)
}

/// Runs `ganger bench` for these loads with its own server; returns its JSON report.
fn bench(column: &str, api: &str, loads: &str, directory: &Path) -> Result<Value> {
    println!("measuring {column}");
    let mut command = Command::new(built("release", "ganger"));
    command
        .args(["bench", "--json", "--apis", api, "--time", "5s"])
        .args(["--loads", loads])
        .args(["--connections", "64", "--batches", "256"])
        .args(["--rates", "1000", "--dir"])
        .arg(directory);
    let text = output(&mut command)?;
    serde_json::from_str(&text).context("`ganger bench --json` did not print JSON")
}

fn add_loads(column: &str, document: &Value, report: &mut Report) -> Result<()> {
    let rate = |load: &str| -> Result<f64> {
        let loads = document["loads"].as_array();
        let row = loads.and_then(|rows| rows.iter().find(|row| row["load"] == load));
        row.and_then(|row| row["per_second"].as_f64())
            .with_context(|| format!("`ganger bench` did not measure {load}"))
    };
    report.add(load::ENQUEUE, column, "jobs/s", rate("enqueue")?);
    report.add(load::TAKE, column, "jobs/s", rate("take")?);
    report.add(load::MIX, column, "jobs/s", rate("mix")?);
    let deep = rate("mix_deep")?;
    report.add(load::DEEP, column, "jobs/s", deep);
    report.add(load::DEPTH, column, "x", deep / rate("mix_empty")?);
    for (row, pointer) in [
        (load::P50, "/latency/0/p50_ms"),
        (load::P99, "/latency/0/p99_ms"),
    ] {
        let time = document.pointer(pointer).and_then(Value::as_f64);
        let time = time.context("`ganger bench` measured no latency")?;
        report.add(row, column, "us", time * 1_000.0);
    }
    Ok(())
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
