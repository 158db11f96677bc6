//! Tasks: how requests select, list, count and delete them.

use crate::support::{TestApi, api, request, room};
use axum::body::Body;
use futures::StreamExt as _;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

const X: (&str, &str) = ("fiware-service", "x");
const A: (&str, &str) = ("fiware-servicepath", "/a");
const C: (&str, &str) = ("fiware-correlator", "c");

/// Returns the ids of the entities in a list.
fn entities(tasks: &[Value]) -> Vec<&str> {
    let id = |task: &Value| task["input"]["payload"][0]["id"].as_str().map(str::len);
    assert!(tasks.iter().all(|task| id(task).is_some()), "{tasks:?}");
    let ids = tasks.iter().map(|task| &task["input"]["payload"][0]["id"]);
    ids.filter_map(Value::as_str).collect()
}

#[tokio::test]
async fn headers_select_exactly_their_tasks() {
    let api = api(&[]);
    let root = ("fiware-servicepath", "/");
    for (headers, id) in [
        (&[X, A, C][..], "xac"),
        (&[X, A], "xa"),
        (&[X, root], "xr"),
        (&[X], "x"),
        (&[X, C], "xc"),
        (&[A], "a"),
        (&[C], "c"),
        (&[], "none"),
        (&[("fiware-service", "X"), A], "tenant in capitals"),
        (&[X, ("fiware-servicepath", "/ab")], "longer path"),
        (&[X, ("fiware-servicepath", "")], "empty path"),
        (&[("fiware-service", "")], "empty tenant"),
        (&[("ngsild-tenant", "x"), ("fiware-service", "y"), A], "ld"),
    ] {
        api.accepted(headers, id).await;
    }
    for (headers, wanted) in [
        (&[X, A, C][..], &["xac"][..]),
        (&[X, A], &["xac", "xa", "ld"]),
        (&[("ngsild-tenant", "x"), A], &["xac", "xa", "ld"]),
        (&[X], &["xr", "x", "xc"]),
        (&[X, root], &["xr", "x", "xc"]),
        (&[X, C], &["xc"]),
        (&[A], &["a"]),
        (&[C], &["c"]),
        (&[], &["c", "none", "empty tenant"]),
        (&[X, A, ("fiware-correlator", "")], &["xac", "xa", "ld"]),
        (&[X, ("fiware-servicepath", "")], &["empty path"]),
        (&[X, ("fiware-servicepath", "/*")], &[]),
        (&[("fiware-service", "*"), A], &[]),
        (&[X, A, ("fiware-correlator", "*")], &[]),
    ] {
        let listed = api.list("", headers).await;
        assert_eq!(entities(&listed), wanted, "{headers:?}");
        assert_eq!(api.summary("", headers).await.len(), wanted.len());
        let wanted = u64::try_from(wanted.len()).expect("few");
        let wanted = if headers.is_empty() { 13 } else { wanted };
        assert_eq!(api.count("", headers).await, wanted, "{headers:?}");
    }
}

#[tokio::test]
async fn deleting_removes_the_selected_tasks_in_any_state_and_no_others() {
    let api = api(&[]);
    for id in ["done", "failed", "running", "queued"] {
        api.accepted(&[X, A], id).await;
    }
    api.accepted(&[X], "other path").await;
    api.accepted(&[], "no tenant").await;
    let leased = api.lease().await;
    api.complete(&leased).await;
    let leased = api.lease().await;
    api.fail(&leased, "wrong", true).await;
    api.lease().await;
    for path in ["/wq/notifications", "/management/queue/notifications"] {
        let path = format!("{path}?taskStatus=succeeded");
        let answer = api.request(Method::DELETE, &path, &[X, A], "").await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
        assert!(answer.body.is_empty());
        assert_eq!(api.count("", &[X, A]).await, 0);
    }
    assert_eq!(api.count("", &[]).await, 2);
    // Without headers: no tenant and path "/", not all tasks.
    let answer = api
        .request(Method::DELETE, "/wq/notifications", &[], "")
        .await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(api.count("", &[]).await, 1);
    assert_eq!(entities(&api.list("", &[X]).await), ["other path"]);
}

#[tokio::test]
async fn deleting_covers_all_pages() {
    let api = api(&[]);
    for number in 0..1_201 {
        api.accepted(&[], &number.to_string()).await;
    }
    assert_eq!(api.count("", &[]).await, 1_201);
    let answer = api
        .request(Method::DELETE, "/wq/notifications", &[], "")
        .await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(api.count("", &[]).await, 0);
}

