//! Notifications: accepted and refused ones, texts of refusals, and queued tasks.

use crate::support::{Answer, TestApi, api, api_with, held, room, settings};
use axum::body::Body;
use ganger_metrics::Exposition;
use ganger_shard::CallError;
use ganger_types::command::{Complete, ConfigureNamespace};
use ganger_types::{Backoff, Command, Namespace, NamespaceSettings};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;

const JSON: (&str, &str) = ("content-type", "application/json");

async fn post(api: &TestApi, content_type: &str, body: &'static str) -> Answer {
    let headers = [("content-type", content_type)];
    api.request(Method::POST, "/v2/notify", &headers, body)
        .await
}

#[tokio::test]
async fn a_notification_is_in_the_queue_when_it_is_answered() {
    let api = api(&[("WQ_MAX_RETRIES", "3"), ("WQ_SUCCESS_TTL", "-1")]);
    let headers = [
        ("fiware-service", "X"),
        ("fiware-servicepath", "/a"),
        ("fiware-correlator", "c"),
    ];
    let answer = api.notify(&headers, &room("e1")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.text(), "\"Notification successfully processed\"\n");

    let leased = api.lease().await;
    let job = api.shard.job_by_key(leased.grant.key).await;
    let job = job.expect("readable").expect("there").record;
    assert_eq!(job.queue.as_bytes(), b"quantumleap");
    assert_eq!(job.kind.as_bytes(), b"ngsi-insert");
    assert_eq!(job.id.as_bytes().len(), 32);
    let labels: Vec<(String, String)> = job
        .labels
        .iter()
        .map(|(key, value)| (key.to_text().into_owned(), value.to_text().into_owned()))
        .collect();
    for (key, value) in [
        ("scope", "WA==:L2E="),
        ("fiware-service", "X"),
        ("fiware-servicepath", "/a"),
        ("fiware-correlator", "c"),
    ] {
        assert!(
            labels.contains(&(key.to_owned(), value.to_owned())),
            "{key} {labels:?}"
        );
    }
    assert_eq!(job.retry.retries_max, 3);
    assert_eq!(job.retry.lease_expirations_max, Some(3));
    let Backoff::Exponential { base, .. } = job.retry.backoff else {
        panic!("{:?}", job.retry);
    };
    assert_eq!(base, Duration::from_secs(20));
    assert_eq!(job.keep_succeeded, Some(None));
    assert_eq!(job.keep_failed, Some(Some(Duration::from_secs(604_800))));
    let input: Value = serde_json::from_slice(&leased.payload).expect("JSON");
    let wanted = json!({
        "fiware_service": "X",
        "fiware_service_path": "/a",
        "fiware_correlator": "c",
        "payload": [{
            "id": "e1",
            "type": "Room",
            "temperature": {"type": "Number", "value": 23.3},
            "TimeInstant": {"type": "DateTime", "value": "2020-01-02T03:04:05Z"},
            "time_index": "2020-01-02T03:04:05+00:00",
        }],
    });
    assert_eq!(input.to_string(), wanted.to_string());
}

