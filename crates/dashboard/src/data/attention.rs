//! What is wrong, worst first: what can be told from queues, schedules and shards today.

use std::time::Duration;

use ganger_document::names::show;
use ganger_shard::Health;
use ganger_types::query::Query;
use ganger_types::{Queue, Reply, ShardId};

use crate::data::queues::{self, Asked, Row};
use crate::fault::Fault;
use crate::format::{count, plural, span, whole};
use crate::links::Address;
use crate::view::View;

/// Queues that are asked for their workers, those with the longest wait first.
const LOOKED_MAX: usize = 100;
/// A ready job that waits longer needs attention.
const OLDEST_MAX: Duration = Duration::from_secs(600);
/// Schedules that are looked at for a failed last run.
const SCHEDULES_MAX: usize = 50;

/// Where an item leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Queue(ShardId, Queue),
    Schedule(ShardId, ganger_types::ScheduleId),
    Shards,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) code: &'static str,
    pub(crate) is_error: bool,
    pub(crate) text: String,
    pub(crate) target: Target,
    /// How many jobs it concerns, to put the worst first.
    pub(crate) weight: u64,
}

impl Item {
    /// Words and address of the link to it.
    pub(crate) fn link(&self, view: &View) -> Option<(String, Address)> {
        Some(match &self.target {
            Target::Queue(shard, queue) => (
                format!("Queue {}", show(queue.as_bytes())),
                crate::widgets::queue_address(view, shard, queue),
            ),
            Target::Schedule(shard, id) => (
                "Schedule".to_owned(),
                view.links.on(shard, "/schedule").name("id", id.as_bytes()),
            ),
            Target::Shards if view.rights.may_read("listPeers") => {
                ("Shards".to_owned(), view.links.to("/shards"))
            }
            Target::Shards => return None,
        })
    }
}

/// Finds what is wrong with the queues, the schedules and the shards of a view.
pub(crate) async fn items(view: &View, rows: &mut [Row]) -> Result<Vec<Item>, Fault> {
    let mut waiting: Vec<&mut Row> = rows
        .iter_mut()
        .filter(|row| row.queue.counts.ready > 0)
        .collect();
    waiting.sort_by_key(|row| std::cmp::Reverse(row.oldest()));
    waiting.truncate(LOOKED_MAX);
    queues::look(view, waiting).await;
    let mut items: Vec<Item> = rows.iter().flat_map(of_queue).collect();
    items.extend(
        view.shards()
            .iter()
            .filter_map(|shard| of_shard(shard.id(), &shard.health())),
    );
    items.extend(of_schedules(view).await?);
    items.sort_by_key(|item| (!item.is_error, std::cmp::Reverse(item.weight)));
    Ok(items)
}

fn of_queue(row: &Row) -> Vec<Item> {
    let counts = &row.queue.counts;
    let name = show(row.queue.queue.as_bytes()).into_owned();
    let target = Target::Queue(row.shard.id().clone(), row.queue.queue.clone());
    let item = |code, is_error, text| Item {
        code,
        is_error,
        text,
        target: target.clone(),
        weight: counts.ready,
    };
    if counts.ready == 0 {
        return Vec::new();
    }
    let ready = format!("{} ready", count(counts.ready));
    if row.queue.settings.paused {
        return vec![item(
            "paused_with_jobs",
            false,
            format!("Queue {name}: {ready}, and the queue is paused."),
        )];
    }
    let silent = row.workers.and_then(silence);
    if let Some(silent) = silent {
        return vec![item(
            "no_worker",
            true,
            format!("Queue {name}: {ready}, no worker has asked {silent}."),
        )];
    }
    let oldest = row.oldest().filter(|oldest| *oldest > OLDEST_MAX);
    oldest.map_or_else(Vec::new, |oldest| {
        let oldest = span(whole(oldest));
        vec![item(
            "oldest_age",
            false,
            format!("Queue {name}: {ready}, the oldest has waited for {oldest}."),
        )]
    })
}

fn of_shard(shard: &ShardId, health: &Health) -> Option<Item> {
    let (code, text) = match health {
        Health::Ready => return None,
        Health::Full => (
            "store_full",
            format!("Shard {shard} takes no new work: its disk is nearly full."),
        ),
        Health::Starting { jobs } => (
            "shard_unreachable",
            format!(
                "Shard {shard} is starting: {} read so far.",
                plural(*jobs, "job")
            ),
        ),
        Health::Unreachable { reason } => (
            "shard_unreachable",
            format!("Shard {shard} waits for its store: {reason}"),
        ),
        Health::Stopped { reason } => (
            "shard_unreachable",
            format!("Shard {shard} has stopped: {reason}"),
        ),
    };
    Some(Item {
        code,
        is_error: true,
        text,
        target: Target::Shards,
        weight: u64::MAX,
    })
}

/// Schedules whose last job failed and is still kept.
async fn of_schedules(view: &View) -> Result<Vec<Item>, Fault> {
    if !view.rights.may_read("listSchedules") {
        return Ok(Vec::new());
    }
    let gathered = view
        .gather(|shard| async move {
            let query = Query::Schedules(view.namespace().clone());
            let Reply::Schedules(schedules) = view.ask(shard, query).await? else {
                return Err(Fault::unexpected_reply());
            };
            let mut failed = Vec::new();
            for schedule in schedules.into_iter().take(SCHEDULES_MAX) {
                let Some(job) = &schedule.last_job else {
                    continue;
                };
                let job = shard.job(view.namespace(), job).await?;
                if job.is_some_and(|job| job.record.state == ganger_types::JobState::Failed) {
                    failed.push(schedule.id);
                }
            }
            Ok(failed)
        })
        .await?;
    let failed = gathered
        .found
        .into_iter()
        .flat_map(|(shard, failed)| failed.into_iter().map(move |id| (shard.id().clone(), id)));
    Ok(failed
        .map(|(shard, id)| Item {
            code: "schedule_failed",
            is_error: false,
            text: format!("Schedule {}: its last run failed.", show(id.as_bytes())),
            target: Target::Schedule(shard, id),
            weight: 1,
        })
        .collect())
}

/// How long no worker has asked, for a sentence; `None` if one has lately.
pub(crate) fn silence(asked: Asked) -> Option<String> {
    match asked {
        Asked::Lately => None,
        Asked::Never => Some("since the server started".to_owned()),
        Asked::Silent(silent) => Some(format!("for {}", span(whole(silent)))),
    }
}
