//! The nodes of a cluster and the places of its shards.

use axum::response::Response;
use ganger_router::{nodes_document, shards_document};

use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;

pub(crate) async fn nodes(context: RequestContext) -> Result<Response, Problem> {
    let router = context.api.settings().router.as_ref();
    Ok(json::ok(&nodes_document(router)))
}

pub(crate) async fn shards(context: RequestContext) -> Result<Response, Problem> {
    let router = context.api.settings().router.as_ref();
    Ok(json::ok(&shards_document(router)))
}