#[tokio::test]
async fn only_json_is_accepted() {
    let api = api(&[]);
    for good in [
        "application/json",
        "application/json; charset=utf-8",
        "application/ld+json",
    ] {
        let answer = post(&api, good, "{\"data\": []}").await;
        assert_eq!(answer.status, StatusCode::OK, "{good}");
    }
    let answer = post(&api, "text/plain", "{\"data\": []}").await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(
        answer.detail(),
        "Invalid Content-type (text/plain), expected JSON data"
    );
    assert_eq!(answer.json()["title"], "Unsupported Media Type");
    let without = api.request(Method::POST, "/v2/notify", &[], "{}").await;
    assert_eq!(without.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn a_body_of_another_form_is_refused_in_the_words_of_the_schema() {
    let api = api(&[]);
    for (body, detail) in [
        ("{", "Request body is not valid JSON"),
        ("null", "Request body is not valid JSON"),
        ("", "None is not of type 'object'"),
        ("[]", "[] is not of type 'object'"),
        ("{}", "'data' is a required property"),
        ("{\"data\": {}}", "{} is not of type 'array' - 'data'"),
        (
            "{\"data\": [{\"id\": \"a\", \"type\": \"T\"}, {\"id\": \"b\"}]}",
            "'type' is a required property - 'data.1'",
        ),
        (
            "{\"data\": [{\"id\": 1, \"type\": \"T\"}]}",
            "1 is not of type 'string' - 'data.0.id'",
        ),
    ] {
        let answer = post(&api, "application/json", body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(answer.detail(), detail, "{body}");
    }
    assert_eq!(api.count("", &[]).await, 0);
}

#[tokio::test]
async fn a_notification_that_would_crash_quantumleap_is_refused() {
    let api = api(&[]);
    let bad = json!({"data": [room("e1")["data"][0], {"id": "e", "type": "T", "k": 5}]});
    let answer = api.notify(&[], &bad).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.detail().contains('k'), "{}", answer.detail());
    assert_eq!(api.count("", &[]).await, 0);
}

#[tokio::test]
async fn a_notification_without_values_is_still_queued() {
    let api = api(&[]);
    let empty = json!({"subscriptionId": "s", "more": 1, "data": []});
    assert_eq!(api.notify(&[], &empty).await.status, StatusCode::OK);
    let tasks = api.list("", &[]).await;
    assert_eq!(tasks[0]["input"]["payload"], json!([]));
}

#[tokio::test]
async fn a_wrong_number_of_service_paths_only_fails_the_task() {
    let api = api(&[]);
    let answer = api
        .notify(&[("fiware-servicepath", "/a,/b")], &room("e1"))
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(api.count("", &[("fiware-servicepath", "/a,/b")]).await, 1);
}

#[tokio::test]
async fn the_header_names_the_time_index() {
    let api = api(&[]);
    let mut notification = room("e1");
    notification["data"][0]["ts"] = json!({"type": "Text", "value": "2001-01-01T00:00:00Z"});
    let header = ("Fiware-TimeIndex-Attribute", "ts");
    let answer = api.notify(&[header], &notification).await;
    assert_eq!(answer.status, StatusCode::OK);
    let tasks = api.list("", &[]).await;
    let entity = &tasks[0]["input"]["payload"][0];
    assert_eq!(entity["time_index"], "2001-01-01T00:00:00+00:00");
}

#[tokio::test]
async fn a_large_notification_is_handled_like_a_small_one() {
    let api = api(&[]);
    let mut notification = room("e1");
    notification["data"][0]["text"] = json!({"type": "Text", "value": "x".repeat(200_000)});
    let answer = api.notify(&[], &notification).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(api.count("", &[]).await, 1);
}

/// Returns a chunked body without a Content-Length.
fn chunked_body(text: &str) -> Body {
    let chunks: Vec<Result<Vec<u8>, std::io::Error>> = text
        .as_bytes()
        .chunks(1_000)
        .map(|chunk| Ok(chunk.to_vec()))
        .collect();
    Body::from_stream(futures::stream::iter(chunks))
}

#[tokio::test]
async fn a_too_large_body_is_refused_before_it_is_read_to_the_end() {
    let mut settings = settings(&[]);
    settings.body_bytes_max = 1_000;
    let api = api_with(settings);
    let mut limits = NamespaceSettings {
        payload_bytes_max: 10_000,
        ..NamespaceSettings::default()
    };
    configure(&api, &limits).await;
    let long = |length| {
        let mut notification = room("e1");
        notification["data"][0]["text"] = json!({"type": "Text", "value": "x".repeat(length)});
        notification.to_string()
    };
    // The limit of the namespace is above that of the server and takes precedence.
    let path = "/v2/notify";
    let taken = api.request(Method::POST, path, &[JSON], chunked_body(&long(5_000)));
    assert_eq!(taken.await.status, StatusCode::OK);
    let refused = api.request(Method::POST, path, &[JSON], chunked_body(&long(20_000)));
    let refused = refused.await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(refused.detail().contains("10000"), "{}", refused.detail());
    let refused = api.request(Method::POST, path, &[JSON], chunked_body(&long(200_000)));
    let refused = refused.await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(
        refused.detail().contains("larger than"),
        "{}",
        refused.detail()
    );
    assert_eq!(api.count("", &[]).await, 1);
    limits.payload_bytes_max = 1 << 20;
    configure(&api, &limits).await;
    let taken = api.request(Method::POST, path, &[JSON], chunked_body(&long(200_000)));
    assert_eq!(taken.await.status, StatusCode::OK);
}

async fn configure(api: &TestApi, settings: &NamespaceSettings) {
    let command = Command::ConfigureNamespace(Box::new(ConfigureNamespace {
        namespace: Namespace::default(),
        settings: settings.clone(),
    }));
    api.shard.call(command).await.expect("accepted");
}

#[tokio::test]
async fn a_full_queue_is_reported_as_a_string() {
    let api = api(&[]);
    let full = NamespaceSettings {
        live_max: Some(0),
        ..NamespaceSettings::default()
    };
    configure(&api, &full).await;
    let answer = api.notify(&[], &room("e1")).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.headers["content-type"], "application/json");
    let text = answer.json();
    let text = text.as_str().expect("a string");
    assert!(
        text.starts_with("Notification not processed or not updated: "),
        "{text}"
    );
    api.shard.stop().await;
    let answer = api.notify(&[], &room("e1")).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer.json().is_string());
}