#[tokio::test]
async fn the_framing_is_fixed_byte_for_byte() {
    let api = api(&[]);
    for path in ["", "/summary"] {
        let answer = api.get(&format!("/wq/notifications{path}"), &[]).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.headers["content-type"], "application/json");
        assert!(!answer.headers.contains_key("content-length"));
        assert_eq!(answer.text(), "[\nnull\n]");
    }
    let quoted = ("fiware-correlator", "\"c\"");
    api.accepted(&[X, A, quoted], "e1").await;
    api.accepted(&[X, A], "e2").await;
    let mut runtimes = Vec::new();
    for (correlator, uuid) in [
        ("ImMi", uuid(&api, 0).await),
        ("\\\"\\\"", uuid(&api, 1).await),
    ] {
        runtimes.push(format!(
            "{{\"task_id\":\"eA==:L2E=:{correlator}:{uuid}\",\"task_type\":\"<class 'wq.ql.notify.InsertAction'>\",\"status\":\"pending\",\"retries_left\":null,\"errors\":[]}}"
        ));
    }
    let summary = api.get("/wq/notifications/summary", &[X, A]).await;
    assert_eq!(
        summary.text(),
        format!("[\n{},\n{},\nnull\n]", runtimes[0], runtimes[1])
    );
    let list = api.get("/wq/notifications", &[X, A, quoted]).await;
    let wanted = format!(
        concat!(
            "[\n{{\"runtime\":{},\"input\":{{\"fiware_service\":\"x\",\"fiware_service_path\":\"/a\",",
            "\"fiware_correlator\":\"\\\"c\\\"\",\"payload\":[{{\"id\":\"e1\",\"type\":\"Room\",",
            "\"temperature\":{{\"type\":\"Number\",\"value\":23.3}},",
            "\"TimeInstant\":{{\"type\":\"DateTime\",\"value\":\"2020-01-02T03:04:05Z\"}},",
            "\"time_index\":\"2020-01-02T03:04:05+00:00\"}}]}}}},\nnull\n]"
        ),
        runtimes[0]
    );
    assert_eq!(list.text(), wanted);
    let other = api
        .get("/management/queue/notifications", &[X, A, quoted])
        .await;
    assert_eq!(other.body, list.body);
}

/// Returns the last segment of a task's id.
async fn uuid(api: &TestApi, index: usize) -> String {
    let tasks = api.summary("", &[X, A]).await;
    let id = tasks[index]["task_id"].as_str().expect("an id");
    id.rsplit(':').next().expect("segments").to_owned()
}

#[tokio::test]
async fn the_status_follows_the_life_of_a_task() {
    let api = api(&[("WQ_MAX_RETRIES", "2")]);
    let shown = async |id: usize| {
        let tasks = api.summary("", &[]).await;
        let task = &tasks[id];
        json!([task["status"], task["retries_left"], task["errors"]])
    };
    api.accepted(&[], "well").await;
    assert_eq!(shown(0).await, json!(["pending", 2, []]));
    let leased = api.lease().await;
    assert_eq!(shown(0).await, json!(["pending", 2, []]));
    api.complete(&leased).await;
    assert_eq!(shown(0).await, json!(["succeeded", 2, []]));

    api.accepted(&[], "curable").await;
    let leased = api.lease().await;
    api.fail(&leased, "InterfaceError(\"no\")", false).await;
    assert_eq!(
        shown(1).await,
        json!(["pending", 1, ["InterfaceError(\"no\")"]])
    );

    api.accepted(&[], "incurable").await;
    let leased = api.lease().await;
    api.fail(&leased, "AttributeError(1)", true).await;
    assert_eq!(shown(2).await, json!(["failed", 1, ["AttributeError(1)"]]));

    api.accepted(&[], "lost").await;
    let leased = api.lease().await;
    api.lose(&leased).await;
    let lost = shown(3).await;
    assert_eq!((&lost[0], &lost[1]), (&json!("pending"), &json!(2)));
    assert_eq!(lost[2].as_array().map(Vec::len), Some(1), "{lost}");

    for (query, count) in [
        ("?taskStatus=pending", 2),
        ("?taskStatus=succeeded", 1),
        ("?taskStatus=failed", 1),
        ("", 4),
        ("?other=1", 4),
    ] {
        assert_eq!(api.count(query, &[]).await, count, "{query}");
        let root = ("fiware-servicepath", "/");
        assert_eq!(api.count(query, &[root]).await, count, "{query}");
        let listed = u64::try_from(api.list(query, &[]).await.len()).expect("few");
        assert_eq!(listed, count, "{query}");
        let listed = u64::try_from(api.summary(query, &[]).await.len()).expect("few");
        assert_eq!(listed, count, "{query}");
    }
}

#[tokio::test]
async fn tasks_created_without_retries_show_none_left() {
    let api = api(&[]);
    api.accepted(&[], "e1").await;
    let leased = api.lease().await;
    api.fail(&leased, "wrong", false).await;
    let tasks = api.summary("", &[]).await;
    assert_eq!(tasks[0]["status"], "failed");
    assert_eq!(tasks[0]["retries_left"], Value::Null);
    assert_eq!(tasks[0]["errors"], json!(["wrong"]));
}

