//! Reading JSON strictly: bounded depth, no unknown and no double fields, errors that name the place.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use ganger_access::{Full, Hold, typed_bytes};
use ganger_types::json_error::in_json_words;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use crate::api::Api;
use crate::body;
use crate::problem::Problem;

/// Levels of nesting taken, payloads included: what reads our answers should not fall over them.
pub(crate) const DEPTH_MAX: usize = 128;

/// Bytes of a body that is read where it arrives: about a millisecond.
const READ_AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// A JSON body of type `T`.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Api> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        require_type(request.headers(), &["application/json"])?;
        let hold = request.extensions().get().cloned();
        let body = body::read(request, api.settings().body_bytes_max).await?;
        apart(api, hold, body, |body| read(body)).await.map(Self)
    }
}

/// A JSON body that may be left out; then it is the default of `T`.
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
        apart(api, hold, body, |body| read(body)).await.map(Self)
    }
}

/// One document or a list of them.
pub(crate) enum OneOrMany<T> {
    /// One: its answer is the answer.
    One(T),
    /// Several: each is answered by itself.
    Many(Vec<T>),
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<Api> for OneOrMany<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        require_type(request.headers(), &["application/json"])?;
        let hold = request.extensions().get().cloned();
        let body = body::read(request, api.settings().body_bytes_max).await?;
        let read_either = |body: &[u8]| {
            if body.trim_ascii_start().starts_with(b"[") {
                read(body).map(Self::Many)
            } else {
                read(body).map(Self::One)
            }
        };
        apart(api, hold, body, read_either).await
    }
}

/// Refuses a body that does not say it is one of `wanted`. A page of another site cannot send these
/// types without asking first, so this is also a guard.
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

/// Reads a body with `read`: a large one beside the threads that serve others, and one such at a time, because what is read
/// of a short document may take forty times its bytes.
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
        // A defect: the layer that catches panics tells of it.
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

/// Reads one JSON document from the bytes of a body.
pub(crate) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    check_depth(text)?;
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| explain(error.inner(), &pointer(error.path())))?;
    deserializer.end().map_err(|error| explain(&error, ""))?;
    Ok(value)
}

/// Refuses what is nested too deeply, before any parser sees it.
fn check_depth(text: &[u8]) -> Result<(), Problem> {
    if depth(text) > DEPTH_MAX {
        return Err(Problem::new(
            "too_deep",
            format!(
                "the JSON is nested more than {DEPTH_MAX} levels deep: flatten it, or send it as payload_base64"
            ),
        ));
    }
    Ok(())
}

/// Levels of nesting of a JSON text; for other bytes some number.
pub(crate) fn depth(text: &[u8]) -> usize {
    let (mut level, mut deepest) = (0_usize, 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    for &byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                level += 1;
                deepest = deepest.max(level);
            }
            b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Blanks commas that stand before a closing bracket, in place: offsets in later errors stay true.
///
/// The examples of enq's documentation carry them, and someone will paste them.
pub(crate) fn blank_trailing_commas(text: &mut [u8]) {
    let (mut in_string, mut escaped) = (false, false);
    let mut comma = None;
    for at in 0..text.len() {
        match text[at] {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => {
                in_string = !in_string;
                comma = None;
            }
            _ if in_string => {}
            b',' => comma = Some(at),
            b']' | b'}' => {
                if let Some(at) = comma.take() {
                    text[at] = b' ';
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
    }
}

/// A JSON pointer (RFC 6901) from the path that the deserializer walked.
fn pointer(path: &Path) -> String {
    let mut out = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                out.push('/');
                out.push_str(&index.to_string());
            }
            Segment::Map { key } | Segment::Enum { variant: key } => {
                out.push('/');
                out.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            Segment::Unknown => {}
        }
    }
    out
}

fn explain(error: &serde_json::Error, pointer: &str) -> Problem {
    use serde_json::error::Category;
    let text = error.to_string();
    // The place is told beside the message, not in it.
    let message = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(message, _)| message);
    let mut problem = match error.classify() {
        Category::Data => explain_data(message, pointer),
        // Such as 1e400: JSON, but of no use to us.
        _ if message == "number out of range" => explain_data(message, pointer),
        Category::Syntax | Category::Eof | Category::Io => Problem::new(
            "malformed_json",
            format!("the body is not valid JSON: {message}"),
        ),
    };
    if error.line() > 0 {
        problem.place = Some((error.line(), error.column()));
    }
    problem
}

fn explain_data(message: &str, pointer: &str) -> Problem {
    let code = if message.starts_with("unknown field") {
        "unknown_field"
    } else if message.starts_with("missing field") {
        "missing_field"
    } else if message.starts_with("duplicate field") {
        "duplicate_field"
    } else {
        "invalid_value"
    };
    let place = if pointer.is_empty() {
        "the body".to_owned()
    } else {
        pointer.to_owned()
    };
    let message = in_json_words(message);
    Problem::new(code, format!("{place}: {message}")).at(pointer)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[expect(dead_code, reason = "only reading it is tested")]
        inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "only reading it is tested")]
        number: u32,
    }

    #[test]
    fn errors_name_code_and_place() {
        for (text, code, place) in [
            (
                r#"{"inner":[{"number":1},{"number":2,"x":3}]}"#,
                "unknown_field",
                "/inner/1/x",
            ),
            (r#"{"inner":[{}]}"#, "missing_field", "/inner/0"),
            (
                r#"{"inner":[{"number":1,"number":2}]}"#,
                "duplicate_field",
                "/inner/0",
            ),
            (
                r#"{"inner":[{"number":4294967296}]}"#,
                "invalid_value",
                "/inner/0/number",
            ),
            (
                r#"{"inner":[{"number":-1}]}"#,
                "invalid_value",
                "/inner/0/number",
            ),
            (
                r#"{"inner":[{"number":1.5}]}"#,
                "invalid_value",
                "/inner/0/number",
            ),
            (
                r#"{"inner":[{"number":"1"}]}"#,
                "invalid_value",
                "/inner/0/number",
            ),
            (r#"{"inner":7}"#, "invalid_value", "/inner"),
            ("[]", "invalid_value", ""),
        ] {
            let problem = read::<Outer>(text.as_bytes()).expect_err(text);
            assert_eq!(problem.code, code, "{text}: {problem:?}");
            let pointer = problem.pointer.unwrap_or_default();
            assert!(pointer.starts_with(place), "{text}: {pointer}");
        }
        for text in [
            "",
            "{",
            "{\"inner\":[]} x",
            "{'inner':[]}",
            "{\"inner\":[],}",
            "\u{feff}{}",
        ] {
            assert_eq!(
                read::<Outer>(text.as_bytes()).expect_err(text).code,
                "malformed_json",
                "{text}"
            );
        }
        let deep = "[".repeat(100_000);
        assert_eq!(
            read::<Outer>(deep.as_bytes()).expect_err("deep").code,
            "too_deep"
        );
    }

    #[test]
    fn trailing_commas_are_blanked_outside_of_strings_only() {
        let mut text = br#"[{"a":[1,2, ],"b":",]\",}",},]"#.to_vec();
        blank_trailing_commas(&mut text);
        assert_eq!(text, br#"[{"a":[1,2  ],"b":",]\",}" } ]"#);
    }
}
