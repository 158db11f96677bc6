//! Every operation once, as clients call it.

use crate::support::{Face, face};
use axum::body::Body;
use ganger_access::{Identity, Proof};
use http::{Method, Request};
use serde_json::{Value, json};

#[tokio::test]
async fn a_job_is_enqueued_leased_renewed_logged_and_completed() {
    let face = face();
    let body = r#"{"kind":"mail","payload":{"to": "a",  "n":1.0},"tags":["x"],"labels":{"k":"v"},"priority":-2,
        "inputs":[{"value":[1,2]},{"value_base64":"/w=="}],"retry":{"max":5,"backoff":["1s",2]},"timeout":"1h"}"#;
    let answer = face.text(Method::POST, "/api/v1/jobs", body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let id = answer.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(answer.json()["ref"], format!("1/{id}"));

    let job = face.get(&format!("/api/v1/jobs/1%2F{id}")).await;
    assert_eq!(job["state"], "ready");
    assert_eq!(job["priority"], -2);
    assert_eq!(job["retry"]["backoff"], json!(["1s", "2s"]));
    assert_eq!(job["labels"], json!({"k": "v"}));
    let inputs = face.get(&format!("/api/v1/jobs/{id}/inputs")).await;
    assert_eq!(
        inputs["inputs"][0],
        json!({"position": 0, "state": "value", "value": [1, 2]})
    );
    assert_eq!(inputs["inputs"][1]["value_base64"], "/w==");

    let leased = face.lease().await;
    assert_eq!(leased["id"], *id);
    assert_eq!(
        leased["inputs"],
        json!([{"value": [1, 2]}, {"value_base64": "/w=="}])
    );
    assert_eq!(leased["timeout_seconds"], 3600.0);
    let held = json!({"job": leased["ref"], "token": leased["token"]});
    let with = |more: Value| {
        let mut all = held.clone();
        all.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        all
    };
    let renewed = face
        .post(
            "/api/v1/leases/renew",
            with(json!({"lease_for": "2m", "progress": {"fraction": 0.5, "message": "half"}})),
        )
        .await;
    assert_eq!(renewed["lease_for_seconds"], 120.0);
    let logged = face
        .post(
            "/api/v1/leases/log",
            with(json!({"offset": 0, "text": "one\ntwo\n"})),
        )
        .await;
    assert_eq!(logged["bytes"], 8);
    assert_eq!(
        face.get(&format!("/api/v1/jobs/{id}")).await["progress"]["fraction"],
        0.5
    );

    let results =
        json!([with(json!({"result": {"ok": true}})), {"job": "nobody", "token": leased["token"]}]);
    let answers = face.post("/api/v1/leases/complete", results).await;
    assert_eq!(answers[0]["state"], "succeeded");
    assert!(answers[1]["error"]["code"].is_string(), "{answers}");

    let get = |path: String| Request::get(path).body(Body::empty()).expect("a request");
    let result = face.send(get(format!("/api/v1/jobs/{id}/result"))).await;
    assert_eq!(
        (&*result.body, &result.headers["content-type"]),
        (
            &br#"{"ok":true}"#[..],
            &"application/json".parse().expect("a value")
        )
    );
    let payload = face.send(get(format!("/api/v1/jobs/{id}/payload"))).await;
    assert_eq!(
        &*payload.body, br#"{"to": "a",  "n":1.0}"#,
        "the exact text is kept"
    );
    let log = face.send(get(format!("/api/v1/jobs/{id}/log"))).await;
    assert_eq!(&*log.body, b"one\ntwo\n");
    let log = face
        .send(get(format!(
            "/api/v1/jobs/{id}/log?format=ndjson&attempt=1&follow=true"
        )))
        .await;
    assert_eq!(log.json()["text"], "one\ntwo\n");
    let waited = face.get(&format!("/api/v1/jobs/{id}?wait=10s")).await;
    assert_eq!(waited["state"], "succeeded");
    assert_eq!(
        face.get(&format!("/api/v1/jobs/{id}/why")).await["reasons"][0]["reason"],
        "ended"
    );
}

#[tokio::test]
async fn a_repeat_under_one_key_is_answered_with_the_first_id() {
    let face = face();
    let send = || {
        Request::post("/api/v1/jobs")
            .header("content-type", "application/json")
            .header("idempotency-key", "k1")
            .body(Body::from(r#"{"kind":"a"}"#))
            .expect("a request")
    };
    let (first, second) = (face.send(send()).await, face.send(send()).await);
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 200));
    assert_eq!(first.json()["id"], second.json()["id"]);
    assert_eq!(second.json()["existed"], true);
}

