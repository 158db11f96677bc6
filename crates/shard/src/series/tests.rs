//! The series compared with a naive count of the same moves.

use proptest::prelude::*;

use super::*;
use ganger_types::time::MICROS_PER_SECOND;
use ganger_types::{Finished, Group, JobId, JobKey, Outcome, Position};

/// A move of a job: when, in which queue, of which kind, and from new or running to what.
#[derive(Clone, Debug)]
struct Move {
    second: u64,
    queue: usize,
    kind: usize,
    metric: Metric,
    waited: u64,
}

const QUEUES: [&str; 3] = ["a", "b", "c"];
const KINDS: [&str; 2] = ["x", "y"];
/// A day far enough from 1970 for all steps before it.
const START: u64 = 1_700_000_000;

fn at(second: u64) -> Timestamp {
    Timestamp((START + second) * MICROS_PER_SECOND)
}

fn queue(number: usize) -> Queue {
    Queue::new(
        QUEUES
            .get(number)
            .map_or_else(|| format!("q{number}"), |name| (*name).to_owned()),
    )
    .expect("short")
}

fn event(one: &Move, key: u64) -> Event {
    let (from, to) = match one.metric {
        Metric::Enqueued => (None, JobState::Ready),
        Metric::Started => (Some(JobState::Ready), JobState::Running),
        Metric::Succeeded => (Some(JobState::Running), JobState::Succeeded),
        Metric::Failed => (Some(JobState::Running), JobState::Failed),
        _ => (Some(JobState::Ready), JobState::Cancelled),
    };
    Event {
        position: Position(key),
        at: at(one.second),
        namespace: Namespace::default(),
        happening: Happening::JobMoved {
            key: JobKey(key),
            job: JobId::new(key.to_string()).expect("short"),
            queue: queue(one.queue),
            kind: Kind::from_static(KINDS[one.kind]),
            from,
            to,
            attempt: 1,
            worker: None,
            reason: String::new(),
        },
    }
}

/// Feeds moves in turns of a few, with the samples that the shard takes.
fn feed(table: &mut SeriesTable, moves: &[Move]) {
    table.sample(at(0), &[]);
    for (turn, some) in moves.chunks(5).enumerate() {
        let keys = (0_u64..).map(|key| key + 5 * u64::try_from(turn).expect("few"));
        let events: Vec<_> = some
            .iter()
            .zip(keys)
            .map(|(one, key)| event(one, key))
            .collect();
        let waits = some
            .iter()
            .zip(&events)
            .filter(|(one, _)| one.metric == Metric::Started);
        let waits =
            waits.map(|(one, event)| (JobKey(event.position.0), Duration::from_millis(one.waited)));
        table.observe(&events, &waits.collect());
        let now = at(some.last().expect("not empty").second);
        if table.is_sample_due(now) {
            table.sample(now, &[]);
        }
    }
}

fn query(step: Step, from: u64, to: u64) -> SeriesQuery {
    SeriesQuery {
        namespace: Namespace::default(),
        queue: None,
        kind: None,
        from: at(from),
        to: at(to),
        step,
        metrics: COUNTED.to_vec(),
        is_total: false,
    }
}

const COUNTED: [Metric; 5] = [
    Metric::Enqueued,
    Metric::Started,
    Metric::Succeeded,
    Metric::Failed,
    Metric::Cancelled,
];

