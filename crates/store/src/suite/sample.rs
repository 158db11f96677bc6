//! Sample records: plain ones, and some with every field set.

use std::time::Duration;

use ganger_types::change::UniqueRecord;
use ganger_types::history::AttemptEnd;
use ganger_types::job::{LastReport, ReportKind};
use ganger_types::operation::{JobFilter, LeftOutJob};
use ganger_types::{
    AuditRecord, Backoff, Bytes, CatchUp, Clock, Day, Due, DueOrder, Elapsed, Epoch, Failure,
    Finished, Graph, Group, HistoryEntry, IdTag, IdempotencyKey, IdempotencyRecord, JobId, JobKey,
    JobRecord, JobState, Keep, Kind, LabelKey, LabelValue, LeaseRecord, LeaseToken, Namespace,
    NamespaceRecord, NamespaceSettings, OperationAction, OperationNumber, OperationRecord,
    OperationState, Outcome, Overlap, PageCursor, Priority, Progress, Queue, QueueRecord,
    QueueSettings, RequestId, Retention, RetryPolicy, Sample, ScheduleId, ScheduleRecord,
    ScheduleSpec, StatisticsRecord, SubmissionAnswer, SubmittedJobs, SubmittedRun, Tag, Timestamp,
    UniqueKey, What, Worker,
};

/// A moment of the year 2026.
pub const MORNING: Timestamp = Timestamp(1_790_000_000_000_000);

/// The day of [`MORNING`].
pub const TODAY: Day = Day(20_717);

/// A job as it is enqueued.
pub fn job(key: u64) -> JobRecord {
    let (key, tag) = (JobKey(key), IdTag(7));
    let queue = Queue::default();
    let enqueued = HistoryEntry {
        at: MORNING,
        what: What::Enqueued {
            queue: queue.clone(),
        },
    };
    JobRecord {
        id_tag: tag,
        created_at: Timestamp(MORNING.0 + key.0 * 1_000),
        ready_at: Elapsed(key.0),
        payload_bytes: 7,
        history: vec![enqueued],
        ..JobRecord::new(
            key,
            JobId::made(key, tag),
            Namespace::default(),
            queue,
            Kind::from_static("render"),
        )
    }
}

/// A job with every field set.
pub fn full_job(key: u64) -> JobRecord {
    JobRecord {
        id: JobId::new([0, 255, 10]).expect("short"),
        id_is_given: true,
        name: None,
        queue: Queue::from_static("images"),
        state: JobState::Scheduled,
        priority: Priority::from_millionths(-1_500_000),
        is_ahead: true,
        due: Some(Due::Wall(Timestamp(MORNING.0 + 5))),
        deadline: Some(Timestamp(MORNING.0 + 9)),
        timeout: Some(Duration::from_millis(1_500)),
        retry: RetryPolicy {
            retries_max: 9,
            backoff: Backoff::List(vec![Duration::from_secs(1), Duration::from_nanos(7)]),
            jitter_percent: 20,
            // Tests compare stores of older formats, which do not have this field, with this sample.
            lease_expirations_max: None,
        },
        attempt: 3,
        attempts_counted: 2,
        releases: 1,
        lease_expirations: 1,
        inputs: 2,
        fingerprint: u64::MAX,
        failure: Some(failure("io", "connection reset by peer")),
        graph: Some(Graph::from_static("g")),
        tags: vec![Tag::from_static("red"), Tag::from_static("")],
        labels: vec![(
            LabelKey::from_static("tenant"),
            LabelValue::from_static("a"),
        )],
        tracked: true,
        unique: Some(UniqueKey::from_static("once")),
        schedule: Some(ScheduleId::from_static("nightly")),
        keep_succeeded: Some(None),
        keep_failed: Some(Some(Duration::from_secs(5))),
        progress: Some(Progress {
            millionths: 400_000,
            message: "half".to_owned(),
        }),
        last_report: Some(LastReport {
            token: token(3),
            kind: ReportKind::Release,
        }),
        history: history(),
        history_dropped: 4,
        ..job(key)
    }
}

