//! Other shards, and what waits for them.

use std::time::SystemTime;

/// Another shard and the state of the exchange with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerView {
    /// Name of the other shard.
    pub shard: String,
    /// Messages that wait for it.
    pub waiting: u64,
    /// Since when the oldest of them waits.
    pub oldest_at: Option<SystemTime>,
    /// Tries to bring them that failed since the last that did not.
    pub tries_failed: u64,
    /// Why the last one failed.
    pub last_error: Option<String>,
    /// Why nothing is exchanged until the two are reconciled at the shard that was asked.
    pub stopped: Option<String>,
    /// Why the other shard takes nothing until they are reconciled there.
    pub stopped_there: Option<String>,
    /// Number of the last message written for it.
    pub written: u64,
    /// All up to this one are durable there.
    pub confirmed: u64,
    /// All of its messages up to this one were applied.
    pub received: u64,
}

/// A message that waits for a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingMessage {
    /// Number of the message, consecutive for each receiver.
    pub number: u64,
    /// A word for what it says.
    pub kind: String,
    /// When it was written.
    pub at: SystemTime,
}
