//! Shards check regularly whether others know the jobs that wait for theirs.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps wrongly fails, as it should"
)]

use crate::support::cluster::{Cluster, shard};
use crate::support::*;
use ganger_types::command::*;
use ganger_types::query::Query;
use ganger_types::why::Reason;
use ganger_types::*;

fn waits_for(shard_name: &str, id: &JobId, policy: FailurePolicy) -> NewJob {
    let dependency = Dependency::Remote {
        job: JobRef {
            shard: shard(shard_name),
            id: id.clone(),
        },
        is_member: false,
    };
    let mut job = job();
    job.inputs
        .push(NewInput::Result(NewEdge { dependency, policy }));
    job
}

/// A job on shard 2, and one on shard 1 that waits for it; both shards know the wait.
fn one_waits(policy: FailurePolicy) -> (Cluster, JobId, JobId) {
    let mut cluster = Cluster::new(&["1", "2"]);
    let dependency = cluster.named("2").enqueue_one(job());
    let waits = cluster
        .named("1")
        .enqueue_one(waits_for("2", &dependency, policy));
    cluster.pump();
    (cluster, dependency, waits)
}

/// Removes the dependents from shard 2, as a bug would.
fn forget_dependents(cluster: &mut Cluster) {
    let world = cluster.named("2");
    let (mut rows, meta) = (world.rows.clone(), world.engine.meta());
    rows.dependents.clear();
    world.restore(rows, meta);
}

fn minute_later(cluster: &mut Cluster) {
    cluster.pass(secs(60));
    cluster.ask();
    cluster.pump();
}

fn waiting_messages(cluster: &Cluster) -> usize {
    let worlds = cluster.shards.values();
    worlds.map(|world| world.rows.outbox.len()).sum()
}

#[test]
fn rel_t1_a_wait_that_the_other_shard_lost_is_sent_again() {
    for policy in [FailurePolicy::Fail, FailurePolicy::Wait] {
        let (mut cluster, _, waits) = one_waits(policy);
        forget_dependents(&mut cluster);
        minute_later(&mut cluster);
        assert_eq!(cluster.named("2").rows.dependents.len(), 1);
        assert_eq!(cluster.named("1").state(&waits), Some(JobState::Blocked));
        let grant = cluster.named("2").lease_one("w");
        cluster.named("2").ok(complete(&grant, "2"));
        cluster.pump();
        assert_eq!(cluster.named("1").state(&waits), Some(JobState::Ready));
    }
}

#[test]
fn rel_t1_an_end_whose_message_was_lost_arrives_after_a_minute() {
    let (mut cluster, _, waits) = one_waits(FailurePolicy::Fail);
    forget_dependents(&mut cluster);
    let grant = cluster.named("2").lease_one("w");
    cluster.named("2").ok(complete(&grant, "2"));
    cluster.pump();
    assert_eq!(cluster.named("1").state(&waits), Some(JobState::Blocked));
    minute_later(&mut cluster);
    assert_eq!(cluster.named("1").state(&waits), Some(JobState::Ready));
}

#[test]
fn rel_t1_a_failure_whose_message_was_lost_counts_by_the_policy_of_the_edge() {
    for (policy, state) in [
        (FailurePolicy::Fail, JobState::Failed),
        (FailurePolicy::Ignore, JobState::Ready),
        (FailurePolicy::Wait, JobState::Blocked),
    ] {
        let (mut cluster, dependency, waits) = one_waits(policy);
        forget_dependents(&mut cluster);
        let grant = cluster.named("2").lease_one("w");
        cluster.named("2").ok(fail(&grant, true));
        minute_later(&mut cluster);
        assert_eq!(cluster.named("1").state(&waits), Some(state));
        // The job that waits for the retry is known again, and nothing more is asked.
        minute_later(&mut cluster);
        assert_eq!(cluster.named("1").state(&waits), Some(state));
        assert_eq!(waiting_messages(&cluster), 0);
        if policy == FailurePolicy::Wait {
            cluster.named("2").ok(retry(&[dependency]));
            let grant = cluster.named("2").lease_one("w");
            cluster.named("2").ok(complete(&grant, "2"));
            cluster.pump();
            assert_eq!(cluster.named("1").state(&waits), Some(JobState::Ready));
        }
    }
}

