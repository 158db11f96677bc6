//! `GET /metrics`: the metrics of all shards and of the process, in the Prometheus text format.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use ganger_document::names::show;
use ganger_metrics::{CONTENT_TYPE, Exposition, Histogram, NumberFamily};
use ganger_router::PeerState;
use ganger_shard::{MetricsSnapshot, RunMetrics};
use ganger_types::JobState;
use ganger_types::reply::PeerView;
use http::header;
use tokio::time::timeout;

use crate::api::Api;

/// How long a shard may take to tell about its messages.
const PEERS_WAIT: Duration = Duration::from_secs(1);

/// The id of a shard, and its metrics.
type ShardSnapshot = (String, MetricsSnapshot);
/// Adds a family of counters or of gauges.
type AddFamily = for<'a> fn(&'a mut Exposition, &str, &str) -> NumberFamily<'a>;
type ReadNumbers = fn(&MetricsSnapshot) -> &[(&'static str, u64)];
type ReadHistogram = fn(&MetricsSnapshot) -> &Histogram;
type ReadRuns = fn(&RunMetrics) -> u64;
type ReadRunTimes = fn(&RunMetrics) -> &Histogram;
type ReadPeer = fn(&PeerView, &PeerState) -> u64;

/// Counters of runs, which have labels for queue and kind: name, help, value.
const RUNS: [(&str, &str, ReadRuns); 9] = [
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
    (
        "jobs_enqueued_total",
        "Jobs that were stored, by queue and kind.",
        |runs| runs.jobs_enqueued,
    ),
    (
        "jobs_cancelled_total",
        "Jobs that were cancelled, by queue and kind.",
        |runs| runs.jobs_cancelled,
    ),
    (
        "leases_granted_total",
        "Attempts that workers leased, by queue and kind.",
        |runs| runs.leases_granted,
    ),
    (
        "lease_expired_total",
        "Attempts whose lease expired, by queue and kind.",
        |runs| runs.leases_expired,
    ),
    (
        "lease_released_total",
        "Attempts that were released, by queue and kind.",
        |runs| runs.leases_released,
    ),
    (
        "attempt_timed_out_total",
        "Attempts that took longer than allowed, by queue and kind.",
        |runs| runs.attempts_timed_out,
    ),
];
/// Queue and kind of all runs that have no series of their own. No namespace has an empty name, so this series differs
/// from that of a queue and a kind of this name.
const OTHER: &str = "other";

pub(crate) async fn show_all(State(api): State<Api>) -> Response {
    let snapshots: Vec<_> = api
        .shards()
        .iter()
        .map(|shard| (shard.id().to_string(), shard.metrics()))
        .collect();
    let mut out = Exposition::default();
    shards(&snapshots, &mut out);
    requests(&api, &mut out);
    peers(&api, &mut out).await;
    (api.settings().more_metrics)(&mut out);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], out.text()).into_response()
}

/// Adds the metrics of all shards.
fn shards(snapshots: &[ShardSnapshot], out: &mut Exposition) {
    queues(snapshots, out);
    runs(snapshots, out);
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
        let mut family = out.histogram(name, help);
        for (shard, snapshot) in snapshots {
            family.sample(&[("shard", shard)], read(snapshot));
        }
    }
    let help = "Slots that workers hold or wait with.";
    let mut slots = out.gauge("ganger_worker_slots", help);
    for (shard, snapshot) in snapshots {
        for (state, number) in &snapshot.worker_slots {
            slots.sample(&[("shard", shard), ("state", state)], *number);
        }
    }
    let counters: ReadNumbers = |snapshot| &snapshot.counters;
    numbers(snapshots, Exposition::counter, counters, out);
    let gauges: ReadNumbers = |snapshot| &snapshot.gauges;
    numbers(snapshots, Exposition::gauge, gauges, out);
}

/// Adds numbers whose only label is the shard. All shards have the same names.
fn numbers(snapshots: &[ShardSnapshot], add: AddFamily, read: ReadNumbers, out: &mut Exposition) {
    let names = snapshots.first().map_or(&[][..], |(_, first)| read(first));
    for (index, (short, _)) in names.iter().enumerate() {
        if RUNS.iter().any(|(by_kind, ..)| by_kind == short) {
            continue;
        }
        let mut family = add(out, &format!("ganger_{short}"), &words(short));
        for (shard, snapshot) in snapshots {
            if let Some((_, number)) = read(snapshot).get(index).filter(|row| row.0 == *short) {
                family.sample(&[("shard", shard)], *number);
            }
        }
    }
}

/// The help text of a number without one: the words of its name.
fn words(short: &str) -> String {
    format!("{}.", short.trim_end_matches("_total").replace('_', " "))
}

