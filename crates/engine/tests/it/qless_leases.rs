//! Workers of the engine run jobs of qless: leased by its pop, reported as its commands, under ordinary lease tokens.

#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use crate::support::{START, World};
use ganger_types::command::{
    AppendLog, Complete, ConfigureNamespace, ConfigureQueue, Enqueue, Fail, Lease, LeaseRef,
    NewJob, Next, QueueChange, Release, Renew, TakeFrom,
};
use ganger_types::qless::{Generation, QlessReply, QlessRequest};
use ganger_types::query::Query;
use ganger_types::reply::ExternalJobView;
use ganger_types::{
    Bytes, Command, ExternalReply, Grant, Group, JobId, JobState, Kind, Namespace,
    NamespaceSettings, QlessCall, Queue, Reply, RequestId, Worker,
};

/// Calls qless at the world's time plus `after` seconds.
fn call(world: &mut World, after: u64, words: &str) -> QlessReply {
    let now = world.now.wall.0 / 1_000_000 + after;
    let words = words.split(' ').map(str::to_owned);
    let mut words: Vec<Bytes> = words.map(Bytes::from).collect();
    words.insert(1, Bytes::from(now.to_string()));
    let command = Command::from(QlessCall {
        namespace: Namespace::default(),
        request: QlessRequest::Script {
            generation: Generation::Three,
            words,
        },
    });
    match world.ok(command) {
        Reply::External(ExternalReply::Qless(Ok(reply))) => reply,
        other => panic!("{other:?}"),
    }
}

fn show(world: &mut World, jid: &str) -> ExternalJobView {
    let id = JobId::new(jid).expect("short");
    let query = Query::ExternalJob(Namespace::default(), id);
    match world.ok(Command::Query(Box::new(query))) {
        Reply::ExternalJob(found) => *found.expect("it is there"),
        other => panic!("{other:?}"),
    }
}

fn request(worker: &'static str, jobs_max: u32) -> Lease {
    Lease {
        queues: vec![TakeFrom {
            queue: Queue::from_static("q"),
            weight: 1,
        }],
        worker: Some(Worker::from_static(worker)),
        jobs_max,
        lease_for: Some(Duration::from_secs(20)),
        ..Lease::default()
    }
}

fn take(world: &mut World, lease: Lease) -> Vec<Grant> {
    match world.ok(Command::Lease(Box::new(lease))) {
        Reply::Leased(grants) => grants,
        other => panic!("{other:?}"),
    }
}

fn take_one(world: &mut World) -> Grant {
    let mut grants = take(world, request("ours", 1));
    assert_eq!(grants.len(), 1);
    grants.remove(0)
}

fn held(grant: &Grant) -> LeaseRef {
    LeaseRef {
        namespace: grant.namespace.clone(),
        job: grant.job.clone(),
        token: grant.token,
    }
}

fn complete(grant: &Grant) -> Command {
    Command::Complete(Box::new(Complete {
        held: held(grant),
        result: Some(Bytes::from_static(b"result")),
        next: None,
    }))
}

fn fail(grant: &Grant, permanent: bool, retry_after: u64) -> Command {
    Command::Fail(Box::new(Fail {
        held: held(grant),
        group: Group::from_static("bad"),
        message: "why".to_owned(),
        permanent,
        retry_after: Some(Duration::from_secs(retry_after)),
        lost: false,
    }))
}

fn release(grant: &Grant) -> Command {
    Command::Release(Box::new(Release {
        held: held(grant),
        delay: Duration::ZERO,
        counted: false,
        by_server: false,
        keep_place: false,
        reason: String::new(),
    }))
}

fn renew(grant: &Grant, seconds: u64) -> Command {
    Command::Renew(Box::new(Renew {
        held: held(grant),
        lease_for: Some(Duration::from_secs(seconds)),
        progress: None,
        payload: None,
    }))
}

fn reported(world: &mut World, command: Command) -> (JobState, bool) {
    match world.ok(command) {
        Reply::Reported { state, repeat, .. } => (state, repeat),
        other => panic!("{other:?}"),
    }
}

