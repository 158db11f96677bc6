//! The outcome of a cascade depends on the graph, not on the order or the numbers of its jobs (`rel G6`).

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps wrongly fails, as it should"
)]

use crate::support::*;
use ganger_types::command::*;
use ganger_types::*;
use proptest::prelude::*;

/// A graph of named jobs, each of which waits for some earlier ones.
#[derive(Clone, Debug)]
struct Shape {
    /// Dependencies and failure policies of each job.
    edges: Vec<Vec<(usize, FailurePolicy)>>,
    /// Whether the job belongs to a second graph, submitted after the first.
    is_second: Vec<bool>,
    /// Jobs that are cancelled together.
    named: Vec<usize>,
}

fn policy() -> impl Strategy<Value = FailurePolicy> {
    prop_oneof![
        4 => Just(FailurePolicy::Fail),
        1 => Just(FailurePolicy::Ignore),
        1 => Just(FailurePolicy::Wait),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    (3_usize..9).prop_flat_map(|count| {
        let edge = (0..100_usize, policy());
        let edges = proptest::collection::vec(proptest::collection::vec(edge, 0..4), count);
        let is_second = proptest::collection::vec(proptest::bool::weighted(0.3), count);
        let named = proptest::collection::vec(0..count, 1..3);
        (edges, is_second, named).prop_map(|(mut edges, is_second, named)| {
            for (job, edges) in edges.iter_mut().enumerate() {
                edges.retain(|_| job > 0);
                for (dependency, _) in edges.iter_mut() {
                    *dependency %= job;
                }
                // The first graph is submitted before the second and cannot wait for it.
                edges.retain(|(dependency, _)| is_second[job] || !is_second[*dependency]);
                edges.sort_by_key(|(dependency, _)| *dependency);
                edges.dedup_by_key(|(dependency, _)| *dependency);
            }
            Shape {
                edges,
                is_second,
                named,
            }
        })
    })
}

/// Submits the jobs of one graph in the given order; `ids` has those that exist already.
fn submit_graph(world: &mut World, shape: &Shape, members: &[usize], ids: &mut [Option<JobId>]) {
    let edge = |(dependency, policy): &(usize, FailurePolicy)| {
        let place = members.iter().position(|member| member == dependency);
        let dependency = place.map_or_else(
            || Dependency::Job(ids[*dependency].clone().unwrap()),
            |place| Dependency::Member(u32::try_from(place).unwrap()),
        );
        NewInput::Result(NewEdge {
            dependency,
            policy: *policy,
        })
    };
    let jobs: Vec<NewJob> = members
        .iter()
        .map(|member| NewJob {
            inputs: shape.edges[*member].iter().map(edge).collect(),
            ..job()
        })
        .collect();
    if jobs.is_empty() {
        return;
    }
    let Command::Enqueue(mut cmd) = submit(jobs) else {
        unreachable!("a submission")
    };
    cmd.graph = true;
    let Reply::Enqueued { jobs, .. } = world.ok(Command::Enqueue(cmd)) else {
        panic!("it is answered with its jobs")
    };
    for (member, answered) in members.iter().zip(jobs) {
        ids[*member] = Some(answered.id);
    }
}

/// The state of each job, by name, after the named ones were cancelled.
fn ends(shape: &Shape, order: &[usize], is_reversed: bool) -> Vec<Option<JobState>> {
    let mut world = World::new();
    let mut ids = vec![None; shape.edges.len()];
    for second in [false, true] {
        let members: Vec<usize> = order
            .iter()
            .copied()
            .filter(|member| shape.is_second[*member] == second)
            .collect();
        submit_graph(&mut world, shape, &members, &mut ids);
    }
    let mut named: Vec<JobId> = shape
        .named
        .iter()
        .map(|member| ids[*member].clone().unwrap())
        .collect();
    if is_reversed {
        named.reverse();
    }
    world.ok(cancel(&named));
    ids.iter()
        .map(|id| world.state(id.as_ref().unwrap()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn rel_g6_the_order_of_jobs_does_not_change_how_they_end(
        shape in shape(),
        keys in proptest::collection::vec(any::<u32>(), 9),
    ) {
        let straight: Vec<usize> = (0..shape.edges.len()).collect();
        let mut mixed = straight.clone();
        mixed.sort_by_key(|member| keys[*member]);
        let expected = ends(&shape, &straight, false);
        prop_assert_eq!(&ends(&shape, &mixed, true), &expected);
        mixed.reverse();
        prop_assert_eq!(&ends(&shape, &mixed, false), &expected);
    }

    #[test]
    fn rel_g4_whatever_is_downstream_of_a_failure_has_failed(shape in shape()) {
        let straight: Vec<usize> = (0..shape.edges.len()).collect();
        let ends = ends(&shape, &straight, false);
        for (job, edges) in shape.edges.iter().enumerate() {
            let is_behind_a_failure = edges.iter().any(|(dependency, policy)| {
                let has_failed = matches!(
                    ends[*dependency],
                    Some(JobState::Failed)
                ) || shape.named.contains(dependency);
                has_failed && *policy == FailurePolicy::Fail
            });
            if is_behind_a_failure && !shape.named.contains(&job) {
                prop_assert_eq!(ends[job], Some(JobState::Failed), "job {}", job);
            }
        }
    }
}