/// Settings of a database that does not exist.
const UNREACHABLE: [(&str, &str); 2] = [("POSTGRES_HOST", "127.0.0.1"), ("POSTGRES_PORT", "1")];

#[tokio::test]
async fn without_offloading_the_outcome_of_the_insert_is_the_answer() {
    let variables = [&UNREACHABLE[..], &[("WQ_OFFLOAD_WORK", "false")]].concat();
    let api = api(&variables);
    let answer = api.notify(&[], &room("e1")).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    let text = answer.json();
    let text = text.as_str().expect("a string");
    assert!(
        text.starts_with("Notification not processed or not updated: InterfaceError("),
        "{text}"
    );
    let answer = api
        .notify(&[("fiware-servicepath", "/a,/b")], &room("e1"))
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let text = answer.json();
    assert!(
        text.as_str()
            .expect("a string")
            .contains("InvalidHeaderValue("),
        "{text}"
    );
    assert_eq!(api.count("", &[]).await, 0);
}

#[tokio::test]
async fn recovery_inserts_a_task_that_the_queue_does_not_accept() {
    let variables = [
        &UNREACHABLE[..],
        &[("WQ_RECOVER_FROM_ENQUEUEING_FAILURE", "true")],
    ]
    .concat();
    let api = api(&variables);
    api.accepted(&[], "e1").await;
    api.shard.stop().await;
    let answer = api.notify(&[], &room("e2")).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    let text = answer.json();
    assert!(
        text.as_str().expect("a string").contains("InterfaceError("),
        "{text}"
    );
}

/// Returns the metrics of the API as text, which must be valid.
fn metrics(api: &TestApi) -> String {
    let mut out = Exposition::default();
    api.service.metrics(&mut out);
    let text = out.text();
    assert_eq!(ganger_metrics::check(&text), Ok(()));
    text
}

#[tokio::test]
async fn notifications_are_counted_by_outcome() {
    let api = api(&[]);
    api.accepted(&[], "e1").await;
    api.accepted(&[], "e2").await;
    post(&api, "text/plain", "").await;
    let out = metrics(&api);
    for wanted in [
        "ganger_quantumleap_notifications_total{outcome=\"accepted\"} 2",
        "ganger_quantumleap_notifications_total{outcome=\"refused\"} 1",
        "ganger_quantumleap_request_seconds_count{operation=\"notify\"} 3",
    ] {
        assert!(out.contains(wanted), "{wanted}: {out}");
    }
    api.shard.metrics_now().await.expect("counted");
    let out = metrics(&api);
    let wanted = "ganger_quantumleap_tasks{status=\"pending\"} 2";
    assert!(out.contains(wanted), "{out}");
}

#[tokio::test]
async fn a_report_on_a_deleted_task_is_refused() {
    let api = api(&[]);
    api.accepted(&[], "e1").await;
    let leased = api.lease().await;
    let answer = api
        .request(Method::DELETE, "/wq/notifications", &[], "")
        .await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let report = Command::Complete(Box::new(Complete {
        held: held(&leased),
        result: None,
        next: None,
    }));
    let refused = api.shard.call(report).await.expect_err("it is gone");
    assert!(matches!(refused, CallError::Rejected(_)), "{refused}");
    assert_eq!(api.count("", &[]).await, 0);
}
