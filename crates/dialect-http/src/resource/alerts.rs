//! Alerts of the configuration: list, test.

use axum::response::Response;
use ganger_attention::NotTested;
use ganger_document::names::full_name;
use ganger_document::view::alert::{AlertTestDoc, AlertsDoc};
use http::StatusCode;

use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let alerts = context.api.attention().alerts().documents();
    Ok(json::ok(&AlertsDoc { alerts }))
}

/// Stores a test message; it is sent after the answer.
pub(crate) async fn test(context: RequestContext) -> Result<Response, Problem> {
    let name = String::from_utf8_lossy(context.segment(0)).into_owned();
    let job = context.api.attention().test_alert(&name).await;
    let job = job.map_err(|error| match error {
        NotTested::NotStored(error) => Problem::from(error),
        error => Problem::new(error.code(), error.to_string()),
    })?;
    let job = full_name(&job.shard, &job.id);
    Ok(json::answer(StatusCode::ACCEPTED, &AlertTestDoc { job }))
}