#[test]
fn jobs_of_ours_come_first_and_those_of_qless_fill_up() {
    let mut world = World::new();
    call(&mut world, 0, "put w q a mail {\"n\":1} 0 priority 5");
    call(&mut world, 0, "put w q b mail {} 0");
    world.ok(Command::Enqueue(Box::new(Enqueue {
        jobs: vec![NewJob {
            queue: Queue::from_static("q"),
            kind: Kind::from_static("ours"),
            ..NewJob::default()
        }],
        ..Enqueue::default()
    })));
    let grants = take(&mut world, request("ours", 2));
    assert_eq!(grants[0].kind, Kind::from_static("ours"));
    let grant = &grants[1];
    assert_eq!(grant.job, JobId::new("a").expect("short"));
    assert_eq!(grant.kind, Kind::from_static("mail"));
    assert_eq!((grant.attempt, grant.retries_left), (1, 5));
    assert_eq!(grant.lease_for, Duration::from_secs(20));
    let payload = world.engine.external_payload(grant);
    assert_eq!(payload, Some("{\"n\":1}".into()));
    let lease = show(&mut world, "a").lease.expect("it runs");
    assert_eq!(lease.worker, Worker::from_static("ours"));
    assert_eq!(lease.granted_at, world.now.wall);
}

#[test]
fn a_job_is_completed_with_the_messages_of_qless_and_a_repeat_is_answered_alike() {
    let mut world = World::new();
    call(&mut world, 0, "put w q a k {\"n\":1} 0");
    call(&mut world, 0, "track track a");
    call(&mut world, 0, "put w q b k {} 0 depends [\"a\"]");
    let grant = take_one(&mut world);
    world.restart();
    let told = world.messages.len();
    assert_eq!(
        reported(&mut world, complete(&grant)),
        (JobState::Succeeded, false)
    );
    let channels = world.messages[told..].iter();
    let channels: Vec<_> = channels
        .map(|(_, message)| message.channel.clone())
        .collect();
    assert_eq!(channels, ["ql:completed", "ql:log"]);
    let job = show(&mut world, "a");
    assert_eq!(job.payload, "{\"n\":1}");
    assert_eq!(job.result, Some("result".into()));
    let finished = job.record.finished.expect("it has ended");
    assert_eq!(finished.result_bytes, Some(6));
    assert_eq!(show(&mut world, "b").record.state, JobState::Ready);
    world.restart();
    assert_eq!(
        reported(&mut world, complete(&grant)),
        (JobState::Succeeded, true)
    );
    assert_eq!(world.refused(fail(&grant, true, 0)), "report_conflict");
    assert_eq!(world.refused(renew(&grant, 5)), "lease_lost");
}

#[test]
fn a_result_is_kept_until_the_job_is_put_again_and_a_next_queue_gets_none() {
    let mut world = World::new();
    call(&mut world, 0, "put w q a k {} 0");
    let grant = take_one(&mut world);
    assert_eq!(show(&mut world, "a").result, None);
    reported(&mut world, complete(&grant));
    world.restart();
    assert_eq!(show(&mut world, "a").result, Some("result".into()));
    call(&mut world, 1, "put w q a k {} 0");
    let job = show(&mut world, "a");
    assert_eq!((job.result, job.record.finished), (None, None));

    let grant = take_one(&mut world);
    let on = Command::Complete(Box::new(Complete {
        held: held(&grant),
        result: Some(Bytes::from_static(b"result")),
        next: Some(Next {
            queue: Queue::from_static("q"),
            delay: Duration::ZERO,
            after: Vec::new(),
            payload: None,
        }),
    }));
    assert_eq!(reported(&mut world, on), (JobState::Ready, false));
    let grant = take_one(&mut world);
    let without = Command::Complete(Box::new(Complete {
        held: held(&grant),
        result: None,
        next: None,
    }));
    reported(&mut world, without);
    let job = show(&mut world, "a");
    let finished = job.record.finished.expect("it has ended");
    assert_eq!((job.result, finished.result_bytes), (None, None));
}

#[test]
fn a_result_that_is_larger_than_the_namespace_allows_is_refused() {
    let mut world = World::new();
    world.ok(Command::ConfigureNamespace(Box::new(ConfigureNamespace {
        namespace: Namespace::default(),
        settings: NamespaceSettings {
            payload_bytes_max: 5,
            ..NamespaceSettings::default()
        },
    })));
    call(&mut world, 0, "put w q a k {} 0");
    let grant = take_one(&mut world);
    assert_eq!(world.refused(complete(&grant)), "too_large");
    assert_eq!(show(&mut world, "a").record.state, JobState::Running);
}

