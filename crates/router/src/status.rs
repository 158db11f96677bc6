//! Refusals between peers: the stable code travels as metadata, the text as the message.

use ganger_shard::CallError;
use ganger_types::ShardId;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::RouteError;

/// Metadata key of the stable code of a refusal.
const CODE: &str = "ganger-code";

/// Metadata key that says that the node does not own the shard, so it has done nothing. Older servers do not know it.
const NOT_HERE: &str = "ganger-not-here";

/// Metadata key of the index of the job that a refusal concerns.
const MEMBER: &str = "ganger-member";

/// Converts an error to a status for a peer.
pub(crate) fn to_status(error: &RouteError) -> Status {
    let message = error.to_string();
    match error {
        RouteError::Call(CallError::Rejected(rejection)) => {
            let mut status = refusal(Code::FailedPrecondition, &message, rejection.code());
            if let Some(member) = rejection.member() {
                status.metadata_mut().insert(MEMBER, member.into());
            }
            status
        }
        RouteError::Unknown { .. } => refusal(Code::NotFound, &message, "unknown_shard"),
        RouteError::Call(CallError::Overloaded { .. }) => {
            refusal(Code::ResourceExhausted, &message, "overloaded")
        }
        RouteError::Call(CallError::Full { .. }) => {
            refusal(Code::ResourceExhausted, &message, "store_full")
        }
        RouteError::Call(CallError::Unavailable { .. }) => {
            refusal(Code::Unavailable, &message, "unavailable")
        }
        RouteError::Call(CallError::Damaged { .. }) => {
            refusal(Code::DataLoss, &message, "store_damaged")
        }
        _ => Status::new(Code::Unavailable, message),
    }
}

/// The answer of a node of a cluster that does not own the shard at the moment.
pub(crate) fn not_here() -> Status {
    let mut status = Status::unavailable("this node does not own it at the moment");
    let value = MetadataValue::from_static("1");
    status.metadata_mut().insert(NOT_HERE, value);
    status
}

fn refusal(code: Code, message: &str, stable: &str) -> Status {
    let mut status = Status::new(code, message);
    if let Ok(value) = MetadataValue::try_from(stable) {
        status.metadata_mut().insert(CODE, value);
    }
    status
}

/// Converts a peer's status to an error.
pub(crate) fn from_status(shard: &ShardId, status: &Status) -> RouteError {
    let stable = status.metadata().get(CODE);
    match stable.and_then(|value| value.to_str().ok()) {
        Some(code) => RouteError::Refused {
            shard: shard.clone(),
            code: code.to_owned(),
            message: status.message().to_owned(),
            member: member(status),
        },
        None => RouteError::Unreachable {
            shard: shard.clone(),
            reason: reason(status),
        },
    }
}

fn member(status: &Status) -> Option<usize> {
    let member = status.metadata().get(MEMBER)?;
    member.to_str().ok()?.parse().ok()
}

/// Converts the status of a change. Without a reply the change may have been made, unless no connection existed, or the
/// node does not own the shard.
pub(crate) fn from_change(shard: &ShardId, status: &Status) -> RouteError {
    let is_undone = was_never_sent(status) || status.metadata().contains_key(NOT_HERE);
    match from_status(shard, status) {
        RouteError::Unreachable { shard, reason } if !is_undone => {
            RouteError::OutcomeUnknown { shard, reason }
        }
        error => error,
    }
}

/// Whether a request failed before there was a connection that could carry it.
pub(crate) fn was_never_sent(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// Returns the text of a status with its cause, which has the details.
fn reason(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    if text.is_empty() {
        text = status.code().to_string();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_not_made_by_a_node_that_does_not_own_the_shard() {
        let shard = ShardId::default();
        let reason = "this node does not own it at the moment".to_owned();
        let refused = RouteError::Unreachable {
            shard: shard.clone(),
            reason,
        };
        assert_eq!(from_change(&shard, &not_here()), refused);
        let lost = from_change(&shard, &Status::unavailable("connection reset"));
        assert!(matches!(lost, RouteError::OutcomeUnknown { .. }), "{lost}");
    }
}
