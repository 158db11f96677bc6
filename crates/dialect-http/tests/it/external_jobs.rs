//! Items of raw keys, and jobs of qless, among the jobs of the REST interface.

use std::time::Duration;

use crate::support::{Face, events, face_over, follow};
use ganger_dialect_http::Settings;
use ganger_types::keys::{Condition, End, Expiry, KeyCall, KeyCalls, KeyUpkeep};
use ganger_types::qless::{Generation, QlessRequest};
use ganger_types::{Bytes, Command, Namespace, QlessCall};
use http::Method;
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3_600);

/// A shard without upkeep of work queues.
fn face() -> Face {
    let shard = ganger_shard::Settings {
        reserve_bytes: 0,
        key_upkeep: KeyUpkeep {
            put_back_after: Some(HOUR),
            ..KeyUpkeep::default()
        },
        ..Default::default()
    };
    face_over(shard, Settings::default())
}

async fn keys(face: &Face, calls: Vec<KeyCall>) {
    let calls = KeyCalls {
        namespace: Namespace::default(),
        watched: Vec::new(),
        calls,
    };
    let reply = face.shard.call(Command::from(calls)).await;
    reply.expect("in service");
}

async fn add(face: &Face, queue: &str, id: &str) {
    let set = KeyCall::Set {
        key: format!("{queue}:item:{id}").into(),
        value: "{\"n\":1}".into(),
        expiry: Expiry::Never,
        condition: Condition::Always,
        gets: false,
    };
    let push = KeyCall::Push {
        key: format!("{queue}:queue").into(),
        end: End::Left,
        values: vec![id.to_owned().into()],
        condition: Condition::Always,
    };
    keys(face, vec![set, push]).await;
}

async fn take(face: &Face, queue: &str) {
    let pop = KeyCall::Move {
        from: format!("{queue}:queue").into(),
        to: format!("{queue}:processing").into(),
        from_end: End::Right,
        to_end: End::Left,
    };
    keys(face, vec![pop]).await;
}

async fn qless(face: &Face, words: &str) {
    let words = words.split(' ').map(str::to_owned).map(Bytes::from);
    let call = QlessCall {
        namespace: Namespace::default(),
        request: QlessRequest::Script {
            generation: Generation::Three,
            words: words.collect(),
        },
    };
    let reply = face.shard.call(Command::from(call)).await;
    reply.expect("in service");
}

fn ids(page: &Value) -> Vec<&str> {
    let jobs = page["jobs"].as_array().expect("a list");
    jobs.iter().filter_map(|job| job["id"].as_str()).collect()
}

#[tokio::test]
async fn a_work_queue_of_raw_keys_is_a_queue_and_its_items_are_jobs() {
    let face = face();
    add(&face, "mail", "a").await;
    add(&face, "mail", "b").await;
    take(&face, "mail").await;

    let queues = face.get("/api/v1/queues").await;
    assert_eq!(queues["queues"][0]["queue"], "mail");
    let queue = face.get("/api/v1/queues/mail").await;
    assert_eq!(queue["counts"]["ready"], 1);
    assert_eq!(queue["counts"]["running"], 1);

    let page = face.get("/api/v1/jobs?queue=mail").await;
    assert_eq!(ids(&page), ["a", "b"]);
    let ready = face.get("/api/v1/jobs?queue=mail&state=ready").await;
    assert_eq!(ids(&ready), ["b"]);

    let job = face.get("/api/v1/jobs/b").await;
    assert_eq!(job["queue"], "mail");
    assert_eq!(job["state"], "ready");
    assert_eq!(job["kept_by"], "keys");
    let payload = face.text(Method::GET, "/api/v1/jobs/b/payload", "").await;
    assert_eq!(payload.body, "{\"n\":1}");
    let why = face.get("/api/v1/jobs/a/why").await;
    assert_eq!(why["state"], "running");
    assert_eq!(why["reasons"][0]["reason"], "key_taken");
    let text = why["reasons"][0]["text"].as_str().expect("a sentence");
    assert!(text.contains("the server puts it back within 1h"), "{text}");

    let lease = KeyCall::Set {
        key: "mail:lease:a".into(),
        value: "session-1".into(),
        expiry: Expiry::After(HOUR),
        condition: Condition::Always,
        gets: false,
    };
    keys(&face, vec![lease]).await;
    let job = face.get("/api/v1/jobs/a").await;
    assert_eq!(job["lease"]["worker"], "session-1");
    let why = face.get("/api/v1/jobs/a/why").await;
    assert_eq!(why["reasons"][0]["reason"], "key_leased");
    assert_eq!(why["reasons"][0]["worker"], "session-1");
}

