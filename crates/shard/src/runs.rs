//! Results of runs by queue and kind: latency and error rate of each.
//!
//! The number of series is bounded: the first [`RUN_SERIES_MAX`] combinations since the start have their own, and all
//! further ones share one.

use std::collections::HashMap;
use std::time::Duration;

use ganger_metrics::{Distribution, Histogram};
use ganger_types::limits::RUN_SERIES_MAX;
use ganger_types::{Kind, Namespace, Queue};

use crate::metrics::{MetricValue, TIME_BOUNDS};

/// Results of the runs of one kind in one queue since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunMetrics {
    /// Namespace, queue and kind; `None` for the series that all others share.
    pub of: Option<(Namespace, Queue, Kind)>,
    /// Number of jobs that succeeded.
    pub jobs_succeeded: u64,
    /// Number of jobs that failed.
    pub jobs_failed: u64,
    /// Number of attempts that reported a failure, including those that were retried.
    pub attempts_failed: u64,
    /// Number of jobs that were enqueued.
    pub jobs_enqueued: u64,
    /// Number of jobs that were cancelled.
    pub jobs_cancelled: u64,
    /// Number of attempts that workers leased.
    pub leases_granted: u64,
    /// Number of attempts whose lease expired.
    pub leases_expired: u64,
    /// Number of attempts that were released.
    pub leases_released: u64,
    /// Number of attempts that took longer than allowed.
    pub attempts_timed_out: u64,
    /// Seconds from ready to leased.
    pub wait_seconds: Histogram,
    /// Seconds from leased to the end of the attempt.
    pub run_seconds: Histogram,
}

/// The counters of one kind in one queue.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) jobs_succeeded: MetricValue,
    pub(crate) jobs_failed: MetricValue,
    pub(crate) attempts_failed: MetricValue,
    pub(crate) jobs_enqueued: MetricValue,
    pub(crate) jobs_cancelled: MetricValue,
    pub(crate) leases_granted: MetricValue,
    pub(crate) leases_expired: MetricValue,
    pub(crate) leases_released: MetricValue,
    pub(crate) attempts_timed_out: MetricValue,
    wait: Distribution,
    run: Distribution,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            jobs_succeeded: MetricValue::default(),
            jobs_failed: MetricValue::default(),
            attempts_failed: MetricValue::default(),
            jobs_enqueued: MetricValue::default(),
            jobs_cancelled: MetricValue::default(),
            leases_granted: MetricValue::default(),
            leases_expired: MetricValue::default(),
            leases_released: MetricValue::default(),
            attempts_timed_out: MetricValue::default(),
            wait: Distribution::times(TIME_BOUNDS),
            run: Distribution::times(TIME_BOUNDS),
        }
    }
}

impl Series {
    pub(crate) fn waited(&self, time: Duration) {
        self.wait.observe_time(time);
    }

    pub(crate) fn ran(&self, time: Duration) {
        self.run.observe_time(time);
    }

    fn shown(&self, of: Option<(Namespace, Queue, Kind)>) -> RunMetrics {
        RunMetrics {
            of,
            jobs_succeeded: self.jobs_succeeded.get(),
            jobs_failed: self.jobs_failed.get(),
            attempts_failed: self.attempts_failed.get(),
            jobs_enqueued: self.jobs_enqueued.get(),
            jobs_cancelled: self.jobs_cancelled.get(),
            leases_granted: self.leases_granted.get(),
            leases_expired: self.leases_expired.get(),
            leases_released: self.leases_released.get(),
            attempts_timed_out: self.attempts_timed_out.get(),
            wait_seconds: self.wait.snapshot(),
            run_seconds: self.run.snapshot(),
        }
    }
}

/// The counters of all kinds in all queues.
#[derive(Debug, Default)]
pub(crate) struct RunMetricsTable {
    /// All series with their names, in the order in which they began.
    series: Vec<NamedSeries>,
    // The maps are nested, so that a lookup clones no name.
    places: HashMap<Namespace, HashMap<Queue, HashMap<Kind, usize>>>,
    /// Index of the series that was looked up last. Most runs of a turn are of one kind.
    last: usize,
    other: Series,
}