#[test]
fn rel_x6_a_job_that_a_restored_shard_never_had_counts_as_deleted() {
    for (policy, state) in [
        (FailurePolicy::Fail, JobState::Failed),
        (FailurePolicy::Wait, JobState::Failed),
        (FailurePolicy::Ignore, JobState::Ready),
    ] {
        let mut cluster = Cluster::new(&["1", "2", "3"]);
        let backup = cluster.named("2").rows.clone();
        let meta = cluster.named("2").engine.meta();
        let mut waits = job();
        waits.inputs.push(result_of(1, policy));
        // Shard 3 decides, so shards 1 and 2 have exchanged no messages whose loss could be detected.
        let ids = cluster.submit(vec![("3", job()), ("2", job()), ("1", waits)]);
        cluster.pump();
        cluster.named("2").restore(backup, meta);
        cluster.pump();
        assert_eq!(cluster.state(&ids[2]), Some(JobState::Blocked));
        minute_later(&mut cluster);
        assert_eq!(cluster.state(&ids[2]), Some(state), "{policy:?}");
    }
}

#[test]
fn asking_about_known_waits_changes_nothing_and_is_not_stored() {
    let (mut cluster, _, _) = one_waits(FailurePolicy::Fail);
    cluster.pass(secs(60));
    let before: Vec<_> = cluster
        .shards
        .values()
        .map(|world| world.rows.clone())
        .collect();
    let (one, two) = (shard("1"), shard("2"));
    let batch = cluster.batch(&one, &two, 9);
    assert_eq!((batch.waits.len(), batch.messages.len()), (1, 0));
    for _ in 0..2 {
        let reply = cluster
            .at(&two)
            .ok(Command::Receive(Box::new(batch.clone())));
        assert!(matches!(reply, Reply::Received { unknown, .. } if unknown.is_empty()));
    }
    cluster.ask();
    let after = cluster.shards.values().map(|world| world.rows.clone());
    assert!(before.into_iter().eq(after));
}

#[test]
fn a_wait_that_is_unknown_twice_is_sent_once() {
    let (mut cluster, _, _) = one_waits(FailurePolicy::Fail);
    forget_dependents(&mut cluster);
    cluster.pass(secs(60));
    cluster.ask();
    assert_eq!(waiting_messages(&cluster), 1);
    cluster.pass(secs(60));
    cluster.ask();
    assert_eq!(waiting_messages(&cluster), 1);
}

#[test]
fn an_end_that_is_in_the_outbox_is_not_sent_twice() {
    let (mut cluster, _, waits) = one_waits(FailurePolicy::Fail);
    let grant = cluster.named("2").lease_one("w");
    cluster.named("2").ok(complete(&grant, "2"));
    cluster.pass(secs(60));
    cluster.ask();
    assert_eq!(waiting_messages(&cluster), 1);
    cluster.pump();
    assert_eq!(cluster.named("1").state(&waits), Some(JobState::Ready));
}

#[test]
fn many_waits_are_asked_about_in_rounds_with_pauses() {
    const JOBS: usize = 2_500;
    let mut cluster = Cluster::new(&["1", "2"]);
    let (one, two) = (shard("1"), shard("2"));
    let dependency = cluster.named("2").enqueue_one(job());
    let jobs = (0..JOBS).map(|_| waits_for("2", &dependency, FailurePolicy::Fail));
    cluster.named("1").enqueue(jobs.collect());
    cluster.pump();
    let mut asked = Vec::new();
    for second in (0..120).step_by(5) {
        let waits = cluster.waits_due(&one, &two);
        if !waits.is_empty() {
            asked.push((second, waits.len()));
            cluster.ask();
        }
        cluster.pass(secs(5));
    }
    assert_eq!(asked, [(60, 1_000), (65, 1_000), (70, 500)]);
    assert_eq!(cluster.waits_due(&one, &two).len(), 1_000, "the next round");
}

