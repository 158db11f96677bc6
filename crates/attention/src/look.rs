//! Collects the facts of one shard.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_router::Router;
use ganger_shard::series::Recent;
use ganger_shard::{CallError, Handle, Health};
use ganger_types::query::Query;
use ganger_types::reply::QueueView;
use ganger_types::{Command, JobState, Namespace, Queue, Reply, ScheduleId, Timestamp};

use crate::facts::{CommitFacts, PeerFacts, QueueFacts, ShardFacts};

/// How long one shard may take.
const SHARD_WAIT: Duration = Duration::from_secs(1);
/// Queues that are looked at; a namespace has no more unless its limit was raised.
const QUEUES_MAX: usize = 10_000;
/// Schedules whose last job is looked at.
const SCHEDULES_MAX: usize = 200;

/// Returns the facts of a shard. One that does not answer in time has no facts about its jobs.
pub(crate) async fn look(
    shard: &Handle,
    router: Option<&Router>,
    namespace: &Namespace,
    commits: CommitFacts,
) -> ShardFacts {
    let health = shard.health();
    let now = shard.wall_time();
    let began = shard.series_began();
    let (free_bytes, reserve_bytes) = shard.store_space();
    let nothing = ShardFacts {
        shard: shard.id().clone(),
        has_answered: false,
        loaded_ago: began.map_or(Duration::ZERO, |began| now.since(began)),
        queues: Vec::new(),
        failed_schedules: Vec::new(),
        peers: Vec::new(),
        free_bytes,
        reserve_bytes,
        commits,
        health,
    };
    if !matches!(nothing.health, Health::Ready | Health::Full) {
        return nothing;
    }
    let asked = ask(shard, router, namespace, now);
    match tokio::time::timeout(SHARD_WAIT, asked).await {
        Ok(Ok((queues, failed_schedules, peers))) => ShardFacts {
            has_answered: true,
            queues,
            failed_schedules,
            peers,
            ..nothing
        },
        // The shard ended meanwhile, has too much to do, or hangs.
        Ok(Err(_)) | Err(_) => nothing,
    }
}

type Found = (
    Vec<QueueFacts>,
    Vec<(ScheduleId, Option<Timestamp>)>,
    Vec<PeerFacts>,
);

async fn ask(
    shard: &Handle,
    router: Option<&Router>,
    namespace: &Namespace,
    now: Timestamp,
) -> Result<Found, CallError> {
    let queries = [
        Query::Queues(namespace.clone(), None, QUEUES_MAX),
        Query::Schedules(namespace.clone()),
    ];
    let queries = queries.map(|query| Command::Query(Box::new(query)));
    let mut recent = shard.series(|table| table.recent(namespace, now))?;
    let (mut queues, mut failed) = (Vec::new(), Vec::new());
    for reply in shard.call_all(queries.into()).await? {
        match reply? {
            Reply::Queues(views) => queues = with_recent(views, &mut recent),
            Reply::Schedules(schedules) => {
                let last = schedules.into_iter().filter_map(|schedule| {
                    let job = schedule.last_job?;
                    Some((schedule.id, job))
                });
                for (schedule, job) in last.take(SCHEDULES_MAX) {
                    let job = shard.job(namespace, &job).await?;
                    let job = job.filter(|job| job.record.state == JobState::Failed);
                    failed.extend(job.map(|job| {
                        let at = job.record.failure.map(|failure| failure.at);
                        (schedule, at)
                    }));
                }
            }
            _ => {}
        }
    }
    let peers = match router {
        Some(router) => router.peers(shard).await.unwrap_or_default(),
        None => Vec::new(),
    };
    let peers = peers.into_iter().map(|(view, state)| PeerFacts {
        shard: view.record.shard,
        waiting: view.waiting,
        oldest_for: view.oldest_at.map(|at| now.since(at)),
        is_stopped: view.record.stopped.is_some() || state.stopped_there.is_some(),
    });
    Ok((queues, failed, peers.collect()))
}

fn with_recent(views: Vec<QueueView>, recent: &mut BTreeMap<Queue, Recent>) -> Vec<QueueFacts> {
    let with = |view: QueueView| QueueFacts {
        recent: recent.remove(&view.queue).unwrap_or_default(),
        view,
    };
    views.into_iter().map(with).collect()
}
