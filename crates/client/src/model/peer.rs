//! Other shards, and the messages that wait for them.

use std::time::SystemTime;

/// Another shard and the state of the exchange with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerView {
    /// Name of the other shard.
    pub shard: String,
    /// Number of messages that wait for the other shard.
    pub waiting: u64,
    /// Time since which the oldest message waits; `None` if none waits.
    pub oldest_at: Option<SystemTime>,
    /// Number of consecutive failed tries to deliver messages.
    pub tries_failed: u64,
    /// Error of the last failed try; `None` if the last try succeeded.
    pub last_error: Option<String>,
    /// Reason why this shard exchanges nothing until it is reconciled with the other; `None` if it does.
    pub stopped: Option<String>,
    /// Reason why the other shard accepts nothing until it is reconciled there; `None` if it does.
    pub stopped_there: Option<String>,
    /// Number of the last message to the other shard.
    pub written: u64,
    /// Number of the last message that is durable at the other shard.
    pub confirmed: u64,
    /// Number of the last message of the other shard that was applied.
    pub received: u64,
}

/// A message that waits for another shard.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingMessage {
    /// Number of the message, consecutive for each receiver.
    pub number: u64,
    /// Kind of the message.
    pub kind: String,
    /// Time at which the message was written.
    pub at: SystemTime,
}
