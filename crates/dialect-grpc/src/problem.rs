//! Errors: one table from our stable codes to gRPC's.

use std::fmt;
use std::time::Duration;

use ganger_proto::convert::FieldError;
use ganger_proto::{metadata, v1};
use ganger_router::{GraphError, OrderError, RouteError};
use ganger_shard::CallError;
use ganger_types::Rejection;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// Every code that this dialect answers with: the code, gRPC's code, whether to try again later.
pub const CODES: &[(&str, Code, bool)] = &[
    // Refused by the engine.
    ("job_not_found", Code::NotFound, false),
    ("job_prepared", Code::Unavailable, true),
    ("lease_lost", Code::FailedPrecondition, false),
    ("report_conflict", Code::FailedPrecondition, false),
    ("id_taken", Code::AlreadyExists, false),
    ("id_busy", Code::Aborted, true),
    ("id_empty", Code::InvalidArgument, false),
    ("id_reserved", Code::InvalidArgument, false),
    ("idempotency_conflict", Code::AlreadyExists, false),
    ("idempotency_busy", Code::Aborted, true),
    ("dependency_not_found", Code::InvalidArgument, false),
    ("member_not_found", Code::InvalidArgument, false),
    ("cycle", Code::InvalidArgument, false),
    ("duplicate_id", Code::InvalidArgument, false),
    ("nothing_submitted", Code::InvalidArgument, false),
    ("kind_missing", Code::InvalidArgument, false),
    ("too_large", Code::InvalidArgument, false),
    ("out_of_range", Code::InvalidArgument, false),
    ("queue_full", Code::ResourceExhausted, true),
    ("wrong_state", Code::FailedPrecondition, false),
    ("in_use", Code::FailedPrecondition, false),
    ("dependency_carries_data", Code::FailedPrecondition, false),
    ("graph_not_found", Code::NotFound, false),
    ("queue_not_found", Code::NotFound, false),
    ("queue_in_use", Code::FailedPrecondition, false),
    ("settings_changed", Code::Aborted, false),
    ("schedule_not_found", Code::NotFound, false),
    ("operation_not_found", Code::NotFound, false),
    ("cron_unreadable", Code::InvalidArgument, false),
    ("cron_never_fires", Code::InvalidArgument, false),
    ("time_zone_unknown", Code::InvalidArgument, false),
    ("deadline_passed", Code::InvalidArgument, false),
    ("not_reserved", Code::Aborted, true),
    ("not_prepared", Code::FailedPrecondition, false),
    ("one_shard_only", Code::InvalidArgument, false),
    ("own_shard", Code::InvalidArgument, false),
    ("peer_not_stopped", Code::FailedPrecondition, false),
    ("clock_missing", Code::FailedPrecondition, false),
    // The shard cannot serve.
    ("overloaded", Code::ResourceExhausted, true),
    ("store_full", Code::ResourceExhausted, true),
    ("unavailable", Code::Unavailable, true),
    ("shard_unreachable", Code::Unavailable, true),
    ("outcome_unknown", Code::Unknown, true),
    ("graph_computing", Code::Unavailable, true),
    ("store_damaged", Code::DataLoss, false),
    ("position_too_old", Code::OutOfRange, false),
    // Refused by this dialect.
    ("alert_not_found", Code::NotFound, false),
    ("node_not_found", Code::NotFound, false),
    ("node_takes_no_shards", Code::FailedPrecondition, false),
    ("alert_without_webhook", Code::FailedPrecondition, false),
    ("missing_field", Code::InvalidArgument, false),
    ("invalid_value", Code::InvalidArgument, false),
    ("duplicate_field", Code::InvalidArgument, false),
    ("unknown_reference", Code::InvalidArgument, false),
    ("unknown_shard", Code::InvalidArgument, false),
    ("unauthorized", Code::Unauthenticated, false),
    ("permission_denied", Code::PermissionDenied, false),
    ("stream_silent", Code::DeadlineExceeded, true),
    ("internal", Code::Internal, false),
];

/// Default time after which a client may try again.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The stable code, documented in `docs/errors.md`.
    pub code: &'static str,
    /// What, where, which limit, and the next step.
    pub message: String,
    /// When trying again makes sense.
    pub retry_after: Option<Duration>,
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        Self::new(error.code, error.message)
    }
}

impl Problem {
    /// The answer to what waits while the server stops.
    pub(crate) fn stopping() -> Self {
        Self::new("unavailable", "the server is stopping: try again").after(RETRY_AFTER_DEFAULT)
    }

