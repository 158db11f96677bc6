//! The numbers of the shard in the Prometheus text format.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ganger_shard::{Histogram, MetricsSnapshot};
use ganger_types::JobState;
use http::{HeaderValue, header};

use crate::api::Api;
use crate::names::show;

/// The content type of the text format.
const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) async fn show_all(State(api): State<Api>) -> Response {
    let mut out = encode(&api.shard().metrics());
    requests(&api, &mut out);
    (api.settings().more_metrics)(&mut out);
    (
        [(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE))],
        out,
    )
        .into_response()
}

/// The whole snapshot.
fn encode(snapshot: &MetricsSnapshot) -> String {
    let mut out = String::new();
    queues(snapshot, &mut out);
    let histograms = [
        (
            "ganger_job_wait_seconds",
            "From ready to leased.",
            &snapshot.job_wait_seconds,
        ),
        (
            "ganger_job_run_seconds",
            "From leased to the end of the attempt.",
            &snapshot.job_run_seconds,
        ),
        (
            "ganger_store_fsync_seconds",
            "One durable commit of the store.",
            &snapshot.commit_seconds,
        ),
        (
            "ganger_store_commit_batch_size",
            "Commands in one commit.",
            &snapshot.commit_batch_size,
        ),
    ];
    for (name, help, values) in histograms {
        histogram(name, help, values, &mut out);
    }
    head(
        &mut out,
        "ganger_worker_slots",
        "gauge",
        "Slots that workers hold or wait with.",
    );
    for (state, number) in &snapshot.worker_slots {
        line(&mut out, "ganger_worker_slots", &[("state", state)], number);
    }
    for (name, number) in &snapshot.counters {
        let name = format!("ganger_{name}");
        head(&mut out, &name, "counter", &words(&name));
        line(&mut out, &name, &[], number);
    }
    for (name, number) in &snapshot.gauges {
        let name = format!("ganger_{name}");
        head(&mut out, &name, "gauge", &words(&name));
        line(&mut out, &name, &[], number);
    }
    out
}

fn queues(snapshot: &MetricsSnapshot, out: &mut String) {
    head(
        out,
        "ganger_queue_depth",
        "gauge",
        "Jobs of a queue by state.",
    );
    for (namespace, queue, counts, _) in &snapshot.queues {
        let (namespace, queue) = (show(namespace.as_bytes()), show(queue.as_bytes()));
        for state in JobState::ALL {
            let labels = [
                ("namespace", &*namespace),
                ("queue", &*queue),
                ("state", state.as_str()),
            ];
            line(out, "ganger_queue_depth", &labels, counts.of(state));
        }
    }
    let name = "ganger_queue_oldest_age_seconds";
    head(
        out,
        name,
        "gauge",
        "Since when the oldest ready job of a queue waits.",
    );
    for (namespace, queue, _, age) in &snapshot.queues {
        let (namespace, queue) = (show(namespace.as_bytes()), show(queue.as_bytes()));
        line(
            out,
            name,
            &[("namespace", &namespace), ("queue", &queue)],
            age,
        );
    }
}

fn histogram(name: &str, help: &str, values: &Histogram, out: &mut String) {
    head(out, name, "histogram", help);
    let bucket = format!("{name}_bucket");
    for (bound, count) in values.buckets.iter().filter(|(bound, _)| bound.is_finite()) {
        line(out, &bucket, &[("le", &bound.to_string())], count);
    }
    line(out, &bucket, &[("le", "+Inf")], values.count);
    line(out, &format!("{name}_sum"), &[], values.sum);
    line(out, &format!("{name}_count"), &[], values.count);
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
        let text = encode(&snapshot);
        for line in [
            r#"ganger_queue_depth{namespace="default",queue="a\"b\n",state="ready"} 3"#,
            r#"ganger_queue_oldest_age_seconds{namespace="default",queue="a\"b\n"} 1.5"#,
            r#"ganger_store_fsync_seconds_bucket{le="0.001"} 2"#,
            r#"ganger_store_fsync_seconds_bucket{le="+Inf"} 5"#,
            "ganger_store_fsync_seconds_sum 0.02",
            "ganger_store_fsync_seconds_count 5",
            "ganger_lease_expired_total 7",
            r#"ganger_worker_slots{state="busy"} 2"#,
            "# TYPE ganger_job_wait_seconds histogram",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
