//! The report of a run, as tables in Markdown and as JSON.

mod table;

use std::time::Duration;

use serde_json::{Value, json};

use super::kind::Api;
use super::plan::{NamedRow, Plan};
use super::target::Target;
use super::waiting::{Memory, Restart};
use crate::Measured;
use crate::measure::latency::Latency;
use table::{cpu, flushes, grouped, milliseconds, scaled, table, whole};

/// One measurement of full lives.
pub(crate) struct LifeRow {
    pub(crate) api: Api,
    pub(crate) connections: usize,
    pub(crate) batch: usize,
    pub(crate) measured: Measured,
    /// What the bare log made of the same batch.
    pub(crate) bare: f64,
}

/// Another load over one API.
pub(crate) struct Row {
    pub(crate) load: &'static str,
    pub(crate) api: Api,
    pub(crate) measured: Measured,
}

/// The time from enqueue to start at so many jobs a second.
pub(crate) struct LatencyRow {
    pub(crate) api: Api,
    pub(crate) rate: u32,
    pub(crate) latency: Latency,
}

/// Something done by several shards.
pub(crate) struct ShardsRow {
    pub(crate) what: String,
    /// The unit of the rate, such as `jobs`.
    pub(crate) unit: &'static str,
    pub(crate) count: f64,
    pub(crate) seconds: f64,
    /// Of all servers together.
    pub(crate) cpu: f64,
}

impl ShardsRow {
    /// A second; of a difference of two times there may be none.
    fn rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.count / self.seconds)
    }
}

/// What a run of `ganger bench` measured.
pub struct Report {
    payload: usize,
    seconds: f64,
    server: String,
    apis: Vec<Api>,
    pub(crate) lives: Vec<LifeRow>,
    pub(crate) rows: Vec<Row>,
    pub(crate) named: Vec<NamedRow>,
    pub(crate) latency: Vec<LatencyRow>,
    pub(crate) shards: Vec<ShardsRow>,
    pub(super) restarts: Vec<Restart>,
    pub(super) memory: Option<Memory>,
}

impl Report {
    pub(crate) fn new(plan: &Plan, target: &Target) -> Self {
        let kind = if target.own.is_some() {
            "started for this"
        } else {
            "running already"
        };
        Self {
            payload: plan.payload,
            seconds: plan.time.as_secs_f64(),
            server: format!("{} ({kind})", target.options.url),
            apis: plan.apis.clone(),
            lives: Vec::new(),
            rows: Vec::new(),
            named: Vec::new(),
            latency: Vec::new(),
            shards: Vec::new(),
            restarts: Vec::new(),
            memory: None,
        }
    }

    pub(crate) fn heading(&self) -> String {
        format!(
            "server {}, payload {} bytes, {} s each, flushed before acknowledged",
            self.server, self.payload, self.seconds
        )
    }

    /// Tables in Markdown, one for each kind of load that was measured.
    pub fn text(&self) -> String {
        let tables = [
            self.lives_table(),
            self.named_table(),
            self.loads_table(),
            self.latency_table(),
            self.shards_table(),
            self.restarts_table(),
            self.memory_table(),
        ];
        tables.concat().trim_end().to_owned()
    }

    fn shards_table(&self) -> String {
        let columns = "what | of | count | seconds | a second | servers' CPU s | CPU \u{b5}s each";
        let rows = self.shards.iter().map(|row| {
            vec![
                row.what.clone(),
                row.unit.to_owned(),
                whole(row.count),
                format!("{:.2}", row.seconds),
                row.rate().map_or("-".to_owned(), whole),
                format!("{:.2}", row.cpu),
                format!("{:.1}", row.cpu / row.count * 1e6),
            ]
        });
        table("Several shards", columns, false, rows)
    }

    fn restarts_table(&self) -> String {
        let columns = "live jobs | seconds until ready | MiB of memory then";
        let rows = self.restarts.iter().map(|row| {
            vec![
                grouped(row.jobs),
                format!("{:.2}", row.took.as_secs_f64()),
                format!("{:.1}", row.memory / MEBIBYTE),
            ]
        });
        table("Restart after kill -9", columns, true, rows)
    }

    fn memory_table(&self) -> String {
        let columns = "idle server, MiB | waiting jobs | bytes each";
        let rows = self.memory.iter().map(|memory| {
            vec![
                format!("{:.1}", memory.idle / MEBIBYTE),
                grouped(memory.jobs),
                format!("{:.0}", memory.each_job),
            ]
        });
        table("Memory", columns, true, rows)
    }

    fn lives_table(&self) -> String {
        let mut columns = "connections | batch | bare log, lives/s".to_owned();
        for what in ["lives/s", "/ log", "flushes per 1,000", "CPU s per million"] {
            for api in &self.apis {
                columns.extend([" | ", api.name(), " ", what]);
            }
        }
        let rows = self.lives.chunks(self.apis.len().max(1)).map(|apis| {
            let first = &apis[0];
            let mut cells = vec![
                first.connections.to_string(),
                first.batch.to_string(),
                whole(first.bare),
            ];
            cells.extend(apis.iter().map(|row| whole(row.measured.per_second)));
            cells.extend(
                apis.iter()
                    .map(|row| format!("{:.2}", row.measured.per_second / row.bare)),
            );
            cells.extend(apis.iter().map(|row| flushes(row.measured)));
            cells.extend(apis.iter().map(|row| cpu(row.measured)));
            cells
        });
        table("Full lives beside a bare log", &columns, true, rows)
    }

