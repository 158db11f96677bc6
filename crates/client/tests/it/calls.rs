//! Every call of the client, against a server in this process.

#![expect(
    clippy::too_many_lines,
    reason = "a test follows one job through all calls"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kit::{Server, take};
use bytes::Bytes;
use ganger_client::{
    Alteration, CatchUp, Client, Dependency, Edge, EventFilter, FailurePolicy, FailureReport,
    Happening, JobFilter, JobOrder, JobState, LogPosition, NamespaceSettings, NewJob, NewSchedule,
    Options, Progress, QueueSettings, ReleaseReport, RenewalReport, Report, ReportAnswer, Retry,
    ScheduleSpec, Start, Submission, Unique,
};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_job_is_enqueued_leased_and_completed() {
    let server = Server::start();
    let client = server.client().await;
    let job = NewJob::new("resize")
        .payload("in")
        .priority(-3)
        .tag("photo")
        .label("size", "big")
        .timeout(LONG);
    let one = client
        .enqueue(NewJob {
            tracked: true,
            ..job
        })
        .await
        .expect("accepted");
    assert_eq!(one.to_string(), format!("1/{}", one.id));

    let shown = client.job(&one.id).await.expect("shown");
    assert_eq!(
        (shown.state, shown.priority.to_whole(), shown.kind.as_str()),
        (JobState::Ready, -3, "resize")
    );
    assert_eq!(
        (shown.tags, shown.labels),
        (
            vec!["photo".into()],
            BTreeMap::from([("size".into(), "big".into())])
        )
    );
    assert_eq!(client.payload(&one.id).await.expect("read"), "in");
    assert_eq!(
        client.why(&one.id).await.expect("explained").state,
        JobState::Ready
    );

    let delivery = client.lease(take("w", 10)).await.expect("leased").remove(0);
    assert_eq!(
        (delivery.attempt, delivery.payload.clone()),
        (1, Bytes::from_static(b"in"))
    );
    assert_eq!(
        client.why(&one.id).await.expect("explained").reasons[0].code,
        "runs"
    );
    assert_eq!(
        client.workers().await.expect("shown")[0].holds[0].job,
        one.id
    );

    let progress = Some(Progress {
        millionths: 500_000,
        message: "half".into(),
    });
    let reports = vec![
        (
            delivery.lease.clone(),
            Report::Renew(RenewalReport {
                progress,
                ..RenewalReport::default()
            }),
        ),
        (
            delivery.lease.clone(),
            Report::Log {
                offset: 0,
                bytes: "hello\n".into(),
            },
        ),
        (
            delivery.lease.clone(),
            Report::Complete {
                result: Some("out".into()),
                next: None,
            },
        ),
        (
            delivery.lease.clone(),
            Report::Complete {
                result: Some("out".into()),
                next: None,
            },
        ),
        (
            delivery.lease.clone(),
            Report::Fail(FailureReport {
                group: "g".into(),
                ..FailureReport::default()
            }),
        ),
    ];
    let answers = client.report(reports).await.expect("reached");
    assert!(matches!(answers[0], Ok(ReportAnswer::Renewed { .. })));
    assert_eq!(
        answers[1],
        Ok(ReportAnswer::Logged {
            bytes: 6,
            dropped: 0
        })
    );
    assert!(matches!(
        answers[2],
        Ok(ReportAnswer::Ended {
            state: JobState::Succeeded,
            repeat: false,
            ..
        })
    ));
    assert!(matches!(
        answers[3],
        Ok(ReportAnswer::Ended {
            state: JobState::Succeeded,
            repeat: true,
            ..
        })
    ));
    assert_eq!(
        answers[4].as_ref().expect_err("another outcome").code(),
        "report_conflict"
    );

    let ended = client.wait(&one.id, LONG).await.expect("shown");
    assert_eq!(ended.state, JobState::Succeeded);
    assert_eq!(
        client.result(&one.id).await.expect("read"),
        (JobState::Succeeded, Some("out".into()))
    );
    let log = client
        .log(&one.id, LogPosition::default(), 0)
        .await
        .expect("read");
    assert_eq!(log.chunks[0].bytes, "hello\n");
    let tail = client.log_tail(&one.id, 4).await.expect("read");
    assert_eq!(
        (tail.chunks[0].offset, &*tail.chunks[0].bytes),
        (2, &b"llo\n"[..])
    );
    assert_eq!(tail.next, log.next, "the list goes on where the log ends");
    let all = client.log_tail(&one.id, 100).await.expect("read");
    assert_eq!(all.chunks, log.chunks);
    assert_eq!(client.tracked().await.expect("shown")[0].job, one.id);
    assert_eq!(
        client.tags(0, 0).await.expect("shown"),
        [("photo".to_owned(), 1)]
    );
    assert_eq!(
        client
            .statistics("default", None)
            .await
            .expect("shown")
            .running
            .count,
        1
    );
    assert_eq!(client.audit().await.expect("audited"), Vec::<String>::new());
}

