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
    add_rates(system, &document, figures);
    add_waiting(system, &document, figures);
    Ok(())
}

/// Notes a value of a document, if it is a number.
fn add(
    figures: &mut Figures,
    (load, system): (&str, &str),
    metric: Metric,
    value: &Value,
    factor: f64,
) {
    if let Some(value) = value.as_f64() {
        figures.add(load, system, metric, value * factor);
    }
}

/// Notes the loads with a rate, and full lives, beside the bare log.
fn add_rates(system: System, document: &Value, figures: &mut Figures) {
    let loads = rows(document, "loads").map(|row| (row["load"].as_str().unwrap_or_default(), row));
    let lives = rows(document, "lives").map(|row| (LIVES, row));
    for (load, row) in loads.chain(lives) {
        for (metric, value, factor) in [
            (Metric::Rate, &row["per_second"], 1.0),
            (Metric::Cpu, &row["server_cpu_seconds_per_million"], 1.0),
            (Metric::Flushes, &row["flushes_per_thousand"], 1e-3),
            (Metric::Bytes, &row["bytes_written_per_job"], 1.0),
            (Metric::P50, &row["latency"]["p50_ms"], 1.0),
            (Metric::P99, &row["latency"]["p99_ms"], 1.0),
        ] {
            add(figures, (load, system.name()), metric, value, factor);
        }
        let bare = &row["bare_log_per_second"];
        add(figures, (load, BARE_LOG), Metric::Rate, bare, 1.0);
    }
}

/// Notes restarts and memory.
fn add_waiting(system: System, document: &Value, figures: &mut Figures) {
    let system = system.name();
    for row in rows(document, "restart") {
        let is_one_million = row["jobs"] == 1_000_000;
        let load = if is_one_million {
            RESTART_1M
        } else {
            RESTART_10M
        };
        add(
            figures,
            (load, system),
            Metric::Seconds,
            &row["seconds"],
            1.0,
        );
    }
    let memory = &document["memory"];
    for (load, value) in [
        (MEMORY_IDLE, &memory["idle_bytes"]),
        (MEMORY_JOB, &memory["bytes_per_waiting_job"]),
    ] {
        add(figures, (load, system), Metric::Memory, value, 1.0);
    }
}

fn rows<'a>(document: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    document[name].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_ganger_bench_becomes_figures() {
        let document = json!({
            "loads": [{
                "load": "L",
                "per_second": 1_000.0,
                "server_cpu_seconds_per_million": 140.0,
                "flushes_per_thousand": 500.0,
                "bytes_written_per_job": null,
                "latency": { "p50_ms": 0.7, "p99_ms": 2.0 },
            }],
            "lives": [{ "per_second": 30.0, "bare_log_per_second": 60.0 }],
            "restart": [
                { "jobs": 1_000_000, "seconds": 2.5 },
                { "jobs": 10_000_000, "seconds": 25.0 },
            ],
            "memory": { "idle_bytes": 5.0, "bytes_per_waiting_job": 120.0 },
        });
        let mut figures = Figures::default();
        add_rates(System::Streams, &document, &mut figures);
        add_waiting(System::Streams, &document, &mut figures);
        let median = |load, metric| figures.median(load, "streams", metric);
        assert_eq!(median("L", Metric::Flushes), Some(0.5));
        assert_eq!(median("L", Metric::Bytes), None);
        assert_eq!(median("L", Metric::P99), Some(2.0));
        assert_eq!(figures.median(LIVES, BARE_LOG, Metric::Rate), Some(60.0));
        assert_eq!(median(RESTART_10M, Metric::Seconds), Some(25.0));
        assert_eq!(median(MEMORY_JOB, Metric::Memory), Some(120.0));
    }
}
