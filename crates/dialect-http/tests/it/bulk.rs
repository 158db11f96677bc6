//! Bulk actions within bounds, and dry runs.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Face, face};

#[tokio::test]
async fn a_bulk_action_changes_at_most_as_many_jobs_as_it_may() {
    let face = face();
    for _ in 0..5 {
        face.post("/api/v1/jobs", json!({"kind": "k", "tags": ["t"]}))
            .await;
    }
    let filter = json!({"filter": {"tag": "t"}, "at_most": 2});
    let would = face
        .post("/api/v1/jobs/cancel?dry_run=true", filter.clone())
        .await;
    assert_eq!(would["would_change"], 2);
    assert!(would["next"].is_string(), "more match");
    let done = face.post("/api/v1/jobs/cancel", filter).await;
    assert_eq!(done["changed"], 2);
    let rest = json!({"filter": {"tag": "t"}, "at_most": 100, "after": done["next"]});
    let rest = face.post("/api/v1/jobs/cancel", rest).await;
    assert_eq!((&rest["changed"], rest.get("next")), (&json!(3), None));
}

#[tokio::test]
async fn jobs_created_after_a_dry_run_are_left_out() {
    let face = face();
    face.post("/api/v1/jobs", json!({"kind": "k", "tags": ["t"]}))
        .await;
    let filter = json!({"filter": {"tag": "t"}});
    let would = face.post("/api/v1/jobs/cancel?dry_run=true", filter).await;
    let late = face.enqueue(json!({"kind": "k", "tags": ["t"]})).await;
    let bounded = json!({"filter": {"tag": "t"}, "created_before": would["as_of"]});
    let done = face.post("/api/v1/jobs/cancel", bounded).await;
    assert_eq!(done["changed"], 1);
    let job = face.get(&format!("/api/v1/jobs/{late}")).await;
    assert_eq!(job["state"], "ready");
}

#[tokio::test]
async fn bounds_that_mean_nothing_are_refused() {
    let face = face();
    let path = "/api/v1/jobs/cancel";
    for (body, field) in [
        (json!({"filter": {"tag": "t"}, "at_most": 0}), "/at_most"),
        (json!({"jobs": ["a"], "at_most": 2}), "/at_most"),
        (
            json!({"jobs": ["a"], "created_before": "2026-01-01T00:00:00Z"}),
            "/created_before",
        ),
    ] {
        let answer = face.text(Method::POST, path, body.to_string()).await;
        assert!(answer.status.is_client_error(), "{answer:?}");
        let problem = answer.json();
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.starts_with(field), "{detail}");
    }
}

#[tokio::test]
async fn the_cancellation_of_a_job_can_be_tried_first() {
    let face = face();
    let graph = json!({"jobs": [
        {"name": "first", "id": "first", "kind": "k"},
        {"name": "next", "id": "next", "kind": "k", "after": ["first"]},
    ]});
    face.post("/api/v1/graphs", graph).await;
    let path = "/api/v1/jobs/first/cancel";
    let would = face.post(path, json!({"dry_run": true})).await;
    assert_eq!(would["would_change"], true);
    assert_eq!(would["state"], "ready");
    assert_eq!(would["failed"], json!({"count": 1, "jobs": ["1/next"]}));
    assert_eq!(would["complete"], true);
    assert_eq!(face.get("/api/v1/jobs/first").await["state"], "ready");
    face.post(path, Value::Null).await;
    assert_eq!(face.get("/api/v1/jobs/next").await["state"], "failed");
    let would = face.post(path, json!({"dry_run": true})).await;
    assert_eq!(would["would_change"], false);
}

/// Waits until an operation has ended, with the shard's own task at work.
async fn ended(face: &Face, operation: &str) -> Value {
    let worker = tokio::spawn(face.shard.clone().work_operations());
    let mut changes = face.shard.operation_changes();
    let path = format!("/api/v1/operations/{operation}");
    let shown = loop {
        changes.borrow_and_update();
        let shown = face.get(&path).await;
        if shown["state"] != "running" {
            break shown;
        }
        changes.changed().await.expect("the shard lives");
    };
    worker.abort();
    shown
}

