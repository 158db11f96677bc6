//! Why a request did not come through to its shard.

use ganger_shard::CallError;
use ganger_types::{JobRef, Rejection, ShardId};

/// Why a request did not come through to its shard.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RouteError {
    /// No server of the topology has it.
    #[error(
        "shard {shard} is not part of this topology, which has {}: name one of those, or add it to --topology",
        list(known)
    )]
    Unknown {
        /// Which.
        shard: ShardId,
        /// Those there are.
        known: Vec<ShardId>,
    },
    /// Its server does not answer. Nothing is known of what is there.
    #[error("shard {shard} cannot be reached: {reason}; try again, nothing is lost")]
    Unreachable {
        /// Which.
        shard: ShardId,
        /// Why.
        reason: String,
    },
    /// It answered, and refused.
    #[error("shard {shard}: {message}")]
    Refused {
        /// Which.
        shard: ShardId,
        /// The stable code of the refusal.
        code: String,
        /// For people.
        message: String,
    },
    /// A shard of this process gave no reply, or refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A submission refers to a job that does not exist.
    #[error("the submission refers to job {}/{}, which does not exist: never enqueued there, or its retention has passed", job.shard, job.id)]
    NoSuchUpstream {
        /// Which.
        job: JobRef,
    },
}

impl From<Rejection> for RouteError {
    fn from(rejection: Rejection) -> Self {
        Self::Call(CallError::Rejected(rejection))
    }
}

impl RouteError {
    /// Whether it was refused with this code, here or elsewhere.
    pub(crate) fn is(&self, code: &str) -> bool {
        match self {
            Self::Refused { code: refused, .. } => refused == code,
            Self::Call(CallError::Rejected(rejection)) => rejection.code() == code,
            _ => false,
        }
    }
}

fn list(shards: &[ShardId]) -> String {
    let names: Vec<&str> = shards.iter().map(ShardId::as_str).collect();
    names.join(", ")
}
