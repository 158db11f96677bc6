//! Series, names, attempts and what waits, over gRPC.

use ganger_proto::v1;
use tonic::Status;

use crate::support::Server;

fn job(id: &str, kind: &str, queue: &str) -> v1::NewJob {
    v1::NewJob {
        id: Some(id.into()),
        kind: kind.into(),
        queue: queue.into(),
        ..v1::NewJob::default()
    }
}

/// A server with a job that succeeded, one that failed after a message of 300 bytes, and two that wait.
async fn worked() -> Server {
    let server = Server::start().await;
    let label = |value: &str| v1::Label {
        key: "tenant".into(),
        value: value.into(),
    };
    let jobs = vec![
        v1::NewJob {
            labels: vec![label("acme")],
            tags: vec!["night".into()],
            ..job("good", "resize", "work")
        },
        v1::NewJob {
            labels: vec![label("bert")],
            retry: Some(v1::RetryPolicy {
                retries_max: Some(0),
                ..v1::RetryPolicy::default()
            }),
            ..job("bad", "report", "work")
        },
        job("later", "resize", "idle"),
        job("last", "resize", "idle"),
    ];
    let request = v1::EnqueueRequest {
        jobs,
        ..v1::EnqueueRequest::default()
    };
    server.jobs().enqueue(request).await.expect("accepted");
    let lease = v1::LeaseRequest {
        worker: "w".into(),
        queues: vec![v1::TakeFrom {
            queue: "work".into(),
            ..v1::TakeFrom::default()
        }],
        jobs_max: 2,
        ..v1::LeaseRequest::default()
    };
    let leased = server.leases().lease(lease).await.expect("leased");
    for delivery in leased.into_inner().deliveries {
        let held = v1::Held {
            job: delivery.job.clone(),
            token: delivery.token,
        };
        if delivery.job == "good" {
            let item = v1::Completion {
                held: Some(held),
                ..v1::Completion::default()
            };
            let request = v1::CompleteRequest {
                items: vec![item],
                ..v1::CompleteRequest::default()
            };
            server.leases().complete(request).await.expect("completed");
        } else {
            let item = v1::FailureReport {
                held: Some(held),
                group: "disk".into(),
                message: "m".repeat(300),
                ..v1::FailureReport::default()
            };
            let request = v1::FailRequest {
                items: vec![item],
                ..v1::FailRequest::default()
            };
            server.leases().fail(request).await.expect("failed");
        }
    }
    server
}

fn get(job: &str) -> v1::GetRequest {
    v1::GetRequest {
        job: job.into(),
        ..v1::GetRequest::default()
    }
}

/// The field that a refusal names first.
fn refused_field<T>(answer: Result<T, Status>) -> String {
    let status = answer.err().expect("it must be refused");
    let message = status.message().to_owned();
    let end = message.find([':', ' ', '[']).unwrap_or(message.len());
    message[..end].to_owned()
}

#[tokio::test]
async fn failure_groups_have_times_a_message_and_where_they_failed() {
    let server = worked().await;
    let request = v1::InsightRequest::default();
    let reply = server.insight().failure_groups(request).await;
    let groups = reply.expect("listed").into_inner().groups;
    let [group] = groups.as_slice() else {
        panic!("{groups:?}");
    };
    assert_eq!((&*group.group, group.jobs), ("disk", 1));
    assert!(group.first_at_us.is_some() && group.first_at_us == group.last_at_us);
    assert_eq!(group.message.as_deref(), Some(&*"m".repeat(300)));
    assert_eq!(
        (&*group.by_queue[0].name, group.by_queue[0].count),
        ("work", 1)
    );
    assert_eq!(
        (&*group.by_kind[0].name, group.by_kind[0].count),
        ("report", 1)
    );
    assert_eq!(group.last_hour, [0, 0, 0, 0, 0, 1]);
}

#[tokio::test]
async fn attempts_are_listed_with_their_ends() {
    let server = worked().await;
    let attempts = server.jobs().attempts(get("bad")).await;
    let attempts = attempts.expect("listed").into_inner().attempts;
    let [attempt] = attempts.as_slice() else {
        panic!("{attempts:?}");
    };
    assert_eq!((attempt.attempt, &*attempt.worker), (1, "w"));
    assert_eq!(attempt.end.as_deref(), Some("failed"));
    assert_eq!(attempt.group.as_deref(), Some("disk"));
    assert!(attempt.ended_at_us >= Some(attempt.leased_at_us));
    let none = server.jobs().attempts(get("later")).await.expect("listed");
    assert_eq!(none.into_inner().attempts, []);
    let missing = server.jobs().attempts(get("nobody")).await;
    assert_eq!(
        missing.expect_err("it is not there").code(),
        tonic::Code::NotFound
    );
}

