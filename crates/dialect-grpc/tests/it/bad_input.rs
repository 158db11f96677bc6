//! Bad input, operation by operation: every refusal has a stable code and names the field.

#![expect(clippy::too_many_lines, reason = "tables of cases are long")]

use crate::support::Server;
use ganger_proto::v1;
use tonic::{Response, Status};

/// The code and the message of a refusal.
fn refused<T>(answer: Result<Response<T>, Status>) -> (String, String) {
    let status = answer.err().expect("it must be refused");
    let code = status
        .metadata()
        .get("ganger-code")
        .expect("a refusal has a code");
    (
        code.to_str().expect("text").to_owned(),
        status.message().to_owned(),
    )
}

fn job(change: impl FnOnce(&mut v1::NewJob)) -> v1::NewJob {
    let mut job = v1::NewJob {
        kind: "k".into(),
        ..v1::NewJob::default()
    };
    change(&mut job);
    job
}

fn long() -> String {
    "x".repeat(256)
}

#[tokio::test]
async fn bad_jobs_are_refused_by_field() {
    let server = Server::start().await;
    let edge = |dependency| v1::Edge {
        dependency,
        policy: 0,
    };
    let input = |input| v1::Input { input };
    let list = v1::backoff::Rule::List(v1::BackoffList::default());
    let cases: Vec<(v1::NewJob, &str, &str)> = vec![
        (job(|job| job.kind = String::new()), "kind_missing", "kind"),
        (
            job(|job| job.kind = long()),
            "invalid_value",
            "jobs[1].kind",
        ),
        (
            job(|job| job.queue = long()),
            "invalid_value",
            "jobs[1].queue",
        ),
        (
            job(|job| job.id = Some(String::new())),
            "missing_field",
            "jobs[1].id",
        ),
        (
            job(|job| job.id = Some("00000000-0000".into())),
            "id_reserved",
            "form",
        ),
        (job(|job| job.name = long()), "too_large", "jobs[1].name"),
        (
            job(|job| job.tags = vec![long()]),
            "invalid_value",
            "jobs[1].tags[0]",
        ),
        (
            job(|job| job.tags = vec!["t".into(); 101]),
            "too_large",
            "jobs[1].tags",
        ),
        (
            job(|job| job.labels = vec![v1::Label::default()]),
            "missing_field",
            "jobs[1].labels[0].key",
        ),
        (
            job(|job| job.priority = i64::MAX),
            "invalid_value",
            "jobs[1].priority",
        ),
        (
            job(|job| job.payload = vec![0; (1 << 20) + 1].into()),
            "too_large",
            "payload",
        ),
        (
            job(|job| job.inputs = vec![input(None)]),
            "missing_field",
            "jobs[1].inputs[0]",
        ),
        (
            job(|job| job.after = vec![edge(None)]),
            "missing_field",
            "jobs[1].after[0]",
        ),
        (
            job(|job| job.after = vec![edge(Some(v1::edge::Dependency::Name("no".into())))]),
            "unknown_reference",
            "jobs[1].after[0].name",
        ),
        (
            job(|job| job.after = vec![edge(Some(v1::edge::Dependency::Member(9)))]),
            "member_not_found",
            "member 9",
        ),
        (
            job(|job| job.after = vec![edge(Some(v1::edge::Dependency::Member(1)))]),
            "cycle",
            "job 1",
        ),
        (
            job(|job| job.after = vec![edge(Some(v1::edge::Dependency::Job("no".into())))]),
            "dependency_not_found",
            "job no",
        ),
        (
            job(|job| {
                job.after = vec![v1::Edge {
                    dependency: Some(v1::edge::Dependency::Member(0)),
                    policy: 77,
                }];
            }),
            "invalid_value",
            "jobs[1].after[0].policy",
        ),
        (
            job(|job| {
                job.retry = Some(v1::RetryPolicy {
                    jitter_percent: 101,
                    ..v1::RetryPolicy::default()
                });
            }),
            "invalid_value",
            "jobs[1].retry.jitter_percent",
        ),
        (
            job(|job| {
                job.retry = Some(v1::RetryPolicy {
                    backoff: Some(v1::Backoff { rule: Some(list) }),
                    ..v1::RetryPolicy::default()
                });
            }),
            "missing_field",
            "jobs[1].retry.backoff.list.pauses_ms",
        ),
        (
            job(|job| job.unique = Some(v1::Unique::default())),
            "missing_field",
            "jobs[1].unique.key",
        ),
        (
            job(|job| job.deadline_at_us = Some(1)),
            "deadline_passed",
            "job 1",
        ),
    ];
    for (bad, code, field) in cases {
        let shown = format!("{bad:.200?}");
        let request = v1::EnqueueRequest {
            jobs: vec![job(|_| {}), bad],
            ..v1::EnqueueRequest::default()
        };
        let (got, message) = refused(server.jobs().enqueue(request).await);
        assert_eq!(got, code, "{shown}: {message}");
        assert!(message.contains(field), "{message:?} does not name {field}");
    }
    let listed = server
        .jobs()
        .list(v1::ListRequest::default())
        .await
        .expect("listed");
    assert!(listed.get_ref().jobs.is_empty(), "a refusal stores nothing");
}

