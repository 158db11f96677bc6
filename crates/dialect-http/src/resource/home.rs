//! `GET /`: a page for browsers, and a short document for programs.
//!
//! The page shows the queues of namespaces that the caller may observe; other callers see how to authenticate.

mod page;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ganger_access::Identity;
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Api;
use crate::json;

/// The start document of the server.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Home)]
pub(crate) struct HomeView {
    /// Short description of the server.
    what: &'static str,
    /// Version of the server; absent for unauthenticated callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    /// Base path of the API.
    api: &'static str,
    /// Path of the OpenAPI document.
    openapi: &'static str,
    /// Path that answers whether the process is live.
    health: &'static str,
    /// Path that answers whether the server is ready.
    ready: &'static str,
    /// Path of the metrics.
    metrics: &'static str,
}

pub(crate) async fn show_home(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
) -> Response {
    let version = identity.may(api.access("version"), None).is_ok();
    let version = version.then(|| api.settings().version);
    let mut response = if is_for_browser(&headers) {
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        let page = page::page(&api, &identity, version).await;
        ([(header::CONTENT_TYPE, html)], page).into_response()
    } else {
        json::ok(&HomeView {
            what: "ganger, a durable queue of jobs",
            version,
            api: "/api/v1",
            openapi: "/openapi.json",
            health: "/healthz",
            ready: "/readyz",
            metrics: "/metrics",
        })
    };
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(page::POLICY),
    );
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    response
}

fn is_for_browser(headers: &HeaderMap) -> bool {
    let given = headers.get_all(header::ACCEPT).iter();
    given
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/html"))
}
