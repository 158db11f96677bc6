//! Retries that reach jobs of other shards: one test per rule, named as a sentence.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps wrongly fails, as it should"
)]

use crate::support::cluster::{Cluster, shard};
use crate::support::*;
use ganger_types::command::*;
use ganger_types::query::Query;
use ganger_types::*;

fn after(members: &[u32]) -> NewJob {
    let mut job = job();
    for member in members {
        job.inputs.push(result_of(*member, FailurePolicy::Fail));
    }
    job
}

/// A job that waits for a job of another shard.
fn after_remote(dependency: &JobRef) -> NewJob {
    let mut job = job();
    job.inputs.push(NewInput::Result(NewEdge {
        dependency: Dependency::Remote {
            job: dependency.clone(),
            is_member: false,
        },
        policy: FailurePolicy::Fail,
    }));
    job
}

fn fail_one(cluster: &mut Cluster, name: &str) {
    let world = cluster.named(name);
    let grant = world.lease_one("w");
    world.ok(fail(&grant, true));
}

/// Runs all jobs on all shards until nothing changes.
fn run_all(cluster: &mut Cluster) {
    loop {
        cluster.pump();
        let mut ran = 0;
        for world in cluster.shards.values_mut() {
            for grant in world.lease("w", 99) {
                world.ok(complete(&grant, "1"));
                ran += 1;
            }
        }
        if ran == 0 {
            return;
        }
    }
}

fn states(cluster: &Cluster, ids: &[JobRef]) -> Vec<JobState> {
    let states = ids.iter().map(|id| cluster.state(id).unwrap());
    states.collect()
}

/// Retries jobs. Returns how many were retried at once, and the shards that were asked.
fn retried(cluster: &mut Cluster, name: &str, command: Command) -> (u64, Vec<String>) {
    match cluster.named(name).ok(command) {
        Reply::Retried {
            count, passed_on, ..
        } => (count, passed_on.iter().map(ShardId::to_string).collect()),
        other => panic!("{other:?}"),
    }
}

fn messages(cluster: &mut Cluster, from: &str, to: &str) -> Vec<Message> {
    let query = Query::Outbox(shard(to), 0, 99);
    match cluster.named(from).query(query) {
        Reply::Outbox(records) => records.into_iter().map(|it| it.message).collect(),
        other => panic!("{other:?}"),
    }
}

fn graph_of(cluster: &Cluster, job: &JobRef) -> Graph {
    let rows = &cluster.shards[&job.shard].rows;
    let mut all = rows.jobs.values().chain(rows.finished.values());
    let record = all.find(|record| record.id == job.id).unwrap();
    record.graph.clone().unwrap()
}

fn retry_graph(graph: &Graph, jobs: &[JobId]) -> Command {
    Command::Retry(Box::new(Retry {
        namespace: Namespace::default(),
        jobs: jobs.to_vec(),
        queue: None,
        dependents: false,
        graph: Some(graph.clone()),
    }))
}

/// A chain over three shards that has failed as a whole.
fn fallen_chain() -> (Cluster, Vec<JobRef>) {
    let mut cluster = Cluster::new(&["1", "2", "3"]);
    let ids = cluster.submit(vec![
        ("1", job()),
        ("2", after(&[0])),
        ("2", after(&[1])),
        ("3", after(&[2])),
        ("1", after(&[3])),
    ]);
    cluster.pump();
    fail_one(&mut cluster, "1");
    cluster.pump();
    assert_eq!(states(&cluster, &ids), [JobState::Failed; 5]);
    (cluster, ids)
}

#[test]
fn a_retry_with_dependents_goes_on_from_shard_to_shard() {
    let (mut cluster, ids) = fallen_chain();
    cluster.restart_all();
    let command = retry_all(&[ids[0].id.clone()]);
    // The last job is on the same shard, but depends on jobs of others, and is retried with those.
    assert_eq!(
        retried(&mut cluster, "1", command),
        (1, vec!["2".to_owned()])
    );
    cluster.restart_all();
    run_all(&mut cluster);
    assert_eq!(states(&cluster, &ids), [JobState::Succeeded; 5]);
}

#[test]
fn a_retry_without_dependents_stays_where_it_is() {
    let (mut cluster, ids) = fallen_chain();
    cluster.named("1").ok(retry(&[ids[0].id.clone()]));
    run_all(&mut cluster);
    assert_eq!(cluster.state(&ids[0]), Some(JobState::Succeeded));
    assert_eq!(states(&cluster, &ids[1..]), [JobState::Failed; 4]);
}

#[test]
fn a_repeat_of_a_retry_changes_nothing() {
    let (mut cluster, ids) = fallen_chain();
    let command = retry_all(&[ids[0].id.clone()]);
    retried(&mut cluster, "1", command.clone());
    assert_eq!(retried(&mut cluster, "1", command.clone()).0, 0);
    let (one, two) = (shard("1"), shard("2"));
    let batch = cluster.batch(&one, &two, 99);
    cluster.deliver(&two, batch.clone());
    cluster.deliver(&two, batch);
    run_all(&mut cluster);
    assert_eq!(states(&cluster, &ids), [JobState::Succeeded; 5]);
}

