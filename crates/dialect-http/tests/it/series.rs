//! Series, latencies and totals by kind.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Face, face};

/// Enqueues a job, leases it and completes it.
async fn run_one(face: &Face, kind: &str) {
    face.enqueue(json!({"kind": kind})).await;
    let leased = face.lease().await;
    let report = json!({"job": leased["ref"], "token": leased["token"]});
    face.post("/api/v1/leases/complete", report).await;
}

/// The sum of the values of a line.
fn sum(line: &Value) -> u64 {
    let values = line["values"].as_array().expect("values");
    values.iter().filter_map(Value::as_u64).sum()
}

#[tokio::test]
async fn what_happened_to_jobs_is_counted_step_by_step() {
    let face = face();
    for kind in ["a", "a", "b"] {
        run_one(&face, kind).await;
    }
    let path = "/api/v1/series?from=-5m&metrics=enqueued,succeeded,failed";
    let series = face.get(path).await;
    assert_eq!(series["step_seconds"], 10);
    assert_eq!(series["truncated"], false);
    let lines = series["series"].as_array().expect("lines");
    let sums: Vec<_> = lines
        .iter()
        .map(|line| (line["queue"].clone(), line["metric"].clone(), sum(line)))
        .collect();
    let expected = [("enqueued", 3), ("succeeded", 3), ("failed", 0)];
    let expected = expected.map(|(metric, sum)| (json!("default"), json!(metric), sum));
    assert_eq!(sums, expected);
    assert_eq!(lines[0]["values"][0], Value::Null, "before the start");

    let total = face.get("/api/v1/series?by=total&metrics=started").await;
    assert_eq!(total["series"][0]["queue"], Value::Null);
    assert_eq!(sum(&total["series"][0]), 3);
    let kind = face.get("/api/v1/series?kind=a&metrics=started").await;
    assert_eq!(kind["step_seconds"], 60);
    assert_eq!(sum(&kind["series"][0]), 2);
    let nothing = face.get("/api/v1/series?queue=none").await;
    assert_eq!(nothing["series"], json!([]));
}

#[tokio::test]
async fn kinds_and_latencies_tell_how_long_jobs_took() {
    let face = face();
    for kind in ["a", "a", "b"] {
        run_one(&face, kind).await;
    }
    let latency = face.get("/api/v1/latency?kind=a&quantiles=0.5,1").await;
    for what in ["waiting", "running"] {
        assert_eq!(latency[what]["count"], 2, "{what}");
        let quantiles = latency[what]["quantiles"].as_object().expect("quantiles");
        assert_eq!(quantiles.keys().collect::<Vec<_>>(), ["0.5", "1"]);
        let bins = latency[what]["bins"].as_array().expect("bins").iter();
        assert_eq!(bins.filter_map(|bin| bin["count"].as_u64()).sum::<u64>(), 2);
    }
    let page = face.get("/api/v1/kinds?limit=1").await;
    assert_eq!(page["kinds"][0]["kind"], "a");
    assert_eq!(page["kinds"][0]["succeeded"], 2);
    assert_eq!(page["kinds"][0]["running_time"]["count"], 2);
    assert_eq!(page["next"], "a");
    let rest = face.get("/api/v1/kinds?limit=1&after=a").await;
    assert_eq!(rest["kinds"][0]["kind"], "b");
    assert_eq!(rest["next"], Value::Null);
}

#[tokio::test]
async fn what_no_series_can_answer_is_refused_with_the_reason() {
    let face = face();
    for (query, words) in [
        (
            "series?metrics=speed",
            "\"speed\" is no metric: there are enqueued",
        ),
        (
            "series?kind=a&metrics=lost",
            "\"lost\" is no metric of a kind: there are started",
        ),
        ("series?from=-2h&step=10s", "kept for 1 h"),
        ("series?kind=a&step=10s", "ask for 1m or 1h"),
        ("series?from=-1h&to=-2h", "give the earlier time first"),
        ("series?from=yesterday", "how long ago, such as -1h"),
        ("latency?quantiles=2", "from 0 to 1"),
        (
            "latency?quantiles=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0",
            "the limit is 20",
        ),
    ] {
        let answer = face
            .text(Method::GET, &format!("/api/v1/{query}"), "")
            .await;
        let detail = answer.json()["detail"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert_eq!(answer.status, 400, "{query}: {detail}");
        assert!(detail.contains(words), "{query}: {detail}");
    }
}
