//! Streamed answers: batches, events, logs.

use crate::support::{events, face, face_with, follow};
use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use ganger_dialect_http::Settings;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

fn batch(body: Body, query: &str) -> Request<Body> {
    Request::post(format!("/api/v1/jobs/batch{query}"))
        .header("content-type", "application/x-ndjson")
        .body(body)
        .expect("a request")
}

fn lines(body: &[u8]) -> Vec<Value> {
    let lines = body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).expect("a line of JSON"))
        .collect()
}

#[tokio::test]
async fn each_line_of_a_batch_is_answered_by_itself_and_in_order() {
    let face = face_with(Settings {
        line_bytes_max: 200,
        ..Settings::default()
    });
    let long = format!("{{\"kind\":\"a\",\"payload\":\"{}\"}}", "x".repeat(300));
    let body = format!(
        "{{\"kind\":\"a\",\"id\":\"one\"}}\n\nnonsense\n{{\"kind\":\"\"}}\n{long}\n{{\"kind\":\"a\",\"id\":\"one\"}}\n{{\"kind\":\"b\",\"id\":\"one\"}}\n{{\"kind\":\"a\",\"id\":\"two\"}}"
    );
    // In small pieces, so that lines are cut anywhere.
    let pieces: Vec<_> = body
        .as_bytes()
        .chunks(7)
        .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
        .collect();
    let answer = face
        .send(batch(Body::from_stream(futures::stream::iter(pieces)), ""))
        .await;
    let told: Vec<_> = lines(&answer.body)
        .into_iter()
        .map(|line| {
            (
                line["line"].clone(),
                line["id"].clone(),
                line["error"]["code"].clone(),
            )
        })
        .collect();
    let null = Value::Null;
    let wanted = [
        (json!(1), json!("one"), null.clone()),
        (json!(3), null.clone(), json!("malformed_json")),
        (json!(4), null.clone(), json!("kind_missing")),
        (json!(5), null.clone(), json!("body_too_large")),
        (json!(6), json!("one"), null.clone()),
        (json!(7), null.clone(), json!("id_taken")),
        (json!(8), json!("two"), null.clone()),
    ];
    assert_eq!(told[..7], wanted);
    let summary = lines(&answer.body).pop().expect("a last line");
    assert_eq!(
        summary,
        json!({"lines": 7, "accepted": 3, "refused": 4, "complete": true})
    );
}

#[tokio::test]
async fn a_hundred_thousand_jobs_are_streamed_through_small_buffers() {
    let jobs = 100_000_u32;
    let face = face();
    // One piece of the body exists at a time; the client makes the next one on demand.
    let pieces = futures::stream::iter(0..jobs / 100).map(|piece| {
        let lines =
            (0..100).map(|line| format!("{{\"kind\":\"a\",\"payload\":{}}}\n", piece * 100 + line));
        Ok::<_, std::io::Error>(lines.collect::<String>())
    });
    let answer = face
        .send(batch(Body::from_stream(pieces), "?answers=errors"))
        .await;
    assert_eq!(
        lines(&answer.body),
        [json!({"lines": jobs, "accepted": jobs, "refused": 0, "complete": true})]
    );
    assert_eq!(
        face.get("/api/v1/queues/default").await["counts"]["ready"],
        jobs
    );
}

#[tokio::test]
async fn a_batch_that_breaks_off_keeps_what_was_answered_and_says_so() {
    let face = face();
    let pieces = vec![
        Ok("{\"kind\":\"a\"}\n{\"kind\":\"b\"".to_owned()),
        Err(std::io::Error::other("gone")),
    ];
    let answer = face
        .send(batch(Body::from_stream(futures::stream::iter(pieces)), ""))
        .await;
    let told = lines(&answer.body);
    assert_eq!(told[1]["error"]["code"], "body_incomplete");
    assert_eq!(
        told[2],
        json!({"lines": 1, "accepted": 1, "refused": 0, "complete": false})
    );
}

#[tokio::test]
async fn events_resume_after_the_last_position_without_a_gap() {
    let face = face();
    let mut stream = follow(&face, "/api/v1/events?event=job_moved", None).await;
    for place in 0..4 {
        face.enqueue(json!({"kind": "a", "id": format!("j{place}")}))
            .await;
    }
    let seen = events(&mut stream, 2).await;
    drop(stream);
    assert_eq!(seen[0].1["job"], "1/j0");
    assert_eq!(seen[0].1["to"], "ready");
    let mut stream = follow(&face, "/api/v1/events?event=job_moved", Some(seen[1].0)).await;
    let rest = events(&mut stream, 2).await;
    let jobs: Vec<_> = rest.iter().map(|(_, data)| data["job"].clone()).collect();
    assert_eq!(jobs, ["1/j2", "1/j3"]);
    assert!(rest[0].0 > seen[1].0);
}

