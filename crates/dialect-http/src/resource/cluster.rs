//! The nodes of a cluster and the places of its shards.

use axum::response::Response;
use ganger_router::{OrderError, nodes_document, shards_document};

use crate::arguments::refused;
use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::resource::numbers::Done;

impl From<OrderError> for Problem {
    fn from(error: OrderError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

pub(crate) async fn nodes(context: RequestContext) -> Result<Response, Problem> {
    let router = context.api.settings().router.as_ref();
    Ok(json::ok(&nodes_document(router)))
}

pub(crate) async fn shards(context: RequestContext) -> Result<Response, Problem> {
    let router = context.api.settings().router.as_ref();
    Ok(json::ok(&shards_document(router)))
}

pub(crate) async fn drain(context: RequestContext) -> Result<Response, Problem> {
    set_draining(&context, true).await
}

pub(crate) async fn resume(context: RequestContext) -> Result<Response, Problem> {
    set_draining(&context, false).await
}

async fn set_draining(context: &RequestContext, is_draining: bool) -> Result<Response, Problem> {
    let router = context.api.settings().router.as_ref();
    let node = String::from_utf8_lossy(context.segment(0));
    ganger_router::set_draining(router, &node, is_draining).await?;
    Ok(json::ok(&Done::default()))
}

pub(crate) async fn move_shard(context: RequestContext) -> Result<Response, Problem> {
    let router = context.api.settings().router.as_ref();
    let shard = context.peer()?;
    let node = context.arguments.text("to")?;
    let node =
        node.ok_or_else(|| refused("to", "is missing: name the node that is to own the shard"))?;
    ganger_router::move_shard(router, &shard, node).await?;
    Ok(json::ok(&Done::default()))
}
