//! Tasks: which ones a request means, how they are listed, counted and deleted.

use crate::support::{Face, face, request, room};
use axum::body::Body;
use futures::StreamExt as _;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

const X: (&str, &str) = ("fiware-service", "x");
const A: (&str, &str) = ("fiware-servicepath", "/a");
const C: (&str, &str) = ("fiware-correlator", "c");

/// The ids of the entities in a list.
fn entities(tasks: &[Value]) -> Vec<&str> {
    let id = |task: &Value| task["input"]["payload"][0]["id"].as_str().map(str::len);
    assert!(tasks.iter().all(|task| id(task).is_some()), "{tasks:?}");
    let ids = tasks.iter().map(|task| &task["input"]["payload"][0]["id"]);
    ids.filter_map(Value::as_str).collect()
}

#[tokio::test]
async fn headers_select_exactly_their_tasks() {
    let face = face(&[]);
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
        face.accepted(headers, id).await;
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
        let listed = face.list("", headers).await;
        assert_eq!(entities(&listed), wanted, "{headers:?}");
        assert_eq!(face.summary("", headers).await.len(), wanted.len());
        let wanted = u64::try_from(wanted.len()).expect("few");
        let wanted = if headers.is_empty() { 13 } else { wanted };
        assert_eq!(face.count("", headers).await, wanted, "{headers:?}");
    }
}

#[tokio::test]
async fn deleting_takes_the_selected_tasks_in_any_state_and_no_others() {
    let face = face(&[]);
    for id in ["done", "failed", "running", "queued"] {
        face.accepted(&[X, A], id).await;
    }
    face.accepted(&[X], "other path").await;
    face.accepted(&[], "no tenant").await;
    let leased = face.lease().await;
    face.complete(&leased).await;
    let leased = face.lease().await;
    face.fail(&leased, "wrong", true).await;
    face.lease().await;
    for path in ["/wq/notifications", "/management/queue/notifications"] {
        let path = format!("{path}?taskStatus=succeeded");
        let answer = face.ask(Method::DELETE, &path, &[X, A], "").await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT);
        assert!(answer.body.is_empty());
        assert_eq!(face.count("", &[X, A]).await, 0);
    }
    assert_eq!(face.count("", &[]).await, 2);
    // Without headers: no tenant, path "/", not everything.
    let answer = face.ask(Method::DELETE, "/wq/notifications", &[], "").await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(face.count("", &[]).await, 1);
    assert_eq!(entities(&face.list("", &[X]).await), ["other path"]);
}

#[tokio::test]
async fn deleting_goes_through_all_pages() {
    let face = face(&[]);
    for number in 0..1_201 {
        face.accepted(&[], &number.to_string()).await;
    }
    assert_eq!(face.count("", &[]).await, 1_201);
    let answer = face.ask(Method::DELETE, "/wq/notifications", &[], "").await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(face.count("", &[]).await, 0);
}

#[tokio::test]
async fn the_framing_is_fixed_byte_for_byte() {
    let face = face(&[]);
    for path in ["", "/summary"] {
        let answer = face.get(&format!("/wq/notifications{path}"), &[]).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.headers["content-type"], "application/json");
        assert!(!answer.headers.contains_key("content-length"));
        assert_eq!(answer.text(), "[\nnull\n]");
    }
    let quoted = ("fiware-correlator", "\"c\"");
    face.accepted(&[X, A, quoted], "e1").await;
    face.accepted(&[X, A], "e2").await;
    let mut runtimes = Vec::new();
    for (correlator, uuid) in [
        ("ImMi", uuid(&face, 0).await),
        ("\\\"\\\"", uuid(&face, 1).await),
    ] {
        runtimes.push(format!(
            "{{\"task_id\":\"eA==:L2E=:{correlator}:{uuid}\",\"task_type\":\"<class 'wq.ql.notify.InsertAction'>\",\"status\":\"pending\",\"retries_left\":null,\"errors\":[]}}"
        ));
    }
    let summary = face.get("/wq/notifications/summary", &[X, A]).await;
    assert_eq!(
        summary.text(),
        format!("[\n{},\n{},\nnull\n]", runtimes[0], runtimes[1])
    );
    let list = face.get("/wq/notifications", &[X, A, quoted]).await;
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
    let other = face
        .get("/management/queue/notifications", &[X, A, quoted])
        .await;
    assert_eq!(other.body, list.body);
}

