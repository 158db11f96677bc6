//! The numbers of all shards of the process in the Prometheus text format.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ganger_document::names::show;
use ganger_router::PeerState;
use ganger_shard::{Histogram, MetricsSnapshot, RunMetrics};
use ganger_types::JobState;
use ganger_types::reply::PeerView;
use http::{HeaderValue, header};

use crate::api::Api;

type ReadHistogram = fn(&MetricsSnapshot) -> &Histogram;
type ReadRuns = fn(&RunMetrics) -> u64;
type ReadRunTimes = fn(&RunMetrics) -> &Histogram;
type ReadPeer = fn(&PeerView, &PeerState) -> u64;

/// Numbers of runs, which have labels for queue and kind: name, what it says, where it is.
const RUNS: [(&str, &str, ReadRuns); 3] = [
    (
        "jobs_succeeded_total",
        "Jobs that succeeded, by queue and kind.",
        |runs| runs.jobs_succeeded,
    ),
    (
        "jobs_failed_total",
        "Jobs that failed, by queue and kind.",
        |runs| runs.jobs_failed,
    ),
    (
        "attempt_failed_total",
        "Attempts that reported a failure, by queue and kind.",
        |runs| runs.attempts_failed,
    ),
];
/// The name of the queue and of the kind of all runs that have no numbers of their own. No namespace has an empty
/// name, so that these stand beside those of a queue and a kind of this name.
const OTHER: &str = "other";

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
    runs(snapshots, &mut out);
    let histograms: [(&str, &str, ReadHistogram); 2] = [
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
            histogram(name, &[("shard", shard)], read(snapshot), &mut out);
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
        if RUNS.iter().any(|(by_kind, ..)| by_kind == short) {
            continue;
        }
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

/// What became of runs, by queue and kind.
fn runs(snapshots: &[(String, MetricsSnapshot)], out: &mut String) {
    let mut all = Vec::new();
    for (shard, snapshot) in snapshots {
        for runs in &snapshot.runs {
            let names = match &runs.of {
                Some((namespace, queue, kind)) => {
                    let shown = [namespace.as_bytes(), queue.as_bytes(), kind.as_bytes()];
                    shown.map(|name| show(name).into_owned())
                }
                None => ["", OTHER, OTHER].map(str::to_owned),
            };
            all.push((shard, names, runs));
        }
    }
    let histograms: [(&str, &str, ReadRunTimes); 2] = [
        (
            "ganger_job_wait_seconds",
            "From ready to leased, by queue and kind.",
            |runs| &runs.wait_seconds,
        ),
        (
            "ganger_job_run_seconds",
            "From leased to the end of the attempt, by queue and kind.",
            |runs| &runs.run_seconds,
        ),
    ];
    for (name, help, read) in histograms {
        head(out, name, "histogram", help);
        for (shard, names, runs) in &all {
            histogram(name, &run_labels(shard, names), read(runs), out);
        }
    }
    for (short, help, read) in RUNS {
        let name = format!("ganger_{short}");
        head(out, &name, "counter", help);
        for (shard, names, runs) in &all {
            line(out, &name, &run_labels(shard, names), read(runs));
        }
    }
}

fn run_labels<'a>(
    shard: &'a str,
    [namespace, queue, kind]: &'a [String; 3],
) -> [(&'static str, &'a str); 4] {
    [
        ("shard", shard),
        ("namespace", namespace),
        ("queue", queue),
        ("kind", kind),
    ]
}

fn histogram(name: &str, own: &[(&str, &str)], values: &Histogram, out: &mut String) {
    let bucket = format!("{name}_bucket");
    let mut below = |bound: &str, count: u64| {
        let labels = own.iter().copied().chain([("le", bound)]);
        line(out, &bucket, &labels.collect::<Vec<_>>(), count);
    };
    for (bound, count) in values.buckets.iter().filter(|(bound, _)| bound.is_finite()) {
        below(&bound.to_string(), *count);
    }
    below("+Inf", values.count);
    line(out, &format!("{name}_sum"), own, values.sum);
    line(out, &format!("{name}_count"), own, values.count);
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

/// Label values escape backslash, quote and line end. Other control characters are shown as names show bytes, as `\xNN`:
/// Prometheus knows no other escapes and refuses the whole page for one.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            control if control.is_control() => {
                for byte in control.encode_utf8(&mut [0; 4]).bytes() {
                    write!(out, "\\\\x{byte:02x}").expect("strings take everything");
                }
            }
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

    /// The name and the labels of a line, read as Prometheus reads them: it knows three escapes and no other.
    fn series(line: &str) -> &str {
        let (name, rest) = line.split_once('{').expect("labels");
        let mut characters = rest.char_indices();
        let mut is_quoted = false;
        while let Some((place, character)) = characters.next() {
            match character {
                '\\' => {
                    let escaped = characters.next().map(|(_, character)| character);
                    assert!(
                        is_quoted && matches!(escaped, Some('\\' | '"' | 'n')),
                        "{line}"
                    );
                }
                '"' => is_quoted = !is_quoted,
                '}' if !is_quoted => return &line[..name.len() + 1 + place],
                control => assert!(!control.is_control(), "{line}"),
            }
        }
        panic!("no end: {line}");
    }

    #[test]
    fn runs_have_labels_and_hostile_names_stay_within_theirs() {
        let names: [&[u8]; 8] = [
            b"a\"} 1\nganger_up 1",
            b"tab\t",
            b"tab\\t",
            b"tab\\x09",
            b"\xff\x00",
            b"\\xff\\x00",
            "\u{85}\u{2028}\u{202e}".as_bytes(),
            b"other",
        ];
        let runs = |of| RunMetrics {
            of,
            jobs_failed: 3,
            run_seconds: Histogram {
                buckets: vec![(0.5, 2), (f64::INFINITY, 4)],
                sum: 7.0,
                count: 4,
            },
            ..RunMetrics::default()
        };
        let of_each = names.map(|name| {
            let queue = Queue::new(name).expect("short");
            let kind = ganger_types::Kind::new(name).expect("short");
            runs(Some((Namespace::default(), queue, kind)))
        });
        let snapshot = MetricsSnapshot {
            runs: of_each.into_iter().chain([runs(None)]).collect(),
            counters: vec![("jobs_failed_total", 27)],
            ..MetricsSnapshot::default()
        };
        let text = encode(&[("1".to_owned(), snapshot)]);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let all: std::collections::BTreeSet<&str> = lines.iter().map(|line| series(line)).collect();
        assert_eq!(all.len(), lines.len(), "no series comes twice:\n{text}");
        for line in [
            r#"ganger_jobs_failed_total{shard="1",namespace="",queue="other",kind="other"} 3"#,
            r#"ganger_jobs_failed_total{shard="1",namespace="default",queue="other",kind="other"} 3"#,
            r#"ganger_jobs_failed_total{shard="1",namespace="default",queue="tab\\x09",kind="tab\\x09"} 3"#,
            r#"ganger_job_run_seconds_bucket{shard="1",namespace="",queue="other",kind="other",le="+Inf"} 4"#,
        ] {
            assert!(lines.contains(&line), "{line} is missing in\n{text}");
        }
        let failed = lines
            .iter()
            .filter(|line| line.starts_with("ganger_jobs_failed_total"));
        assert_eq!(failed.count(), names.len() + 1, "and none without labels");
    }
}