    /// A problem with one of the documented codes.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retry_after: None,
        }
    }

    /// A field with a value that it cannot have.
    pub(crate) fn invalid(field: impl fmt::Display, reason: impl fmt::Display) -> Self {
        FieldError::invalid(field, reason).into()
    }

    /// A field that must be there.
    pub(crate) fn missing(field: impl fmt::Display, what: &str) -> Self {
        FieldError::missing(field, what).into()
    }

    /// A list or number beyond its limit.
    pub(crate) fn too_large(field: impl fmt::Display, actual: usize, limit: usize) -> Self {
        FieldError::too_large(field, actual, limit).into()
    }

    /// A reply of the shard that does not belong to the command: a mistake of ours.
    pub(crate) fn unexpected() -> Self {
        Self::new(
            "internal",
            "the shard gave the reply of another command: please report this",
        )
    }

    /// The problem of something that may be there soon.
    pub(crate) fn after_default(self) -> Self {
        self.after(RETRY_AFTER_DEFAULT)
    }

    fn after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    fn row(&self) -> (Code, bool) {
        let row = CODES.iter().find(|row| row.0 == self.code);
        row.map_or((Code::Internal, false), |row| (row.1, row.2))
    }

    fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after
            .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1))
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let problem = Self::new(rejection.code(), rejection.to_string());
        if rejection.passes() {
            problem.after(RETRY_AFTER_DEFAULT)
        } else {
            problem
        }
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let message = error.to_string();
        match error {
            CallError::Rejected(rejection) => rejection.into(),
            CallError::Overloaded { retry_after, .. } => {
                Self::new("overloaded", message).after(retry_after)
            }
            CallError::Full { .. } => {
                Self::new("store_full", message).after(10 * RETRY_AFTER_DEFAULT)
            }
            CallError::Unavailable { .. } => {
                Self::new("unavailable", message).after(RETRY_AFTER_DEFAULT)
            }
            CallError::Damaged { .. } => Self::new("store_damaged", message),
            CallError::PositionTooOld { .. } => Self::new("position_too_old", message),
        }
    }
}

impl From<RouteError> for Problem {
    fn from(error: RouteError) -> Self {
        let message = error.to_string();
        match error {
            RouteError::Call(error) => error.into(),
            RouteError::Unknown { .. } => Self::new("unknown_shard", message),
            RouteError::Unreachable { .. } => {
                Self::new("shard_unreachable", message).after(RETRY_AFTER_DEFAULT)
            }
            RouteError::OutcomeUnknown { .. } => {
                Self::new("outcome_unknown", message).after(RETRY_AFTER_DEFAULT)
            }
            RouteError::NoSuchDependency { .. } => Self::new("dependency_not_found", message),
            RouteError::Refused { code, .. } => {
                // A code that is not known here is of a newer server.
                let row = CODES.iter().find(|row| row.0 == code);
                let (code, _, is_retryable) = *row.unwrap_or(&("internal", Code::Internal, false));
                let problem = Self::new(code, message);
                if is_retryable {
                    problem.after(RETRY_AFTER_DEFAULT)
                } else {
                    problem
                }
            }
        }
    }
}

impl From<OrderError> for Problem {
    fn from(error: OrderError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<GraphError> for Problem {
    fn from(error: GraphError) -> Self {
        let message = error.to_string();
        match error {
            GraphError::NotFound { .. } => Self::new("graph_not_found", message),
            GraphError::NoMember { .. } => Self::new("job_not_found", message),
            GraphError::Computing { .. } => {
                Self::new("graph_computing", message).after(RETRY_AFTER_DEFAULT)
            }
            GraphError::Route(error) => error.into(),
        }
    }
}

impl From<Problem> for Status {
    fn from(problem: Problem) -> Self {
        let (code, is_retryable) = problem.row();
        let mut values = MetadataMap::new();
        values.insert(
            metadata::CODE,
            tonic::metadata::MetadataValue::from_static(problem.code),
        );
        let word = if is_retryable { "true" } else { "false" };
        values.insert(
            metadata::RETRYABLE,
            tonic::metadata::MetadataValue::from_static(word),
        );
        if let Some(ms) = problem.retry_after_ms() {
            values.insert(metadata::RETRY_AFTER_MS, ms.into());
        }
        Self::with_metadata(code, problem.message, values)
    }
}

impl From<Problem> for v1::Error {
    fn from(problem: Problem) -> Self {
        Self {
            code: problem.code.to_owned(),
            retryable: problem.row().1,
            retry_after_ms: problem.retry_after_ms(),
            message: problem.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rejection_has_a_row_and_no_code_stands_twice() {
        for code in Rejection::CODES {
            assert!(CODES.iter().any(|row| row.0 == code), "{code} has no row");
        }
        let mut codes: Vec<_> = CODES.iter().map(|row| row.0).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), CODES.len());
    }

    #[test]
    fn a_status_carries_code_and_hint() {
        let status =
            Status::from(Problem::new("overloaded", "x").after(Duration::from_millis(250)));
        assert_eq!(status.code(), Code::ResourceExhausted);
        let told = |key| {
            status
                .metadata()
                .get(key)
                .and_then(|value| value.to_str().ok())
        };
        assert_eq!(told(metadata::CODE), Some("overloaded"));
        assert_eq!(told(metadata::RETRYABLE), Some("true"));
        assert_eq!(told(metadata::RETRY_AFTER_MS), Some("250"));
    }
}
