//! Series, names and failure groups of the shard as messages.

use ganger_document::view::event_sums::EventSum;
use ganger_proto::v1;
use ganger_shard::series::{KindTotals, KindsPage, Latency, Line, SeriesReply, Sketch};
use ganger_shard::{GroupView, ValueCount};
use ganger_types::{JobState, Kind, Queue, Timestamp};

/// Number of queues, and of kinds, of a failure group that an answer names.
const NAMES_SHOWN: usize = 5;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn series(reply: SeriesReply) -> v1::SeriesReply {
    let line = |line: Line| v1::SeriesLine {
        queue: line.queue.map(|queue| queue.to_text().into_owned()),
        other: line.is_other,
        metric: line.metric.as_str().to_owned(),
        values: line.values.into_iter().map(known_value).collect(),
    };
    v1::SeriesReply {
        from_us: reply.from.0,
        step_seconds: reply.step.seconds(),
        series: reply.lines.into_iter().map(line).collect(),
        truncated: reply.is_truncated,
    }
}

/// The value of a step; -1 where nothing was counted.
fn known_value(value: Option<u64>) -> i64 {
    value.map_or(-1, |value| i64::try_from(value).unwrap_or(i64::MAX))
}

fn durations(sketch: &Sketch, quantiles: &[f64]) -> v1::Durations {
    let quantiles = quantiles.iter().map(|share| v1::Quantile {
        share: *share,
        seconds: sketch.quantile(*share),
    });
    v1::Durations {
        count: sketch.count(),
        quantiles: quantiles.collect(),
        bins: Vec::new(),
    }
}

pub(crate) fn latency(latency: &Latency, quantiles: &[f64]) -> v1::LatencyReply {
    let with_bins = |sketch: &Sketch| {
        let bins = sketch.bins().map(|(from_seconds, count)| v1::DurationBin {
            from_seconds,
            count,
        });
        v1::Durations {
            bins: bins.collect(),
            ..durations(sketch, quantiles)
        }
    };
    v1::LatencyReply {
        waiting: Some(with_bins(&latency.waiting)),
        running: Some(with_bins(&latency.running)),
    }
}

pub(crate) fn kinds(page: KindsPage, quantiles: &[f64]) -> v1::KindsReply {
    let totals = |(kind, totals): (Option<Kind>, KindTotals)| v1::KindTotals {
        kind: kind.map(|kind| kind.to_text().into_owned()),
        started: totals.started,
        succeeded: totals.succeeded,
        failed: totals.failed,
        waiting: Some(durations(&totals.latency.waiting, quantiles)),
        running_time: Some(durations(&totals.latency.running, quantiles)),
    };
    let next = page.next.map(|kind| kind.to_text().into_owned());
    v1::KindsReply {
        kinds: page.kinds.into_iter().map(totals).collect(),
        next: next.unwrap_or_default(),
    }
}

pub(crate) fn label(found: &ValueCount) -> v1::LabelCount {
    v1::LabelCount {
        name: text(&found.value),
        live: found.live,
        kept: found.jobs.saturating_sub(found.live),
        exact: !found.has_more,
    }
}

pub(crate) fn event_sum(sum: EventSum) -> v1::EventSum {
    let state = |state: Option<JobState>| state.map_or(0, |state| v1::JobState::from(state).into());
    v1::EventSum {
        event: sum.event.to_owned(),
        queue: sum.queue,
        from: state(sum.from),
        to: state(sum.to),
        count: sum.count,
    }
}

pub(crate) fn failure_group(view: GroupView, now: Timestamp) -> v1::FailureGroup {
    let facts = view.facts.unwrap_or_default();
    let is_known = facts.last_at > Timestamp::default();
    let of = |name: &[u8], count: u64| v1::FailuresOf {
        name: text(name),
        count,
    };
    let by_queue = facts.queues_with_most(NAMES_SHOWN).into_iter();
    let by_kind = facts.kinds_with_most(NAMES_SHOWN).into_iter();
    v1::FailureGroup {
        group: view.group.to_text().into_owned(),
        jobs: view.jobs,
        shard: String::new(),
        first_at_us: is_known.then_some(facts.first_at.0),
        last_at_us: is_known.then_some(facts.last_at.0),
        by_queue: by_queue
            .map(|(queue, count)| of(Queue::as_bytes(queue), count))
            .collect(),
        by_kind: by_kind
            .map(|(kind, count)| of(Kind::as_bytes(kind), count))
            .collect(),
        last_hour: facts.last_hour(now).to_vec(),
        message: is_known.then_some(facts.message),
    }
}
