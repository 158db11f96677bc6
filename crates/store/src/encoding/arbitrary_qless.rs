//! Any row of qless, for the property tests.

use ganger_types::job::ReportKind;
use ganger_types::qless::{
    QlessFailure, QlessHappening, QlessJob, QlessLease, QlessPlace, QlessQueue, QlessRecurring,
    QlessRow, QlessSample, QlessSet, QlessState, QlessStatistics, QlessTag, QlessThrottle,
    QlessTime,
};
use ganger_types::{Bytes, Elapsed, Epoch, LeaseToken, RequestId};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;

use super::arbitrary::bytes;

/// Whatever a number may be but none at all, which does not equal itself.
fn number() -> impl Strategy<Value = f64> {
    use proptest::num::f64;
    f64::NORMAL | f64::SUBNORMAL | f64::POSITIVE | f64::NEGATIVE | f64::ZERO | f64::INFINITE
}

fn time() -> impl Strategy<Value = QlessTime> {
    number().prop_map(QlessTime::new)
}

fn since() -> impl Strategy<Value = (Bytes, QlessTime)> {
    (bytes(), time())
}

fn many<S: Strategy>(of: S) -> impl Strategy<Value = Vec<S::Value>> {
    vec(of, 0..4)
}

fn tag() -> impl Strategy<Value = QlessTag> {
    prop_oneof![
        bytes().prop_map(QlessTag::Text),
        number().prop_map(QlessTag::Number),
    ]
}

fn failure() -> impl Strategy<Value = QlessFailure> {
    let words = (bytes(), bytes(), bytes());
    (words, number()).prop_map(|((group, message, worker), when)| QlessFailure {
        group,
        message,
        when,
        worker,
    })
}

fn happening() -> impl Strategy<Value = QlessHappening> {
    let extra = many((bytes(), bytes()));
    (bytes(), number(), extra).prop_map(|(what, when, extra)| QlessHappening { what, when, extra })
}

fn place() -> impl Strategy<Value = QlessPlace> {
    let sets = vec![
        QlessSet::Work,
        QlessSet::Locks,
        QlessSet::Scheduled,
        QlessSet::Depends,
    ];
    (bytes(), select(sets), number(), time()).prop_map(|(queue, set, rank, at)| QlessPlace {
        queue,
        set,
        rank,
        at,
    })
}

fn lease() -> impl Strategy<Value = QlessLease> {
    let kinds = vec![ReportKind::Complete, ReportKind::Fail, ReportKind::Release];
    let secret = (any::<u64>(), any::<u64>(), any::<[u8; 12]>());
    (
        secret,
        option::of(any::<[u8; 3]>()),
        option::of(select(kinds)),
    )
        .prop_map(|((epoch, counter, secret), request, report)| QlessLease {
            token: LeaseToken {
                epoch: Epoch(epoch),
                counter,
                secret,
            },
            request: request.map(|bytes| RequestId::new(bytes).expect("short")),
            report,
        })
}

fn job() -> impl Strategy<Value = QlessJob> {
    let words = (bytes(), bytes(), bytes(), bytes(), bytes());
    let state = select(QlessState::ALL.to_vec());
    let numbers = (number(), number(), number(), number(), number());
    let tags = (many(tag()), many(since()));
    let past = (
        option::of(failure()),
        option::of(bytes()),
        many(happening()),
    );
    let edges = (many(bytes()), many(bytes()));
    let times = (option::of(time()), option::of(time()), any::<bool>());
    let lines = (option::of(place()), many(since()), option::of(any::<u64>()));
    let throttles = (
        many(bytes()),
        many(since()),
        many(since()),
        option::of(since()),
    );
    let all = (words, state, numbers, tags, past, edges, times, lines);
    let ours = (any::<u64>(), option::of(lease()), option::of(bytes()));
    (all, throttles, ours).prop_map(|(all, throttles, (number, lease, result))| {
        let (words, state, numbers, tags, past, edges, times, lines) = all;
        QlessJob {
            number,
            jid: words.0,
            klass: words.1,
            data: words.2,
            state,
            queue: words.3,
            worker: words.4,
            priority: numbers.0,
            expires: numbers.1,
            retries: numbers.2,
            remaining: numbers.3,
            tags: tags.0,
            tagged: tags.1,
            failure: past.0,
            spawned_from: past.1,
            history: past.2,
            dependencies: edges.0,
            dependents: edges.1,
            time: numbers.4,
            is_warned: times.2,
            scheduled: times.0,
            place: lines.0,
            listed: lines.1,
            completed_at: times.1,
            failed_order: lines.2,
            throttles: throttles.0,
            holds: throttles.1,
            pending: throttles.2,
            throttled: throttles.3,
            handed_out: u64::from(times.2) << 40,
            lease,
            result,
        }
    })
}

fn recurring() -> impl Strategy<Value = QlessRecurring> {
    let words = (bytes(), bytes(), bytes(), bytes());
    let numbers = (number(), number(), number(), number());
    let rest = (any::<u64>(), many(tag()), time(), many(bytes()));
    (words, numbers, rest).prop_map(|(words, numbers, rest)| QlessRecurring {
        jid: words.0,
        klass: words.1,
        data: words.2,
        queue: words.3,
        priority: numbers.0,
        retries: numbers.1,
        interval: numbers.2,
        backlog: numbers.3,
        count: rest.0,
        tags: rest.1,
        next_at: rest.2,
        throttles: rest.3,
    })
}

fn sample() -> impl Strategy<Value = QlessSample> {
    let bins = many((any::<u16>(), any::<u64>()));
    (any::<u64>(), number(), number(), bins).prop_map(|(total, mean, vk, bins)| QlessSample {
        total,
        mean,
        vk,
        bins,
    })
}

fn statistics() -> impl Strategy<Value = QlessStatistics> {
    let samples = (sample(), sample());
    (bytes(), time(), any::<[i64; 3]>(), samples).prop_map(|(queue, day, counts, samples)| {
        QlessStatistics {
            queue,
            day,
            failed: counts[0],
            failures: counts[1],
            retries: counts[2],
            wait: samples.0,
            run: samples.1,
        }
    })
}

fn queue() -> impl Strategy<Value = QlessQueue> {
    (bytes(), option::of(time()), any::<bool>()).prop_map(|(name, seen_at, is_paused)| QlessQueue {
        name,
        seen_at,
        is_paused,
    })
}

fn throttle() -> impl Strategy<Value = QlessThrottle> {
    let ends_at = option::of(any::<u64>().prop_map(Elapsed));
    (bytes(), number(), ends_at).prop_map(|(id, maximum, ends_at)| QlessThrottle {
        id,
        maximum,
        ends_at,
    })
}

pub(super) fn qless() -> impl Strategy<Value = QlessRow> {
    prop_oneof![
        3 => job().prop_map(|job| QlessRow::Job(Arc::new(job))),
        1 => recurring().prop_map(|job| QlessRow::Recurring(Box::new(job))),
        1 => queue().prop_map(QlessRow::Queue),
        1 => since().prop_map(|(name, seen_at)| QlessRow::Worker(name, seen_at)),
        1 => (bytes(), bytes()).prop_map(|(option, value)| QlessRow::Setting(option, value)),
        1 => (bytes(), any::<i64>()).prop_map(|(tag, count)| QlessRow::TagCount(tag, count)),
        1 => since().prop_map(|(jid, since)| QlessRow::Tracked(jid, since)),
        1 => statistics().prop_map(|it| QlessRow::Statistics(Box::new(it))),
        1 => throttle().prop_map(QlessRow::Throttle),
    ]
}