#[tokio::test]
async fn events_are_filtered_by_job_queue_and_namespace() {
    let face = face();
    let mut one = follow(&face, "/api/v1/events?job=1%2Fmine", None).await;
    let mut queue = follow(&face, "/api/v1/events?queue=q", None).await;
    face.post(
        "/api/v1/jobs?namespace=other",
        json!({"kind": "a", "id": "mine", "queue": "q"}),
    )
    .await;
    face.enqueue(json!({"kind": "a", "id": "other"})).await;
    face.enqueue(json!({"kind": "a", "id": "mine", "queue": "q"}))
        .await;
    for stream in [&mut one, &mut queue] {
        let seen = events(stream, 1).await;
        assert_eq!(
            (&seen[0].1["job"], &seen[0].1["namespace"]),
            (&json!("1/mine"), &json!("default"))
        );
    }
}

#[tokio::test]
async fn a_position_too_far_back_is_refused_and_not_skipped() {
    let settings = ganger_shard::Settings {
        events_kept: 4,
        reserve_bytes: 0,
        ..Default::default()
    };
    let face = crate::support::face_over(settings, Settings::default());
    for _ in 0..50 {
        face.enqueue(json!({"kind": "a"})).await;
    }
    let answer = face
        .text(http::Method::GET, "/api/v1/events?after=1", "")
        .await;
    assert_eq!(
        (answer.status.as_u16(), &*answer.code()),
        (410, "position_too_old")
    );
}

#[tokio::test]
async fn a_followed_log_grows_and_ends_with_its_job() {
    let face = face();
    let id = face.enqueue(json!({"kind": "a"})).await;
    let leased = face.lease().await;
    let request = Request::get(format!("/api/v1/jobs/{id}/log?follow=true")).body(Body::empty());
    let mut log = face.start(request.expect("a request")).await;
    let held = |more: Value| {
        let mut all = json!({"job": id, "token": leased["token"]});
        all.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        all
    };
    face.post(
        "/api/v1/leases/log",
        held(json!({"offset": 0, "text": "first\n"})),
    )
    .await;
    let frame = log
        .body_mut()
        .frame()
        .await
        .expect("more")
        .expect("no fault");
    assert_eq!(&frame.data_ref().expect("data")[..], b"first\n");
    face.post(
        "/api/v1/leases/log",
        held(json!({"offset": 6, "data_base64": "/w=="})),
    )
    .await;
    face.post("/api/v1/leases/complete", held(json!({}))).await;
    let rest = log.into_body().collect().await.expect("it ends").to_bytes();
    assert_eq!(&rest[..], b"\xff");
}

#[tokio::test]
async fn streams_and_long_polls_end_politely_when_the_server_stops() {
    let face = face();
    let id = face.enqueue(json!({"kind": "a", "delay": "1h"})).await;
    let stream = follow(&face, "/api/v1/events", None).await;
    let wait = format!("/api/v1/jobs/{id}?wait=5m");
    let stop = async {
        tokio::task::yield_now().await;
        face.settings.stopping.cancel();
    };
    let (leases, job, ended, ()) = tokio::join!(
        face.post("/api/v1/leases", json!({"worker": "w", "wait": "5m"})),
        face.get(&wait),
        stream.into_body().collect(),
        stop,
    );
    assert_eq!(leases, json!({"jobs": []}));
    assert_eq!(job["state"], "scheduled");
    assert!(ended.is_ok());
    assert_eq!(
        face.text(http::Method::GET, "/readyz", "").await.status,
        503
    );
}

#[tokio::test]
async fn streams_beyond_the_limit_are_turned_away() {
    let face = face_with(Settings {
        streams: ganger_access::StreamLimit::new(1),
        ..Settings::default()
    });
    let first = follow(&face, "/api/v1/events", None).await;
    let answer = face.text(http::Method::GET, "/api/v1/events", "").await;
    assert_eq!(
        (answer.status.as_u16(), &*answer.code()),
        (503, "overloaded")
    );
    drop(first);
}