/// The last segment of a task's id.
async fn uuid(face: &Face, place: usize) -> String {
    let tasks = face.summary("", &[X, A]).await;
    let id = tasks[place]["task_id"].as_str().expect("an id");
    id.rsplit(':').next().expect("segments").to_owned()
}

#[tokio::test]
async fn the_status_follows_the_life_of_a_task() {
    let face = face(&[("WQ_MAX_RETRIES", "2")]);
    let shown = async |id: usize| {
        let tasks = face.summary("", &[]).await;
        let task = &tasks[id];
        json!([task["status"], task["retries_left"], task["errors"]])
    };
    face.accepted(&[], "well").await;
    assert_eq!(shown(0).await, json!(["pending", 2, []]));
    let leased = face.lease().await;
    assert_eq!(shown(0).await, json!(["pending", 2, []]));
    face.complete(&leased).await;
    assert_eq!(shown(0).await, json!(["succeeded", 2, []]));

    face.accepted(&[], "curable").await;
    let leased = face.lease().await;
    face.fail(&leased, "InterfaceError(\"no\")", false).await;
    assert_eq!(
        shown(1).await,
        json!(["pending", 1, ["InterfaceError(\"no\")"]])
    );

    face.accepted(&[], "incurable").await;
    let leased = face.lease().await;
    face.fail(&leased, "AttributeError(1)", true).await;
    assert_eq!(shown(2).await, json!(["failed", 1, ["AttributeError(1)"]]));

    face.accepted(&[], "lost").await;
    let leased = face.lease().await;
    face.lose(&leased).await;
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
        assert_eq!(face.count(query, &[]).await, count, "{query}");
        let root = ("fiware-servicepath", "/");
        assert_eq!(face.count(query, &[root]).await, count, "{query}");
        let listed = u64::try_from(face.list(query, &[]).await.len()).expect("few");
        assert_eq!(listed, count, "{query}");
        let listed = u64::try_from(face.summary(query, &[]).await.len()).expect("few");
        assert_eq!(listed, count, "{query}");
    }
}

#[tokio::test]
async fn tasks_that_were_made_with_no_retries_have_none_left() {
    let face = face(&[]);
    face.accepted(&[], "e1").await;
    let leased = face.lease().await;
    face.fail(&leased, "wrong", false).await;
    let tasks = face.summary("", &[]).await;
    assert_eq!(tasks[0]["status"], "failed");
    assert_eq!(tasks[0]["retries_left"], Value::Null);
    assert_eq!(tasks[0]["errors"], json!(["wrong"]));
}

#[tokio::test]
async fn an_unknown_status_is_refused() {
    let face = face(&[]);
    for (query, shown) in [("bogus", "'bogus'"), ("", "''"), ("Failed", "'Failed'")] {
        for what in ["", "/summary", "/count"] {
            let path = format!("/wq/notifications{what}?taskStatus={query}");
            let answer = face.get(&path, &[]).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
            let wanted = format!("{shown} is not one of ['pending', 'succeeded', 'failed']");
            let detail = answer.detail();
            assert!(detail.starts_with(&wanted), "{detail}");
            assert!(detail.len() > wanted.len());
        }
    }
}

#[tokio::test]
async fn a_task_whose_time_is_over_is_gone_at_once() {
    let face = face(&[("WQ_SUCCESS_TTL", "0"), ("WQ_FAILURE_TTL", "0")]);
    for is_good in [true, false] {
        face.accepted(&[X], "e1").await;
        let leased = face.lease().await;
        if is_good {
            face.complete(&leased).await;
        } else {
            face.fail(&leased, "wrong", true).await;
        }
    }
    face.accepted(&[X], "waits").await;
    for headers in [&[][..], &[X]] {
        assert_eq!(face.count("", headers).await, 1);
        assert_eq!(face.count("?taskStatus=pending", headers).await, 1);
        assert_eq!(face.count("?taskStatus=succeeded", headers).await, 0);
        assert_eq!(face.count("?taskStatus=failed", headers).await, 0);
    }
    assert_eq!(entities(&face.list("", &[X]).await), ["waits"]);
}