fn queues(snapshots: &[ShardSnapshot], out: &mut Exposition) {
    let all = || {
        snapshots.iter().flat_map(|(shard, snapshot)| {
            let queues = snapshot.queues.iter();
            queues.map(move |(namespace, queue, counts, age)| {
                let names = (show(namespace.as_bytes()), show(queue.as_bytes()));
                (shard, names, counts, *age)
            })
        })
    };
    let mut depth = out.gauge("ganger_queue_depth", "Jobs of a queue by state.");
    for (shard, (namespace, queue), counts, _) in all() {
        for state in JobState::ALL {
            let labels = [
                ("shard", shard.as_str()),
                ("namespace", &*namespace),
                ("queue", &*queue),
                ("state", state.as_str()),
            ];
            depth.sample(&labels, counts.of(state));
        }
    }
    let help = "Since when the oldest ready job of a queue waits.";
    let mut oldest = out.gauge("ganger_queue_oldest_age_seconds", help);
    for (shard, (namespace, queue), _, age) in all() {
        let labels = [
            ("shard", shard.as_str()),
            ("namespace", &*namespace),
            ("queue", &*queue),
        ];
        oldest.sample(&labels, age);
    }
}

/// Adds the metrics about messages to other shards.
async fn peers(api: &Api, out: &mut Exposition) {
    let Some(router) = &api.settings().router else {
        return;
    };
    let mut rows = Vec::new();
    let shards = api.shards();
    let asked = shards.iter().map(|shard| async move {
        let views = timeout(PEERS_WAIT, router.peers(shard)).await;
        // A shard that has stopped, or whose store confirms nothing, has none: the other metrics do not wait for it.
        (shard, views.ok().and_then(Result::ok).unwrap_or_default())
    });
    for (shard, views) in join_all(asked).await {
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
        let mut family = out.gauge(name, help);
        for (shard, view, state) in &rows {
            let labels = [
                ("shard", shard.as_str()),
                ("peer", view.record.shard.as_str()),
            ];
            family.sample(&labels, read(view, state));
        }
    }
}

/// Adds the results of runs, by queue and kind.
fn runs(snapshots: &[ShardSnapshot], out: &mut Exposition) {
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
        let mut family = out.histogram(name, help);
        for (shard, names, runs) in &all {
            family.sample(&run_labels(shard, names), read(runs));
        }
    }
    for (short, help, read) in RUNS {
        let mut family = out.counter(&format!("ganger_{short}"), help);
        for (shard, names, runs) in &all {
            family.sample(&run_labels(shard, names), read(runs));
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

fn requests(api: &Api, out: &mut Exposition) {
    let help = "Requests answered, by class of their status.";
    let mut family = out.counter("ganger_http_requests_total", help);
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    for (class, number) in classes.into_iter().zip(api.requests()) {
        family.sample(&[("class", class)], number.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::{Namespace, Queue, QueueCounts};

    /// Returns the text of one shard's metrics, after checking it.
    fn text(snapshot: MetricsSnapshot) -> String {
        let mut out = Exposition::default();
        shards(&[("1".to_owned(), snapshot)], &mut out);
        let text = out.text();
        assert_eq!(ganger_metrics::check(&text), Ok(()));
        text
    }

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
            counters: vec![("commits_total", 7)],
            worker_slots: vec![("busy", 2)],
            ..MetricsSnapshot::default()
        };
        let text = text(snapshot);
        for line in [
            r#"ganger_queue_depth{shard="1",namespace="default",queue="a\"b\n",state="ready"} 3"#,
            r#"ganger_queue_oldest_age_seconds{shard="1",namespace="default",queue="a\"b\n"} 1.5"#,
            r#"ganger_store_fsync_seconds_bucket{shard="1",le="0.001"} 2"#,
            r#"ganger_store_fsync_seconds_bucket{shard="1",le="+Inf"} 5"#,
            r#"ganger_store_fsync_seconds_sum{shard="1"} 0.02"#,
            r#"ganger_store_fsync_seconds_count{shard="1"} 5"#,
            r#"ganger_commits_total{shard="1"} 7"#,
            r#"ganger_worker_slots{shard="1",state="busy"} 2"#,
            "# TYPE ganger_store_fsync_seconds histogram",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is missing in\n{text}"
            );
        }
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
                buckets: vec![(0.5, 2)],
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
        let text = text(snapshot);
        let lines: Vec<&str> = text.lines().collect();
        for line in [
            r#"ganger_jobs_failed_total{shard="1",namespace="",queue="other",kind="other"} 3"#,
            r#"ganger_jobs_failed_total{shard="1",namespace="default",queue="other",kind="other"} 3"#,
            r#"ganger_jobs_failed_total{shard="1",namespace="default",queue="tab\\x09",kind="tab\\x09"} 3"#,
            r#"ganger_job_run_seconds_bucket{shard="1",namespace="",queue="other",kind="other",le="+Inf"} 4"#,
            "# TYPE ganger_job_wait_seconds histogram",
        ] {
            assert!(lines.contains(&line), "{line} is missing in\n{text}");
        }
        let failed = lines
            .iter()
            .filter(|line| line.starts_with("ganger_jobs_failed_total{"));
        assert_eq!(failed.count(), names.len() + 1, "and none without labels");
    }
}
