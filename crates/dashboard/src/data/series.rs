//! Series of the shards of a view, added up, for charts and tables.

use std::time::Duration;

use ganger_shard::Handle;
use ganger_shard::series::{Metric, SeriesQuery, Step};
use ganger_types::{Kind, Namespace, Queue, Timestamp};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::params::Params;
use crate::question::Question;
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
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Which {
    /// The queue; `None`: all of the namespace.
    pub(crate) queue: Option<Queue>,
    /// The kind; `None`: all.
    pub(crate) kind: Option<Kind>,
}

/// Values of several metrics, step by step, over all shards of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Adds those of another shard, step by step.
    fn add(&mut self, other: Self) {
        self.from = other.from;
        for (sum, values) in self.values.iter_mut().zip(other.values) {
            sum.resize(values.len(), None);
            for (sum, value) in sum.iter_mut().zip(values) {
                *sum = match (*sum, value) {
                    (Some(sum), Some(value)) => Some(sum + value),
                    (sum, value) => sum.or(value),
                };
            }
        }
    }

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

/// What happened step by step on one shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct Steps {
    which: Which,
    from: Timestamp,
    until: Timestamp,
    step: Step,
    metrics: Vec<Metric>,
}

impl Steps {
    /// A window that ends at `until`.
    pub(crate) fn of(which: &Which, window: Window, until: Timestamp, metrics: &[Metric]) -> Self {
        Self {
            which: which.clone(),
            from: window.from(until),
            until,
            step: window.step,
            metrics: metrics.to_vec(),
        }
    }

    /// What one shard of this process counted.
    pub(crate) fn read(&self, view: &View, shard: &Handle) -> Result<Totals, Fault> {
        let query = SeriesQuery {
            namespace: view.namespace().clone(),
            queue: self.which.queue.clone(),
            kind: self.which.kind.clone(),
            from: self.from,
            to: self.until,
            step: self.step,
            metrics: self.metrics.clone(),
            is_total: true,
        };
        let reply = shard.series(|table| table.read(&query, view.clock.now))?;
        Ok(Totals {
            from: reply.from,
            values: reply.lines.into_iter().map(|line| line.values).collect(),
        })
    }

    /// What all shards of the view counted together.
    pub(crate) async fn totals(&self, view: &View) -> Result<Totals, Fault> {
        let gathered = view.gather(self).await?;
        let mut totals = Totals {
            values: vec![Vec::new(); self.metrics.len()],
            ..Totals::default()
        };
        for (_, of_shard) in gathered.found {
            totals.add(of_shard);
        }
        Ok(totals)
    }
}

impl Question for Steps {
    const NAME: &'static str = "series";
    type Answer = Totals;

    fn operation(&self) -> &'static str {
        "getSeries"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Totals, Fault> {
        self.read(view, shard)
    }
}

/// How many jobs of a queue succeeded and failed in each minute of the last hour.
pub(crate) fn last_hour(
    view: &View,
    shard: &Handle,
    namespace: &Namespace,
    queue: &Queue,
) -> Result<[Vec<Option<u64>>; 2], Fault> {
    let query = SeriesQuery {
        namespace: namespace.clone(),
        queue: Some(queue.clone()),
        kind: None,
        from: WINDOWS[0].from(view.clock.now),
        to: view.clock.now,
        step: Step::Minute,
        metrics: vec![Metric::Succeeded, Metric::Failed],
        is_total: false,
    };
    let reply = shard.series(|table| table.read(&query, view.clock.now))?;
    let mut lines = reply.lines.into_iter().map(|line| line.values);
    Ok([
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    ])
}