#[test]
fn a_lost_attempt_is_tried_again_at_once_as_after_a_failure() {
    let mut world = World::new();
    call(&mut world, 0, "put w q a k {} 0 retries 1");
    let grant = take_one(&mut world);
    let Command::Fail(mut report) = fail(&grant, true, 500) else {
        panic!()
    };
    report.lost = true;
    let report = Command::Fail(report);
    assert_eq!(
        reported(&mut world, report.clone()),
        (JobState::Ready, false)
    );
    assert_eq!(reported(&mut world, report), (JobState::Ready, true));
    assert_eq!(take_one(&mut world).retries_left, 0);
}

#[test]
fn a_job_goes_on_in_another_queue_with_another_payload_that_must_be_json() {
    let mut world = World::new();
    call(&mut world, 0, "put w q a k {} 0");
    let grant = take_one(&mut world);
    let next = |payload: &'static str| {
        Command::Complete(Box::new(Complete {
            held: held(&grant),
            result: None,
            next: Some(Next {
                queue: Queue::from_static("p"),
                delay: Duration::from_secs(5),
                after: Vec::new(),
                payload: Some(payload.into()),
            }),
        }))
    };
    assert_eq!(world.refused(next("no json")), "out_of_range");
    assert_eq!(
        reported(&mut world, next("[1]")),
        (JobState::Scheduled, false)
    );
    let job = show(&mut world, "a");
    assert_eq!(job.payload, "[1]");
    assert_eq!(job.record.queue, Queue::from_static("p"));
}

#[test]
fn a_failure_retries_as_qless_does_until_its_retries_are_used_up_or_fails_for_good() {
    let mut world = World::new();
    call(&mut world, 0, "put w q a k {} 0 retries 1");
    let grant = take_one(&mut world);
    assert_eq!(
        reported(&mut world, fail(&grant, false, 30)),
        (JobState::Scheduled, false)
    );
    assert_eq!(
        reported(&mut world, fail(&grant, false, 30)),
        (JobState::Scheduled, true)
    );
    assert_eq!(take(&mut world, request("ours", 1)), []);
    world.pass(Duration::from_secs(31));
    let again = take_one(&mut world);
    assert_eq!((again.attempt, again.retries_left), (2, 0));
    assert_eq!(
        reported(&mut world, fail(&again, false, 0)),
        (JobState::Failed, false)
    );
    let failure = show(&mut world, "a").record.failure.expect("it failed");
    assert_eq!(
        (failure.group, &*failure.message),
        (Group::from_static("bad"), "why")
    );
    call(&mut world, 0, "put w q b k {} 0");
    let grant = take_one(&mut world);
    assert_eq!(
        reported(&mut world, fail(&grant, true, 0)),
        (JobState::Failed, false)
    );
}

#[test]
fn a_job_is_given_back_without_costing_a_retry() {
    let mut world = World::new();
    call(&mut world, 0, "put w q a k {} 0 retries 0");
    for attempt in 1..4 {
        let grant = take_one(&mut world);
        assert_eq!((grant.attempt, grant.retries_left), (attempt, 0));
        assert_eq!(
            reported(&mut world, release(&grant)),
            (JobState::Ready, false)
        );
    }
}

#[test]
fn a_lease_is_renewed_and_lost_once_somebody_else_has_the_job() {
    let mut world = World::new();
    call(&mut world, 0, "config.set grace-period 0");
    call(&mut world, 0, "put w q a k {} 0");
    let grant = take_one(&mut world);
    assert_eq!(
        world.ok(renew(&grant, 40)),
        Reply::Renewed {
            lease_for: Duration::from_secs(40)
        }
    );
    world.pass(Duration::from_secs(45));
    // The lock has expired, but no other worker has the job: as for workers of qless, the lease is still live.
    assert_eq!(
        world.ok(renew(&grant, 20)),
        Reply::Renewed {
            lease_for: Duration::from_secs(20)
        }
    );
    call(&mut world, 30, "pop q theirs 1");
    for command in [
        complete(&grant),
        fail(&grant, false, 0),
        release(&grant),
        renew(&grant, 1),
    ] {
        assert_eq!(world.refused(command), "lease_lost");
    }
    world.pass(Duration::from_secs(120));
    let ours = take_one(&mut world);
    assert_eq!(ours.attempt, 3);
    call(&mut world, 0, "complete a ours q {}");
    assert_eq!(world.refused(complete(&ours)), "lease_lost");
}