#[tokio::test]
async fn values_too_long_for_a_label_are_told_apart_all_the_same() {
    let face = face(&[]);
    let longer = format!("{}q", "/p".repeat(300));
    let (one, other) = (&longer[..600], longer.as_str());
    let path = |path| ("fiware-servicepath", path);
    let correlator = |correlator| ("fiware-correlator", correlator);
    face.accepted(&[path(one)], "one").await;
    face.accepted(&[path(other), correlator(one)], "two").await;
    face.accepted(&[path(other), correlator(other)], "three")
        .await;
    assert_eq!(entities(&face.list("", &[path(one)]).await), ["one"]);
    let headers = [path(other), correlator(one)];
    let tasks = face.list("", &headers).await;
    assert_eq!(entities(&tasks), ["two"]);
    let summary = face.summary("", &[path(other)]).await;
    assert_eq!(summary.len(), 2);
    assert_eq!(summary[0]["task_id"], tasks[0]["runtime"]["task_id"]);
    assert_ne!(summary[0]["task_id"], summary[1]["task_id"]);
    assert_eq!(face.count("", &headers).await, 1);
}

/// Starts a list of 250 tasks of 2 KiB, and reads its first piece.
async fn begun(face: &Face) -> (Vec<u8>, axum::body::BodyDataStream) {
    let mut notification = room("e");
    notification["data"][0]["text"] = json!({"type": "Text", "value": "x".repeat(2_000)});
    for _ in 0..250 {
        let answer = face.notify(&[], &notification).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    let list = request(Method::GET, "/wq/notifications", &[], Body::empty());
    let response = face.start(list).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut pieces = response.into_body().into_data_stream();
    let first = pieces.next().await.expect("a piece").expect("readable");
    (first.to_vec(), pieces)
}

#[tokio::test]
async fn a_list_is_read_while_it_is_written_and_skips_what_vanishes() {
    let face = face(&[]);
    let (mut text, mut pieces) = begun(&face).await;
    assert!(text.len() < 50_000, "{}", text.len());
    let listed = text.split(|byte| *byte == b'\n').count() - 2;
    let deleted = face.ask(Method::DELETE, "/wq/notifications", &[], "");
    assert_eq!(deleted.await.status, StatusCode::NO_CONTENT);
    // What comes after the request is not part of it.
    face.accepted(&[], "late").await;
    while let Some(piece) = pieces.next().await {
        text.extend(piece.expect("readable"));
    }
    let all: Vec<Value> = serde_json::from_slice(&text).expect("well-formed");
    assert!((1..20).contains(&listed), "{listed}");
    assert_eq!(all.len(), listed + 1);
    assert_eq!(all.last(), Some(&Value::Null));
}

#[tokio::test]
async fn a_list_that_cannot_go_on_stops_without_its_end() {
    let face = face(&[]);
    let (mut text, mut pieces) = begun(&face).await;
    face.shard.stop().await;
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
        let answer = face.get(&format!("/wq/notifications{what}"), &[]).await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR, "{what}");
        answer.detail();
    }
    let answer = face.ask(Method::DELETE, "/wq/notifications", &[], "").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn lists_at_once_are_bounded() {
    let mut settings = crate::support::settings(&[]);
    settings.lists_max = 1;
    let face = crate::support::face_with(settings);
    let list = request(Method::GET, "/wq/notifications", &[], Body::empty());
    let first = face.start(list).await;
    let refused = face.get("/wq/notifications/summary", &[]).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    first.into_body().collect().await.expect("whole");
    assert!(face.list("", &[]).await.is_empty());
}
