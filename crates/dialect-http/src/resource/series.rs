//! Series for charts: values step by step, times of waiting and running, and totals by kind.

use std::collections::BTreeMap;

use axum::response::Response;
use ganger_document::names::text;
use ganger_document::time::{Moment, read_moment, read_span};
use ganger_shard::series::{KindTotals, Line, Metric, SeriesQuery, Sketch, Step};
use ganger_types::{Kind, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

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

/// Values of metrics, step by step.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Series)]
pub(crate) struct SeriesView {
    /// Beginning of the first step.
    from: Moment,
    /// Length of a step in seconds: 10, 60 or 3600.
    step_seconds: u32,
    /// One entry for each queue and metric, the most active queues first.
    series: Vec<LineView>,
    /// Whether entries were left out: ask for fewer metrics, a shorter time or one queue.
    truncated: bool,
}

/// One metric of one queue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SeriesLine)]
pub(crate) struct LineView {
    /// Name of the queue; null for several queues together.
    queue: Option<String>,
    /// Whether these are all queues that have no series of their own, because too many are more active.
    other: bool,
    /// Name of the metric.
    metric: &'static str,
    /// One value for each step, oldest first; null where nothing was counted.
    values: Vec<Option<u64>>,
}

/// How long jobs waited and attempts ran.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Latency)]
pub(crate) struct LatencyView {
    /// Times from ready to leased.
    waiting: SketchView,
    /// Times from leased to the end of the attempt.
    running: SketchView,
}

/// Distribution of durations, each known within 10 %.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Durations)]
pub(crate) struct SketchView {
    /// Number of durations in all bins.
    count: u64,
    /// Duration in seconds for each quantile; null without durations.
    quantiles: BTreeMap<String, Option<f64>>,
    /// Bins that are not empty, shortest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    bins: Option<Vec<BinView>>,
}

/// A bin of a distribution.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DurationBin)]
pub(crate) struct BinView {
    /// Beginning of the bin in seconds; 0 for all durations below a millisecond.
    from_seconds: f64,
    /// Number of durations in the bin.
    count: u32,
}

/// What happened to the jobs of each kind.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Kinds)]
pub(crate) struct KindsView {
    /// Kinds in the order of their names.
    kinds: Vec<KindView>,
    /// Name to give as `after` for the next page; null on the last.
    next: Option<String>,
}

/// What happened to the jobs of a kind.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KindTotals)]
pub(crate) struct KindView {
    /// Name of the kind; null for all that have no series of their own, at the end of the last page.
    kind: Option<String>,
    /// Number of attempts that started.
    started: u64,
    /// Number of jobs that succeeded.
    succeeded: u64,
    /// Number of jobs that failed.
    failed: u64,
    /// Times from ready to leased.
    waiting: SketchView,
    /// Times from leased to the end of the attempt.
    running_time: SketchView,
}

/// Returns the values of metrics step by step.
pub(crate) async fn series(context: RequestContext) -> Result<Response, Problem> {
    let now = context.shard().wall_time();
    let (from, to) = times(&context, now)?;
    let kind: Option<Kind> = context.arguments.name("kind")?;
    let step = step(&context, from, to, kind.is_some())?;
    let by = [("queue", false), ("total", true)];
    let query = SeriesQuery {
        namespace: context.namespace.clone(),
        queue: context.arguments.name("queue")?,
        metrics: metrics(context.arguments.text("metrics")?, kind.is_some())?,
        kind,
        from,
        to,
        step,
        is_total: context.arguments.word("by", &by)?.unwrap_or(false),
    };
    let reply = context.shard().series(|table| table.read(&query, now));
    Ok(json::ok(&SeriesView {
        from: Moment(reply.from),
        step_seconds: reply.step.seconds(),
        series: reply.lines.into_iter().map(LineView::from).collect(),
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
    });
    Ok(json::ok(&LatencyView {
        waiting: SketchView::new(&found.waiting, &quantiles).with_bins(&found.waiting),
        running: SketchView::new(&found.running, &quantiles).with_bins(&found.running),
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
    let mut found = context
        .shard()
        .series(|table| table.kinds(&context.namespace, queue.as_ref(), between, now));
    let others = found.remove(&None);
    let named = found
        .into_iter()
        .filter_map(|(kind, totals)| Some((kind?, totals)));
    let mut named: Vec<_> = named
        .filter(|(kind, _)| after.as_ref().is_none_or(|after| kind > after))
        .collect();
    let has_more = named.len() > limit;
    named.truncate(limit);
    let last = named.last().filter(|_| has_more);
    let next = last.map(|(kind, _)| text(kind.as_bytes()));
    let named = named.into_iter().map(|(kind, totals)| (Some(kind), totals));
    let others = others.filter(|_| !has_more).map(|totals| (None, totals));
    let view = |(kind, totals): (Option<Kind>, KindTotals)| KindView {
        kind: kind.map(|kind| text(kind.as_bytes())),
        started: totals.started,
        succeeded: totals.succeeded,
        failed: totals.failed,
        waiting: SketchView::new(&totals.latency.waiting, &quantiles),
        running_time: SketchView::new(&totals.latency.running, &quantiles),
    };
    Ok(json::ok(&KindsView {
        kinds: named.chain(others).map(view).collect(),
        next,
    }))
}

impl From<Line> for LineView {
    fn from(line: Line) -> Self {
        Self {
            queue: line.queue.map(|queue| text(queue.as_bytes())),
            other: line.is_other,
            metric: line.metric.as_str(),
            values: line.values,
        }
    }
}

impl SketchView {
    fn new(sketch: &Sketch, quantiles: &[(String, f64)]) -> Self {
        let quantiles = quantiles.iter();
        Self {
            count: sketch.count(),
            quantiles: quantiles
                .map(|(text, share)| (text.clone(), sketch.quantile(*share)))
                .collect(),
            bins: None,
        }
    }

    fn with_bins(self, sketch: &Sketch) -> Self {
        let bins = sketch.bins().map(|(from_seconds, count)| BinView {
            from_seconds,
            count,
        });
        Self {
            bins: Some(bins.collect()),
            ..self
        }
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

/// The length of the steps: the shortest that is kept for so long, if the request names none.
fn step(
    context: &RequestContext,
    from: Timestamp,
    to: Timestamp,
    is_of_kind: bool,
) -> Result<Step, Problem> {
    let kept = |step: Step| u64::from(step.seconds()) * u64::from(step.kept());
    let wanted = to.since(from).as_secs();
    let offered = |step: &Step| !(is_of_kind && *step == Step::TenSeconds);
    let Some(step) = context.arguments.word("step", &STEPS)? else {
        let mut all = Step::ALL.into_iter().filter(offered);
        return Ok(all.find(|step| wanted <= kept(*step)).unwrap_or(Step::Hour));
    };
    if !offered(&step) {
        return Err(refused(
            "step",
            "kinds have no steps of 10s: ask for 1m or 1h",
        ));
    }
    if wanted > kept(step) {
        let hours = kept(step) / 3_600;
        return Err(refused(
            "step",
            &format!(
                "steps of this length are kept for {hours} h: ask for longer ones, or a shorter time"
            ),
        ));
    }
    Ok(step)
}

/// The metrics of a request, with commas between; all if it names none.
fn metrics(given: Option<&str>, is_of_kind: bool) -> Result<Vec<Metric>, Problem> {
    let offered: &[Metric] = if is_of_kind {
        &Metric::OF_KINDS
    } else {
        &Metric::ALL
    };
    let Some(given) = given else {
        return Ok(offered.to_vec());
    };
    let mut metrics = Vec::new();
    for word in given.split(',') {
        let found = offered.iter().find(|metric| metric.as_str() == word);
        let metric = found.ok_or_else(|| {
            let words: Vec<_> = offered.iter().map(|metric| metric.as_str()).collect();
            let of = if is_of_kind { " of a kind" } else { "" };
            let known = words.join(", ");
            refused(
                "metrics",
                &format!("{word:?} is no metric{of}: there are {known}"),
            )
        })?;
        if !metrics.contains(metric) {
            metrics.push(*metric);
        }
    }
    Ok(metrics)
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
