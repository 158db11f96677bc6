//! Series of the shards of a view, added up, for charts and tables.

use std::time::Duration;

use ganger_shard::Handle;
use ganger_shard::series::{Metric, SeriesQuery, Step};
use ganger_types::{Kind, Queue, Timestamp};

use crate::fault::Fault;
use crate::params::Params;
use crate::view::View;

/// A length of time that a page can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Value of the parameter `window`.
    pub(crate) word: &'static str,
    /// Words of the link.
    pub(crate) words: &'static str,
    pub(crate) length: Duration,
    /// Length of a step in the chart.
    pub(crate) step: Step,
}

const fn window(word: &'static str, words: &'static str, seconds: u64, step: Step) -> Window {
    Window {
        word,
        words,
        length: Duration::from_secs(seconds),
        step,
    }
}

/// All windows, the shortest first.
pub(crate) const WINDOWS: [Window; 4] = [
    window("1h", "1 hour", 3_600, Step::Minute),
    window("24h", "24 hours", 86_400, Step::Minute),
    window("7d", "7 days", 7 * 86_400, Step::Hour),
    window("31d", "31 days", 31 * 86_400, Step::Hour),
];

/// Which jobs are counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Which {
    /// The queue; `None`: all of the namespace.
    pub(crate) queue: Option<Queue>,
    /// The kind; `None`: all.
    pub(crate) kind: Option<Kind>,
}

/// Values of several metrics, step by step, over all shards of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Beginning of the first step.
    pub(crate) from: Timestamp,
    /// For each metric its values; `None` where nothing was counted.
    pub(crate) values: Vec<Vec<Option<u64>>>,
}

impl Window {
    /// The window that an address asks for; one hour if it names none.
    pub(crate) fn of(params: &Params) -> Result<Self, Fault> {
        let words: Vec<(&str, Self)> = WINDOWS.iter().map(|it| (it.word, *it)).collect();
        Ok(params.word("window", &words)?.unwrap_or(WINDOWS[0]))
    }

    /// Time at which the window begins if it ends at `until`.
    pub(crate) fn from(self, until: Timestamp) -> Timestamp {
        back(until, self.length)
    }

    /// Word for a step of the chart.
    pub(crate) fn per(self) -> &'static str {
        match self.step {
            Step::Hour => "hour",
            _ => "minute",
        }
    }
}

/// The time so long before another.
pub(crate) fn back(time: Timestamp, span: Duration) -> Timestamp {
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    Timestamp(time.0.saturating_sub(micros))
}

impl Totals {
    /// Sum of each metric over all steps.
    pub(crate) fn sums(&self) -> Vec<u64> {
        let values = self.values.iter();
        values.map(|values| values.iter().flatten().sum()).collect()
    }

    /// Whether anything was counted.
    pub(crate) fn is_known(&self) -> bool {
        self.values.iter().flatten().any(Option::is_some)
    }
}

/// Reads a window that ends at `until`, over all shards of the view.
pub(crate) fn totals(
    view: &View,
    which: &Which,
    window: Window,
    until: Timestamp,
    metrics: &[Metric],
) -> Totals {
    totals_on(view, view.shards(), which, (window, until), metrics)
}

/// Reads a window that ends at `until`, over some shards.
pub(crate) fn totals_on<'a>(
    view: &View,
    shards: impl IntoIterator<Item = &'a Handle>,
    which: &Which,
    (window, until): (Window, Timestamp),
    metrics: &[Metric],
) -> Totals {
    let query = SeriesQuery {
        namespace: view.namespace().clone(),
        queue: which.queue.clone(),
        kind: which.kind.clone(),
        from: window.from(until),
        to: until,
        step: window.step,
        metrics: metrics.to_vec(),
        is_total: true,
    };
    let mut totals = Totals::default();
    for shard in shards {
        let reply = shard.series(|table| table.read(&query, view.clock.now));
        totals.from = reply.from;
        totals.values.resize(metrics.len(), Vec::new());
        for (sum, line) in totals.values.iter_mut().zip(reply.lines) {
            sum.resize(line.values.len(), None);
            for (sum, value) in sum.iter_mut().zip(line.values) {
                *sum = match (*sum, value) {
                    (Some(sum), Some(value)) => Some(sum + value),
                    (sum, value) => sum.or(value),
                };
            }
        }
    }
    totals
}

/// How many jobs of a queue succeeded and failed in each minute of the last hour.
pub(crate) fn last_hour(view: &View, shard: &Handle, queue: &Queue) -> [Vec<Option<u64>>; 2] {
    let query = SeriesQuery {
        namespace: view.namespace().clone(),
        queue: Some(queue.clone()),
        kind: None,
        from: WINDOWS[0].from(view.clock.now),
        to: view.clock.now,
        step: Step::Minute,
        metrics: vec![Metric::Succeeded, Metric::Failed],
        is_total: false,
    };
    let reply = shard.series(|table| table.read(&query, view.clock.now));
    let mut lines = reply.lines.into_iter().map(|line| line.values);
    [
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    ]
}
