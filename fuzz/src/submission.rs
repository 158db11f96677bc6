//! Bodies of HTTP requests, sent through the real routes to a real shard with a store in memory.
//!
//! The first byte chooses the operation. No body may cause an internal error, and the engine's audit must find nothing
//! whenever the server is replaced.

use std::cell::RefCell;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use ganger_shard::{Handle, Hooks, Shard, SystemClock};
use ganger_store::MemoryStore;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

/// Number of requests after which the server is replaced, so that memory stays bounded.
const REQUESTS_MAX: u32 = 2_000;
/// The operations: method, path and content type.
const OPERATIONS: &[(&str, &str, &str)] = &[
    ("POST", "/api/v1/graphs", "application/json"),
    ("POST", "/api/v1/jobs", "application/json"),
    ("POST", "/api/v1/jobs/batch", "application/x-ndjson"),
    ("POST", "/api/v1/leases", "application/json"),
    ("POST", "/api/v1/leases/complete", "application/json"),
    ("POST", "/api/v1/leases/renew", "application/json"),
    ("POST", "/api/v1/jobs/cancel", "application/json"),
    ("PUT", "/api/v1/queues/q", "application/json"),
    ("PUT", "/api/v1/namespaces/n", "application/json"),
    ("PUT", "/api/v1/schedules/s", "application/json"),
];

thread_local! {
    static SERVER: RefCell<Option<TestServer>> = const { RefCell::new(None) };
}

/// A server without a network.
struct TestServer {
    runtime: Runtime,
    shard: Handle,
    routes: Router,
    requests: u32,
}

/// Sends a request.
///
/// # Panics
/// If the answer is an internal error, or the audit finds a defect.
pub fn run(data: &[u8]) {
    SERVER.with_borrow_mut(|server| {
        let current = server.get_or_insert_with(TestServer::new);
        current.send(data);
        if current.requests == REQUESTS_MAX
            && let Some(old) = server.take()
        {
            old.end();
        }
    });
}

impl TestServer {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime needs nothing special");
        let shard = runtime
            .block_on(async {
                Shard::start(
                    MemoryStore::default(),
                    ganger_shard::Settings::default(),
                    Arc::new(SystemClock),
                    Hooks::default(),
                )
            })
            .expect("a store in memory opens");
        let routes = ganger_dialect_http::routes(
            shard.clone(),
            ganger_dialect_http::Settings {
                stranger: ganger_access::Identity::unchecked(),
                ..ganger_dialect_http::Settings::default()
            },
        );
        Self {
            runtime,
            shard,
            routes,
            requests: 0,
        }
    }

    fn send(&mut self, data: &[u8]) {
        self.requests += 1;
        let Some((choice, body)) = data.split_first() else {
            return;
        };
        let (method, path, content) = OPERATIONS[usize::from(*choice) % OPERATIONS.len()];
        let request = Request::builder()
            .method(method.parse::<Method>().expect("the table has methods"))
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, content)
            .body(Body::from(body.to_vec()))
            .expect("the table makes good requests");
        let routes = self.routes.clone();
        self.runtime.block_on(async {
            let answer = match routes.oneshot(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            let status = answer.status();
            assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "{method} {path}");
            answer
                .into_body()
                .collect()
                .await
                .expect("a body that was begun is ended");
        });
    }

    fn end(self) {
        self.runtime.block_on(async {
            let request = Request::builder()
                .uri("/api/v1/audit")
                .header(header::HOST, "localhost")
                .body(Body::empty())
                .expect("a plain request");
            let answer = match self.routes.oneshot(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            };
            assert_eq!(answer.status(), StatusCode::OK, "the audit");
            let body = answer
                .into_body()
                .collect()
                .await
                .expect("a whole body")
                .to_bytes();
            assert!(
                !String::from_utf8_lossy(&body).contains("\"is_sound\":false"),
                "{body:?}"
            );
            self.shard.stop().await;
        });
    }
}
