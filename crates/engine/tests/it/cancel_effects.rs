//! What a cancellation would lead to is what it leads to.

use std::collections::BTreeSet;

use ganger_types::command::{Dependency, NewEdge, NewInput, NewJob};
use ganger_types::query::Query;
use ganger_types::{CancelEffects, FailurePolicy, JobId, JobState, Namespace, Reply};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::{World, cancel, job, named, result_of};

fn effects(world: &mut World, id: &JobId) -> CancelEffects {
    match world.query(Query::CancelEffects(Namespace::default(), id.clone())) {
        Reply::CancelEffects(effects) => *effects,
        other => panic!("{other:?}"),
    }
}

fn policy() -> impl Strategy<Value = FailurePolicy> {
    prop_oneof![
        3 => Just(FailurePolicy::Fail),
        1 => Just(FailurePolicy::Wait),
        1 => Just(FailurePolicy::Ignore),
    ]
}

/// For each job the earlier jobs that it waits for.
type Waits = Vec<Vec<(Index, FailurePolicy)>>;

fn waits() -> impl Strategy<Value = Waits> {
    let edges = proptest::collection::vec((any::<Index>(), policy()), 0..4);
    proptest::collection::vec(edges, 1..12)
}

/// Two submissions: the first half of the jobs, and the others, which may wait for jobs of both.
fn build(world: &mut World, waits: &Waits) -> Vec<JobId> {
    let half = waits.len() / 2;
    let mut ids: Vec<JobId> = Vec::new();
    for range in [0..half, half..waits.len()] {
        let first = range.start;
        let jobs: Vec<NewJob> = range
            .map(|at| {
                let mut new = named(&format!("job-{at}"));
                for (index, policy) in waits[at].iter().filter(|_| at > 0) {
                    let on = index.index(at);
                    let dependency = match on.checked_sub(first) {
                        Some(member) => Dependency::Member(u32::try_from(member).expect("few")),
                        None => Dependency::Job(ids[on].clone()),
                    };
                    let policy = *policy;
                    new.inputs
                        .push(NewInput::Result(NewEdge { dependency, policy }));
                }
                new
            })
            .collect();
        if !jobs.is_empty() {
            ids.extend(world.enqueue(jobs));
        }
    }
    ids
}

proptest! {
    #[test]
    fn the_effects_are_those_of_the_cancellation(waits in waits(), chosen in any::<Index>()) {
        let mut world = World::new();
        let ids = build(&mut world, &waits);
        let id = &ids[chosen.index(ids.len())];
        let before = world.engine.dump();
        let foreseen = effects(&mut world, id);
        prop_assert_eq!(before, world.engine.dump());
        world.ok(cancel(std::slice::from_ref(id)));
        let now_in = |state: JobState| -> BTreeSet<&JobId> {
            let others = ids.iter().filter(|other| *other != id);
            others.filter(|other| world.state(other) == Some(state)).collect()
        };
        prop_assert_eq!(foreseen.cancelled.jobs.iter().collect::<BTreeSet<_>>(), now_in(JobState::Cancelled));
        prop_assert_eq!(foreseen.failed.jobs.iter().collect::<BTreeSet<_>>(), now_in(JobState::Failed));
        for waiting in &foreseen.waiting.jobs {
            prop_assert_eq!(world.state(waiting), Some(JobState::Blocked));
        }
        for going_on in &foreseen.continuing.jobs {
            prop_assert!(!world.state(going_on).is_none_or(JobState::is_terminal));
        }
        prop_assert!(foreseen.is_complete);
    }
}

#[test]
fn each_way_of_being_affected_is_named() {
    let mut world = World::new();
    let ids = world.enqueue(vec![
        job(),
        NewJob {
            inputs: vec![result_of(0, FailurePolicy::Fail)],
            ..job()
        },
        NewJob {
            inputs: vec![result_of(0, FailurePolicy::Wait)],
            ..job()
        },
        NewJob {
            inputs: vec![result_of(0, FailurePolicy::Ignore)],
            ..job()
        },
        job(),
        NewJob {
            inputs: vec![
                result_of(0, FailurePolicy::Fail),
                result_of(4, FailurePolicy::Fail),
            ],
            ..job()
        },
    ]);
    let found = effects(&mut world, &ids[0]);
    assert_eq!(found.state, JobState::Ready);
    assert_eq!(found.failed.jobs, [ids[1].clone(), ids[5].clone()]);
    assert_eq!(found.failed.count, 2);
    assert_eq!(found.waiting.jobs, [ids[2].clone()]);
    assert_eq!(found.continuing.jobs, [ids[3].clone()]);
    // Only the second failed job needed it.
    assert_eq!(found.cancelled.jobs, [ids[4].clone()]);
}

#[test]
fn a_job_that_has_ended_would_not_change() {
    let mut world = World::new();
    let id = world.enqueue_one(job());
    world.ok(cancel(std::slice::from_ref(&id)));
    let found = effects(&mut world, &id);
    assert_eq!(found.state, JobState::Cancelled);
    assert_eq!(found.failed.count + found.cancelled.count, 0);
    let unknown = Query::CancelEffects(Namespace::default(), JobId::new("none").expect("short"));
    let refused = world.refused(ganger_types::Command::Query(Box::new(unknown)));
    assert_eq!(refused, "job_not_found");
}
