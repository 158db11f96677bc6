//! The reason why a request did not reach its shard.

use ganger_shard::CallError;
use ganger_types::{JobRef, Rejection, ShardId};

/// The reason why a request did not reach its shard.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RouteError {
    /// No server of the topology has the shard.
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
    /// The shard's server does not respond. Nothing is known about its state.
    #[error("shard {shard} cannot be reached: {reason}; try again, nothing is lost")]
    Unreachable {
        /// The shard that was asked.
        shard: ShardId,
        /// The reason why the shard cannot be reached.
        reason: String,
    },
    /// The shard was asked for a change and did not reply.
    #[error(
        "shard {shard} gave no answer ({reason}): whether the request took effect is not known; repeat it with the same job ids or the same idempotency key, which makes no job twice, or look for its jobs first"
    )]
    OutcomeUnknown {
        /// The shard that was asked.
        shard: ShardId,
        /// The reason why no answer came.
        reason: String,
    },
    /// The shard refused the request.
    #[error("shard {shard}: {message}")]
    Refused {
        /// The shard that refused.
        shard: ShardId,
        /// The stable code of the refusal.
        code: String,
        /// The refusal's message, for people to read.
        message: String,
        /// Index in the submission of the job that the refusal concerns; `None` if it concerns no single job.
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
    /// Whether the request was refused with this code, here or elsewhere.
    pub(crate) fn is(&self, code: &str) -> bool {
        match self {
            Self::Refused { code: refused, .. } => refused == code,
            Self::Call(CallError::Rejected(rejection)) => rejection.code() == code,
            _ => false,
        }
    }

    /// Returns the index in the submission of the job that a refusal concerns; `None` if it concerns no single job.
    pub fn member(&self) -> Option<usize> {
        match self {
            Self::Refused { member, .. } => *member,
            Self::Call(CallError::Rejected(rejection)) => rejection.member(),
            _ => None,
        }
    }

    /// Whether the request was refused only because another submission of the same jobs is undecided.
    pub(crate) fn is_busy(&self) -> bool {
        self.is("idempotency_busy") || self.is("id_busy")
    }

    /// Whether a shard did not answer, which a read of several shards survives.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::Unreachable { .. } => true,
            Self::Call(error) => {
                matches!(
                    error,
                    CallError::Unavailable { .. } | CallError::Overloaded { .. }
                )
            }
            _ => self.is("unavailable") || self.is("overloaded"),
        }
    }

    /// Whether the shard was asked and cannot serve: it stops, recovers, or its store confirms nothing.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.is("unavailable") || matches!(self, Self::Call(CallError::Unavailable { .. }))
    }

    /// Converts the error of a submission that is not decided yet: of a shard that did not reply, nothing stays.
    pub(crate) fn before_the_decision(self) -> Self {
        match self {
            Self::OutcomeUnknown { shard, reason } => Self::Unreachable { shard, reason },
            error => error,
        }
    }

    /// Converts the error of a change: a shard that did not reply may have made the change.
    pub(crate) fn after_a_change(self, shard: &ShardId) -> Self {
        if self.is_unavailable() {
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
