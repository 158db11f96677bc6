//! The server: its shards, how busy they are, and its settings.

use axum::response::Response;
use ganger_router::server_document;

use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;

pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    let settings = context.api.settings();
    Ok(json::ok(&server_document(
        settings.version,
        settings.started_at,
        &context.api.shards(),
        settings.router.as_ref(),
        settings.shown_settings.clone(),
    )))
}
