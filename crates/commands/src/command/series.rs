//! `ganger series`, `latency` and `kinds`: what was counted and measured, for charts and scripts.

use std::time::{Duration, SystemTime};

use clap::Args;
use ganger_client::{Durations, Kinds, Latency, Series, SeriesFilter, SeriesOptions};

use crate::context::{Context, remark};
use crate::document::span::{read_moment, read_span};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::table::Rows;
use crate::show::{escape, time};

/// Metrics that people see unless they name others.
const METRICS: [&str; 5] = ["enqueued", "started", "succeeded", "failed", "ready"];
/// Number of kinds fetched at once.
const PAGE: u32 = 1_000;

/// Which jobs and which time numbers are about.
#[derive(Args, Clone, Debug)]
pub(crate) struct OfTime {
    /// Only jobs of this queue.
    #[arg(short, long)]
    queue: Option<String>,

    /// Beginning of the time: RFC 3339, or -DURATION.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "-1h",
        allow_hyphen_values = true
    )]
    since: String,

    /// End of the time; now if absent.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,
}

/// Shows counters and gauges of queues and kinds, step by step.
#[derive(Args, Debug)]
pub(crate) struct SeriesArgs {
    #[command(flatten)]
    of: OfTime,

    /// Only jobs of this kind.
    #[arg(short, long)]
    kind: Option<String>,

    /// Length of a step: 10s (kept for 1 h), 1m (24 h) or 1h (31 days); the shortest that fits if absent.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    step: Option<Duration>,

    /// Metrics to show, separated by commas; without it all with --json, else the most used ones.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    metrics: Vec<String>,

    /// Add all queues up, instead of showing each.
    #[arg(long)]
    total: bool,
}

/// Shows how long jobs waited and attempts ran.
#[derive(Args, Debug)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    of: OfTime,

    /// Only jobs of this kind.
    #[arg(short, long)]
    kind: Option<String>,

    /// Quantiles from 0 to 1, separated by commas, at most 20.
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        default_value = "0.5,0.95,0.99"
    )]
    quantiles: Vec<f64>,
}

/// Shows what happened to the jobs of each kind.
#[derive(Args, Debug)]
pub(crate) struct KindsArgs {
    #[command(flatten)]
    of: OfTime,
}

impl OfTime {
    fn filter(self, kind: Option<String>) -> Result<SeriesFilter, Failure> {
        let now = SystemTime::now();
        let moment = |option: &str, text: &str| {
            let read = read_moment(text, now);
            read.map_err(|reason| Failure::usage(format!("{option}: {reason}")))
        };
        let until = self.until.map(|text| moment("--until", &text));
        Ok(SeriesFilter {
            queue: self.queue,
            kind,
            from: Some(moment("--since", &self.since)?),
            to: until.transpose()?,
        })
    }
}

/// Runs `ganger series`: counters and gauges of queues and kinds, step by step.
pub(crate) async fn series(context: &Context, args: SeriesArgs) -> Outcome {
    let mut metrics = args.metrics;
    if metrics.is_empty() && !context.is_json() {
        let known = METRICS.iter();
        let offered = known.filter(|name| args.kind.is_none() || !is_of_queues(name));
        metrics.extend(offered.map(|name| (*name).to_owned()));
    }
    let step = args.step.map_or(0, |step| step.as_secs());
    let options = SeriesOptions {
        step_seconds: u32::try_from(step).unwrap_or(u32::MAX),
        metrics,
        is_total: args.total,
    };
    let client = context.client().await?;
    let series = client.series(args.of.filter(args.kind)?, options).await?;
    context.either(&series, table(&series))?;
    if series.truncated && !context.is_json() {
        remark("lines were left out: ask for fewer --metrics, a shorter time or one --queue");
    }
    Ok(Exit::Done)
}

/// Whether a metric is counted for queues only, not for kinds.
fn is_of_queues(metric: &str) -> bool {
    !["started", "succeeded", "failed"].contains(&metric)
}

/// A row for each step and queue, a column for each metric.
fn table(series: &Series) -> String {
    let mut metrics: Vec<&str> = Vec::new();
    for line in &series.series {
        if !metrics.contains(&line.metric.as_str()) {
            metrics.push(&line.metric);
        }
    }
    let right: Vec<String> = metrics.iter().map(|name| format!(">{name}")).collect();
    let mut columns = vec!["time", "queue"];
    columns.extend(right.iter().map(String::as_str));
    let mut rows = Rows::new(&columns);
    let step = Duration::from_secs(u64::from(series.step_seconds));
    for lines in series.series.chunks(metrics.len().max(1)) {
        let Some(first) = lines.first() else { continue };
        let queue = match (&first.queue, first.other) {
            (Some(queue), _) => escape::short(queue, 40),
            (None, true) => "(others)".to_owned(),
            (None, false) => "(all)".to_owned(),
        };
        let mut at = series.from;
        for place in 0..first.values.len() {
            let values = lines.iter().map(|line| line.values.get(place).copied());
            let values = values.map(|value| match value.flatten() {
                Some(value) => value.to_string(),
                None => "-".to_owned(),
            });
            let cells = [time::absolute(at), queue.clone()].into_iter();
            rows.push_all(cells.chain(values));
            at += step;
        }
    }
    rows.text()
}