#[tokio::test]
async fn bad_requests_about_jobs_are_refused_by_field() {
    let server = Server::start().await;
    let mut jobs = server.jobs();
    let named = |job: &str| v1::GetRequest {
        namespace: String::new(),
        job: job.into(),
    };
    let many = |jobs: Vec<String>| v1::JobsRequest {
        namespace: String::new(),
        jobs,
    };
    macro_rules! case {
        ($method:ident ( $request:expr ), $code:literal, $field:literal) => {
            let (code, message) = refused(jobs.$method($request).await);
            assert_eq!(code, $code, concat!(stringify!($method), ": {}"), message);
            assert!(
                message.contains($field),
                "{message:?} does not name {}",
                $field
            );
        };
    }
    case!(
        enqueue(v1::EnqueueRequest::default()),
        "nothing_submitted",
        "no jobs"
    );
    case!(
        enqueue(v1::EnqueueRequest {
            namespace: long(),
            ..Default::default()
        }),
        "invalid_value",
        "namespace"
    );
    case!(
        enqueue(v1::EnqueueRequest {
            idempotency_key: long(),
            ..Default::default()
        }),
        "invalid_value",
        "idempotency_key"
    );
    case!(
        submit_graph(futures::stream::iter(Vec::<v1::GraphPart>::new())),
        "nothing_submitted",
        "no jobs"
    );
    case!(get(named("")), "missing_field", "job");
    case!(get(named("no")), "job_not_found", "no");
    case!(get(named(&long())), "invalid_value", "job");
    case!(why(named("no")), "job_not_found", "no");
    case!(result(named("no")), "job_not_found", "no");
    case!(payload(named("no")), "job_not_found", "no");
    case!(
        list(v1::ListRequest {
            limit: 1001,
            ..Default::default()
        }),
        "invalid_value",
        "limit"
    );
    case!(
        list(v1::ListRequest {
            state: vec![99],
            ..Default::default()
        }),
        "invalid_value",
        "state"
    );
    for budget in [0, 10_001] {
        case!(
            list(v1::ListRequest {
                budget_ms: Some(budget),
                ..Default::default()
            }),
            "invalid_value",
            "budget_ms"
        );
    }
    case!(
        list(v1::ListRequest {
            order: v1::ListOrder::RunsNext.into(),
            ..Default::default()
        }),
        "missing_field",
        "queue"
    );
    case!(
        list(v1::ListRequest {
            order: v1::ListOrder::FinishedNewest.into(),
            cursor: "x".into(),
            ..Default::default()
        }),
        "invalid_value",
        "cursor"
    );
    case!(
        list(v1::ListRequest {
            cursor: "x".into(),
            ..Default::default()
        }),
        "invalid_value",
        "cursor"
    );
    case!(
        list(v1::ListRequest {
            tag: vec![String::new()],
            ..Default::default()
        }),
        "missing_field",
        "tag"
    );
    case!(
        list(v1::ListRequest {
            tag: vec!["t".into(); 17],
            ..Default::default()
        }),
        "too_large",
        "tag"
    );
    case!(
        list(v1::ListRequest {
            kind_prefix: Some(long()),
            ..Default::default()
        }),
        "too_large",
        "kind_prefix"
    );
    case!(
        list(v1::ListRequest {
            label: vec![v1::Label::default()],
            ..Default::default()
        }),
        "missing_field",
        "label[0].key"
    );
    case!(
        wait(v1::WaitRequest {
            job: "a".into(),
            wait_ms: 300_001,
            ..Default::default()
        }),
        "invalid_value",
        "wait_ms"
    );
    case!(
        wait(v1::WaitRequest {
            job: "no".into(),
            ..Default::default()
        }),
        "job_not_found",
        "no"
    );
    case!(
        graph(v1::GraphRequest {
            job: "no".into(),
            ..Default::default()
        }),
        "job_not_found",
        "no"
    );
    case!(
        graph(v1::GraphRequest {
            job: "no".into(),
            limit: 10_001,
            ..Default::default()
        }),
        "invalid_value",
        "limit"
    );
    case!(
        inputs(v1::InputsRequest {
            job: "no".into(),
            limit: 1_001,
            ..Default::default()
        }),
        "invalid_value",
        "limit"
    );
    case!(
        read_log(v1::LogRequest {
            job: "no".into(),
            ..Default::default()
        }),
        "job_not_found",
        "no"
    );
    case!(
        follow_log(v1::LogRequest {
            job: "no".into(),
            ..Default::default()
        }),
        "job_not_found",
        "no"
    );
    case!(
        read_log(v1::LogRequest {
            job: "a".into(),
            offset: 1,
            tail_bytes: Some(1),
            ..Default::default()
        }),
        "invalid_value",
        "tail_bytes"
    );
    case!(
        read_log(v1::LogRequest {
            job: "a".into(),
            bytes_max: 1 << 21,
            ..Default::default()
        }),
        "invalid_value",
        "bytes_max"
    );
    case!(
        cancel(v1::CancelRequest::default()),
        "missing_field",
        "jobs"
    );
    case!(
        cancel(v1::CancelRequest {
            jobs: vec!["a".into()],
            graph: "g".into(),
            ..Default::default()
        }),
        "invalid_value",
        "graph"
    );
    case!(retry(v1::RetryRequest::default()), "missing_field", "jobs");
    case!(time_out(many(Vec::new())), "missing_field", "jobs");
    case!(
        delete(many(vec![String::new()])),
        "missing_field",
        "jobs[0]"
    );
    case!(delete(many(vec!["a".into(); 10_001])), "too_large", "jobs");
    case!(
        alter(v1::AlterRequest {
            job: "no".into(),
            ..Default::default()
        }),
        "job_not_found",
        "no"
    );
    case!(
        alter(v1::AlterRequest {
            job: "a".into(),
            priority: Some(i64::MIN),
            ..Default::default()
        }),
        "invalid_value",
        "priority"
    );
    case!(
        add_dependencies(v1::AddDependenciesRequest {
            job: "a".into(),
            ..Default::default()
        }),
        "missing_field",
        "on"
    );
    case!(
        remove_dependencies(v1::RemoveDependenciesRequest {
            job: "a".into(),
            on: vec!["b".into()],
            all: true,
            ..Default::default()
        }),
        "invalid_value",
        "on"
    );
    assert!(server.handle.health() == ganger_shard::Health::Ready);
}

