//! Reads series: values step by step, and sums over a time.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::{Kind, Namespace, Queue, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Counts, KindPoint, Metric, QueueSeries, SeriesTable, Sketch, Space, Step};
use crate::series::ring::Fold as _;

/// Lines of one answer.
const LINES_MAX: usize = 600;
/// Values of one answer.
const VALUES_MAX: usize = 100_000;

/// Which series are wanted.
#[derive(Clone, Debug)]
pub struct SeriesQuery {
    /// Namespace of the queues.
    pub namespace: Namespace,
    /// The queue; `None`: all queues of the namespace.
    pub queue: Option<Queue>,
    /// The kind; `None`: the counts of queues, whatever the kind.
    pub kind: Option<Kind>,
    /// Time whose step is the first one.
    pub from: Timestamp,
    /// Time whose step is the last one, which may not have ended yet.
    pub to: Timestamp,
    /// Length of the steps. Kinds have no steps of 10 s: minutes are returned instead.
    pub step: Step,
    /// The metrics. Of a kind only those of [`Metric::OF_KINDS`] are counted.
    pub metrics: Vec<Metric>,
    /// Whether all queues are added up, instead of a line for each.
    pub is_total: bool,
}

/// One metric of one queue, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The queue; `None`: all queues together, or all that have no series of their own.
    pub queue: Option<Queue>,
    /// Whether the line is of all queues that have no series of their own.
    pub is_other: bool,
    /// The metric of the values.
    pub metric: Metric,
    /// One value a step; `None`: unknown, because nothing was counted then.
    pub values: Vec<Option<u64>>,
}

/// Series of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesReply {
    /// Beginning of the first step.
    pub from: Timestamp,
    /// Length of the steps.
    pub step: Step,
    /// The lines: the most active queues first, in each the metrics in the order of the query.
    pub lines: Vec<Line>,
    /// Whether lines were left out, because an answer has a bounded size.
    pub is_truncated: bool,
}

/// How long jobs waited and attempts ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Times from ready to leased.
    pub waiting: Sketch,
    /// Times from leased to the end of the attempt.
    pub running: Sketch,
}

/// What happened to the jobs of a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KindTotals {
    /// Number of attempts that started.
    pub started: u64,
    /// Number of jobs that succeeded.
    pub succeeded: u64,
    /// Number of jobs that failed for good.
    pub failed: u64,
    /// How long they waited and ran.
    pub latency: Latency,
}

impl Latency {
    /// Adds the durations of another shard or kind.
    pub fn merge(&mut self, other: &Self) {
        self.waiting.merge(&other.waiting);
        self.running.merge(&other.running);
    }
}

impl KindTotals {
    /// Adds the totals of another shard.
    pub fn merge(&mut self, other: &Self) {
        self.started += other.started;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.latency.merge(&other.latency);
    }

    fn add(&mut self, point: &KindPoint) {
        self.started += u64::from(point.started);
        self.succeeded += u64::from(point.succeeded);
        self.failed += u64::from(point.failed);
        self.latency.waiting.merge(&point.waiting);
        self.latency.running.merge(&point.running);
    }
}

/// A page of kinds with what happened to each; see [`SeriesTable::kinds_page`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindsPage {
    /// Kinds in the order of their names; `None`, on the last page only: all that have no series of their own.
    pub kinds: Vec<(Option<Kind>, KindTotals)>,
    /// The last kind of the page, after which the next one begins; `None` on the last page.
    pub next: Option<Kind>,
}

/// A queue whose series are read: its name, `None` for all others of the namespace.
type Source<'a> = (Option<&'a Queue>, &'a QueueSeries);

impl Space {
    /// The queues of a query, most active first; the others last.
    fn sources(&self, queue: Option<&Queue>) -> Vec<Source<'_>> {
        if let Some(queue) = queue {
            let found = self.queues.get_key_value(queue).into_iter();
            return found.map(|(name, series)| (Some(name), series)).collect();
        }
        let mut all: Vec<_> = self.queues.iter().collect();
        all.sort_by(|left, right| {
            let order = right.1.activity().cmp(&left.1.activity());
            order.then_with(|| left.0.cmp(right.0))
        });
        let named = all.into_iter().map(|(name, series)| (Some(name), series));
        let others = (!self.other.hours.is_empty()).then_some((None, &self.other));
        named.chain(others).collect()
    }
}

impl QueueSeries {
    /// The counts of the queue, or of one of its kinds, in the steps from `from` to `to`.
    fn counts(&self, query: &SeriesQuery, from: u32, to: u32) -> BTreeMap<u32, Counts> {
        let Some(kind) = &query.kind else {
            let points = self.of(query.step).between(from, to);
            return points
                .map(|(number, point)| (number, point.clone()))
                .collect();
        };
        let Some(series) = self.kinds.get(kind) else {
            return BTreeMap::new();
        };
        let points = series.of(query.step).between(from, to);
        points
            .map(|(number, point)| {
                let mut counts = Counts::default();
                for (metric, value) in [
                    (Metric::Started, point.started),
                    (Metric::Succeeded, point.succeeded),
                    (Metric::Failed, point.failed),
                ] {
                    counts.0[metric.place()] = value;
                }
                (number, counts)
            })
            .collect()
    }

    /// All points of kinds in the steps from `from` to `to`; the kind is `None` for those without a series.
    pub(super) fn kind_points(
        &self,
        step: Step,
        from: u32,
        to: u32,
    ) -> impl Iterator<Item = (Option<&Kind>, &KindPoint)> {
        let named = self.kinds.iter().map(|(kind, series)| (Some(kind), series));
        let all = named.chain([(None, &self.other_kinds)]);
        all.flat_map(move |(kind, series)| {
            let points = series.of(step).between(from, to);
            points.map(move |(_, point)| (kind, point))
        })
    }
}