#[tokio::test]
async fn an_item_is_neither_cancelled_nor_deleted_here_and_the_refusal_says_how() {
    let face = face();
    add(&face, "mail", "a").await;
    for (method, path) in [
        (Method::POST, "/api/v1/jobs/a/cancel"),
        (Method::POST, "/api/v1/jobs/a/retry"),
        (Method::DELETE, "/api/v1/jobs/a"),
    ] {
        let answer = face.text(method, path, "").await;
        assert_eq!(answer.code(), "wrong_state", "{path}: {answer:?}");
        let detail = answer.json()["detail"].to_string();
        assert!(detail.contains("DEL its key"), "{detail}");
    }
    // In a bulk action the item is skipped.
    let body = json!({"filter": {"queue": "mail"}});
    let done = face.post("/api/v1/jobs/cancel", body).await;
    assert_eq!(done["changed"], 0);
    assert_eq!(done["skipped_jobs"], json!(["1/a"]));
    assert_eq!(face.get("/api/v1/jobs/a").await["state"], "ready");
}

#[tokio::test]
async fn lists_go_on_from_jobs_of_ours_to_those_of_qless_and_to_items() {
    let face = face();
    let ours = face.enqueue(json!({"kind": "k", "queue": "q"})).await;
    for jid in ["j1", "j2"] {
        qless(&face, &format!("put 1 w q {jid} mail {{}} 0 tags [\"x\"]")).await;
    }
    add(&face, "q", "i").await;
    let mut path = "/api/v1/jobs?queue=q&limit=2".to_owned();
    let mut seen = Vec::new();
    loop {
        let page = face.get(&path).await;
        seen.push(ids(&page).join(" "));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/jobs?queue=q&limit=2&after={next}");
    }
    assert_eq!(seen, [format!("{ours} j1"), "j2 i".to_owned()]);
    let tagged = face.get("/api/v1/jobs?tag=x").await;
    assert_eq!(ids(&tagged), ["j1", "j2"]);
    let kind = face.get("/api/v1/jobs?kind=mail&state=ready").await;
    assert_eq!(ids(&kind), ["j1", "j2"]);
    let none = face.get("/api/v1/jobs?kind=mail&state=failed").await;
    assert!(ids(&none).is_empty());
    let refused = face.text(Method::GET, "/api/v1/jobs?after=zz", "").await;
    assert_eq!(refused.code(), "invalid_value");
}

#[tokio::test]
async fn failed_jobs_of_qless_are_counted_in_their_group_put_back_and_deleted() {
    let face = face();
    for words in ["put 1 w q j k {} 0", "pop 2 q w 1", "fail 3 j w bad why"] {
        qless(&face, words).await;
    }
    let groups = face.get("/api/v1/failures").await;
    assert_eq!(groups["groups"][0]["group"], "bad");
    assert_eq!(groups["groups"][0]["count"], 1);
    let page = face.get("/api/v1/failures/bad/jobs").await;
    assert_eq!(ids(&page), ["j"]);
    let done = face.post("/api/v1/failures/bad/retry", json!({})).await;
    assert_eq!(done["changed"], 1);
    assert_eq!(face.get("/api/v1/jobs/j").await["state"], "ready");
    let gone = face
        .done(Method::DELETE, "/api/v1/jobs/j", Value::Null)
        .await;
    assert_eq!(gone["changed"], true);
    let missing = face.text(Method::GET, "/api/v1/jobs/j", "").await;
    assert_eq!(missing.code(), "job_not_found");
}

/// An event about a job as a line.
fn line(event: &Value) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or("-").to_owned();
    let words = [
        "event", "job", "queue", "kind", "from", "to", "worker", "reason",
    ];
    let words: Vec<String> = words.iter().map(|key| text(key)).collect();
    format!("{} {}", words.join(" "), event["attempt"])
}

#[tokio::test]
async fn the_stream_of_events_tells_of_jobs_of_qless_and_not_of_items() {
    let face = face();
    let mut all = follow(&face, "/api/v1/events", None).await;
    let mut one = follow(&face, "/api/v1/events?job=j2", None).await;
    let mut queue = follow(&face, "/api/v1/events?queue=p", None).await;
    let mut removed = follow(&face, "/api/v1/events?event=job_removed", None).await;
    add(&face, "q", "i").await;
    take(&face, "q").await;
    for words in [
        "put 1 w q j1 mail {} 0",
        "put 1 w p j2 mail {} 0",
        "pop 2 q w 1",
        "fail 3 j1 w bad why",
        "cancel 4 j2",
    ] {
        qless(&face, words).await;
    }
    let seen = events(&mut all, 5).await;
    let lines: Vec<_> = seen.iter().map(|(_, event)| line(event)).collect();
    let expected = [
        "job_moved 1/j1 q mail - ready - - 0",
        "job_moved 1/j2 p mail - ready - - 0",
        "job_moved 1/j1 q mail ready running w - 1",
        "job_moved 1/j1 q mail running failed w bad 1",
        "job_removed 1/j2 p - - - - - null",
    ];
    assert_eq!(lines, expected);
    for stream in [&mut one, &mut queue] {
        let seen = events(stream, 2).await;
        let lines: Vec<_> = seen.iter().map(|(_, event)| line(event)).collect();
        assert_eq!(lines, [expected[1], expected[4]]);
    }
    let seen = events(&mut removed, 1).await;
    assert_eq!(line(&seen[0].1), expected[4]);
}

