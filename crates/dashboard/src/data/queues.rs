//! The queues of a view, and what each of them is in.

use std::time::Duration;

use ganger_shard::Handle;
use ganger_shard::series::Rate;
use ganger_types::query::Query;
use ganger_types::reply::QueueView;
use ganger_types::why::QueueCause;
use ganger_types::{Namespace, Queue, Reply};

use crate::fault::Fault;
use crate::view::{Missing, View};

/// Queues that are read at once; a namespace has no more unless its limit was raised.
const QUEUES_MAX: usize = 10_000;

/// A queue of one shard.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) shard: Handle,
    pub(crate) queue: QueueView,
    pub(crate) namespace: Namespace,
    /// Whether a worker has asked lately; `None` if nobody needed to know.
    pub(crate) workers: Option<Asked>,
    /// How fast it fills and empties; `None` if that is not known yet.
    pub(crate) rate: Option<Rate>,
}

/// Whether workers ask a queue for jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

async fn of_namespace(view: &View) -> Result<(Vec<Row>, Missing), Fault> {
    let gathered = view
        .gather(|shard| async move {
            let query = Query::Queues(view.namespace().clone(), None, QUEUES_MAX);
            match view.ask(shard, query).await? {
                Reply::Queues(queues) => Ok(queues),
                _ => Err(Fault::unexpected_reply()),
            }
        })
        .await?;
    let rows = gathered.found.into_iter().flat_map(|(shard, queues)| {
        queues.into_iter().map(move |queue| Row {
            rate: shard.series(|table| table.rate(view.namespace(), &queue.queue, view.clock.now)),
            shard: shard.clone(),
            queue,
            namespace: view.namespace().clone(),
            workers: None,
        })
    });
    Ok((rows.collect(), gathered.missing))
}

/// Finds out for each row with waiting jobs whether a worker asks for them.
pub(crate) async fn look_for_workers(view: &View, rows: &mut [Row]) {
    look(view, rows.iter_mut().collect()).await;
}

/// Likewise for some rows. Each shard is asked once for all its queues. A row of which it cannot be found out stays as it
/// is.
pub(crate) async fn look(view: &View, rows: Vec<&mut Row>) {
    let mut rows: Vec<&mut Row> = rows
        .into_iter()
        .filter(|row| row.queue.counts.ready > 0 && row.workers.is_none())
        .collect();
    for shard in view.shards() {
        let of_shard = rows.iter_mut().filter(|row| row.shard.id() == shard.id());
        let asked: Vec<_> = of_shard.collect();
        let queries = asked
            .iter()
            .map(|row| Query::QueueWhy(row.namespace.clone(), row.queue.queue.clone()));
        if let Ok(replies) = view.ask_all(shard, queries.collect()).await {
            for (row, reply) in asked.into_iter().zip(replies) {
                row.workers = reply.ok().and_then(|reply| asks(&reply));
            }
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