#[tokio::test]
async fn failures_are_grouped_listed_and_retried() {
    let face = face();
    face.enqueue(json!({"kind": "a", "retry": {"max": 0}}))
        .await;
    let leased = face.lease().await;
    let report =
        json!({"job": leased["id"], "token": leased["token"], "group": "oops", "message": "broke"});
    assert_eq!(
        face.post("/api/v1/leases/fail", report).await["state"],
        "failed"
    );
    let groups = face.get("/api/v1/failures").await["groups"].clone();
    assert_eq!(groups.as_array().map(Vec::len), Some(1));
    let group = &groups[0];
    assert_eq!(
        (&group["group"], &group["count"]),
        (&json!("oops"), &json!(1))
    );
    let jobs = face.get("/api/v1/failures/oops/jobs").await;
    assert_eq!(jobs["jobs"][0]["failure"]["message"], "broke");
    assert_eq!(
        face.get("/api/v1/jobs?state=failed&failure_text=rok&group=oops")
            .await["jobs"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(
        face.post("/api/v1/failures/oops/retry", Value::Null).await["changed"],
        1
    );
    let leased = face.lease().await;
    let report =
        json!({"job": leased["id"], "token": leased["token"], "delay": "1h", "reason": "later"});
    assert_eq!(
        face.post("/api/v1/leases/release", report).await["state"],
        "scheduled"
    );
    let id = leased["id"].as_str().expect("an id");
    assert!(face.get(&format!("/api/v1/jobs/{id}")).await["run_at"].is_string());
}

#[tokio::test]
async fn one_job_is_cancelled_retried_altered_timed_out_and_deleted() {
    let face = face();
    let id = face.enqueue(json!({"kind": "a", "delay": "1h"})).await;
    let path = format!("/api/v1/jobs/{id}");
    let changes = json!({"priority": 7, "tags_add": ["t"], "tracked": true, "note": {"text": "hi", "data": [1]}});
    assert_eq!(
        face.done(Method::PATCH, &path, changes).await["tags"],
        json!(["t"])
    );
    assert_eq!(
        face.get("/api/v1/tags").await["tags"],
        json!([{"tag": "t", "count": 1}])
    );
    assert_eq!(face.get("/api/v1/tracked").await["jobs"][0]["job"], *id);
    let cancelled = face
        .post(&format!("{path}/cancel"), json!({"reason": "no"}))
        .await;
    assert_eq!(cancelled, json!({"changed": true, "state": "cancelled"}));
    assert_eq!(
        face.post(&format!("{path}/cancel"), Value::Null).await["changed"],
        false
    );
    assert_eq!(
        face.post(&format!("{path}/retry"), Value::Null).await["state"],
        "ready"
    );
    face.lease().await;
    let timed_out = face.post(&format!("{path}/timeout"), Value::Null).await;
    assert_eq!(timed_out["changed"], true);
    assert_eq!(
        face.done(Method::DELETE, &path, Value::Null).await["changed"],
        true
    );
    assert_eq!(
        face.text(Method::GET, &path, "").await.code(),
        "job_not_found"
    );
}

#[tokio::test]
async fn a_label_is_set_by_a_text_and_taken_off_by_null() {
    let face = face();
    let id = face
        .enqueue(json!({"kind": "a", "labels": {"env": "prod", "team": "red"}}))
        .await;
    let path = format!("/api/v1/jobs/{id}");
    let changes = json!({"labels": {"env": null, "team": "blue", "nobody": null}});
    face.done(Method::PATCH, &path, changes).await;
    assert_eq!(face.get(&path).await["labels"], json!({"team": "blue"}));

    let refused = face
        .text(Method::PATCH, &path, r#"{"labels": {"env": 1}}"#)
        .await;
    assert_eq!(refused.code(), "invalid_value");
    let twice = r#"{"labels": {"env": null, "env": "x"}}"#;
    let refused = face.text(Method::PATCH, &path, twice).await;
    assert_eq!(refused.code(), "duplicate_field");
    // A new job has no labels to remove.
    let new = r#"{"kind": "a", "labels": {"env": null}}"#;
    let refused = face.text(Method::POST, "/api/v1/jobs", new).await;
    assert_eq!(refused.code(), "invalid_value");
}

#[tokio::test]
async fn a_job_of_another_shard_is_refused_wherever_it_is_named() {
    let face = face();
    let id = face.enqueue(json!({"kind": "a", "id": "1/x/y"})).await;
    assert_eq!(id, "x/y");
    assert_eq!(face.get("/api/v1/jobs/1%2Fx%2Fy").await["ref"], "1/x/y");

    for (method, path, body) in [
        (Method::GET, "/api/v1/jobs/2%2Fa", ""),
        (Method::GET, "/api/v1/jobs/x%2Fy", ""),
        (Method::GET, "/api/v1/events?job=2/a", ""),
        (
            Method::POST,
            "/api/v1/jobs",
            r#"{"kind": "a", "id": "2/a"}"#,
        ),
        (
            Method::POST,
            "/api/v1/jobs",
            r#"{"kind": "a", "after": [{"job": "2/a"}]}"#,
        ),
        (
            Method::POST,
            "/api/v1/jobs/cancel",
            r#"{"jobs": ["1/x/y", "2/a"]}"#,
        ),
    ] {
        let answer = face.text(method, path, body).await;
        assert_eq!(answer.code(), "unknown_shard", "{path} {body}");
    }
}

#[tokio::test]
async fn a_worker_reports_under_the_id_that_it_got() {
    let face = face();
    face.enqueue(json!({"kind": "a", "id": "1/x/y"})).await;
    let lease = face.lease().await;
    let report = json!({"job": lease["id"], "token": lease["token"]});
    let done = face.post("/api/v1/leases/complete", report).await;
    assert_eq!(done["state"], "succeeded");
}

#[tokio::test]
async fn many_jobs_are_acted_on_by_ids_and_by_filter() {
    let face = face();
    for place in 0..5 {
        face.enqueue(json!({"kind": "a", "id": format!("j{place}"), "tags": ["bulk"]}))
            .await;
    }
    let done = face
        .post(
            "/api/v1/jobs/cancel",
            json!({"jobs": ["j0", "1/j1", "nobody"]}),
        )
        .await;
    assert_eq!(
        (&done["changed"], &done["skipped_jobs"]),
        (&json!(2), &json!(["1/nobody"]))
    );
    let done = face
        .post(
            "/api/v1/jobs/cancel",
            json!({"filter": {"tag": "bulk", "state": "ready"}}),
        )
        .await;
    assert_eq!(done["changed"], 3);
    assert_eq!(
        face.post("/api/v1/jobs/retry", json!({"filter": {"tag": "bulk"}}))
            .await["changed"],
        5
    );
    assert_eq!(
        face.post("/api/v1/jobs/delete", json!({"filter": {"tag": "bulk"}}))
            .await["changed"],
        5
    );
    assert_eq!(face.get("/api/v1/jobs").await["jobs"], json!([]));
}

#[tokio::test]
async fn listings_are_paged() {
    let face = face();
    for place in 0..5 {
        face.enqueue(json!({"kind": "a", "id": format!("j{place}"), "labels": {"k": "v=1"}}))
            .await;
    }
    let mut path = "/api/v1/jobs?limit=2&order=newest&label=k=v%3D1".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = face.get(&path).await;
        seen.extend(
            page["jobs"]
                .as_array()
                .expect("jobs")
                .iter()
                .map(|job| job["id"].clone()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/jobs?limit=2&order=newest&label=k=v%3D1&after={next}");
    }
    assert_eq!(seen, ["j4", "j3", "j2", "j1", "j0"].map(|id| json!(id)));
}

#[tokio::test]
async fn a_graph_is_submitted_in_our_form_shown_and_cancelled() {
    let face = face();
    let graph = json!({"jobs": [
        {"name": "b", "kind": "b", "inputs": [{"result_of": "a"}, {"value": 2}], "after": [{"name": "c", "policy": "ignore"}]},
        {"name": "a", "kind": "a"},
        {"name": "c", "kind": "c"},
    ], "idempotency_key": "g"});
    let done = face.post("/api/v1/graphs", graph.clone()).await;
    assert_eq!(done["jobs"][1]["name"], "a");
    assert_eq!(face.post("/api/v1/graphs", graph).await["repeat"], true);
    let id = done["jobs"][0]["id"].as_str().expect("an id");
    let shown = face.get(&format!("/api/v1/jobs/{id}/graph")).await;
    assert_eq!(shown["jobs"].as_array().map(Vec::len), Some(3));
    assert_eq!(shown["edges"].as_array().map(Vec::len), Some(2));
    assert_eq!(shown["jobs"][0]["id"], format!("1/{id}"));
    assert_eq!(shown["edges"][0]["to"], format!("1/{id}"));
    let name = done["graph"].as_str().expect("a graph");
    let cancelled = face
        .post(&format!("/api/v1/graphs/{name}/cancel"), json!({}))
        .await;
    assert_eq!(cancelled["changed"], 3);
}

#[tokio::test]
async fn a_graph_is_submitted_in_the_form_of_enq_trailing_commas_included() {
    let face = face();
    let text = r#"[{
        "task_id": { "shard": "1", "id": "save", },
        "method": "save-user-data",
        "args": [ { "type": "VALUE", "value_json": "{\"uid\": 1234}", } ]
    }, {
        "task_id": { "shard": "1", "id": "email", },
        "method": "process-user-data", "max_retries": 2,
        "args": [ { "type": "TASKREF", "task_id": { "shard": "1", "id": "save", }, },
                  { "type": "VALUE", "value_json": "eyJ1aWQiOjEyMzR9" } ],
    },]"#;
    let answer = face.text(Method::POST, "/api/v1/graphs", text).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let done = answer.json();
    assert_eq!(
        done["jobs"][0]["mock_id"],
        json!({"shard": "1", "id": "save"})
    );
    assert_eq!(done["jobs"][1]["task_id"]["id"], done["jobs"][1]["id"]);
    let saved = face.lease().await;
    assert_eq!(saved["kind"], "save-user-data");
    assert_eq!(saved["inputs"], json!([{"value": {"uid": 1234}}]));
    let report = json!({"job": saved["id"], "token": saved["token"], "result": {"link": "x"}});
    face.post("/api/v1/leases/complete", report).await;
    let email = face.lease().await;
    assert_eq!(
        email["inputs"],
        json!([{"value": {"link": "x"}}, {"value": {"uid": 1234}}])
    );
}

#[tokio::test]
async fn dependencies_are_added_and_taken_back() {
    let face = face();
    for id in ["a", "b"] {
        face.enqueue(json!({"kind": "x", "id": id})).await;
    }
    face.enqueue(json!({"kind": "x", "id": "c", "after": [{"job": "a"}]}))
        .await;
    let path = "/api/v1/jobs/c/dependencies";
    assert_eq!(
        face.post(path, json!({"on": ["b"], "policy": "wait"}))
            .await["state"],
        "blocked"
    );
    let why = face.get("/api/v1/jobs/c/why").await;
    assert_eq!(why["reasons"][0]["count"], 2, "{why}");
    assert_eq!(why["job"], "1/c", "{why}");
    assert_eq!(why["reasons"][0]["jobs"][0]["job"], "1/a", "{why}");
    assert_eq!(
        face.done(Method::DELETE, path, json!({"on": ["a"]})).await["state"],
        "blocked"
    );
    assert_eq!(
        face.done(Method::DELETE, path, Value::Null).await["state"],
        "ready"
    );
}

#[tokio::test]
async fn queues_are_set_paused_resumed_and_forgotten() {
    let face = face();
    let settings =
        json!({"running_max": 3, "lease_for": "90s", "retention": {"failed": {"age": "1d"}}});
    let queue = face.done(Method::PUT, "/api/v1/queues/q", settings).await;
    assert_eq!(queue["settings"]["lease_for"], "1m30s");
    assert_eq!(
        face.post("/api/v1/queues/q/pause", Value::Null).await["settings"]["paused"],
        true
    );
    assert_eq!(
        face.post("/api/v1/queues/q/resume", Value::Null).await["settings"]["paused"],
        false
    );
    assert_eq!(face.get("/api/v1/queues").await["queues"][0]["queue"], "q");
    assert_eq!(face.get("/api/v1/queues/q").await["counts"]["ready"], 0);
    face.done(Method::DELETE, "/api/v1/queues/q", Value::Null)
        .await;
    assert_eq!(face.get("/api/v1/queues").await["queues"], json!([]));
}

#[tokio::test]
async fn namespaces_keep_their_jobs_apart() {
    let face = face();
    face.done(
        Method::PUT,
        "/api/v1/namespaces/tenant",
        json!({"lease_for": 5}),
    )
    .await;
    face.post(
        "/api/v1/jobs?namespace=tenant",
        json!({"kind": "a", "id": "x"}),
    )
    .await;
    assert_eq!(
        face.text(Method::GET, "/api/v1/jobs/x", "").await.code(),
        "job_not_found"
    );
    let request = Request::get("/api/v1/jobs/x").header("ganger-namespace", "tenant");
    let found = face
        .send(request.body(Body::empty()).expect("a request"))
        .await;
    assert_eq!(found.json()["namespace"], "tenant");
    let names = face.get("/api/v1/namespaces").await;
    assert!(
        names["namespaces"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|it| it["namespace"] == "tenant")
    );
}

#[tokio::test]
async fn schedules_are_put_shown_and_deleted() {
    let face = face();
    let path = "/api/v1/schedules/nightly";
    let cron =
        json!({"cron": "0 3 * * *", "time_zone": "Europe/Rome", "kind": "report", "payload": [1]});
    let put = face.done(Method::PUT, path, cron).await;
    assert!(put["next_at"].is_string(), "{put}");
    let every = json!({"every": "1h", "kind": "report", "catch_up": "all", "catch_up_max": 3, "overlap": "skip", "paused": true});
    face.done(Method::PUT, path, every).await;
    assert_eq!(face.get(path).await["every"], "1h");
    assert_eq!(
        face.get("/api/v1/schedules").await["schedules"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    face.done(Method::DELETE, path, Value::Null).await;
    assert_eq!(
        face.text(Method::GET, path, "").await.code(),
        "schedule_not_found"
    );
}

#[tokio::test]
async fn workers_are_seen_and_deregister() {
    let face = face();
    let id = face.enqueue(json!({"kind": "a"})).await;
    face.lease().await;
    let workers = face.get("/api/v1/workers").await;
    assert_eq!(workers["workers"][0]["holds"][0]["job"], *id);
    face.done(Method::DELETE, "/api/v1/workers/w", Value::Null)
        .await;
    assert_eq!(
        face.get(&format!("/api/v1/jobs/{id}")).await["state"],
        "ready"
    );
}

#[tokio::test]
async fn an_operator_releases_the_jobs_of_a_worker_that_is_gone() {
    let face = face();
    let id = face.enqueue(json!({"kind": "a"})).await;
    face.lease().await;
    let released = face.post("/api/v1/workers/w/release", Value::Null).await;
    assert_eq!(released["changed"], 1);
    let job = face.get(&format!("/api/v1/jobs/{id}")).await;
    assert_eq!(
        (&job["state"], &job["attempts_counted"]),
        (&json!("ready"), &json!(0))
    );
    let again = face.post("/api/v1/workers/w/release", Value::Null).await;
    assert_eq!(
        again["changed"], 0,
        "a worker that is not known holds nothing"
    );
}

#[tokio::test]
async fn a_caller_learns_who_it_is_and_until_when() {
    let face = face();
    let anyone = face.get("/api/v1/whoami").await;
    assert_eq!(
        anyone,
        json!({
            "who": "anyone",
            "grants": [{"role": "admin", "namespace": "*"}],
            "expires_at": null,
            "read_only": false,
        })
    );
    let ask = |identity: Identity| async {
        let mut request = Request::get("/api/v1/whoami")
            .body(Body::empty())
            .expect("a request");
        request.extensions_mut().insert(identity);
        face.send(request).await
    };
    let grants = "reader@mail,reader@team-*".parse().expect("readable");
    let reader = Identity::principal("ci", grants, Proof::Token)
        .until(Some("2030-01-01T00:00:00Z".parse().expect("a time")));
    assert_eq!(
        ask(reader).await.json(),
        json!({
            "who": "token \"ci\"",
            "grants": [
                {"role": "reader", "namespace": "mail"},
                {"role": "reader", "namespace": "team-*"},
            ],
            "expires_at": "2030-01-01T00:00:00Z",
            "read_only": true,
        })
    );
    let unknown = ask(Identity::Anonymous).await;
    assert_eq!(
        (unknown.status.as_u16(), &*unknown.code()),
        (401, "unauthorized")
    );
}

#[tokio::test]
async fn what_needs_attention_is_listed() {
    let face = face();
    let job = json!({"kind": "a", "queue": "mail"});
    face.enqueue(job).await;
    let mut found = face.get("/api/v1/attention").await;
    let item = &mut found["items"][0];
    let since = item.as_object_mut().expect("an object").remove("since");
    assert!(since.is_some_and(|since| since.is_string()));
    let text = "Queue mail: 1 ready, no worker has asked since the server started";
    let wanted = json!({
        "code": "no_worker",
        "gravity": "error",
        "text": text,
        "shard": "1",
        "queue": "mail",
        "count": 1,
    });
    assert_eq!(*item, wanted);
    let elsewhere = face.get("/api/v1/attention?namespace=other").await;
    assert_eq!(elsewhere, json!({"items": []}));
}

#[tokio::test]
async fn the_server_tells_of_itself() {
    let face = face();
    face.enqueue(json!({"kind": "a", "queue": "q"})).await;
    assert_eq!(face.get("/healthz").await["status"], "live");
    assert_eq!(face.get("/readyz").await["status"], "ready");
    assert_eq!(face.get("/version").await["shard"], "1");
    assert_eq!(face.get("/api/v1/audit").await["is_sound"], true);
    assert_eq!(
        face.get("/api/v1/stats?queue=q&day=2020-02-29").await["day"],
        "2020-02-29"
    );
    assert_eq!(
        face.get("/api/v1/stats?queue=q").await["waiting"]["count"],
        0
    );
    assert_eq!(face.get("/openapi.json").await["info"]["title"], "ganger");
    let metrics = face.text(Method::GET, "/metrics", "").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert_eq!(ganger_metrics::check(&metrics), Ok(()));
    assert!(metrics.contains("ganger_store_commit_batch_size_count"));
}

#[tokio::test]
async fn numbers_of_runs_tell_queue_and_kind() {
    let face = face();
    for kind in ["resize", "mail"] {
        face.enqueue(json!({"kind": kind, "queue": "pictures"}))
            .await;
        let lease = json!({"worker": "w", "queues": ["pictures"]});
        let job = face.post("/api/v1/leases", lease).await["jobs"][0].clone();
        let mut report = json!({"job": job["id"], "token": job["token"]});
        let mut end = "complete";
        if kind == "mail" {
            end = "fail";
            report["message"] = json!("no address");
            report["permanent"] = json!(true);
        }
        face.post(&format!("/api/v1/leases/{end}"), report).await;
    }
    let metrics = face.text(Method::GET, "/metrics", "").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let lines: Vec<&str> = metrics.lines().collect();
    for (name, kind, value) in [
        ("jobs_succeeded_total", "resize", 1),
        ("jobs_failed_total", "resize", 0),
        ("jobs_succeeded_total", "mail", 0),
        ("jobs_failed_total", "mail", 1),
        ("attempt_failed_total", "mail", 1),
        ("job_wait_seconds_count", "mail", 1),
        ("job_run_seconds_count", "mail", 1),
        ("job_run_seconds_count", "resize", 1),
    ] {
        let line = format!(
            "ganger_{name}{{shard=\"1\",namespace=\"default\",queue=\"pictures\",kind=\"{kind}\"}} {value}"
        );
        assert!(lines.contains(&&*line), "{line} is missing in\n{metrics}");
    }
}

#[tokio::test]
async fn names_of_any_bytes_pass_through_paths_and_documents() {
    let face = face();
    let put = face
        .done(Method::PUT, "/api/v1/queues/a%2Fb%FF", json!({}))
        .await;
    assert_eq!(put["queue"], "a/b\\xff");
    assert_eq!(
        face.get("/api/v1/queues/a%2Fb%5Cxff").await["queue"],
        "a/b\\xff"
    );
}

#[tokio::test]
async fn names_of_a_graph_are_kept_and_shown() {
    let face = face();
    let graph = json!({"jobs": [
        {"name": "count-01", "id": "a", "kind": "count"},
        {"name": "sum", "id": "b", "kind": "sum", "after": ["count-01"]}]});
    face.post("/api/v1/graphs", graph).await;
    assert_eq!(face.get("/api/v1/jobs/a").await["name"], "count-01");
    let listed = face.get("/api/v1/jobs").await;
    assert_eq!(listed["jobs"][1]["name"], "sum");
    let shown = face.get("/api/v1/jobs/b/graph").await;
    assert_eq!(shown["jobs"][0]["name"], "count-01");
    // A single job may have a name too; a job without one shows none.
    face.post(
        "/api/v1/jobs",
        json!({"id": "c", "kind": "k", "name": "nightly"}),
    )
    .await;
    assert_eq!(face.get("/api/v1/jobs/c").await["name"], "nightly");
    face.post("/api/v1/jobs", json!({"id": "d", "kind": "k"}))
        .await;
    assert_eq!(face.get("/api/v1/jobs/d").await.get("name"), None);
}

#[tokio::test]
async fn a_retry_brings_dependents_or_a_whole_graph_back() {
    let face = face();
    let graph = json!({"jobs": [
        {"name": "a", "id": "a", "kind": "k"},
        {"name": "b", "id": "b", "kind": "k", "after": ["a"]},
        {"name": "c", "id": "c", "kind": "k", "after": ["b"]}]});
    let submitted = face.post("/api/v1/graphs", graph).await;
    face.post("/api/v1/jobs/a/cancel", Value::Null).await;
    assert_eq!(face.get("/api/v1/jobs/c").await["state"], "failed");
    let done = face
        .post("/api/v1/jobs/a/retry", json!({"dependents": true}))
        .await;
    assert_eq!(done["changed"], true);
    assert_eq!(done["dependents"], json!(["1/b", "1/c"]));
    assert_eq!(face.get("/api/v1/jobs/c").await["state"], "blocked");

    face.post("/api/v1/jobs/a/cancel", Value::Null).await;
    let name = submitted["graph"].as_str().expect("a graph");
    let path = format!("/api/v1/graphs/{}/retry", name.replace('/', "%2F"));
    let done = face.post(&path, Value::Null).await;
    assert_eq!((&done["changed"], &done["skipped"]), (&json!(3), &json!(0)));
    assert_eq!(face.get("/api/v1/jobs/b").await["state"], "blocked");
}

#[tokio::test]
async fn a_bulk_action_can_be_tried_first_and_goes_on_where_it_ended() {
    let face = face();
    for place in 0..5 {
        let queue = if place < 3 { "mail" } else { "other" };
        face.post(
            "/api/v1/jobs",
            json!({"kind": "k", "queue": queue, "tags": ["t"]}),
        )
        .await;
    }
    let filter = json!({"filter": {"tag": "t"}});
    let would = face
        .post("/api/v1/jobs/cancel?dry_run=true", filter.clone())
        .await;
    assert_eq!(
        (&would["would_change"], &would["exact"]),
        (&json!(5), &json!(true))
    );
    assert_eq!(would["by_queue"], json!({"mail": 3, "other": 2}));
    assert_eq!(would["by_state"], json!({"ready": 5}));
    let count = face.get("/api/v1/jobs/count?state=ready").await;
    assert_eq!(count["count"], 5, "a dry run changes nothing");

    let part = json!({"filter": {"tag": "t"}, "limit": 2});
    let first = face.post("/api/v1/jobs/cancel", part).await;
    assert_eq!(first["changed"], 2);
    let rest = json!({"filter": {"tag": "t"}, "after": first["next"]});
    let rest = face.post("/api/v1/jobs/cancel", rest).await;
    assert_eq!((&rest["changed"], rest.get("next")), (&json!(3), None));
    let again = face.post("/api/v1/jobs/retry?dry_run", filter).await;
    assert_eq!(
        (&again["would_change"], &again["exact"]),
        (&json!(5), &json!(false))
    );
}

#[tokio::test]
async fn a_schedule_runs_at_once_and_tells_its_times_in_its_zone() {
    let face = face();
    let rule = json!({"cron": "30 3 * * *", "time_zone": "Europe/Rome", "kind": "backup"});
    let path = "/api/v1/schedules/nightly";
    let put = face.done(Method::PUT, path, rule.clone()).await;
    let local = put["next_local"].as_str().expect("a time");
    assert!(
        local.contains("T03:30:00") && local.ends_with("[Europe/Rome]"),
        "{local}"
    );
    let times = face.get(&format!("{path}/preview?count=3")).await;
    assert_eq!(times["times"].as_array().map(Vec::len), Some(3));
    assert_eq!(times["times"][0]["local"], put["next_local"]);
    let ran = face.post(&format!("{path}/run"), Value::Null).await;
    assert_eq!(ran["runs"], 1);
    assert_eq!(ran["next_at"], put["next_at"], "its own times stay");
    let job = ran["last_job"].as_str().expect("a job");
    let job = face.get(&format!("/api/v1/jobs/{job}")).await;
    assert_eq!(
        (&job["schedule"], &job["state"]),
        (&json!("nightly"), &json!("ready"))
    );

    let mut paused = rule;
    paused["paused"] = json!(true);
    let put = face.done(Method::PUT, path, paused).await;
    assert_eq!((put.get("next_at"), put.get("next_local")), (None, None));
    assert_eq!(
        face.post(&format!("{path}/run"), Value::Null).await["runs"],
        2
    );
}

#[tokio::test]
async fn the_first_page_is_for_browsers_and_escapes_names() {
    let face = face();
    face.post(
        "/api/v1/jobs",
        json!({"kind": "k", "queue": "<script>alert(1)</script>"}),
    )
    .await;
    let plain = face.get("/").await;
    assert_eq!(
        (&plain["api"], &plain["openapi"]),
        (&json!("/api/v1"), &json!("/openapi.json"))
    );
    let request = Request::get("/").header("accept", "text/html,*/*;q=0.8");
    let answer = face
        .send(request.body(Body::empty()).expect("a request"))
        .await;
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
    let policy = answer.headers["content-security-policy"]
        .to_str()
        .expect("text");
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    // The first request shows the queues as they are.
    let text = String::from_utf8(answer.body.to_vec()).expect("text");
    assert!(text.contains("<dt>ready</dt><dd>1</dd>"), "{text}");
    assert!(text.contains("<style>"), "{text}");
    for outside in ["http:", "https:", "src=", "style="] {
        assert!(!text.contains(outside), "{outside} in {text}");
    }
    assert!(text.contains("&lt;script&gt;alert(1)"), "{text}");
    assert!(!text.contains("<script"), "{text}");
}

#[tokio::test]
async fn the_start_page_shows_nothing_to_unauthenticated_clients() {
    let face = face();
    face.enqueue(json!({"kind": "k", "queue": "secret-queue"}))
        .await;
    let version = face.settings.version;
    let settings = ganger_dialect_http::Settings {
        stranger: ganger_access::Identity::Anonymous,
        ..face.settings.clone()
    };
    let for_nobody = Face {
        routes: ganger_dialect_http::routes(face.shard.clone(), settings),
        ..face
    };
    let request = Request::get("/").header("accept", "text/html");
    let request = request.body(Body::empty()).expect("a request");
    let answer = for_nobody.send(request).await;
    let text = String::from_utf8(answer.body.to_vec()).expect("text");
    assert!(text.contains("GANGER_TOKEN"), "how to get in: {text}");
    for hidden in [
        "secret-queue",
        version,
        "Shard",
        "<dt>",
        "/metrics",
        "/openapi.json",
    ] {
        assert!(!text.contains(hidden), "{hidden} in {text}");
    }
}

#[tokio::test]
async fn queues_come_in_pages_and_a_namespace_has_a_limit_of_them() {
    let face = face();
    face.done(
        Method::PUT,
        "/api/v1/namespaces/default",
        json!({"queues_max": 3}),
    )
    .await;
    for queue in ["a", "b", "c"] {
        face.post("/api/v1/jobs", json!({"kind": "k", "queue": queue}))
            .await;
    }
    let first = face.get("/api/v1/queues?limit=2").await;
    assert_eq!(
        (&first["queues"][1]["queue"], &first["next"]),
        (&json!("b"), &json!("b"))
    );
    let rest = face.get("/api/v1/queues?limit=2&after=b").await;
    assert_eq!(
        (&rest["queues"][0]["queue"], rest.get("next")),
        (&json!("c"), None)
    );
    let job = json!({"kind": "k", "queue": "d"});
    let answer = face
        .text(Method::POST, "/api/v1/jobs", job.to_string())
        .await;
    assert_eq!(answer.code(), "too_large");
    assert!(
        answer.json()["detail"]
            .as_str()
            .is_some_and(|text| text.contains("queues_max"))
    );
    face.post("/api/v1/jobs", json!({"kind": "k", "queue": "a"}))
        .await;
    // A forgotten queue makes room.
    let settings = face.text(Method::PUT, "/api/v1/queues/d", "{}").await;
    assert_eq!(settings.code(), "too_large");
}