#[tokio::test]
async fn a_queue_tells_why_its_jobs_wait() {
    let server = worked().await;
    let idle = v1::QueueRequest {
        queue: "idle".into(),
        ..v1::QueueRequest::default()
    };
    let why = server.queues().why(idle.clone()).await.expect("explained");
    let why = why.into_inner();
    assert_eq!(why.queue, "idle");
    assert_eq!(
        (&*why.reasons[0].code, why.reasons[0].jobs),
        ("no_worker", 2)
    );
    assert!(!why.reasons[0].text.is_empty());
    server.queues().pause(idle.clone()).await.expect("paused");
    let why = server.queues().why(idle).await.expect("explained");
    assert_eq!(why.into_inner().reasons[0].code, "queue_paused");
}

#[tokio::test]
async fn settings_come_with_their_origin_and_change_only_from_the_version_that_was_read() {
    let server = worked().await;
    let request = |effective| v1::GetQueueRequest {
        queue: "work".into(),
        effective,
        ..v1::GetQueueRequest::default()
    };
    let plain = server.queues().get(request(false)).await.expect("shown");
    assert_eq!(plain.get_ref().effective, []);
    let version = plain.into_inner().version.expect("a version");
    let change = |running_max| v1::ConfigureQueueRequest {
        queue: "work".into(),
        settings: Some(v1::QueueSettings {
            running_max: Some(running_max),
            ..v1::QueueSettings::default()
        }),
        version: Some(version.clone()),
        ..v1::ConfigureQueueRequest::default()
    };
    server.queues().configure(change(7)).await.expect("changed");
    let late = server.queues().configure(change(8)).await;
    let status = late.expect_err("the settings are of another version");
    let code = status.metadata().get("ganger-code").expect("a code");
    assert_eq!(code, "settings_changed");
    let unreadable = v1::ConfigureQueueRequest {
        version: Some("no number".into()),
        ..change(9)
    };
    let refused = server.queues().configure(unreadable).await;
    assert_eq!(refused_field(refused), "version");
    let shown = server.queues().get(request(true)).await.expect("shown");
    let shown = shown.into_inner().effective;
    let of = |name: &str| {
        let found = shown.iter().find(|setting| setting.setting == name);
        let found = found.expect("it is there");
        (found.value.as_str(), found.from.as_str())
    };
    assert_eq!(of("running_max"), ("7", "queue"));
    assert_eq!(of("lease_for"), ("\"1m\"", "default"));
}

#[tokio::test]
async fn series_kinds_and_latencies_count_what_was_done() {
    let server = worked().await;
    let insight = || server.insight();
    let request = v1::SeriesRequest {
        metrics: vec!["enqueued".into(), "succeeded".into(), "failed".into()],
        total: true,
        step_seconds: 60,
        ..v1::SeriesRequest::default()
    };
    let series = insight().series(request).await.expect("read").into_inner();
    let sums: Vec<i64> = series
        .series
        .iter()
        .map(|line| line.values.iter().filter(|value| **value > 0).sum())
        .collect();
    assert_eq!(sums, [4, 1, 1]);
    assert_eq!((series.step_seconds, series.truncated), (60, false));
    assert_eq!(series.series[0].queue, None);
    assert_eq!(series.series[0].values.len(), 61);
    assert_eq!(series.series[0].values[0], -1, "nothing was counted then");

    let kinds = insight().kinds(v1::KindsRequest::default()).await;
    let kinds = kinds.expect("read").into_inner();
    let counts = kinds.kinds.iter().map(|kind| {
        let name = kind.kind.as_deref().unwrap_or_default();
        (name, kind.started, kind.succeeded, kind.failed)
    });
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts, [("report", 1, 0, 1), ("resize", 1, 1, 0)]);
    let page = v1::KindsRequest {
        limit: 1,
        ..v1::KindsRequest::default()
    };
    let first = insight()
        .kinds(page.clone())
        .await
        .expect("read")
        .into_inner();
    assert_eq!((first.kinds.len(), &*first.next), (1, "report"));
    let second = v1::KindsRequest {
        after: first.next,
        ..page
    };
    let second = insight().kinds(second).await.expect("read").into_inner();
    assert_eq!(second.kinds[0].kind.as_deref(), Some("resize"));
    assert_eq!(second.next, "");

    let request = v1::LatencyRequest {
        kind: Some("resize".into()),
        quantiles: vec![0.5, 1.0],
        ..v1::LatencyRequest::default()
    };
    let latency = insight().latency(request).await.expect("read").into_inner();
    let running = latency.running.expect("it is there");
    assert_eq!(running.count, 1);
    assert_eq!(running.quantiles.len(), 2);
    assert!(running.quantiles[0].seconds.is_some());
    assert_eq!(running.bins.len(), 1);
}