/// Runs `ganger latency`: quantiles of waiting and running times.
pub(crate) async fn latency(context: &Context, args: LatencyArgs) -> Outcome {
    let filter = args.of.filter(args.kind)?;
    let client = context.client().await?;
    let latency = client.latency(filter, &args.quantiles).await?;
    context.either(&latency, latency_table(&latency, &args.quantiles))?;
    Ok(Exit::Done)
}

fn latency_table(latency: &Latency, quantiles: &[f64]) -> String {
    let names: Vec<String> = quantiles.iter().map(f64::to_string).collect();
    let right: Vec<String> = names.iter().map(|name| format!(">{name}")).collect();
    let mut columns = vec!["time", ">count"];
    columns.extend(right.iter().map(String::as_str));
    let mut rows = Rows::new(&columns);
    for (name, durations) in [("waiting", &latency.waiting), ("running", &latency.running)] {
        let cells = [name.to_owned(), durations.count.to_string()].into_iter();
        rows.push_all(cells.chain(names.iter().map(|name| quantile(durations, name))));
    }
    rows.text()
}

/// A quantile as a duration; `-` without durations.
fn quantile(durations: &Durations, name: &str) -> String {
    let seconds = durations.quantiles.get(name).copied().flatten();
    let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.map_or_else(
        || "-".to_owned(),
        |span| {
            let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
            time::span(Duration::from_millis(millis))
        },
    )
}

/// Runs `ganger kinds`: what happened to the jobs of each kind.
pub(crate) async fn kinds(context: &Context, args: KindsArgs) -> Outcome {
    let filter = args.of.filter(None)?;
    let client = context.client().await?;
    let mut after = String::new();
    let mut is_first = true;
    loop {
        let page = client.kinds(filter.clone(), &after, PAGE).await?;
        if context.is_json() {
            for kind in &page.kinds {
                context.json(kind)?;
            }
        } else if page.kinds.is_empty() && is_first {
            remark("no attempt started in this time");
        } else {
            context.line(kinds_table(&page))?;
        }
        is_first = false;
        match page.next {
            Some(next) => after = next,
            None => return Ok(Exit::Done),
        }
    }
}

fn kinds_table(page: &Kinds) -> String {
    let mut rows = Rows::new(&[
        "kind",
        ">started",
        ">succeeded",
        ">failed",
        ">wait p95",
        ">run p50",
        ">run p95",
        ">run p99",
    ]);
    for kind in &page.kinds {
        rows.push([
            kind.kind
                .as_ref()
                .map_or_else(|| "(others)".to_owned(), |name| escape::short(name, 40)),
            kind.started.to_string(),
            kind.succeeded.to_string(),
            kind.failed.to_string(),
            quantile(&kind.waiting, "0.95"),
            quantile(&kind.running_time, "0.5"),
            quantile(&kind.running_time, "0.95"),
            quantile(&kind.running_time, "0.99"),
        ]);
    }
    rows.text()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ganger_client::SeriesLine;

    use super::*;

    #[test]
    fn series_have_a_row_for_each_step_and_queue() {
        let line = |queue: Option<&str>, metric: &str, values: [Option<u64>; 2]| SeriesLine {
            queue: queue.map(str::to_owned),
            other: queue.is_none(),
            metric: metric.to_owned(),
            values: values.to_vec(),
        };
        let series = Series {
            from: SystemTime::UNIX_EPOCH,
            step_seconds: 60,
            series: vec![
                line(Some("mail"), "started", [None, Some(2)]),
                line(Some("mail"), "failed", [None, Some(0)]),
                line(None, "started", [Some(7), Some(8)]),
                line(None, "failed", [Some(1), Some(9)]),
            ],
            truncated: false,
        };
        let shown = table(&series);
        let rows: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split_whitespace().rev().take(3).collect())
            .collect();
        assert_eq!(
            rows,
            [
                ["FAILED", "STARTED", "QUEUE"],
                ["-", "-", "mail"],
                ["0", "2", "mail"],
                ["1", "7", "(others)"],
                ["9", "8", "(others)"],
            ]
        );
    }

    #[test]
    fn quantiles_are_durations_or_unknown() {
        let durations = Durations {
            count: 1,
            quantiles: BTreeMap::from([("0.5".to_owned(), Some(1.25)), ("0.99".to_owned(), None)]),
            bins: None,
        };
        assert_eq!(
            quantile(&durations, "0.5"),
            time::span(Duration::from_millis(1_250))
        );
        assert_eq!(quantile(&durations, "0.99"), "-");
    }
}
