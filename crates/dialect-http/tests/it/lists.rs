//! Lists with budgets and orders, queues with what applies to them, schedules that pause, workers, failure groups.

use http::{Method, Request, header};
use serde_json::{Value, json};

use crate::support::{Face, face};

/// Values of a field of each entry of a list.
fn column(list: &Value, field: &str) -> Vec<Value> {
    let entries = list.as_array().expect("a list").iter();
    entries.map(|entry| entry[field].clone()).collect()
}

async fn fail(face: &Face, group: &str, message: &str) {
    let leased = face.lease().await;
    let report = json!({
        "job": leased["ref"], "token": leased["token"],
        "group": group, "message": message, "permanent": true,
    });
    face.post("/api/v1/leases/fail", report).await;
}

#[tokio::test]
async fn jobs_are_found_by_several_conditions_at_once() {
    let face = face();
    let jobs = [
        json!({"id": "a-1", "kind": "resize", "tags": ["x", "y"], "labels": {"t": "1", "u": "2"}}),
        json!({"id": "a-2", "kind": "resample", "tags": ["x"], "labels": {"t": "1"}, "tracked": true}),
        json!({"id": "b-1", "kind": "mail", "unique": {"key": "once"}}),
    ];
    for job in jobs {
        face.enqueue(job).await;
    }
    for (query, expected) in [
        ("tag=x&tag=y", vec!["a-1"]),
        ("label=t=1&label=u=2", vec!["a-1"]),
        ("label=t=1", vec!["a-1", "a-2"]),
        ("kind_prefix=res", vec!["a-1", "a-2"]),
        ("id_prefix=a-", vec!["a-1", "a-2"]),
        ("tracked=true", vec!["a-2"]),
        ("unique_key=once", vec!["b-1"]),
        ("attempt_min=1", vec![]),
        ("finished_from=2020-01-01T00:00:00Z", vec![]),
    ] {
        let page = face.get(&format!("/api/v1/jobs?{query}")).await;
        assert_eq!(column(&page["jobs"], "id"), expected, "{query}");
        let count = face.get(&format!("/api/v1/jobs/count?{query}")).await;
        assert_eq!(
            count,
            json!({"count": expected.len(), "exact": true}),
            "{query}"
        );
    }
    let many = "tag=x&".repeat(17);
    let answer = face
        .text(Method::GET, &format!("/api/v1/jobs?{many}"), "")
        .await;
    assert_eq!(answer.code(), "invalid_value");
}

#[tokio::test]
async fn a_budget_says_how_far_was_looked_and_orders_have_their_own_places() {
    let face = face();
    for (number, priority) in (0_u32..6).zip([5, 1, 5, 1, 3, 0]) {
        face.enqueue(json!({"id": format!("j{number}"), "kind": "k", "priority": priority}))
            .await;
    }
    let page = face.get("/api/v1/jobs?budget=5s&kind=k").await;
    assert_eq!(
        (&page["complete"], &page["looked_at"]),
        (&json!(true), &json!(6))
    );
    let mut next = String::new();
    let mut order = Vec::new();
    loop {
        let path = format!("/api/v1/jobs?queue=default&order=runs_next&limit=4{next}");
        let page = face.get(&path).await;
        order.extend(column(&page["jobs"], "id"));
        match page["next"].as_str() {
            Some(place) => next = format!("&after={place}"),
            None => break,
        }
    }
    assert_eq!(order, ["j5", "j1", "j3", "j4", "j0", "j2"]);
    for group in ["io", "io", "disk"] {
        fail(&face, group, "no space left").await;
    }
    let path = "/api/v1/jobs?order=finished_newest&fields=summary&limit=2";
    let page = face.get(path).await;
    assert_eq!(column(&page["jobs"], "id"), ["j3", "j1"]);
    assert_eq!(page["jobs"][0]["history"], Value::Null);
    let place = page["next"].as_str().expect("one more");
    let rest = face.get(&format!("{path}&after={place}")).await;
    assert_eq!(column(&rest["jobs"], "id"), ["j5"]);
    for (query, part) in [
        ("order=runs_next", "name it with `queue`"),
        ("order=finished_newest&after=x", "send that unchanged"),
        ("budget=11s", "at most 10s"),
    ] {
        let answer = face
            .text(Method::GET, &format!("/api/v1/jobs?{query}"), "")
            .await;
        let detail = answer.json()["detail"].to_string();
        assert!(detail.contains(part), "{query}: {detail}");
    }
}

#[tokio::test]
async fn settings_come_with_their_origin_and_change_only_if_nobody_else_did() {
    let face = face();
    face.enqueue(json!({"kind": "k"})).await;
    let space = json!({"lease_for": "30s"});
    face.done(Method::PUT, "/api/v1/namespaces/default", space)
        .await;
    let path = "/api/v1/queues/default";
    let first = face.get(&format!("{path}?effective=true")).await;
    let version = first["version"].as_str().expect("a version").to_owned();
    let put = |version: &str, limit: u32| {
        let body = json!({"running_max": limit}).to_string();
        Request::put(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::IF_MATCH, format!("\"{version}\""))
            .body(body.into())
            .expect("a request")
    };
    assert_eq!(face.send(put(&version, 7)).await.status, 200);
    let late = face.send(put(&version, 8)).await;
    assert_eq!(
        (late.status.as_u16(), late.code()),
        (412, "settings_changed".into())
    );
    let now = face.get(&format!("{path}?effective=true")).await;
    assert_ne!(now["version"], json!(version));
    let effective = &now["effective"];
    assert_eq!(
        effective["running_max"],
        json!({"value": 7, "from": "queue"})
    );
    assert_eq!(effective["lease_for"]["from"], "namespace");
    assert_eq!(effective["retry"]["from"], "default");
    assert_eq!(
        effective["live_max"],
        json!({"value": null, "from": "default"})
    );
}

