//! Operators: pause, limit, cancel, delete, retry, alter, dependencies, retention, schedules.

use std::time::Duration;

use ganger_types::command::{
    AddDependencies, Alter, Cancel, ConfigureNamespace, ConfigureQueue, Delete, ForgetQueue,
    OperationStep, PauseSchedule, PutSchedule, QueueChange, RemoveDependencies, RemoveSchedule,
    Retry, RunSchedule, Selection, StartOperation, StopOperation, TimeOut, WorkOperation,
};
use ganger_types::limits::SCHEDULE_EVERY_MIN;
use ganger_types::operation::{AlteredFields, JobFilter};
use ganger_types::query::Query;
use ganger_types::{
    Bytes, CatchUp, Command, DueOrder, FailurePolicy, JobId, JobKey, Keep, Namespace,
    NamespaceSettings, Now, OperationAction, Overlap, PageCursor, Priority, QueueSettings,
    Retention, ScheduleRecord, ScheduleSpec,
};

use super::{KnownIds, names, producer};
use crate::plan::{Feature, Pace, Plan};
use crate::rng::Rng;

const ACTS: &[Feature] = &[
    Feature::Pauses,
    Feature::Limits,
    Feature::Cancels,
    Feature::Deletes,
    Feature::Retries,
    Feature::Alters,
    Feature::HandTimeOuts,
    Feature::Dependencies,
    Feature::Retention,
    Feature::Schedules,
    Feature::Namespaces,
];

/// The next command of an operator; `None` if this run does not have the drawn feature.
pub(crate) fn act(plan: &Plan, known: &KnownIds, rng: &mut Rng, now: Now) -> Option<Command> {
    let feature = *rng.pick(ACTS);
    if !plan.does(feature) {
        return None;
    }
    let namespace = names::namespace(plan, rng);
    let queue = names::queue(plan, rng);
    let may_be_many = matches!(
        feature,
        Feature::Cancels | Feature::Deletes | Feature::Retries | Feature::Alters
    );
    if may_be_many && plan.does(Feature::Operations) && rng.chance(400) {
        return operation(feature, known, rng, namespace);
    }
    Some(match feature {
        Feature::Pauses => {
            let change = QueueChange::Paused(rng.chance(400));
            Command::ConfigureQueue(Box::new(ConfigureQueue {
                namespace,
                queue,
                change,
            }))
        }
        Feature::Limits => limits(plan, rng, namespace),
        Feature::Cancels => cancel(known, rng, namespace)?,
        Feature::Deletes => {
            let jobs = some_ids(known, rng, &namespace, 3)?;
            Command::Delete(Delete { namespace, jobs })
        }
        Feature::Retries => {
            let jobs = some_ids(known, rng, &namespace, 3)?;
            let queue = rng.chance(200).then_some(queue);
            let dependents = jobs.len() != 2;
            Command::Retry(Box::new(Retry {
                namespace,
                jobs,
                queue,
                dependents,
                graph: None,
            }))
        }
        Feature::Alters => alter(plan, known, rng, namespace, now)?,
        Feature::HandTimeOuts => {
            let jobs = some_ids(known, rng, &namespace, 2)?;
            Command::TimeOut(TimeOut { namespace, jobs })
        }
        Feature::Dependencies => dependencies(known, rng, namespace)?,
        Feature::Schedules => schedule(plan, rng, namespace, now),
        Feature::Retention => retention(plan, rng, namespace),
        _ if rng.chance(300) => Command::ForgetQueue(ForgetQueue { namespace, queue }),
        _ => retention(plan, rng, namespace),
    })
}

/// Starts an operation, works through a page of one, or stops one. The shard's own task would send the pages of jobs
/// that match; here they are any jobs, and the page may be one that was sent before.
fn operation(
    feature: Feature,
    known: &KnownIds,
    rng: &mut Rng,
    namespace: Namespace,
) -> Option<Command> {
    if namespace == names::callers() {
        return None;
    }
    let mut theirs = known.operations.iter();
    let theirs: Vec<_> = theirs
        .by_ref()
        .filter(|record| record.namespace == namespace)
        .collect();
    if theirs.is_empty() || rng.chance(200) {
        let action = match feature {
            Feature::Cancels => OperationAction::Cancel,
            Feature::Deletes => OperationAction::Delete,
            Feature::Retries => OperationAction::Retry { queue: None },
            _ => OperationAction::Alter(AlteredFields {
                priority: Priority::whole(i64::from(rng.small(5)) - 2),
                ..AlteredFields::default()
            }),
        };
        return Some(Command::StartOperation(Box::new(StartOperation {
            namespace,
            action,
            filter: JobFilter {
                kind: Some(names::kind(rng)),
                ..JobFilter::default()
            },
            created_before: None,
            at_most: rng.chance(200).then(|| rng.within(1, 6)),
            spread_over: None,
            reason: "cancelled".to_owned(),
            by: "an operator".to_owned(),
        })));
    }
    let record = theirs[rng.index(theirs.len())];
    let number = record.number;
    if rng.chance(50) {
        let by = "an operator".to_owned();
        return Some(Command::StopOperation(StopOperation {
            namespace,
            number,
            by,
        }));
    }
    let next = PageCursor::Job(JobKey(known.counter));
    let step = OperationStep::Page {
        after: record.cursor.clone(),
        jobs: some_ids(known, rng, &namespace, 4)?,
        next: rng.chance(800).then_some(next),
    };
    Some(Command::WorkOperation(Box::new(WorkOperation {
        namespace,
        number,
        step,
    })))
}

