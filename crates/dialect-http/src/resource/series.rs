//! Series for charts: values step by step, times of waiting and running, and totals by kind.

use axum::response::Response;
use ganger_document::names::text;
use ganger_document::time::{calendar, read_moment, read_span};
use ganger_document::view::series::{
    DurationBin, Durations, KindTotals, Kinds, Latency, Series, SeriesLine,
};
use ganger_shard::series::{self as shard, Metric, SeriesQuery, Sketch, Step};
use ganger_types::{Kind, Timestamp};

use crate::arguments::refused;
use crate::filter;
use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;

/// Quantiles of one request.
const QUANTILES_MAX: usize = 20;
/// Quantiles of a request that names none.
const QUANTILES: &str = "0.5,0.95,0.99";
/// Words for the lengths of steps.
const STEPS: [(&str, Step); 3] = [
    ("10s", Step::TenSeconds),
    ("1m", Step::Minute),
    ("1h", Step::Hour),
];

/// Returns the values of metrics step by step.
pub(crate) async fn series(context: RequestContext) -> Result<Response, Problem> {
    let now = context.shard().wall_time();
    let (from, to) = times(&context, now)?;
    let kind: Option<Kind> = context.arguments.name("kind")?;
    let step = context.arguments.word("step", &STEPS)?;
    let step = Step::choose(step, to.since(from), kind.is_some());
    let step = step.map_err(|reason| refused("step", &reason))?;
    let metrics = context.arguments.text("metrics")?;
    let metrics = metrics.into_iter().flat_map(|given| given.split(','));
    let metrics = Metric::read_all(metrics, kind.is_some());
    let metrics = metrics.map_err(|reason| refused("metrics", &reason))?;
    let by = [("queue", false), ("total", true)];
    let query = SeriesQuery {
        namespace: context.namespace.clone(),
        queue: context.arguments.name("queue")?,
        metrics,
        kind,
        from,
        to,
        step,
        is_total: context.arguments.word("by", &by)?.unwrap_or(false),
    };
    let reply = context.shard().series(|table| table.read(&query, now))?;
    Ok(json::ok(&Series {
        from: calendar(reply.from),
        step_seconds: reply.step.seconds(),
        series: reply.lines.into_iter().map(line).collect(),
        truncated: reply.is_truncated,
    }))
}

/// Returns how long jobs waited and attempts ran.
pub(crate) async fn latency(context: RequestContext) -> Result<Response, Problem> {
    let now = context.shard().wall_time();
    let between = times(&context, now)?;
    let queue = context.arguments.name("queue")?;
    let kind = context.arguments.name("kind")?;
    let quantiles = quantiles(context.arguments.text("quantiles")?)?;
    let found = context.shard().series(|table| {
        let (queue, kind) = (queue.as_ref(), kind.as_ref());
        table.latency(&context.namespace, queue, kind, between, now)
    })?;
    Ok(json::ok(&Latency {
        waiting: with_bins(&found.waiting, &quantiles),
        running: with_bins(&found.running, &quantiles),
    }))
}

/// Returns what happened to each kind.
pub(crate) async fn kinds(context: RequestContext) -> Result<Response, Problem> {
    let now = context.shard().wall_time();
    let between = times(&context, now)?;
    let queue = context.arguments.name("queue")?;
    let after: Option<Kind> = context.arguments.name("after")?;
    let limit = filter::limit(&context.arguments)?;
    let quantiles = quantiles(None)?;
    let shard = context.shard();
    let page = shard.series(|table| {
        let place = (after.as_ref(), limit);
        table.kinds_page(&context.namespace, queue.as_ref(), between, now, place)
    })?;
    let view = |(kind, totals): (Option<Kind>, shard::KindTotals)| KindTotals {
        kind: kind.map(|kind| text(kind.as_bytes())),
        started: totals.started,
        succeeded: totals.succeeded,
        failed: totals.failed,
        waiting: durations(&totals.latency.waiting, &quantiles),
        running_time: durations(&totals.latency.running, &quantiles),
    };
    Ok(json::ok(&Kinds {
        kinds: page.kinds.into_iter().map(view).collect(),
        next: page.next.map(|kind| text(kind.as_bytes())),
    }))
}

fn line(line: shard::Line) -> SeriesLine {
    SeriesLine {
        queue: line.queue.map(|queue| text(queue.as_bytes())),
        other: line.is_other,
        metric: line.metric.as_str().to_owned(),
        values: line.values,
    }
}

fn durations(sketch: &Sketch, quantiles: &[(String, f64)]) -> Durations {
    let quantiles = quantiles.iter();
    Durations {
        count: sketch.count(),
        quantiles: quantiles
            .map(|(text, share)| (text.clone(), sketch.quantile(*share)))
            .collect(),
        bins: None,
    }
}

fn with_bins(sketch: &Sketch, quantiles: &[(String, f64)]) -> Durations {
    let bins = sketch.bins().map(|(from_seconds, count)| DurationBin {
        from_seconds,
        count,
    });
    Durations {
        bins: Some(bins.collect()),
        ..durations(sketch, quantiles)
    }
}

/// The times of a request: the last hour if it names none.
fn times(context: &RequestContext, now: Timestamp) -> Result<(Timestamp, Timestamp), Problem> {
    let read = |name, default: &str| {
        let text = context.arguments.text(name)?.unwrap_or(default);
        moment(text, now).map_err(|reason| refused(name, &reason))
    };
    let (from, to) = (read("from", "-1h")?, read("to", "-0s")?);
    if from > to {
        return Err(refused(
            "from",
            "is after `to`: give the earlier time first",
        ));
    }
    Ok((from, to))
}

/// Reads a time: RFC 3339, or how long ago, such as `-1h`.
fn moment(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let Some(ago) = text.strip_prefix('-') else {
        return read_moment(text)
            .map_err(|reason| format!("{reason}, or how long ago, such as -1h"));
    };
    let micros = u64::try_from(read_span(ago)?.as_micros()).unwrap_or(u64::MAX);
    Ok(Timestamp(now.0.saturating_sub(micros)))
}

/// The quantiles of a request: each as it was written, and its share.
fn quantiles(given: Option<&str>) -> Result<Vec<(String, f64)>, Problem> {
    let all: Vec<&str> = given.unwrap_or(QUANTILES).split(',').collect();
    if all.len() > QUANTILES_MAX {
        let reason = format!("has {} quantiles, the limit is {QUANTILES_MAX}", all.len());
        return Err(refused("quantiles", &reason));
    }
    let read = |text: &str| {
        let share = text
            .parse()
            .ok()
            .filter(|share| (0.0..=1.0).contains(share));
        let reason = || format!("must be numbers from 0 to 1 with commas between, not {text:?}");
        let share: f64 = share.ok_or_else(|| refused("quantiles", &reason()))?;
        Ok((text.to_owned(), share))
    };
    all.into_iter().map(read).collect()
}
