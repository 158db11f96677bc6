//! Many jobs at once, and schedules, over gRPC.

use crate::support::Server;
use ganger_proto::v1;
use tonic::{Response, Status};

/// The code of a refusal, and what it says.
fn refused<T>(answer: Result<Response<T>, Status>) -> (String, String) {
    let status = answer.err().expect("it must be refused");
    let code = status.metadata().get("ganger-code").expect("a code");
    (
        code.to_str().expect("text").to_owned(),
        status.message().to_owned(),
    )
}

/// Sets one condition of a filter.
type Condition = fn(&mut v1::ListRequest);

fn label(value: &str) -> v1::Label {
    v1::Label {
        key: "l".into(),
        value: value.into(),
    }
}

fn other_label() -> v1::Label {
    v1::Label {
        key: "m".into(),
        value: "1".into(),
    }
}

/// Two jobs of kind `a` with a tag and a label, one of them with more, and one of kind `b`.
async fn stocked() -> Server {
    let server = Server::start().await;
    let marked = v1::NewJob {
        kind: "a".into(),
        queue: "stock".into(),
        tags: vec!["t".into()],
        labels: vec![label("1")],
        ..v1::NewJob::default()
    };
    let more = v1::NewJob {
        tags: vec!["t".into(), "u".into()],
        labels: vec![label("1"), other_label()],
        tracked: true,
        unique: Some(v1::Unique {
            key: "one".into(),
            window_ms: None,
        }),
        ..marked.clone()
    };
    let plain = v1::NewJob {
        kind: "b".into(),
        queue: "stock".into(),
        ..v1::NewJob::default()
    };
    let request = v1::EnqueueRequest {
        jobs: vec![more, marked, plain],
        ..v1::EnqueueRequest::default()
    };
    server.jobs().enqueue(request).await.expect("accepted");
    server
}

fn matching(filter: v1::ListRequest, dry_run: bool) -> v1::MatchingRequest {
    v1::MatchingRequest {
        filter: Some(filter),
        dry_run,
        ..v1::MatchingRequest::default()
    }
}

fn all() -> v1::ListRequest {
    v1::ListRequest {
        queue: Some("stock".into()),
        ..v1::ListRequest::default()
    }
}

async fn count(server: &Server, filter: v1::ListRequest) -> u64 {
    let reply = server.jobs().count(filter).await.expect("counted");
    reply.into_inner().count
}

#[tokio::test]
async fn every_condition_selects_its_jobs_and_a_dry_run_changes_none() {
    let server = stocked().await;
    let cases: [(Condition, u64); 26] = [
        (|filter| filter.queue = Some("stock".into()), 3),
        (|filter| filter.queue = Some("empty".into()), 0),
        (|filter| filter.kind = Some("a".into()), 2),
        (|filter| filter.state = vec![v1::JobState::Ready.into()], 3),
        (|filter| filter.state = vec![v1::JobState::Failed.into()], 0),
        (|filter| filter.kind_prefix = Some("b".into()), 1),
        (|filter| filter.id_prefix = Some("/".into()), 0),
        (|filter| filter.tag = vec!["t".into()], 2),
        (|filter| filter.tag = vec!["t".into(), "u".into()], 1),
        (|filter| filter.label = vec![label("1")], 2),
        (|filter| filter.label = vec![label("2")], 0),
        (|filter| filter.label = vec![label("1"), other_label()], 1),
        (|filter| filter.unique_key = Some("one".into()), 1),
        (|filter| filter.tracked = Some(true), 1),
        (|filter| filter.tracked = Some(false), 2),
        (|filter| filter.attempt_min = Some(0), 3),
        (|filter| filter.attempt_min = Some(1), 0),
        (|filter| filter.finished_from_us = Some(1), 0),
        (|filter| filter.finished_before_us = Some(u64::MAX), 0),
        (|filter| filter.graph = Some("none".into()), 0),
        (|filter| filter.schedule = Some("none".into()), 0),
        (|filter| filter.group = Some("none".into()), 0),
        (|filter| filter.failure_text = Some("none".into()), 0),
        (|filter| filter.worker = Some("nobody".into()), 0),
        (|filter| filter.created_from_us = Some(1), 3),
        (|filter| filter.created_before_us = Some(1), 0),
    ];
    for (condition, expected) in cases {
        let mut filter = v1::ListRequest::default();
        condition(&mut filter);
        let request = matching(filter.clone(), true);
        for reply in [
            server.jobs().cancel_matching(request.clone()).await,
            server.jobs().delete_matching(request).await,
        ] {
            let matched = reply.expect("counted").into_inner();
            assert_eq!(matched.changed, expected, "{filter:?}");
            assert_eq!(matched.by_state.values().sum::<u64>(), expected);
            let samples = u64::try_from(matched.sample.len()).expect("small");
            assert_eq!(samples, expected);
        }
    }
    assert_eq!(
        count(&server, all()).await,
        3,
        "a dry run changed something"
    );
}

