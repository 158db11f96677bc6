//! Idempotency keys: the repeat of a submission gets the answer of the first one (`rel P1`).

#![allow(
    clippy::unwrap_used,
    clippy::items_after_statements,
    clippy::unchecked_time_subtraction,
    reason = "a test that unwraps wrongly fails, as it should"
)]

use crate::support::{World, job, named, secs, submit};
use ganger_types::command::{Alter, Delete, Dependency, Enqueue, NewEdge, NewJob, Unique};
use ganger_types::{
    Command, FailurePolicy, IdempotencyKey, JobId, LabelKey, LabelValue, Namespace, Queue, Reply,
    Tag, UniqueKey,
};

fn claimed(jobs: Vec<NewJob>) -> Command {
    Command::Enqueue(Box::new(Enqueue {
        jobs,
        idempotency_key: Some(IdempotencyKey::from_static("k")),
        ..Enqueue::default()
    }))
}

fn answer(world: &mut World, jobs: Vec<NewJob>) -> (Vec<JobId>, bool) {
    let Reply::Enqueued { jobs, repeat, .. } = world.ok(claimed(jobs)) else {
        panic!("an enqueue is answered with jobs");
    };
    (jobs.into_iter().map(|job| job.id).collect(), repeat)
}

fn unique() -> NewJob {
    NewJob {
        unique: Some(Unique {
            key: UniqueKey::from_static("one"),
            window: None,
        }),
        ..job()
    }
}

/// Jobs with engine-made and client-given ids, and jobs that exist already by id or by unique key.
fn mixed() -> Vec<NewJob> {
    let given = |id| named(id);
    vec![
        job(),
        job(),
        given("a"),
        given("there before"),
        given("b"),
        unique(),
        unique(),
        job(),
    ]
}

#[test]
fn a_repeat_gives_the_same_ids_in_the_same_order_from_client_and_engine() {
    let mut world = World::new();
    let holder = world.enqueue_one(unique());
    world.enqueue_one(named("there before"));
    let (first, false) = answer(&mut world, mixed()) else {
        panic!("it is the first");
    };
    assert_eq!((&first[5], &first[6]), (&holder, &holder));
    assert_eq!(answer(&mut world, mixed()), (first.clone(), true));
    world.restart();
    assert_eq!(answer(&mut world, mixed()), (first.clone(), true));

    // This also holds after the jobs have ended and their unique key is free again.
    for grant in world.lease("w", 10) {
        world.complete(&grant).unwrap();
    }
    assert_eq!(answer(&mut world, mixed()), (first.clone(), true));
    world.restart();
    assert_eq!(answer(&mut world, mixed()), (first, true));
}

#[test]
fn another_content_under_the_key_is_refused() {
    let mut world = World::new();
    answer(&mut world, mixed());
    let mut fewer = mixed();
    fewer.pop();
    let mut renamed = mixed();
    renamed[2] = named("c");
    let mut made = mixed();
    made[2] = job();
    for other in [fewer, renamed, made, vec![job()]] {
        assert_eq!(world.refused(claimed(other)), "idempotency_conflict");
    }
}

#[test]
fn an_empty_id_is_refused_and_uses_no_key() {
    let mut world = World::new();
    assert_eq!(world.refused(claimed(vec![named("")])), "id_empty");
    let (_, repeat) = answer(&mut world, vec![job()]);
    assert!(!repeat);
}

#[test]
fn empty_names_are_refused() {
    let mut world = World::new();
    let no_queue = NewJob {
        queue: Queue::from_static(""),
        ..job()
    };
    let no_tag = NewJob {
        tags: vec![Tag::from_static("")],
        ..job()
    };
    let no_label = NewJob {
        labels: vec![(LabelKey::from_static(""), LabelValue::from_static("v"))],
        ..job()
    };
    let no_key = NewJob {
        unique: Some(Unique {
            key: UniqueKey::from_static(""),
            window: None,
        }),
        ..job()
    };
    for nameless in [no_queue, no_tag, no_label, no_key] {
        assert_eq!(world.refused(submit(vec![nameless])), "out_of_range");
    }
    let no_answer = Enqueue {
        jobs: vec![job()],
        idempotency_key: Some(IdempotencyKey::from_static("")),
        ..Enqueue::default()
    };
    let no_answer = Command::Enqueue(Box::new(no_answer));
    assert_eq!(world.refused(no_answer), "out_of_range");
    // A job cannot be moved to such a queue later either.
    let (there, _) = answer(&mut world, vec![job()]);
    let moved = Alter {
        job: there.into_iter().next(),
        queue: Some(Queue::from_static("")),
        ..Alter::default()
    };
    let moved = Command::Alter(Box::new(moved));
    assert_eq!(world.refused(moved), "out_of_range");
}

#[test]
fn a_key_is_free_again_after_a_day_also_over_a_restart() {
    let mut world = World::new();
    let (first, _) = answer(&mut world, vec![job()]);
    world.restart();
    world.pass(secs(86_399));
    assert_eq!(answer(&mut world, vec![job()]), (first.clone(), true));
    world.pass(secs(1));
    let (second, repeat) = answer(&mut world, vec![job()]);
    assert!(!repeat && second != first);
}

#[test]
fn a_thousand_made_ids_are_kept_as_one_run() {
    let mut world = World::new();
    let many = || vec![job(); 1_000];
    let (first, _) = answer(&mut world, many());
    let record = world.rows.idempotency_records.values().next().unwrap();
    assert_eq!(record.answer.jobs.runs().len(), 1);
    world.restart();
    assert_eq!(answer(&mut world, many()), (first, true));
}

/// A job that waits for the job "dependency", whatever its outcome.
fn behind(mut job: NewJob) -> NewJob {
    job.after.push(NewEdge {
        dependency: Dependency::Job(JobId::new("dependency").expect("short")),
        policy: FailurePolicy::Ignore,
    });
    job
}

#[test]
fn rel_g7_a_repeat_whose_dependency_is_deleted_by_now_is_answered() {
    let mut world = World::new();
    let dependency = world.enqueue_one(named("dependency"));
    world.enqueue(vec![behind(named("a")), behind(unique())]);
    world.ok(Command::Delete(Delete {
        namespace: Namespace::default(),
        jobs: vec![dependency],
    }));

    let reply = world.ok(submit(vec![behind(named("a")), job()]));
    let Reply::Enqueued { jobs, .. } = reply else {
        panic!("an enqueue is answered with jobs");
    };
    let existed: Vec<bool> = jobs.iter().map(|job| job.existed).collect();
    assert_eq!(existed, [true, false]);
    // Only a client-given id identifies a repeat of the same job.
    let by_unique_key = submit(vec![behind(unique()), job()]);
    assert_eq!(world.refused(by_unique_key), "dependency_not_found");
}
