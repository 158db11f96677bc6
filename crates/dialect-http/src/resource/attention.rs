//! What needs attention.

use axum::response::Response;
use ganger_attention::Scope;
use ganger_document::view::attention::AttentionDoc;

use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;

/// Shows the items of the namespace. What concerns servers is for callers who may see the other shards.
pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    let sees_server = context.identity.may(context.api.access("listPeers"), None);
    let attention = context.api.attention();
    let items = attention.items(&context.namespace, sees_server.is_ok(), Scope::All);
    Ok(json::ok(&AttentionDoc { items: items.await }))
}