#[tokio::test]
async fn an_unknown_status_is_refused() {
    let api = api(&[]);
    for (query, shown) in [("bogus", "'bogus'"), ("", "''"), ("Failed", "'Failed'")] {
        for what in ["", "/summary", "/count"] {
            let path = format!("/wq/notifications{what}?taskStatus={query}");
            let answer = api.get(&path, &[]).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
            let wanted = format!("{shown} is not one of ['pending', 'succeeded', 'failed']");
            let detail = answer.detail();
            assert!(detail.starts_with(&wanted), "{detail}");
            assert!(detail.len() > wanted.len());
        }
    }
}

#[tokio::test]
async fn an_expired_task_is_gone_at_once() {
    let api = api(&[("WQ_SUCCESS_TTL", "0"), ("WQ_FAILURE_TTL", "0")]);
    for is_good in [true, false] {
        api.accepted(&[X], "e1").await;
        let leased = api.lease().await;
        if is_good {
            api.complete(&leased).await;
        } else {
            api.fail(&leased, "wrong", true).await;
        }
    }
    api.accepted(&[X], "waits").await;
    for headers in [&[][..], &[X]] {
        assert_eq!(api.count("", headers).await, 1);
        assert_eq!(api.count("?taskStatus=pending", headers).await, 1);
        assert_eq!(api.count("?taskStatus=succeeded", headers).await, 0);
        assert_eq!(api.count("?taskStatus=failed", headers).await, 0);
    }
    assert_eq!(entities(&api.list("", &[X]).await), ["waits"]);
}

#[tokio::test]
async fn values_too_long_for_a_label_are_still_distinguished() {
    let api = api(&[]);
    let longer = format!("{}q", "/p".repeat(300));
    let (one, other) = (&longer[..600], longer.as_str());
    let path = |path| ("fiware-servicepath", path);
    let correlator = |correlator| ("fiware-correlator", correlator);
    api.accepted(&[path(one)], "one").await;
    api.accepted(&[path(other), correlator(one)], "two").await;
    api.accepted(&[path(other), correlator(other)], "three")
        .await;
    assert_eq!(entities(&api.list("", &[path(one)]).await), ["one"]);
    let headers = [path(other), correlator(one)];
    let tasks = api.list("", &headers).await;
    assert_eq!(entities(&tasks), ["two"]);
    let summary = api.summary("", &[path(other)]).await;
    assert_eq!(summary.len(), 2);
    assert_eq!(summary[0]["task_id"], tasks[0]["runtime"]["task_id"]);
    assert_ne!(summary[0]["task_id"], summary[1]["task_id"]);
    assert_eq!(api.count("", &headers).await, 1);
}

/// Starts a list of 250 tasks of 2 KiB, and reads its first chunk.
async fn start_long_list(api: &TestApi) -> (Vec<u8>, axum::body::BodyDataStream) {
    let mut notification = room("e");
    notification["data"][0]["text"] = json!({"type": "Text", "value": "x".repeat(2_000)});
    for _ in 0..250 {
        let answer = api.notify(&[], &notification).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    let list = request(Method::GET, "/wq/notifications", &[], Body::empty());
    let response = api.start(list).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut pieces = response.into_body().into_data_stream();
    let first = pieces.next().await.expect("a piece").expect("readable");
    (first.to_vec(), pieces)
}

#[tokio::test]
async fn a_list_is_streamed_and_skips_removed_tasks() {
    let api = api(&[]);
    let (mut text, mut pieces) = start_long_list(&api).await;
    assert!(text.len() < 50_000, "{}", text.len());
    let listed = text.split(|byte| *byte == b'\n').count() - 2;
    let deleted = api.request(Method::DELETE, "/wq/notifications", &[], "");
    assert_eq!(deleted.await.status, StatusCode::NO_CONTENT);
    // A task created after the request is not in the list.
    api.accepted(&[], "late").await;
    while let Some(piece) = pieces.next().await {
        text.extend(piece.expect("readable"));
    }
    let all: Vec<Value> = serde_json::from_slice(&text).expect("well-formed");
    assert!((1..20).contains(&listed), "{listed}");
    assert_eq!(all.len(), listed + 1);
    assert_eq!(all.last(), Some(&Value::Null));
}

#[tokio::test]
async fn an_interrupted_list_has_no_terminator() {
    let api = api(&[]);
    let (mut text, mut pieces) = start_long_list(&api).await;
    api.shard.stop().await;
    let mut is_broken = false;
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => text.extend(piece),
            Err(_) => is_broken = true,
        }
    }
    assert!(is_broken);
    assert!(!text.ends_with(b"]"));
    for what in ["", "/summary", "/count"] {
        let answer = api.get(&format!("/wq/notifications{what}"), &[]).await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{what}");
        answer.detail();
    }
    let answer = api
        .request(Method::DELETE, "/wq/notifications", &[], "")
        .await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn concurrent_lists_are_limited() {
    let mut settings = crate::support::settings(&[]);
    settings.lists_max = 1;
    let api = crate::support::api_with(settings);
    let list = request(Method::GET, "/wq/notifications", &[], Body::empty());
    let first = api.start(list).await;
    let refused = api.get("/wq/notifications/summary", &[]).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    first.into_body().collect().await.expect("whole");
    assert!(api.list("", &[]).await.is_empty());
}
