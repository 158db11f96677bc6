//! Invalid values are refused with the right status and code, and the error names their place.

use crate::support::{Face, face};
use http::Method;
use serde_json::json;

const TOKEN: &str = "00000000000000010000000000000001000000000000000000000000";

/// A request and its expected refusal.
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
#[rustfmt::skip] // A table reads better with a case on each line.
async fn bad_jobs_are_refused_where_they_are_bad() {
    let cases = [
        Case("POST", "/api/v1/jobs", r"{}", 400, "missing_field"),
        Case("POST", "/api/v1/jobs", r#"{"kind":7}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":""}"#, 422, "kind_missing"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","kind":"b"}"#, 400, "duplicate_field"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","priority":1.5}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","priority":9999999999999999}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","priority":1e400}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","delay":"soon"}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","delay":-1}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","delay":1e300}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","run_at":"tomorrow"}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","delay":1,"run_at":"2030-01-01T00:00:00Z"}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","deadline":"2001-01-01T00:00:00Z"}"#, 422, "deadline_passed"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","payload":1,"payload_base64":""}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","payload_base64":"%%"}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","labels":{"k":"1","k":"2"}}"#, 400, "duplicate_field"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","labels":{"k":1}}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","tags":"t"}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","inputs":[{}]}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","inputs":[{"value":1,"result_of_job":"x"}]}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","inputs":[{"result_of":"x"}]}"#, 422, "unknown_reference"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","inputs":[{"result_of_job":"x"}]}"#, 422, "dependency_not_found"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","after":[{"job":"x","policy":"perhaps"}]}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","retry":{"max":-1}}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","retry":{"backoff":{"base":"1s","x":1}}}"#, 400, "unknown_field"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","keep_failed":"never"}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"a","id":"00000000-0000"}"#, 422, "id_reserved"),
        Case("POST", "/api/v1/jobs", "{\"kind\":\"a\u{0}\"}", 400, "malformed_json"),
        Case("POST", "/api/v1/jobs", r#"{"kind":"\ud800"}"#, 400, "malformed_json"),
        Case("GET", "/api/v1/jobs?state=lost", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs?limit=0", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs?limit=99999999999999999999", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs?after=x", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs?label=k", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs?created_from=now", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs?queue=a&queue=b", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs/nobody", "", 404, "job_not_found"),
        Case("GET", "/api/v1/jobs/nobody?wait=1w", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs/nobody/log", "", 404, "job_not_found"),
        Case("GET", "/api/v1/jobs/nobody/log?attempt=0", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs/nobody/log?format=pdf", "", 400, "invalid_value"),
        Case("GET", "/api/v1/jobs/nobody/why", "", 404, "job_not_found"),
        Case("GET", "/api/v1/jobs/nobody/inputs?from=-1", "", 404, "job_not_found"),
        Case("GET", "/api/v1/jobs/1/nobody", "", 404, "path_not_found"),
        Case("POST", "/api/v1/jobs/nobody/cancel", "", 404, "job_not_found"),
        Case("POST", "/api/v1/jobs/nobody/retry", "", 404, "job_not_found"),
        Case("POST", "/api/v1/jobs/nobody/timeout", "", 404, "job_not_found"),
        Case("DELETE", "/api/v1/jobs/nobody", "", 404, "job_not_found"),
        Case("PATCH", "/api/v1/jobs/nobody", r#"{"priority":1}"#, 404, "job_not_found"),
        Case("POST", "/api/v1/jobs/nobody/dependencies", r#"{"on":["x"]}"#, 404, "job_not_found"),
        Case("POST", "/api/v1/jobs/cancel", r"{}", 400, "invalid_value"),
        Case("POST", "/api/v1/jobs/cancel", r#"{"jobs":[],"filter":{}}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs/delete", r#"{"filter":{}}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/jobs/delete", r#"{"jobs":["a"],"reason":"x"}"#, 400, "unknown_field"),
        Case("POST", "/api/v1/jobs/retry", r#"{"filter":{"state":"lost"}}"#, 400, "invalid_value"),
        Case("GET", "/nowhere", "", 404, "path_not_found"),
        Case("GET", "/api/v2/jobs", "", 404, "path_not_found"),
    ];
    check(&face(), &cases).await;
}

#[tokio::test]
#[rustfmt::skip] // A table reads better with a case on each line.
async fn bad_graphs_name_the_job_and_the_argument() {
    let face = face();
    let path = "/api/v1/graphs";
    for (body, code, words) in [
        (r#"{"jobs":[]}"#, "nothing_submitted", ""),
        ("[]", "nothing_submitted", ""),
        (r#"{"jobs":[{"kind":"a","name":"x"},{"kind":"a","name":"x"}]}"#, "invalid_value", "/jobs/1/name"),
        (r#"{"jobs":[{"kind":"a","inputs":[{"value":1},{"result_of":"zz"}]}]}"#, "unknown_reference", "/jobs/0/inputs/1"),
        (r#"{"jobs":[{"kind":"a","name":"x","after":[{"name":"y"}]},{"kind":"a","name":"y","after":[{"name":"x"}]}]}"#, "cycle", "\"x\""),
        (r#"{"jobs":[{"kind":"a","name":"x","after":[{"name":"x"}]}]}"#, "cycle", "\"x\""),
        (r#"{"jobs":[{"kind":"a","id":"i"},{"kind":"b","id":"i"}]}"#, "duplicate_id", "job 1"),
        (r#"{"jobs":[{"kind":"a"},{"kind":"","name":"n"}]}"#, "kind_missing", "\"n\""),
        (r#"[{"task_id":{"shard":"9","id":"a"},"method":"m"}]"#, "unknown_shard", "9/a"),
        (r#"[{"task_id":{"shard":"1","id":"a"},"method":""}]"#, "kind_missing", "1/a"),
        (r#"[{"task_id":{"shard":"1","id":"a"},"method":"m"},{"task_id":{"shard":"1","id":"a"},"method":"m"}]"#, "duplicate_id", "1/a"),
        (r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","args":[{"type":"VALUE","value_json":"{"}]}]"#, "invalid_value", "task 0 (1/a), argument 0"),
        (r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","args":[{"type":"TASKREF"}]}]"#, "invalid_value", "argument 0"),
        (r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","args":[{"type":"TASKREF","task_id":{"shard":"1","id":"b"}}]}]"#, "dependency_not_found", "1/a"),
        (r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","args":[{"type":"TASKREF","task_id":{"shard":"2","id":"b"}}]}]"#, "unknown_shard", "2/b"),
        (r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","colour":1}]"#, "unknown_field", "/0/colour"),
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
#[rustfmt::skip] // A table reads better with a case on each line.
async fn bad_reports_settings_and_schedules_are_refused() {
    let report = |more: &str| format!(r#"{{"job":"j","token":"{TOKEN}"{more}}}"#);
    let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    let cases = [
        Case("POST", "/api/v1/leases", r#"{"worker":"w","queues":[]}"#, 422, "out_of_range"),
        Case("POST", "/api/v1/leases", r#"{"worker":"w","max":0}"#, 422, "out_of_range"),
        Case("POST", "/api/v1/leases", r#"{"worker":"w","queues":[1]}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/leases", r#"{"queues":["a"]}"#, 400, "missing_field"),
        Case("POST", "/api/v1/leases", r#"{"mode":"random"}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/leases", r#"{"worker":"w","lease_for":"1us"}"#, 422, "out_of_range"),
        Case("POST", "/api/v1/leases", r#"{"wait":"x"}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/leases/complete", r#"{"job":"j"}"#, 400, "missing_field"),
        Case("POST", "/api/v1/leases/complete", r#"{"job":"j","token":"zz"}"#, 400, "invalid_value"),
        Case("POST", "/api/v1/leases/complete", leak(report("")), 404, "job_not_found"),
        Case("POST", "/api/v1/leases/complete", leak(report(r#","result":1,"result_base64":"" "#)), 400, "invalid_value"),
        Case("POST", "/api/v1/leases/renew", leak(report(r#","progress":{"fraction":2}"#)), 400, "invalid_value"),
        Case("POST", "/api/v1/leases/renew", leak(report("")), 404, "job_not_found"),
        Case("POST", "/api/v1/leases/fail", leak(report(r#","retry_after":"-1s""#)), 400, "invalid_value"),
        Case("POST", "/api/v1/leases/fail", leak(report("")), 404, "job_not_found"),
        Case("POST", "/api/v1/leases/release", leak(report(r#","counted":"yes""#)), 400, "invalid_value"),
        Case("POST", "/api/v1/leases/log", leak(report(r#","offset":0"#)), 400, "invalid_value"),
        Case("POST", "/api/v1/leases/log", leak(report(r#","offset":-1,"text":"""#)), 400, "invalid_value"),
        Case("POST", "/api/v1/leases/complete", "[{}]", 400, "missing_field"),
        Case("PUT", "/api/v1/queues/q", r#"{"running_max":-1}"#, 400, "invalid_value"),
        Case("PUT", "/api/v1/queues/q", r#"{"due_order":"beside"}"#, 400, "invalid_value"),
        Case("PUT", "/api/v1/queues/q", r#"{"retention":{"failed":{"age":"x"}}}"#, 400, "invalid_value"),
        Case("GET", "/api/v1/queues/nowhere", "", 404, "queue_not_found"),
        Case("DELETE", "/api/v1/queues/nowhere", "", 404, "queue_not_found"),
        Case("PUT", "/api/v1/namespaces/n", r#"{"clock":"lunar"}"#, 400, "invalid_value"),
        Case("PUT", "/api/v1/schedules/s", r#"{"kind":"a"}"#, 400, "invalid_value"),
        Case("PUT", "/api/v1/schedules/s", r#"{"kind":"a","every":"1s","cron":"* * * * *"}"#, 400, "invalid_value"),
        Case("PUT", "/api/v1/schedules/s", r#"{"kind":"a","every":"1s","time_zone":"UTC"}"#, 400, "invalid_value"),
        Case("PUT", "/api/v1/schedules/s", r#"{"kind":"a","cron":"often"}"#, 422, "cron_unreadable"),
        Case("PUT", "/api/v1/schedules/s", r#"{"kind":"a","cron":"0 3 * * *","time_zone":"Mars"}"#, 422, "time_zone_unknown"),
        Case("PUT", "/api/v1/schedules/s", r#"{"kind":"a","every":"1s","catch_up_max":3}"#, 400, "invalid_value"),
        Case("GET", "/api/v1/schedules/none", "", 404, "schedule_not_found"),
        Case("DELETE", "/api/v1/schedules/none", "", 404, "schedule_not_found"),
        Case("GET", "/api/v1/stats?day=yesterday", "", 400, "invalid_value"),
        Case("GET", "/api/v1/tags?limit=0", "", 400, "invalid_value"),
        Case("GET", "/api/v1/events?event=job_lost", "", 400, "invalid_value"),
        Case("GET", "/api/v1/events?after=x", "", 400, "invalid_value"),
    ];
    check(&face(), &cases).await;
}
