//! The queues of a view, and what each of them is in.

use std::time::Duration;

use futures::future::join_all;
use ganger_shard::Handle;
use ganger_shard::series::Rate;
use ganger_types::query::Query;
use ganger_types::reply::QueueView;
use ganger_types::why::QueueCause;
use ganger_types::{Namespace, Queue, Reply};
use serde::{Deserialize, Serialize};

use crate::data::series::last_hour;
use crate::fault::Fault;
use crate::question::{Question, Shard};
use crate::view::{Missing, View};

/// Queues that are read at once; a namespace has no more unless its limit was raised.
const QUEUES_MAX: usize = 10_000;

/// A queue of one shard.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) shard: Shard,
    pub(crate) queue: QueueView,
    pub(crate) namespace: Namespace,
    /// Whether a worker has asked lately; `None` if nobody needed to know.
    pub(crate) workers: Option<Asked>,
    /// How fast it fills and empties; `None` if that is not known yet.
    pub(crate) rate: Option<Rate>,
    /// How many of its jobs ended in each five minutes of the last hour; zeros if nobody needed to know.
    pub(crate) last_hour: [u64; 12],
    /// How many of its jobs succeeded, and failed, in each minute of the last hour; empty if nobody needed to know.
    pub(crate) minutes: [Vec<Option<u64>>; 2],
}

/// Whether workers ask a queue for jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Asked {
    /// One asked within the last minute.
    Lately,
    /// None has for so long.
    Silent(Duration),
    /// None has since the server started.
    Never,
}

/// The word for what a queue is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    NoWorker,
    Paused,
    AtLimit,
    Active,
    Idle,
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::NoWorker => "No worker",
            Self::Paused => "Paused",
            Self::AtLimit => "At limit",
            Self::Active => "Active",
            Self::Idle => "Idle",
        }
    }

    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::NoWorker => "bad",
            Self::Paused => "paused",
            Self::AtLimit => "warn",
            Self::Active => "busy",
            Self::Idle => "idle",
        }
    }
}

impl Row {
    pub(crate) fn state(&self) -> State {
        let (counts, settings) = (&self.queue.counts, &self.queue.settings);
        let limit = settings.running_max.map(u64::from);
        let waits = counts.ready > 0;
        if settings.paused {
            State::Paused
        } else if waits && matches!(self.workers, Some(Asked::Silent(_) | Asked::Never)) {
            State::NoWorker
        } else if limit.is_some_and(|limit| counts.running >= limit) {
            State::AtLimit
        } else if waits || counts.running > 0 {
            State::Active
        } else {
            State::Idle
        }
    }

    pub(crate) fn oldest(&self) -> Option<Duration> {
        self.queue.oldest_ready_for
    }
}

/// All known queues of the view, in all its namespaces, without a look at their workers.
pub(crate) async fn all(view: &View) -> Result<(Vec<Row>, Missing), Fault> {
    let (mut all, mut missing) = (Vec::new(), Missing::default());
    let (views, left_out) = view.by_namespace().await;
    missing.namespaces = left_out;
    for view in views {
        let (rows, gone) = of_namespace(&view).await?;
        all.extend(rows);
        missing.merge(gone);
    }
    Ok((all, missing))
}

/// The known queues of a shard, each with how fast it fills and empties.
#[derive(Serialize, Deserialize)]
pub(crate) struct All;

impl Question for All {
    const NAME: &'static str = "queues";
    type Answer = Vec<(QueueView, Option<Rate>)>;

    fn operation(&self) -> &'static str {
        "listQueues"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let query = Query::Queues(view.namespace().clone(), None, QUEUES_MAX);
        let Reply::Queues(queues) = view.ask(shard, query).await? else {
            return Err(Fault::unexpected_reply());
        };
        let (namespace, now) = (view.namespace(), view.clock.now);
        let rated = |queue: QueueView| {
            let rate = shard.series(|table| table.rate(namespace, &queue.queue, now))?;
            Ok((queue, rate))
        };
        queues.into_iter().map(rated).collect()
    }
}

async fn of_namespace(view: &View) -> Result<(Vec<Row>, Missing), Fault> {
    let gathered = view.gather(&All).await?;
    let rows = gathered.found.into_iter().flat_map(|(shard, queues)| {
        let shard = view.place_of(&shard);
        queues.into_iter().map(move |(queue, rate)| Row {
            rate,
            shard: shard.clone(),
            queue,
            namespace: view.namespace().clone(),
            workers: None,
            last_hour: [0; 12],
            minutes: Default::default(),
        })
    });
    Ok((rows.collect(), gathered.missing))
}

