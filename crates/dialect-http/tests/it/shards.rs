//! Submissions over two shards of one process: all or none, through either shard.

use std::sync::Arc;

use crate::support::{Answer, Face, face_of, start};
use axum::body::Body;
use ganger_dialect_http::Settings;
use ganger_router::{PlainConnector, Router, Topology};
use ganger_types::ShardId;
use http::{Method, Request, header};
use serde_json::{Value, json};

const GRAPHS: &str = "/api/v1/graphs";

/// The routes of shards 1 and 2, which know each other.
pub(crate) fn two() -> (Face, Face) {
    let shards: Vec<_> = ["1", "2"]
        .iter()
        .map(|name| {
            start(ganger_shard::Settings {
                shard: ShardId::new(name).expect("a shard's name"),
                reserve_bytes: 0,
                ..Default::default()
            })
        })
        .collect();
    let router = Router::start(
        shards.clone(),
        Topology::default(),
        Arc::new(PlainConnector),
    );
    let mut faces = shards.into_iter().map(|shard| {
        let settings = Settings {
            router: Some(router.clone()),
            ..Settings::default()
        };
        face_of(shard, settings)
    });
    let mut next = || faces.next().expect("there are two");
    (next(), next())
}

/// Two saves on shards 1 and 2, and a mail on 1 that takes both results.
fn walk() -> Value {
    let save = |shard: &str, uid: u32| {
        json!({
            "task_id": {"shard": shard, "id": "save"},
            "method": "save-user-data",
            "args": [{"type": "VALUE", "value_json": format!("{{\"uid\": {uid}}}")}],
        })
    };
    let result =
        |shard: &str| json!({"type": "TASKREF", "task_id": {"shard": shard, "id": "save"}});
    json!([
        save("1", 1234),
        save("2", 5678),
        {
            "task_id": {"shard": "1", "id": "mail"},
            "method": "send-mail",
            "args": [result("1"), result("2")],
        },
    ])
}

/// Runs the next job of a shard and returns its delivery.
async fn run(face: &Face, result: Value) -> Value {
    let lease = face.lease().await;
    let report = json!({"job": lease["id"], "token": lease["token"], "result": result});
    face.post("/api/v1/leases/complete", report).await;
    lease
}

async fn is_empty(face: &Face) -> bool {
    face.get("/api/v1/jobs").await["jobs"] == json!([])
}

async fn with_key(face: &Face, key: &str, body: &Value) -> Answer {
    let request = Request::post(GRAPHS)
        .header(header::CONTENT_TYPE, "application/json")
        .header("idempotency-key", key)
        .body(Body::from(body.to_string()))
        .expect("a request");
    face.send(request).await
}

#[tokio::test]
async fn a_mail_takes_the_results_of_two_shards_in_order() {
    let (one, two) = two();
    // The shards in the answer do not depend on which shard was asked.
    let answer = two.post(GRAPHS, walk()).await;
    let jobs = answer["jobs"].as_array().expect("jobs");
    let shards: Vec<_> = jobs
        .iter()
        .map(|job| job["task_id"]["shard"].clone())
        .collect();
    assert_eq!(shards, ["1", "2", "1"]);
    assert_eq!(jobs[1]["mock_id"], json!({"shard": "2", "id": "save"}));
    let full = format!("2/{}", jobs[1]["id"].as_str().expect("an id"));
    assert_eq!(jobs[1]["ref"], full);
    assert!(answer["graph"].is_string(), "{answer}");

    run(&two, json!({"link": "two"})).await;
    run(&one, json!({"link": "one"})).await;
    let mail = one.lease().await;
    assert_eq!(mail["kind"], "send-mail");
    let values: Vec<_> = mail["inputs"]
        .as_array()
        .expect("inputs")
        .iter()
        .map(|input| input["value"].clone())
        .collect();
    assert_eq!(
        values,
        [json!({"link": "one"}), json!({"link": "two"})],
        "{mail}"
    );
}