#[tokio::test]
async fn selected_jobs_are_cancelled_put_back_and_deleted_in_bounded_calls() {
    let server = stocked().await;
    let marked = v1::ListRequest {
        tag: vec!["t".into()],
        ..v1::ListRequest::default()
    };
    // One job a call: the cursor goes on where the answer ended.
    let mut request = v1::MatchingRequest {
        limit: 1,
        reason: "not needed".into(),
        ..matching(marked.clone(), false)
    };
    let mut changed = 0;
    loop {
        let reply = server.jobs().cancel_matching(request.clone()).await;
        let matched = reply.expect("cancelled").into_inner();
        assert!(matched.changed <= 1);
        changed += matched.changed;
        if matched.next.is_empty() {
            break;
        }
        let filter = request.filter.as_mut().expect("set above");
        filter.cursor = matched.next;
    }
    assert_eq!(changed, 2);
    let again = server
        .jobs()
        .cancel_matching(matching(marked.clone(), false))
        .await;
    let again = again.expect("looked at").into_inner();
    assert_eq!((again.changed, again.skipped), (0, 2), "they have ended");
    assert_eq!(again.skipped_jobs.len(), 2);
    let request = v1::MatchingRequest {
        queue: Some("other".into()),
        ..matching(marked.clone(), false)
    };
    let retried = server.jobs().retry_matching(request).await;
    assert_eq!(retried.expect("put back").into_inner().changed, 2);
    assert_eq!(count(&server, all()).await, 1);
    let deleted = server
        .jobs()
        .delete_matching(matching(marked.clone(), false))
        .await;
    assert_eq!(deleted.expect("deleted").into_inner().changed, 2);
    assert_eq!(count(&server, marked).await, 0);
}

#[tokio::test]
async fn a_bulk_call_without_a_clear_selection_is_refused() {
    let server = stocked().await;
    let mut jobs = server.jobs();
    let long = v1::ListRequest {
        kind: Some("x".repeat(256)),
        ..v1::ListRequest::default()
    };
    let cases = [
        (v1::MatchingRequest::default(), "filter"),
        (matching(v1::ListRequest::default(), false), "filter"),
        (matching(long, false), "kind"),
        (
            v1::MatchingRequest {
                limit: 100_001,
                ..matching(all(), false)
            },
            "limit",
        ),
    ];
    for (request, field) in cases {
        for (code, message) in [
            refused(jobs.cancel_matching(request.clone()).await),
            refused(jobs.retry_matching(request.clone()).await),
            refused(jobs.delete_matching(request.clone()).await),
        ] {
            assert!(message.contains(field), "{code}: {message}");
        }
    }
    assert_eq!(count(&server, all()).await, 3);
}

fn nightly() -> v1::Schedule {
    v1::Schedule {
        id: "nightly".into(),
        kind: "a".into(),
        spec: Some(v1::schedule::Spec::Cron(v1::Cron {
            expression: "0 3 * * *".into(),
            time_zone: "Europe/Rome".into(),
        })),
        ..v1::Schedule::default()
    }
}

fn put(schedule: v1::Schedule) -> v1::PutScheduleRequest {
    v1::PutScheduleRequest {
        schedule: Some(schedule),
        ..v1::PutScheduleRequest::default()
    }
}

