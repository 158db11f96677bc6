//! The routes of all operations, and the headers of all answers.

use std::sync::atomic::Ordering;

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use axum::{Extension, Router};
use ganger_shard::Handle;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use tower_http::catch_panic::CatchPanicLayer;

use crate::api::{Api, Settings};
use crate::authorization::{self, Authorization};
use crate::operations;
use crate::problem::Problem;

/// The routes of this dialect.
pub fn routes(shard: Handle, settings: Settings) -> Router {
    let all = operations::all().into_iter();
    let (descriptions, handlers): (Vec<_>, Vec<_>) = all
        .map(|operation| (operation.description, operation.route))
        .unzip();
    let api = Api::new(shard, settings, descriptions);
    let mut router = Router::new();
    for (operation, handler) in api.operations().iter().zip(handlers) {
        let gate = Authorization::new(api.clone(), operation);
        let route: MethodRouter<Api> = handler
            .layer((
                Extension(operation.known()),
                Extension(operation.path_names()),
            ))
            .layer(middleware::from_fn_with_state(gate, authorization::pass));
        router = router.route(operation.path, route);
    }
    router
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(api.clone(), finish))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(api)
}

async fn no_such_path(uri: Uri) -> Problem {
    let hint = if uri.path().starts_with("/api/v1/jobs/") {
        "the slash in a job's shard/id must be written %2F"
    } else {
        "see /openapi.json for all there are"
    };
    Problem::new(
        "path_not_found",
        format!("there is nothing at {:?}: {hint}", uri.path()),
    )
}

async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let path = uri.path();
    let known = operations::methods_at(path);
    let hint = if method == Method::PUT && known.contains(&Method::POST) {
        " (curl -T sends PUT: add -X POST)"
    } else {
        ""
    };
    let known: Vec<&str> = known.iter().map(Method::as_str).collect();
    let known = known.join(" or ");
    Problem::new(
        "method_not_allowed",
        format!("{method} is not possible at {path:?}: use {known}{hint}"),
    )
}

/// Counts the answer and adds the headers of all answers.
async fn finish(State(api): State<Api>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let class = usize::from(response.status().as_u16() / 100);
    if let Some(counter) = api.requests().get(class.saturating_sub(1)) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Answers a request whose handler panicked. The panic counts as a defect, and the answer reveals no details.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the layer hands the panic over as a value"
)]
fn panicked(panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tracing::error!(panic = %text.escape_debug(), "a request handler panicked; this is a defect");
    let detail = "a defect of the server ended this request; what it had acknowledged is kept";
    let mut response = Problem::new("internal", detail).into_response();
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