#[tokio::test]
async fn an_operation_is_accepted_listed_shown_and_ends() {
    let face = face();
    for _ in 0..3 {
        face.enqueue(json!({"kind": "k", "tags": ["t"]})).await;
    }
    let body =
        json!({"action": "cancel", "filter": {"tag": "t"}, "at_most": 2, "reason": "too many"});
    let answer = face
        .text(Method::POST, "/api/v1/operations", body.to_string())
        .await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let begun = answer.json();
    assert_eq!(begun["operation"], "op-1");
    assert_eq!(begun["state"], "running");
    assert_eq!(begun["filter"]["tag"], "t");
    assert_eq!(begun["reason"], "too many");
    let end = ended(&face, "op-1").await;
    assert_eq!(end["state"], "done");
    assert_eq!((&end["done"], &end["matching"]), (&json!(2), &json!(3)));
    assert!(end["ended_at"].is_string(), "{end}");
    let second =
        json!({"action": "alter", "filter": {"tag": "t"}, "priority": 5, "tags_add": ["late"]});
    face.post("/api/v1/operations", second).await;
    let end = ended(&face, "op-2").await;
    // The priority of a job that has ended cannot be changed.
    assert_eq!((&end["done"], &end["skipped"]), (&json!(1), &json!(2)));
    assert_eq!(end["left_out"].as_array().map(Vec::len), Some(2));
    let page = face.get("/api/v1/operations?limit=1").await;
    assert_eq!(page["operations"][0]["operation"], "op-2");
    let path = format!(
        "/api/v1/operations?after={}",
        page["next"].as_str().expect("more")
    );
    let page = face.get(&path).await;
    assert_eq!(page["operations"][0]["operation"], "op-1");
    assert_eq!(page.get("next"), None);
}

#[tokio::test]
async fn an_operation_shows_every_condition_of_its_filter() {
    let face = face();
    let everything = json!({
        "queue": "q", "state": ["ready", "failed"], "kind": "k", "kind_prefix": "k", "id_prefix": "a",
        "tag": ["t", "u"], "label": {"a": "1", "b": "2"}, "graph": "g", "schedule": "s", "group": "x",
        "failure_text": "no", "worker": "w", "unique_key": "once", "tracked": false, "attempt_min": 2,
        "created_from": "2026-01-01T00:00:00Z", "created_before": "2026-02-01T00:00:00Z",
        "finished_from": "2026-01-02T00:00:00Z", "finished_before": "2026-12-31T00:00:00Z",
    });
    for filter in [everything, json!({"tag": "t"}), json!({"tracked": true})] {
        let body = json!({"action": "cancel", "filter": filter});
        let mut begun = face.post("/api/v1/operations", body).await;
        if filter.get("created_before").is_none() {
            // Jobs that are enqueued after the start are left out.
            let fields = begun["filter"].as_object_mut().expect("an object");
            fields.remove("created_before").expect("the start");
        }
        assert_eq!(begun["filter"], filter);
    }
}