#[test]
fn a_round_ends_when_the_remaining_waits_need_no_question() {
    let (mut cluster, dependency, _) = one_waits(FailurePolicy::Fail);
    let (one, two) = (shard("1"), shard("2"));
    cluster.pass(secs(60));
    // The message about this wait has not been delivered yet, so it is not asked about.
    let job = waits_for("2", &dependency, FailurePolicy::Fail);
    let late = cluster.named("1").enqueue_one(job);
    assert_eq!(cluster.waits_due(&one, &two).len(), 1);
    cluster.ask();
    cluster.named("1").ok(cancel(&[late]));
    cluster.pass(secs(5));
    assert!(!is_to_ask(&mut cluster));
    cluster.pass(secs(55));
    assert!(is_to_ask(&mut cluster));
}

fn is_to_ask(cluster: &mut Cluster) -> bool {
    let Reply::Peers(views) = cluster.named("1").query(Query::Peers) else {
        panic!("not peers");
    };
    views[0].is_to_ask
}

#[test]
fn no_peer_is_asked_while_nothing_waits_or_traffic_is_stopped() {
    let (mut cluster, _, _) = one_waits(FailurePolicy::Fail);
    cluster.pass(secs(59));
    assert!(!is_to_ask(&mut cluster));
    cluster.pass(secs(1));
    assert!(is_to_ask(&mut cluster));
    // A peer that has more than it was sent: one of the two was restored.
    let confirm = Confirm {
        peer: shard("2"),
        stream_epoch: 1,
        up_to: 99,
        tag: 0,
        checked_waits: None,
    };
    cluster.named("1").ok(Command::Confirm(confirm));
    assert!(!is_to_ask(&mut cluster));
    let (mut cluster, _, _) = one_waits(FailurePolicy::Fail);
    let grant = cluster.named("2").lease_one("w");
    cluster.named("2").ok(complete(&grant, "2"));
    cluster.pump();
    cluster.pass(secs(600));
    assert!(!is_to_ask(&mut cluster));
}

#[test]
fn a_shard_that_has_restarted_is_asked_soon_after_its_first_message() {
    let (mut cluster, dependency, _) = one_waits(FailurePolicy::Fail);
    let (one, two) = (shard("1"), shard("2"));
    let grant = cluster.named("1").enqueue_one(job());
    cluster
        .named("2")
        .enqueue_one(waits_for("1", &grant, FailurePolicy::Fail));
    cluster.pump();
    cluster.named("2").restart();
    let waits = waits_for("1", &grant, FailurePolicy::Fail);
    cluster.named("2").enqueue_one(waits);
    cluster.pump();
    cluster.pass(secs(5));
    let waits = cluster.waits_due(&one, &two);
    assert_eq!(waits.len(), 1);
    assert_eq!(waits[0].dependency, dependency);
}

#[test]
fn why_shows_when_the_other_shard_was_last_asked() {
    let (mut cluster, _, waits) = one_waits(FailurePolicy::Fail);
    let asked_at = |cluster: &mut Cluster| {
        let query = Query::Why(Namespace::default(), waits.clone());
        let Reply::Why(why) = cluster.named("1").query(query) else {
            panic!("not why");
        };
        match &why.reasons[..] {
            [Reason::WaitsElsewhere { asked_at, .. }] => *asked_at,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(asked_at(&mut cluster), None);
    minute_later(&mut cluster);
    let now = cluster.named("1").now.wall;
    assert_eq!(asked_at(&mut cluster), Some(now));
    cluster.pass(secs(30));
    assert_eq!(asked_at(&mut cluster), Some(now));
}