#[tokio::test]
async fn a_graph_of_our_own_form_names_its_shards() {
    let (one, two) = two();
    let graph = json!({"jobs": [
        {"name": "up", "shard": "2", "kind": "a", "id": "x"},
        {"name": "down", "kind": "b", "inputs": [{"result_of": "up"}], "after": [{"name": "up"}]},
    ]});
    let answer = one.post(GRAPHS, graph).await;
    assert_eq!(answer["jobs"][0]["ref"], "2/x");
    assert_eq!(answer["jobs"][1]["name"], "down");
    run(&two, json!(7)).await;
    let down = one.lease().await;
    assert_eq!(
        (&down["kind"], &down["inputs"][0]["value"]),
        (&json!("b"), &json!(7))
    );
}

#[tokio::test]
async fn one_job_waits_for_a_job_of_another_shard() {
    let (one, two) = two();
    two.enqueue(json!({"kind": "up", "id": "x"})).await;
    for inputs in [
        json!({"kind": "down", "inputs": [{"result_of_job": "2/x"}]}),
        json!({"kind": "down", "after": [{"job": "2/x"}]}),
    ] {
        let answer = one.post("/api/v1/jobs", inputs).await;
        assert!(
            answer["ref"].as_str().expect("a name").starts_with("1/"),
            "{answer}"
        );
        let id = answer["id"].as_str().expect("an id");
        let why = one.get(&format!("/api/v1/jobs/{id}/why")).await;
        let expected = json!([{
            "reason": "waits_elsewhere",
            "text": "the job waits for a job of another shard",
            "count": 1,
            "jobs": [{"job": "2/x"}],
        }]);
        assert_eq!(why["reasons"], expected, "{why}");
    }
    run(&two, json!("done")).await;
    assert_eq!(one.lease().await["kind"], "down");
    assert_eq!(one.lease().await["kind"], "down");
}

#[tokio::test]
async fn a_job_is_enqueued_on_the_shard_that_it_names() {
    let (one, two) = two();
    for job in [
        json!({"kind": "a", "shard": "2", "id": "x"}),
        json!({"kind": "a", "id": "2/y"}),
    ] {
        let answer = one.post("/api/v1/jobs", job).await;
        let name = answer["ref"].as_str().expect("a name");
        assert!(name.starts_with("2/"), "{answer}");
    }
    assert!(is_empty(&one).await);
    assert_eq!(two.get("/api/v1/jobs/x").await["kind"], "a");
    assert_eq!(two.get("/api/v1/jobs/y").await["kind"], "a");
}

#[tokio::test]
async fn lines_of_a_batch_may_lead_elsewhere() {
    let (one, two) = two();
    let lines = "{\"kind\":\"a\",\"id\":\"x\"}\n{\"kind\":\"a\",\"id\":\"y\",\"shard\":\"2\"}\n";
    let request = Request::post("/api/v1/jobs/batch")
        .header(header::CONTENT_TYPE, "application/x-ndjson")
        .body(Body::from(lines))
        .expect("a request");
    let answer = one.send(request).await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let ids: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["id"].clone())
        .collect();
    assert_eq!(ids, [json!("x"), json!("2/y"), Value::Null], "{text}");
    assert_eq!(two.get("/api/v1/jobs/y").await["kind"], "a");
}

