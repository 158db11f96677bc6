//! Actions: what a person can change from the terminal.

use ganger_client::{BulkAction, ChangeResult, Client, Error, JobFilter};

use crate::text::cut_end;

/// Reason of cancellations from here.
const REASON: &str = "cancelled in ganger top";

/// A change that a person can ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Retry a finished job.
    Retry(String),
    /// Retry all jobs of a failure group.
    RetryGroup(String),
    /// Cancel a live job.
    Cancel(String),
    /// Cancel all jobs of a graph of a shard.
    CancelGraph { shard: String, graph: String },
    /// Delete a finished job.
    Delete(String),
    /// Pause a queue of a shard, or resume it.
    Pause {
        shard: String,
        queue: String,
        is_paused: bool,
    },
}

impl Action {
    /// Does it, and returns what to say.
    pub(crate) async fn run(&self, clients: &Clients) -> Result<String, Error> {
        match self {
            Self::Retry(job) => Ok(one(
                "Retried",
                job,
                &clients.any().retry(&[job], None).await?,
            )),
            Self::Cancel(job) => {
                let result = clients.any().cancel(&[job], REASON).await?;
                Ok(one("Cancelled", job, &result))
            }
            Self::Delete(job) => Ok(one("Deleted", job, &clients.any().delete(&[job]).await?)),
            Self::RetryGroup(group) => retry_group(clients, group).await,
            Self::CancelGraph { shard, graph } => {
                let result = clients.of(shard).cancel_graph(graph, REASON).await?;
                Ok(format!(
                    "Cancelled {} jobs of the graph {graph}.",
                    result.count
                ))
            }
            Self::Pause {
                shard,
                queue,
                is_paused,
            } => {
                let client = clients.of(shard);
                if *is_paused {
                    client.pause_queue(queue).await?;
                    Ok(format!("Paused the queue {queue}."))
                } else {
                    client.resume_queue(queue).await?;
                    Ok(format!("Resumed the queue {queue}."))
                }
            }
        }
    }
}

fn one(done: &str, job: &str, result: &ChangeResult) -> String {
    if result.count > 0 {
        format!("{done} {job}.")
    } else {
        format!("Not done: the state of {job} does not allow it.")
    }
}

async fn retry_group(clients: &Clients, group: &str) -> Result<String, Error> {
    let action = BulkAction::Retry {
        queue: None,
        dependents: false,
    };
    let (mut changed, mut skipped) = (0, 0);
    for client in clients.all() {
        let mut cursor = None;
        loop {
            let filter = JobFilter {
                group: Some(group.to_owned()),
                cursor,
                ..JobFilter::default()
            };
            let result = client.matching(&action, filter, false).await?;
            changed += result.changed;
            skipped += result.skipped;
            cursor = result.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    let group = cut_end(group, 40, "...");
    Ok(format!(
        "Retried {changed} jobs of the group {group}, skipped {skipped}."
    ))
}

/// A client for each shard.
#[derive(Clone)]
pub(crate) struct Clients {
    /// The client without a shard.
    base: Client,
    each: Vec<(String, Client)>,
}

impl Clients {
    pub(crate) fn new(base: Client, each: Vec<(String, Client)>) -> Self {
        Self { base, each }
    }

    /// The client for calls that name their shard themselves.
    pub(crate) fn any(&self) -> &Client {
        &self.base
    }

    pub(crate) fn of(&self, shard: &str) -> &Client {
        let found = self.each.iter().find(|(name, _)| name == shard);
        found.map_or(&self.base, |(_, client)| client)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Client> {
        self.each.iter().map(|(_, client)| client)
    }
}