#[tokio::test]
async fn the_result_of_a_job_of_qless_is_waited_for_and_given() {
    let face = face();
    qless(&face, "put 1 w q j mail {\"n\":1} 0").await;
    let early = face.text(Method::GET, "/api/v1/jobs/j/result", "").await;
    assert_eq!(early.code(), "result_not_found");

    let lease = json!({"worker": "ours", "queues": [{"queue": "q"}]});
    let leased = face.post("/api/v1/leases", lease).await["jobs"][0].clone();
    assert_eq!(
        (&leased["id"], &leased["kind"]),
        (&json!("j"), &json!("mail"))
    );
    let report = json!({
        "job": leased["id"],
        "token": leased["token"],
        "result": {"ok": true},
    });
    // The client waits before the job ends.
    let wait = || face.text(Method::GET, "/api/v1/jobs/j/result?wait=5m", "");
    let (waited, done) = tokio::join!(wait(), face.post("/api/v1/leases/complete", report));
    assert_eq!(done["state"], "succeeded");
    assert_eq!(waited.body, r#"{"ok":true}"#);
    let job = face.get("/api/v1/jobs/j?wait=5m").await;
    assert_eq!(job["state"], "succeeded");
    assert_eq!(job["result_bytes"], 11, "{job}");
    let payload = face.text(Method::GET, "/api/v1/jobs/j/payload", "").await;
    assert_eq!(payload.body, "{\"n\":1}");

    qless(&face, "requeue 1 w q j mail {} 0").await;
    let gone = face.text(Method::GET, "/api/v1/jobs/j/result", "").await;
    assert_eq!(gone.code(), "result_not_found");
    qless(&face, "pop 2 q w 1").await;
    let worker = qless(&face, "complete 3 j w q {}");
    let (waited, ()) = tokio::join!(wait(), worker);
    assert_eq!(
        waited.code(),
        "result_not_found",
        "its own workers give none"
    );
}

#[tokio::test]
async fn a_client_that_waits_for_a_cancelled_job_of_qless_learns_that_it_was_removed() {
    let face = face();
    qless(&face, "put 1 w q j mail {} 0").await;
    let wait = face.text(Method::GET, "/api/v1/jobs/j?wait=5m", "");
    let cancel = face.post("/api/v1/jobs/j/cancel", Value::Null);
    let (waited, cancelled) = tokio::join!(wait, cancel);
    assert_eq!(cancelled["changed"], true);
    assert_eq!(waited.code(), "job_not_found");
}

/// Three jobs of qless, an item, and two jobs of the engine; one of each kind is ready.
async fn mixed() -> Face {
    let face = face();
    for (id, delay) in [("o1", "0s"), ("o2", "1h")] {
        face.enqueue(json!({"kind": "k", "queue": "q", "id": id, "delay": delay}))
            .await;
    }
    for words in [
        "put 1 w q j1 mail {} 0",
        "put 1 w q j2 mail {} 0 priority 1",
        "put 1 w q j3 mail {} 60",
        "pop 2 q w 1",
        "fail 3 j2 w bad why",
    ] {
        qless(&face, words).await;
    }
    add(&face, "q", "i").await;
    face
}

#[tokio::test]
async fn several_states_are_listed_and_counted_over_jobs_of_all_kinds() {
    let face = mixed().await;
    let cases: [(&str, &[&str]); 6] = [
        ("state=ready", &["o1", "j1", "i"]),
        ("state=scheduled,failed", &["o2", "j2", "j3"]),
        ("state=scheduled&state=failed", &["o2", "j2", "j3"]),
        ("state=failed,running", &["j2"]),
        ("state=ready,scheduled&kind=mail", &["j1", "j3"]),
        ("queue=q", &["o1", "o2", "j1", "j2", "j3", "i"]),
    ];
    for (query, expected) in cases {
        let page = face.get(&format!("/api/v1/jobs?{query}")).await;
        assert_eq!(ids(&page), expected, "{query}");
        let counted = face.get(&format!("/api/v1/jobs/count?{query}")).await;
        assert_eq!(counted["count"], expected.len(), "{query}");
        // Page by page, with one job on each.
        let mut seen = Vec::new();
        let mut path = format!("/api/v1/jobs?{query}&limit=1");
        loop {
            let page = face.get(&path).await;
            seen.extend(ids(&page).into_iter().map(str::to_owned));
            let Some(next) = page["next"].as_str() else {
                break;
            };
            path = format!("/api/v1/jobs?{query}&limit=1&after={next}");
        }
        assert_eq!(seen, expected, "{query}");
    }
    let queue = face.get("/api/v1/queues/q").await;
    let count = |state: &str| queue["counts"][state].as_u64();
    assert_eq!(count("ready"), Some(3));
    assert_eq!(count("scheduled"), Some(2));
    assert_eq!(count("failed"), Some(1));
    let wrong = face
        .text(Method::GET, "/api/v1/jobs?state=ready,odd", "")
        .await;
    assert_eq!(wrong.code(), "invalid_value");
}