#[tokio::test]
async fn an_operation_acts_on_jobs_that_have_all_tags() {
    let face = face();
    for tags in [json!(["t"]), json!(["t", "u"])] {
        face.enqueue(json!({"kind": "k", "tags": tags})).await;
    }
    let body = json!({"action": "cancel", "filter": {"tag": ["t", "u"]}});
    face.post("/api/v1/operations", body).await;
    let end = ended(&face, "op-1").await;
    assert_eq!((&end["matching"], &end["done"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn an_operation_that_was_stopped_stays_so() {
    let face = face();
    face.enqueue(json!({"kind": "k", "tags": ["t"]})).await;
    let body = json!({"action": "delete", "filter": {"tag": "t"}, "spread_over": "1h"});
    face.post("/api/v1/operations", body).await;
    let path = "/api/v1/operations/op-1/stop";
    let stopped = face.post(path, Value::Null).await;
    assert_eq!(stopped["state"], "stopped");
    assert_eq!(face.post(path, Value::Null).await, stopped);
    assert_eq!(face.get("/api/v1/jobs/count?tag=t").await["count"], 1);
}

#[tokio::test]
async fn an_operation_that_would_mean_everything_or_nothing_is_refused() {
    let face = face();
    let long = "8d";
    for (body, code) in [
        (json!({"action": "cancel", "filter": {}}), "invalid_value"),
        (
            json!({"action": "cancel", "filter": {"id_prefix": ""}}),
            "invalid_value",
        ),
        (
            json!({"action": "cancel", "filter": {"tag": []}}),
            "invalid_value",
        ),
        (
            json!({"action": "explode", "filter": {"tag": "t"}}),
            "invalid_value",
        ),
        (
            json!({"action": "alter", "filter": {"tag": "t"}}),
            "invalid_value",
        ),
        (
            json!({"action": "cancel", "filter": {"tag": "t"}, "queue": "q"}),
            "unknown_field",
        ),
        (
            json!({"action": "cancel", "filter": {"tag": "t"}, "at_most": 0}),
            "out_of_range",
        ),
        (
            json!({"action": "cancel", "filter": {"tag": "t"}, "spread_over": long}),
            "out_of_range",
        ),
    ] {
        let answer = face
            .text(Method::POST, "/api/v1/operations", body.to_string())
            .await;
        assert_eq!(answer.json()["code"], code, "{body}: {answer:?}");
    }
    let answer = face
        .text(Method::GET, "/api/v1/operations/op-9", String::new())
        .await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["code"]),
        (404, &json!("operation_not_found"))
    );
    let answer = face
        .text(Method::GET, "/api/v1/operations/seven", String::new())
        .await;
    assert_eq!(answer.json()["code"], "invalid_value");
}

#[tokio::test]
async fn the_audit_log_is_read_page_by_page() {
    use ganger_types::command::KeepAudit;
    use ganger_types::{AuditRecord, Command};

    let face = face();
    let record = |who: &str| AuditRecord {
        who: who.to_owned(),
        what: "cancelJob".to_owned(),
        outcome: "done".to_owned(),
        ..AuditRecord::default()
    };
    let records = vec![record("ann"), record("bob"), record("ann")];
    let keep = Command::KeepAudit(KeepAudit { records });
    face.shard.call(keep).await.expect("kept");
    let page = face.get("/api/v1/audit-log?limit=2").await;
    let who = |page: &Value| -> Vec<String> {
        let records = page["records"].as_array().expect("a list");
        let who = records.iter().map(|record| record["who"].as_str());
        who.map(|who| who.expect("a text").to_owned()).collect()
    };
    assert_eq!(who(&page), ["ann", "bob"]);
    let path = format!(
        "/api/v1/audit-log?after={}",
        page["next"].as_str().expect("more")
    );
    assert_eq!(who(&face.get(&path).await), ["ann"]);
    let of_bob = face.get("/api/v1/audit-log?who=bob").await;
    assert_eq!(
        (who(&of_bob), of_bob.get("next")),
        (vec!["bob".to_owned()], None)
    );
}

#[tokio::test]
async fn the_server_shows_its_shards_and_how_busy_they_are() {
    let face = face();
    face.enqueue(json!({"kind": "k"})).await;
    let server = face.get("/api/v1/server").await;
    let shard = &server["shards"][0];
    assert_eq!(
        (&shard["shard"], &shard["health"]),
        (&json!("1"), &json!("ready"))
    );
    assert!(shard["uptime_seconds"].is_number() && shard["commits_per_second"].is_number());
    assert!(server["uptime_seconds"].is_number(), "{server}");
}
