//! Reading of bodies, within the limits of one request. The server counts the memory of all requests together.

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use ganger_access::BodyCut;
use http_body_util::BodyExt;
use std::time::Duration;

use crate::problem::Problem;

/// Maximum time between two pieces of a body.
pub(crate) const BODY_SILENT_MAX: Duration = Duration::from_secs(30);

/// Reads a whole body of at most `limit` bytes.
pub(crate) async fn read(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let mut body = request.into_body();
    let announced = HttpBody::size_hint(&body).lower();
    if announced > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(too_large(limit));
    }
    let mut whole = BytesMut::new();
    while let Some(data) = next_data(&mut body).await? {
        if whole.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// The next bytes of a body; an error if they take too long. Trailers are skipped.
pub(crate) async fn next_data(body: &mut Body) -> Result<Option<Bytes>, Problem> {
    match tokio::time::timeout(BODY_SILENT_MAX, body.frame()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
        Ok(Some(Err(error))) => Err(broken_off(&error)),
        Err(_) => Err(Problem::new(
            "body_incomplete",
            format!(
                "no byte of the body came for {} s; nothing was done, send it again",
                BODY_SILENT_MAX.as_secs()
            ),
        )),
    }
}

/// The problem of a body that ended early: the server has ended it for a reason, or the client has.
fn broken_off(error: &axum::Error) -> Problem {
    match BodyCut::of(error) {
        Some(cut @ BodyCut::Full(_)) => {
            Problem::new(cut.code(), cut.to_string()).retry_after(Duration::from_secs(1))
        }
        Some(cut) => Problem::new(cut.code(), cut.to_string()),
        None => Problem::new(
            "body_incomplete",
            format!("the body broke off: {error}; nothing was done, send it again"),
        ),
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
