//! The numbers of all shards of the process in the Prometheus text format.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ganger_router::PeerState;
use ganger_shard::{Histogram, MetricsSnapshot};
use ganger_types::JobState;
use ganger_types::reply::PeerView;
use http::{HeaderValue, header};

use crate::api::Api;
use crate::names::show;

type ReadHistogram = fn(&MetricsSnapshot) -> &Histogram;
type ReadPeer = fn(&PeerView, &PeerState) -> u64;

/// The content type of the text format.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) async fn show_all(State(api): State<Api>) -> Response {
    let snapshots: Vec<_> = api
        .shards()
        .iter()
        .map(|shard| (shard.id().to_string(), shard.metrics()))
        .collect();
    let mut out = encode(&snapshots);
    requests(&api, &mut out);
    peers(&api, &mut out).await;
    (api.settings().more_metrics)(&mut out);
    (
        [(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE))],
        out,
    )
        .into_response()
}

/// The snapshots of all shards, by their ids.
fn encode(snapshots: &[(String, MetricsSnapshot)]) -> String {
    let mut out = String::new();
    queues(snapshots, &mut out);
    let histograms: [(&str, &str, ReadHistogram); 4] = [
        (
            "ganger_job_wait_seconds",
            "From ready to leased.",
            |snapshot| &snapshot.job_wait_seconds,
        ),
        (
            "ganger_job_run_seconds",
            "From leased to the end of the attempt.",
            |snapshot| &snapshot.job_run_seconds,
        ),
        (
            "ganger_store_fsync_seconds",
            "One durable commit of the store.",
            |snapshot| &snapshot.commit_seconds,
        ),
        (
            "ganger_store_commit_batch_size",
            "Commands in one commit.",
            |snapshot| &snapshot.commit_batch_size,
        ),
    ];
    for (name, help, read) in histograms {
        head(&mut out, name, "histogram", help);
        for (shard, snapshot) in snapshots {
            histogram(name, shard, read(snapshot), &mut out);
        }
    }
    let name = "ganger_worker_slots";
    let help = "Slots that workers hold or wait with.";
    head(&mut out, name, "gauge", help);
    for (shard, snapshot) in snapshots {
        for (state, number) in &snapshot.worker_slots {
            let labels = [("shard", shard.as_str()), ("state", state)];
            line(&mut out, name, &labels, number);
        }
    }
    numbers(
        snapshots,
        "counter",
        |snapshot| &snapshot.counters,
        &mut out,
    );
    numbers(snapshots, "gauge", |snapshot| &snapshot.gauges, &mut out);
    out
}