    fn named_table(&self) -> String {
        let columns = "load | API | jobs/s | CPU \u{b5}s a job | flushes per 1,000 | bytes written a job | p50 ms | p99 ms";
        let rows = self.named.iter().map(|(api, outcome)| {
            let used = outcome.measured.used;
            let time = |time: fn(&Latency) -> Duration| {
                let time = outcome.latency.as_ref().map(time);
                time.map_or("-".to_owned(), milliseconds)
            };
            vec![
                outcome.load.to_owned(),
                api.name().to_owned(),
                whole(outcome.measured.per_second),
                scaled(used.cpu, 1e6),
                scaled(used.flushes, 1e3),
                used.bytes.map_or("-".to_owned(), whole),
                time(|latency| latency.p50),
                time(|latency| latency.p99),
            ]
        });
        table("Loads of the comparison", columns, false, rows)
    }

    fn loads_table(&self) -> String {
        let columns = "load | API | jobs/s | flushes per 1,000 | CPU s per million";
        let rows = self.rows.iter().map(|row| {
            let mut words = words(row.load).to_owned();
            if row.load == "mix_deep"
                && let Some(empty) = self.beside(row)
            {
                let share = row.measured.per_second / empty.measured.per_second;
                words = format!("{words} ({share:.2} of it)");
            }
            vec![
                words,
                row.api.name().to_owned(),
                whole(row.measured.per_second),
                flushes(row.measured),
                cpu(row.measured),
            ]
        });
        table("Other loads, batches of 100", columns, false, rows)
    }

    /// The measurement of the empty queue that belongs to one of the deep queue.
    fn beside(&self, deep: &Row) -> Option<&Row> {
        let is_it = |row: &&Row| row.load == "mix_empty" && row.api == deep.api;
        self.rows.iter().find(is_it)
    }

    fn latency_table(&self) -> String {
        let columns = "jobs/s | API | p50 ms | p99 ms | max ms | jobs";
        let rows = self.latency.iter().map(|row| {
            vec![
                row.rate.to_string(),
                row.api.name().to_owned(),
                milliseconds(row.latency.p50),
                milliseconds(row.latency.p99),
                milliseconds(row.latency.max),
                row.latency.samples.to_string(),
            ]
        });
        table("From enqueue to start, idle worker", columns, false, rows)
    }

    /// The same as JSON, with rates per second and times in milliseconds.
    pub fn json(&self) -> Value {
        let lives = self.lives.iter().map(|row| {
            let mut value = measured(row.measured);
            value["api"] = json!(row.api.key());
            value["connections"] = json!(row.connections);
            value["batch"] = json!(row.batch);
            value["bare_log_per_second"] = json!(row.bare);
            value["ratio"] = json!(row.measured.per_second / row.bare);
            value
        });
        let loads = self.rows.iter().map(|row| {
            let mut value = measured(row.measured);
            value["load"] = json!(row.load);
            value["api"] = json!(row.api.key());
            value
        });
        let named = self.named.iter().map(|(api, outcome)| {
            let mut value = measured(outcome.measured);
            value["load"] = json!(outcome.load);
            value["api"] = json!(api.key());
            if let Some(latency) = &outcome.latency {
                value["latency"] = latency_ms(latency);
            }
            value
        });
        let latency = self.latency.iter().map(|row| {
            let mut value = latency_ms(&row.latency);
            value["api"] = json!(row.api.key());
            value["jobs_per_second"] = json!(row.rate);
            value
        });
        let shards = self.shards.iter().map(|row| {
            json!({
                "what": row.what,
                "unit": row.unit,
                "count": row.count,
                "seconds": row.seconds,
                "servers_cpu_seconds": row.cpu,
            })
        });
        let restarts = self.restarts.iter().map(|row| {
            json!({
                "jobs": row.jobs,
                "seconds": row.took.as_secs_f64(),
                "memory_bytes": row.memory,
            })
        });
        let memory = self.memory.map(|memory| {
            json!({
                "jobs": memory.jobs,
                "idle_bytes": memory.idle,
                "bytes_per_waiting_job": memory.each_job,
            })
        });
        json!({
            "payload_bytes": self.payload,
            "seconds_each": self.seconds,
            "lives": lives.collect::<Vec<_>>(),
            "loads": loads.chain(named).collect::<Vec<_>>(),
            "latency": latency.collect::<Vec<_>>(),
            "shards": shards.collect::<Vec<_>>(),
            "restart": restarts.collect::<Vec<_>>(),
            "memory": memory,
        })
    }
}

const MEBIBYTE: f64 = 1_048_576.0;

/// What a load is called in the table.
fn words(load: &str) -> &str {
    match load {
        "enqueue" => "enqueue, 8 connections",
        "take" => "take + complete 200,000 that wait, 8 connections",
        "mix" => "2 producers, 4 consumers",
        "mix_empty" => "the same, again, before the next row",
        "mix_deep" => "the same above many waiting jobs",
        other => other,
    }
}

fn measured(measured: Measured) -> Value {
    json!({
        "per_second": measured.per_second,
        "flushes_per_thousand": measured.used.flushes.map(|each| each * 1e3),
        "bytes_written_per_job": measured.used.bytes,
        "server_cpu_seconds_per_million": measured.used.cpu.map(|each| each * 1e6),
    })
}

fn latency_ms(latency: &Latency) -> Value {
    json!({
        "samples": latency.samples,
        "p50_ms": latency.p50.as_secs_f64() * 1e3,
        "p99_ms": latency.p99.as_secs_f64() * 1e3,
        "max_ms": latency.max.as_secs_f64() * 1e3,
    })
}
