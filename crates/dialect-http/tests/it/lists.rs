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
    assert_eq!(
        (&worker["slots"], &worker["free_slots"]),
        (&json!(3), &json!(2))
    );
    assert_eq!(worker["completed_per_minute"], 0.0);
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

#[tokio::test]
async fn logs_payloads_and_results_are_read_in_parts() {
    let face = face();
    let id = face
        .enqueue(json!({"kind": "k", "payload": "0123456789"}))
        .await;
    let leased = face.lease().await;
    for (offset, text) in [(0, "hello "), (6, "world")] {
        let log =
            json!({"job": leased["ref"], "token": leased["token"], "text": text, "offset": offset});
        face.post("/api/v1/leases/log", log).await;
    }
    let read = async |path: String, range: &'static str| {
        let request =
            Request::get(format!("/api/v1/jobs/{id}/{path}")).header(header::RANGE, range);
        let answer = face
            .send(request.body(axum::body::Body::empty()).expect("a request"))
            .await;
        let length = answer.headers.get("ganger-log-bytes").cloned();
        let range = answer.headers.get(header::CONTENT_RANGE).cloned();
        let text = |value: Option<http::HeaderValue>| {
            value.map_or_else(String::new, |value| {
                value.to_str().expect("text").to_owned()
            })
        };
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        (answer.status.as_u16(), body, text(length), text(range))
    };
    let log = |status, body: &str, range: &str| (status, body.into(), "11".into(), range.into());
    assert_eq!(read("log?tail=5".into(), "").await, log(200, "world", ""));
    assert_eq!(
        read("log?from=4&length=3".into(), "").await,
        log(200, "o w", "")
    );
    assert_eq!(
        read("log".into(), "bytes=6-8").await,
        log(206, "wor", "bytes 6-8/11")
    );
    assert_eq!(read("log".into(), "bytes=20-").await.0, 416);
    let part = read("payload".into(), "bytes=1-3").await;
    assert_eq!(
        (part.0, part.1.as_str(), part.3.as_str()),
        (206, "012", "bytes 1-3/12")
    );
    let attempts = face.get(&format!("/api/v1/jobs/{id}/attempts")).await;
    let attempt = &attempts["attempts"][0];
    assert_eq!(
        (&attempt["attempt"], &attempt["log_bytes"]),
        (&json!(1), &json!(11))
    );
    assert_eq!(attempt["end"], Value::Null);
}

#[tokio::test]
async fn names_and_labels_are_offered_by_their_beginning() {
    let face = face();
    for (number, tenant) in ["acme", "acme", "beta"].into_iter().enumerate() {
        let job =
            json!({"kind": "k", "queue": format!("mail-{number}"), "labels": {"tenant": tenant}});
        face.enqueue(job).await;
    }
    let names = face.get("/api/v1/names?of=queue&prefix=mail&limit=2").await;
    assert_eq!(
        names,
        json!({"names": ["mail-0", "mail-1"], "complete": false})
    );
    let lease = json!({"worker": "w", "queues": ["mail-0"]});
    face.post("/api/v1/leases", lease).await;
    let kinds = face.get("/api/v1/names?of=kind").await;
    assert_eq!(kinds["names"], json!(["k"]));
    let keys = face.get("/api/v1/labels").await;
    assert_eq!(
        keys["labels"],
        json!([{"name": "tenant", "live": 3, "kept": 0, "exact": true}])
    );
    let values = face.get("/api/v1/labels?key=tenant&prefix=a").await;
    assert_eq!(column(&values["labels"], "name"), ["acme"]);
    assert_eq!(column(&values["labels"], "live"), [2]);
    let missing = face.text(Method::GET, "/api/v1/names", "").await;
    assert_eq!(missing.code(), "invalid_value");
}

#[tokio::test]
async fn a_name_that_no_path_can_carry_is_given_beside_it() {
    let face = face();
    face.enqueue(json!({"kind": "k", "queue": ".."})).await;
    let queue = face.get("/api/v1/queues/-?queue=..").await;
    assert_eq!(queue["queue"], "..");
    face.post("/api/v1/queues/-/pause?queue=..", Value::Null)
        .await;
    let queue = face.get("/api/v1/queues/-?queue=%2E%2E").await;
    assert_eq!(queue["settings"]["paused"], true);
    let unnamed = face.text(Method::GET, "/api/v1/queues/-", "").await;
    assert_eq!(unnamed.code(), "queue_not_found");
}

#[tokio::test]
async fn events_are_read_back_page_by_page() {
    let face = face();
    for _ in 0..3 {
        face.enqueue(json!({"kind": "k"})).await;
    }
    let page = face.get("/api/v1/events?limit=2&event=job_moved").await;
    let positions = column(&page["events"], "position");
    assert_eq!(positions.len(), 2);
    assert!(positions[0].as_u64() > positions[1].as_u64());
    let next = page["next"].as_u64().expect("one more");
    let rest = face
        .get(&format!("/api/v1/events?before={next}&event=job_moved"))
        .await;
    assert_eq!(rest["events"].as_array().map(Vec::len), Some(1));
    let both = face
        .text(Method::GET, "/api/v1/events?limit=1&every=1s", "")
        .await;
    assert_eq!(both.code(), "invalid_value");
}
