//! Endpoints about the server itself.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use crate::api::Api;
use crate::problem::json_line;

/// Answers `GET /version` of the API.
pub(crate) async fn version(State(api): State<Api>) -> Response {
    let document = json!({"version": api.settings().version});
    json_line(StatusCode::OK, document)
}

/// Answers `GET /v2/` with NGSI's resource paths, although those that read entities are not supported.
pub(crate) async fn resources() -> Response {
    let document = json!({
        "notify_url": "/v2/notify",
        "subscriptions_url": "/v2/subscriptions",
        "entities_url": "/v2/entities",
        "types_url": "/v2/types",
        "attributes_url": "/v2/attrs",
    });
    json_line(StatusCode::OK, document)
}

/// Answers `POST /management/config` of the API.
pub(crate) async fn configure() -> Response {
    let document = json!({
        "error": "Not Implemented",
        "description": "This API method is not yet implemented.",
    });
    json_line(StatusCode::NOT_IMPLEMENTED, document)
}