/// The next query of a reader.
pub(crate) fn read(plan: &Plan, known: &KnownIds, rng: &mut Rng) -> Command {
    let namespace = names::namespace(plan, rng);
    let query = match rng.below(6) {
        0 => Query::Queues(namespace, None, 100),
        1 => Query::Queue(namespace, names::queue(plan, rng)),
        2 => Query::Workers(namespace, None, 100),
        3 => Query::Audit,
        _ => match rng.maybe(&known.ids) {
            Some((namespace, id)) => Query::Why(namespace.clone(), id.clone()),
            None => Query::Schedules(namespace),
        },
    };
    Command::Query(Box::new(query))
}

fn some_ids(
    known: &KnownIds,
    rng: &mut Rng,
    namespace: &Namespace,
    most: usize,
) -> Option<Vec<JobId>> {
    let known: Vec<&JobId> = known
        .ids
        .iter()
        .filter(|(other, _)| other == namespace)
        .map(|(_, id)| id)
        .collect();
    if known.is_empty() {
        return None;
    }
    let count = rng.index(most) + 1;
    let mut ids: Vec<JobId> = Vec::new();
    for _ in 0..count {
        let id = known[rng.index(known.len())].clone();
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Some(ids)
}

fn limits(plan: &Plan, rng: &mut Rng, namespace: Namespace) -> Command {
    let settings = QueueSettings {
        running_max: rng.chance(600).then(|| rng.small(3)),
        live_max: rng.chance(200).then(|| rng.within(1, 20)),
        lease_for: rng
            .chance(300)
            .then(|| rng.millis(100, plan.lease_ms * 2 + 100)),
        grace_for: (plan.does(Feature::Graces) && rng.chance(300))
            .then(|| rng.millis(1, plan.lease_ms)),
        retry: rng.chance(200).then(|| producer::retry(plan, rng)),
        due_order: if rng.chance(300) {
            DueOrder::Ahead
        } else {
            DueOrder::Behind
        },
        ..QueueSettings::default()
    };
    let queue = names::queue(plan, rng);
    let change = QueueChange::All(settings);
    Command::ConfigureQueue(Box::new(ConfigureQueue {
        namespace,
        queue,
        change,
    }))
}

fn cancel(known: &KnownIds, rng: &mut Rng, namespace: Namespace) -> Option<Command> {
    let reason = "cancelled".to_owned();
    if rng.chance(300) {
        let (namespace, graph) = rng.maybe(&known.graphs)?.clone();
        let jobs = Selection::Graph(graph);
        return Some(Command::Cancel(Box::new(Cancel {
            namespace,
            jobs,
            reason,
        })));
    }
    let jobs = Selection::Jobs(some_ids(known, rng, &namespace, 4)?);
    Some(Command::Cancel(Box::new(Cancel {
        namespace,
        jobs,
        reason,
    })))
}

fn alter(
    plan: &Plan,
    known: &KnownIds,
    rng: &mut Rng,
    namespace: Namespace,
    now: Now,
) -> Option<Command> {
    let job = some_ids(known, rng, &namespace, 1)?.pop();
    let mut alter = Alter {
        namespace,
        job,
        ..Alter::default()
    };
    match rng.below(6) {
        0 => alter.priority = Priority::whole(i64::from(rng.small(5)) - 2),
        1 => alter.queue = Some(names::queue(plan, rng)),
        2 => alter.start = Some(producer::start(plan, rng, now)),
        3 => alter.payload = Some(Bytes::from_static(b"altered")),
        4 => {
            alter.tags_added = vec![names::tag(rng)];
            alter.tracked = Some(rng.chance(500));
        }
        _ => {
            alter.tags_removed = vec![names::tag(rng)];
            alter.note = Some(("noted".to_owned(), String::new()));
        }
    }
    Some(Command::Alter(Box::new(alter)))
}

fn dependencies(known: &KnownIds, rng: &mut Rng, namespace: Namespace) -> Option<Command> {
    let job = some_ids(known, rng, &namespace, 1)?.pop()?;
    let on = some_ids(known, rng, &namespace, 2)?;
    if rng.chance(600) {
        let policy = *rng.pick(&[FailurePolicy::Fail, FailurePolicy::Ignore]);
        return Some(Command::AddDependencies(AddDependencies {
            namespace,
            job,
            on,
            policy,
        }));
    }
    let on = rng.chance(600).then_some(on);
    Some(Command::RemoveDependencies(RemoveDependencies {
        namespace,
        job,
        on,
    }))
}

fn keep(plan: &Plan, rng: &mut Rng) -> Keep {
    Keep {
        age: rng.chance(600).then(|| rng.millis(1, plan.lease_ms * 30)),
        count: rng.chance(500).then(|| rng.below(6)),
    }
}

fn retention(plan: &Plan, rng: &mut Rng, namespace: Namespace) -> Command {
    let retention = Retention {
        succeeded: keep(plan, rng),
        failed: keep(plan, rng),
        cancelled: keep(plan, rng),
    };
    if rng.chance(500) {
        let settings = QueueSettings {
            retention: Some(retention),
            ..QueueSettings::default()
        };
        let (queue, change) = (names::queue(plan, rng), QueueChange::All(settings));
        return Command::ConfigureQueue(Box::new(ConfigureQueue {
            namespace,
            queue,
            change,
        }));
    }
    let settings = NamespaceSettings {
        clock: names::clock(&namespace),
        retention,
        lease_for: Duration::from_millis(plan.lease_ms),
        retry: producer::retry(plan, rng),
        lease_expirations_in_a_row_max: rng.small(4),
        live_max: rng.chance(100).then(|| rng.within(5, 60)),
        ..NamespaceSettings::default()
    };
    Command::ConfigureNamespace(Box::new(ConfigureNamespace {
        namespace,
        settings,
    }))
}

fn schedule(plan: &Plan, rng: &mut Rng, namespace: Namespace, now: Now) -> Command {
    let id = names::schedule(plan, rng);
    match rng.below(1_000) {
        0..250 => return Command::RemoveSchedule(RemoveSchedule { namespace, id }),
        250..400 => return Command::RunSchedule(RunSchedule { namespace, id }),
        400..500 => {
            let is_paused = rng.chance(500);
            return Command::PauseSchedule(PauseSchedule {
                namespace,
                id,
                is_paused,
            });
        }
        _ => {}
    }
    // If days pass between steps, a schedule that fires every minute would make far too many jobs.
    let is_sparse = plan.pace == Pace::Sparse;
    let spec = if rng.chance(600) {
        let factor = if is_sparse { 100 } else { 1 };
        ScheduleSpec::Interval {
            every: (rng.millis(plan.lease_ms / 2 + 50, plan.lease_ms * 6 + 50) * factor)
                .max(SCHEDULE_EVERY_MIN),
            first_at: now.wall.after(rng.millis(1, plan.lease_ms * 2)),
        }
    } else {
        let expressions = ["0 * * * *", "*/5 * * * *", "* * * * *"];
        let usual = if is_sparse {
            &expressions[..1]
        } else {
            &expressions
        };
        let expression = (*rng.pick(usual)).to_owned();
        ScheduleSpec::Cron {
            expression,
            time_zone: "UTC".to_owned(),
        }
    };
    let catch_up = *rng.pick(&[
        CatchUp::None,
        CatchUp::Last,
        CatchUp::All { max: 3 },
        CatchUp::All { max: 0 },
        CatchUp::All { max: 1 },
    ]);
    let schedule = ScheduleRecord {
        namespace,
        id,
        spec,
        catch_up,
        overlap: *rng.pick(&[Overlap::Allow, Overlap::Skip, Overlap::Replace]),
        paused: rng.chance(100),
        queue: names::queue(plan, rng),
        kind: names::kind(rng),
        payload: Bytes::from_static(b"by schedule"),
        priority: Priority::default(),
        retry: None,
        timeout: None,
        tags: Vec::new(),
        labels: Vec::new(),
        created_at: now.wall,
        next_at: None,
        runs: 0,
        last_job: None,
    };
    Command::PutSchedule(Box::new(PutSchedule { schedule }))
}
