//! Conversion of rejections and errors of the shard to problems.

use std::time::Duration;

use ganger_router::{GraphError, RouteError};
use ganger_shard::CallError;
use ganger_types::Rejection;

use crate::problem::{CODES, Problem};

/// Default time after which to retry, for a full queue or device.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let problem = Self::new(rejection.code(), rejection.to_string());
        if rejection.passes() {
            problem.retry_after(RETRY_AFTER_DEFAULT)
        } else {
            problem
        }
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let detail = error.to_string();
        match error {
            CallError::Rejected(rejection) => rejection.into(),
            CallError::Overloaded { retry_after, .. } => {
                Self::new("overloaded", detail).retry_after(retry_after)
            }
            CallError::Full { .. } => {
                Self::new("store_full", detail).retry_after(10 * RETRY_AFTER_DEFAULT)
            }
            CallError::Unavailable { .. } => {
                Self::new("unavailable", detail).retry_after(RETRY_AFTER_DEFAULT)
            }
            CallError::Damaged { .. } => Self::new("store_damaged", detail),
            CallError::PositionTooOld { .. } => Self::new("position_too_old", detail),
        }
    }
}

impl From<GraphError> for Problem {
    fn from(error: GraphError) -> Self {
        let detail = error.to_string();
        match error {
            GraphError::NotFound { .. } => Self::new("graph_not_found", detail),
            GraphError::NoMember { .. } => Self::new("job_not_found", detail),
            GraphError::Computing { .. } => {
                Self::new("graph_computing", detail).retry_after(RETRY_AFTER_DEFAULT)
            }
            GraphError::Route(error) => error.into(),
        }
    }
}

impl From<RouteError> for Problem {
    fn from(error: RouteError) -> Self {
        let detail = error.to_string();
        match error {
            RouteError::Call(error) => error.into(),
            RouteError::Unknown { .. } => Self::new("unknown_shard", detail),
            RouteError::Unreachable { .. } => {
                Self::new("shard_unreachable", detail).retry_after(RETRY_AFTER_DEFAULT)
            }
            RouteError::OutcomeUnknown { .. } => Self::new("outcome_unknown", detail),
            RouteError::NoSuchDependency { .. } => Self::new("dependency_not_found", detail),
            RouteError::Refused { code, .. } => {
                // An unknown code comes from a newer server.
                let row = CODES.iter().find(|row| row.0 == code);
                let (code, status, _) = row.copied().unwrap_or(("internal", 500, ""));
                let problem = Self::new(code, detail);
                if matches!(status, 429 | 503) {
                    problem.retry_after(RETRY_AFTER_DEFAULT)
                } else {
                    problem
                }
            }
        }
    }
}

/// The problem for a reply that does not belong to the command, which is a defect of the server.
pub(crate) fn unexpected_reply() -> Problem {
    Problem::new(
        "internal",
        "the shard answered with another kind of reply; this is a defect",
    )
}
