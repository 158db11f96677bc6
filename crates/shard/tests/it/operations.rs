//! Operations go on by themselves, page by page, and after a restart.

use ganger_shard::Handle;
use ganger_types::command::{Enqueue, NewJob, StartOperation, StopOperation};
use ganger_types::limits::OPERATION_PAGE_MAX;
use ganger_types::operation::JobFilter;
use ganger_types::query::JobQuery;
use ganger_types::{
    Command, JobState, Kind, Namespace, OperationAction, OperationNumber, OperationRecord,
    OperationState, Tag,
};

use crate::kit::{Fault, TestShard};

fn filter() -> JobFilter {
    JobFilter {
        tags: vec![Tag::from_static("many")],
        ..JobFilter::default()
    }
}

fn cancel() -> StartOperation {
    StartOperation {
        namespace: Namespace::default(),
        action: OperationAction::Cancel,
        filter: filter(),
        created_before: None,
        at_most: None,
        spread_over: None,
        reason: String::new(),
        by: "a test".to_owned(),
    }
}

async fn enqueue(shard: &Handle, count: usize) {
    let job = NewJob {
        kind: Kind::from_static("k"),
        tags: vec![Tag::from_static("many")],
        ..NewJob::default()
    };
    let enqueue = Enqueue {
        jobs: vec![job; count],
        ..Enqueue::default()
    };
    let enqueued = shard.call(Command::Enqueue(Box::new(enqueue))).await;
    enqueued.expect("there is room");
}

/// Waits until the operation fulfils a condition.
async fn until(
    shard: &Handle,
    number: OperationNumber,
    is_met: impl Fn(&OperationRecord) -> bool,
) -> OperationRecord {
    let mut changes = shard.operation_changes();
    loop {
        changes.borrow_and_update();
        let record = shard.operation(&Namespace::default(), number).await;
        let record = record.expect("it is kept");
        if is_met(&record) {
            return record;
        }
        changes.changed().await.expect("the shard lives");
    }
}

fn has_ended(record: &OperationRecord) -> bool {
    record.state != OperationState::Running
}

async fn count(shard: &Handle, state: JobState) -> u64 {
    let query = JobQuery {
        states: state.into(),
        ..JobQuery::default()
    };
    shard.count(query).await.expect("it can be read")
}

#[tokio::test]
async fn an_operation_works_through_all_pages_and_leaves_later_jobs_out() {
    let world = TestShard::start().await;
    let shard = &world.handle;
    enqueue(shard, OPERATION_PAGE_MAX * 2 + 5).await;
    let begun = shard.start_operation(cancel()).await.expect("it begins");
    enqueue(shard, 3).await;
    let worker = tokio::spawn(shard.clone().work_operations());
    let end = until(shard, begun.number, has_ended).await;
    assert_eq!(end.state, OperationState::Done);
    let all = u64::try_from(OPERATION_PAGE_MAX * 2 + 5).expect("few");
    assert_eq!((end.matching, end.done, end.skipped), (Some(all), all, 0));
    assert_eq!(count(shard, JobState::Cancelled).await, all);
    assert_eq!(count(shard, JobState::Ready).await, 3);
    worker.abort();
}

#[tokio::test]
async fn an_operation_goes_on_after_a_restart_where_it_was() {
    let world = TestShard::start().await;
    enqueue(&world.handle, OPERATION_PAGE_MAX * 3).await;
    let begun = world.handle.start_operation(cancel()).await;
    let number = begun.expect("it begins").number;
    let worker = tokio::spawn(world.handle.clone().work_operations());
    let before = until(&world.handle, number, |record| record.done > 0).await;
    worker.abort();
    drop(worker.await);
    let world = world.restart().await;
    let shard = &world.handle;
    let after = shard.operation(&Namespace::default(), number).await;
    assert!(after.expect("it is kept").done >= before.done);
    let worker = tokio::spawn(shard.clone().work_operations());
    let end = until(shard, number, has_ended).await;
    let all = u64::try_from(OPERATION_PAGE_MAX * 3).expect("few");
    assert_eq!((end.done, end.skipped, end.failed), (all, 0, 0));
    worker.abort();
}

#[tokio::test]
async fn a_page_whose_commit_fails_is_worked_through_again_and_counted_once() {
    let world = TestShard::start().await;
    let shard = &world.handle;
    enqueue(shard, OPERATION_PAGE_MAX + 1).await;
    let begun = shard.start_operation(cancel()).await.expect("it begins");
    // Not one after the other: a second failure in a row is recovered after a pause, and the clock stands still.
    world
        .control
        .script(&[Fault::NotApplied, Fault::None, Fault::UnknownButThere]);
    let worker = tokio::spawn(shard.clone().work_operations());
    let end = until(shard, begun.number, has_ended).await;
    let all = u64::try_from(OPERATION_PAGE_MAX + 1).expect("few");
    assert_eq!((end.done, end.skipped), (all, 0));
    worker.abort();
}

#[tokio::test]
async fn an_operation_that_was_stopped_changes_nothing_more() {
    let world = TestShard::start().await;
    let shard = &world.handle;
    enqueue(shard, OPERATION_PAGE_MAX).await;
    let begun = shard.start_operation(cancel()).await.expect("it begins");
    let stop = StopOperation {
        namespace: Namespace::default(),
        number: begun.number,
        by: "a test".to_owned(),
    };
    shard.stop_operation(stop).await.expect("it runs");
    // The next operation shows that the task has seen both.
    let worker = tokio::spawn(shard.clone().work_operations());
    let next = StartOperation {
        at_most: Some(7),
        ..cancel()
    };
    let next = shard.start_operation(next).await.expect("it begins");
    let end = until(shard, next.number, has_ended).await;
    assert_eq!(end.done, 7);
    assert_eq!(count(shard, JobState::Cancelled).await, 7);
    let stopped = shard.operation(&Namespace::default(), begun.number).await;
    let stopped = stopped.expect("it is kept");
    assert_eq!((stopped.state, stopped.done), (OperationState::Stopped, 0));
    worker.abort();
}