/// Plain numbers, each name once with those of all shards below it: all shards have the same names.
fn numbers(
    snapshots: &[(String, MetricsSnapshot)],
    kind: &str,
    read: fn(&MetricsSnapshot) -> &[(&'static str, u64)],
    out: &mut String,
) {
    let names = snapshots.first().map_or(&[][..], |(_, first)| read(first));
    for (place, (short, _)) in names.iter().enumerate() {
        let name = format!("ganger_{short}");
        head(out, &name, kind, &words(&name));
        for (shard, snapshot) in snapshots {
            if let Some((_, number)) = read(snapshot).get(place).filter(|row| row.0 == *short) {
                line(out, &name, &[("shard", shard)], number);
            }
        }
    }
}

fn queues(snapshots: &[(String, MetricsSnapshot)], out: &mut String) {
    let all = || {
        snapshots.iter().flat_map(|(shard, snapshot)| {
            let queues = snapshot.queues.iter();
            queues.map(move |(namespace, queue, counts, age)| {
                let names = (show(namespace.as_bytes()), show(queue.as_bytes()));
                (shard, names, counts, age)
            })
        })
    };
    let name = "ganger_queue_depth";
    head(out, name, "gauge", "Jobs of a queue by state.");
    for (shard, (namespace, queue), counts, _) in all() {
        for state in JobState::ALL {
            let labels = [
                ("shard", shard.as_str()),
                ("namespace", &*namespace),
                ("queue", &*queue),
                ("state", state.as_str()),
            ];
            line(out, name, &labels, counts.of(state));
        }
    }
    let name = "ganger_queue_oldest_age_seconds";
    let help = "Since when the oldest ready job of a queue waits.";
    head(out, name, "gauge", help);
    for (shard, (namespace, queue), _, age) in all() {
        let labels = [
            ("shard", shard.as_str()),
            ("namespace", &*namespace),
            ("queue", &*queue),
        ];
        line(out, name, &labels, age);
    }
}

/// What waits for other shards, and how it goes with it.
async fn peers(api: &Api, out: &mut String) {
    let Some(router) = &api.settings().router else {
        return;
    };
    let mut rows = Vec::new();
    for shard in api.shards() {
        // A shard that has stopped has nothing to tell.
        let views = router.peers(shard).await.unwrap_or_default();
        let views = views.into_iter();
        rows.extend(views.map(|(view, state)| (shard.id(), view, state)));
    }
    let numbers: [(&str, &str, ReadPeer); 3] = [
        (
            "ganger_peer_messages_waiting",
            "Messages that wait for another shard.",
            |view, _| view.waiting,
        ),
        (
            "ganger_peer_tries_failed",
            "Tries to bring them that failed since the last that did not.",
            |_, state| state.failed_tries,
        ),
        (
            "ganger_peer_stopped",
            "1 if nothing is exchanged until the two are reconciled.",
            |view, state| u64::from(view.record.stopped.is_some() || state.stopped_there.is_some()),
        ),
    ];
    for (name, help, read) in numbers {
        head(out, name, "gauge", help);
        for (shard, view, state) in &rows {
            let labels = [
                ("shard", shard.as_str()),
                ("peer", view.record.shard.as_str()),
            ];
            line(out, name, &labels, read(view, state));
        }
    }
}

fn histogram(name: &str, shard: &str, values: &Histogram, out: &mut String) {
    let bucket = format!("{name}_bucket");
    let own = [("shard", shard)];
    for (bound, count) in values.buckets.iter().filter(|(bound, _)| bound.is_finite()) {
        let bound = bound.to_string();
        line(out, &bucket, &[("shard", shard), ("le", &bound)], count);
    }
    line(
        out,
        &bucket,
        &[("shard", shard), ("le", "+Inf")],
        values.count,
    );
    line(out, &format!("{name}_sum"), &own, values.sum);
    line(out, &format!("{name}_count"), &own, values.count);
}

fn requests(api: &Api, out: &mut String) {
    let name = "ganger_http_requests_total";
    head(
        out,
        name,
        "counter",
        "Requests answered, by class of their status.",
    );
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    for (class, number) in classes.iter().zip(api.requests()) {
        line(
            out,
            name,
            &[("class", class)],
            number.load(Ordering::Relaxed),
        );
    }
}

fn words(name: &str) -> String {
    let text = name
        .trim_start_matches("ganger_")
        .trim_end_matches("_total");
    format!("{}.", text.replace('_', " "))
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("strings take everything");
}

fn line(out: &mut String, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
    out.push_str(name);
    for (place, (key, value)) in labels.iter().enumerate() {
        out.push(if place == 0 { '{' } else { ',' });
        write!(out, "{key}=\"{}\"", escape(value)).expect("strings take everything");
    }
    if !labels.is_empty() {
        out.push('}');
    }
    writeln!(out, " {value}").expect("strings take everything");
}

/// Label values escape backslash, quote and line end; other control characters must not pass either.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            control if control.is_control() => out.extend(control.escape_default()),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::{Namespace, Queue, QueueCounts};

    #[test]
    fn a_snapshot_is_encoded_with_the_promised_names() {
        let counts = QueueCounts {
            ready: 3,
            ..QueueCounts::default()
        };
        let queue = Queue::new(b"a\"b\n").expect("short");
        let snapshot = MetricsSnapshot {
            queues: vec![(Namespace::default(), queue, counts, 1.5)],
            commit_seconds: Histogram {
                buckets: vec![(0.001, 2), (0.01, 4)],
                sum: 0.02,
                count: 5,
            },
            counters: vec![("lease_expired_total", 7)],
            worker_slots: vec![("busy", 2)],
            ..MetricsSnapshot::default()
        };
        let text = encode(&[("1".to_owned(), snapshot)]);
        for line in [
            r#"ganger_queue_depth{shard="1",namespace="default",queue="a\"b\n",state="ready"} 3"#,
            r#"ganger_queue_oldest_age_seconds{shard="1",namespace="default",queue="a\"b\n"} 1.5"#,
            r#"ganger_store_fsync_seconds_bucket{shard="1",le="0.001"} 2"#,
            r#"ganger_store_fsync_seconds_bucket{shard="1",le="+Inf"} 5"#,
            r#"ganger_store_fsync_seconds_sum{shard="1"} 0.02"#,
            r#"ganger_store_fsync_seconds_count{shard="1"} 5"#,
            r#"ganger_lease_expired_total{shard="1"} 7"#,
            r#"ganger_worker_slots{shard="1",state="busy"} 2"#,
            "# TYPE ganger_job_wait_seconds histogram",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