#[test]
fn a_request_that_is_repeated_gets_the_same_jobs() {
    let mut world = World::new();
    for jid in ["a", "b", "c"] {
        call(&mut world, 0, &format!("put w q {jid} k {{}} 0"));
    }
    let named = Lease {
        request: Some(RequestId::from_static("r")),
        ..request("ours", 2)
    };
    let first = take(&mut world, named.clone());
    assert_eq!(first.len(), 2);
    world.restart();
    let again = take(&mut world, named);
    let tokens = |grants: &[Grant]| {
        let mut tokens: Vec<_> = grants.iter().map(|grant| grant.token).collect();
        tokens.sort();
        tokens
    };
    assert_eq!(tokens(&first), tokens(&again));
    assert_eq!(take(&mut world, request("ours", 2)).len(), 1);
}

#[test]
fn limits_and_pauses_of_either_side_apply_to_workers_of_the_engine() {
    let mut world = World::new();
    call(&mut world, 0, "put w q a k {} 0");
    let pause = |paused| {
        Command::ConfigureQueue(Box::new(ConfigureQueue {
            namespace: Namespace::default(),
            queue: Queue::from_static("q"),
            change: QueueChange::Paused(paused),
        }))
    };
    world.ok(pause(true));
    assert_eq!(take(&mut world, request("ours", 1)), []);
    world.ok(pause(false));
    call(&mut world, 0, "pause q");
    assert_eq!(take(&mut world, request("ours", 1)), []);
    call(&mut world, 0, "unpause q");
    call(&mut world, 0, "config.set q-max-concurrency 1");
    call(&mut world, 0, "put w q b k {} 0");
    assert_eq!(take(&mut world, request("ours", 2)).len(), 1);
}

#[test]
fn a_call_that_makes_a_job_ready_wakes_those_who_wait() {
    let mut world = World::new();
    let (namespace, queue) = (Namespace::default(), Queue::from_static("q"));
    assert_eq!(world.engine.leasable(&namespace, &queue), 0);
    call(&mut world, 0, "put w q a k {} 0");
    assert_eq!(
        world.engine.take_woken(),
        [(namespace.clone(), queue.clone())]
    );
    assert!(world.engine.leasable(&namespace, &queue) > 0);
    let grant = take_one(&mut world);
    world.engine.take_woken();
    assert_eq!(world.engine.leasable(&namespace, &queue), 0);
    world.ok(release(&grant));
    assert_eq!(world.engine.take_woken(), [(namespace, queue)]);
}

#[test]
fn the_log_of_a_program_is_dropped_and_the_answer_says_so() {
    let mut world = World::new();
    call(&mut world, 0, "put w q a k {} 0");
    let grant = take_one(&mut world);
    let log = Command::AppendLog(Box::new(AppendLog {
        held: held(&grant),
        offset: 0,
        bytes: Bytes::from_static(b"text"),
    }));
    let dropped = Reply::LogAppended {
        bytes: 0,
        dropped: 4,
    };
    assert_eq!(world.ok(log), dropped);
}

#[test]
fn a_jid_that_is_too_long_stays_with_workers_of_qless() {
    let mut world = World::new();
    assert_eq!(world.now.wall.0, START);
    let long = "x".repeat(256);
    call(&mut world, 0, &format!("put w q {long} k {{}} 0"));
    world.engine.take_woken();
    assert_eq!(take(&mut world, request("ours", 1)), []);
    assert_eq!(
        world.engine.take_woken(),
        [],
        "or it would be tried forever"
    );
    let QlessReply::Text(job) = call(&mut world, 0, &format!("get {long}")) else {
        panic!("it is gone");
    };
    let job = String::from_utf8_lossy(&job).into_owned();
    assert!(job.contains(r#""state":"waiting""#), "{job}");
}
