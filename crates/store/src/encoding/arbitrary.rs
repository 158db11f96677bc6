//! Any record, for the property tests.

use std::fmt::Debug;
use std::time::Duration;

use ganger_types::change::UniqueRecord;
use ganger_types::job::{AttemptEnd, LastReport, ReportKind};
use ganger_types::{
    Backoff, Bytes, CatchUp, Clock, Day, Due, DueOrder, Elapsed, Epoch, Failure, FailurePolicy,
    Finished, Graph, Group, HistoryEntry, IdTag, IdempotencyKey, IdempotencyRecord, JobId, JobKey,
    JobName, JobRecord, JobState, Keep, Kind, LabelKey, LabelValue, LeaseRecord, LeaseToken, Meta,
    NameError, Namespace, NamespaceRecord, NamespaceSettings, Outcome, Overlap, Position, Priority,
    Progress, Queue, QueueRecord, QueueSettings, RequestId, Retention, RetryPolicy, Sample,
    ScheduleId, ScheduleRecord, ScheduleSpec, StatisticsRecord, SubmissionAnswer, SubmittedJobs,
    SubmittedRun, Tag, Timestamp, UniqueKey, What, Worker,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub(super) fn name<T: Debug>(
    make: fn(Vec<u8>) -> Result<T, NameError>,
) -> impl Strategy<Value = T> {
    vec(any::<u8>(), 0..20).prop_map(move |bytes| make(bytes).expect("short"))
}

pub(super) fn wall() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp)
}

fn elapsed() -> impl Strategy<Value = Elapsed> {
    any::<u64>().prop_map(Elapsed)
}

pub(super) fn duration() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n))
}

pub(super) fn key() -> impl Strategy<Value = JobKey> {
    prop_oneof![0..1_000_u64, any::<u64>()].prop_map(JobKey)
}

pub(super) fn text() -> impl Strategy<Value = String> {
    ".{0,12}"
}

pub(super) fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn token() -> impl Strategy<Value = LeaseToken> {
    (any::<u64>(), any::<u64>(), any::<[u8; 12]>()).prop_map(|(epoch, counter, secret)| {
        LeaseToken {
            epoch: Epoch(epoch),
            counter,
            secret,
        }
    })
}

pub(super) fn retry() -> impl Strategy<Value = RetryPolicy> {
    let backoff = prop_oneof![
        duration().prop_map(Backoff::Fixed),
        vec(duration(), 1..4).prop_map(Backoff::List),
        (duration(), duration()).prop_map(|(base, cap)| Backoff::Exponential { base, cap }),
    ];
    let numbers = (any::<u32>(), any::<u8>(), option::of(any::<u32>()));
    let any = (numbers, backoff).prop_map(
        |((retries_max, jitter_percent, lease_expirations_max), backoff)| RetryPolicy {
            retries_max,
            backoff,
            jitter_percent,
            lease_expirations_max,
        },
    );
    prop_oneof![Just(RetryPolicy::default()), any]
}

pub(super) fn policy() -> impl Strategy<Value = FailurePolicy> {
    prop::sample::select(vec![
        FailurePolicy::Fail,
        FailurePolicy::Wait,
        FailurePolicy::Ignore,
    ])
}

pub(super) fn outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec![
        Outcome::Succeeded,
        Outcome::Failed,
        Outcome::Cancelled,
    ])
}

fn failure() -> impl Strategy<Value = Failure> {
    (
        name(Group::new),
        text(),
        wall(),
        option::of(name(Worker::new)),
    )
        .prop_map(|(group, message, at, worker)| Failure {
            group,
            message,
            at,
            worker,
        })
}

fn attempt_end() -> impl Strategy<Value = AttemptEnd> {
    prop_oneof![
        Just(AttemptEnd::Succeeded),
        (name(Group::new), text(), any::<bool>()).prop_map(|(group, message, permanent)| {
            AttemptEnd::Failed {
                group,
                message,
                permanent,
            }
        }),
        Just(AttemptEnd::Expired),
        Just(AttemptEnd::TimedOut),
        (any::<bool>(), text())
            .prop_map(|(counted, reason)| AttemptEnd::Released { counted, reason }),
        Just(AttemptEnd::Cancelled),
    ]
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        name(Queue::new).prop_map(|queue| What::Enqueued { queue }),
        (any::<u32>(), name(Worker::new), wall(), attempt_end()).prop_map(
            |(number, worker, leased_at, end)| What::Attempt {
                number,
                worker,
                leased_at,
                end
            }
        ),
        name(Group::new).prop_map(|group| What::Failed { group }),
        text().prop_map(|reason| What::Cancelled { reason }),
        Just(What::Retried),
        Just(What::TimedOutByHand),
        (text(), text()).prop_map(|(text, data)| What::Note { text, data }),
    ]
}

