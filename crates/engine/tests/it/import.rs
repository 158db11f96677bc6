//! Records of another server are imported once, however often they are sent, and are durable.

#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use crate::support::World;
use ganger_types::command::{Delete, NewJob};
use ganger_types::import::{ImportOutcome, ImportRecord, QlessJobSource, QlessSource};
use ganger_types::keys::{End, KeyCall, KeyReply, TimeLeft};
use ganger_types::qless::{Generation, QlessReply, QlessRequest, QlessSet, QlessTime};
use ganger_types::query::Query;
use ganger_types::{
    Bytes, Command, ExternalReply, Group, Import, JobId, JobSource, KeyAnswers, KeyCalls, Kind,
    Namespace, QlessCall, Reply, WorkItem, limits,
};

fn pairs(fields: &[(&str, &str)]) -> Vec<(Bytes, Bytes)> {
    let owned = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let pairs = fields.iter();
    pairs
        .map(|(key, value)| (owned(key), owned(value)))
        .collect()
}

/// A job as the script stores it, ready in queue `q` since 100.
fn source(jid: &str, state: &str, places: Vec<(QlessSet, f64)>) -> QlessJobSource {
    QlessJobSource {
        jid: Bytes::copy_from_slice(jid.as_bytes()),
        fields: pairs(&[
            ("klass", "k"),
            ("data", "{}"),
            ("state", state),
            ("queue", "q"),
            ("worker", if state == "running" { "w" } else { "" }),
            ("priority", "0"),
            ("expires", if state == "running" { "160" } else { "0" }),
            ("retries", "5"),
            ("remaining", "4"),
            ("tags", "[\"t\"]"),
            ("time", "100"),
        ]),
        history: vec![Bytes::from_static(br#"[100,"put",{"q":"q"}]"#)],
        places,
        tagged: vec![(Bytes::from_static(b"t"), QlessTime::new(100.0))],
        listed_until: (state == "running").then(|| QlessTime::new(160.0)),
        ..QlessJobSource::default()
    }
}

fn ready(jid: &str) -> QlessJobSource {
    source(jid, "waiting", vec![(QlessSet::Work, -100.0 / 1e10)])
}

fn import(world: &mut World, sources: Vec<QlessSource>) -> Vec<ImportOutcome> {
    let records = sources.into_iter();
    let command = Command::Import(Box::new(Import {
        namespace: Namespace::default(),
        records: records
            .map(|it| ImportRecord::Qless(Box::new(it)))
            .collect(),
    }));
    match world.ok(command) {
        Reply::Imported(each) => each,
        other => panic!("not the answer to an import: {other:?}"),
    }
}

fn call(world: &mut World, words: &str) -> String {
    let words = words.split(' ').map(str::to_owned).map(Bytes::from);
    let request = QlessRequest::Script {
        generation: Generation::Three,
        words: words.collect(),
    };
    let namespace = Namespace::default();
    let command = Command::from(QlessCall { namespace, request });
    match world.ok(command) {
        Reply::External(ExternalReply::Qless(Ok(QlessReply::Text(text)))) => {
            String::from_utf8_lossy(&text).into_owned()
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn a_job_that_was_taken_over_and_is_gone_does_not_come_back() {
    let mut world = World::new();
    let job = || vec![QlessSource::Job(ready("a"))];
    assert_eq!(import(&mut world, job()), [ImportOutcome::Taken]);
    assert_eq!(import(&mut world, job()), [ImportOutcome::AlreadyThere]);
    call(&mut world, "cancel 200 a");
    assert_eq!(import(&mut world, job()), [ImportOutcome::AlreadyThere]);
    assert!(call(&mut world, "get 200 a").contains("Nil"));
}

#[test]
fn a_job_that_is_here_already_stays_as_it_is() {
    let mut world = World::new();
    call(&mut world, "put 50 w other a mine {} 0");
    let taken = import(&mut world, vec![QlessSource::Job(ready("a"))]);
    assert_eq!(taken, [ImportOutcome::AlreadyThere]);
    assert!(call(&mut world, "get 200 a").contains("\"klass\":\"mine\""));
}

#[test]
fn a_job_that_cannot_be_read_is_refused_and_the_others_are_taken() {
    let mut world = World::new();
    let nowhere = QlessSource::Job(source("b", "waiting", Vec::new()));
    let mut odd = ready("c");
    odd.fields.retain(|(name, _)| name != "data");
    let sources = vec![QlessSource::Job(ready("a")), nowhere, QlessSource::Job(odd)];
    let each = import(&mut world, sources);
    assert_eq!(each[0], ImportOutcome::Taken);
    for (refused, because) in [(&each[1], "in no set"), (&each[2], "\"data\" is missing")] {
        let ImportOutcome::Refused(reason) = refused else {
            panic!("{refused:?}");
        };
        assert!(reason.contains(because), "{reason}");
    }
    assert!(call(&mut world, "get 200 b").contains("Nil"));
}

#[test]
fn a_job_that_runs_keeps_its_worker_who_may_complete_it() {
    let mut world = World::new();
    let running = source("a", "running", vec![(QlessSet::Locks, 160.0)]);
    import(&mut world, vec![QlessSource::Job(running)]);
    let workers = call(&mut world, "workers 150 w");
    assert!(workers.contains("\"jobs\":[\"a\"]"), "{workers}");
    assert_eq!(call(&mut world, "complete 150 a w q {}"), "complete");
}

#[test]
fn dependencies_hold_in_whatever_order_the_jobs_come() {
    for is_first in [true, false] {
        let mut world = World::new();
        let mut first = ready("a");
        first.dependents.push(Bytes::from_static(b"b"));
        let mut second = source("b", "depends", vec![(QlessSet::Depends, 100.0)]);
        second.dependencies.push(Bytes::from_static(b"a"));
        let mut sources = vec![QlessSource::Job(first), QlessSource::Job(second)];
        if !is_first {
            sources.reverse();
        }
        // Each in its own command, because a batch may end between them.
        for source in sources {
            assert_eq!(import(&mut world, vec![source]), [ImportOutcome::Taken]);
        }
        let release = || QlessSource::Release {
            jid: Bytes::from_static(b"b"),
        };
        assert_eq!(
            import(&mut world, vec![release()]),
            [ImportOutcome::AlreadyThere],
            "it still waits"
        );
        call(&mut world, "pop 150 q w 5");
        call(&mut world, "complete 151 a w q {}");
        assert!(call(&mut world, "get 152 b").contains("\"state\":\"waiting\""));
    }
}

#[test]
fn a_job_continues_if_its_dependency_ended_here_before_it_arrived() {
    let mut world = World::new();
    let mut second = source("b", "depends", vec![(QlessSet::Depends, 100.0)]);
    second.dependencies.push(Bytes::from_static(b"a"));
    import(&mut world, vec![QlessSource::Job(ready("a"))]);
    call(&mut world, "pop 150 q w 5");
    call(&mut world, "complete 151 a w q {}");
    import(&mut world, vec![QlessSource::Job(second)]);
    assert!(call(&mut world, "get 152 b").contains("\"state\":\"depends\""));
    let jid = Bytes::from_static(b"b");
    import(&mut world, vec![QlessSource::Release { jid }]);
    assert!(call(&mut world, "get 152 b").contains("\"state\":\"waiting\""));
}

#[test]
fn the_order_in_a_queue_is_kept() {
    let mut world = World::new();
    let at = |jid: &str, priority: f64, time: f64| {
        let mut job = ready(jid);
        let set = |fields: &mut Vec<(Bytes, Bytes)>, name: &str, value: f64| {
            let field = fields.iter_mut().find(|(key, _)| key == name);
            field.expect("it is there").1 = Bytes::from(value.to_string());
        };
        set(&mut job.fields, "priority", priority);
        set(&mut job.fields, "time", time);
        job.places = vec![(QlessSet::Work, priority - time / 1e10)];
        QlessSource::Job(job)
    };
    let now = 1_795_235_627.125;
    let sources = vec![
        at("late", 0.0, now + 1.0),
        at("early", 0.0, now),
        at("urgent", 10.0, now + 2.0),
        at("urgent-first", 10.0, now + 1.5),
    ];
    import(&mut world, sources);
    let found = call(&mut world, "peek 1795235700 q 0 10");
    let jids: Vec<_> = found.split("\"jid\":\"").skip(1).collect();
    let jids: Vec<_> = jids.iter().filter_map(|it| it.split('"').next()).collect();
    assert_eq!(jids, ["urgent-first", "urgent", "early", "late"]);
}

#[test]
fn counters_and_statistics_are_added_once_to_what_is_here() {
    let mut world = World::new();
    call(&mut world, "put 100 w q x k {} 0 tags [\"t\"]");
    call(&mut world, "pop 101 q w 5");
    let sources = || {
        vec![
            QlessSource::TagCount {
                tag: Bytes::from_static(b"t"),
                count: 3,
            },
            QlessSource::Statistics(ganger_types::import::QlessStatisticsSource {
                queue: Bytes::from_static(b"q"),
                day: QlessTime::new(0.0),
                counters: pairs(&[("failed", "1"), ("failures", "2"), ("retries", "3")]),
                wait: pairs(&[("total", "1"), ("mean", "3"), ("vk", "0"), ("s3", "1")]),
                run: Vec::new(),
            }),
        ]
    };
    assert_eq!(
        import(&mut world, sources()),
        [ImportOutcome::Taken, ImportOutcome::Taken]
    );
    let again = [ImportOutcome::AlreadyThere, ImportOutcome::AlreadyThere];
    assert_eq!(import(&mut world, sources()), again);
    assert_eq!(call(&mut world, "tag 102 top"), "[\"t\"]");
    let shown = call(&mut world, "stats 102 q 102");
    for expected in [
        "\"failures\":2",
        "\"retries\":3",
        "\"count\":2,\"mean\":2,\"std\":1.41",
    ] {
        assert!(shown.contains(expected), "{shown}");
    }
}

fn send(world: &mut World, record: ImportRecord) -> ImportOutcome {
    let command = Command::Import(Box::new(Import {
        namespace: Namespace::default(),
        records: vec![record],
    }));
    match world.ok(command) {
        Reply::Imported(mut each) => each.remove(0),
        other => panic!("not the answer to an import: {other:?}"),
    }
}

fn keys(world: &mut World, call: KeyCall) -> KeyReply {
    let command = Command::from(KeyCalls {
        namespace: Namespace::default(),
        watched: Vec::new(),
        calls: vec![call],
    });
    match world.ok(command) {
        Reply::External(ExternalReply::Keys(KeyAnswers::Each(mut each))) => {
            each.remove(0).expect("it is accepted")
        }
        other => panic!("not the answer to a call on keys: {other:?}"),
    }
}

fn item(id: &'static str) -> ImportRecord {
    ImportRecord::Item(Box::new(WorkItem {
        key: Bytes::from(format!("p:item:{id}")),
        data: Bytes::from_static(b"data"),
        list: Some(Bytes::from_static(b"p:queue")),
        id: Bytes::from_static(id.as_bytes()),
        leases: vec![(
            Bytes::from(format!("p:lease:{id}")),
            Bytes::from_static(b"session"),
            Duration::from_secs(30),
        )],
    }))
}

#[test]
fn an_item_comes_once_with_its_place_and_the_time_that_its_lease_has_left() {
    let mut world = World::new();
    assert_eq!(send(&mut world, item("a")), ImportOutcome::Taken);
    assert_eq!(send(&mut world, item("b")), ImportOutcome::Taken);
    let key = Bytes::from_static(b"p:lease:a");
    let left = keys(&mut world, KeyCall::TimeLeft { key });
    let half_minute = TimeLeft::For(Duration::from_secs(30));
    assert_eq!(left, KeyReply::TimeLeft(half_minute));
    let next = KeyCall::Pop {
        key: Bytes::from_static(b"p:queue"),
        end: End::Right,
        count: None,
    };
    let popped = keys(&mut world, next);
    assert_eq!(popped, KeyReply::Value(Bytes::from_static(b"a")));
    let item_key = vec![Bytes::from_static(b"p:item:a")];
    keys(&mut world, KeyCall::Delete { keys: item_key });
    assert_eq!(
        send(&mut world, item("a")),
        ImportOutcome::AlreadyThere,
        "it is done"
    );
    let key = Bytes::from_static(b"p:queue");
    assert_eq!(
        keys(&mut world, KeyCall::Length { key }),
        KeyReply::Number(1)
    );
}

#[test]
fn an_item_is_refused_if_its_list_is_none_here() {
    let mut world = World::new();
    let set = KeyCall::SetMany {
        pairs: vec![(Bytes::from_static(b"p:queue"), Bytes::new())],
    };
    keys(&mut world, set);
    let ImportOutcome::Refused(reason) = send(&mut world, item("a")) else {
        panic!("it was not refused");
    };
    assert!(reason.contains("holds a string"), "{reason}");
    let keys_of_item = vec![Bytes::from_static(b"p:item:a")];
    let there = keys(&mut world, KeyCall::Exists { keys: keys_of_item });
    assert_eq!(
        there,
        KeyReply::Number(0),
        "a refusal leaves nothing behind"
    );
}

#[test]
fn a_job_of_ours_comes_once_and_may_have_failed_already() {
    let mut world = World::new();
    let job = |id: &str, failed: Option<&str>| {
        ImportRecord::Job(Box::new(JobSource {
            job: NewJob {
                id: Some(JobId::new(id).expect("an id")),
                kind: Kind::from_static("k"),
                ..NewJob::default()
            },
            failed: failed.map(str::to_owned),
        }))
    };
    assert_eq!(send(&mut world, job("a", None)), ImportOutcome::Taken);
    assert_eq!(
        send(&mut world, job("a", None)),
        ImportOutcome::AlreadyThere
    );
    assert_eq!(
        send(&mut world, job("b", Some("no such table"))),
        ImportOutcome::Taken
    );
    let groups = world.ok(Command::Query(Box::new(Query::FailureGroups(
        Namespace::default(),
    ))));
    let Reply::FailureGroups(groups) = groups else {
        panic!("{groups:?}");
    };
    assert_eq!(groups, [(Group::from_static("imported"), 1)]);
}

#[test]
fn an_import_of_too_many_records_is_refused() {
    let mut world = World::new();
    let command = Command::Import(Box::new(Import {
        namespace: Namespace::default(),
        records: vec![item("a"); limits::IMPORT_RECORDS_MAX + 1],
    }));
    let refused = world.refused(command);
    assert_eq!(refused, "too_large");
}

/// Records of all kinds.
fn all_kinds() -> Vec<ImportRecord> {
    let job = |id: &str, failed: Option<&str>| {
        ImportRecord::Job(Box::new(JobSource {
            job: NewJob {
                id: Some(JobId::new(id).expect("an id")),
                kind: Kind::from_static("k"),
                ..NewJob::default()
            },
            failed: failed.map(str::to_owned),
        }))
    };
    let count = QlessSource::TagCount {
        tag: Bytes::from_static(b"counted"),
        count: 3,
    };
    vec![
        ImportRecord::Qless(Box::new(QlessSource::Job(ready("a")))),
        ImportRecord::Qless(Box::new(count)),
        item("a"),
        job("ready", None),
        job("failed", Some("no such table")),
    ]
}

#[test]
fn what_was_taken_over_before_a_restart_is_not_taken_again() {
    let mut world = World::new();
    let half = all_kinds().len() / 2;
    for record in all_kinds().into_iter().take(half) {
        assert_eq!(send(&mut world, record), ImportOutcome::Taken);
    }
    world.restart();
    for (index, record) in all_kinds().into_iter().enumerate() {
        let expected = if index < half {
            ImportOutcome::AlreadyThere
        } else {
            ImportOutcome::Taken
        };
        assert_eq!(send(&mut world, record.clone()), expected, "{record:?}");
    }
    world.restart();

    // All jobs end here and are removed.
    call(&mut world, "pop 150 q w 5");
    call(&mut world, "complete 151 a w q {}");
    let item_keys = vec![
        Bytes::from_static(b"p:item:a"),
        Bytes::from_static(b"p:queue"),
        Bytes::from_static(b"p:lease:a"),
    ];
    keys(&mut world, KeyCall::Delete { keys: item_keys });
    let grant = world.lease_one("w");
    assert!(world.complete(&grant).is_ok());
    let ids = ["ready", "failed"].map(|id| JobId::new(id).expect("an id"));
    world.ok(Command::Delete(Delete {
        namespace: Namespace::default(),
        jobs: ids.to_vec(),
    }));
    world.restart();
    for record in all_kinds() {
        let again = send(&mut world, record.clone());
        assert_eq!(again, ImportOutcome::AlreadyThere, "{record:?}");
    }
    for id in &ids {
        assert_eq!(world.state(id), None, "it has come back");
    }
    // After seven days the marks expire.
    world.pass(Duration::from_secs(7 * 86_400));
    let job = all_kinds().remove(3);
    assert_eq!(send(&mut world, job), ImportOutcome::Taken);
}