#[tokio::test]
async fn bad_leases_and_reports_are_refused_by_field() {
    let server = Server::start().await;
    let mut leases = server.leases();
    let lease = |change: fn(&mut v1::LeaseRequest)| {
        let mut request = v1::LeaseRequest {
            worker: "w".into(),
            queues: vec![v1::TakeFrom::default()],
            ..v1::LeaseRequest::default()
        };
        change(&mut request);
        request
    };
    let cases: Vec<(v1::LeaseRequest, &str, &str)> = vec![
        (
            lease(|request| request.worker.clear()),
            "missing_field",
            "worker",
        ),
        (
            lease(|request| request.queues.clear()),
            "missing_field",
            "queues",
        ),
        (
            lease(|request| request.queues = vec![v1::TakeFrom::default(); 257]),
            "too_large",
            "queues",
        ),
        (lease(|request| request.mode = 9), "invalid_value", "mode"),
        (
            lease(|request| request.jobs_max = 10_001),
            "invalid_value",
            "jobs_max",
        ),
        (
            lease(|request| request.lease_ms = Some(1)),
            "out_of_range",
            "lease",
        ),
        (
            lease(|request| request.wait_ms = 300_001),
            "invalid_value",
            "wait_ms",
        ),
        (
            lease(|request| request.request_id = long()),
            "invalid_value",
            "request_id",
        ),
    ];
    for (request, code, field) in cases {
        let (got, message) = refused(leases.lease(request).await);
        assert_eq!(got, code, "{message}");
        assert!(message.contains(field), "{message:?} does not name {field}");
    }
    let (code, _) = refused(leases.complete(v1::CompleteRequest::default()).await);
    assert_eq!(code, "missing_field");
    let (code, message) = refused(
        leases
            .deregister_worker(v1::DeregisterWorkerRequest::default())
            .await,
    );
    assert_eq!(
        (code.as_str(), message.contains("worker")),
        ("missing_field", true)
    );
    let held = |token: &'static [u8]| {
        Some(v1::Held {
            job: "j".into(),
            token: bytes::Bytes::from_static(token),
        })
    };
    let items = vec![
        v1::Completion::default(),
        v1::Completion {
            held: held(b"short"),
            ..v1::Completion::default()
        },
        v1::Completion {
            held: held(&[7; 28]),
            ..v1::Completion::default()
        },
    ];
    let reply = leases
        .complete(v1::CompleteRequest {
            namespace: String::new(),
            items,
        })
        .await
        .expect("each by itself");
    let codes: Vec<_> = reply
        .into_inner()
        .answers
        .into_iter()
        .map(code_of)
        .collect();
    assert_eq!(&codes[..2], ["missing_field", "invalid_value"]);
    assert!(
        ["job_not_found", "lease_lost"].contains(&codes[2].as_str()),
        "{codes:?}"
    );
}