#[tokio::test]
async fn a_repeat_under_one_key_is_answered_with_the_first_ids() {
    let (one, two) = two();
    let first = with_key(&one, "k", &walk()).await;
    let again = with_key(&two, "k", &walk()).await;
    assert_eq!((first.status.as_u16(), again.status.as_u16()), (201, 200));
    let refs = |answer: &Answer| {
        let jobs = answer.json()["jobs"].as_array().expect("jobs").clone();
        jobs.iter()
            .map(|job| job["ref"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(refs(&first), refs(&again));
    assert_eq!(first.json()["graph"], again.json()["graph"]);
    assert_eq!(again.json()["repeat"], true);
    let mut other = walk();
    other[0]["method"] = json!("another");
    assert_eq!(
        with_key(&one, "k", &other).await.code(),
        "idempotency_conflict"
    );
}

#[tokio::test]
#[rustfmt::skip] // A table reads better with a case on each line.
async fn what_is_wrong_over_shards_is_refused_whole() {
    let (one, two) = two();
    for (path, body, status, code, words) in [
        (GRAPHS, r#"[{"task_id":{"shard":"2","id":"a"},"method":"m"},{"task_id":{"shard":"9","id":"b"},"method":"m"}]"#, 422, "unknown_shard", "9/b"),
        (GRAPHS, r#"[{"task_id":{"shard":"a b","id":"b"},"method":"m"}]"#, 422, "unknown_shard", "a b"),
        (GRAPHS, r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","args":[{"type":"TASKREF","task_id":{"shard":"2","id":"nobody"}}]}]"#, 422, "dependency_not_found", "2/nobody"),
        (GRAPHS, r#"[{"task_id":{"shard":"1","id":"a"},"method":"m","args":[{"type":"TASKREF","task_id":{"shard":"2","id":"b"}}]},{"task_id":{"shard":"2","id":"b"},"method":"m","args":[{"type":"TASKREF","task_id":{"shard":"1","id":"a"}}]}]"#, 422, "cycle", "1/a"),
        (GRAPHS, r#"[{"task_id":{"shard":"2","id":"a"},"method":"m"},{"task_id":{"shard":"2","id":"a"},"method":"m"}]"#, 422, "duplicate_id", "2/a"),
        (GRAPHS, r#"[{"task_id":{"shard":"2","id":"a"},"method":"m"},{"task_id":{"shard":"1","id":"a"},"method":""}]"#, 422, "kind_missing", "1/a"),
        (GRAPHS, r#"{"jobs":[{"kind":"a"},{"kind":"a","shard":"9"}]}"#, 422, "unknown_shard", "/jobs/1/shard"),
        (GRAPHS, r#"{"jobs":[{"kind":"a"},{"kind":"a","shard":"2","unique":{"key":"k"}}]}"#, 422, "one_shard_only", "unique"),
        (GRAPHS, r#"{"jobs":[{"kind":"a"},{"kind":"a","shard":"2","id":"1/x"}]}"#, 400, "invalid_value", "2/1/x"),
        (GRAPHS, r#"{"jobs":[{"kind":"a","after":[{"job":"9/x"}]}]}"#, 422, "unknown_shard", "9"),
        ("/api/v1/jobs", r#"{"kind":"a","after":[{"job":"2/nobody"}]}"#, 422, "dependency_not_found", "2/nobody"),
        ("/api/v1/jobs", r#"{"kind":"a","shard":"9"}"#, 422, "unknown_shard", "/shard"),
    ] {
        let answer = one.text(Method::POST, path, body).await;
        assert_eq!((answer.status.as_u16(), &*answer.code()), (status, code), "{body}: {answer:?}");
        let detail = answer.json()["detail"].as_str().expect("a detail").to_owned();
        assert!(detail.contains(words), "{body}: {detail}");
    }
    assert!(is_empty(&one).await && is_empty(&two).await, "a refusal changes nothing");
}

/// Sends a body to a shard. Returns the status and the document.
async fn put_in(face: &Face, path: &str, key: Option<&str>, body: &Value) -> (u16, Value) {
    let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let body = Body::from(body.to_string());
    let answer = face.send(request.body(body).expect("a request")).await;
    (answer.status.as_u16(), answer.json())
}

async fn count(face: &Face) -> Value {
    face.get("/api/v1/jobs/count").await["count"].clone()
}

#[tokio::test]
async fn rel_p1_one_id_is_one_job_through_any_server() {
    let (one, two) = two();
    let body = json!({"id": "x1", "shard": "2", "kind": "x"});
    let (first, again) = tokio::join!(
        put_in(&one, "/api/v1/jobs", None, &body),
        put_in(&one, "/api/v1/jobs", None, &body),
    );
    let mut statuses = [first.0, again.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 201], "{first:?} {again:?}");
    for face in [&one, &two, &one] {
        let (status, answer) = put_in(face, "/api/v1/jobs", None, &body).await;
        assert_eq!(
            (status, &answer["existed"]),
            (200, &json!(true)),
            "{answer}"
        );
        assert_eq!(answer["ref"], "2/x1");
    }
    let other = json!({"id": "x1", "shard": "2", "kind": "x", "payload": 2});
    for face in [&one, &two] {
        let (status, answer) = put_in(face, "/api/v1/jobs", None, &other).await;
        assert_eq!(
            (status, &answer["code"]),
            (409, &json!("id_taken")),
            "{answer}"
        );
    }
    // Idempotency and unique keys belong to the job's own shard too.
    let keyed = json!({"shard": "2", "kind": "x"});
    let unique = json!({"shard": "2", "kind": "x", "unique": {"key": "u"}});
    for (key, body) in [(Some("k"), keyed), (None, unique)] {
        let (_, first) = put_in(&one, "/api/v1/jobs", key, &body).await;
        let (status, again) = put_in(&two, "/api/v1/jobs", key, &body).await;
        assert_eq!((status, &again["id"]), (200, &first["id"]), "{again}");
    }
    assert_eq!((count(&one).await, count(&two).await), (json!(0), json!(3)));
}

#[tokio::test]
async fn rel_p1_a_graph_over_shards_is_repeated_under_the_ids_of_its_jobs() {
    let (one, two) = two();
    let graph = json!({"jobs": [
        {"name": "up", "shard": "2", "kind": "a", "id": "up"},
        {"name": "down", "shard": "1", "kind": "b", "id": "down", "inputs": [{"result_of": "up"}]},
    ]});
    let (status, first) = put_in(&one, GRAPHS, None, &graph).await;
    assert_eq!(status, 201, "{first}");
    run(&two, json!(7)).await;
    for face in [&two, &one] {
        let (_, again) = put_in(face, GRAPHS, None, &graph).await;
        for place in [0, 1] {
            assert_eq!(again["jobs"][place]["existed"], json!(true), "{again}");
        }
    }
    let mut other = graph.clone();
    other["jobs"][1]["payload"] = json!("another");
    let (status, refused) = put_in(&two, GRAPHS, None, &other).await;
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("id_taken")),
        "{refused}"
    );
    // A new job takes the result of a finished job.
    let mut more = graph.clone();
    more["jobs"][1] =
        json!({"name": "more", "shard": "1", "kind": "c", "inputs": [{"result_of": "up"}]});
    let (_, answer) = put_in(&two, GRAPHS, None, &more).await;
    let existed = [0, 1].map(|place| answer["jobs"][place]["existed"].clone());
    assert_eq!(existed, [json!(true), json!(false)], "{answer}");
    assert_eq!((count(&one).await, count(&two).await), (json!(2), json!(1)));
    run(&one, json!(null)).await;
    let last = one.lease().await;
    assert_eq!(last["inputs"][0]["value"], json!(7), "{last}");
}

#[tokio::test]
async fn a_submission_through_another_server_is_refused_as_through_its_own() {
    let (one, two) = two();
    let long_ago = "2001-01-01T00:00:00Z";
    for body in [
        json!({"shard": "2", "kind": ""}),
        json!({"shard": "2", "kind": "x", "id": ""}),
        json!({"shard": "2", "kind": "x", "queue": ""}),
        json!({"shard": "2", "kind": "x", "tags": [""]}),
        json!({"shard": "2", "kind": "x", "id": "00000k3v-x7qz"}),
        json!({"shard": "2", "kind": "x", "deadline": long_ago}),
        json!({"shard": "2", "kind": "x", "after": [{"job": "2/nobody"}]}),
    ] {
        let (own_status, own) = put_in(&two, "/api/v1/jobs", None, &body).await;
        let (status, answer) = put_in(&one, "/api/v1/jobs", None, &body).await;
        assert!(own_status >= 400, "{body}: {own}");
        assert_eq!(
            (status, &answer["code"]),
            (own_status, &own["code"]),
            "{answer}"
        );
    }
    assert_eq!(count(&two).await, json!(0));
}
