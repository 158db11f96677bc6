//! Refusals between peers: the stable code travels as metadata, the sentence as the message.

use ganger_shard::CallError;
use ganger_types::ShardId;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::RouteError;

/// The metadata that brings the stable code of a refusal.
const CODE: &str = "ganger-code";

/// The metadata that brings the place in a submission of the job that a refusal is about.
const MEMBER: &str = "ganger-member";

/// What a peer is told.
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

fn refusal(code: Code, message: &str, stable: &str) -> Status {
    let mut status = Status::new(code, message);
    if let Ok(value) = MetadataValue::try_from(stable) {
        status.metadata_mut().insert(CODE, value);
    }
    status
}

/// What a peer has said.
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

/// What a peer has said that was asked for a change. Without an answer the change was made, or it was not, unless no
/// connection came about.
pub(crate) fn from_change(shard: &ShardId, status: &Status) -> RouteError {
    match from_status(shard, status) {
        RouteError::Unreachable { shard, reason } if !was_never_sent(status) => {
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

/// The sentence of a status, with the cause below it, which tells more.
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