#[tokio::test]
async fn a_graph_is_submitted_shown_and_followed_to_its_end() {
    let server = Server::start();
    let client = server.client().await;
    let jobs = vec![
        NewJob::new("a").name("left").value("1"),
        NewJob::new("b").name("right").value("2"),
        NewJob::new("c")
            .result_of(Dependency::Name("left".into()))
            .result_of(Dependency::Member(1)),
    ];
    let graph = client
        .submit_graph(jobs.clone(), Some("key".into()))
        .await
        .expect("accepted");
    assert_eq!(graph.jobs[0].name, "left");
    let again = client
        .submit_graph(jobs, Some("key".into()))
        .await
        .expect("the same answer");
    assert!(again.repeat);
    assert_eq!(again.jobs[2].id, graph.jobs[2].id);

    let last = &graph.jobs[2].id;
    let view = client.graph(last, 0, 0).await.expect("shown");
    assert_eq!(
        (view.jobs.len(), view.edges.len(), view.more),
        (3, 2, false)
    );
    assert_eq!(view.jobs[0].id, graph.jobs[2].to_string());
    assert_eq!(
        view.edges
            .iter()
            .filter_map(|edge| edge.position)
            .sum::<u32>(),
        1
    );
    assert_eq!(
        client.why(last).await.expect("explained").reasons[0].code,
        "waits_for"
    );
    let (inputs, next) = client.inputs(last, 0, 0, true).await.expect("shown");
    assert_eq!(
        (inputs.len(), inputs[0].state.as_str(), next),
        (2, "missing", None)
    );

    let mut watch = client
        .watch_graph(graph.graph.as_deref().expect("a graph"))
        .await
        .expect("watched");
    let first = watch.next().await.expect("explained").expect("reached");
    assert_eq!((first.total, first.ended()), (3, 0));
    for _ in 0..2 {
        let delivery = client.lease(take("w", 1)).await.expect("leased").remove(0);
        let result = Some(format!("from {}", delivery.kind).into());
        client
            .report(vec![(
                delivery.lease,
                Report::Complete { result, next: None },
            )])
            .await
            .expect("taken");
    }
    let delivery = client.lease(take("w", 1)).await.expect("leased").remove(0);
    assert_eq!(delivery.inputs, ["from a", "from b"]);
    client
        .report(vec![(
            delivery.lease,
            Report::Complete {
                result: None,
                next: None,
            },
        )])
        .await
        .expect("taken");
    let mut ended = 0;
    while let Some(progress) = watch.next().await {
        ended = progress.expect("reached").ended();
    }
    assert_eq!(ended, 3);
}

