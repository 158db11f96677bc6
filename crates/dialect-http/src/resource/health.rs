//! Whether the server lives, whether it can work, and what it is.

use axum::extract::State;
use axum::response::Response;
use ganger_shard::Health;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Api;
use crate::json;
use crate::openapi;

/// That the process answers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Live)]
pub(crate) struct LiveView {
    /// Always `live`.
    status: &'static str,
    /// Whether the server is open to others without any check.
    insecure: bool,
}

/// Whether the shard can work.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Readiness)]
pub(crate) struct ReadinessView {
    /// ready, starting, full (no new work for lack of space), stopped, stopping.
    status: &'static str,
    /// While starting: jobs read so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs_loaded: Option<u64>,
}

/// What the server is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Version)]
pub(crate) struct VersionView {
    /// The version.
    version: &'static str,
    /// The shard it serves.
    shard: String,
}

pub(crate) async fn live(State(api): State<Api>) -> Response {
    json::ok(&LiveView {
        status: "live",
        insecure: api.settings().is_insecure,
    })
}

/// Says no reason: this answer is open to everyone. The reason stands in the log.
pub(crate) async fn ready(State(api): State<Api>) -> Response {
    let (code, status, jobs_loaded) = match api.shard().health() {
        _ if api.settings().stopping.is_cancelled() => (503, "stopping", None),
        Health::Ready => (200, "ready", None),
        Health::Full => (200, "full", None),
        Health::Starting { jobs } => (503, "starting", Some(jobs)),
        Health::Stopped { .. } => (503, "stopped", None),
    };
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json::answer(
        code,
        &ReadinessView {
            status,
            jobs_loaded,
        },
    )
}

pub(crate) async fn version(State(api): State<Api>) -> Response {
    let shard = api.shard().id().to_string();
    json::ok(&VersionView {
        version: api.settings().version,
        shard,
    })
}

pub(crate) async fn describe(State(api): State<Api>) -> Response {
    json::ok(&openapi::document(api.settings().version))
}