fn named(id: &str) -> v1::ScheduleRequest {
    v1::ScheduleRequest {
        id: id.into(),
        ..v1::ScheduleRequest::default()
    }
}

#[tokio::test]
async fn a_schedule_is_made_shown_paused_run_and_removed() {
    let server = Server::start().await;
    let mut schedules = server.schedules();
    let made = schedules.put(put(nightly())).await.expect("made");
    assert!(made.into_inner().next_at_us.is_some());
    let list = schedules.list(v1::SchedulesRequest::default()).await;
    assert_eq!(list.expect("listed").into_inner().schedules.len(), 1);
    let next = v1::NextTimesRequest {
        id: "nightly".into(),
        count: 3,
        ..v1::NextTimesRequest::default()
    };
    let next = schedules.next(next).await.expect("foreseen").into_inner();
    assert_eq!(next.at_us.len(), 3);
    assert!(next.at_us.is_sorted());
    let paused = v1::Schedule {
        paused: true,
        ..nightly()
    };
    let paused = schedules.put(put(paused)).await.expect("paused");
    assert_eq!(paused.into_inner().next_at_us, None);
    // A paused one is run by hand all the same.
    let run = schedules.run(named("nightly")).await.expect("run");
    let run = run.into_inner();
    assert_eq!(run.runs, 1);
    assert!(!run.last_job.is_empty());
    let of_it = v1::ListRequest {
        schedule: Some("nightly".into()),
        ..v1::ListRequest::default()
    };
    assert_eq!(count(&server, of_it.clone()).await, 1);
    schedules.remove(named("nightly")).await.expect("removed");
    assert_eq!(count(&server, of_it).await, 1, "its jobs stay");
    for (code, message) in [
        refused(schedules.get(named("nightly")).await),
        refused(schedules.run(named("nightly")).await),
        refused(schedules.remove(named("nightly")).await),
    ] {
        assert_eq!(code, "schedule_not_found", "{message}");
    }
}

#[tokio::test]
async fn a_schedule_that_cannot_be_is_refused_and_not_made() {
    let server = Server::start().await;
    let mut schedules = server.schedules();
    let cron = |expression: &str, zone: &str| {
        Some(v1::schedule::Spec::Cron(v1::Cron {
            expression: expression.into(),
            time_zone: zone.into(),
        }))
    };
    let never = Some(v1::schedule::Spec::Interval(v1::Interval {
        every_ms: 0,
        first_at_us: None,
    }));
    let cases = [
        (
            v1::Schedule {
                kind: String::new(),
                ..nightly()
            },
            "kind",
        ),
        (
            v1::Schedule {
                spec: None,
                ..nightly()
            },
            "give an interval",
        ),
        (
            v1::Schedule {
                spec: never,
                ..nightly()
            },
            "every_ms",
        ),
        (
            v1::Schedule {
                spec: cron("bad", ""),
                ..nightly()
            },
            "cron",
        ),
        (
            v1::Schedule {
                spec: cron("0 3 * * *", "Mars/X"),
                ..nightly()
            },
            "Mars/X",
        ),
        (
            v1::Schedule {
                id: String::new(),
                ..nightly()
            },
            "id",
        ),
        (
            v1::Schedule {
                queue: "x".repeat(256),
                ..nightly()
            },
            "queue",
        ),
    ];
    for (schedule, words) in cases {
        let (code, message) = refused(schedules.put(put(schedule)).await);
        assert!(message.contains(words), "{code}: {message}");
    }
    refused(schedules.put(v1::PutScheduleRequest::default()).await);
    let list = schedules.list(v1::SchedulesRequest::default()).await;
    assert!(list.expect("listed").into_inner().schedules.is_empty());
}

fn operation_named(operation: &str) -> v1::OperationRequest {
    v1::OperationRequest {
        operation: operation.into(),
        ..v1::OperationRequest::default()
    }
}

fn start(action: v1::OperationAction) -> v1::StartOperationRequest {
    v1::StartOperationRequest {
        action: i32::from(action),
        filter: Some(all()),
        ..v1::StartOperationRequest::default()
    }
}

