//! Errors as RFC 9457 problem documents, with one table of codes.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use ganger_access::CONTINUE;
use ganger_document::DocumentError;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

/// All codes of this dialect: code, status, title.
///
/// A code, once released, keeps its meaning and its status.
pub(crate) const CODES: &[(&str, u16, &str)] = &[
    // Refused by the engine.
    ("job_not_found", 404, "Job not found"),
    ("job_prepared", 503, "Job not decided yet"),
    ("lease_lost", 409, "Lease lost"),
    (
        "report_conflict",
        409,
        "Another outcome was reported before",
    ),
    ("id_taken", 409, "Job id taken"),
    ("id_busy", 409, "Job id in use"),
    ("id_empty", 422, "Job id empty"),
    ("id_reserved", 422, "Job id reserved"),
    ("idempotency_conflict", 409, "Idempotency key used before"),
    ("idempotency_busy", 409, "Idempotency key in use"),
    ("dependency_not_found", 422, "Dependency not found"),
    ("member_not_found", 422, "Member not found"),
    ("cycle", 422, "Jobs wait for each other"),
    ("duplicate_id", 422, "Id used twice"),
    ("nothing_submitted", 422, "Nothing submitted"),
    ("kind_missing", 422, "Kind missing"),
    ("too_large", 413, "Too large"),
    ("out_of_range", 422, "Out of range"),
    ("queue_full", 429, "Queue full"),
    ("wrong_state", 409, "Job in the wrong state"),
    ("in_use", 409, "Job still needed"),
    ("dependency_carries_data", 409, "Dependency carries data"),
    ("graph_not_found", 404, "Graph not found"),
    ("queue_not_found", 404, "Queue not found"),
    ("queue_in_use", 409, "Queue has jobs"),
    ("settings_changed", 412, "Settings changed"),
    ("schedule_not_found", 404, "Schedule not found"),
    ("operation_not_found", 404, "Operation not found"),
    ("cron_unreadable", 422, "Cron expression unreadable"),
    ("cron_never_fires", 422, "Cron expression never fires"),
    ("time_zone_unknown", 422, "Time zone unknown"),
    ("deadline_passed", 422, "Deadline passed"),
    ("not_reserved", 409, "Numbers not reserved"),
    ("not_prepared", 409, "Submission not prepared"),
    ("one_shard_only", 422, "Possible on one shard only"),
    ("own_shard", 422, "The shard's own name"),
    ("peer_not_stopped", 409, "Traffic not stopped"),
    ("clock_missing", 422, "Caller's clock missing"),
    // The shard cannot serve.
    ("overloaded", 503, "Overloaded"),
    ("store_full", 503, "Store full"),
    ("unavailable", 503, "Not available"),
    ("shard_unreachable", 503, "Shard not reachable"),
    ("outcome_unknown", 504, "Outcome unknown"),
    ("graph_computing", 503, "Graph being read"),
    ("store_damaged", 500, "Stored record damaged"),
    ("position_too_old", 410, "Position too old"),
    // Refused by this dialect.
    ("alert_not_found", 404, "Alert not found"),
    ("node_not_found", 404, "Node not found"),
    ("node_takes_no_shards", 409, "Node takes no shards"),
    ("alert_without_webhook", 409, "Alert without webhook"),
    ("malformed_json", 400, "Malformed JSON"),
    ("too_deep", 400, "JSON nested too deeply"),
    ("unknown_field", 400, "Unknown field"),
    ("missing_field", 400, "Missing field"),
    ("duplicate_field", 400, "Duplicate field"),
    ("invalid_value", 400, "Invalid value"),
    ("unknown_parameter", 400, "Unknown query parameter"),
    ("body_incomplete", 400, "Body incomplete"),
    ("body_too_large", 413, "Body too large"),
    (
        "content_type_unsupported",
        415,
        "Content type not supported",
    ),
    ("path_not_found", 404, "Path not found"),
    ("method_not_allowed", 405, "Method not allowed"),
    ("result_not_found", 404, "No result"),
    ("unknown_reference", 422, "Unknown reference"),
    ("unknown_shard", 422, "Unknown shard"),
    ("unauthorized", 401, "Not authorised"),
    ("permission_denied", 403, "Not allowed"),
    ("too_many_attempts", 429, "Too many failed attempts"),
    ("host_refused", 421, "Host refused"),
    ("cross_site_refused", 403, "Cross-site request refused"),
    ("internal", 500, "Internal error"),
];

