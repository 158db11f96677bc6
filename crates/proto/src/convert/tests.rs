//! Types convert to messages and back without loss.

mod records;

use ganger_document::view::reason::{Explanation, JobAndState, Reason};
use ganger_types::command::TakeMode;
use ganger_types::limits::{PROGRESS_MESSAGE_BYTES_MAX, RETRIES_MAX, SCHEDULE_BACKLOG_MAX};
use ganger_types::{
    Backoff, CatchUp, Clock, DueOrder, FailurePolicy, JobState, Keep, NamespaceSettings, Overlap,
    Priority, Progress, QueueCounts, QueueSettings, Retention, RetryPolicy, Words,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::v1;

const AT: &str = "field";

fn any_of<T: Words + std::fmt::Debug>() -> impl Strategy<Value = T> {
    proptest::sample::select(T::WORDS).prop_map(|(_, value)| value)
}

/// Durations in messages are whole milliseconds.
fn duration() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_millis)
}

fn backoff() -> impl Strategy<Value = Backoff> {
    prop_oneof![
        duration().prop_map(Backoff::Fixed),
        vec(duration(), 1..5).prop_map(Backoff::List),
        (duration(), duration()).prop_map(|(base, cap)| Backoff::Exponential { base, cap }),
    ]
}

fn retry_policy() -> impl Strategy<Value = RetryPolicy> {
    (any::<u32>(), backoff(), any::<u8>(), any::<Option<u32>>()).prop_map(
        |(retries_max, backoff, jitter_percent, lease_expirations_max)| RetryPolicy {
            retries_max,
            backoff,
            jitter_percent,
            lease_expirations_max,
        },
    )
}

fn keep() -> impl Strategy<Value = Keep> {
    (option::of(duration()), option::of(any::<u64>())).prop_map(|(age, count)| Keep { age, count })
}

fn kept() -> impl Strategy<Value = Retention> {
    (keep(), keep(), keep()).prop_map(|(succeeded, failed, cancelled)| Retention {
        succeeded,
        failed,
        cancelled,
    })
}

fn queue_of() -> impl Strategy<Value = QueueSettings> {
    let limits = (any::<bool>(), any::<Option<u32>>(), any::<Option<u64>>());
    let time = || option::of(duration());
    let times = (time(), time(), time());
    let policies = (option::of(retry_policy()), option::of(kept()));
    (limits, times, policies, any_of::<DueOrder>()).prop_map(
        |(
            (paused, running_max, live_max),
            (lease_for, grace_for, alert_age),
            (retry, retention),
            due_order,
        )| {
            QueueSettings {
                paused,
                running_max,
                live_max,
                lease_for,
                grace_for,
                retry,
                retention,
                due_order,
                alert_age,
            }
        },
    )
}

fn namespace_of() -> impl Strategy<Value = NamespaceSettings> {
    let policies = (any_of::<Clock>(), duration(), retry_policy(), kept());
    let limits = any::<(u32, u64, u32, Option<u64>, u64)>();
    (policies, limits).prop_map(|((clock, lease_for, retry, retention), limits)| {
        NamespaceSettings {
            clock,
            lease_for,
            retry,
            retention,
            history_max: limits.0,
            payload_bytes_max: limits.1,
            lease_expirations_in_a_row_max: limits.2,
            live_max: limits.3,
            queues_max: limits.4,
        }
    })
}

proptest! {
    #[test]
    fn retry_policies_come_back(policy in retry_policy()) {
        prop_assert_eq!(retry(At::top(AT), &(&policy).into()), Ok(policy));
    }

    #[test]
    fn settings_of_queues_come_back(settings in queue_of()) {
        prop_assert_eq!(queue_settings(At::top(AT), (&settings).into()), Ok(settings));
    }

    #[test]
    fn settings_of_namespaces_come_back(settings in namespace_of()) {
        prop_assert_eq!(namespace_settings(At::top(AT), (&settings).into()), Ok(settings));
    }

    #[test]
    fn counts_come_back(numbers in any::<[u64; 7]>()) {
        let mut counts = QueueCounts::default();
        for (state, number) in JobState::ALL.into_iter().zip(numbers) {
            *counts.of_mut(state) = number;
        }
        prop_assert_eq!(queue_counts(counts.into()), counts);
    }

    #[test]
    fn progress_comes_back(millionths in any::<u32>(), message in "\\PC{0,40}") {
        let made = Progress { millionths, message };
        prop_assert_eq!(Progress::from(v1::Progress::from(made.clone())), made);
    }

    #[test]
    fn missed_runs_come_back(max in 1..=SCHEDULE_BACKLOG_MAX) {
        for rule in [CatchUp::None, CatchUp::Last, CatchUp::All { max }] {
            prop_assert_eq!(catch_up(At::top(AT), Some(rule.into())), Ok(rule));
        }
    }
}

