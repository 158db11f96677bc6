//! Invalid requests for every operation are refused with the right status and code, and change nothing.

use crate::support::{face, face_with};
use axum::body::Body;
use ganger_dialect_http::Settings;
use http::{Method, Request};
use serde_json::{Value, json};

#[tokio::test]
async fn every_body_is_refused_if_it_is_not_json_of_the_right_shape() {
    let face = face();
    for (method, path, required) in bodies() {
        for (body, codes) in [
            ("{", &["malformed_json"][..]),
            ("nonsense", &["malformed_json"]),
            (
                "{} {}",
                &["malformed_json", "missing_field", "invalid_value"],
            ),
            (r#"{"no_such_field":1}"#, &["unknown_field"]),
            ("7", &["invalid_value"]),
            ("\"text\"", &["invalid_value"]),
            ("null", &["invalid_value"]),
        ] {
            let answer = face.text(method.clone(), path, body).await;
            let told = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(answer.status, 400, "{method} {path} {body}: {told}");
            assert!(
                codes.contains(&&*answer.code()),
                "{method} {path} {body}: {told}"
            );
        }
        let deep = "[".repeat(200);
        assert_eq!(
            face.text(method.clone(), path, deep).await.code(),
            "too_deep",
            "{method} {path}"
        );
        if required {
            assert_eq!(
                face.text(method.clone(), path, "").await.code(),
                "malformed_json",
                "{method} {path}"
            );
        }
        let plain = Request::builder()
            .method(method.clone())
            .uri(path)
            .header("content-type", "text/plain");
        let answer = face
            .send(plain.body(Body::from("{}")).expect("a request"))
            .await;
        assert_eq!(
            (answer.status.as_u16(), &*answer.code()),
            (415, "content_type_unsupported"),
            "{method} {path}"
        );
    }
    assert_eq!(
        face.get("/api/v1/jobs").await["jobs"],
        json!([]),
        "a refusal changes nothing"
    );
}

/// Every operation that takes a JSON body, from the document, and whether the body is required.
fn bodies() -> Vec<(Method, &'static str, bool)> {
    use Method as M;
    let all = [
        (M::POST, "/api/v1/jobs", true),
        (M::POST, "/api/v1/jobs/cancel", true),
        (M::POST, "/api/v1/jobs/retry", true),
        (M::POST, "/api/v1/jobs/delete", true),
        (M::POST, "/api/v1/graphs", true),
        (M::POST, "/api/v1/graphs/x/cancel", false),
        (M::PATCH, "/api/v1/jobs/x", true),
        (M::POST, "/api/v1/jobs/x/cancel", false),
        (M::POST, "/api/v1/jobs/x/retry", false),
        (M::POST, "/api/v1/jobs/x/dependencies", true),
        (M::DELETE, "/api/v1/jobs/x/dependencies", false),
        (M::POST, "/api/v1/leases", true),
        (M::POST, "/api/v1/leases/renew", true),
        (M::POST, "/api/v1/leases/complete", true),
        (M::POST, "/api/v1/leases/fail", true),
        (M::POST, "/api/v1/leases/release", true),
        (M::POST, "/api/v1/leases/log", true),
        (M::POST, "/api/v1/operations", true),
        (M::PUT, "/api/v1/queues/x", true),
        (M::PUT, "/api/v1/namespaces/x", true),
        (M::PUT, "/api/v1/schedules/x", true),
        (M::POST, "/api/v1/schedules/preview", true),
    ];
    all.into()
}

#[tokio::test]
async fn the_table_of_bodies_has_every_operation_of_the_document() {
    let document = face().get("/openapi.json").await;
    let mut documented = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            if operation["requestBody"]["content"]["application/json"].is_null() {
                continue;
            }
            documented += 1;
            let is_listed = bodies().iter().any(|(listed, example, required)| {
                listed.as_str().eq_ignore_ascii_case(method)
                    && matches(path, example)
                    && *required == operation["requestBody"]["required"]
            });
            assert!(is_listed, "{method} {path} is not in the table of bodies");
        }
    }
    assert_eq!(documented, bodies().len());
}

fn matches(path: &str, example: &str) -> bool {
    let parts = path.split('/').zip(example.split('/'));
    path.split('/').count() == example.split('/').count()
        && parts
            .into_iter()
            .all(|(part, given)| part == given || (part.starts_with('{') && given == "x"))
}

