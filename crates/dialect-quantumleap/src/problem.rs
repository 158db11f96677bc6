//! Error answers in QuantumLeap's form: problem documents without codes, indented, with members in alphabetical order.

use axum::response::{IntoResponse, Response};
use ganger_ngsi::notification::NotificationError;
use ganger_shard::CallError;
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

/// An error answer: an HTTP status and its detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
        }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<NotificationError> for Problem {
    fn from(error: NotificationError) -> Self {
        let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_REQUEST);
        Self::new(status, error.detail)
    }
}

/// Converts the error of a request to the shard.
impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = json!({
            "detail": self.detail,
            "status": self.status.as_u16(),
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "type": "about:blank",
        });
        let text = format!("{document:#}\n");
        let mut response = (self.status, text).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        response
    }
}

/// Returns a response with JSON text and a line feed.
pub(crate) fn json_line(status: StatusCode, text: impl std::fmt::Display) -> Response {
    let mut response = (status, format!("{text}\n")).into_response();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_problem_reads_as_quantumleap_writes_it() {
        let problem = Problem::bad_request("Request body is not valid JSON");
        let response = problem.into_response();
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "application/problem+json"
        );
        let body = response.into_body().collect().await.expect("whole");
        let wanted = r#"{
  "detail": "Request body is not valid JSON",
  "status": 400,
  "title": "Bad Request",
  "type": "about:blank"
}
"#;
        assert_eq!(body.to_bytes(), wanted);
    }

    #[test]
    fn titles_are_those_of_the_status() {
        for (status, title) in [
            (StatusCode::BAD_REQUEST, "Bad Request"),
            (StatusCode::NOT_FOUND, "Not Found"),
            (StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, "Unsupported Media Type"),
            (StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error"),
        ] {
            assert_eq!(status.canonical_reason(), Some(title));
        }
    }
}
