//! Series: what happened in each queue and kind, step by step, for charts and rates.
//!
//! The shard feeds the table with the events of each durable turn, and every 10 s with the counts of its queues. It is
//! beside the engine: it has no part in any decision, and a restart begins it again. Its memory is bounded: the least
//! active queues and kinds are counted together as `other` (`series/bounds.rs`).

mod bounds;
mod rate;
mod read;
mod recent;
mod ring;
mod sketch;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use ganger_types::history::AttemptEnd;
use ganger_types::{
    Event, Happening, JobRecord, JobState, Kind, Namespace, Queue, QueueCounts, Timestamp, Worker,
};
use serde::{Deserialize, Serialize};

use self::ring::{Fold, Ring};
use crate::core::QueueGauge;
use crate::metrics::WaitTimes;

pub use self::rate::Rate;
pub use self::read::{KindTotals, KindsPage, Latency, Line, SeriesQuery, SeriesReply};
pub use self::recent::{Rates, Recent};
pub use self::ring::Step;
pub use self::sketch::Sketch;

/// What a series counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the words of the API, explained at `as_str`")]
pub enum Metric {
    Enqueued,
    Started,
    Succeeded,
    Failed,
    Retried,
    Lost,
    Cancelled,
    Ready,
    Running,
    Scheduled,
    Blocked,
    OldestReady,
}

/// Number of metrics, counters and gauges.
const METRICS: usize = Metric::ALL.len();

impl Metric {
    /// All metrics, in the order of the API.
    pub const ALL: [Self; 12] = [
        Self::Enqueued,
        Self::Started,
        Self::Succeeded,
        Self::Failed,
        Self::Retried,
        Self::Lost,
        Self::Cancelled,
        Self::Ready,
        Self::Running,
        Self::Scheduled,
        Self::Blocked,
        Self::OldestReady,
    ];

    /// Metrics that are also counted by kind.
    pub const OF_KINDS: [Self; 3] = [Self::Started, Self::Succeeded, Self::Failed];

    /// The name in the API. Counters: jobs enqueued or retried by a person, attempts started, jobs ended in each
    /// final state, attempts that will be tried again, leases expired. Gauges: jobs in each state at the end of the
    /// step, and for how many seconds the oldest ready job had waited.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enqueued => "enqueued",
            Self::Started => "started",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Retried => "retried",
            Self::Lost => "lost",
            Self::Cancelled => "cancelled",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Scheduled => "scheduled",
            Self::Blocked => "blocked",
            Self::OldestReady => "oldest_ready",
        }
    }

    /// Reads names of metrics; all that are counted if there are none. Of a kind fewer are counted.
    ///
    /// # Errors
    /// The reason, for people, if a name is not that of a metric.
    pub fn read_all<'a>(
        names: impl Iterator<Item = &'a str>,
        is_of_kind: bool,
    ) -> Result<Vec<Self>, String> {
        let offered: &[Self] = if is_of_kind {
            &Self::OF_KINDS
        } else {
            &Self::ALL
        };
        let mut metrics = Vec::new();
        for name in names {
            let found = offered.iter().find(|metric| metric.as_str() == name);
            let metric = found.ok_or_else(|| {
                let names: Vec<_> = offered.iter().map(|metric| metric.as_str()).collect();
                let of = if is_of_kind { " of a kind" } else { "" };
                format!("{name:?} is no metric{of}: there are {}", names.join(", "))
            })?;
            if !metrics.contains(metric) {
                metrics.push(*metric);
            }
        }
        if metrics.is_empty() {
            metrics.extend_from_slice(offered);
        }
        Ok(metrics)
    }

    fn place(self) -> usize {
        Self::ALL
            .iter()
            .position(|known| *known == self)
            .unwrap_or_default()
    }
}

/// The metrics of a queue in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts([u32; METRICS]);

impl Counts {
    fn add(&mut self, metric: Metric) {
        let value = &mut self.0[metric.place()];
        *value = value.saturating_add(1);
    }

    fn get(&self, metric: Metric) -> u64 {
        u64::from(self.0[metric.place()])
    }