#[tokio::test]
async fn every_operation_refuses_unknown_parameters_and_unknown_methods() {
    let face = face();
    let document = face.get("/openapi.json").await;
    for (path, item) in document["paths"].as_object().expect("paths") {
        let methods: Vec<String> = item
            .as_object()
            .expect("operations")
            .keys()
            .map(|it| it.to_uppercase())
            .collect();
        let url = path.replace(['{', '}'], "");
        for wrong in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            if methods.iter().any(|method| method == wrong) {
                continue;
            }
            let answer = face.text(wrong.parse().expect("a method"), &url, "").await;
            assert_eq!(
                (answer.status.as_u16(), &*answer.code()),
                (405, "method_not_allowed"),
                "{wrong} {url}"
            );
            let allowed = answer.headers["allow"].to_str().expect("text").to_owned();
            assert!(
                methods
                    .iter()
                    .all(|method| allowed.contains(method.as_str())),
                "{url}: {allowed}"
            );
        }
        if !path.starts_with("/api/") {
            continue;
        }
        for method in methods {
            let answer = face
                .text(
                    method.parse().expect("a method"),
                    &format!("{url}?colour=red"),
                    "{}",
                )
                .await;
            assert_eq!(
                (answer.status.as_u16(), &*answer.code()),
                (400, "unknown_parameter"),
                "{method} {url}"
            );
        }
    }
}

#[tokio::test]
async fn a_wrong_method_is_answered_with_those_that_are_possible() {
    let face = face();
    // As `curl -T` sends a file.
    let answer = face.text(Method::PUT, "/api/v1/jobs/batch", "{}").await;
    let detail = answer.json()["detail"].to_string();
    assert!(detail.contains("use POST"), "{detail}");
    assert!(detail.contains("add -X POST"), "{detail}");
    let answer = face.text(Method::PUT, "/api/v1/jobs/x", "{}").await;
    let detail = answer.json()["detail"].to_string();
    assert!(
        detail.contains("GET") && detail.contains("DELETE"),
        "{detail}"
    );
    assert!(!detail.contains("-X"), "{detail}");
}

#[tokio::test]
async fn the_audit_log_tells_a_short_part_of_a_path_that_was_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("audit.log");
    let face = face_with(Settings {
        audit: ganger_access::Audit::to_file(&path).expect("writable"),
        ..Settings::default()
    });
    let grants = "reader@default".parse().expect("grants");
    let reader = ganger_access::Identity::principal("reader", grants, ganger_access::Proof::Token);
    let target = format!("/api/v1/jobs/{}", "x".repeat(200));
    let request = Request::delete(&target)
        .extension(reader)
        .body(Body::empty())
        .expect("a request");
    assert_eq!(face.send(request).await.status, 403);
    let written = std::fs::read_to_string(path).expect("written");
    let line: Value = serde_json::from_str(&written).expect("one line");
    assert_eq!(line["on"], target[..200]);
}

#[tokio::test]
async fn what_is_too_large_names_a_setting_only_where_there_is_one() {
    let face = face();
    let labels: serde_json::Map<_, _> = (0..1_000).map(|n| (n.to_string(), "".into())).collect();
    let large = "x".repeat(1 << 20);
    for (job, remedy) in [
        (
            json!({"kind": "a", "payload": large}),
            Some("payload_bytes_max"),
        ),
        (
            json!({"kind": "a", "inputs": [{"value": large}]}),
            Some("payload_bytes_max"),
        ),
        (json!({"kind": "a", "labels": labels}), None),
    ] {
        let answer = face
            .text(Method::POST, "/api/v1/jobs", job.to_string())
            .await;
        assert_eq!(answer.code(), "too_large");
        let detail = answer.json()["detail"].to_string();
        match remedy {
            Some(setting) => assert!(detail.contains(&format!("raise {setting}")), "{detail}"),
            None => assert!(!detail.contains("raise"), "{detail}"),
        }
    }
}

#[tokio::test]
async fn bodies_and_names_beyond_their_limits_are_refused() {
    let face = face_with(Settings {
        body_bytes_max: 1_000,
        graph_bytes_max: 2_000,
        ..Settings::default()
    });
    let body = |bytes: usize| json!({"kind": "a", "payload": "x".repeat(bytes)}).to_string();
    assert_eq!(
        face.text(Method::POST, "/api/v1/jobs", body(100))
            .await
            .status,
        201
    );
    let answer = face.text(Method::POST, "/api/v1/jobs", body(1_000)).await;
    assert_eq!(
        (answer.status.as_u16(), &*answer.code()),
        (413, "body_too_large")
    );
    // A body without a declared length is cut off while it is read.
    let pieces = futures::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>("x".repeat(100))));
    let answer = face
        .text(Method::POST, "/api/v1/graphs", Body::from_stream(pieces))
        .await;
    assert_eq!(answer.code(), "body_too_large");
    let name = json!({"kind": "k".repeat(256)}).to_string();
    let answer = face.text(Method::POST, "/api/v1/jobs", name).await;
    assert_eq!(
        (&*answer.code(), &answer.json()["pointer"]),
        ("invalid_value", &Value::from("/kind"))
    );
    let path = format!("/api/v1/queues/{}", "q".repeat(300));
    assert_eq!(
        face.text(Method::GET, &path, "").await.code(),
        "invalid_value"
    );
}