fn moves(queues: usize, len: usize) -> impl Strategy<Value = Vec<Move>> {
    let one = (
        0_u64..90,
        0..queues,
        0..KINDS.len(),
        0..COUNTED.len(),
        1_u64..100_000,
    );
    prop::collection::vec(one, 1..len).prop_map(|all| {
        let mut second = 0;
        let all = all.into_iter().map(|(after, queue, kind, metric, waited)| {
            second += after;
            let metric = COUNTED[metric];
            Move {
                second,
                queue,
                kind,
                metric,
                waited,
            }
        });
        all.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_step_of_every_queue_is_that_of_a_naive_count(all in moves(QUEUES.len(), 300)) {
        let mut table = SeriesTable::default();
        feed(&mut table, &all);
        let end = all.last().expect("not empty").second;
        for step in Step::ALL {
            let window = u64::from(step.seconds()) * u64::from(step.kept() - 1);
            let from = end.saturating_sub(window);
            let reply = table.read(&query(step, from, end), at(end));
            prop_assert!(!reply.is_truncated);
            for line in &reply.lines {
                let first = step.number(reply.from);
                for (number, value) in (first..).zip(&line.values) {
                    let naive = all.iter().filter(|one| {
                        Some(queue(one.queue)) == line.queue
                            && one.metric == line.metric
                            && step.number(at(one.second)) == number
                    });
                    prop_assert_eq!(*value, Some(u64::try_from(naive.count()).expect("few")));
                }
            }
            let named = all.iter().map(|one| one.queue).collect::<std::collections::BTreeSet<_>>();
            prop_assert_eq!(reply.lines.len(), named.len() * COUNTED.len());
        }
    }

    #[test]
    fn totals_and_kinds_are_those_of_a_naive_count(all in moves(QUEUES.len(), 200)) {
        let mut table = SeriesTable::default();
        feed(&mut table, &all);
        let end = all.last().expect("not empty").second;
        let count = |matches: &dyn Fn(&Move) -> bool| {
            u64::try_from(all.iter().filter(|one| matches(one)).count()).expect("few")
        };
        let total = SeriesQuery { is_total: true, ..query(Step::Hour, 0, end) };
        for line in table.read(&total, at(end)).lines {
            let sum: u64 = line.values.iter().flatten().sum();
            prop_assert_eq!(sum, count(&|one| one.metric == line.metric));
        }
        for (kind, totals) in table.kinds(&Namespace::default(), None, (at(0), at(end)), at(end)) {
            let of = |metric| count(&|one: &Move| {
                one.metric == metric && kind == Some(Kind::from_static(KINDS[one.kind]))
            });
            prop_assert_eq!(totals.started, of(Metric::Started));
            prop_assert_eq!(totals.succeeded, of(Metric::Succeeded));
            prop_assert_eq!(totals.failed, of(Metric::Failed));
            prop_assert_eq!(totals.latency.waiting.count(), of(Metric::Started));
        }
    }

    #[test]
    fn memory_is_bounded_and_the_least_active_are_counted_together(all in moves(400, 600)) {
        let bytes_max = 512 << 10;
        let mut table = SeriesTable::new(bytes_max);
        feed(&mut table, &all);
        let end = all.last().expect("not empty").second;
        table.sample(at(end), &[]);
        prop_assert!(table.bytes() <= bytes_max, "{} bytes", table.bytes());
        // What is counted together is still counted.
        if !table.spaces.is_empty() {
            let total = SeriesQuery { is_total: true, ..query(Step::Hour, 0, end) };
            for line in table.read(&total, at(end)).lines {
                let sum: u64 = line.values.iter().flatten().sum();
                let naive = all.iter().filter(|one| one.metric == line.metric).count();
                prop_assert_eq!(sum, u64::try_from(naive).expect("few"));
            }
        }
    }
}

#[test]
fn steps_before_the_start_and_after_now_are_unknown() {
    let mut table = SeriesTable::default();
    table.sample(at(600), &[]);
    let reply = table.read(&query(Step::Minute, 480, 780), at(700));
    assert_eq!(reply.lines, [], "nothing has a series yet");
    let counts = QueueCounts {
        ready: 7,
        ..QueueCounts::default()
    };
    table.sample(at(660), &[(Namespace::default(), queue(0), counts, 61.5)]);
    let gauges = SeriesQuery {
        metrics: vec![Metric::Ready, Metric::OldestReady],
        ..query(Step::Minute, 480, 780)
    };
    let values: Vec<_> = table
        .read(&gauges, at(700))
        .lines
        .into_iter()
        .map(|line| line.values)
        .collect();
    let first = Step::Minute.number(at(600)) - Step::Minute.number(at(480));
    let mut expected = vec![None; usize::try_from(first).expect("small")];
    expected.extend([Some(0), Some(7)]);
    assert_eq!(values[0][..expected.len()], expected);
    assert_eq!(values[0].last(), Some(&None), "a step that has not begun");
    assert!(values[1].contains(&Some(61)));
}

#[test]
fn new_series_between_two_checks_are_bounded() {
    let mut table = SeriesTable::default();
    for number in 0..bounds::CREATED_MAX * 2 {
        let one = Move {
            second: 1,
            queue: 1_000 + number,
            kind: 0,
            metric: Metric::Started,
            waited: 1,
        };
        table.observe(&[event(&one, 1)], &WaitTimes::default());
    }
    let space = &table.spaces[&Namespace::default()];
    assert!(space.queues.len() <= bounds::CREATED_MAX);
    let kept: u64 = space.queues.values().map(QueueSeries::activity).sum();
    let all = u64::try_from(bounds::CREATED_MAX * 2).expect("small");
    assert_eq!(kept + space.other.activity(), all);
}

/// An attempt that ends so many seconds after the one before it.
#[derive(Clone, Debug)]
struct Ending {
    after: u64,
    queue: usize,
    kind: usize,
    end: AttemptEnd,
    /// Whether the job ended with it.
    is_last: bool,
    ran: u64,
}

fn endings() -> impl Strategy<Value = Vec<Ending>> {
    let failed = AttemptEnd::Failed {
        group: Group::from_static("io"),
        message: String::new(),
        permanent: false,
    };
    let released = AttemptEnd::Released {
        counted: false,
        reason: String::new(),
    };
    let end = prop::sample::select(vec![
        AttemptEnd::Succeeded,
        failed,
        AttemptEnd::Expired,
        AttemptEnd::TimedOut,
        released,
        AttemptEnd::Cancelled,
    ]);
    // Most follow one another at once, so that many of a turn are alike.
    let after = prop_oneof![8 => Just(0_u64), 2 => 1_u64..9, 1 => 9_u64..4_000];
    let one = (
        after,
        0..2_usize,
        0..KINDS.len(),
        end,
        any::<bool>(),
        1_u64..100_000,
    );
    let one = one.prop_map(|(after, queue, kind, end, is_last, ran)| Ending {
        after,
        queue,
        kind,
        end,
        is_last,
        ran,
    });
    prop::collection::vec(one, 1..120)
}

/// Counts the endings in turns of `together`. Returns everything that can be read of them.
fn counted(endings: &[Ending], together: usize) -> impl PartialEq + std::fmt::Debug + use<> {
    let worker = Worker::from_static("w");
    let mut second = 0;
    let mut records = Vec::new();
    for (key, one) in (1..).zip(endings) {
        second += one.after;
        let mut record = JobRecord::new(
            JobKey(key),
            JobId::new(key.to_string()).expect("short"),
            Namespace::default(),
            queue(one.queue),
            Kind::from_static(KINDS[one.kind]),
        );
        record.finished = one.is_last.then(|| Finished {
            outcome: Outcome::Failed,
            at: at(second),
            order: key,
            result_bytes: None,
            keep_until: None,
        });
        records.push((record, at(second)));
    }
    let attempts: Vec<_> = records
        .iter()
        .zip(endings)
        .map(|((record, at), one)| EndedAttempt {
            record,
            worker: &worker,
            at: *at,
            ran: Duration::from_millis(one.ran),
            end: &one.end,
        })
        .collect();
    let mut table = SeriesTable::default();
    table.sample(at(0), &[]);
    for turn in attempts.chunks(together) {
        table.observe_attempts(turn);
    }
    let (now, space) = (at(second), Namespace::default());
    let lines: Vec<_> = Step::ALL
        .into_iter()
        .map(|step| {
            let query = SeriesQuery {
                metrics: vec![Metric::Retried, Metric::Lost],
                ..query(step, 0, second)
            };
            table.read(&query, now)
        })
        .collect();
    let kinds = [0, 1].map(|number| table.kinds(&space, Some(&queue(number)), (at(0), now), now));
    (lines, kinds, table.recent(&space, now))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn attempts_that_are_counted_together_count_as_one_by_one(all in endings(), together in 2..50_usize) {
        prop_assert_eq!(counted(&all, together), counted(&all, 1));
    }
}

#[test]
fn an_attempt_counts_as_retried_lost_and_failed_by_its_end() {
    let ending = |end, is_last| Ending {
        after: 0,
        queue: 0,
        kind: 0,
        end,
        is_last,
        ran: 1_000,
    };
    let all = [
        ending(AttemptEnd::Succeeded, true),
        ending(AttemptEnd::Expired, false),
        ending(AttemptEnd::TimedOut, false),
        ending(AttemptEnd::Expired, true),
    ];
    let text = format!("{:?}", counted(&all, all.len()));
    // Two were tried again, two leases were lost, and of four attempts three failed.
    for expected in ["ended: 4", "failed: 3", "lost: 2"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
