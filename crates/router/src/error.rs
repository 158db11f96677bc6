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
        /// The shard that was asked for.
        shard: ShardId,
        /// The shards of the topology.
        known: Vec<ShardId>,
    },
    /// Its server does not answer. Nothing is known of what is there.
    #[error("shard {shard} cannot be reached: {reason}; try again, nothing is lost")]
    Unreachable {
        /// The shard that was asked.
        shard: ShardId,
        /// The reason why the shard cannot be reached.
        reason: String,
    },
    /// It was asked for a change, and gave no answer.
    #[error(
        "shard {shard} gave no answer ({reason}): whether the request took effect is not known; repeat it with the same job ids or the same idempotency key, which makes no job twice, or look for its jobs first"
    )]
    OutcomeUnknown {
        /// The shard that was asked.
        shard: ShardId,
        /// The reason why no answer came.
        reason: String,
    },
    /// It answered, and refused.
    #[error("shard {shard}: {message}")]
    Refused {
        /// The shard that refused.
        shard: ShardId,
        /// The stable code of the refusal.
        code: String,
        /// The refusal's message, for people to read.
        message: String,
        /// The place in a submission of the job that it is about.
        member: Option<usize>,
    },
    /// A shard of this process gave no reply, or refused.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A submission refers to a job that does not exist.
    #[error("the submission refers to job {}/{}, which does not exist: never enqueued there, or its retention has passed", job.shard, job.id)]
    NoSuchDependency {
        /// The reference to the missing job.
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

    /// The place in a submission of the job that a refusal is about; `None` if it is about no single one.
    pub fn member(&self) -> Option<usize> {
        match self {
            Self::Refused { member, .. } => *member,
            Self::Call(CallError::Rejected(rejection)) => rejection.member(),
            _ => None,
        }
    }

    /// Whether it was refused only because another submission of the same jobs is being decided.
    pub(crate) fn is_busy(&self) -> bool {
        self.is("idempotency_busy") || self.is("id_busy")
    }

    /// As what is known after a change was asked for: a shard that could not answer may have made it.
    pub(crate) fn after_a_change(self, shard: &ShardId) -> Self {
        let is_unknown =
            self.is("unavailable") || matches!(self, Self::Call(CallError::Unavailable { .. }));
        if is_unknown {
            return Self::OutcomeUnknown {
                shard: shard.clone(),
                reason: self.to_string(),
            };
        }
        self
    }
}

fn list(shards: &[ShardId]) -> String {
    let names: Vec<&str> = shards.iter().map(ShardId::as_str).collect();
    names.join(", ")
}
