//! Moves of jobs of qless, by any client, are events like those of other jobs.

#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use crate::support::World;
use ganger_engine::{Effects, PrefetchedRows};
use ganger_types::command::{
    Cancel, Complete, Enqueue, Fail, Lease, LeaseRef, NewJob, Release, Retry, Selection, TakeFrom,
};
use ganger_types::qless::{Generation, QlessRequest};
use ganger_types::{
    Bytes, Command, Event, Grant, Group, Happening, JobId, JobState, Kind, Namespace, QlessCall,
    Queue, Reply, Worker,
};

fn request(request: QlessRequest) -> Command {
    Command::from(QlessCall {
        namespace: Namespace::default(),
        request,
    })
}

/// A call at the world's time plus `after` seconds.
fn script(world: &World, after: u64, words: &str) -> Command {
    let now = world.now.wall.0 / 1_000_000 + after;
    let words = words.split(' ').map(str::to_owned);
    let mut words: Vec<Bytes> = words.map(Bytes::from).collect();
    words.insert(1, Bytes::from(now.to_string()));
    request(QlessRequest::Script {
        generation: Generation::Three,
        words,
    })
}

fn shown(event: &Event) -> String {
    match &event.happening {
        Happening::JobMoved {
            job,
            queue,
            kind,
            from,
            to,
            attempt,
            worker,
            reason,
            ..
        } => {
            let from = from.map_or("new", JobState::as_str);
            let worker = worker.as_ref().map_or(String::new(), |it| format!(" {it}"));
            let reason = if reason.is_empty() {
                String::new()
            } else {
                format!(" ({reason})")
            };
            format!("{job} {queue} {kind}: {from} > {to} {attempt}{worker}{reason}")
        }
        Happening::JobRemoved { job, queue, .. } => format!("{job} {queue} removed"),
        other => format!("{other:?}"),
    }
}

/// The events of an accepted command, a line for each.
fn told_by(world: &mut World, command: Command) -> Vec<String> {
    let told = world.events.len();
    world.ok(command);
    let events = world.events[told..].iter();
    let of_workers = |event: &&Event| {
        let happening = &event.happening;
        !matches!(happening, Happening::WorkerSeen { .. })
    };
    events.filter(of_workers).map(shown).collect()
}

fn told(world: &mut World, after: u64, words: &str) -> Vec<String> {
    let command = script(world, after, words);
    told_by(world, command)
}

#[test]
fn from_put_to_end_each_move_is_reported_once_with_worker_and_queue() {
    let mut world = World::new();
    let (at, namespace) = (world.now.wall, Namespace::default());
    assert_eq!(
        told(&mut world, 0, "put w q a mail {} 60"),
        ["a q mail: new > scheduled 0"]
    );
    let event = world.events.last().expect("there is one");
    assert_eq!((event.at, &event.namespace), (at, &namespace));
    let steps: [(u64, &str, &[&str]); 9] = [
        (1, "priority a 5", &[]),
        (
            2,
            "put w q b mail {} 0 depends [\"a\"]",
            &["b q mail: new > blocked 0"],
        ),
        // The job is due, so the pop makes it ready and hands it out in one step.
        (61, "pop q v 1", &["a q mail: scheduled > running 1 v"]),
        (62, "tag add a x", &[]),
        (
            63,
            "retry a q v 0 bad why",
            &["a q mail: running > ready 1 v (bad)"],
        ),
        (64, "pop q w 1", &["a q mail: ready > running 2 w"]),
        (
            65,
            "complete a w q {} next p",
            &["a p mail: running > ready 2 w"],
        ),
        (66, "pop p w 1", &["a p mail: ready > running 3 w"]),
        (
            67,
            "complete a w p {}",
            &[
                "a p mail: running > succeeded 3 w",
                "b q mail: blocked > ready 0",
            ],
        ),
    ];
    for (after, words, expected) in steps {
        assert_eq!(told(&mut world, after, words), expected, "{words}");
    }
}