fn finished() -> impl Strategy<Value = Finished> {
    let keep = option::of(option::of(wall()));
    (
        outcome(),
        wall(),
        any::<u64>(),
        option::of(any::<u64>()),
        keep,
    )
        .prop_map(|(outcome, at, order, result_bytes, keep_until)| Finished {
            outcome,
            at,
            order,
            result_bytes,
            keep_until,
        })
}

fn due() -> impl Strategy<Value = Due> {
    prop_oneof![elapsed().prop_map(Due::Elapsed), wall().prop_map(Due::Wall)]
}

pub(super) fn labels() -> impl Strategy<Value = Vec<(LabelKey, LabelValue)>> {
    vec((name(LabelKey::new), name(LabelValue::new)), 0..3)
}

fn report() -> impl Strategy<Value = LastReport> {
    let kinds = vec![ReportKind::Complete, ReportKind::Fail, ReportKind::Release];
    (token(), prop::sample::select(kinds)).prop_map(|(token, kind)| LastReport { token, kind })
}

/// A record of few fields, to be varied field by field.
fn plain_job() -> impl Strategy<Value = JobRecord> {
    let names = (name(Namespace::new), name(Queue::new), name(Kind::new));
    let id = (
        key(),
        any::<u32>(),
        any::<bool>(),
        name(JobId::new),
        any::<bool>(),
    );
    let state = prop::sample::select(JobState::ALL.to_vec());
    (
        names,
        id,
        state,
        any::<i64>(),
        wall(),
        elapsed(),
        any::<[u64; 2]>(),
    )
        .prop_map(
            |(
                (namespace, queue, kind),
                (key, tag, given, id, made),
                state,
                priority,
                at,
                ready,
                n,
            )| {
                let id_tag = IdTag(tag);
                let id = if made && key.0 < 1 << 40 {
                    JobId::made(key, id_tag)
                } else {
                    id
                };
                JobRecord {
                    key,
                    id,
                    id_tag,
                    id_is_given: given,
                    namespace,
                    queue,
                    kind,
                    state,
                    priority: Priority::from_millionths(priority),
                    created_at: at,
                    ready_at: ready,
                    name: None,
                    is_ahead: false,
                    due: None,
                    deadline: None,
                    timeout: None,
                    retry: RetryPolicy::default(),
                    attempt: 0,
                    attempts_counted: 0,
                    releases: 0,
                    lease_expirations: 0,
                    payload_bytes: n[0],
                    inputs: 0,
                    fingerprint: n[1],
                    failure: None,
                    graph: None,
                    tags: Vec::new(),
                    labels: Vec::new(),
                    tracked: false,
                    unique: None,
                    schedule: None,
                    keep_succeeded: None,
                    keep_failed: None,
                    progress: None,
                    last_report: None,
                    history: Vec::new(),
                    history_dropped: 0,
                    finished: None,
                }
            },
        )
}

pub(super) fn job() -> impl Strategy<Value = JobRecord> {
    let times = (
        option::of(due()),
        option::of(wall()),
        option::of(duration()),
        retry(),
    );
    let numbers = (any::<[u32; 6]>(), any::<[bool; 2]>(), option::of(failure()));
    let words = (
        option::of(name(Graph::new)),
        vec(name(Tag::new), 0..3),
        labels(),
    );
    let keys = (
        option::of(name(UniqueKey::new)),
        option::of(name(ScheduleId::new)),
        option::of(name(JobName::new)),
    );
    let keep = || option::of(option::of(duration()));
    let progress = (0..=1_000_000_u32, text()).prop_map(|(millionths, message)| Progress {
        millionths,
        message,
    });
    let entry = (wall(), what()).prop_map(|(at, what)| HistoryEntry { at, what });
    let run = (option::of(progress), option::of(report()), vec(entry, 0..5));
    (
        plain_job(),
        times,
        numbers,
        words,
        keys,
        (keep(), keep()),
        run,
        option::of(finished()),
    )
        .prop_map(
            |(job, times, numbers, words, keys, keep, run, finished)| JobRecord {
                due: times.0,
                deadline: times.1,
                timeout: times.2,
                retry: times.3,
                attempt: numbers.0[0],
                attempts_counted: numbers.0[1],
                releases: numbers.0[2],
                lease_expirations: numbers.0[3],
                inputs: numbers.0[4],
                history_dropped: numbers.0[5],
                is_ahead: numbers.1[0],
                tracked: numbers.1[1],
                failure: numbers.2,
                graph: words.0,
                tags: words.1,
                labels: words.2,
                unique: keys.0,
                schedule: keys.1,
                name: keys.2,
                keep_succeeded: keep.0,
                keep_failed: keep.1,
                progress: run.0,
                last_report: run.1,
                history: run.2,
                finished,
                ..job
            },
        )
}