#[tokio::test]
async fn an_operation_is_started_shown_listed_and_stopped() {
    let server = stocked().await;
    let mut operations = server.operations();
    let request = v1::StartOperationRequest {
        reason: "too many".into(),
        at_most: 2,
        ..start(v1::OperationAction::Cancel)
    };
    let begun = operations
        .start(request)
        .await
        .expect("accepted")
        .into_inner();
    assert_eq!(
        (begun.operation.as_str(), begun.shard.as_str()),
        ("op-1", "1")
    );
    assert_eq!(begun.state(), v1::OperationState::Running);
    assert_eq!((begun.at_most, begun.reason.as_str()), (2, "too many"));
    let filter = begun.filter.clone().expect("a filter");
    assert_eq!(filter.queue.as_deref(), Some("stock"));
    let shown = operations
        .get(operation_named("op-1"))
        .await
        .expect("kept")
        .into_inner();
    assert_eq!(shown, begun);
    let list = operations.list(v1::OperationsRequest::default()).await;
    assert_eq!(list.expect("accepted").into_inner().operations, [begun]);
    let stopped = operations
        .stop(operation_named("op-1"))
        .await
        .expect("it runs")
        .into_inner();
    assert_eq!(stopped.state(), v1::OperationState::Stopped);
    assert!(stopped.ended_at_us.is_some());
}

#[tokio::test]
async fn an_operation_shows_every_condition_of_its_filter() {
    let server = stocked().await;
    let filter = v1::ListRequest {
        queue: Some("stock".into()),
        state: vec![v1::JobState::Ready.into(), v1::JobState::Failed.into()],
        kind: Some("a".into()),
        kind_prefix: Some("a".into()),
        id_prefix: Some("i".into()),
        tag: vec!["t".into(), "u".into()],
        label: vec![label("1"), other_label()],
        graph: Some("g".into()),
        schedule: Some("s".into()),
        group: Some("x".into()),
        failure_text: Some("no".into()),
        worker: Some("w".into()),
        unique_key: Some("one".into()),
        tracked: Some(true),
        attempt_min: Some(2),
        created_from_us: Some(1),
        created_before_us: Some(2),
        finished_from_us: Some(3),
        finished_before_us: Some(4),
        ..v1::ListRequest::default()
    };
    let request = v1::StartOperationRequest {
        filter: Some(filter.clone()),
        ..start(v1::OperationAction::Cancel)
    };
    let begun = server.operations().start(request).await.expect("accepted");
    assert_eq!(begun.into_inner().filter, Some(filter));
}

#[tokio::test]
async fn an_operation_without_a_meaning_is_refused() {
    let server = stocked().await;
    let mut operations = server.operations();
    let without_filter = v1::StartOperationRequest {
        filter: None,
        ..start(v1::OperationAction::Cancel)
    };
    let with_queue = v1::StartOperationRequest {
        queue: Some("other".into()),
        ..start(v1::OperationAction::Cancel)
    };
    for (request, code) in [
        (without_filter, "invalid_value"),
        (with_queue, "invalid_value"),
        (start(v1::OperationAction::Unspecified), "missing_field"),
        (start(v1::OperationAction::Alter), "missing_field"),
    ] {
        assert_eq!(refused(operations.start(request).await).0, code);
    }
    assert_eq!(
        refused(operations.get(operation_named("op-9")).await).0,
        "operation_not_found"
    );
    assert_eq!(
        refused(operations.get(operation_named("seven")).await).0,
        "invalid_value"
    );
}

#[tokio::test]
async fn the_cancellation_of_a_job_can_be_tried_first() {
    let server = stocked().await;
    let list = server
        .jobs()
        .list(all())
        .await
        .expect("accepted")
        .into_inner();
    let request = v1::GetRequest {
        job: list.jobs[0].id.clone(),
        ..v1::GetRequest::default()
    };
    let effects = server.jobs().cancel_effects(request).await;
    let effects = effects.expect("it is there").into_inner();
    assert_eq!(effects.state(), v1::JobState::Ready);
    assert_eq!(effects.failed, Some(v1::AffectedJobs::default()));
    assert!(effects.complete);
}
