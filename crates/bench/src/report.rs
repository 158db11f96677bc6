//! The report of a run, as Markdown tables and as JSON.

use serde_json::{Value, json};

use crate::flow::DEEP;
use crate::latency::Latency;
use crate::target::Target;
use crate::{Api, Measured, Plan};

/// A measurement of full lives.
pub(crate) struct LifeRow {
    pub(crate) api: Api,
    pub(crate) connections: usize,
    pub(crate) batch: usize,
    pub(crate) measured: Measured,
    /// Lives per second of the bare log with the same batch.
    pub(crate) bare: f64,
}

/// A measurement of another load over one API.
pub(crate) struct Row {
    pub(crate) load: &'static str,
    pub(crate) api: Api,
    pub(crate) measured: Measured,
}

/// The time from enqueue to start at one rate.
pub(crate) struct LatencyRow {
    pub(crate) api: Api,
    pub(crate) rate: u32,
    pub(crate) latency: Latency,
}

/// A measurement of several shards.
pub(crate) struct ShardsRow {
    pub(crate) what: String,
    /// The unit of the rate, such as `jobs`.
    pub(crate) unit: &'static str,
    pub(crate) count: f64,
    pub(crate) seconds: f64,
    /// CPU seconds of all servers together.
    pub(crate) cpu: f64,
}

impl ShardsRow {
    /// Returns the rate per second; `None` if the time, a difference of two, is not positive.
    fn rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.count / self.seconds)
    }
}

/// The results of a run of `ganger bench`.
pub struct Report {
    payload: usize,
    seconds: f64,
    server: String,
    apis: Vec<Api>,
    pub(crate) lives: Vec<LifeRow>,
    pub(crate) rows: Vec<Row>,
    pub(crate) latency: Vec<LatencyRow>,
    pub(crate) shards: Vec<ShardsRow>,
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
            latency: Vec::new(),
            shards: Vec::new(),
        }
    }

    pub(crate) fn heading(&self) -> String {
        format!(
            "server {}, payload {} bytes, {} s each, flushed before acknowledged",
            self.server, self.payload, self.seconds
        )
    }

    /// Returns Markdown tables, one for each kind of load that was measured.
    pub fn text(&self) -> String {
        let tables = [
            self.lives_table(),
            self.loads_table(),
            self.latency_table(),
            self.shards_table(),
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

    /// Returns the measurement of the empty queue that belongs to one of the deep queue.
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
                format!("{:.2}", row.latency.p50.as_secs_f64() * 1e3),
                format!("{:.2}", row.latency.p99.as_secs_f64() * 1e3),
                format!("{:.2}", row.latency.max.as_secs_f64() * 1e3),
                row.latency.samples.to_string(),
            ]
        });
        table("From enqueue to start, idle worker", columns, false, rows)
    }

    /// Returns the results as JSON, with rates per second and times in milliseconds.
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
        let latency = self.latency.iter().map(|row| {
            json!({
                "api": row.api.key(),
                "jobs_per_second": row.rate,
                "samples": row.latency.samples,
                "p50_ms": row.latency.p50.as_secs_f64() * 1e3,
                "p99_ms": row.latency.p99.as_secs_f64() * 1e3,
                "max_ms": row.latency.max.as_secs_f64() * 1e3,
            })
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
        json!({
            "payload_bytes": self.payload,
            "seconds_each": self.seconds,
            "lives": lives.collect::<Vec<_>>(),
            "loads": loads.collect::<Vec<_>>(),
            "latency": latency.collect::<Vec<_>>(),
            "shards": shards.collect::<Vec<_>>(),
        })
    }
}

/// Returns the description of a load in the table.
fn words(load: &str) -> &str {
    match load {
        "enqueue" => "enqueue, 8 connections",
        "take" => "take + complete 200,000 that wait, 8 connections",
        "mix" => "2 producers, 4 consumers",
        "mix_empty" => "the same, again, before the next row",
        "mix_deep" => {
            const { assert!(DEEP == 1_000_000) };
            "the same with 1,000,000 waiting"
        }
        other => other,
    }
}

fn measured(measured: Measured) -> Value {
    json!({
        "per_second": measured.per_second,
        "flushes_per_thousand": measured.used.commits.map(|each| each * 1e3),
        "server_cpu_seconds_per_million": measured.used.cpu.map(|each| each * 1e6),
    })
}

fn flushes(measured: Measured) -> String {
    scaled(measured.used.commits, 1e3)
}

fn cpu(measured: Measured) -> String {
    scaled(measured.used.cpu, 1e6)
}

/// Formats the resources for `jobs` jobs.
fn scaled(each: Option<f64>, jobs: f64) -> String {
    each.map_or("-".to_owned(), |each| format!("{:.1}", each * jobs))
}

/// Formats a rate as a whole number with separated thousands.
fn whole(rate: f64) -> String {
    let digits = format!("{rate:.0}");
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns a Markdown table with a heading, or nothing without rows. `columns` are separated by " | ". Numbers are
/// aligned right: in all columns, or in those after the second.
fn table(
    name: &str,
    columns: &str,
    all_numbers: bool,
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return String::new();
    }
    let mut out = format!("\n### {name}\n\n| {columns} |\n|");
    for place in 0..columns.split(" | ").count() {
        out.push_str(if all_numbers || place > 1 {
            "---:|"
        } else {
            "---|"
        });
    }
    out.push('\n');
    for row in rows {
        out.extend(["| ", &row.join(" | "), " |\n"]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        let shown = [0.4, 999.0, 1_000.0, 1_234_567.8].map(whole);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,568"]);
    }

    #[test]
    fn a_table_has_a_cell_for_every_column() {
        let rows = [vec!["x".to_owned(), "y".to_owned(), "1".to_owned()]];
        let shown = table("T", "a | b | c", false, rows.into_iter());
        assert_eq!(
            shown,
            "\n### T\n\n| a | b | c |\n|---|---|---:|\n| x | y | 1 |\n"
        );
        assert_eq!(table("T", "a", false, std::iter::empty()), "");
    }
}