pub(super) fn lease() -> impl Strategy<Value = LeaseRecord> {
    let times = (
        elapsed(),
        option::of(elapsed()),
        elapsed(),
        elapsed(),
        wall(),
        duration(),
    );
    let who = (name(Worker::new), token(), option::of(name(RequestId::new)));
    (key(), any::<[u32; 2]>(), times, who, any::<bool>()).prop_map(
        |(key, numbers, times, who, is_warned)| LeaseRecord {
            key,
            attempt: numbers[0],
            attempts_counted: numbers[1],
            worker: who.0,
            token: who.1,
            granted_at: times.4,
            lease_for: times.5,
            expires_at: times.0,
            timeout_at: times.1,
            ready_at: times.2,
            granted_elapsed: times.3,
            request: who.2,
            is_warned,
        },
    )
}

fn keep() -> impl Strategy<Value = Keep> {
    (option::of(duration()), option::of(any::<u64>())).prop_map(|(age, count)| Keep { age, count })
}

fn retention() -> impl Strategy<Value = Retention> {
    (keep(), keep(), keep()).prop_map(|(succeeded, failed, cancelled)| Retention {
        succeeded,
        failed,
        cancelled,
    })
}

pub(super) fn queue() -> impl Strategy<Value = QueueRecord> {
    let limits = (
        any::<bool>(),
        option::of(any::<u32>()),
        option::of(any::<u64>()),
    );
    let rules = (option::of(retry()), option::of(retention()), any::<bool>());
    let times = (option::of(duration()), option::of(duration()));
    let settings = (limits, rules, times).prop_map(|(limits, rules, times)| QueueSettings {
        paused: limits.0,
        running_max: limits.1,
        live_max: limits.2,
        lease_for: times.0,
        grace_for: times.1,
        retry: rules.0,
        retention: rules.1,
        due_order: if rules.2 {
            DueOrder::Ahead
        } else {
            DueOrder::Behind
        },
    });
    let names = (name(Namespace::new), name(Queue::new));
    (names, wall(), any::<bool>(), settings, any::<[u64; 5]>()).prop_map(
        |((namespace, queue), created_at, known, settings, counts)| QueueRecord {
            namespace,
            queue,
            created_at,
            known,
            settings,
            succeeded: counts[0],
            failed: counts[1],
            cancelled: counts[2],
            enqueued_total: counts[3],
            finished_total: counts[4],
        },
    )
}

pub(super) fn namespace() -> impl Strategy<Value = NamespaceRecord> {
    let rules = (any::<bool>(), duration(), retry(), retention());
    let limits = (any::<[u32; 2]>(), any::<u64>(), option::of(any::<u64>()));
    (name(Namespace::new), rules, limits).prop_map(|(namespace, rules, limits)| NamespaceRecord {
        namespace,
        settings: NamespaceSettings {
            clock: if rules.0 {
                Clock::Caller
            } else {
                Clock::Server
            },
            lease_for: rules.1,
            retry: rules.2,
            retention: rules.3,
            history_max: limits.0[0],
            lease_expirations_in_a_row_max: limits.0[1],
            payload_bytes_max: limits.1,
            live_max: limits.2,
            queues_max: limits.2.unwrap_or(7),
        },
    })
}