fn history() -> Vec<HistoryEntry> {
    let attempt = |number, end| What::Attempt {
        number,
        worker: Worker::from_static("w1"),
        leased_at: MORNING,
        end,
    };
    let failed = AttemptEnd::Failed {
        group: Group::from_static("io"),
        message: "reset".to_owned(),
        permanent: true,
    };
    let released = AttemptEnd::Released {
        counted: true,
        reason: "going home".to_owned(),
    };
    let lines = vec![
        What::Enqueued {
            queue: Queue::from_static("images"),
        },
        attempt(1, AttemptEnd::Succeeded),
        attempt(2, failed),
        attempt(3, AttemptEnd::Expired),
        attempt(4, AttemptEnd::TimedOut),
        attempt(5, released),
        attempt(6, AttemptEnd::Cancelled),
        What::Failed {
            group: Group::from_static("deadline"),
        },
        What::Cancelled {
            reason: "not wanted".to_owned(),
        },
        What::Retried,
        What::TimedOutByHand,
        What::Note {
            text: "look".to_owned(),
            data: "{}".to_owned(),
        },
    ];
    let at = |place: u64| Timestamp(MORNING.0 - 5 + place);
    (0..)
        .zip(lines)
        .map(|(place, what)| HistoryEntry {
            at: at(place),
            what,
        })
        .collect()
}

/// A failure in this group.
pub fn failure(group: &'static str, message: &str) -> Failure {
    Failure {
        group: Group::from_static(group),
        message: message.to_owned(),
        at: MORNING,
        worker: Some(Worker::from_static("w1")),
    }
}

/// The job after it ended at this position, `after` microseconds after [`MORNING`].
pub fn ended(mut job: JobRecord, outcome: Outcome, order: u64, after: u64) -> JobRecord {
    job.state = outcome.state();
    job.finished = Some(Finished {
        outcome,
        at: Timestamp(MORNING.0 + after),
        order,
        result_bytes: None,
        keep_until: None,
    });
    job
}

/// Returns a sample token with this counter.
pub fn token(counter: u64) -> LeaseToken {
    LeaseToken {
        epoch: Epoch(1),
        counter,
        secret: [9; 12],
    }
}

/// A lease of the job `key`.
pub fn lease(key: u64, worker: &'static str) -> LeaseRecord {
    LeaseRecord {
        key: JobKey(key),
        attempt: 4,
        attempts_counted: 3,
        worker: Worker::from_static(worker),
        token: token(key),
        granted_at: MORNING,
        lease_for: Duration::from_secs(60),
        expires_at: Elapsed(70_000_000),
        timeout_at: Some(Elapsed(90_000_000)),
        ready_at: Elapsed(1),
        granted_elapsed: Elapsed(10_000_000),
        request: Some(RequestId::from_static("r")),
        is_warned: true,
    }
}

/// A queue with every setting.
pub fn queue(name: &'static str) -> QueueRecord {
    QueueRecord {
        namespace: Namespace::default(),
        queue: Queue::from_static(name),
        created_at: MORNING,
        known: true,
        settings: QueueSettings {
            paused: true,
            running_max: Some(3),
            live_max: Some(1_000_000),
            lease_for: Some(Duration::from_secs(7)),
            grace_for: Some(Duration::from_secs(2)),
            retry: Some(RetryPolicy {
                backoff: Backoff::Fixed(Duration::from_secs(3)),
                ..RetryPolicy::default()
            }),
            retention: Some(Retention {
                failed: Keep {
                    age: None,
                    count: Some(5),
                },
                ..Retention::default()
            }),
            due_order: DueOrder::Ahead,
            alert_age: Some(Duration::from_secs(90)),
        },
        succeeded: 0,
        failed: 0,
        cancelled: 0,
        enqueued_total: 44,
        finished_total: 40,
    }
}

/// Returns a sample record of a namespace.
pub fn namespace(name: &'static str) -> NamespaceRecord {
    NamespaceRecord {
        namespace: Namespace::from_static(name),
        settings: NamespaceSettings {
            clock: Clock::Caller,
            live_max: Some(9),
            queues_max: ganger_types::limits::QUEUES_MAX,
            ..NamespaceSettings::default()
        },
    }
}

