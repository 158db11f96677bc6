//! The routes over a shard with a store in memory, without a network.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use ganger_access::Identity;
use ganger_dialect_quantumleap::{Service, Settings};
use ganger_ngsi::environment::{self, Environment};
use ganger_ngsi::job::QUEUE;
use ganger_shard::{Delivery, Handle, Hooks, Shard, SystemClock};
use ganger_store::MemoryStore;
use ganger_types::command::{Complete, Fail, Lease, LeaseRef, TakeFrom};
use ganger_types::{Command, Group, Namespace, Queue, Worker};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// The routes, and the shard behind them.
pub(crate) struct TestApi {
    pub(crate) service: Service,
    pub(crate) routes: Router,
    pub(crate) shard: Handle,
}

/// An answer with its whole body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).expect("text")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(&self.body));
        })
    }

    /// Returns the detail of a problem document; panics for other bodies.
    pub(crate) fn detail(&self) -> String {
        assert_eq!(
            self.headers["content-type"], "application/problem+json",
            "{self:?}"
        );
        let document = self.json();
        assert_eq!(document["status"], self.status.as_u16());
        assert_eq!(document["type"], "about:blank");
        document["detail"].as_str().expect("a detail").to_owned()
    }
}

/// Parses environment variables as QuantumLeap names them.
pub(crate) fn environment(variables: &[(&str, &str)]) -> Environment {
    let variable = |wanted: &str| {
        let found = variables.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| (*value).to_owned())
    };
    let no_file = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    environment::read(variable, no_file).expect("readable")
}

/// Returns settings with queued inserts and without authentication.
pub(crate) fn settings(variables: &[(&str, &str)]) -> Settings {
    let mut all = vec![("WQ_OFFLOAD_WORK", "true")];
    // The first of equal names counts.
    all.splice(0..0, variables.iter().copied());
    Settings {
        stranger: Identity::unchecked(),
        ..Settings::new(environment(&all))
    }
}

/// Starts a fresh shard.
pub(crate) fn shard() -> Handle {
    let settings = ganger_shard::Settings {
        reserve_bytes: 0,
        // Upkeep must not remove expired tasks during a test.
        upkeep_every: Duration::from_secs(3_600),
        ..Default::default()
    };
    let (store, clock) = (MemoryStore::new(), Arc::new(SystemClock));
    Shard::start(store, settings, clock, Hooks::default()).expect("a store in memory opens")
}

/// Creates the routes over a new shard.
pub(crate) fn api_with(settings: Settings) -> TestApi {
    let shard = shard();
    let service = Service::new(shard.clone(), settings);
    TestApi {
        routes: service.routes(),
        service,
        shard,
    }
}

/// Creates the routes over a new shard, with some of QuantumLeap's variables.
pub(crate) fn api(variables: &[(&str, &str)]) -> TestApi {
    api_with(settings(variables))
}

/// Returns a notification of one entity with an attribute.
pub(crate) fn room(id: &str) -> Value {
    json!({"data": [{
        "id": id,
        "type": "Room",
        "temperature": {"type": "Number", "value": 23.3},
        "TimeInstant": {"type": "DateTime", "value": "2020-01-02T03:04:05Z"},
    }]})
}

impl TestApi {
    /// Sends a request and returns the answer with a streaming body.
    pub(crate) async fn start(&self, request: Request<Body>) -> Response<Body> {
        let answered = self.routes.clone().oneshot(request).await;
        answered.expect("routes always answer")
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let (head, body) = self.start(request).await.into_parts();
        let body = body.collect().await.expect("the body comes whole");
        Answer {
            status: head.status,
            headers: head.headers,
            body: body.to_bytes(),
        }
    }

    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        self.send(request(method, path, headers, body)).await
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.request(Method::GET, path, headers, "").await
    }

    /// Sends a notification as JSON.
    pub(crate) async fn notify(&self, headers: &[(&str, &str)], body: &Value) -> Answer {
        let mut all = vec![("content-type", "application/json")];
        all.extend(headers);
        let path = "/v2/notify";
        self.request(Method::POST, path, &all, body.to_string())
            .await
    }

    /// Sends a notification that must be accepted.
    pub(crate) async fn accepted(&self, headers: &[(&str, &str)], id: &str) {
        let answer = self.notify(headers, &room(id)).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    }

    pub(crate) async fn count(&self, query: &str, headers: &[(&str, &str)]) -> u64 {
        let path = format!("/wq/notifications/count{query}");
        let answer = self.get(&path, headers).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert!(answer.text().ends_with('\n'));
        answer.json().as_u64().expect("a number")
    }

    /// Returns the tasks of a list without its terminator.
    pub(crate) async fn list(&self, query: &str, headers: &[(&str, &str)]) -> Vec<Value> {
        self.listed(&format!("/wq/notifications{query}"), headers)
            .await
    }

    pub(crate) async fn summary(&self, query: &str, headers: &[(&str, &str)]) -> Vec<Value> {
        self.listed(&format!("/wq/notifications/summary{query}"), headers)
            .await
    }

    async fn listed(&self, path: &str, headers: &[(&str, &str)]) -> Vec<Value> {
        let answer = self.get(path, headers).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        let Value::Array(mut all) = answer.json() else {
            panic!("no list: {answer:?}");
        };
        assert_eq!(all.pop(), Some(Value::Null));
        all
    }

    /// Leases the oldest task.
    pub(crate) async fn lease(&self) -> Delivery {
        let lease = Lease {
            queues: vec![TakeFrom {
                queue: Queue::from_static(QUEUE),
                weight: 1,
            }],
            worker: Some(Worker::from_static("w")),
            jobs_max: 1,
            ..Lease::default()
        };
        let wait_for = Duration::from_secs(10);
        let mut leased = self.shard.lease(lease, wait_for).await.expect("taken");
        leased.pop().expect("a task")
    }

    /// Completes a leased task without a result.
    pub(crate) async fn complete(&self, delivery: &Delivery) {
        let command = Command::Complete(Box::new(Complete {
            held: held(delivery),
            result: None,
            next: None,
        }));
        self.shard.call(command).await.expect("accepted");
    }

    /// Fails the attempt of a leased task.
    pub(crate) async fn fail(&self, delivery: &Delivery, message: &str, permanent: bool) {
        let fail = failure(delivery, message, permanent, false);
        self.shard.call(fail).await.expect("accepted");
    }

    /// Reports that the worker of an attempt died.
    pub(crate) async fn lose(&self, delivery: &Delivery) {
        let fail = failure(delivery, "lost", false, true);
        self.shard.call(fail).await.expect("accepted");
    }
}

fn failure(delivery: &Delivery, message: &str, permanent: bool, lost: bool) -> Command {
    Command::Fail(Box::new(Fail {
        held: held(delivery),
        group: Group::from_static("ngsi"),
        message: message.to_owned(),
        permanent,
        retry_after: None,
        lost,
    }))
}

pub(crate) fn held(delivery: &Delivery) -> LeaseRef {
    LeaseRef {
        namespace: Namespace::default(),
        job: delivery.grant.job.clone(),
        token: delivery.grant.token,
    }
}

pub(crate) fn request(
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Body>,
) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body.into()).expect("a request")
}
