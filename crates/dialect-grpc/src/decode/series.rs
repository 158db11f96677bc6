//! Requests for series, names and labels.

use std::time::Duration;

use ganger_proto::v1;
use ganger_shard::NamesOf;
use ganger_shard::series::{Metric, SeriesQuery, Step};
use ganger_types::{Kind, LabelKey, LabelValue, Queue, Timestamp, limits};

use super::{At, at_most, bounded, maybe, queue, unless_empty};
use crate::problem::Problem;

/// Time that a request is about if it names none.
const LAST: Duration = Duration::from_secs(3_600);
/// Maximum number of quantiles of one request.
const QUANTILES_MAX: usize = 20;
/// Quantiles of a request that names none.
const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];
/// Default and maximum numbers of kinds, names and labels of an answer.
const KINDS_DEFAULT: u32 = 100;
const KINDS_MAX: u32 = 1_000;
const NAMES_DEFAULT: u32 = 20;
const LABELS_MAX: u32 = 100;

/// A request for a latency.
pub(crate) struct LatencyAsked {
    pub(crate) queue: Option<Queue>,
    pub(crate) kind: Option<Kind>,
    pub(crate) between: (Timestamp, Timestamp),
    pub(crate) quantiles: Vec<f64>,
}

/// A request for kinds.
pub(crate) struct KindsAsked {
    pub(crate) queue: Option<Queue>,
    pub(crate) between: (Timestamp, Timestamp),
    pub(crate) after: Option<Kind>,
    pub(crate) limit: usize,
    pub(crate) quantiles: Vec<f64>,
}

/// A request for labels.
pub(crate) struct LabelsAsked {
    pub(crate) key: Option<LabelKey>,
    pub(crate) prefix: Vec<u8>,
    pub(crate) after: Option<LabelValue>,
    pub(crate) limit: usize,
}

fn queue_if_any(text: Option<&str>) -> Result<Option<Queue>, Problem> {
    text.map(|text| queue(At::top("queue"), text)).transpose()
}

fn kind_if_any(text: Option<&str>) -> Result<Option<Kind>, Problem> {
    maybe(At::top("kind"), text, Kind::new)
}

/// The time between two moments; the last hour if none is given.
fn between(
    from_us: Option<u64>,
    to_us: Option<u64>,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Problem> {
    let last = u64::try_from(LAST.as_micros()).unwrap_or(u64::MAX);
    let from = from_us.map_or(Timestamp(now.0.saturating_sub(last)), Timestamp);
    let to = to_us.map_or(now, Timestamp);
    if from > to {
        let reason = "is after `to_us`: give the earlier time first";
        return Err(Problem::invalid(At::top("from_us"), reason));
    }
    Ok((from, to))
}

pub(crate) fn series(wire: &v1::SeriesRequest, now: Timestamp) -> Result<SeriesQuery, Problem> {
    let namespace = super::namespace(&wire.namespace)?;
    let (from, to) = between(wire.from_us, wire.to_us, now)?;
    let kind = kind_if_any(wire.kind.as_deref())?;
    let step = match wire.step_seconds {
        0 => None,
        seconds => {
            let mut all = Step::ALL.into_iter();
            let step = all.find(|step| step.seconds() == seconds);
            let reason = "must be 10, 60 or 3600 seconds; 0 for the shortest that fits";
            Some(step.ok_or_else(|| Problem::invalid(At::top("step_seconds"), reason))?)
        }
    };
    let step = Step::choose(step, to.since(from), kind.is_some());
    let metrics = Metric::read_all(wire.metrics.iter().map(String::as_str), kind.is_some());
    Ok(SeriesQuery {
        namespace,
        queue: queue_if_any(wire.queue.as_deref())?,
        kind,
        from,
        to,
        step: step.map_err(|reason| Problem::invalid(At::top("step_seconds"), reason))?,
        metrics: metrics.map_err(|reason| Problem::invalid(At::top("metrics"), reason))?,
        is_total: wire.total,
    })
}

pub(crate) fn latency(wire: &v1::LatencyRequest, now: Timestamp) -> Result<LatencyAsked, Problem> {
    at_most(At::top("quantiles"), wire.quantiles.len(), QUANTILES_MAX)?;
    for (place, share) in wire.quantiles.iter().enumerate() {
        if !(0.0..=1.0).contains(share) {
            let at = At::top("quantiles").entry(place);
            return Err(Problem::invalid(at, "must be a number from 0 to 1"));
        }
    }
    let quantiles = match wire.quantiles.as_slice() {
        [] => QUANTILES.to_vec(),
        given => given.to_vec(),
    };
    Ok(LatencyAsked {
        queue: queue_if_any(wire.queue.as_deref())?,
        kind: kind_if_any(wire.kind.as_deref())?,
        between: between(wire.from_us, wire.to_us, now)?,
        quantiles,
    })
}

pub(crate) fn kinds(wire: &v1::KindsRequest, now: Timestamp) -> Result<KindsAsked, Problem> {
    let limit = bounded(At::top("limit"), wire.limit, KINDS_DEFAULT, KINDS_MAX)?;
    Ok(KindsAsked {
        queue: queue_if_any(wire.queue.as_deref())?,
        between: between(wire.from_us, wire.to_us, now)?,
        after: unless_empty(At::top("after"), &wire.after, Kind::new)?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        quantiles: QUANTILES.to_vec(),
    })
}

/// What the names of a request stand for, what they begin with, and how many are wanted.
pub(crate) fn names(wire: &v1::NamesRequest) -> Result<(NamesOf, &[u8], usize), Problem> {
    let of = match wire.of() {
        v1::NamesOf::Queue => NamesOf::Queue,
        v1::NamesOf::Kind => NamesOf::Kind,
        v1::NamesOf::Tag => NamesOf::Tag,
        v1::NamesOf::Worker => NamesOf::Worker,
        v1::NamesOf::Schedule => NamesOf::Schedule,
        v1::NamesOf::Graph => NamesOf::Graph,
        v1::NamesOf::Group => NamesOf::Group,
        v1::NamesOf::Unspecified => {
            let words = "give what the names stand for, such as QUEUE";
            return Err(Problem::missing(At::top("of"), words));
        }
    };
    let most = u32::try_from(limits::PAGE_NAMES_MAX - 1).expect("a page is small");
    let limit = bounded(At::top("limit"), wire.limit, NAMES_DEFAULT, most)?;
    let limit = usize::try_from(limit).unwrap_or(limits::PAGE_NAMES_MAX - 1);
    Ok((of, prefix(&wire.prefix)?, limit))
}

pub(crate) fn label_values(wire: &v1::LabelsRequest) -> Result<LabelsAsked, Problem> {
    let limit = bounded(At::top("limit"), wire.limit, NAMES_DEFAULT, LABELS_MAX)?;
    Ok(LabelsAsked {
        key: maybe(At::top("key"), wire.key.as_deref(), LabelKey::new)?,
        prefix: prefix(&wire.prefix)?.to_vec(),
        after: unless_empty(At::top("after"), &wire.after, LabelValue::new)?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    })
}

fn prefix(text: &str) -> Result<&[u8], Problem> {
    at_most(At::top("prefix"), text.len(), limits::NAME_BYTES_MAX)?;
    Ok(text.as_bytes())
}
