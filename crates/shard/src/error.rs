//! The reason why a call got no reply.

use std::time::Duration;

use ganger_store::StoreError;
use ganger_types::{Rejection, ShardId};

/// The reason why a call got no reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The engine refused the command.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Too many requests are waiting already (`rel B2`).
    #[error(
        "shard {shard} is overloaded: {waiting} commands wait, the limit is {limit}; try again in {retry_after:?}"
    )]
    Overloaded {
        /// The shard that refused the command.
        shard: ShardId,
        /// Commands in the inbox.
        waiting: usize,
        /// Largest number of commands that may wait.
        limit: usize,
        /// Time after which to try again.
        retry_after: Duration,
    },
    /// The store's device is nearly full: new work is refused, the rest goes on (`rel D9`).
    #[error(
        "shard {shard} takes no new work: {free} bytes are free on the store's device, {needed} are kept in reserve; free some space and try again"
    )]
    Full {
        /// The shard that refused the command.
        shard: ShardId,
        /// Free bytes on the store's device.
        free: u64,
        /// Bytes that are kept in reserve.
        needed: u64,
    },
    /// The shard is stopping, recovering, or has stopped writing after a failed flush.
    #[error("shard {shard} is not available: {reason}; try again")]
    Unavailable {
        /// The shard that is not available.
        shard: ShardId,
        /// The reason why the shard is not available.
        reason: String,
    },
    /// A stored record is damaged (`rel D8`).
    #[error("shard {shard}: {what}")]
    Damaged {
        /// The shard with the damaged record.
        shard: ShardId,
        /// The damaged record and the damage found.
        what: String,
    },
    /// Events from this position are no longer kept (`rel P5`).
    #[error(
        "events from position {asked} are not kept any more, the oldest is {oldest}: read the present state, then follow from there"
    )]
    PositionTooOld {
        /// The position that the caller asked for.
        asked: u64,
        /// The oldest position that is kept.
        oldest: u64,
    },
}

impl CallError {
    /// Converts a failed read: damage is distinguished from a device that does not respond.
    pub(crate) fn from_read(shard: &ShardId, error: &StoreError) -> Self {
        match error {
            StoreError::Damaged { .. } => Self::Damaged {
                shard: shard.clone(),
                what: error.to_string(),
            },
            _ => Self::unavailable(shard, error.to_string()),
        }
    }

    pub(crate) fn unavailable(shard: &ShardId, reason: impl Into<String>) -> Self {
        Self::Unavailable {
            shard: shard.clone(),
            reason: reason.into(),
        }
    }
}