#[test]
fn words_of_the_schema_come_back_and_unknown_numbers_are_refused() {
    let at = At::top(AT);
    for state in JobState::ALL {
        assert_eq!(
            job_state(at, v1::JobState::from(state).into()),
            Ok(Some(state))
        );
    }
    for (_, policy) in FailurePolicy::WORDS {
        assert_eq!(
            failure_policy(at, v1::FailurePolicy::from(*policy).into()),
            Ok(*policy)
        );
    }
    for (_, rule) in Overlap::WORDS {
        assert_eq!(overlap(at, v1::Overlap::from(*rule).into()), Ok(*rule));
    }
    for (_, mode) in TakeMode::WORDS {
        assert_eq!(take_mode(at, v1::TakeMode::from(*mode).into()), Ok(*mode));
    }
    assert_eq!(job_state(at, 0), Ok(None));
    for number in [-1, 8, 300] {
        let refused = job_state(at, number).expect_err("no such state");
        assert_eq!(
            refused.message,
            format!("field: {number} is not a job state")
        );
        assert!(failure_policy(at, number).is_err());
        assert!(overlap(at, number).is_err());
        assert!(take_mode(at, number).is_err());
    }
}

#[test]
fn errors_name_the_field_by_its_path() {
    let too_long = v1::Progress {
        millionths: 1_000_001,
        message: "x".repeat(PROGRESS_MESSAGE_BYTES_MAX + 1),
    };
    let top = At::top("reports").entry(3);
    let error = check_progress(top.field("progress"), &too_long).expect_err("more than all");
    assert_eq!(
        error.message,
        "reports[3].progress.millionths: 1000001 is out of range: 0 to 1000000"
    );
    assert_eq!(error.code, "invalid_value");
}

fn reason() -> impl Strategy<Value = Reason> {
    let text = || option::of("\\PC{0,9}");
    let job = (".{1,9}", option::of(any_of::<JobState>()))
        .prop_map(|(job, state)| JobAndState { job, state });
    let numbers = any::<(Option<u64>, Option<bool>, Option<u32>, Option<u64>)>();
    let more_numbers = any::<(Option<u32>, Option<u32>)>();
    let at = option::of((0..u64::MAX / 2_000).prop_map(calendar));
    let spans = (option::of(duration()), option::of(duration()));
    (
        numbers,
        more_numbers,
        vec(job, 0..3),
        at,
        spans,
        (text(), text()),
    )
        .prop_map(
            |(numbers, (limit, times), jobs, at, (silent_for, lease_left), (worker, detail))| {
                Reason {
                    code: "behind".into(),
                    text: "a sentence".to_owned(),
                    count: numbers.0,
                    more: numbers.1,
                    jobs,
                    at,
                    attempt: numbers.2,
                    running: numbers.3,
                    limit,
                    silent_for,
                    times,
                    worker,
                    lease_left,
                    detail,
                }
            },
        )
}

proptest! {
    #[test]
    fn priorities_come_back(millionths in any::<i64>()) {
        let given = Priority::from_millionths(millionths);
        let (whole, fraction) = (given.to_whole(), priority_millionths(given));
        prop_assert_eq!(priority(At::top(AT), whole, fraction), Ok(given));
    }

    #[test]
    fn explanations_come_back(state in any_of::<JobState>(), reasons in vec(reason(), 0..3)) {
        let (job, queue) = ("1/a".to_owned(), "mail".to_owned());
        let given = Explanation { job, state, queue, reasons };
        prop_assert_eq!(explanation(given.clone().into()), Ok(given));
    }
}

#[test]
fn requests_are_held_by_limits_that_answers_do_not_have() {
    let at = At::top("retry");
    let endless = v1::RetryPolicy {
        retries_max: Some(RETRIES_MAX + 1),
        ..v1::RetryPolicy::default()
    };
    assert!(
        retry(at, &endless).is_ok(),
        "jobs of raw keys are answered so"
    );
    let refused = check_retry(at, &endless).expect_err("too many");
    let wanted = format!(
        "retry.retries_max: {} is out of range: 0 to {RETRIES_MAX}",
        RETRIES_MAX + 1
    );
    assert_eq!(refused.message, wanted);
}

#[test]
fn a_priority_that_no_job_can_have_is_refused() {
    for (whole, millionths) in [(i64::MAX, 0), (i64::MIN, 0), (0, 1_000_000)] {
        let error = priority(At::top(AT), whole, millionths).expect_err("out of range");
        assert_eq!(error.code, "invalid_value");
    }
}

#[test]
fn an_error_about_a_reason_names_the_reason_and_the_job() {
    let job = |state| v1::JobInState {
        job: "local/1".into(),
        state,
    };
    let reason = |states: &[i32]| v1::Reason {
        jobs: states.iter().copied().map(job).collect(),
        ..v1::Reason::default()
    };
    let wire = v1::Explanation {
        state: 1,
        reasons: vec![reason(&[]), reason(&[1, 2, 99])],
        ..v1::Explanation::default()
    };
    let error = explanation(wire).expect_err("no such state");
    assert_eq!(
        error.message,
        "reasons[1].jobs[2].state: 99 is not a job state"
    );
}