pub(super) fn schedule() -> impl Strategy<Value = ScheduleRecord> {
    let spec = prop_oneof![
        (duration(), wall())
            .prop_map(|(every, first_at)| ScheduleSpec::Interval { every, first_at }),
        (text(), text()).prop_map(|(expression, time_zone)| ScheduleSpec::Cron {
            expression,
            time_zone
        }),
    ];
    let catch_up = prop_oneof![
        Just(CatchUp::None),
        Just(CatchUp::Last),
        any::<u32>().prop_map(|max| CatchUp::All { max }),
    ];
    let overlap = prop::sample::select(vec![Overlap::Allow, Overlap::Skip, Overlap::Replace]);
    let names = (
        name(Namespace::new),
        name(ScheduleId::new),
        name(Queue::new),
        name(Kind::new),
    );
    let body = (
        bytes(),
        any::<i64>(),
        option::of(retry()),
        option::of(duration()),
    );
    let words = (
        vec(name(Tag::new), 0..3),
        labels(),
        option::of(name(JobId::new)),
    );
    let times = (wall(), option::of(wall()), any::<u64>(), any::<bool>());
    (names, (spec, catch_up, overlap), body, words, times).prop_map(
        |(names, rules, body, words, times)| ScheduleRecord {
            namespace: names.0,
            id: names.1,
            spec: rules.0,
            catch_up: rules.1,
            overlap: rules.2,
            paused: times.3,
            queue: names.2,
            kind: names.3,
            payload: body.0,
            priority: Priority::from_millionths(body.1),
            retry: body.2,
            timeout: body.3,
            tags: words.0,
            labels: words.1,
            created_at: times.0,
            next_at: times.1,
            runs: times.2,
            last_job: words.2,
        },
    )
}

fn sample() -> impl Strategy<Value = Sample> {
    let float = || prop::num::f64::NORMAL;
    (
        any::<u64>(),
        float(),
        float(),
        vec((any::<u16>(), any::<u64>()), 0..5),
    )
        .prop_map(|(count, mean, vk, histogram)| Sample {
            count,
            mean,
            vk,
            histogram,
        })
}

pub(super) fn statistics() -> impl Strategy<Value = StatisticsRecord> {
    let names = (name(Namespace::new), name(Queue::new), any::<u32>());
    (names, any::<i64>(), any::<[u64; 2]>(), sample(), sample()).prop_map(
        |((namespace, queue, day), failed, counts, waiting, running)| StatisticsRecord {
            namespace,
            queue,
            day: Day(day),
            failed,
            failures: counts[0],
            retries: counts[1],
            waiting,
            running,
        },
    )
}

pub(super) fn unique() -> impl Strategy<Value = UniqueRecord> {
    (
        name(Namespace::new),
        name(UniqueKey::new),
        key(),
        name(JobId::new),
        option::of(wall()),
    )
        .prop_map(|(namespace, key, job, id, until)| UniqueRecord {
            namespace,
            key,
            job,
            id,
            until,
        })
}

fn submitted_run() -> impl Strategy<Value = SubmittedRun> {
    let made = (0..1_u64 << 39, 1..=u32::MAX, 0..1_u32 << 20).prop_map(|(first, count, tag)| {
        SubmittedRun::Made {
            first: JobKey(first),
            count,
            tag: IdTag(tag),
        }
    });
    let given = (0..u64::MAX >> 1, 1..=u32::MAX).prop_map(|(first, count)| SubmittedRun::Given {
        first: JobKey(first),
        count,
    });
    let other = (key(), name(JobId::new)).prop_map(|(key, id)| SubmittedRun::Other(key, id));
    prop_oneof![made, given, other]
}

pub(super) fn idempotency_record() -> impl Strategy<Value = IdempotencyRecord> {
    let names = (
        name(Namespace::new),
        name(IdempotencyKey::new),
        option::of(name(Graph::new)),
    );
    (names, any::<u64>(), vec(submitted_run(), 0..4), wall()).prop_map(
        |((namespace, key, graph), fingerprint, runs, until)| IdempotencyRecord {
            namespace,
            key,
            answer: SubmissionAnswer {
                fingerprint,
                jobs: SubmittedJobs::from_runs(runs),
                graph,
                until,
            },
        },
    )
}

pub(super) fn meta() -> impl Strategy<Value = Meta> {
    any::<[u64; 5]>().prop_map(|n| Meta {
        next_key: JobKey(n[0]),
        next_order: n[1],
        next_event: Position(n[2]),
        elapsed: Elapsed(n[3]),
        wall: Timestamp(n[4]),
    })
}