#[tokio::test]
async fn jobs_are_altered_cancelled_retried_and_deleted() {
    let server = Server::start();
    let client = server.client().await;
    let enqueue = |kind: &'static str| client.enqueue(NewJob::new(kind));
    let up = enqueue("up").await.expect("accepted").id;
    let mut waiting = NewJob::new("down").after(Dependency::Job(up.clone()));
    waiting.after[0].policy = FailurePolicy::Wait;
    let down = client.enqueue(waiting).await.expect("accepted").id;

    let more = enqueue("more").await.expect("accepted").id;
    client
        .add_dependencies(&down, &[&more], FailurePolicy::Wait)
        .await
        .expect("added");
    client
        .remove_dependencies(&down, Some(&[&more]))
        .await
        .expect("removed");
    client
        .remove_dependencies(&down, None)
        .await
        .expect("removed");
    assert_eq!(
        client.job(&down).await.expect("shown").state,
        JobState::Ready
    );

    let change = Alteration {
        priority: Some(7),
        tags_added: vec!["x".into()],
        note: Some(("seen".into(), String::new())),
        start: Some(Start::After(LONG)),
        ..Alteration::default()
    };
    let (state, tags) = client.alter(&down, change).await.expect("altered");
    assert_eq!((state, tags), (JobState::Scheduled, vec!["x".to_owned()]));

    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let label = Alteration {
        labels_set: vec![pair("env", "prod"), pair("team", "red")],
        ..Alteration::default()
    };
    client.alter(&down, label).await.expect("labelled");
    let unlabel = Alteration {
        labels_removed: vec!["env".into(), "nobody".into()],
        ..Alteration::default()
    };
    let global = format!("1/{down}");
    client.alter(&global, unlabel).await.expect("altered");
    let shown = client.job(&global).await.expect("shown");
    assert_eq!(shown.labels, BTreeMap::from([pair("team", "red")]));
    let elsewhere = client.job("2/a").await.expect_err("another shard");
    assert_eq!(elsewhere.code(), "unknown_shard");

    let cancelled = client
        .cancel(&[&down, "nowhere"], "no")
        .await
        .expect("cancelled");
    assert_eq!(
        (cancelled.count, cancelled.skipped),
        (1, vec!["1/nowhere".to_owned()])
    );
    assert_eq!(
        client
            .retry(&[&down], Some("other"))
            .await
            .expect("retried")
            .count,
        1
    );
    assert_eq!(client.job(&down).await.expect("shown").queue, "other");
    assert_eq!(client.delete(&[&down]).await.expect("deleted").count, 1);
    assert_eq!(
        client.job(&down).await.expect_err("removed").code(),
        "job_not_found"
    );

    let delivery = client.lease(take("w", 1)).await.expect("leased").remove(0);
    assert_eq!(
        client
            .time_out(&[&delivery.lease.job])
            .await
            .expect("timed out")
            .count,
        1
    );
    let delivery = client.lease(take("w", 1)).await.expect("leased").remove(0);
    let release = ReleaseReport {
        keep_place: true,
        reason: "busy".into(),
        ..ReleaseReport::default()
    };
    let answers = client
        .report(vec![(delivery.lease.clone(), Report::Release(release))])
        .await
        .expect("reached");
    assert!(
        matches!(
            answers[0],
            Ok(ReportAnswer::Ended {
                state: JobState::Ready,
                ..
            })
        ),
        "{answers:?}"
    );
    let delivery = client.lease(take("w", 1)).await.expect("leased").remove(0);
    let fail = FailureReport {
        group: "disk".into(),
        message: "full".into(),
        permanent: true,
        ..FailureReport::default()
    };
    client
        .report(vec![(delivery.lease.clone(), Report::Fail(fail))])
        .await
        .expect("reached");
    assert_eq!(
        client.failure_groups().await.expect("shown"),
        [("disk".to_owned(), 1)]
    );
    let page = client
        .list(JobFilter {
            group: Some("disk".into()),
            ..JobFilter::default()
        })
        .await
        .expect("listed");
    assert_eq!(
        page.jobs[0].failure.as_ref().expect("failed").message,
        "full"
    );
}

#[tokio::test]
async fn what_needs_attention_rates_and_the_caller_are_shown() {
    let server = Server::start();
    let client = server.client().await;
    let job = NewJob {
        queue: "mail".into(),
        ..NewJob::new("a")
    };
    client.enqueue(job).await.expect("accepted");
    let items = client.attention().await.expect("shown");
    assert_eq!(items.len(), 1, "{items:?}");
    let item = &items[0];
    assert_eq!((item.code.as_str(), item.count), ("no_worker", Some(1)));
    assert_eq!(item.queue.as_deref(), Some("mail"));
    let elsewhere = client.in_namespace("other").attention().await;
    assert_eq!(elsewhere.expect("shown"), []);

    let names = ["mail".to_owned(), "unknown".to_owned()];
    let (total, each) = client.rates(&names).await.expect("shown");
    assert_eq!(each.len(), 2);
    assert_eq!(total.ended_by_minute.len(), 10);
    assert_eq!(each[1].run_p95, None);
    let many = vec![String::new(); 201];
    let refused = client.rates(&many).await.expect_err("too many");
    assert!(refused.message().contains("201"), "{refused}");

    let who = client.whoami().await.expect("shown");
    assert!(who.may.iter().any(|verb| verb == "observe"), "{who:?}");
    let info = client.info().await.expect("shown");
    assert_eq!(info.shards, ["1"]);

    assert_eq!(client.alerts().await.expect("shown"), []);
    let refused = client.test_alert("none").await.expect_err("there is none");
    assert_eq!(refused.code(), "alert_not_found");
}

