//! The routes. Paths match exactly, so an additional slash makes another path.

use axum::Router;
use axum::middleware;
use axum::routing::{MethodRouter, delete, get, post};
use http::{Method, StatusCode, Uri};

use crate::api::Api;
use crate::authorization::{self, Authorization, Operation};
use crate::problem::Problem;
use crate::{about, count, delete as deletion, health, list, notify};

/// Paths of task management: that of QuantumLeap's design document, and that of its releases.
const TASKS: [&str; 2] = ["/wq/notifications", "/management/queue/notifications"];

/// Returns the routes of this dialect.
pub(crate) fn routes(api: &Api) -> Router {
    let guarded = |operation: Operation, route: MethodRouter<Api>| {
        let api = api.clone();
        route.layer(middleware::from_fn_with_state(
            Authorization { api, operation },
            authorization::authorize,
        ))
    };
    let version = |route| guarded(Operation::Version, route);
    let mut router = Router::new()
        .route(
            "/v2/notify",
            guarded(Operation::Notify, post(notify::notify)),
        )
        .route("/v2/", version(get(about::resources)))
        .route("/version", version(get(about::version)))
        .route("/management/config", version(post(about::configure)))
        .route("/health", guarded(Operation::Health, get(health::health)));
    for tasks in TASKS {
        let listed = guarded(Operation::List, get(list::tasks));
        let deleted = guarded(Operation::Delete, delete(deletion::tasks));
        router = router
            .route(tasks, listed.merge(deleted))
            .route(
                &format!("{tasks}/summary"),
                guarded(Operation::List, get(list::summary)),
            )
            .route(
                &format!("{tasks}/count"),
                guarded(Operation::Count, get(count::tasks)),
            );
    }
    router
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .with_state(api.clone())
}

async fn no_such_path(uri: Uri) -> Problem {
    let detail = format!("there is nothing at {:?} here", uri.path());
    Problem::new(StatusCode::NOT_FOUND, detail)
}

async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let detail = format!(
        "{method} is not allowed at {:?}: the header Allow lists the allowed methods",
        uri.path()
    );
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
