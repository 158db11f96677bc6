//! Operations: a page and its progress are one turn, what is done with a job is what its command does, and records are
//! kept for seven days.

use std::time::Duration;

use ganger_types::command::{
    Enqueue, NewInput, NewJob, OperationStep, StartOperation, StopOperation, WorkOperation,
};
use ganger_types::limits::{OPERATION_KEPT_FOR, OPERATIONS_RUNNING_MAX, TAGS_MAX};
use ganger_types::operation::{AlteredFields, JobFilter};
use ganger_types::query::Query;
use ganger_types::reply::JobWork;
use ganger_types::*;

use crate::support::{World, cancel, fail, job, lease, named, result_of, secs};

fn filter() -> JobFilter {
    JobFilter {
        kind: Some(Kind::from_static("echo")),
        ..JobFilter::default()
    }
}

fn operation(action: OperationAction) -> StartOperation {
    StartOperation {
        namespace: Namespace::default(),
        action,
        filter: filter(),
        created_before: None,
        at_most: None,
        spread_over: None,
        reason: "cleaning up".to_owned(),
        by: "a person".to_owned(),
    }
}

fn start(world: &mut World, start: StartOperation) -> OperationRecord {
    match world.ok(Command::StartOperation(Box::new(start))) {
        Reply::Operation(record) => *record,
        other => panic!("{other:?}"),
    }
}

fn work(record: &OperationRecord, step: OperationStep) -> Command {
    Command::WorkOperation(Box::new(WorkOperation {
        namespace: record.namespace.clone(),
        number: record.number,
        step,
    }))
}

fn page(record: &OperationRecord, jobs: &[JobId], next: Option<u64>) -> Command {
    let step = OperationStep::Page {
        after: record.cursor.clone(),
        jobs: jobs.to_vec(),
        next: next.map(|key| PageCursor::Job(JobKey(key))),
    };
    work(record, step)
}

fn worked(world: &mut World, command: Command) -> (OperationRecord, Vec<JobWork>) {
    match world.ok(command) {
        Reply::OperationWorked { operation, jobs } => {
            (*operation, jobs.into_iter().map(|(_, work)| work).collect())
        }
        other => panic!("{other:?}"),
    }
}

