//! Reading bodies within limits: of the single request, and of all that are in flight together.

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::sync::SemaphorePermit;

use crate::api::Api;
use crate::problem::Problem;

/// How long a sender may fall silent in the middle of a body.
pub(crate) const BODY_SILENT_MAX: Duration = Duration::from_secs(30);

/// The unit in which bytes in flight are counted.
const BUDGET_UNIT: usize = 1 << 10;

/// Reads a whole body of at most `limit` bytes.
pub(crate) async fn read(api: &Api, request: Request, limit: usize) -> Result<Bytes, Problem> {
    let mut body = request.into_body();
    let announced = HttpBody::size_hint(&body).lower();
    if announced > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(too_large(limit));
    }
    let mut budget = Budget {
        api,
        permits: None,
        units: 0,
    };
    let mut whole = BytesMut::new();
    while let Some(data) = next_data(&mut body).await? {
        if whole.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        budget.grow(whole.len() + data.len())?;
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// The next bytes, unless the sender is silent for too long. Trailers count as no bytes.
pub(crate) async fn next_data(body: &mut Body) -> Result<Option<Bytes>, Problem> {
    match tokio::time::timeout(BODY_SILENT_MAX, body.frame()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
        Ok(Some(Err(error))) => Err(Problem::new(
            "body_incomplete",
            format!("the body broke off: {error}; nothing was done, send it again"),
        )),
        Err(_) => Err(Problem::new(
            "body_incomplete",
            format!(
                "no byte of the body came for {} s; nothing was done, send it again",
                BODY_SILENT_MAX.as_secs()
            ),
        )),
    }
}

fn too_large(limit: usize) -> Problem {
    Problem::new(
        "body_too_large",
        format!(
            "the body is larger than {limit} bytes: send less at once; many jobs go to /api/v1/jobs/batch, which has no limit"
        ),
    )
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
                "overloaded",
                "requests in flight hold as many bytes as they may together: try again",
            )
            .retry_after(Duration::from_secs(1))
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
    (bytes / BUDGET_UNIT).max(1)
}
