//! Rows of qless.

use ganger_types::job::ReportKind;
use ganger_types::qless::{
    QlessHistoryEntry, QlessJob, QlessKey, QlessLease, QlessPlace, QlessQueue, QlessRecurring,
    QlessRow, QlessSample, QlessSet, QlessState, QlessStatistics, QlessTag, QlessThrottle,
    QlessTime,
};
use ganger_types::{
    Bytes, Change, Elapsed, Epoch, ExternalChange, ExternalRow, LeaseToken, Namespace,
};
use std::sync::Arc;

use crate::store::Loaded;
use crate::suite::{Script, StoreFixture};

fn b(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// A number for a job with this id.
fn number(jid: &str) -> u64 {
    jid.bytes().fold(7, |all, byte| all * 31 + u64::from(byte))
}

fn job_key(jid: &'static str) -> QlessKey {
    QlessKey::Job {
        number: number(jid),
        jid: b(jid),
    }
}

/// A waiting job; its data distinguishes its versions.
fn job(jid: &'static str, data: &'static str) -> QlessRow {
    let at = QlessTime::new(1_500_000_000.625);
    QlessRow::Job(Arc::new(QlessJob {
        number: number(jid),
        jid: b(jid),
        klass: b("class"),
        data: b(data),
        state: QlessState::Waiting,
        queue: b("queue"),
        worker: Bytes::new(),
        priority: -0.5,
        expires: 0.0,
        retries: 5.0,
        remaining: 5.0,
        tags: vec![QlessTag::Text(b("tag")), QlessTag::Number(1.5)],
        tagged: vec![(b("tag"), at)],
        failure: None,
        spawned_from: Some(b("recurring")),
        history: vec![QlessHistoryEntry {
            what: b("put"),
            when: 1_500_000_000.0,
            extra: vec![(b("q"), b("\"queue\""))],
        }],
        dependencies: vec![b("before")],
        dependents: vec![b("after")],
        time: at.seconds(),
        is_warned: true,
        scheduled: Some(at),
        place: Some(QlessPlace {
            queue: b("queue"),
            set: QlessSet::Work,
            rank: f64::INFINITY,
            at,
        }),
        listed: vec![(b("worker"), at)],
        completed_at: None,
        failed_order: Some(u64::MAX),
        throttles: vec![b("throttle")],
        holds: vec![(b("throttle"), at)],
        pending: Vec::new(),
        throttled: Some((b("queue"), at)),
        handed_out: 3,
        lease: Some(QlessLease {
            token: LeaseToken {
                epoch: Epoch(1),
                counter: 2,
                secret: [3; 12],
            },
            request: None,
            report: Some(ReportKind::Fail),
        }),
        result: Some(b("a \0 result")),
    }))
}

fn statistics(queue: &'static str, day: f64) -> QlessRow {
    QlessRow::Statistics(Box::new(QlessStatistics {
        queue: b(queue),
        day: QlessTime::new(day),
        failed: -1,
        failures: 2,
        retries: 3,
        wait: QlessSample {
            total: 2,
            mean: 0.1,
            vk: 1e-300,
            bins: vec![(0, 1), (150, 1)],
        },
        run: QlessSample::default(),
    }))
}

/// Rows of every kind under the same name, and some with similar names.
fn rows() -> Vec<QlessRow> {
    let name = || b("a \0 name");
    let at = QlessTime::new(-0.25);
    vec![
        job("a \0 name", "{}"),
        job("", "{}"),
        job("\u{1}", "{}"),
        QlessRow::Recurring(Box::new(QlessRecurring {
            jid: name(),
            klass: b("class"),
            data: b("[]"),
            queue: b("queue"),
            priority: 1.0,
            retries: 0.0,
            interval: 0.3,
            backlog: 0.0,
            count: 7,
            tags: Vec::new(),
            next_at: at,
            throttles: Vec::new(),
        })),
        QlessRow::Queue(QlessQueue {
            name: name(),
            seen_at: None,
            is_paused: true,
        }),
        QlessRow::Worker(name(), at),
        QlessRow::Setting(name(), b("value")),
        QlessRow::TagCount(name(), -3),
        QlessRow::Tracked(name(), at),
        statistics("a \0 name", 0.0),
        statistics("a \0 name", 86_400.0),
        statistics("", 86_400.0),
        QlessRow::Throttle(QlessThrottle {
            id: name(),
            maximum: 2.5,
            ends_at: Some(Elapsed(u64::MAX)),
        }),
    ]
}

fn namespaces() -> [Namespace; 3] {
    ["", "0", "\u{1}0"].map(Namespace::from_static)
}

fn put(namespace: &Namespace, row: QlessRow) -> Change {
    Change::External(ExternalChange::PutQless(namespace.clone(), Box::new(row)))
}

type Named = ((Namespace, QlessKey), QlessRow);

fn named(namespace: &Namespace, row: QlessRow) -> Named {
    ((namespace.clone(), row.key()), row)
}

/// The loaded rows sorted by key, because they may come in any order.
fn given<G: StoreFixture>(script: &mut Script<'_, G>) -> Vec<Named> {
    let of_qless = |row| match row {
        Loaded::External(ExternalRow::Qless(namespace, row)) => named(&namespace, *row),
        other => panic!("nobody has put {other:?}"),
    };
    let mut given: Vec<_> = script.loaded().into_iter().map(of_qless).collect();
    given.sort_by(|one, other| one.0.cmp(&other.0));
    given
}

/// Every kind of row, in several namespaces.
pub fn rows_of_qless_are_given_back_as_they_were_put<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let mut expected = Vec::new();
    let mut changes = Vec::new();
    for namespace in &namespaces() {
        expected.extend(rows().into_iter().map(|row| named(namespace, row)));
        changes.extend(rows().into_iter().map(|row| put(namespace, row)));
    }
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    script.put(changes);
    assert_eq!(given(&mut script), expected);
    script.crash();
    assert_eq!(given(&mut script), expected);
}

/// Rows change independently of each other, in each namespace.
pub fn rows_of_qless_are_replaced_and_removed<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let [one, other, _] = namespaces();
    let mut changes = vec![put(&one, job("changed", "old")), put(&one, job("gone", ""))];
    changes.push(put(&other, job("gone", "elsewhere")));
    changes.extend([0.0, 86_400.0].map(|day| put(&one, statistics("queue", day))));
    script.put(changes);
    script.put(vec![
        put(&one, job("changed", "new")),
        Change::External(ExternalChange::RemoveQless(one.clone(), job_key("gone"))),
        Change::External(ExternalChange::RemoveQless(
            one.clone(),
            QlessKey::Statistics(b("queue"), QlessTime::new(0.0)),
        )),
        // The row never existed.
        Change::External(ExternalChange::RemoveQless(
            one.clone(),
            QlessKey::Worker(b("nobody")),
        )),
        // Created and removed within one commit.
        put(&one, job("short", "")),
        Change::External(ExternalChange::RemoveQless(one.clone(), job_key("short"))),
    ]);
    let expected = vec![
        named(&one, job("changed", "new")),
        named(&one, statistics("queue", 86_400.0)),
        named(&other, job("gone", "elsewhere")),
    ];
    assert_eq!(given(&mut script), expected);
    script.crash();
    assert_eq!(given(&mut script), expected);
}
