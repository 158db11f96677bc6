//! Levels, the critical path, and what holds a graph up.

use ganger_graphs::Counts;
use ganger_types::{IdTag, JobId, JobKey, JobRef, JobState, ShardId};

use crate::sample::{diamond, graph, index};

use JobState::{Blocked, Cancelled, Failed, Ready, Running, Succeeded};

#[test]
fn the_critical_path_is_the_longest_chain_of_jobs_that_have_not_ended() {
    // 0 -> 1 -> 2 -> 4 and 0 -> 3 -> 4
    let shape = graph(&["k"; 5], &[(0, 1), (1, 2), (2, 4), (0, 3), (3, 4)]);
    let chain = shape.critical_path(&[Running, Blocked, Blocked, Blocked, Blocked]);
    assert_eq!(chain.length, 4);
    assert_eq!(chain.jobs, [0, 1, 2, 4].map(index));
    let chain = shape.critical_path(&[Succeeded, Succeeded, Succeeded, Running, Blocked]);
    assert_eq!(chain.jobs, [3, 4].map(index));
    let chain = shape.critical_path(&[Succeeded; 5]);
    assert_eq!((chain.length, chain.jobs.len()), (0, 0));
}

#[test]
fn failed_jobs_hold_a_graph_up_before_those_that_may_run() {
    // 0 and 1 lead to 2, which leads to 3 and 4; 5 leads to 4 alone.
    let shape = graph(&["k"; 6], &[(0, 2), (1, 2), (2, 3), (2, 4), (5, 4)]);
    let states = [Running, Succeeded, Blocked, Blocked, Blocked, Failed];
    let holders = shape.holding_up(&states);
    let found: Vec<_> = holders
        .iter()
        .map(|it| (it.job.0, it.behind, it.is_exact))
        .collect();
    assert_eq!(found, [(5, 1, true), (0, 3, true)]);
}

#[test]
fn jobs_behind_several_dependents_count_once() {
    let shape = diamond(50);
    let mut states = vec![Blocked; 52];
    states[0] = Ready;
    let holders = shape.holding_up(&states);
    assert_eq!(holders.len(), 1);
    assert_eq!((holders[0].job, holders[0].behind), (index(0), 51));
}

#[test]
fn a_graph_runs_until_its_last_job_has_ended() {
    let state = |states: &[JobState]| states.iter().copied().collect::<Counts>().state();
    assert_eq!(state(&[Failed, Blocked]), Running);
    assert_eq!(state(&[Failed, Succeeded, Cancelled]), Failed);
    assert_eq!(state(&[Succeeded, Cancelled]), Cancelled);
    assert_eq!(state(&[Succeeded]), Succeeded);
}

#[test]
fn members_are_found_by_their_ids_and_counted_by_level() {
    let shape = diamond(3);
    let job = |number| JobRef {
        shard: ShardId::default(),
        id: JobId::made(JobKey(number), IdTag(7)),
    };
    assert_eq!(shape.find(&job(4)), Some(index(3)));
    assert_eq!(shape.find(&job(9)), None);
    assert_eq!(shape.reference(index(3)), job(4));
    let rows = shape.level_rows(&[Succeeded, Running, Ready, Ready, Blocked]);
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.level, row.counts.total()))
        .collect();
    assert_eq!(found, [(0, 1), (1, 3), (2, 1)]);
    assert_eq!(rows[1].counts.of(Ready), 2);
}