#[test]
fn events_of_failures_have_their_group_and_events_of_retries_say_so() {
    let mut world = World::new();
    told(&mut world, 0, "put w q a k {} 0 retries 0");
    told(&mut world, 0, "pop q w 1");
    assert_eq!(
        told(&mut world, 1, "fail a w bad why"),
        ["a q k: running > failed 1 w (bad)"]
    );
    assert_eq!(
        told(&mut world, 2, "unfail q bad 10"),
        ["a q k: failed > ready 1 (retried)"]
    );
    told(&mut world, 3, "pop q w 1");
    // The lock expired: first there is a warning and a grace period, then no retry is left.
    assert!(told(&mut world, 100, "pop q v 1").is_empty());
    assert_eq!(
        told(&mut world, 200, "pop q v 1"),
        ["a q k: running > failed 2 w (failed-retries-q)"]
    );
    assert_eq!(
        told(&mut world, 201, "put w p a k {} 0"),
        ["a p k: failed > ready 2 (retried)"]
    );
}

#[test]
fn a_job_whose_lock_expired_or_that_was_timed_out_is_reported_as_such() {
    let mut world = World::new();
    told(&mut world, 0, "put w q a k {} 0");
    told(&mut world, 0, "pop q w 1");
    assert_eq!(
        told(&mut world, 1, "timeout a"),
        ["a q k: running > ready 1 w (timed out by hand)"]
    );
    told(&mut world, 2, "pop q w 1");
    told(&mut world, 100, "pop q v 1");
    assert_eq!(
        told(&mut world, 200, "pop q v 1"),
        ["a q k: running > running 3 v (lease-expired)"]
    );
}

#[test]
fn a_removal_is_reported_and_so_is_an_earlier_completion() {
    let mut world = World::new();
    told(&mut world, 0, "put w q a k {} 0");
    assert_eq!(told(&mut world, 1, "cancel a"), ["a q removed"]);
    told(&mut world, 2, "put w q b k {} 0");
    told(&mut world, 2, "pop q w 1");
    assert!(told(&mut world, 3, "config.set jobs-history-count 0").is_empty());
    assert_eq!(
        told(&mut world, 4, "complete b w q {}"),
        ["b q k: running > succeeded 1 w", "b q removed"]
    );
}

#[test]
fn a_throttle_that_holds_jobs_up_moves_none() {
    let mut world = World::new();
    told(&mut world, 0, "throttle.set t 1 0");
    told(&mut world, 0, "put w q a k {} 0 throttles [\"t\"]");
    told(&mut world, 0, "pop q w 1");
    let put = told(&mut world, 1, "put w q b k {} 0 throttles [\"t\"]");
    assert_eq!(put, ["b q k: new > ready 0"]);
    let complete = told(&mut world, 2, "complete a w q {}");
    assert_eq!(complete, ["a q k: running > succeeded 1 w"]);
}

#[test]
fn neither_clearing_a_database_nor_a_restart_emits_events() {
    let mut world = World::new();
    told(&mut world, 0, "put w q a k {} 0");
    let count = world.events.len();
    world.restart();
    assert_eq!(world.events.len(), count);
    assert!(told_by(&mut world, request(QlessRequest::Clear)).is_empty());
    assert_eq!(
        told(&mut world, 1, "put w q a k {} 0"),
        ["a q k: new > ready 0"]
    );
}

#[test]
fn jobs_that_cannot_be_shown_have_no_events() {
    let mut world = World::new();
    let long = "x".repeat(256);
    let put = format!("put w q {long} k {{}} 0");
    assert!(told(&mut world, 0, &put).is_empty());
    let put = format!("put w {long} a k {{}} 0");
    assert!(told(&mut world, 0, &put).is_empty());
    let put = format!("put w q {} k {{}} 0", "x".repeat(255));
    assert_eq!(told(&mut world, 0, &put).len(), 1);
    // A live job of the engine with the same id hides it.
    world.ok(Command::Enqueue(Box::new(Enqueue {
        jobs: vec![NewJob {
            id: Some(id("b")),
            kind: Kind::from_static("ours"),
            ..NewJob::default()
        }],
        ..Enqueue::default()
    })));
    assert!(told(&mut world, 1, "put w q b k {} 0").is_empty());
}

