//! Facts that the rules judge: what was found at one moment.

use std::time::Duration;

use ganger_shard::Health;
use ganger_shard::series::Recent;
use ganger_types::reply::QueueView;
use ganger_types::{ScheduleId, ShardId, Timestamp};

/// What was found at one moment in a namespace and its server.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The moment, on the wall clock.
    pub now: Timestamp,
    /// The shards of this process.
    pub shards: Vec<ShardFacts>,
    /// The server of these shards.
    pub server: ServerFacts,
}

/// What was found about the server itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// Whether other machines can use the server without encryption or without credentials.
    pub is_insecure: bool,
    /// End of the validity of the server's certificate; `None` without a certificate.
    pub certificate_ends_at: Option<Timestamp>,
}

/// What was found in one shard.
#[derive(Clone, Debug)]
pub struct ShardFacts {
    /// Name of the shard.
    pub shard: ShardId,
    /// Whether the shard can work.
    pub health: Health,
    /// Whether the shard has answered in time. If not, there are no facts about its jobs.
    pub has_answered: bool,
    /// Time since the shard was loaded.
    pub loaded_ago: Duration,
    /// Queues of the namespace.
    pub queues: Vec<QueueFacts>,
    /// Schedules of the namespace whose last job failed and is still kept, with the time of the failure.
    pub failed_schedules: Vec<(ScheduleId, Option<Timestamp>)>,
    /// Other shards for which messages wait, or with which nothing is exchanged.
    pub peers: Vec<PeerFacts>,
    /// Free bytes on the store's device; `None` if unknown.
    pub free_bytes: Option<u64>,
    /// Free bytes below which the shard takes no new work; 0 if there is no such limit.
    pub reserve_bytes: u64,
    /// Commits of the last 5 minutes.
    pub commits: CommitFacts,
}

/// What was found about one queue.
#[derive(Clone, Debug)]
pub struct QueueFacts {
    /// The queue with its settings and counts.
    pub view: QueueView,
    /// What happened in it in the last 5 minutes.
    pub recent: Recent,
}

/// What was found about the messages for another shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFacts {
    /// Name of the other shard.
    pub shard: ShardId,
    /// Number of messages that wait.
    pub waiting: u64,
    /// Age of the oldest of them; `None` if none waits.
    pub oldest_for: Option<Duration>,
    /// Whether nothing is exchanged until the two are reconciled.
    pub is_stopped: bool,
}

/// How long commits of the store took lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitFacts {
    /// Number of commits in that time.
    pub count: u64,
    /// Time that 99 of 100 commits did not exceed, as the upper bound of its histogram bucket; `None` without commits
    /// or if it is longer than the longest bucket.
    pub p99: Option<Duration>,
}
