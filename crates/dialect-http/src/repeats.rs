//! Which requests can be sent again without doing anything twice.

use http::Method;
use http::request::Parts;
use serde_json::Value;

use crate::request_context::IDEMPOTENCY_HEADER;

const JOBS: &str = "/api/v1/jobs";
const GRAPHS: &str = "/api/v1/graphs";
/// Paths of the reports about leased jobs. The token tells the owner of the job that it has one already (`rel L7`).
const REPORTS: [&str; 4] = [
    "/api/v1/leases/complete",
    "/api/v1/leases/fail",
    "/api/v1/leases/release",
    "/api/v1/leases/renew",
];

/// Whether a request can be sent again whatever its body is: it is a report about a leased job, or a submission with an
/// idempotency key in its header.
pub fn is_repeatable(head: &Parts) -> bool {
    let is_keyed = || head.headers.contains_key(IDEMPOTENCY_HEADER);
    is_report(head) || (is_submission(head) && is_keyed())
}

/// Whether a request submits a graph, whose body may have an idempotency key too.
pub fn is_graph(head: &Parts) -> bool {
    head.method == Method::POST && head.uri.path() == GRAPHS
}

/// Whether the body of a graph has an idempotency key. The ids of its jobs are none: a job that is not kept once it has
/// ended would be made a second time.
pub fn has_key(body: &[u8]) -> bool {
    let document = serde_json::from_slice::<Value>(body);
    document.is_ok_and(|document| document["idempotency_key"].is_string())
}

fn is_submission(head: &Parts) -> bool {
    head.method == Method::POST && [JOBS, GRAPHS].contains(&head.uri.path())
}

fn is_report(head: &Parts) -> bool {
    head.method == Method::POST && REPORTS.contains(&head.uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn head(path: &str, key: Option<&str>) -> Parts {
        let mut request = Request::builder().method(Method::POST).uri(path);
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_HEADER, key);
        }
        request.body(()).expect("it is a request").into_parts().0
    }

    #[test]
    fn reports_and_submissions_with_a_key_are_repeatable() {
        for (path, key, expected) in [
            ("/api/v1/leases/complete?shard=2", None, true),
            ("/api/v1/leases/log", None, false),
            ("/api/v1/leases", Some("k"), false),
            ("/api/v1/jobs", None, false),
            ("/api/v1/jobs?shard=2", Some("k"), true),
            ("/api/v1/graphs", Some("k"), true),
        ] {
            assert_eq!(is_repeatable(&head(path, key)), expected, "{path}");
        }
    }

    #[test]
    fn a_body_tells_of_a_key() {
        for (body, expected) in [
            (r#"{"jobs": [{"id": "a"}, {"id": "b"}]}"#, false),
            (r#"{"idempotency_key": "k", "jobs": [{}]}"#, true),
            (r#"{"idempotency_key": "k", "jobs": [{}"#, false),
        ] {
            assert_eq!(has_key(body.as_bytes()), expected, "{body}");
        }
    }
}