impl SeriesTable {
    /// Returns the series of a query as they are at `now`.
    pub fn read(&self, query: &SeriesQuery, now: Timestamp) -> SeriesReply {
        let query = SeriesQuery {
            step: match (query.step, &query.kind) {
                (Step::TenSeconds, Some(_)) => Step::Minute,
                (step, _) => step,
            },
            ..query.clone()
        };
        let step = query.step;
        let to = step.number(query.to);
        // Whatever the query asks for, no more steps are read than are kept.
        let from = step
            .number(query.from)
            .max(to.saturating_sub(step.kept() - 1));
        let known = self.known_steps(step, now);
        let mut reply = SeriesReply {
            from: step.start(from),
            step,
            lines: Vec::new(),
            is_truncated: false,
        };
        let space = self.spaces.get(&query.namespace);
        let sources = space.map_or_else(Vec::new, |space| space.sources(query.queue.as_ref()));
        let steps = usize::try_from(to.saturating_sub(from) + 1).unwrap_or(usize::MAX);
        let mut add = |queue: Option<Queue>, is_other, counts: &BTreeMap<u32, Counts>| {
            let lines = reply.lines.len() + query.metrics.len();
            if lines > LINES_MAX || lines.saturating_mul(steps) > VALUES_MAX {
                reply.is_truncated = true;
                return false;
            }
            for metric in &query.metrics {
                let value = |number: u32| {
                    let (first, last) = known?;
                    let is_known = (first..=last).contains(&number);
                    is_known.then(|| counts.get(&number).map_or(0, |point| point.get(*metric)))
                };
                reply.lines.push(Line {
                    queue: queue.clone(),
                    is_other,
                    metric: *metric,
                    values: (from..=to).map(value).collect(),
                });
            }
            true
        };
        if query.is_total {
            let mut total: BTreeMap<u32, Counts> = BTreeMap::new();
            for (_, series) in sources {
                for (number, counts) in series.counts(&query, from, to) {
                    total.entry(number).or_default().fold(&counts);
                }
            }
            add(None, false, &total);
            return reply;
        }
        for (name, series) in sources {
            let counts = series.counts(&query, from, to);
            if !add(name.cloned(), name.is_none(), &counts) {
                break;
            }
        }
        reply
    }

    /// Returns at most `limit` kinds of a namespace that begin with these bytes and have a series, in order.
    pub fn kind_names(&self, namespace: &Namespace, prefix: &[u8], limit: usize) -> Vec<Vec<u8>> {
        let queues = self
            .spaces
            .get(namespace)
            .map(|space| space.queues.values());
        let kinds = queues
            .into_iter()
            .flatten()
            .flat_map(|queue| queue.kinds.keys());
        let names = kinds.map(Kind::as_bytes);
        let names: BTreeSet<&[u8]> = names.filter(|name| name.starts_with(prefix)).collect();
        names.into_iter().take(limit).map(<[u8]>::to_vec).collect()
    }

    /// Returns how long jobs waited and ran between two times, of one queue or kind or of all.
    pub fn latency(
        &self,
        namespace: &Namespace,
        queue: Option<&Queue>,
        kind: Option<&Kind>,
        (from, to): (Timestamp, Timestamp),
        now: Timestamp,
    ) -> Latency {
        let all = self.kinds(namespace, queue, (from, to), now);
        let mut latency = Latency::default();
        for (name, totals) in all {
            if kind.is_none() || kind == name.as_ref() {
                latency.merge(&totals.latency);
            }
        }
        latency
    }

    /// Returns a page of at most `limit` kinds behind the kind `after`, as of [`SeriesTable::kinds`].
    pub fn kinds_page(
        &self,
        namespace: &Namespace,
        queue: Option<&Queue>,
        between: (Timestamp, Timestamp),
        now: Timestamp,
        (after, limit): (Option<&Kind>, usize),
    ) -> KindsPage {
        let mut found = self.kinds(namespace, queue, between, now);
        let others = found.remove(&None).map(|totals| (None, totals));
        let mut kinds: Vec<_> = found.into_iter().collect();
        kinds.retain(|(kind, _)| after.is_none() || kind.as_ref() > after);
        let has_more = kinds.len() > limit;
        kinds.truncate(limit);
        let last = kinds.last().filter(|_| has_more);
        let next = last.and_then(|(kind, _)| kind.clone());
        kinds.extend(others.filter(|_| !has_more));
        KindsPage { kinds, next }
    }

    /// Returns what happened to each kind between two times, in one queue or in all, in the order of their names.
    /// `None` are all kinds without a series of their own. Times more than a day ago are rounded to whole hours.
    pub fn kinds(
        &self,
        namespace: &Namespace,
        queue: Option<&Queue>,
        (from, to): (Timestamp, Timestamp),
        now: Timestamp,
    ) -> BTreeMap<Option<Kind>, KindTotals> {
        let oldest_minute = Step::Minute
            .number(now)
            .saturating_sub(Step::Minute.kept() - 1);
        let step = if Step::Minute.number(from) >= oldest_minute {
            Step::Minute
        } else {
            Step::Hour
        };
        let mut totals: BTreeMap<Option<Kind>, KindTotals> = BTreeMap::new();
        let space = self.spaces.get(namespace);
        let sources = space.map_or_else(Vec::new, |space| space.sources(queue));
        for (_, series) in sources {
            let points = series.kind_points(step, step.number(from), step.number(to));
            for (kind, point) in points {
                totals.entry(kind.cloned()).or_default().add(point);
            }
        }
        totals
    }
}