#[tokio::test]
async fn a_queue_tells_why_its_jobs_wait_and_who_asks() {
    let face = face();
    face.enqueue(json!({"kind": "k"})).await;
    face.enqueue(json!({"kind": "k", "delay": "1h"})).await;
    let why = face.get("/api/v1/queues/default/why").await;
    assert_eq!(column(&why["reasons"], "code"), ["no_worker", "not_before"]);
    assert_eq!(column(&why["reasons"], "jobs"), [1, 1]);
    let lease = json!({"worker": "w", "max": 3, "queues": ["default"]});
    let request = Request::post("/api/v1/leases")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "mailer/1.2")
        .body(lease.to_string().into())
        .expect("a request");
    assert_eq!(face.send(request).await.status, 200);
    let queue = face.get("/api/v1/queues/default").await;
    assert_eq!(column(&queue["askers"], "worker"), ["w"]);
    assert_eq!(queue["askers"][0]["slots"], 3);
    face.post("/api/v1/queues/default/pause", Value::Null).await;
    face.enqueue(json!({"kind": "k"})).await;
    let why = face.get("/api/v1/queues/default/why").await;
    assert_eq!(why["reasons"][0]["code"], "queue_paused");
    let workers = face.get("/api/v1/workers?limit=1").await;
    let worker = &workers["workers"][0];
    assert_eq!(
        (&worker["state"], &worker["version"]),
        (&json!("busy"), &json!("mailer/1.2"))
    );
    assert_eq!(worker["queues"], json!(["default"]));
    let missing = face.text(Method::GET, "/api/v1/queues/none/why", "").await;
    assert_eq!(missing.code(), "queue_not_found");
}

#[tokio::test]
async fn a_schedule_is_paused_resumed_and_shown_before_it_is_saved() {
    let face = face();
    let hourly = json!({"cron": "0 * * * *", "kind": "report", "time_zone": "Europe/Vienna"});
    let path = "/api/v1/schedules/hourly";
    face.done(Method::PUT, path, hourly.clone()).await;
    let paused = face.post(&format!("{path}/pause"), Value::Null).await;
    assert_eq!(paused["paused"], true);
    let resumed = face.post(&format!("{path}/resume"), Value::Null).await;
    assert_eq!(resumed["paused"], false);
    assert_eq!(resumed["cron"], "0 * * * *");
    let times = face.post("/api/v1/schedules/preview?count=3", hourly).await;
    assert_eq!(times["times"].as_array().map(Vec::len), Some(3));
    let wrong = json!({"cron": "0 0 30 2 *", "kind": "report"});
    let never = face
        .text(Method::POST, "/api/v1/schedules/preview", wrong.to_string())
        .await;
    assert_eq!(never.code(), "cron_never_fires");
    face.post(&format!("{path}/run"), Value::Null).await;
    let leased = face.lease().await;
    let report = json!({"job": leased["ref"], "token": leased["token"]});
    face.post("/api/v1/leases/complete", report).await;
    let list = face.get("/api/v1/schedules").await;
    assert_eq!(list["schedules"][0]["last_state"], "succeeded");
    assert!(list["schedules"][0]["last_ran_seconds"].is_number());
    let missing = face
        .text(Method::POST, "/api/v1/schedules/none/pause", "")
        .await;
    assert_eq!(missing.code(), "schedule_not_found");
}

#[tokio::test]
async fn failure_groups_tell_when_where_and_what() {
    let face = face();
    for number in 0..3 {
        face.enqueue(json!({"kind": format!("k{number}")})).await;
    }
    fail(&face, "io", "first").await;
    fail(&face, "io", "second").await;
    fail(&face, "disk", "full").await;
    let page = face.get("/api/v1/failures?limit=1").await;
    assert_eq!(column(&page["groups"], "group"), ["disk"]);
    let next = page["next"].as_str().expect("one more");
    let page = face
        .get(&format!("/api/v1/failures?limit=1&after={next}"))
        .await;
    let group = &page["groups"][0];
    assert_eq!(
        (&group["group"], &group["count"]),
        (&json!("io"), &json!(2))
    );
    assert_eq!(group["message"], "second");
    assert_eq!(group["by_queue"], json!([{"name": "default", "count": 2}]));
    assert_eq!(column(&group["by_kind"], "name"), ["k0", "k1"]);
    let hour = group["last_hour"].as_array().expect("numbers").iter();
    assert_eq!(hour.filter_map(Value::as_u64).sum::<u64>(), 2);
    assert!(group["first_at"].as_str() <= group["last_at"].as_str());
    assert_eq!(page["next"], Value::Null);
}