/// Returns a sample record of a schedule.
pub fn schedule(id: &'static str) -> ScheduleRecord {
    ScheduleRecord {
        namespace: Namespace::default(),
        id: ScheduleId::from_static(id),
        spec: ScheduleSpec::Cron {
            expression: "0 3 * * *".to_owned(),
            time_zone: "Europe/Rome".to_owned(),
        },
        catch_up: CatchUp::All { max: 5 },
        overlap: Overlap::Replace,
        paused: false,
        queue: Queue::default(),
        kind: Kind::from_static("report"),
        payload: Bytes::from_static(b"{}"),
        priority: Priority::whole(3).expect("small"),
        retry: Some(RetryPolicy::default()),
        timeout: Some(Duration::from_secs(1)),
        tags: vec![Tag::from_static("t")],
        labels: vec![(LabelKey::from_static("k"), LabelValue::from_static("v"))],
        created_at: MORNING,
        next_at: Some(MORNING),
        runs: 12,
        last_job: Some(JobId::made(JobKey(1), IdTag(2))),
    }
}

/// Returns a sample record of a unique key.
pub fn unique(key: &'static str) -> UniqueRecord {
    UniqueRecord {
        namespace: Namespace::default(),
        key: UniqueKey::from_static(key),
        job: JobKey(1),
        id: JobId::made(JobKey(1), IdTag(7)),
        until: Some(MORNING),
    }
}

/// Returns a sample record of an idempotency key.
pub fn idempotency_record(key: &'static str) -> IdempotencyRecord {
    IdempotencyRecord {
        namespace: Namespace::default(),
        key: IdempotencyKey::from_static(key),
        answer: SubmissionAnswer {
            fingerprint: 99,
            jobs: SubmittedJobs::from_runs(vec![
                SubmittedRun::Made {
                    first: JobKey(1),
                    count: 3,
                    tag: IdTag(7),
                },
                SubmittedRun::Given {
                    first: JobKey(4),
                    count: 2,
                },
                SubmittedRun::Other(JobKey(2), JobId::new("other").expect("short")),
            ]),
            graph: Some(Graph::from_static("g")),
            until: MORNING,
        },
    }
}

/// Returns sample statistics of a day.
pub fn statistics(day: Day) -> StatisticsRecord {
    let sample = Sample {
        count: 3,
        mean: 1.5,
        vk: 0.25,
        histogram: vec![(0, 1), (147, u64::MAX)],
    };
    StatisticsRecord {
        namespace: Namespace::default(),
        queue: Queue::default(),
        day,
        failed: -1,
        failures: 2,
        retries: 3,
        waiting: sample,
        running: Sample::default(),
    }
}

/// Returns a sample operation with every field set.
pub fn operation(number: u64) -> OperationRecord {
    OperationRecord {
        number: OperationNumber(number),
        namespace: Namespace::default(),
        action: OperationAction::Retry {
            queue: Some(Queue::from_static("other")),
        },
        filter: JobFilter {
            queue: Some(Queue::default()),
            states: JobState::Failed.into(),
            labels: vec![(LabelKey::from_static("k"), LabelValue::from_static("v"))],
            attempt_min: Some(2),
            created_before: Some(MORNING),
            ..JobFilter::default()
        },
        end: JobKey(90),
        at_most: Some(1_300),
        spread_over: Some(Duration::from_secs(600)),
        reason: "the network is back".to_owned(),
        by: "token \"ci\"".to_owned(),
        began_at: MORNING,
        ended_at: Some(MORNING.after(Duration::from_secs(60))),
        state: OperationState::Stopped,
        message: "stopped by token \"ops\"".to_owned(),
        matching: Some(1_204),
        done: 100,
        skipped: 1,
        failed: 1,
        left_out: vec![LeftOutJob {
            job: JobId::made(JobKey(1), IdTag(2)),
            reason: "it is running".to_owned(),
        }],
        cursor: Some(PageCursor::Job(JobKey(42))),
    }
}

/// Returns a sample record of the audit log with every field set.
pub fn audit(number: u64) -> AuditRecord {
    AuditRecord {
        number,
        at: MORNING,
        who: "token \"ci\"".to_owned(),
        what: "cancelJob".to_owned(),
        on: Some("/api/v1/jobs/a/cancel".to_owned()),
        namespace: Some("default".to_owned()),
        from: Some("127.0.0.1:9".to_owned()),
        outcome: "refused".to_owned(),
        detail: Some("wrong_state".to_owned()),
        via: Some("ui".to_owned()),
    }
}