/// A change of a request for series.
type Change = fn(&mut v1::SeriesRequest);

#[tokio::test]
async fn requests_for_series_that_cannot_be_are_refused_by_field() {
    let server = Server::start().await;
    let changes: [(Change, &str); 4] = [
        (|request| request.step_seconds = 7, "step_seconds"),
        (|request| request.metrics = vec!["speed".into()], "metrics"),
        (
            |request| {
                request.kind = Some("k".into());
                request.metrics = vec!["ready".into()];
            },
            "metrics",
        ),
        (
            |request| {
                request.from_us = Some(2);
                request.to_us = Some(1);
            },
            "from_us",
        ),
    ];
    for (change, field) in changes {
        let mut request = v1::SeriesRequest::default();
        change(&mut request);
        assert_eq!(refused_field(server.insight().series(request).await), field);
    }
    let quantiles = v1::LatencyRequest {
        quantiles: vec![0.5, 1.5],
        ..v1::LatencyRequest::default()
    };
    let refused = server.insight().latency(quantiles).await;
    assert_eq!(refused_field(refused), "quantiles");
    let nothing = server.insight().names(v1::NamesRequest::default()).await;
    assert_eq!(refused_field(nothing), "of");
}

#[tokio::test]
async fn names_and_labels_in_use_are_listed() {
    let server = worked().await;
    let request = |of: v1::NamesOf, prefix: &str, limit| v1::NamesRequest {
        of: of.into(),
        prefix: prefix.into(),
        limit,
        ..v1::NamesRequest::default()
    };
    for (of, prefix, limit, expected, complete) in [
        (v1::NamesOf::Queue, "", 0, &["idle", "work"][..], true),
        (v1::NamesOf::Queue, "", 1, &["idle"], false),
        (v1::NamesOf::Kind, "re", 0, &["report", "resize"], true),
        (v1::NamesOf::Kind, "res", 0, &["resize"], true),
        (v1::NamesOf::Tag, "", 0, &["night"], true),
        (v1::NamesOf::Worker, "", 0, &["w"], true),
        (v1::NamesOf::Group, "d", 0, &["disk"], true),
        (v1::NamesOf::Schedule, "", 0, &[], true),
        (v1::NamesOf::Graph, "", 0, &[], true),
    ] {
        let found = server.insight().names(request(of, prefix, limit)).await;
        let found = found.expect("listed").into_inner();
        assert_eq!(found.names, expected, "{of:?} {prefix}");
        assert_eq!(found.complete, complete, "{of:?} {prefix}");
    }
    let keys = server.insight().labels(v1::LabelsRequest::default()).await;
    let keys = keys.expect("listed").into_inner();
    assert_eq!((keys.labels.len(), &*keys.next), (1, ""));
    assert_eq!(keys.labels[0].name, "tenant");
    let request = v1::LabelsRequest {
        key: Some("tenant".into()),
        limit: 1,
        ..v1::LabelsRequest::default()
    };
    let first = server.insight().labels(request.clone()).await;
    let first = first.expect("listed").into_inner();
    let label = &first.labels[0];
    assert_eq!((&*label.name, label.live, label.kept), ("acme", 0, 1));
    assert!(label.exact);
    let request = v1::LabelsRequest {
        after: first.next,
        ..request
    };
    let second = server.insight().labels(request).await;
    let second = second.expect("listed").into_inner();
    assert_eq!((&*second.labels[0].name, &*second.next), ("bert", ""));
}