/// What only a page that shows the queues needs to know of them.
#[derive(Serialize, Deserialize)]
pub(crate) struct Closer {
    /// The queues, each with its namespace, and whether jobs wait in it.
    queues: Vec<(Namespace, Queue, bool)>,
    /// Whether the minutes of the last hour are wanted, which needs a right of its own.
    by_minute: bool,
}

/// What [`Closer`] finds out of a queue; see the fields of [`Row`].
#[derive(Serialize, Deserialize)]
pub(crate) struct Look {
    workers: Option<Asked>,
    last_hour: [u64; 12],
    minutes: [Vec<Option<u64>>; 2],
}

impl Question for Closer {
    const NAME: &'static str = "closer_look_at_queues";
    type Answer = Vec<Look>;

    fn operation(&self) -> &'static str {
        "listQueues"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        for (namespace, _, _) in &self.queues {
            let rights = view.rights.clone().in_namespace(namespace.clone());
            rights.check(self.operation())?;
        }
        let waiting = self.queues.iter().filter(|(_, _, waits)| *waits);
        let queries =
            waiting.map(|(namespace, queue, _)| Query::QueueWhy(namespace.clone(), queue.clone()));
        let replies = view.ask_all(shard, queries.collect()).await?;
        let mut replies = replies.into_iter();
        let mut looks = Vec::new();
        for (namespace, queue, waits) in &self.queues {
            let reply = if *waits { replies.next() } else { None };
            let workers = reply.and_then(Result::ok).and_then(|reply| asks(&reply));
            looks.push(Look {
                workers,
                last_hour: shard
                    .series(|table| table.last_hour(namespace, queue, view.clock.now))?,
                minutes: if self.by_minute && view.rights.may_read("getSeries") {
                    last_hour(view, shard, namespace, queue)?
                } else {
                    Default::default()
                },
            });
        }
        Ok(looks)
    }
}

/// Finds out for rows whether workers ask for their waiting jobs, and how many ended in the last hour, if wanted in each
/// minute. Each shard is asked once for all its queues. A row of which it cannot be found out stays as it is.
pub(crate) async fn look_closer(view: &View, mut rows: Vec<&mut Row>, by_minute: bool) {
    rows.sort_by(|a, b| a.shard.id().cmp(b.shard.id()));
    let looks = rows.chunk_by_mut(|a, b| a.shard.id() == b.shard.id());
    join_all(looks.map(|rows| look_on_shard(view, rows, by_minute))).await;
}

async fn look_on_shard(view: &View, rows: &mut [&mut Row], by_minute: bool) {
    let Some(shard) = rows.first().map(|row| row.shard.clone()) else {
        return;
    };
    let queues = rows.iter().map(|row| {
        let waits = row.queue.counts.ready > 0;
        (row.namespace.clone(), row.queue.queue.clone(), waits)
    });
    let question = Closer {
        queues: queues.collect(),
        by_minute,
    };
    if let Ok(looks) = shard.ask(view, &question).await {
        for (row, look) in rows.iter_mut().zip(looks) {
            row.workers = look.workers;
            row.last_hour = look.last_hour;
            row.minutes = look.minutes;
        }
    }
}

/// What the causes of waiting say about the workers of a queue.
fn asks(reply: &Reply) -> Option<Asked> {
    let Reply::QueueWhy(waits) = reply else {
        return None;
    };
    let silent = waits.iter().find_map(|wait| match wait.cause {
        QueueCause::NoWorker { silent_for } => Some(silent_for),
        _ => None,
    });
    Some(match silent {
        Some(None) => Asked::Never,
        Some(Some(silent)) => Asked::Silent(silent),
        None => Asked::Lately,
    })
}

/// One queue of one shard, known or not.
pub(crate) async fn one(view: &View, shard: &Handle, queue: &Queue) -> Result<QueueView, Fault> {
    let query = Query::Queue(view.namespace().clone(), queue.clone());
    match view.ask(shard, query).await? {
        Reply::Queue(found) => Ok(*found),
        _ => Err(Fault::unexpected_reply()),
    }
}