/// Why a request was refused, as `application/problem+json` (RFC 9457).
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Stable code, documented in `docs/errors.md`.
    pub code: &'static str,
    /// What is wrong, where, the limit, and the next step.
    pub detail: String,
    /// JSON pointer to the offending value in the body; `None` if no single value is to blame.
    pub pointer: Option<String>,
    /// Line and column in the body, from 1; `None` if the body is not the cause.
    pub place: Option<(usize, usize)>,
    /// Time after which to retry; `None` if a retry does not help or the time is unknown.
    pub retry_after: Option<Duration>,
    /// Place from which another node goes on with the answer, because the shard moves there; `None` if this is the answer.
    pub continue_at: Option<u64>,
}

/// The document of a [`Problem`].
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemView<'a> {
    /// URN of the error: `urn:ganger:error:` and the code.
    r#type: String,
    /// Title, which is the same for all problems with this code.
    title: &'static str,
    /// HTTP status of the answer.
    status: u16,
    /// Stable code of the error, for programs.
    code: &'static str,
    /// What is wrong, where, the limit, and the next step.
    detail: &'a str,
    /// JSON pointer to the offending value in the body; absent if no single value is to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<&'a str>,
    /// Line in the body, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// Column of that line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    /// Seconds after which to retry; absent if a retry does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
}

impl From<DocumentError> for Problem {
    fn from(error: DocumentError) -> Self {
        let detail = match error.pointer.as_deref() {
            Some("") => format!("the body: {}", error.detail),
            _ => error.detail,
        };
        Self {
            code: error.code,
            detail,
            pointer: error.pointer,
            place: error.place,
            retry_after: None,
            continue_at: None,
        }
    }
}

impl Problem {
    /// A problem with one of the documented codes.
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            pointer: None,
            place: None,
            retry_after: None,
            continue_at: None,
        }
    }

    /// Adds the JSON pointer to the offending value.
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>) -> Self {
        self.pointer = Some(pointer.into());
        self
    }

    /// Adds the time after which to retry.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Lets the node that the caller is connected to send the request again, to the next owner of the shard.
    #[must_use]
    pub(crate) fn continue_at(mut self, place: u64) -> Self {
        self.continue_at = Some(place);
        self
    }

    /// The HTTP status of the code.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.row().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The document, to embed in another one.
    pub(crate) fn view(&self) -> ProblemView<'_> {
        let (code, status, title) = self.row();
        ProblemView {
            r#type: format!("urn:ganger:error:{code}"),
            title,
            status,
            code,
            detail: &self.detail,
            pointer: self.pointer.as_deref(),
            line: self.place.map(|(line, _)| line),
            column: self.place.map(|(_, column)| column),
            retry_after_seconds: self.retry_after_seconds(),
        }
    }

    fn row(&self) -> (&'static str, u16, &'static str) {
        let internal = (self.code, 500, "Internal error");
        CODES
            .iter()
            .copied()
            .find(|row| row.0 == self.code)
            .unwrap_or(internal)
    }

    /// Whole seconds, rounded up, because `Retry-After` has no fractions and 0 would cause a storm of retries.
    fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after
            .map(|after| after.as_secs() + u64::from(after.subsec_nanos() > 0))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.view()).expect("a problem is plain data");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(place) = self.continue_at {
            headers.insert(CONTINUE, HeaderValue::from(place));
        }
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == "unauthorized" {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"ganger\""),
            );
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::Rejection;

    #[test]
    fn every_rejection_has_a_status_and_no_code_stands_twice() {
        for code in Rejection::CODES {
            assert!(CODES.iter().any(|row| row.0 == code), "{code} has no row");
        }
        let mut codes: Vec<_> = CODES.iter().map(|row| row.0).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), CODES.len());
    }

    #[test]
    fn retry_after_is_rounded_up() {
        let problem = Problem::new("overloaded", "x").retry_after(Duration::from_millis(1_200));
        let response = problem.into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
    }
}