fn id(text: &str) -> JobId {
    JobId::new(text).expect("short")
}

fn lease() -> Command {
    Command::Lease(Box::new(Lease {
        queues: vec![TakeFrom {
            queue: Queue::from_static("q"),
            weight: 1,
        }],
        worker: Some(Worker::from_static("ours")),
        jobs_max: 1,
        lease_for: Some(Duration::from_secs(20)),
        ..Lease::default()
    }))
}

fn take(world: &mut World) -> Grant {
    match world.ok(lease()) {
        Reply::Leased(mut grants) => grants.remove(0),
        other => panic!("{other:?}"),
    }
}

fn held(grant: &Grant) -> LeaseRef {
    LeaseRef {
        namespace: grant.namespace.clone(),
        job: grant.job.clone(),
        token: grant.token,
    }
}

#[test]
fn our_own_commands_tell_of_them_too() {
    let mut world = World::new();
    told(&mut world, 0, "put w q a k {} 0");
    assert_eq!(
        told_by(&mut world, lease()),
        ["a q k: ready > running 1 ours"]
    );
    told(&mut world, 0, "timeout a");
    let grant = take(&mut world);
    let release = Release {
        held: held(&grant),
        delay: Duration::from_secs(5),
        counted: false,
        by_server: false,
        keep_place: false,
        reason: String::new(),
    };
    assert_eq!(
        told_by(&mut world, Command::Release(Box::new(release))),
        ["a q k: running > scheduled 2 ours"]
    );
    world.pass(Duration::from_secs(6));
    let grant = take(&mut world);
    let fail = Fail {
        held: held(&grant),
        group: Group::from_static("bad"),
        message: "why".to_owned(),
        permanent: true,
        retry_after: None,
        lost: false,
    };
    assert_eq!(
        told_by(&mut world, Command::Fail(Box::new(fail))),
        ["a q k: running > failed 3 ours (bad)"]
    );
    let retry = Retry {
        namespace: Namespace::default(),
        jobs: vec![id("a")],
        queue: None,
        dependents: false,
        graph: None,
    };
    assert_eq!(
        told_by(&mut world, Command::Retry(Box::new(retry))),
        ["a q k: failed > ready 3 (retried)"]
    );
    let grant = take(&mut world);
    let complete = Command::Complete(Box::new(Complete {
        held: held(&grant),
        result: Some(Bytes::from_static(b"result")),
        next: None,
    }));
    assert_eq!(
        told_by(&mut world, complete.clone()),
        ["a q k: running > succeeded 4 ours"]
    );
    assert!(told_by(&mut world, complete).is_empty(), "a repeat");
    told(&mut world, 10, "put w q b k {} 0");
    let cancel = Cancel {
        namespace: Namespace::default(),
        jobs: Selection::Jobs(vec![id("b")]),
        reason: String::new(),
    };
    assert_eq!(
        told_by(&mut world, Command::Cancel(Box::new(cancel))),
        ["b q removed"]
    );
}

#[test]
fn calls_of_one_turn_are_reported_one_by_one_in_order() {
    let mut world = World::new();
    let mut out = Effects::default();
    for words in ["put w q a k {} 0", "pop q w 1", "complete a w q {}"] {
        let command = script(&world, 0, words);
        let answer = world
            .engine
            .apply(world.now, command, &PrefetchedRows::default(), &mut out);
        answer.expect("accepted");
    }
    let lines: Vec<_> = out.events.iter().map(shown).collect();
    let expected = [
        "a q k: new > ready 0",
        "a q k: ready > running 1 w",
        "a q k: running > succeeded 1 w",
    ];
    assert_eq!(lines, expected);
    let positions: Vec<_> = out.events.iter().map(|event| event.position.0).collect();
    assert_eq!(positions, [1, 2, 3]);
    world.settle(out);
}
