//! Refusals between peers: the stable code travels as metadata, the sentence as the message.

use ganger_shard::CallError;
use ganger_types::ShardId;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::RouteError;

/// The metadata that brings the stable code of a refusal.
const CODE: &str = "ganger-code";

/// What a peer is told.
pub(crate) fn to_status(error: &RouteError) -> Status {
    let message = error.to_string();
    match error {
        RouteError::Call(CallError::Rejected(rejection)) => {
            refusal(Code::FailedPrecondition, &message, rejection.code())
        }
        RouteError::Unknown { .. } => refusal(Code::NotFound, &message, "unknown_shard"),
        RouteError::Call(CallError::Overloaded { .. } | CallError::Full { .. }) => {
            refusal(Code::ResourceExhausted, &message, "overloaded")
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
        },
        None => RouteError::Unreachable {
            shard: shard.clone(),
            reason: reason(status),
        },
    }
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
