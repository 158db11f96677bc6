//! Jobs of qless are shown, explained, counted and cancelled like other jobs.

#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use crate::support::World;
use ganger_types::command::{Cancel, Enqueue, NewJob, Selection};
use ganger_types::external::ExternalReason;
use ganger_types::history::AttemptEnd;
use ganger_types::qless::{Generation, QlessReply, QlessRequest};
use ganger_types::query::Query;
use ganger_types::reply::ExternalJobView;
use ganger_types::why::Reason;
use ganger_types::{
    Bytes, Command, Due, ExternalReply, JobId, JobKey, JobState, Kind, Namespace, Priority,
    QlessCall, Queue, Reply, Timestamp, What, Worker,
};

fn id(text: &str) -> JobId {
    JobId::new(text).expect("short")
}

fn script(words: &[&str]) -> Command {
    let words = words
        .iter()
        .map(|word| Bytes::copy_from_slice(word.as_bytes()));
    Command::from(QlessCall {
        namespace: Namespace::default(),
        request: QlessRequest::Script {
            generation: Generation::Three,
            words: words.collect(),
        },
    })
}

/// Calls the script with words that contain no spaces.
fn call(world: &mut World, words: &str) -> QlessReply {
    let words: Vec<&str> = words.split(' ').collect();
    match world.ok(script(&words)) {
        Reply::External(ExternalReply::Qless(Ok(reply))) => reply,
        other => panic!("{words:?}: {other:?}"),
    }
}

fn find(world: &mut World, jid: &str) -> Option<ExternalJobView> {
    let query = Query::ExternalJob(Namespace::default(), id(jid));
    match world.ok(Command::Query(Box::new(query))) {
        Reply::ExternalJob(found) => found.map(|job| *job),
        other => panic!("{other:?}"),
    }
}

fn show(world: &mut World, jid: &str) -> ExternalJobView {
    find(world, jid).expect("it is there")
}

