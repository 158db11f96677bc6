//! A server without a network: the routes over a shard with a memory store.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use ganger_dialect_http::{Settings, routes};
use ganger_shard::{Handle, Hooks, Shard, SystemClock};
use ganger_store::MemoryStore;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

/// The routes and their shard.
pub(crate) struct Face {
    pub(crate) routes: Router,
    pub(crate) shard: Handle,
    pub(crate) settings: Settings,
}

/// An answer with its whole body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// Code of the problem in the answer.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Starts a fresh shard.
pub(crate) fn start(settings: ganger_shard::Settings) -> Handle {
    let (store, clock) = (MemoryStore::new(), Arc::new(SystemClock));
    Shard::start(store, settings, clock, Hooks::default()).expect("a store in memory opens")
}

/// The routes over a shard.
pub(crate) fn face_of(shard: Handle, settings: Settings) -> Face {
    Face {
        routes: routes(
            shard.clone(),
            Settings {
                stranger: ganger_access::Identity::unchecked(),
                ..settings.clone()
            },
        ),
        shard,
        settings,
    }
}

/// Starts a fresh shard behind the routes.
pub(crate) fn face_over(shard: ganger_shard::Settings, settings: Settings) -> Face {
    face_of(start(shard), settings)
}

/// Starts a fresh shard with default settings behind the routes.
pub(crate) fn face_with(settings: Settings) -> Face {
    let shard = ganger_shard::Settings {
        reserve_bytes: 0,
        ..Default::default()
    };
    face_over(shard, settings)
}

/// Starts a fresh shard and routes with default settings.
pub(crate) fn face() -> Face {
    face_with(Settings::default())
}

impl Face {
    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.start(request).await;
        let (head, body) = response.into_parts();
        let body = body
            .collect()
            .await
            .expect("the body comes whole")
            .to_bytes();
        Answer {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    /// Sends a request and returns the answer while it is being written.
    pub(crate) async fn start(&self, request: Request<Body>) -> http::Response<Body> {
        self.routes
            .clone()
            .oneshot(request)
            .await
            .expect("routes always answer")
    }

    /// Sends a request whose body is JSON text.
    pub(crate) async fn text(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.into())
            .expect("a request");
        self.send(request).await
    }

    /// Sends a JSON document, and panics if it is refused.
    pub(crate) async fn done(&self, method: Method, path: &str, body: Value) -> Value {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = self.text(method.clone(), path, body).await;
        assert!(
            answer.status.is_success(),
            "{method} {path}: {} {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
        answer.json()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.done(Method::GET, path, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.done(Method::POST, path, body).await
    }

    /// Enqueues a job and returns its id.
    pub(crate) async fn enqueue(&self, body: Value) -> String {
        self.post("/api/v1/jobs", body).await["id"]
            .as_str()
            .expect("an id")
            .to_owned()
    }

    /// Leases one job and returns the delivery.
    pub(crate) async fn lease(&self) -> Value {
        let answer = self
            .post(
                "/api/v1/leases",
                serde_json::json!({"worker": "w", "wait": "10s"}),
            )
            .await;
        answer["jobs"][0].clone()
    }
}

/// Reads `count` events from a stream.
pub(crate) async fn events(response: &mut http::Response<Body>, count: usize) -> Vec<(u64, Value)> {
    let mut text = String::new();
    let mut found = Vec::new();
    while found.len() < count {
        let frame = response
            .body_mut()
            .frame()
            .await
            .expect("more to come")
            .expect("no fault");
        text.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("text"));
        while let Some((event, rest)) = text
            .split_once("\n\n")
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
        {
            text = rest;
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            if let (Some(id), Some(data)) = (field("id: "), field("data: ")) {
                found.push((
                    id.parse().expect("a position"),
                    serde_json::from_str(data).expect("JSON"),
                ));
            }
        }
    }
    found
}

/// Begins to follow events.
pub(crate) async fn follow(face: &Face, path: &str, last: Option<u64>) -> http::Response<Body> {
    let mut request = Request::get(path);
    if let Some(last) = last {
        request = request.header("last-event-id", last.to_string());
    }
    let response = face
        .start(request.body(Body::empty()).expect("a request"))
        .await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response
}