#[tokio::test]
async fn lists_have_pages_and_filters() {
    let server = Server::start();
    let client = server.client().await;
    let jobs = (0..25)
        .map(|n| NewJob::new(if n % 5 == 0 { "five" } else { "other" }))
        .collect();
    client
        .enqueue_all(Submission {
            jobs,
            ..Submission::default()
        })
        .await
        .expect("accepted");
    let mut filter = JobFilter {
        limit: 10,
        brief: true,
        ..JobFilter::default()
    };
    let mut numbers = Vec::new();
    loop {
        let page = client.list(filter.clone()).await.expect("listed");
        numbers.extend(page.jobs.iter().map(|job| job.number));
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            break;
        }
    }
    assert_eq!(numbers.len(), 25);
    assert!(numbers.is_sorted());
    let five = JobFilter {
        kind: Some("five".into()),
        order: JobOrder::Newest,
        ..JobFilter::default()
    };
    assert_eq!(client.list(five).await.expect("listed").jobs.len(), 5);
}

#[tokio::test]
async fn queues_namespaces_and_schedules_are_set_and_shown() {
    let server = Server::start();
    let client = server.client().await;
    let settings = QueueSettings {
        running_max: Some(2),
        lease_for: Some(LONG),
        ..QueueSettings::default()
    };
    let view = client
        .configure_queue("mail", settings.clone())
        .await
        .expect("set");
    assert_eq!(view.settings, settings);
    client.pause_queue("mail").await.expect("paused");
    assert!(client.queue("mail").await.expect("shown").settings.paused);
    client.resume_queue("mail").await.expect("resumed");
    assert_eq!(client.queues().await.expect("shown").len(), 1);
    client.forget_queue("mail").await.expect("forgotten");
    assert!(client.queues().await.expect("shown").is_empty());

    let settings = NamespaceSettings {
        history_max: 7,
        ..NamespaceSettings::default()
    };
    let view = client
        .configure_namespace("team", settings.clone())
        .await
        .expect("set");
    assert_eq!(view.settings, settings);
    assert!(
        client
            .namespaces()
            .await
            .expect("shown")
            .iter()
            .any(|view| view.namespace == "team")
    );
    let team = client.in_namespace("team");
    let id = team.enqueue(NewJob::new("k")).await.expect("accepted").id;
    assert_eq!(
        client
            .job(&id)
            .await
            .expect_err("of another namespace")
            .code(),
        "job_not_found"
    );

    let spec = ScheduleSpec::Cron {
        expression: "0 3 * * *".into(),
        time_zone: "Europe/Rome".into(),
    };
    let rule = NewSchedule {
        catch_up: CatchUp::All { max: 3 },
        ..NewSchedule::new("nightly", "report", spec)
    };
    let put = client.put_schedule(rule.clone()).await.expect("put");
    assert_eq!(NewSchedule::from(put.clone()), rule);
    assert!(put.next_at.is_some());
    assert_eq!(client.schedules().await.expect("shown").first(), Some(&put));
    assert_eq!(client.schedule("nightly").await.expect("shown"), put);
    client.remove_schedule("nightly").await.expect("removed");
    assert_eq!(
        client
            .schedule("nightly")
            .await
            .expect_err("removed")
            .code(),
        "schedule_not_found"
    );
    let spec = ScheduleSpec::Cron {
        expression: "never".into(),
        time_zone: "UTC".into(),
    };
    let error = client
        .put_schedule(NewSchedule::new("s", "k", spec))
        .await
        .expect_err("no cron");
    assert_eq!(error.code(), "cron_unreadable");
}

#[tokio::test]
async fn a_bulk_stream_answers_its_batches_in_order() {
    let server = Server::start();
    let client = server.client().await;
    let mut accepted = Vec::new();
    let mut refused = Vec::new();
    let mut bulk = client.bulk(|number, answer| match answer {
        Ok(answer) => accepted.extend(answer.jobs.into_iter().map(|job| job.id)),
        Err(error) => refused.push((number, error.code().to_owned())),
    });
    for batch in 0..50 {
        let kind = if batch == 20 { "" } else { "k" };
        bulk.send(vec![NewJob::new(kind); 100]).await.expect("sent");
    }
    bulk.finish().await.expect("answered");
    assert_eq!(accepted.len(), 4_900);
    assert!(accepted.is_sorted());
    assert_eq!(refused, [(20, "kind_missing".to_owned())]);
}

#[tokio::test]
async fn a_repeated_submission_under_its_key_returns_the_first_answer() {
    let server = Server::start();
    let client = server.client().await;
    let submit = |payload: &'static str| {
        client.enqueue_all(Submission {
            jobs: vec![NewJob::new("k").payload(payload)],
            idempotency_key: Some("order-7".into()),
            graph: false,
        })
    };
    let first = submit("a").await.expect("accepted");
    assert_eq!(
        submit("a").await.expect("repeated").jobs[0].id,
        first.jobs[0].id
    );
    assert_eq!(
        submit("b").await.expect_err("other content").code(),
        "idempotency_conflict"
    );
    let unique = Some(Unique {
        key: "one".into(),
        window: None,
    });
    let job = NewJob {
        unique,
        ..NewJob::new("k")
    };
    let one = client.enqueue(job.clone()).await.expect("accepted");
    let two = client.enqueue(job).await.expect("accepted");
    assert_eq!((two.existed, two.id), (true, one.id));
}