#[test]
fn a_failure_and_a_retry_in_one_letter_are_applied_in_order() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let ids = cluster.submit(vec![("1", job()), ("2", after(&[0]))]);
    cluster.pump();
    fail_one(&mut cluster, "1");
    retried(&mut cluster, "1", retry_all(&[ids[0].id.clone()]));
    assert_eq!(messages(&mut cluster, "1", "2").len(), 2);
    run_all(&mut cluster);
    assert_eq!(states(&cluster, &ids), [JobState::Succeeded; 2]);
}

#[test]
fn a_job_of_another_submission_comes_back_too() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let mut ids = cluster.submit(vec![("1", job()), ("2", job())]);
    cluster.pump();
    let late = cluster
        .named("2")
        .enqueue(vec![after_remote(&ids[0]), after(&[0])]);
    ids.extend(late.into_iter().map(|id| JobRef {
        shard: shard("2"),
        id,
    }));
    cluster.pump();
    fail_one(&mut cluster, "1");
    run_all(&mut cluster);
    assert_eq!(states(&cluster, &ids[2..]), [JobState::Failed; 2]);
    retried(&mut cluster, "1", retry_all(&[ids[0].id.clone()]));
    run_all(&mut cluster);
    assert_eq!(states(&cluster, &ids), [JobState::Succeeded; 4]);
}

#[test]
fn a_job_that_was_cancelled_on_another_shard_comes_back_with_the_one_that_needs_it() {
    let mut cluster = Cluster::new(&["1", "2", "3"]);
    let ids = cluster.submit(vec![("1", job()), ("3", job()), ("2", after(&[0, 1]))]);
    cluster.pump();
    fail_one(&mut cluster, "1");
    cluster.pump();
    let ended = [JobState::Failed, JobState::Cancelled, JobState::Failed];
    assert_eq!(states(&cluster, &ids), ended);
    retried(&mut cluster, "1", retry_all(&[ids[0].id.clone()]));
    run_all(&mut cluster);
    assert_eq!(states(&cluster, &ids), [JobState::Succeeded; 3]);
}

#[test]
fn a_dependent_that_was_deleted_or_has_an_dependency_that_still_fails_stays_ended() {
    let mut cluster = Cluster::new(&["1", "2", "3"]);
    let ids = cluster.submit(vec![
        ("1", job()),
        ("3", job()),
        ("2", after(&[0])),
        ("2", after(&[0, 1])),
    ]);
    cluster.pump();
    fail_one(&mut cluster, "3");
    cluster.pump();
    fail_one(&mut cluster, "1");
    cluster.pump();
    let delete = Command::Delete(Delete {
        namespace: Namespace::default(),
        jobs: vec![ids[2].id.clone()],
    });
    cluster.named("2").ok(delete);
    retried(&mut cluster, "1", retry_all(&[ids[0].id.clone()]));
    run_all(&mut cluster);
    assert_eq!(cluster.state(&ids[2]), None);
    assert_eq!(cluster.state(&ids[3]), Some(JobState::Failed));
    retried(&mut cluster, "3", retry_all(&[ids[1].id.clone()]));
    run_all(&mut cluster);
    assert_eq!(cluster.state(&ids[3]), Some(JobState::Succeeded));
}

#[test]
fn rel_x7_a_shard_retries_only_what_failed_because_of_its_jobs() {
    let (mut cluster, ids) = fallen_chain();
    let key = cluster.shards[&shard("2")].rows.finished.values();
    let key = key.map(|job| job.key).min().unwrap();
    let mut batch = cluster.batch(&shard("3"), &shard("2"), 99);
    batch.last_sent += 1;
    batch.messages.push(OutboxRecord {
        to: shard("2"),
        number: batch.last_sent,
        tag: 1,
        at: Timestamp(1),
        message: Message::RetryDependent {
            namespace: Namespace::default(),
            dependency: ids[0].id.clone(),
            dependent: key,
            slot: 0,
            within: None,
        },
    });
    let given = batch.last_sent;
    assert_eq!(cluster.deliver(&shard("2"), batch).0, given);
    assert_eq!(cluster.state(&ids[1]), Some(JobState::Failed));
}

#[test]
fn rel_k2_those_that_failed_with_a_job_do_not_keep_it() {
    let (mut cluster, ids) = fallen_chain();
    let is_listed = |cluster: &Cluster| !cluster.shards[&shard("1")].rows.dependents.is_empty();
    assert!(is_listed(&cluster));
    let delete = Command::Delete(Delete {
        namespace: Namespace::default(),
        jobs: vec![ids[0].id.clone()],
    });
    let changed = Reply::Changed {
        count: 1,
        skipped: Vec::new(),
    };
    assert_eq!(cluster.named("1").ok(delete), changed);
    assert!(!is_listed(&cluster));
    assert_eq!(messages(&mut cluster, "1", "2"), []);
}