    /// Replaces the gauges by a new sample.
    fn sample(&mut self, counts: &QueueCounts, oldest_seconds: f64) {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let oldest = Duration::try_from_secs_f64(oldest_seconds).unwrap_or_default();
        for (metric, value) in [
            (Metric::Ready, counts.ready),
            (Metric::Running, counts.running),
            (Metric::Scheduled, counts.scheduled),
            (Metric::Blocked, counts.blocked),
            (Metric::OldestReady, oldest.as_secs()),
        ] {
            self.0[metric.place()] = small(value);
        }
    }
}

impl Fold for Counts {
    fn fold(&mut self, other: &Self) {
        let oldest = Metric::OldestReady.place();
        for (place, (own, more)) in self.0.iter_mut().zip(other.0).enumerate() {
            *own = if place == oldest {
                (*own).max(more)
            } else {
                own.saturating_add(more)
            };
        }
    }
}

/// The metrics of a kind in one step.
#[derive(Clone, Debug, Default, PartialEq)]
struct KindPoint {
    started: u32,
    succeeded: u32,
    failed: u32,
    /// Times from ready to leased of attempts that started in the step.
    waiting: Sketch,
    /// Times from leased to the end of attempts that ended in the step.
    running: Sketch,
}

impl Fold for KindPoint {
    fn fold(&mut self, other: &Self) {
        self.started = self.started.saturating_add(other.started);
        self.succeeded = self.succeeded.saturating_add(other.succeeded);
        self.failed = self.failed.saturating_add(other.failed);
        self.waiting.merge(&other.waiting);
        self.running.merge(&other.running);
    }

    fn heap(&self) -> usize {
        self.waiting.heap() + self.running.heap()
    }
}

/// How attempts of a queue ended in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Number of attempts that ended, released ones excepted.
    pub ended: u32,
    /// Number of those that failed, timed out, or whose lease expired.
    pub failed: u32,
    /// Number of those whose lease expired.
    pub lost: u32,
}

impl Fold for Outcomes {
    fn fold(&mut self, other: &Self) {
        self.ended = self.ended.saturating_add(other.ended);
        self.failed = self.failed.saturating_add(other.failed);
        self.lost = self.lost.saturating_add(other.lost);
    }
}

/// The series of one kind in one queue.
#[derive(Debug)]
struct KindSeries {
    minutes: Ring<KindPoint>,
    hours: Ring<KindPoint>,
}

impl Default for KindSeries {
    fn default() -> Self {
        Self {
            minutes: Ring::new(Step::Minute),
            hours: Ring::new(Step::Hour),
        }
    }
}

impl KindSeries {
    /// Changes the points of the steps that contain `at`.
    fn change(&mut self, at: Timestamp, mut change: impl FnMut(&mut KindPoint)) {
        change(self.minutes.at(at));
        change(self.hours.at(at));
    }

    fn of(&self, step: Step) -> &Ring<KindPoint> {
        match step {
            Step::TenSeconds | Step::Minute => &self.minutes,
            Step::Hour => &self.hours,
        }
    }
}

/// The series of one queue, with those of its kinds.
#[derive(Debug)]
struct QueueSeries {
    steps: Ring<Counts>,
    minutes: Ring<Counts>,
    hours: Ring<Counts>,
    /// How attempts ended, in steps of 10 s.
    outcomes: Ring<Outcomes>,
    kinds: HashMap<Kind, KindSeries>,
    /// Kinds that have no series of their own.
    other_kinds: KindSeries,
}

impl Default for QueueSeries {
    fn default() -> Self {
        Self {
            steps: Ring::new(Step::TenSeconds),
            minutes: Ring::new(Step::Minute),
            hours: Ring::new(Step::Hour),
            outcomes: Ring::new(Step::TenSeconds),
            kinds: HashMap::new(),
            other_kinds: KindSeries::default(),
        }
    }
}

impl QueueSeries {
    /// Changes the points of the steps that contain `at`.
    fn change(&mut self, at: Timestamp, mut change: impl FnMut(&mut Counts)) {
        change(self.steps.at(at));
        change(self.minutes.at(at));
        change(self.hours.at(at));
    }

    fn of(&self, step: Step) -> &Ring<Counts> {
        match step {
            Step::TenSeconds => &self.steps,
            Step::Minute => &self.minutes,
            Step::Hour => &self.hours,
        }
    }
}