/// The counters of one kind in one queue, with their names.
#[derive(Debug)]
struct NamedSeries {
    namespace: Namespace,
    queue: Queue,
    kind: Kind,
    series: Series,
}

impl NamedSeries {
    fn is_of(&self, namespace: &Namespace, queue: &Queue, kind: &Kind) -> bool {
        self.kind == *kind && self.queue == *queue && self.namespace == *namespace
    }
}

impl RunMetricsTable {
    /// Returns the series that counts runs of this kind in this queue.
    pub(crate) fn of(&mut self, namespace: &Namespace, queue: &Queue, kind: &Kind) -> &Series {
        let is_last = self.series.get(self.last);
        if !is_last.is_some_and(|last| last.is_of(namespace, queue, kind)) {
            let found = self.find(namespace, queue, kind);
            let Some(place) = found.or_else(|| self.begin(namespace, queue, kind)) else {
                return &self.other;
            };
            self.last = place;
        }
        &self.series[self.last].series
    }

    /// Adds a series, unless there are too many; returns its index.
    fn begin(&mut self, namespace: &Namespace, queue: &Queue, kind: &Kind) -> Option<usize> {
        let place = self.series.len();
        if place >= RUN_SERIES_MAX {
            return None;
        }
        let queues = self.places.entry(namespace.clone()).or_default();
        let kinds = queues.entry(queue.clone()).or_default();
        kinds.insert(kind.clone(), place);
        self.series.push(NamedSeries {
            namespace: namespace.clone(),
            queue: queue.clone(),
            kind: kind.clone(),
            series: Series::default(),
        });
        Some(place)
    }

    /// Returns the series for runs of unknown kind.
    pub(crate) fn other(&self) -> &Series {
        &self.other
    }

    fn find(&self, namespace: &Namespace, queue: &Queue, kind: &Kind) -> Option<usize> {
        self.places.get(namespace)?.get(queue)?.get(kind).copied()
    }

    /// Returns all series in the order of their names; the shared one is last.
    pub(crate) fn snapshot(&self) -> Vec<RunMetrics> {
        let mut all = Vec::with_capacity(self.series.len() + 1);
        for named in &self.series {
            let of = (
                named.namespace.clone(),
                named.queue.clone(),
                named.kind.clone(),
            );
            all.push(named.series.shown(Some(of)));
        }
        all.sort_by(|left, right| left.of.cmp(&right.of));
        all.push(self.other.shown(None));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_kinds_have_a_bounded_number_of_series() {
        let mut runs = RunMetricsTable::default();
        let (namespace, queue) = (Namespace::default(), Queue::default());
        for _ in 0..2 {
            for number in 0..10_000 {
                let kind = Kind::new(format!("kind-{number}")).expect("short");
                let series = runs.of(&namespace, &queue, &kind);
                series.jobs_succeeded.inc();
                series.ran(Duration::from_millis(1));
            }
        }
        let shown = runs.snapshot();
        assert_eq!(shown.len(), RUN_SERIES_MAX + 1);
        let (other, named) = shown.split_last().expect("not empty");
        assert!(named.iter().all(|one| one.jobs_succeeded == 2));
        assert_eq!(other.of, None);
        let expected = 2 * (10_000 - u64::try_from(RUN_SERIES_MAX).expect("small"));
        assert_eq!(other.jobs_succeeded, expected);
        assert_eq!(other.run_seconds.count, expected);
    }

    #[test]
    fn the_same_kind_in_another_queue_or_namespace_is_another() {
        let mut runs = RunMetricsTable::default();
        let kind = Kind::from_static("k");
        let places = [("a", "x"), ("a", "y"), ("b", "x")];
        for (namespace, queue) in places {
            let (namespace, queue) = (Namespace::from_static(namespace), Queue::from_static(queue));
            runs.of(&namespace, &queue, &kind).jobs_failed.inc();
        }
        let shown = runs.snapshot();
        assert_eq!(shown.len(), places.len() + 1);
        assert!(shown[..3].iter().all(|one| one.jobs_failed == 1));
    }
}
