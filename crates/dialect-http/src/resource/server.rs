//! The server: its shards, how busy they are, and its settings.

use axum::response::Response;
use ganger_document::view::server::{Server, ServerShard};
use ganger_router::Router;
use ganger_shard::{Handle, Health};

use crate::api::Api;
use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;

pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    Ok(json::ok(&view(&context.api)))
}

fn view(api: &Api) -> Server {
    let settings = api.settings();
    let shards = api.shards().iter();
    let known = settings.router.as_ref().map(Router::known);
    let is_here = |name: &str| api.shards().iter().any(|shard| shard.id().as_str() == name);
    let elsewhere = known.into_iter().flatten().map(|shard| shard.to_string());
    Server {
        version: settings.version.to_owned(),
        uptime: settings.started_at.elapsed(),
        shards: shards.map(|shard| one(shard, settings.version)).collect(),
        elsewhere: elsewhere.filter(|name| !is_here(name)).collect(),
        settings: settings.shown_settings.clone(),
    }
}

fn one(shard: &Handle, version: &str) -> ServerShard {
    let numbers = shard.numbers();
    let (health, reason) = match numbers.health {
        Health::Ready => ("ready", None),
        Health::Full => (
            "full",
            Some("the store's device is nearly full: new work is refused".to_owned()),
        ),
        Health::Unreachable { reason } => ("unreachable", Some(reason)),
        Health::Starting { jobs } => ("starting", Some(format!("{jobs} jobs are loaded"))),
        Health::Stopped { reason } => ("stopped", Some(reason)),
    };
    ServerShard {
        shard: shard.id().to_string(),
        version: version.to_owned(),
        health: health.to_owned(),
        reason,
        uptime: numbers.uptime,
        live_jobs: numbers.live_jobs,
        commits_per_second: numbers.commits_per_second,
        commit_p99: numbers.commit_p99,
        store_bytes: numbers.store_bytes,
        disk_free_bytes: numbers.free_bytes,
        reserve_bytes: numbers.reserve_bytes,
    }
}