#[tokio::test]
async fn an_event_stream_continues_after_a_restart() {
    let server = Server::start();
    let client = server.client().await;
    let mut events = client
        .events(EventFilter {
            moves_only: true,
            ..EventFilter::default()
        })
        .await
        .expect("followed");
    let id = client
        .enqueue(NewJob::new("k"))
        .await
        .expect("accepted")
        .to_string();
    let moved = loop {
        let event = events.next().await.expect("open").expect("followed");
        if let Happening::JobMoved(moved) = event.happening {
            break moved;
        }
    };
    assert_eq!(
        (moved.job, moved.to, moved.from),
        (id, JobState::Ready, None)
    );
    assert!(events.position().is_some());
    let server = server.kill().await.restart();
    let id = client
        .enqueue(NewJob::new("k"))
        .await
        .expect("accepted")
        .to_string();
    loop {
        let event = events.next().await.expect("open").expect("followed");
        if matches!(event.happening, Happening::JobMoved(moved) if moved.job == id) {
            break;
        }
    }
    let error = client
        .events(EventFilter {
            after: Some(u64::MAX - 1),
            ..EventFilter::default()
        })
        .await;
    assert_eq!(error.err().expect("not there").code(), "position_too_old");
    drop(server);
}

#[tokio::test]
async fn a_log_is_followed_to_the_end_of_its_job() {
    let server = Server::start();
    let client = server.client().await;
    let id = client.enqueue(NewJob::new("k")).await.expect("accepted").id;
    let lease = client
        .lease(take("w", 1))
        .await
        .expect("leased")
        .remove(0)
        .lease;
    let mut log = client.follow_log(&id, LogPosition::default());
    let mut offset = 0;
    for line in ["one\n", "two\n"] {
        let report = Report::Log {
            offset,
            bytes: line.into(),
        };
        client
            .report(vec![(lease.clone(), report)])
            .await
            .expect("reached");
        offset += 4;
        let page = log.next().await.expect("open").expect("read");
        assert_eq!(page.chunks[0].bytes, line);
    }
    client
        .report(vec![(
            lease,
            Report::Complete {
                result: None,
                next: None,
            },
        )])
        .await
        .expect("reached");
    assert!(log.next().await.expect("open").expect("read").end);
    assert!(log.next().await.is_none());
}

#[tokio::test]
async fn a_call_is_retried_until_the_server_is_back() {
    let server = Server::start();
    let client = server.client().await;
    let info = client.info().await.expect("shown");
    assert_eq!(
        (info.shard.as_str(), info.health.as_str(), info.draining),
        ("1", "ready", false)
    );
    let stopped = server.kill().await;
    let enqueue = tokio::spawn({
        let client = client.clone();
        async move { client.enqueue(NewJob::new("k")).await }
    });
    let server = stopped.restart();
    let id = enqueue.await.expect("no panic").expect("accepted").id;
    assert_eq!(client.job(&id).await.expect("shown").kind, "k");
    drop(server);
}

#[tokio::test]
async fn an_absent_server_is_reported_as_unreachable() {
    let options = Options {
        retry: Retry {
            total_max: Duration::ZERO,
            ..Retry::default()
        },
        ..Options::new("127.0.0.1:1")
    };
    let error = Client::connect(options)
        .await
        .err()
        .expect("nobody is there");
    assert!(
        error.is_unreachable() && error.has_changed_nothing(),
        "{error:?}"
    );
    assert!(error.message().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_dependency_by_an_unknown_name_is_refused_with_its_position() {
    let server = Server::start();
    let client = server.client().await;
    let job = NewJob {
        after: vec![Edge::on(Dependency::Name("nobody".into()))],
        ..NewJob::new("k")
    };
    let error = client
        .submit_graph(vec![NewJob::new("a"), job], None)
        .await
        .expect_err("refused");
    assert_eq!(error.code(), "unknown_reference");
    assert!(error.message().contains("jobs[1].after[0].name"), "{error}");
    assert!(
        client
            .list(JobFilter::default())
            .await
            .expect("listed")
            .jobs
            .is_empty()
    );
}
