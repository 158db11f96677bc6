//! Bad input over every operation: each is refused with the right status and code, and changes nothing.

mod support;

use axum::body::Body;
use ganger_dialect_http::Settings;
use http::{Method, Request};
use serde_json::{Value, json};
use support::{Face, face, face_with};

const TOKEN: &str = "00000000000000010000000000000001000000000000000000000000";

/// A request, and how it must be refused.
struct Case(&'static str, &'static str, &'static str, u16, &'static str);

async fn check(face: &Face, cases: &[Case]) {
    for Case(method, path, body, status, code) in cases {
        let answer = face
            .text(method.parse().expect("a method"), path, *body)
            .await;
        let told = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(
            answer.status.as_u16(),
            *status,
            "{method} {path} {body}: {told}"
        );
        assert_eq!(
            answer.headers["content-type"], "application/problem+json",
            "{method} {path}"
        );
        assert_eq!(answer.code(), *code, "{method} {path} {body}: {told}");
        assert_eq!(answer.json()["status"], *status, "{told}");
        assert!(
            !answer.json()["detail"]
                .as_str()
                .expect("a detail")
                .is_empty(),
            "{told}"
        );
    }
}

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
        (M::PUT, "/api/v1/queues/x", true),
        (M::PUT, "/api/v1/namespaces/x", true),
        (M::PUT, "/api/v1/schedules/x", true),
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
async fn bad_jobs_are_refused_where_they_are_bad() {
    let cases = [
        Case("POST", "/api/v1/jobs", r#"{}"#, 400, "missing_field"),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":7}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":""}"#,
            422,
            "kind_missing",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","kind":"b"}"#,
            400,
            "duplicate_field",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","name":"n"}"#,
            400,
            "unknown_field",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","priority":1.5}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","priority":9999999999999999}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","priority":1e400}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","delay":"soon"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","delay":-1}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","delay":1e300}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","run_at":"tomorrow"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","delay":1,"run_at":"2030-01-01T00:00:00Z"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","deadline":"2001-01-01T00:00:00Z"}"#,
            422,
            "deadline_passed",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","payload":1,"payload_base64":""}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","payload_base64":"%%"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","labels":{"k":"1","k":"2"}}"#,
            400,
            "duplicate_field",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","labels":{"k":1}}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","tags":"t"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","inputs":[{}]}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","inputs":[{"value":1,"result_of_job":"x"}]}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","inputs":[{"result_of":"x"}]}"#,
            422,
            "unknown_reference",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","inputs":[{"result_of_job":"x"}]}"#,
            422,
            "upstream_not_found",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","after":[{"job":"x","policy":"perhaps"}]}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","retry":{"max":-1}}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","retry":{"backoff":{"base":"1s","x":1}}}"#,
            400,
            "unknown_field",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","keep_failed":"never"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"a","id":"00000000-0000"}"#,
            422,
            "id_reserved",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            "{\"kind\":\"a\u{0}\"}",
            400,
            "malformed_json",
        ),
        Case(
            "POST",
            "/api/v1/jobs",
            r#"{"kind":"\ud800"}"#,
            400,
            "malformed_json",
        ),
        Case("GET", "/api/v1/jobs?state=lost", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs?limit=0", "", 400, "invalid_value"),
        Case(
            "GET",
            "/api/v1/jobs?limit=99999999999999999999",
            "",
            400,
            "invalid_value",
        ),
        Case("GET", "/api/v1/jobs?after=x", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs?label=k", "", 400, "invalid_value"),
        Case(
            "GET",
            "/api/v1/jobs?created_from=now",
            "",
            400,
            "invalid_value",
        ),
        Case(
            "GET",
            "/api/v1/jobs?queue=a&queue=b",
            "",
            400,
            "invalid_value",
        ),
        Case("GET", "/api/v1/jobs/nobody", "", 404, "job_not_found"),
        Case(
            "GET",
            "/api/v1/jobs/nobody?wait=1w",
            "",
            400,
            "invalid_value",
        ),
        Case("GET", "/api/v1/jobs/nobody/log", "", 404, "job_not_found"),
        Case(
            "GET",
            "/api/v1/jobs/nobody/log?attempt=0",
            "",
            400,
            "invalid_value",
        ),
        Case(
            "GET",
            "/api/v1/jobs/nobody/log?format=pdf",
            "",
            400,
            "invalid_value",
        ),
        Case("GET", "/api/v1/jobs/nobody/why", "", 404, "job_not_found"),
        Case(
            "GET",
            "/api/v1/jobs/nobody/inputs?from=-1",
            "",
            404,
            "job_not_found",
        ),
        Case("GET", "/api/v1/jobs/1/nobody", "", 404, "path_not_found"),
        Case(
            "POST",
            "/api/v1/jobs/nobody/cancel",
            "",
            404,
            "job_not_found",
        ),
        Case(
            "POST",
            "/api/v1/jobs/nobody/retry",
            "",
            404,
            "job_not_found",
        ),
        Case(
            "POST",
            "/api/v1/jobs/nobody/timeout",
            "",
            404,
            "job_not_found",
        ),
        Case("DELETE", "/api/v1/jobs/nobody", "", 404, "job_not_found"),
        Case(
            "PATCH",
            "/api/v1/jobs/nobody",
            r#"{"priority":1}"#,
            404,
            "job_not_found",
        ),
        Case(
            "POST",
            "/api/v1/jobs/nobody/dependencies",
            r#"{"on":["x"]}"#,
            404,
            "job_not_found",
        ),
        Case("POST", "/api/v1/jobs/cancel", r#"{}"#, 400, "invalid_value"),
        Case(
            "POST",
            "/api/v1/jobs/cancel",
            r#"{"jobs":[],"filter":{}}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs/delete",
            r#"{"filter":{}}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/jobs/delete",
            r#"{"jobs":["a"],"reason":"x"}"#,
            400,
            "unknown_field",
        ),
        Case(
            "POST",
            "/api/v1/jobs/retry",
            r#"{"filter":{"state":"lost"}}"#,
            400,
            "invalid_value",
        ),
        Case("GET", "/nowhere", "", 404, "path_not_found"),
        Case("GET", "/api/v2/jobs", "", 404, "path_not_found"),
    ];
    check(&face(), &cases).await;
}

#[tokio::test]
async fn bad_graphs_name_the_job_and_the_argument() {
    let face = face();
    let path = "/api/v1/graphs";
    for (body, code, words) in [
        (r#"{"jobs":[]}"#, "nothing_submitted", ""),
        ("[]", "nothing_submitted", ""),
        (
            r#"{"jobs":[{"kind":"a","name":"x"},{"kind":"a","name":"x"}]}"#,
            "invalid_value",
            "/jobs/1/name",
        ),
        (
            r#"{"jobs":[{"kind":"a","inputs":[{"value":1},{"result_of":"zz"}]}]}"#,
            "unknown_reference",
            "/jobs/0/inputs/1",
        ),
        (
            r#"{"jobs":[{"kind":"a","name":"x","after":[{"name":"y"}]},{"kind":"a","name":"y","after":[{"name":"x"}]}]}"#,
            "cycle",
            "\"x\"",
        ),
        (
            r#"{"jobs":[{"kind":"a","name":"x","after":[{"name":"x"}]}]}"#,
            "cycle",
            "\"x\"",
        ),
        (
            r#"{"jobs":[{"kind":"a","id":"i"},{"kind":"b","id":"i"}]}"#,
            "duplicate_id",
            "job 1",
        ),
        (
            r#"{"jobs":[{"kind":"a"},{"kind":"","name":"n"}]}"#,
            "kind_missing",
            "\"n\"",
        ),
        (
            r#"[{"task_id":{"shard":"9","id":"a"},"method":"m"}]"#,
            "unknown_shard",
            "9/a",
        ),
        (
            r#"[{"task_id":{"shard":"1","id":"a"},"method":""}]"#,
            "kind_missing",
            "1/a",
        ),
        (
            r#"[{"task_id":{"shard":"1","id":"a"},"method":"m"},{"task_id":{"shard":"1","id":"a"},"method":"m"}]"#,
            "duplicate_id",
            "1/a",
        ),
        (
            r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","args":[{"type":"VALUE","value_json":"{"}]}]"#,
            "invalid_value",
            "task 0 (1/a), argument 0",
        ),
        (
            r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","args":[{"type":"TASKREF"}]}]"#,
            "invalid_value",
            "argument 0",
        ),
        (
            r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","args":[{"type":"TASKREF","task_id":{"shard":"1","id":"b"}}]}]"#,
            "upstream_not_found",
            "1/a",
        ),
        (
            r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","args":[{"type":"TASKREF","task_id":{"shard":"2","id":"b"}}]}]"#,
            "unknown_shard",
            "2/b",
        ),
        (
            r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","colour":1}]"#,
            "unknown_field",
            "/0/colour",
        ),
    ] {
        let answer = face.text(Method::POST, path, body).await;
        assert_eq!(answer.code(), code, "{body}: {answer:?}");
        let detail = answer.json()["detail"]
            .as_str()
            .expect("a detail")
            .to_owned();
        assert!(detail.contains(words), "{body}: {detail}");
    }
    assert_eq!(face.get("/api/v1/jobs").await["jobs"], json!([]));
}

#[tokio::test]
async fn bad_reports_settings_and_schedules_are_refused() {
    let report = |more: &str| format!(r#"{{"job":"j","token":"{TOKEN}"{more}}}"#);
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let cases = [
        Case(
            "POST",
            "/api/v1/leases",
            r#"{"queues":[]}"#,
            422,
            "out_of_range",
        ),
        Case(
            "POST",
            "/api/v1/leases",
            r#"{"max":0}"#,
            422,
            "out_of_range",
        ),
        Case(
            "POST",
            "/api/v1/leases",
            r#"{"queues":["a"]}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/leases",
            r#"{"mode":"random"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/leases",
            r#"{"worker":"w","lease_for":"1us"}"#,
            422,
            "out_of_range",
        ),
        Case(
            "POST",
            "/api/v1/leases",
            r#"{"wait":"x"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/leases/complete",
            r#"{"job":"j"}"#,
            400,
            "missing_field",
        ),
        Case(
            "POST",
            "/api/v1/leases/complete",
            r#"{"job":"j","token":"zz"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/leases/complete",
            leak(report("")),
            404,
            "job_not_found",
        ),
        Case(
            "POST",
            "/api/v1/leases/complete",
            leak(report(r#","result":1,"result_base64":"" "#)),
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/leases/renew",
            leak(report(r#","progress":{"fraction":2}"#)),
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/leases/renew",
            leak(report("")),
            404,
            "job_not_found",
        ),
        Case(
            "POST",
            "/api/v1/leases/fail",
            leak(report(r#","retry_after":"-1s""#)),
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/leases/fail",
            leak(report("")),
            404,
            "job_not_found",
        ),
        Case(
            "POST",
            "/api/v1/leases/release",
            leak(report(r#","counted":"yes""#)),
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/leases/log",
            leak(report(r#","offset":0"#)),
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/leases/log",
            leak(report(r#","offset":-1,"text":"""#)),
            400,
            "invalid_value",
        ),
        Case(
            "POST",
            "/api/v1/leases/complete",
            "[{}]",
            400,
            "missing_field",
        ),
        Case(
            "PUT",
            "/api/v1/queues/q",
            r#"{"running_max":-1}"#,
            400,
            "invalid_value",
        ),
        Case(
            "PUT",
            "/api/v1/queues/q",
            r#"{"due_order":"beside"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "PUT",
            "/api/v1/queues/q",
            r#"{"retention":{"failed":{"age":"x"}}}"#,
            400,
            "invalid_value",
        ),
        Case("GET", "/api/v1/queues/nowhere", "", 404, "queue_not_found"),
        Case(
            "DELETE",
            "/api/v1/queues/nowhere",
            "",
            404,
            "queue_not_found",
        ),
        Case(
            "PUT",
            "/api/v1/namespaces/n",
            r#"{"clock":"lunar"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "PUT",
            "/api/v1/schedules/s",
            r#"{"kind":"a"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "PUT",
            "/api/v1/schedules/s",
            r#"{"kind":"a","every":"1s","cron":"* * * * *"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "PUT",
            "/api/v1/schedules/s",
            r#"{"kind":"a","every":"1s","time_zone":"UTC"}"#,
            400,
            "invalid_value",
        ),
        Case(
            "PUT",
            "/api/v1/schedules/s",
            r#"{"kind":"a","cron":"often"}"#,
            422,
            "cron_unreadable",
        ),
        Case(
            "PUT",
            "/api/v1/schedules/s",
            r#"{"kind":"a","cron":"0 3 * * *","time_zone":"Mars"}"#,
            422,
            "time_zone_unknown",
        ),
        Case(
            "PUT",
            "/api/v1/schedules/s",
            r#"{"kind":"a","every":"1s","catch_up_max":3}"#,
            400,
            "invalid_value",
        ),
        Case(
            "GET",
            "/api/v1/schedules/none",
            "",
            404,
            "schedule_not_found",
        ),
        Case(
            "DELETE",
            "/api/v1/schedules/none",
            "",
            404,
            "schedule_not_found",
        ),
        Case(
            "GET",
            "/api/v1/stats?day=yesterday",
            "",
            400,
            "invalid_value",
        ),
        Case("GET", "/api/v1/tags?limit=0", "", 400, "invalid_value"),
        Case(
            "GET",
            "/api/v1/events?event=job_lost",
            "",
            400,
            "invalid_value",
        ),
        Case("GET", "/api/v1/events?after=x", "", 400, "invalid_value"),
    ];
    check(&face(), &cases).await;
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
    // Without a length in advance, the body is cut off while it is read.
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

#[tokio::test]
async fn bodies_that_hold_too_many_bytes_together_are_turned_away() {
    let face = face_with(Settings {
        bytes_in_flight_max: 4 << 10,
        ..Settings::default()
    });
    let body = json!({"kind": "a", "payload": "x".repeat(8 << 10)}).to_string();
    let answer = face.text(Method::POST, "/api/v1/jobs", body).await;
    assert_eq!(
        (answer.status.as_u16(), &*answer.code()),
        (503, "overloaded")
    );
    assert_eq!(answer.headers["retry-after"], "1");
    face.enqueue(json!({"kind": "a"})).await;
}