#[test]
fn the_retry_of_a_graph_reaches_each_of_its_shards() {
    let mut cluster = Cluster::new(&["1", "2", "3"]);
    // Several pages on shard 2, with dependents before their dependencies, and with failures of their own.
    let ids = cluster.submit(vec![
        ("1", job()),
        ("2", after(&[2])),
        ("2", after(&[3])),
        ("2", after(&[4])),
        ("2", after(&[5])),
        ("2", after(&[6])),
        ("2", job()),
        ("3", after(&[0, 1])),
        ("1", after(&[7])),
    ]);
    cluster.pump();
    let graph = graph_of(&cluster, &ids[0]);
    fail_one(&mut cluster, "2");
    fail_one(&mut cluster, "1");
    cluster.pump();
    assert_eq!(states(&cluster, &ids), [JobState::Failed; 9]);
    cluster.restart_all();
    let asked = retried(&mut cluster, "2", retry_graph(&graph, &[]));
    assert_eq!(asked, (0, vec!["1".to_owned(), "3".to_owned()]));
    // A repeat while the other shards are down adds no second message.
    retried(&mut cluster, "2", retry_graph(&graph, &[]));
    assert_eq!(messages(&mut cluster, "2", "3").len(), 1);
    // Jobs of other shards may be retried, and fail again, before those here are.
    cluster.pump();
    let here: Vec<JobId> = ids[1..7].iter().map(|job| job.id.clone()).collect();
    assert_eq!(retried(&mut cluster, "2", retry_graph(&graph, &here)).0, 6);
    run_all(&mut cluster);
    assert_eq!(states(&cluster, &ids), [JobState::Succeeded; 9]);
}

#[test]
fn the_retry_of_a_graph_goes_on_page_by_page_elsewhere() {
    let (mut cluster, ids) = fallen_chain();
    let mut more = vec![("2", job())];
    more.extend((0..6).map(|_| ("1", after(&[0]))));
    let wide = cluster.submit(more);
    cluster.pump();
    fail_one(&mut cluster, "2");
    cluster.pump();
    let graph = graph_of(&cluster, &wide[0]);
    let (count, shards) = retried(
        &mut cluster,
        "2",
        retry_graph(&graph, &[wide[0].id.clone()]),
    );
    // With job ids, only jobs that failed because of these are retried.
    assert_eq!((count, shards), (1, vec!["1".to_owned()]));
    retried(&mut cluster, "2", retry_graph(&graph, &[]));
    run_all(&mut cluster);
    assert_eq!(states(&cluster, &wide), [JobState::Succeeded; 7]);
    // Another graph is not affected.
    assert_eq!(states(&cluster, &ids), [JobState::Failed; 5]);
}

#[test]
fn a_cancelled_graph_is_retried_whatever_the_order_of_messages_in_a_batch() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let ids = cluster.submit(vec![
        ("2", job()),
        ("2", after(&[0])),
        ("1", after(&[0])),
        ("2", after(&[1, 2])),
    ]);
    cluster.pump();
    let graph = graph_of(&cluster, &ids[0]);
    cluster.named("1").ok(Command::Cancel(Box::new(Cancel {
        namespace: Namespace::default(),
        jobs: Selection::Graph(graph.clone()),
        reason: "by hand".into(),
    })));
    cluster.pump();
    assert_eq!(states(&cluster, &ids), [JobState::Cancelled; 4]);
    retried(&mut cluster, "1", retry_graph(&graph, &[]));
    retried(&mut cluster, "1", retry_graph(&graph, &[ids[2].id.clone()]));
    // One message about the retry of the graph, and one about a wait.
    assert_eq!(messages(&mut cluster, "1", "2").len(), 2);
    run_all(&mut cluster);
    assert_eq!(states(&cluster, &ids), [JobState::Succeeded; 4]);
}

#[test]
fn the_retry_of_a_graph_leaves_strangers_alone() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let ids = cluster.submit(vec![("1", job()), ("2", after(&[0]))]);
    cluster.pump();
    let stranger = cluster.named("2").enqueue(vec![after_remote(&ids[0])]);
    let stranger = JobRef {
        shard: shard("2"),
        id: stranger[0].clone(),
    };
    cluster.pump();
    fail_one(&mut cluster, "1");
    cluster.pump();
    let graph = graph_of(&cluster, &ids[0]);
    retried(&mut cluster, "1", retry_graph(&graph, &[]));
    retried(&mut cluster, "1", retry_graph(&graph, &[ids[0].id.clone()]));
    run_all(&mut cluster);
    assert_eq!(states(&cluster, &ids), [JobState::Succeeded; 2]);
    assert_eq!(cluster.state(&stranger), Some(JobState::Failed));
}
