//! ganger itself: its own `ganger bench` over each of its APIs, and a server that programs are run for.

use std::env;
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

use super::figures::Figures;
use super::goals::{BARE_LOG, MEMORY_IDLE, MEMORY_JOB, RESTART_1M, RESTART_10M};
use super::options::Options;
use super::row::{LIVES, Load, Metric};
use super::scratch::{Process, free_address};
use super::system::System;
use crate::process::{built, output};

/// A private server with an empty store.
pub(super) struct Server {
    _process: Process,
    address: SocketAddr,
    program: PathBuf,
}

impl Server {
    pub(super) async fn start(directory: &Path) -> Result<Self> {
        let address = free_address()?;
        let program = program();
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
                "ganger does not get ready"
            );
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn http(&self) -> Result<Http> {
        Ok(Http::connect(&self.address.to_string(), "").await?)
    }

    /// Runs so many jobs of a program with `ganger worker`; returns programs per second.
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

/// The ganger to measure.
fn program() -> PathBuf {
    let named = env::var_os("GANGER_BIN").map(PathBuf::from);
    named.unwrap_or_else(|| built("release", "ganger"))
}

/// Measures a load with `ganger bench`, with a server and a store of its own.
pub(super) fn measure(
    system: System,
    api: &str,
    load: Load,
    options: &Options,
    directory: &Path,
    figures: &mut Figures,
) -> Result<()> {
    let time = format!("{}s", options.seconds);
    let mut command = Command::new(built("release", "ganger"));
    command
        .args(["bench", "--json", "--apis", api, "--time", &time])
        .args(["--loads", &load.name().to_lowercase()])
        .args(["--connections", "64", "--batches", "256"])
        .arg("--program")
        .arg(program())
        .arg("--dir")
        .arg(directory);
    if load == Load::Restart && options.is_ten_million {
        command.args(["--waiting", "1000000,10000000"]);
    }
    let text = output(&mut command)?;
    let document: Value =
        serde_json::from_str(&text).context("`ganger bench --json` is no JSON")?;
    let mut add = |load: &str, system: &str, metric, value: &Value, factor: f64| {
        if let Some(value) = value.as_f64() {
            figures.add(load, system, metric, value * factor);
        }
    };
    for row in rows(&document, "loads") {
        let load = row["load"].as_str().unwrap_or_default();
        let mut add = |metric, value, factor| add(load, system.name(), metric, value, factor);
        add(Metric::Rate, &row["per_second"], 1.0);
        add(Metric::Cpu, &row["server_cpu_seconds_per_million"], 1.0);
        add(Metric::Flushes, &row["flushes_per_thousand"], 1e-3);
        add(Metric::Bytes, &row["bytes_written_per_job"], 1.0);
        add(Metric::P50, &row["latency"]["p50_ms"], 1.0);
        add(Metric::P99, &row["latency"]["p99_ms"], 1.0);
    }
    for row in rows(&document, "lives") {
        let mut add = |metric, value, factor| add(LIVES, system.name(), metric, value, factor);
        add(Metric::Rate, &row["per_second"], 1.0);
        add(Metric::Cpu, &row["server_cpu_seconds_per_million"], 1.0);
        add(Metric::Flushes, &row["flushes_per_thousand"], 1e-3);
        add(Metric::Bytes, &row["bytes_written_per_job"], 1.0);
    }
    for row in rows(&document, "lives") {
        add(
            LIVES,
            BARE_LOG,
            Metric::Rate,
            &row["bare_log_per_second"],
            1.0,
        );
    }
    for row in rows(&document, "restart") {
        let is_one_million = row["jobs"] == 1_000_000;
        let load = if is_one_million {
            RESTART_1M
        } else {
            RESTART_10M
        };
        add(load, system.name(), Metric::Seconds, &row["seconds"], 1.0);
    }
    let memory = &document["memory"];
    add(
        MEMORY_IDLE,
        system.name(),
        Metric::Memory,
        &memory["idle_bytes"],
        1.0,
    );
    add(
        MEMORY_JOB,
        system.name(),
        Metric::Memory,
        &memory["bytes_per_waiting_job"],
        1.0,
    );
    Ok(())
}

fn rows<'a>(document: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    document[name].as_array().into_iter().flatten()
}