fn shown(world: &mut World, number: OperationNumber) -> Option<OperationRecord> {
    let query = Query::Operation(Namespace::default(), number);
    match world.run(Command::Query(Box::new(query))) {
        Ok(Reply::Operation(record)) => Some(*record),
        Err(Rejection::OperationNotFound { .. }) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_page_changes_its_jobs_and_the_progress_in_one_turn() {
    let mut world = World::new();
    let ids = world.enqueue(vec![job(), job(), job()]);
    let begun = start(&mut world, operation(OperationAction::Cancel));
    assert_eq!(
        (begun.state, begun.matching),
        (OperationState::Running, None)
    );
    let (counted, _) = worked(&mut world, work(&begun, OperationStep::Counted(3)));
    let (half, works) = worked(&mut world, page(&counted, &ids[..2], Some(1)));
    assert_eq!(works, [JobWork::Done, JobWork::Done]);
    assert_eq!((half.done, half.state), (2, OperationState::Running));
    assert_eq!(world.rows.operations[&half.number], half);
    assert_eq!(world.state(&ids[0]), Some(JobState::Cancelled));
    assert_eq!(world.state(&ids[2]), Some(JobState::Ready));
    world.restart();
    let (end, _) = worked(&mut world, page(&half, &ids[2..], None));
    assert_eq!((end.done, end.state), (3, OperationState::Done));
    assert_eq!(end.ended_at, Some(world.now.wall));
    world.restart();
    assert_eq!(shown(&mut world, end.number), Some(end));
}

#[test]
fn a_page_that_is_not_the_next_one_changes_nothing() {
    let mut world = World::new();
    let ids = world.enqueue(vec![job(), job()]);
    let begun = start(&mut world, operation(OperationAction::Cancel));
    let first = page(&begun, &ids[..1], Some(0));
    let (after, _) = worked(&mut world, first.clone());
    let before = world.engine.dump();
    assert_eq!(worked(&mut world, first), (after.clone(), Vec::new()));
    assert_eq!(before, world.engine.dump());
    let stop = StopOperation {
        namespace: Namespace::default(),
        number: after.number,
        by: "a person".to_owned(),
    };
    world.ok(Command::StopOperation(stop));
    let (stopped, works) = worked(&mut world, page(&after, &ids[1..], None));
    assert_eq!((stopped.state, works.len()), (OperationState::Stopped, 0));
    assert_eq!(stopped.message, "stopped by a person");
    assert_eq!(world.state(&ids[1]), Some(JobState::Ready));
}

#[test]
fn what_cannot_be_changed_is_counted_and_listed_with_its_reason() {
    let mut world = World::new();
    let ids = world.enqueue(vec![job(), job()]);
    world.ok(cancel(&ids[..1]));
    let begun = start(&mut world, operation(OperationAction::Cancel));
    let gone = JobId::new("gone").expect("short");
    let jobs = [ids[0].clone(), gone, ids[1].clone()];
    let (end, _) = worked(&mut world, page(&begun, &jobs, None));
    assert_eq!((end.done, end.skipped, end.failed), (1, 2, 0));
    let reasons: Vec<&str> = end.left_out.iter().map(|out| out.reason.as_str()).collect();
    assert_eq!(reasons, ["it is cancelled", "it is gone"]);
}

#[test]
fn a_retry_puts_a_job_back_after_the_job_that_it_waits_for() {
    let mut world = World::new();
    let ids = world.enqueue(vec![
        named("first"),
        NewJob {
            inputs: vec![result_of(0, FailurePolicy::Fail)],
            ..named("next")
        },
    ]);
    world.ok(cancel(&ids[..1]));
    assert_eq!(world.state(&ids[1]), Some(JobState::Failed));
    let begun = start(
        &mut world,
        operation(OperationAction::Retry { queue: None }),
    );
    let (end, works) = worked(&mut world, page(&begun, &ids, None));
    assert_eq!(works, [JobWork::Done, JobWork::Done]);
    assert_eq!(end.done, 2);
    assert_eq!(world.state(&ids[0]), Some(JobState::Ready));
    assert_eq!(world.state(&ids[1]), Some(JobState::Blocked));
    let again = start(
        &mut world,
        operation(OperationAction::Retry { queue: None }),
    );
    let (end, _) = worked(&mut world, page(&again, &ids, None));
    assert_eq!((end.done, end.skipped), (0, 2));
}

#[test]
fn jobs_are_removed_and_altered_as_by_their_commands() {
    let mut world = World::new();
    let ids = world.enqueue(vec![job(), job()]);
    let fields = AlteredFields {
        priority: Priority::whole(7),
        queue: Some(Queue::from_static("later")),
        tags_added: vec![Tag::from_static("late")],
        ..AlteredFields::default()
    };
    let begun = start(&mut world, operation(OperationAction::Alter(fields)));
    let (end, _) = worked(&mut world, page(&begun, &ids, None));
    assert_eq!(end.done, 2);
    let altered = world.rows.jobs.values().next().expect("it lives");
    assert_eq!(altered.queue, Queue::from_static("later"));
    assert_eq!(altered.tags, [Tag::from_static("late")]);
    let begun = start(&mut world, operation(OperationAction::Delete));
    let (end, _) = worked(&mut world, page(&begun, &ids, None));
    assert_eq!((end.done, end.state), (2, OperationState::Done));
    assert_eq!(world.state(&ids[0]), None);
}

#[test]
fn a_change_that_breaks_a_limit_is_a_failure_and_no_skip() {
    let mut world = World::new();
    let tags = (0..TAGS_MAX).map(|number| Tag::new(format!("tag-{number}")).expect("short"));
    let ids = world.enqueue(vec![NewJob {
        tags: tags.collect(),
        ..job()
    }]);
    let fields = AlteredFields {
        tags_added: vec![Tag::from_static("one more")],
        ..AlteredFields::default()
    };
    let begun = start(&mut world, operation(OperationAction::Alter(fields)));
    let (end, _) = worked(&mut world, page(&begun, &ids, None));
    assert_eq!((end.done, end.skipped, end.failed), (0, 0, 1));
    assert!(end.left_out[0].reason.contains("100"), "{end:?}");
}

/// A graph of `first`, on which `fails` and `goes_on` depend with these policies, and `last`, which depends on both.
fn graph(world: &mut World) -> (Graph, Vec<JobId>) {
    let after = |name: &str, inputs: Vec<NewInput>| NewJob {
        inputs,
        ..named(name)
    };
    let (fail, ignore) = (FailurePolicy::Fail, FailurePolicy::Ignore);
    let jobs = vec![
        named("first"),
        after("fails", vec![result_of(0, fail)]),
        after("goes_on", vec![result_of(0, ignore)]),
        after("last", vec![result_of(1, fail), result_of(2, fail)]),
    ];
    let submission = Enqueue {
        jobs,
        graph: true,
        ..Enqueue::default()
    };
    match world.ok(Command::Enqueue(Box::new(submission))) {
        Reply::Enqueued { jobs, graph, .. } => {
            let ids = jobs.into_iter().map(|job| job.id);
            (graph.expect("it is one"), ids.collect())
        }
        other => panic!("{other:?}"),
    }
}

fn states(world: &World, ids: &[JobId]) -> Vec<Option<JobState>> {
    ids.iter().map(|id| world.state(id)).collect()
}

#[test]
fn a_graph_that_is_cancelled_page_by_page_ends_as_by_one_command() {
    for pages in [&[1, 3][..], &[4], &[2, 2], &[1, 1, 1, 1]] {
        let mut world = World::new();
        let (graph, ids) = graph(&mut world);
        let mut new = operation(OperationAction::Cancel);
        new.filter = JobFilter {
            graph: Some(graph),
            states: JobStates::LIVE,
            ..JobFilter::default()
        };
        let mut record = start(&mut world, new);
        let mut rest = &ids[..];
        for size in pages {
            let (jobs, later) = rest.split_at(*size);
            rest = later;
            // The jobs that have ended meanwhile are not found any more.
            let live = jobs.iter().filter(|id| {
                let state = world.state(id).expect("it is kept");
                !state.is_terminal()
            });
            let live: Vec<JobId> = live.cloned().collect();
            let next = (!rest.is_empty()).then_some(0);
            let command = page(&record, &live, next);
            record = worked(&mut world, command).0;
            world.restart();
        }
        let cancelled = vec![Some(JobState::Cancelled); 4];
        assert_eq!(states(&world, &ids), cancelled, "pages of {pages:?}");
        assert_eq!((record.done, record.skipped), (4, 0), "pages of {pages:?}");
        assert_eq!(record.state, OperationState::Done);
    }
}

#[test]
fn an_operation_with_a_ceiling_leaves_the_other_members_to_their_policies() {
    let mut world = World::new();
    let (graph, ids) = graph(&mut world);
    let mut new = operation(OperationAction::Cancel);
    new.at_most = Some(1);
    new.filter = JobFilter {
        graph: Some(graph),
        ..JobFilter::default()
    };
    let record = start(&mut world, new);
    let (end, _) = worked(&mut world, page(&record, &ids, None));
    assert_eq!(end.done, 1);
    let failed = [JobState::Cancelled, JobState::Failed].map(Some);
    assert_eq!(states(&world, &ids[..2]), failed);
}

#[test]
fn a_member_that_fails_by_itself_takes_its_dependents_into_the_cancellation() {
    let mut world = World::new();
    let (graph, ids) = graph(&mut world);
    let grant = world.lease_one("w");
    let mut new = operation(OperationAction::Cancel);
    new.filter = JobFilter {
        graph: Some(graph),
        ..JobFilter::default()
    };
    let record = start(&mut world, new);
    world.ok(fail(&grant, true));
    let expected = [
        JobState::Failed,
        JobState::Cancelled,
        JobState::Cancelled,
        JobState::Cancelled,
    ];
    assert_eq!(states(&world, &ids), expected.map(Some));
    let counted = shown(&mut world, record.number).expect("it is kept");
    assert_eq!(
        counted.done, 3,
        "jobs that ended outside of a page count too"
    );
    assert_eq!(world.rows.operations[&record.number], counted);
}

#[test]
fn no_more_jobs_are_changed_than_allowed() {
    let mut world = World::new();
    let ids = world.enqueue(vec![job(), job(), job()]);
    let bounded = StartOperation {
        at_most: Some(2),
        ..operation(OperationAction::Cancel)
    };
    let begun = start(&mut world, bounded);
    let (end, works) = worked(&mut world, page(&begun, &ids, Some(2)));
    assert_eq!((end.done, works.len()), (2, 2));
    assert_eq!(end.state, OperationState::Done);
    assert_eq!(world.state(&ids[2]), Some(JobState::Ready));
}

#[test]
fn jobs_of_later_are_left_out() {
    let mut world = World::new();
    world.enqueue(vec![job()]);
    let begun = start(&mut world, operation(OperationAction::Cancel));
    let late = world.enqueue_one(job());
    let key = late.parts().expect("made here").0;
    assert!(key >= begun.end, "{key} is not before {}", begun.end);
    let bound = begun.filter.created_before.expect("there is one");
    assert_eq!(bound, world.now.wall.after(Duration::from_micros(1)));
    let earlier = StartOperation {
        created_before: Some(Timestamp(5)),
        ..operation(OperationAction::Cancel)
    };
    let begun = start(&mut world, earlier);
    assert_eq!(begun.filter.created_before, Some(Timestamp(5)));
}

#[test]
fn operations_without_a_meaning_are_refused() {
    let mut world = World::new();
    let refused = |world: &mut World, bad: StartOperation| {
        world.refused(Command::StartOperation(Box::new(bad)))
    };
    let cancel = || operation(OperationAction::Cancel);
    for bad in [
        StartOperation {
            filter: JobFilter::default(),
            ..cancel()
        },
        StartOperation {
            at_most: Some(0),
            ..cancel()
        },
        StartOperation {
            spread_over: Some(secs(8 * 86_400)),
            ..cancel()
        },
    ] {
        assert_eq!(refused(&mut world, bad), "out_of_range");
    }
    for _ in 0..OPERATIONS_RUNNING_MAX {
        start(&mut world, cancel());
    }
    assert_eq!(refused(&mut world, cancel()), "too_large");
    let unknown = StopOperation {
        namespace: Namespace::from_static("other"),
        number: OperationNumber(1),
        by: String::new(),
    };
    let code = world.refused(Command::StopOperation(unknown));
    assert_eq!(code, "operation_not_found");
}

#[test]
fn an_operation_is_forgotten_after_seven_days_and_its_number_stays_taken() {
    let mut world = World::new();
    let first = start(&mut world, operation(OperationAction::Cancel));
    worked(&mut world, page(&first, &[], None));
    world.pass(secs(60));
    let second = start(&mut world, operation(OperationAction::Cancel));
    assert_eq!(second.number.0, first.number.0 + 1);
    worked(&mut world, page(&second, &[], None));
    world.pass(OPERATION_KEPT_FOR.saturating_sub(secs(60)));
    assert_eq!(shown(&mut world, first.number), None);
    assert!(shown(&mut world, second.number).is_some());
    world.pass(OPERATION_KEPT_FOR);
    assert!(
        shown(&mut world, second.number).is_some(),
        "it is the newest"
    );
    world.restart();
    world.advance();
    let third = start(&mut world, operation(OperationAction::Cancel));
    assert_eq!(third.number.0, second.number.0 + 1);
    assert_eq!(shown(&mut world, second.number), None);
    world.restart();
}

#[test]
fn the_newest_operation_is_forgotten_although_the_wall_clock_is_set_back_after_its_time() {
    let mut world = World::new();
    let first = start(&mut world, operation(OperationAction::Cancel));
    worked(&mut world, page(&first, &[], None));
    let right = world.now.wall;
    world.now.wall = right.after(OPERATION_KEPT_FOR * 2);
    world.advance();
    assert!(
        shown(&mut world, first.number).is_some(),
        "it is the newest"
    );
    world.now.wall = right;
    world.advance();
    start(&mut world, operation(OperationAction::Cancel));
    assert!(shown(&mut world, first.number).is_some());
    world.pass(OPERATION_KEPT_FOR);
    assert_eq!(shown(&mut world, first.number), None);
}

#[test]
fn running_jobs_lose_their_leases_and_the_page_stays_within_its_namespace() {
    let mut world = World::new();
    let ids = world.enqueue(vec![job()]);
    world.ok(lease("w", &["default"], 1));
    let begun = start(&mut world, operation(OperationAction::Cancel));
    let (end, _) = worked(&mut world, page(&begun, &ids, None));
    assert_eq!(end.done, 1);
    assert!(world.rows.leases.is_empty());
}

#[test]
fn the_newest_records_of_the_audit_log_are_kept_in_order() {
    use ganger_types::audit::AuditQuery;
    use ganger_types::command::KeepAudit;
    use ganger_types::limits::AUDIT_KEPT_MAX;

    let mut world = World::new();
    let record = |who: &str| AuditRecord {
        who: who.to_owned(),
        what: "cancelJob".to_owned(),
        outcome: "done".to_owned(),
        ..AuditRecord::default()
    };
    let records = vec![record("ann"); AUDIT_KEPT_MAX];
    world.ok(Command::KeepAudit(KeepAudit { records }));
    let records = vec![record("bob"), record("ann")];
    world.ok(Command::KeepAudit(KeepAudit { records }));
    assert_eq!(world.rows.audit_log.len(), AUDIT_KEPT_MAX);
    world.restart();
    let mut ask = |query: AuditQuery| match world.query(Query::AuditLog(query)) {
        Reply::AuditLog(records, next) => {
            let numbers: Vec<u64> = records.iter().map(|record| record.number).collect();
            (numbers, next)
        }
        other => panic!("{other:?}"),
    };
    let newest = u64::try_from(AUDIT_KEPT_MAX).expect("small") + 2;
    let page = AuditQuery {
        limit: 2,
        ..AuditQuery::default()
    };
    assert_eq!(
        ask(page.clone()),
        (vec![newest, newest - 1], Some(newest - 1))
    );
    let of_bob = AuditQuery {
        who: Some("bob".to_owned()),
        ..page
    };
    assert_eq!(ask(of_bob), (vec![newest - 1], None));
}
