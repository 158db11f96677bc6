//! JSON bodies and answers over HTTP. `ganger_document` parses the documents.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use ganger_access::{Full, Hold, typed_bytes};
use ganger_document::json;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::Api;
use crate::body;
use crate::problem::Problem;

/// Size up to which a body is parsed on the thread that received it: about a millisecond.
const READ_AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// A JSON body of type `T`.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Api> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        require_type(request.headers(), &["application/json"])?;
        let hold = request.extensions().get().cloned();
        let body = body::read(request, api.settings().body_bytes_max).await?;
        apart(api, hold, body, |body| Ok(json::read(body)?))
            .await
            .map(Self)
    }
}

/// A JSON body that may be omitted; it is then the default of `T`.
pub(crate) struct MaybeDoc<T>(pub(crate) T);

impl<T: DeserializeOwned + Default + Send + 'static> FromRequest<Api> for MaybeDoc<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let typed = require_type(request.headers(), &["application/json"]);
        let hold = request.extensions().get().cloned();
        let body = body::read(request, api.settings().body_bytes_max).await?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        typed?;
        apart(api, hold, body, |body| Ok(json::read(body)?))
            .await
            .map(Self)
    }
}

/// One document or a list of them.
pub(crate) enum OneOrMany<T> {
    /// One document, with one answer.
    One(T),
    /// A list, with an answer for each document.
    Many(Vec<T>),
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<Api> for OneOrMany<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        require_type(request.headers(), &["application/json"])?;
        let hold = request.extensions().get().cloned();
        let body = body::read(request, api.settings().body_bytes_max).await?;
        let read_either = |body: &[u8]| {
            Ok(if body.trim_ascii_start().starts_with(b"[") {
                Self::Many(json::read(body)?)
            } else {
                Self::One(json::read(body)?)
            })
        };
        apart(api, hold, body, read_either).await
    }
}

/// Refuses a body whose media type is not one of `wanted`. A page of another site cannot send these types without a
/// preflight request, so this also protects against such pages.
pub(crate) fn require_type(headers: &HeaderMap, wanted: &[&str]) -> Result<(), Problem> {
    let given = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = given.map(|value| value.split(';').next().unwrap_or_default().trim());
    if essence.is_some_and(|it| wanted.iter().any(|known| known.eq_ignore_ascii_case(it))) {
        return Ok(());
    }
    let wanted = wanted.join(" or ");
    let found = given.map_or_else(|| "is missing".to_owned(), |value| format!("is {value:?}"));
    Err(Problem::new(
        "content_type_unsupported",
        format!(
            "the header Content-Type {found}: send {wanted} (with curl: -H 'Content-Type: {wanted}')"
        ),
    ))
}

/// Parses a body with `read`. Large bodies are parsed on a blocking thread and one at a time, because a parsed
/// document may take forty times the size of its text.
pub(crate) async fn apart<T: Send + 'static>(
    api: &Api,
    hold: Option<Arc<Hold>>,
    body: Bytes,
    read: impl FnOnce(&[u8]) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    if body.len() <= READ_AT_ONCE_BYTES_MAX {
        if let Some(hold) = hold {
            hold.grow(typed_bytes(&body)).map_err(no_room)?;
        }
        return read(&body);
    }
    let turn = api.large_bodies().acquire().await;
    let reading = tokio::task::spawn_blocking(move || {
        if let Some(hold) = hold {
            hold.overdraw(typed_bytes(&body)).map_err(no_room)?;
        }
        read(&body)
    });
    let outcome = reading.await;
    drop(turn);
    match outcome {
        Ok(outcome) => outcome,
        // A panic is a defect, which the layer that catches panics reports.
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Problem::new(
                "unavailable",
                "the server is stopping: try again",
            )),
        },
    }
}

fn no_room(full: Full) -> Problem {
    Problem::new("overloaded", full.to_string()).retry_after(Duration::from_secs(1))
}

/// An answer with a JSON document.
pub(crate) fn answer(status: StatusCode, document: &impl Serialize) -> Response {
    let body = serde_json::to_vec(document).expect("our documents are plain data");
    let json = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, json)], body).into_response()
}

/// An answer with status 200.
pub(crate) fn ok(document: &impl Serialize) -> Response {
    answer(StatusCode::OK, document)
}
