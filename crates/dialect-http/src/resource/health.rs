//! Health, readiness and version of the server.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ganger_shard::{Handle, Health};
use http::{StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Api;
use crate::json;
use crate::openapi;

/// The answer of a live process.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Live)]
pub(crate) struct LiveView {
    /// Status of the process: always `live`.
    status: &'static str,
    /// Whether other machines can use the server without authentication.
    insecure: bool,
}

/// The readiness of the server.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Readiness)]
pub(crate) struct ReadinessView {
    /// Status of the server: `ready`, `starting`, `full` (no new work for lack of space), `unreachable` (the
    /// store does not answer), `stopped` or `stopping`.
    status: &'static str,
    /// While starting: number of jobs loaded so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs_loaded: Option<u64>,
    /// Readiness of each shard, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shards: Vec<ShardReadinessView>,
}

/// The readiness of one of several shards.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ShardReadiness)]
pub(crate) struct ShardReadinessView {
    /// Name of the shard.
    shard: String,
    /// Status of the shard: `ready`, `starting`, `full` (no new work for lack of space), `unreachable` (the
    /// store does not answer), `stopped` or `stopping`.
    status: &'static str,
    /// While starting: number of jobs loaded so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs_loaded: Option<u64>,
}

/// The version of the server.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Version)]
pub(crate) struct VersionView {
    /// Version of the server.
    version: &'static str,
    /// Shard that the server serves.
    shard: String,
}

pub(crate) async fn live(State(api): State<Api>) -> Response {
    json::ok(&LiveView {
        status: "live",
        insecure: api.settings().is_insecure,
    })
}

/// Answers with the readiness, without reasons, because anyone may call this. The reasons are in the log.
///
/// The server is ready if all its shards are; otherwise its status is that of the worst shard.
pub(crate) async fn ready(State(api): State<Api>) -> Response {
    let shards = api.shards();
    let each = shards.iter().map(|shard| (shard, shard.health()));
    let each: Vec<_> = each.collect();
    let worst = each.iter().map(|(_, health)| severity(health));
    let worst = worst.max_by_key(|(gravity, _)| *gravity);
    let (_, status) = match worst {
        _ if api.settings().stopping.is_cancelled() => (5, "stopping"),
        Some(worst @ (2.., _)) => worst,
        _ if !is_settled(&api) => (2, "starting"),
        Some(worst) => worst,
        None => (0, "ready"),
    };
    let code = match status {
        "ready" | "full" => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let loaded = each.iter().filter_map(|(_, health)| jobs_loaded(health));
    let is_starting = status == "starting";
    let view = ReadinessView {
        status,
        jobs_loaded: is_starting.then(|| loaded.sum()),
        shards: if each.len() > 1 {
            each.iter()
                .map(|(shard, health)| one(shard, health))
                .collect()
        } else {
            Vec::new()
        },
    };
    json::answer(code, &view)
}

/// Whether the node of a cluster is a member and serves every shard that is placed on it; true without a cluster.
fn is_settled(api: &Api) -> bool {
    let router = api.settings().router.as_ref();
    let owners = router.and_then(|router| router.topology().owners());
    owners.is_none_or(|owners| owners.now().is_ready)
}

/// The severity of a status, and its word.
fn severity(health: &Health) -> (u8, &'static str) {
    match health {
        Health::Ready => (0, "ready"),
        Health::Full => (1, "full"),
        Health::Starting { .. } => (2, "starting"),
        Health::Unreachable { .. } => (3, "unreachable"),
        Health::Stopped { .. } => (4, "stopped"),
    }
}

fn jobs_loaded(health: &Health) -> Option<u64> {
    match health {
        Health::Starting { jobs } => Some(*jobs),
        _ => None,
    }
}

fn one(shard: &Handle, health: &Health) -> ShardReadinessView {
    ShardReadinessView {
        shard: shard.id().to_string(),
        status: severity(health).1,
        jobs_loaded: jobs_loaded(health),
    }
}

pub(crate) async fn version(State(api): State<Api>) -> Response {
    let shard = api.shard().id().to_string();
    json::ok(&VersionView {
        version: api.settings().version,
        shard,
    })
}

pub(crate) async fn describe(State(api): State<Api>) -> Response {
    let document = openapi::document(api.settings().version);
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}