fn code_of(answer: v1::ReportAnswer) -> String {
    match answer.outcome {
        Some(v1::report_answer::Outcome::Refused(error)) => error.code,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test]
async fn a_stream_that_breaks_the_rules_is_ended_with_a_reason() {
    let server = Server::start().await;
    let hello = v1::Hello {
        worker: "w".into(),
        queues: vec![v1::TakeFrom::default()],
        ..v1::Hello::default()
    };
    let first = |hello: Option<v1::Hello>, credits_added| v1::WorkerMessage {
        hello,
        credits_added,
        ..v1::WorkerMessage::default()
    };
    let cases = vec![
        (vec![first(None, 1)], "missing_field", "hello"),
        (
            vec![first(Some(v1::Hello::default()), 1)],
            "missing_field",
            "queues",
        ),
        (
            vec![first(Some(hello.clone()), 10_001)],
            "invalid_value",
            "credits_added",
        ),
        (
            vec![first(Some(hello.clone()), 1), first(Some(hello.clone()), 1)],
            "duplicate_field",
            "hello",
        ),
    ];
    for (messages, code, field) in cases {
        // The worker's side stays open: the server must end the stream by itself.
        let messages =
            futures::StreamExt::chain(futures::stream::iter(messages), futures::stream::pending());
        let answer = match server.leases().work(messages).await {
            Err(status) => Err(status),
            Ok(reply) => drain(reply.into_inner()).await.map(Response::new),
        };
        let (got, message) = refused(answer);
        assert_eq!(got, code, "{message}");
        assert!(message.contains(field), "{message:?} does not name {field}");
    }
}

async fn drain(mut stream: tonic::Streaming<v1::ServerMessage>) -> Result<(), Status> {
    while stream.message().await?.is_some() {}
    Ok(())
}

#[tokio::test]
async fn bad_settings_and_schedules_are_refused_by_field() {
    let server = Server::start().await;
    let mut queues = v1::queues_client::QueuesClient::new(server.channel.clone());
    let mut schedules = v1::schedules_client::SchedulesClient::new(server.channel.clone());
    let mut insight = v1::insight_client::InsightClient::new(server.channel.clone());
    macro_rules! case {
        ($client:ident . $method:ident ( $request:expr ), $code:literal, $field:literal) => {
            let (code, message) = refused($client.$method($request).await);
            assert_eq!(code, $code, concat!(stringify!($method), ": {}"), message);
            assert!(
                message.contains($field),
                "{message:?} does not name {}",
                $field
            );
        };
    }
    let queue = |settings| v1::ConfigureQueueRequest {
        settings,
        ..Default::default()
    };
    let due = v1::QueueSettings {
        due_order: 9,
        ..Default::default()
    };
    case!(
        queues.get(v1::GetQueueRequest {
            queue: long(),
            ..Default::default()
        }),
        "invalid_value",
        "queue"
    );
    case!(queues.configure(queue(None)), "missing_field", "settings");
    case!(
        queues.configure(queue(Some(due))),
        "invalid_value",
        "settings.due_order"
    );
    case!(
        queues.forget(v1::QueueRequest {
            queue: "no".into(),
            ..Default::default()
        }),
        "queue_not_found",
        "no"
    );
    let space = |settings| v1::ConfigureNamespaceRequest {
        settings,
        ..Default::default()
    };
    let clock = v1::NamespaceSettings {
        clock: 9,
        ..Default::default()
    };
    case!(
        queues.configure_namespace(space(None)),
        "missing_field",
        "settings"
    );
    case!(
        queues.configure_namespace(space(Some(clock))),
        "invalid_value",
        "settings.clock"
    );

    let put = |change: fn(&mut v1::Schedule)| {
        let interval = v1::Interval {
            every_ms: 1_000,
            first_at_us: None,
        };
        let mut schedule = v1::Schedule {
            id: "s".into(),
            kind: "k".into(),
            spec: Some(v1::schedule::Spec::Interval(interval)),
            ..Default::default()
        };
        change(&mut schedule);
        v1::PutScheduleRequest {
            namespace: String::new(),
            schedule: Some(schedule),
        }
    };
    case!(
        schedules.put(v1::PutScheduleRequest::default()),
        "missing_field",
        "schedule"
    );
    case!(
        schedules.put(put(|schedule| schedule.id.clear())),
        "missing_field",
        "schedule.id"
    );
    case!(
        schedules.put(put(|schedule| schedule.kind.clear())),
        "missing_field",
        "schedule.kind"
    );
    case!(
        schedules.put(put(|schedule| schedule.spec = None)),
        "missing_field",
        "schedule"
    );
    case!(
        schedules.put(put(|schedule| schedule.overlap = 9)),
        "invalid_value",
        "schedule.overlap"
    );
    case!(
        schedules
            .put(put(|schedule| schedule.spec =
                Some(v1::schedule::Spec::Interval(v1::Interval::default())))),
        "invalid_value",
        "schedule.interval.every_ms"
    );
    case!(
        schedules.put(put(|schedule| {
            let cron = v1::Cron {
                expression: "x".into(),
                time_zone: String::new(),
            };
            schedule.spec = Some(v1::schedule::Spec::Cron(cron));
        })),
        "cron_unreadable",
        "x"
    );
    case!(
        schedules.put(put(|schedule| {
            let cron = v1::Cron {
                expression: "0 3 * * *".into(),
                time_zone: "Mars/Base".into(),
            };
            schedule.spec = Some(v1::schedule::Spec::Cron(cron));
        })),
        "time_zone_unknown",
        "Mars/Base"
    );
    case!(
        schedules.get(v1::ScheduleRequest {
            id: "no".into(),
            ..Default::default()
        }),
        "schedule_not_found",
        "no"
    );
    case!(
        schedules.remove(v1::ScheduleRequest {
            id: String::new(),
            ..Default::default()
        }),
        "missing_field",
        "id"
    );
    case!(
        insight.tags(v1::TagsRequest {
            limit: 1_001,
            ..Default::default()
        }),
        "invalid_value",
        "limit"
    );
    case!(
        insight.events(v1::EventsRequest {
            after: Some(u64::MAX - 1),
            ..Default::default()
        }),
        "position_too_old",
        "not kept"
    );
    case!(
        insight.events(v1::EventsRequest {
            jobs: vec![String::new()],
            ..Default::default()
        }),
        "missing_field",
        "jobs[0]"
    );
}