fn why(world: &mut World, jid: &str) -> (JobState, Vec<Reason>) {
    let query = Query::Why(Namespace::default(), id(jid));
    match world.ok(Command::Query(Box::new(query))) {
        Reply::Why(why) => (why.state, why.reasons),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_is_shown_with_all_that_is_known_of_it() {
    let mut world = World::new();
    call(
        &mut world,
        "put 1000.25 w q a mail {\"n\":1} 0 priority 2.5 retries 7 tags [\"x\",1.5]",
    );
    call(&mut world, "track 1000 track a");
    let job = show(&mut world, "a");
    let record = &job.record;
    assert_eq!(record.key, JobKey::OF_QLESS);
    assert_eq!(record.id, id("a"));
    assert_eq!(record.queue, Queue::from_static("q"));
    assert_eq!(record.kind, Kind::from_static("mail"));
    assert_eq!(record.state, JobState::Ready);
    assert_eq!(record.priority, Priority::from_millionths(-2_500_000));
    assert_eq!(record.created_at, Timestamp(1_000_000_000));
    assert_eq!(record.retry.retries_max, 7);
    assert_eq!(record.attempt, 0);
    let tags: Vec<_> = record
        .tags
        .iter()
        .map(|tag| tag.to_text().into_owned())
        .collect();
    assert_eq!(tags, ["x", "1.5"]);
    assert!(record.tracked);
    assert_eq!(record.payload_bytes, 7);
    assert_eq!(job.payload, "{\"n\":1}");
    assert_eq!(job.lease, None);
    assert_eq!(find(&mut world, "b"), None);
}

#[test]
fn its_states_are_ours() {
    let mut world = World::new();
    for words in [
        "put 1 w q ready k {} 0",
        "put 1 w q later k {} 60.5",
        "put 1 w q blocked k {} 0 depends [\"later\"]",
        "put 1 w q runs k {} 0 priority 3",
        "put 1 w q fails k {} 0 priority 2",
        "put 1 w q done k {} 0 priority 1",
        "pop 2.5 q w 3",
        "fail 3.5 fails w bad why",
        "complete 4.5 done w q {}",
    ] {
        call(&mut world, words);
    }
    let states = [
        ("ready", JobState::Ready),
        ("later", JobState::Scheduled),
        ("blocked", JobState::Blocked),
        ("runs", JobState::Running),
        ("fails", JobState::Failed),
        ("done", JobState::Succeeded),
    ];
    for (jid, state) in states {
        assert_eq!(show(&mut world, jid).record.state, state, "{jid}");
        assert_eq!(why(&mut world, jid).0, state, "{jid}");
    }
    let later = show(&mut world, "later").record;
    assert_eq!(later.due, Some(Due::Wall(Timestamp(61_500_000))));
    let lease = show(&mut world, "runs").lease.expect("somebody holds it");
    assert_eq!(lease.worker, Worker::from_static("w"));
    assert_eq!(lease.granted_at, Timestamp(2_500_000));
    assert_eq!(lease.lease_for, Duration::from_secs(60));
    let failed = show(&mut world, "fails").record;
    let failure = failed.failure.expect("it says why");
    assert_eq!(
        (failure.group.to_text(), &*failure.message),
        ("bad".into(), "why")
    );
    let done = show(&mut world, "done").record;
    assert_eq!(done.queue, Queue::from_static("q"), "where it was last");
    assert_eq!(done.finished.expect("it ended").at, Timestamp(4_500_000));
    let [enqueued, attempt] = &done.history[..] else {
        panic!("{:?}", done.history);
    };
    assert!(matches!(&enqueued.what, What::Enqueued { .. }));
    assert!(matches!(
        &attempt.what,
        What::Attempt {
            number: 1,
            end: AttemptEnd::Succeeded,
            ..
        }
    ));
}

#[test]
fn it_is_explained_by_the_rules_of_qless() {
    let mut world = World::new();
    for words in [
        "throttle.set 1 t 1",
        "put 1 w q runs k {} 0 throttles [\"t\"]",
        "put 2 w q throttled k {} 0 throttles [\"t\"]",
        "pop 3 q w 2",
        "put 4 w q first k {} 0",
        "put 5 w q second k {} 0",
        "put 6 w q later k {} 4",
        "put 7 w q blocked k {} 0 depends [\"runs\"]",
    ] {
        call(&mut world, words);
    }
    let locked = ExternalReason::Locked {
        worker: Worker::from_static("w"),
        attempt: 1,
        until: Timestamp(63_000_000),
    }
    .into();
    assert_eq!(why(&mut world, "runs").1, [locked]);
    let by = vec!["t".to_owned()];
    assert_eq!(
        why(&mut world, "throttled").1,
        [ExternalReason::Throttled { by }.into()]
    );
    assert_eq!(why(&mut world, "first").1, [Reason::Next]);
    let behind = Reason::Behind {
        jobs: 1,
        more: false,
    };
    assert_eq!(why(&mut world, "second").1, std::slice::from_ref(&behind));
    let not_before = Reason::NotBefore {
        at: Timestamp(10_000_000),
        after_attempt: 0,
    };
    assert_eq!(why(&mut world, "later").1, [not_before]);
    let waits_for = Reason::WaitsFor {
        count: 1,
        some: vec![(id("runs"), JobState::Running)],
    };
    assert_eq!(why(&mut world, "blocked").1, [waits_for]);
    call(&mut world, "pause 8 q");
    assert_eq!(why(&mut world, "second").1, [Reason::QueuePaused, behind]);
    assert_eq!(world.refused(why_command("nobody")), "job_not_found");
}

fn why_command(jid: &str) -> Command {
    Command::Query(Box::new(Query::Why(Namespace::default(), id(jid))))
}

#[test]
fn a_job_of_ours_goes_before_one_of_qless_with_its_id() {
    let mut world = World::new();
    call(&mut world, "put 1 w q a k {} 0");
    world.ok(Command::Enqueue(Box::new(Enqueue {
        jobs: vec![NewJob {
            id: Some(id("a")),
            kind: Kind::from_static("ours"),
            ..NewJob::default()
        }],
        ..Enqueue::default()
    })));
    assert_eq!(find(&mut world, "a"), None);
}

#[test]
fn a_jid_or_queue_that_is_too_long_for_a_name_has_no_job_here() {
    let mut world = World::new();
    let long = "x".repeat(256);
    call(&mut world, &format!("put 1 w {long} a k {{}} 0"));
    assert_eq!(find(&mut world, "a"), None);
    assert_eq!(queues(&mut world), []);
}

fn queues(world: &mut World) -> Vec<ganger_types::reply::QueueView> {
    match world.ok(Command::Query(Box::new(Query::Queues(
        Namespace::default(),
        None,
        1_000,
    )))) {
        Reply::Queues(queues) => queues,
        other => panic!("{other:?}"),
    }
}

#[test]
fn its_queues_are_listed_and_those_of_one_name_are_added_up() {
    let mut world = World::new();
    for words in [
        "put 1 w q a k {} 0",
        "put 1 w q b k {} 0",
        "put 1 w q c k {} 60",
        "put 1 w q d k {} 0 depends [\"c\"]",
        "pop 2 q w 1",
        "put 1 w p e k {} 0",
        "recur 1 p r k {} interval 60 0",
        "pause 1 p",
    ] {
        call(&mut world, words);
    }
    let shown = queues(&mut world);
    let names: Vec<_> = shown.iter().map(|view| view.queue.to_text()).collect();
    assert_eq!(names, ["p", "q"]);
    assert!(shown[0].settings.paused);
    assert_eq!(shown[0].schedules, 1);
    let counts = shown[1].counts;
    assert_eq!(
        (
            counts.ready,
            counts.running,
            counts.scheduled,
            counts.blocked
        ),
        (1, 1, 1, 1)
    );
    world.ok(Command::Enqueue(Box::new(Enqueue {
        jobs: vec![NewJob {
            queue: Queue::from_static("q"),
            kind: Kind::from_static("ours"),
            ..NewJob::default()
        }],
        ..Enqueue::default()
    })));
    assert_eq!(queues(&mut world)[1].counts.ready, 2);
}

fn cancel(world: &mut World, jids: &[&str]) -> (u64, Vec<JobId>) {
    let command = Command::Cancel(Box::new(Cancel {
        namespace: Namespace::default(),
        jobs: Selection::Jobs(jids.iter().map(|jid| id(jid)).collect()),
        reason: String::new(),
    }));
    match world.ok(command) {
        Reply::Changed { count, skipped } => (count, skipped),
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_is_cancelled_with_the_messages_of_qless() {
    let mut world = World::new();
    call(&mut world, "put 1 w q a k {} 0");
    call(&mut world, "put 1 w q b k {} 0");
    call(&mut world, "pop 1 q w 1");
    let told = world.messages.len();
    assert_eq!(
        cancel(&mut world, &["a", "b", "nobody"]),
        (2, vec![id("nobody")])
    );
    let channels = world.messages[told..].iter();
    let channels: Vec<_> = channels
        .map(|(_, message)| message.channel.clone())
        .collect();
    assert_eq!(channels, ["ql:log", "ql:log", "ql:w:w"]);
    assert_eq!(find(&mut world, "a"), None);
    assert_eq!(find(&mut world, "b"), None);
    world.restart();
    assert_eq!(find(&mut world, "a"), None);
}

#[test]
fn one_that_is_complete_or_that_another_waits_for_is_not_cancelled() {
    let mut world = World::new();
    for words in [
        "put 1 w q done k {} 0",
        "pop 1 q w 1",
        "complete 1 done w q {}",
        "put 1 w q a k {} 0",
        "put 1 w q b k {} 0 depends [\"a\"]",
        "put 1 w q c k {} 0 depends [\"b\"]",
    ] {
        call(&mut world, words);
    }
    let all = vec![id("done"), id("a"), id("b")];
    assert_eq!(cancel(&mut world, &["done", "a", "b"]), (0, all));
    assert!(find(&mut world, "b").is_some());
    assert_eq!(cancel(&mut world, &["a", "b", "c"]), (3, Vec::new()));
}

#[test]
fn a_job_of_ours_that_has_ended_keeps_one_of_qless_with_its_id_from_being_cancelled() {
    let mut world = World::new();
    world.ok(Command::Enqueue(Box::new(Enqueue {
        jobs: vec![NewJob {
            id: Some(id("a")),
            kind: Kind::from_static("ours"),
            ..NewJob::default()
        }],
        ..Enqueue::default()
    })));
    assert_eq!(cancel(&mut world, &["a"]), (1, Vec::new()));
    call(&mut world, "put 1 w q a k {} 0");
    assert_eq!(cancel(&mut world, &["a"]), (0, vec![id("a")]));
    let jid = Bytes::from_static(b"a");
    let QlessReply::Text(_) = call(&mut world, "get 1 a") else {
        panic!("job {jid:?} of qless is gone");
    };
}
