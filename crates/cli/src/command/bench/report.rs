//! What a run found, as a table and as JSON.

use serde_json::{Value, json};

use crate::command::bench::BenchArgs;
use crate::command::bench::enqueue::Enqueued;
use crate::command::bench::latency::Latency;
use crate::command::bench::lives::Lives;
use crate::command::bench::target::Target;
use crate::show::table::Rows;

/// One measurement of full lives.
pub(super) struct LifeRow {
    pub(super) connections: usize,
    pub(super) batch: usize,
    pub(super) measured: Lives,
    /// What the bare log made of the same batch.
    pub(super) bare: f64,
    pub(super) cpu_seconds: Option<f64>,
}

impl LifeRow {
    fn ratio(&self) -> f64 {
        self.measured.per_second / self.bare
    }

    fn cpu_per_million(&self) -> Option<f64> {
        per_million(self.cpu_seconds?, self.measured.total)
    }
}

/// Everything found.
pub(super) struct Report {
    payload: usize,
    seconds: f64,
    server: String,
    pub(super) bare: Vec<(usize, f64)>,
    pub(super) lives: Vec<LifeRow>,
    pub(super) enqueue: Option<(Enqueued, Option<f64>)>,
    pub(super) latency: Option<Latency>,
}

fn per_million(seconds: f64, count: u64) -> Option<f64> {
    let count = u32::try_from(count).ok().filter(|count| *count > 0)?;
    Some(seconds * 1e6 / f64::from(count))
}

impl Report {
    pub(super) fn new(args: &BenchArgs, target: &Target) -> Self {
        let kind = if target.is_own() {
            "started for this"
        } else {
            "running already"
        };
        Self {
            payload: args.payload,
            seconds: args.time.as_secs_f64(),
            server: format!("{} ({kind})", target.address()),
            bare: Vec::new(),
            lives: Vec::new(),
            enqueue: None,
            latency: None,
        }
    }

    pub(super) fn heading(&self) -> String {
        format!(
            "server {}, payload {} bytes, {} s each, flushed before acknowledged",
            self.server, self.payload, self.seconds
        )
    }

    pub(super) fn text(&self) -> String {
        let mut rows = Rows::new(&[
            ">connections",
            ">batch",
            ">lives/s",
            ">bare log/s",
            ">ratio",
            ">server cpu s per million",
        ]);
        for row in &self.lives {
            rows.push([
                row.connections.to_string(),
                row.batch.to_string(),
                format!("{:.0}", row.measured.per_second),
                format!("{:.0}", row.bare),
                format!("{:.2}", row.ratio()),
                row.cpu_per_million()
                    .map_or("-".to_owned(), |cpu| format!("{cpu:.1}")),
            ]);
        }
        let mut out = vec![rows.text(), String::new()];
        if let Some((enqueued, cpu)) = &self.enqueue {
            let cpu = cpu.and_then(|cpu| per_million(cpu, enqueued.total));
            let cpu = cpu
                .map(|cpu| format!(", server cpu {cpu:.1} s per million"))
                .unwrap_or_default();
            out.push(format!(
                "enqueue in batches of 100, 16 connections: {:.0} jobs/s{cpu}",
                enqueued.per_second
            ));
        }
        if let Some(latency) = &self.latency {
            out.push(format!(
                "enqueue to start, idle worker: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms ({} jobs)",
                latency.p50.as_secs_f64() * 1e3,
                latency.p99.as_secs_f64() * 1e3,
                latency.max.as_secs_f64() * 1e3,
                latency.samples
            ));
        }
        out.join("\n")
    }

    pub(super) fn json(&self) -> Value {
        let lives: Vec<Value> = self
            .lives
            .iter()
            .map(|row| {
                json!({
                    "connections": row.connections,
                    "batch": row.batch,
                    "lives_per_second": row.measured.per_second,
                    "lives_total": row.measured.total,
                    "bare_log_per_second": row.bare,
                    "ratio": row.ratio(),
                    "server_cpu_seconds_per_million": row.cpu_per_million(),
                })
            })
            .collect();
        let bare: Vec<Value> = self
            .bare
            .iter()
            .map(|(batch, per_second)| json!({ "batch": batch, "lives_per_second": per_second }))
            .collect();
        let enqueue = self.enqueue.as_ref().map(|(enqueued, cpu)| {
            json!({
                "jobs_per_second": enqueued.per_second,
                "server_cpu_seconds_per_million": cpu.and_then(|cpu| per_million(cpu, enqueued.total)),
            })
        });
        let latency = self.latency.as_ref().map(|latency| {
            json!({
                "samples": latency.samples,
                "p50_ms": latency.p50.as_secs_f64() * 1e3,
                "p99_ms": latency.p99.as_secs_f64() * 1e3,
                "max_ms": latency.max.as_secs_f64() * 1e3,
            })
        });
        json!({
            "payload_bytes": self.payload,
            "seconds_each": self.seconds,
            "bare_log": bare,
            "lives": lives,
            "enqueue": enqueue,
            "latency": latency,
        })
    }
}
