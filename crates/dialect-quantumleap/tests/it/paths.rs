//! Paths, methods, rights, and endpoints that are not about tasks.

use std::sync::Arc;

use crate::support::{api, api_with, room, settings};
use ganger_access::{Identity, Proof};
use ganger_ngsi::telemetry::Sampler;
use ganger_types::Namespace;
use http::{Method, StatusCode};
use serde_json::json;

#[tokio::test]
async fn paths_are_exact() {
    let api = api(&[]);
    for path in [
        "/",
        "/v2",
        "/v2/notify/",
        "/version/",
        "/health/",
        "/wq/notifications/",
        "/wq/notifications/count/",
        "/WQ/notifications",
        "/v2/entities",
        "/v2/types",
        "/v2/op/query",
        "/api/v1/jobs",
    ] {
        let answer = api.get(path, &[]).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        answer.detail();
        assert_eq!(answer.json()["title"], "Not Found");
    }
}

#[tokio::test]
async fn other_methods_are_refused_with_the_allowed_ones() {
    let api = api(&[]);
    for (path, method, allowed) in [
        ("/v2/notify", Method::GET, &["POST"][..]),
        ("/version", Method::POST, &["GET"]),
        ("/health", Method::DELETE, &["GET"]),
        ("/v2/", Method::POST, &["GET"]),
        ("/management/config", Method::GET, &["POST"]),
        ("/wq/notifications", Method::POST, &["GET", "DELETE"]),
        ("/wq/notifications/summary", Method::DELETE, &["GET"]),
        ("/wq/notifications/count", Method::PUT, &["GET"]),
        (
            "/management/queue/notifications",
            Method::PATCH,
            &["GET", "DELETE"],
        ),
    ] {
        let answer = api.request(method, path, &[], "").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        answer.detail();
        assert_eq!(answer.json()["title"], "Method Not Allowed");
        let allow = answer.headers["allow"].to_str().expect("text");
        let allow: Vec<&str> = allow.split(',').map(str::trim).collect();
        assert!(
            allowed.iter().all(|method| allow.contains(method)),
            "{path}: {allow:?}"
        );
    }
}

#[tokio::test]
async fn the_server_reports_its_version_and_resources() {
    let api = api(&[]);
    let version = api.get("/version", &[]).await;
    assert_eq!(version.status, StatusCode::OK);
    assert_eq!(version.headers["content-type"], "application/json");
    assert_eq!(
        version.json(),
        json!({"version": env!("CARGO_PKG_VERSION")})
    );
    let resources = api.get("/v2/", &[]).await;
    assert_eq!(
        resources.json(),
        json!({
            "notify_url": "/v2/notify",
            "subscriptions_url": "/v2/subscriptions",
            "entities_url": "/v2/entities",
            "types_url": "/v2/types",
            "attributes_url": "/v2/attrs",
        })
    );
    let config = api
        .request(Method::POST, "/management/config", &[], "")
        .await;
    assert_eq!(config.status, StatusCode::NOT_IMPLEMENTED);
    assert_eq!(
        config.json(),
        json!({
            "error": "Not Implemented",
            "description": "This API method is not yet implemented.",
        })
    );
}

#[tokio::test]
async fn an_unreachable_database_fails_the_health_check() {
    let api = api(&[("POSTGRES_HOST", "127.0.0.1"), ("POSTGRES_PORT", "1")]);
    for _ in 0..2 {
        let health = api.get("/health", &[]).await;
        assert_eq!(health.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(health.headers["cache-control"], "max-age=180");
        assert_eq!(health.headers["content-type"], "application/json");
        assert_eq!(
            health.json(),
            json!({"status": "fail", "details": {"timescale": "cannot reach timescale"}})
        );
    }
}

#[tokio::test]
async fn each_role_has_its_rights() {
    let requests = [
        (Method::POST, "/v2/notify", "producer operator admin"),
        (
            Method::GET,
            "/wq/notifications",
            "reader producer operator admin",
        ),
        (
            Method::GET,
            "/wq/notifications/summary",
            "reader producer operator admin",
        ),
        (
            Method::GET,
            "/management/queue/notifications/count",
            "reader producer operator admin",
        ),
        (Method::DELETE, "/wq/notifications", "operator admin"),
        (
            Method::GET,
            "/version",
            "reader worker producer operator admin",
        ),
    ];
    for role in ["reader", "worker", "producer", "operator", "admin"] {
        let grants = format!("{role}@fiware").parse().expect("readable");
        let mut settings = settings(&[]);
        settings.namespace = Namespace::from_static("fiware");
        settings.stranger = Identity::principal("x", grants, Proof::Token);
        let api = api_with(settings);
        for (method, path, roles) in &requests {
            let headers = [("content-type", "application/json")];
            let body = room("e1").to_string();
            let answer = api.request(method.clone(), path, &headers, body).await;
            let is_allowed = roles.split(' ').any(|allowed| allowed == role);
            let is_refused = answer.status == StatusCode::FORBIDDEN;
            assert_eq!(is_refused, !is_allowed, "{role} {path}: {answer:?}");
        }
    }
    let mut settings = settings(&[]);
    settings.stranger = Identity::Anonymous;
    let api = api_with(settings);
    for (method, path, _) in requests {
        let answer = api.request(method, path, &[], "").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        assert!(answer.headers.contains_key("www-authenticate"));
        answer.detail();
    }
}

#[tokio::test]
async fn durations_of_requests_are_sampled_under_path_and_method() {
    let directory = tempfile::tempdir().expect("a directory");
    let sampler = Sampler::open(directory.path(), ganger_ngsi::telemetry::DURATION).expect("made");
    let sampler = Arc::new(sampler);
    let mut settings = settings(&[]);
    settings.durations = Some(Arc::clone(&sampler));
    let api = api_with(settings);
    api.accepted(&[], "e1").await;
    api.count("", &[]).await;
    sampler.flush().expect("written");
    let file = std::fs::read_dir(directory.path())
        .expect("readable")
        .next()
        .expect("a file")
        .expect("readable");
    let text = std::fs::read_to_string(file.path()).expect("readable");
    assert!(text.contains(",/v2/notify [POST],"), "{text}");
    assert!(text.contains(",/wq/notifications/count [GET],"), "{text}");
}