#[tokio::test]
async fn a_summary_of_a_job_is_short() {
    let server = worked().await;
    let request = |summary| v1::ListRequest {
        state: vec![v1::JobState::Failed.into()],
        summary,
        ..v1::ListRequest::default()
    };
    let whole = server.jobs().list(request(false)).await.expect("listed");
    let whole = &whole.into_inner().jobs[0];
    assert!(!whole.history.is_empty() && whole.retry.is_some());
    let short = server.jobs().list(request(true)).await.expect("listed");
    let short = &short.into_inner().jobs[0];
    assert!(short.history.is_empty() && short.retry.is_none());
    let message = |job: &v1::Job| job.failure.as_ref().map(|it| it.message.len());
    assert_eq!((message(whole), message(short)), (Some(300), Some(200)));
    assert_eq!(short.id, "bad");
}

#[tokio::test]
async fn a_schedule_is_paused_and_resumed_by_itself_and_tried_before_it_is_saved() {
    let server = Server::start().await;
    let mut schedules = server.schedules();
    let rule = v1::Schedule {
        id: "hourly".into(),
        kind: "report".into(),
        priority: 5,
        spec: Some(v1::schedule::Spec::Cron(v1::Cron {
            expression: "0 * * * *".into(),
            time_zone: "Europe/Rome".into(),
        })),
        ..v1::Schedule::default()
    };
    let preview = |schedule: Option<v1::Schedule>, count| v1::PreviewScheduleRequest {
        schedule,
        count,
        ..v1::PreviewScheduleRequest::default()
    };
    let times = schedules.preview(preview(Some(rule.clone()), 0)).await;
    let times = times.expect("foreseen").into_inner().at_us;
    assert_eq!(times.len(), 5);
    assert!(
        times
            .windows(2)
            .all(|pair| pair[1] - pair[0] == 3_600_000_000)
    );
    let list = schedules.list(v1::SchedulesRequest::default()).await;
    assert_eq!(
        list.expect("listed").into_inner().schedules,
        [],
        "nothing is saved"
    );
    let refused = schedules.preview(preview(None, 0)).await;
    assert_eq!(refused_field(refused), "schedule");
    let refused = schedules.preview(preview(Some(rule.clone()), 21)).await;
    assert_eq!(refused_field(refused), "count");

    let put = v1::PutScheduleRequest {
        schedule: Some(rule),
        ..v1::PutScheduleRequest::default()
    };
    schedules.put(put).await.expect("made");
    let named = v1::ScheduleRequest {
        id: "hourly".into(),
        ..v1::ScheduleRequest::default()
    };
    let paused = schedules.pause(named.clone()).await.expect("paused");
    let paused = paused.into_inner();
    assert_eq!(
        (paused.paused, paused.priority, paused.next_at_us),
        (true, 5, None)
    );
    let resumed = schedules.resume(named).await.expect("resumed");
    assert!(resumed.into_inner().next_at_us.is_some());
}

#[tokio::test]
async fn an_operator_releases_the_jobs_of_a_worker() {
    let server = worked().await;
    let lease = v1::LeaseRequest {
        worker: "gone".into(),
        queues: vec![v1::TakeFrom {
            queue: "idle".into(),
            ..v1::TakeFrom::default()
        }],
        jobs_max: 2,
        ..v1::LeaseRequest::default()
    };
    server.leases().lease(lease).await.expect("leased");
    let request = v1::DeregisterWorkerRequest {
        worker: "gone".into(),
        ..v1::DeregisterWorkerRequest::default()
    };
    let released = server.leases().release_worker(request.clone()).await;
    assert_eq!(released.expect("released").into_inner().changed, 2);
    let again = server.leases().release_worker(request).await;
    assert_eq!(again.expect("nobody is there").into_inner().changed, 0);
    let ready = v1::ListRequest {
        queue: Some("idle".into()),
        state: vec![v1::JobState::Ready.into()],
        ..v1::ListRequest::default()
    };
    let count = server.jobs().count(ready).await.expect("counted");
    assert_eq!(count.into_inner().count, 2);
}

#[tokio::test]
async fn the_caller_learns_its_roles() {
    let server = Server::start().await;
    let reply = server.admin().who_am_i(v1::WhoAmIRequest::default()).await;
    let reply = reply.expect("answered").into_inner();
    assert!(reply.may.contains(&"govern".to_owned()), "{reply:?}");
    assert!(!reply.read_only);
    let grants: Vec<_> = reply
        .grants
        .iter()
        .map(|grant| (grant.role.as_str(), grant.namespace.as_str()))
        .collect();
    assert_eq!(grants, [("admin", "*")]);
}
