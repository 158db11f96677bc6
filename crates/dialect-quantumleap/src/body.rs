//! Reads bodies within limits: that of the request, and that of all requests in progress, which the server counts.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use ganger_access::{BodyCut, Hold};
use ganger_types::query::Query;
use ganger_types::{Command, Reply};
use http::StatusCode;
use http_body_util::BodyExt as _;

use crate::api::Api;
use crate::problem::Problem;

/// Longest pause of a sender within a body.
const BODY_SILENT_MAX: Duration = Duration::from_secs(30);
/// Maximum bytes of a notification in addition to the entities, which become the payload.
const ENVELOPE_BYTES: usize = 64 << 10;

/// Reads a whole body. If notifications are only queued, the limit is that of the namespace's payloads.
pub(crate) async fn read(api: &Api, mut body: Body) -> Result<Bytes, Problem> {
    let mut limit = Limit::new(api);
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    limit.check(announced).await?;
    let mut whole = BytesMut::new();
    while let Some(data) = next_data(&mut body).await? {
        limit.check(whole.len() + data.len()).await?;
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// The limit of a body's bytes.
struct Limit<'a> {
    api: &'a Api,
    bytes: usize,
    /// Whether the namespace's limit is included in `bytes`.
    is_final: bool,
}

impl<'a> Limit<'a> {
    fn new(api: &'a Api) -> Self {
        let bytes_max = api.settings().body_bytes_max;
        let bytes = if api.is_queued_only() {
            bytes_max.min(ENVELOPE_BYTES)
        } else {
            bytes_max
        };
        Self {
            api,
            bytes,
            is_final: false,
        }
    }

    /// Refuses a body that is too long. The namespace's limit is read once, when a body exceeds the server's.
    async fn check(&mut self, length: usize) -> Result<(), Problem> {
        if length > self.bytes && !self.is_final {
            self.is_final = true;
            let payload = payload_bytes_max(self.api).await;
            self.bytes = self.bytes.max(payload.saturating_add(ENVELOPE_BYTES));
        }
        if length <= self.bytes {
            return Ok(());
        }
        let setting = if self.api.is_queued_only() {
            "`payload_bytes_max` of the namespace"
        } else {
            "`limits.body_bytes` of the server"
        };
        let limit = self.bytes;
        let detail = format!(
            "the notification is larger than {limit} bytes: send fewer entities at once, or raise {setting}"
        );
        Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail))
    }
}

/// Adds the estimated memory of the parsed body to the budget, before parsing.
pub(crate) fn count_parsed(hold: Option<&Hold>, body: &[u8]) -> Result<(), Problem> {
    let Some(hold) = hold else {
        return Ok(());
    };
    let bytes = ganger_access::tree_bytes(body);
    let share = hold.budget().share();
    if bytes > share {
        let detail = format!(
            "the parsed notification needs about {bytes} bytes of memory, and the limit of an identity is {share}: send fewer entities or shorter lists at once, or raise `limits.bytes_in_flight` of the server"
        );
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    hold.grow(bytes)
        .map_err(|full| Problem::new(StatusCode::SERVICE_UNAVAILABLE, full.to_string()))
}

/// Returns the namespace's limit of a payload; the default if it has no settings or the shard does not respond.
async fn payload_bytes_max(api: &Api) -> usize {
    let command = Command::Query(Box::new(Query::Namespaces));
    let namespaces = match api.shard().call(command).await {
        Ok(Reply::Namespaces(namespaces)) => namespaces,
        _ => Vec::new(),
    };
    let own = &api.settings().namespace;
    let record = namespaces
        .into_iter()
        .find(|record| record.namespace == *own);
    let settings = record.map(|record| record.settings).unwrap_or_default();
    usize::try_from(settings.payload_bytes_max).unwrap_or(usize::MAX)
}

/// Reads the next bytes; fails if the sender pauses for too long. Trailers are empty bytes.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, Problem> {
    match tokio::time::timeout(BODY_SILENT_MAX, body.frame()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
        Ok(Some(Err(error))) => Err(body_error(&error)),
        Err(_) => Err(Problem::bad_request(format!(
            "no byte of the body arrived for {} s; nothing was stored, send it again",
            BODY_SILENT_MAX.as_secs()
        ))),
    }
}

/// Converts the error of a body: either the server cut it off for a reason, or the sender did.
fn body_error(error: &axum::Error) -> Problem {
    match BodyCut::of(error) {
        Some(cut @ BodyCut::Full(_)) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, cut.to_string())
        }
        Some(cut @ BodyCut::Revoked) => Problem::new(StatusCode::UNAUTHORIZED, cut.to_string()),
        Some(cut) => Problem::bad_request(cut.to_string()),
        None => Problem::bad_request(format!(
            "the body was cut off: {error}; nothing was stored, send it again"
        )),
    }
}
