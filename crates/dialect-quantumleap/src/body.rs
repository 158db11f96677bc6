//! Reading bodies within limits: of the single request, and of all that are in flight together.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use ganger_access::BodyCut;
use ganger_types::query::Query;
use ganger_types::{Command, Reply};
use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::sync::SemaphorePermit;

use crate::api::Api;
use crate::problem::Problem;

/// How long a sender may fall silent in the middle of a body.
const BODY_SILENT_MAX: Duration = Duration::from_secs(30);
/// What a notification may have around the entities that become a payload.
const ENVELOPE_BYTES: usize = 64 << 10;
/// The unit in which bytes in flight are counted.
const BUDGET_UNIT: usize = 1 << 10;

/// Reads a whole body.
pub(crate) async fn read(api: &Api, mut body: Body) -> Result<Bytes, Problem> {
    let mut limit = api.settings().body_bytes_max;
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    raise(api, &mut limit, announced).await?;
    let mut budget = Budget {
        api,
        permits: None,
        units: 0,
    };
    let mut whole = BytesMut::new();
    while let Some(data) = next_data(&mut body).await? {
        let length = whole.len() + data.len();
        raise(api, &mut limit, length).await?;
        budget.grow(length)?;
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Raises the limit to what the namespace takes as a payload, if that is needed and enough.
async fn raise(api: &Api, limit: &mut usize, length: usize) -> Result<(), Problem> {
    if length <= *limit {
        return Ok(());
    }
    *limit = (*limit).max(payload_bytes_max(api).await.saturating_add(ENVELOPE_BYTES));
    if length <= *limit {
        return Ok(());
    }
    let detail = format!(
        "the notification is larger than {limit} bytes: send fewer entities at once, or raise `limits.body_bytes` of the server"
    );
    Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail))
}

/// What the namespace takes; nothing if the shard does not tell.
async fn payload_bytes_max(api: &Api) -> usize {
    let command = Command::Query(Box::new(Query::Namespaces));
    let Ok(Reply::Namespaces(known)) = api.shard().call(command).await else {
        return 0;
    };
    let own = &api.settings().namespace;
    let record = known.into_iter().find(|record| record.namespace == *own);
    record.map_or(0, |record| {
        usize::try_from(record.settings.payload_bytes_max).unwrap_or(usize::MAX)
    })
}

/// The next bytes, unless the sender is silent for too long. Trailers count as no bytes.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, Problem> {
    match tokio::time::timeout(BODY_SILENT_MAX, body.frame()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
        Ok(Some(Err(error))) => Err(broken_off(&error)),
        Err(_) => Err(Problem::bad_request(format!(
            "no byte of the body came for {} s; nothing was done, send it again",
            BODY_SILENT_MAX.as_secs()
        ))),
    }
}

/// The server in front ends a body for a reason; other ends are the sender's.
fn broken_off(error: &axum::Error) -> Problem {
    match BodyCut::of(error) {
        Some(cut @ BodyCut::Full(_)) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, cut.to_string())
        }
        Some(cut @ BodyCut::Revoked) => Problem::new(StatusCode::UNAUTHORIZED, cut.to_string()),
        Some(cut) => Problem::bad_request(cut.to_string()),
        None => Problem::bad_request(format!(
            "the body broke off: {error}; nothing was done, send it again"
        )),
    }
}

/// A share of the bytes that all requests together may hold while they are read.
struct Budget<'a> {
    api: &'a Api,
    permits: Option<SemaphorePermit<'a>>,
    units: usize,
}

impl Budget<'_> {
    fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        let units = bytes.div_ceil(BUDGET_UNIT);
        let more = u32::try_from(units - self.units).unwrap_or(u32::MAX);
        let permits = self.api.budget().try_acquire_many(more).map_err(|_| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "requests in flight hold as many bytes as they may together: try again",
            )
        })?;
        match &mut self.permits {
            Some(held) => held.merge(permits),
            None => self.permits = Some(permits),
        }
        self.units = units;
        Ok(())
    }
}

/// The permits for so many bytes in flight.
pub(crate) fn budget_units(bytes: usize) -> usize {
    (bytes / BUDGET_UNIT).clamp(1, tokio::sync::Semaphore::MAX_PERMITS)
}