/// The series of one namespace.
#[derive(Debug, Default)]
struct Space {
    queues: HashMap<Queue, QueueSeries>,
    /// Queues that have no series of their own.
    other: QueueSeries,
}

/// The series of all queues and kinds of a shard.
#[derive(Debug)]
pub struct SeriesTable {
    spaces: HashMap<Namespace, Space>,
    /// When counting began: earlier steps are unknown. `None` before the first event and the first sample.
    began: Option<Timestamp>,
    /// Time of the last sample of the gauges.
    sampled: Timestamp,
    /// Bytes that the points may take.
    bytes_max: usize,
    /// Queues and kinds that got a series since memory was last checked.
    created: usize,
}

impl Default for SeriesTable {
    fn default() -> Self {
        Self::new(bounds::BYTES_MAX)
    }
}

/// An attempt that ended in a turn.
pub(crate) struct EndedAttempt<'a> {
    /// The job as the turn left it.
    pub(crate) record: &'a JobRecord,
    /// The worker that had the lease.
    pub(crate) worker: &'a Worker,
    /// Time at which the attempt ended.
    pub(crate) at: Timestamp,
    /// Time from the lease to the end.
    pub(crate) ran: Duration,
    /// How the attempt ended.
    pub(crate) end: &'a AttemptEnd,
}

impl EndedAttempt<'_> {
    /// Whether both count in the same points.
    fn is_alike(&self, other: &Self) -> bool {
        self.record.queue == other.record.queue
            && self.record.kind == other.record.kind
            && self.record.namespace == other.record.namespace
            && Step::TenSeconds.number(self.at) == Step::TenSeconds.number(other.at)
    }
}

/// What an event says about a job that moved.
struct Moved<'a> {
    namespace: &'a Namespace,
    queue: &'a Queue,
    kind: &'a Kind,
    at: Timestamp,
}

fn moved(event: &Event) -> Option<Moved<'_>> {
    match &event.happening {
        Happening::JobMoved { queue, kind, .. } => Some(Moved {
            namespace: &event.namespace,
            queue,
            kind,
            at: event.at,
        }),
        _ => None,
    }
}

/// Whether two events count in the same points.
fn is_alike(left: &Event, right: &Event) -> bool {
    match (moved(left), moved(right)) {
        (Some(left), Some(right)) => {
            left.queue == right.queue
                && left.kind == right.kind
                && left.namespace == right.namespace
                && Step::TenSeconds.number(left.at) == Step::TenSeconds.number(right.at)
        }
        _ => false,
    }
}

impl SeriesTable {
    fn new(bytes_max: usize) -> Self {
        Self {
            spaces: HashMap::new(),
            began: None,
            sampled: Timestamp(0),
            bytes_max,
            created: 0,
        }
    }

    /// Counts the events of a durable turn. `waits` has how long the jobs that it leased had waited.
    pub(crate) fn observe(&mut self, events: &[Event], waits: &WaitTimes) {
        // Events of one turn are mostly of one queue and kind: each run of them is looked up and counted once.
        for alike in events.chunk_by(is_alike) {
            if let Some(first) = moved(&alike[0]) {
                self.observe_alike(&first, alike, waits);
            }
        }
    }

    fn observe_alike(&mut self, of: &Moved<'_>, events: &[Event], waits: &WaitTimes) {
        self.began.get_or_insert(of.at);
        let (mut counts, mut kinds) = (Counts::default(), KindPoint::default());
        for event in events {
            let Happening::JobMoved { key, from, to, .. } = &event.happening else {
                continue;
            };
            if from.is_none() {
                counts.add(Metric::Enqueued);
            }
            match to {
                JobState::Running => {
                    counts.add(Metric::Started);
                    kinds.started += 1;
                    if let Some(wait) = waits.get(key) {
                        kinds.waiting.add(*wait);
                    }
                }
                JobState::Succeeded => {
                    counts.add(Metric::Succeeded);
                    kinds.succeeded += 1;
                }
                JobState::Failed => {
                    counts.add(Metric::Failed);
                    kinds.failed += 1;
                }
                JobState::Cancelled => counts.add(Metric::Cancelled),
                JobState::Blocked | JobState::Scheduled | JobState::Ready => {}
            }
        }
        if counts == Counts::default() {
            return;
        }
        let Some(queue) = self.queue(of.namespace, of.queue) else {
            return;
        };
        queue.change(of.at, |point| point.fold(&counts));
        if kinds != KindPoint::default() {
            self.kind(of.namespace, of.queue, of.kind, |kind| {
                kind.change(of.at, |point| point.fold(&kinds));
            });
        }
    }

