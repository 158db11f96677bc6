//! Series, names and failure groups: from messages to the documents of HTTP and the SDK.

use ganger_document::view::names::{LabelCount, Labels, Names};
use ganger_document::view::series::{
    DurationBin, Durations, KindTotals, Kinds, Latency, Series, SeriesLine,
};
use ganger_document::view::statistics::{FailureGroup, FailuresOf};

use super::{calendar, non_empty};
use crate::v1;

impl From<v1::SeriesReply> for Series {
    fn from(wire: v1::SeriesReply) -> Self {
        let series = wire.series.into_iter().map(|line| SeriesLine {
            queue: line.queue,
            other: line.other,
            metric: line.metric,
            // A negative value says that nothing was counted.
            values: line
                .values
                .into_iter()
                .map(|value| u64::try_from(value).ok())
                .collect(),
        });
        Self {
            from: calendar(wire.from_us),
            step_seconds: wire.step_seconds,
            series: series.collect(),
            truncated: wire.truncated,
        }
    }
}

/// The document of a distribution; `with_bins`: whether it has bins, if there are durations.
fn durations(wire: v1::Durations, with_bins: bool) -> Durations {
    let quantiles = wire.quantiles.into_iter();
    let bins = wire.bins.into_iter().map(|bin| DurationBin {
        from_seconds: bin.from_seconds,
        count: bin.count,
    });
    Durations {
        count: wire.count,
        quantiles: quantiles
            .map(|quantile| (quantile.share.to_string(), quantile.seconds))
            .collect(),
        bins: with_bins.then(|| bins.collect()),
    }
}

impl From<v1::LatencyReply> for Latency {
    fn from(wire: v1::LatencyReply) -> Self {
        Self {
            waiting: durations(wire.waiting.unwrap_or_default(), true),
            running: durations(wire.running.unwrap_or_default(), true),
        }
    }
}

impl From<v1::KindsReply> for Kinds {
    fn from(wire: v1::KindsReply) -> Self {
        let kinds = wire.kinds.into_iter().map(|totals| KindTotals {
            kind: totals.kind,
            started: totals.started,
            succeeded: totals.succeeded,
            failed: totals.failed,
            waiting: durations(totals.waiting.unwrap_or_default(), false),
            running_time: durations(totals.running_time.unwrap_or_default(), false),
        });
        Self {
            kinds: kinds.collect(),
            next: non_empty(wire.next),
        }
    }
}

impl From<v1::NamesReply> for Names {
    fn from(wire: v1::NamesReply) -> Self {
        Self {
            names: wire.names,
            complete: wire.complete,
        }
    }
}

impl From<v1::LabelsReply> for Labels {
    fn from(wire: v1::LabelsReply) -> Self {
        let labels = wire.labels.into_iter().map(|label| LabelCount {
            name: label.name,
            live: label.live,
            kept: label.kept,
            exact: label.exact,
        });
        Self {
            labels: labels.collect(),
            next: non_empty(wire.next),
        }
    }
}

impl From<v1::FailureGroup> for FailureGroup {
    fn from(wire: v1::FailureGroup) -> Self {
        let failures = |all: Vec<v1::FailuresOf>| {
            let all = all.into_iter().map(|of| FailuresOf {
                name: of.name,
                count: of.count,
            });
            all.collect()
        };
        let mut last_hour = [0; 6];
        for (place, failures) in last_hour.iter_mut().zip(wire.last_hour) {
            *place = failures;
        }
        Self {
            group: wire.group,
            jobs: wire.jobs,
            first_at: wire.first_at_us.map(calendar),
            last_at: wire.last_at_us.map(calendar),
            message: wire.message,
            by_queue: failures(wire.by_queue),
            by_kind: failures(wire.by_kind),
            last_hour,
            shard: non_empty(wire.shard),
        }
    }
}