    /// Counts the attempts that ended in a durable turn.
    pub(crate) fn observe_attempts(&mut self, attempts: &[EndedAttempt<'_>]) {
        for alike in attempts.chunk_by(EndedAttempt::is_alike) {
            self.observe_attempts_alike(alike);
        }
    }

    fn observe_attempts_alike(&mut self, attempts: &[EndedAttempt<'_>]) {
        let Some(first) = attempts.first() else {
            return;
        };
        let (mut counts, mut kinds) = (Counts::default(), KindPoint::default());
        let mut outcomes = Outcomes::default();
        for attempt in attempts {
            let is_lost = matches!(attempt.end, AttemptEnd::Expired);
            let is_failure = is_lost
                || matches!(
                    attempt.end,
                    AttemptEnd::TimedOut | AttemptEnd::Failed { .. }
                );
            if !matches!(
                attempt.end,
                AttemptEnd::Released { .. } | AttemptEnd::Cancelled
            ) {
                outcomes.fold(&Outcomes {
                    ended: 1,
                    failed: u32::from(is_failure),
                    lost: u32::from(is_lost),
                });
            }
            if is_lost {
                counts.add(Metric::Lost);
            }
            if is_failure && attempt.record.finished.is_none() {
                counts.add(Metric::Retried);
            }
            kinds.running.add(attempt.ran);
        }
        let JobRecord {
            namespace,
            queue,
            kind,
            ..
        } = first.record;
        let Some(series) = self.queue(namespace, queue) else {
            return;
        };
        if outcomes != Outcomes::default() {
            series.outcomes.at(first.at).fold(&outcomes);
        }
        if counts != Counts::default() {
            series.change(first.at, |point| point.fold(&counts));
        }
        self.kind(namespace, queue, kind, |series| {
            series.change(first.at, |point| point.fold(&kinds));
        });
    }

    /// Whether the gauges are due for a sample: once in ten seconds.
    pub(crate) fn is_sample_due(&self, now: Timestamp) -> bool {
        Step::TenSeconds.number(now) != Step::TenSeconds.number(self.sampled)
    }

    /// Records the counts of all queues with live jobs, and keeps the memory within its bound.
    pub(crate) fn sample(&mut self, now: Timestamp, queues: &[QueueGauge]) {
        self.began.get_or_insert(now);
        self.sampled = now;
        for (namespace, queue, counts, oldest_seconds) in queues {
            if let Some(series) = self.queue(namespace, queue) {
                series.change(now, |point| point.sample(counts, *oldest_seconds));
            }
        }
        self.keep_within_bounds(now);
    }

    /// The series that counts a queue: its own or, if there are too many, that of all others of the namespace. `None`
    /// if even that cannot be made now.
    fn queue(&mut self, namespace: &Namespace, queue: &Queue) -> Option<&mut QueueSeries> {
        let may_create = self.created < bounds::CREATED_MAX;
        if !self.spaces.contains_key(namespace) {
            if !may_create {
                return None;
            }
            self.created += 1;
            self.spaces.insert(namespace.clone(), Space::default());
        }
        let space = self.spaces.get_mut(namespace)?;
        if !space.queues.contains_key(queue) {
            if !may_create {
                return Some(&mut space.other);
            }
            self.created += 1;
            space.queues.insert(queue.clone(), QueueSeries::default());
        }
        space.queues.get_mut(queue)
    }

    /// Changes the series that counts a kind of a queue: its own, or that of all others of the queue.
    fn kind(
        &mut self,
        namespace: &Namespace,
        queue: &Queue,
        kind: &Kind,
        change: impl FnOnce(&mut KindSeries),
    ) {
        let may_create = self.created < bounds::CREATED_MAX;
        let Some(series) = self.queue(namespace, queue) else {
            return;
        };
        if let Some(own) = series.kinds.get_mut(kind) {
            return change(own);
        }
        if !may_create {
            return change(&mut series.other_kinds);
        }
        change(series.kinds.entry(kind.clone()).or_default());
        self.created += 1;
    }
}
