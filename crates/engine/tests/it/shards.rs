//! Rules of graphs over several shards: one test per rule, named as a sentence.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps wrongly fails, as it should"
)]

use crate::support::cluster::{Cluster, shard};
use crate::support::*;
use ganger_engine::{Effects, ShardedSubmission};
use ganger_types::command::*;
use ganger_types::query::Query;
use ganger_types::*;

fn after(mut job: NewJob, members: &[u32]) -> NewJob {
    for member in members {
        job.inputs.push(result_of(*member, FailurePolicy::Fail));
    }
    job
}

fn remote(shard_name: &str, id: &JobId, policy: FailurePolicy) -> NewInput {
    NewInput::Result(NewEdge {
        dependency: Dependency::Remote {
            job: JobRef {
                shard: shard(shard_name),
                id: id.clone(),
            },
            is_member: false,
        },
        policy,
    })
}

/// Two saves on shards 1 and 2, and a mail on 1 that takes both results.
fn two_saves_and_a_mail(cluster: &mut Cluster) -> Vec<JobRef> {
    cluster.submit(vec![
        ("1", job()),
        ("2", job()),
        ("1", after(job(), &[0, 1])),
    ])
}

fn finish_one(world: &mut World, result: &'static str) {
    let grant = world.lease_one("w");
    world.ok(complete(&grant, result));
}

fn inputs(world: &World, id: &JobId) -> Vec<InputState> {
    let key = world.rows.jobs.values().find(|job| job.id == *id);
    let key = key.expect("it is live").key;
    let rows = world.rows.inputs.range((key, 0)..=(key, u32::MAX));
    rows.map(|(_, row)| row.state.clone()).collect()
}

#[test]
fn a_mail_takes_the_results_of_two_shards_in_order() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let ids = two_saves_and_a_mail(&mut cluster);
    cluster.pump();
    assert_eq!(cluster.state(&ids[1]), Some(JobState::Ready));
    finish_one(cluster.named("2"), "2");
    assert_eq!(cluster.state(&ids[2]), Some(JobState::Blocked));
    cluster.pump();
    assert_eq!(cluster.state(&ids[2]), Some(JobState::Blocked));
    finish_one(cluster.named("1"), "1");
    assert_eq!(cluster.state(&ids[2]), Some(JobState::Ready));
    let inputs = inputs(&cluster.shards[&shard("1")], &ids[2].id);
    assert!(matches!(inputs[0], InputState::Delivered { .. }));
    assert!(matches!(&inputs[1], InputState::Received { value, .. } if value == "2"));
    cluster.restart_all();
    finish_one(cluster.named("1"), "3");
    assert_eq!(cluster.state(&ids[2]), Some(JobState::Succeeded));
}

/// A submission of a job for each of two shards.
fn one_on_each() -> ShardedSubmission {
    ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs: vec![(shard("1"), job()), (shard("2"), job())],
    }
}

#[test]
fn rel_g8_nothing_runs_before_the_decision_and_everything_after() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let parts = cluster.cut(one_on_each());
    cluster.prepare(&parts);
    cluster.restart_all();
    cluster.pump();
    assert!(cluster.named("1").lease("w", 9).is_empty());
    assert!(cluster.named("2").lease("w", 9).is_empty());
    cluster.decide(&parts, true).unwrap();
    assert_eq!(cluster.named("1").lease("w", 9).len(), 1);
    assert!(cluster.named("2").lease("w", 9).is_empty());
    cluster.restart_all();
    cluster.pump();
    assert_eq!(cluster.named("2").lease("w", 9).len(), 1);
    // A decision is final and may be repeated.
    cluster.decide(&parts, true).unwrap();
    assert_eq!(
        cluster.decide(&parts, false).unwrap_err().code(),
        "not_prepared"
    );
}

#[test]
fn rel_g8_a_submission_that_nobody_decides_leaves_nothing() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let mut named = job();
    named.id = Some(JobId::new("mine").unwrap());
    let spread = ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs: vec![(shard("1"), job()), (shard("2"), named.clone())],
    };
    let parts = cluster.cut(spread);
    cluster.prepare(&parts);
    assert_eq!(
        cluster.named("2").refused(submit(vec![named.clone()])),
        "id_busy"
    );
    cluster.pass(secs(121));
    cluster.pump();
    assert_eq!(
        cluster.decide(&parts, true).unwrap_err().code(),
        "not_prepared"
    );
    for world in cluster.shards.values() {
        assert!(world.rows.parts.is_empty() && world.rows.part_jobs.is_empty());
        assert!(world.rows.jobs.is_empty());
    }
    cluster.named("2").enqueue(vec![named]);
}

#[test]
fn rel_g8_a_part_that_does_not_know_asks_the_decider() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let spread = || ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs: vec![(shard("1"), job()), (shard("2"), job())],
    };
    // The decider never got its part.
    let parts = cluster.cut(spread());
    let (home, part) = parts.parts[1].clone();
    cluster.at(&home).ok(Command::Prepare(Box::new(part)));
    cluster.pass(secs(3));
    cluster.pump();
    assert!(cluster.named("2").rows.parts.is_empty());
}

#[test]
fn a_part_asks_once_after_a_long_outage_and_not_for_each_missed_question() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let parts = cluster.cut(one_on_each());
    let (home, part) = parts.parts[1].clone();
    let world = cluster.at(&home);
    world.ok(Command::Prepare(Box::new(part)));
    let years = secs(10 * 365 * 86_400);
    world.now.elapsed = world.now.elapsed.after(years);
    world.now.wall = world.now.wall.after(years);
    let mut out = Effects::default();
    let has_more = world.engine.advance(world.now, 5, &mut out);
    assert!(!has_more, "five timers are enough");
    world.settle(out);
    cluster.pump();
    assert!(cluster.named("2").rows.parts.is_empty());
}

#[test]
fn a_part_whose_numbers_were_lost_is_refused() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let parts = cluster.cut(one_on_each());
    cluster.named("2").restart();
    let (home, part) = parts.parts[1].clone();
    let code = cluster.at(&home).refused(Command::Prepare(Box::new(part)));
    assert_eq!(code, "not_reserved");
}

#[test]
fn rel_g4_a_failure_crosses_shards_and_cancels_jobs_that_no_job_needs() {
    let mut cluster = Cluster::new(&["1", "2", "3"]);
    // 0 on shard 1 fails; 1 on shard 2 needs it and 3; 4 on shard 1 needs 1; 2 is independent.
    let ids = cluster.submit(vec![
        ("1", job()),
        ("2", after(job(), &[0, 3])),
        ("3", job()),
        ("3", job()),
        ("1", after(job(), &[1, 2])),
        ("2", after(job(), &[2])),
    ]);
    cluster.pump();
    let grant = cluster.named("1").lease_one("w");
    cluster.named("1").ok(fail(&grant, true));
    cluster.pump();
    assert_eq!(cluster.state(&ids[0]), Some(JobState::Failed));
    assert_eq!(cluster.state(&ids[1]), Some(JobState::Failed));
    assert_eq!(cluster.state(&ids[4]), Some(JobState::Failed));
    assert_eq!(cluster.state(&ids[3]), Some(JobState::Cancelled));
    assert_eq!(cluster.state(&ids[2]), Some(JobState::Ready), "5 needs it");
    cluster.restart_all();
    for world in cluster.shards.values() {
        assert!(world.rows.outbox.is_empty());
    }
}

#[test]
fn rel_g9_a_graph_is_cancelled_on_every_shard_also_if_it_is_not_decided_yet() {
    let mut cluster = Cluster::new(&["1", "2", "3"]);
    let spread = ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs: vec![
            (shard("1"), job()),
            (shard("2"), after(job(), &[0])),
            (shard("3"), after(job(), &[1])),
        ],
    };
    let parts = cluster.cut(spread);
    cluster.prepare(&parts);
    cluster.decide(&parts, true).unwrap();
    let off = Command::Cancel(Box::new(Cancel {
        namespace: Namespace::default(),
        jobs: Selection::Graph(parts.graph.clone()),
        reason: "by hand".into(),
    }));
    // Shard 3 gets the end before the decision.
    cluster.named("2").ok(off);
    let batch = cluster.batch(&shard("2"), &shard("3"), 9);
    cluster.deliver(&shard("3"), batch);
    cluster.restart_all();
    cluster.pump();
    for id in &parts.ids {
        assert_eq!(cluster.state(id), Some(JobState::Cancelled), "{id:?}");
    }
}

#[test]
fn rel_g9_a_graph_is_cancelled_also_if_its_part_arrives_after_the_cancellation() {
    for canceller in ["1", "2"] {
        for is_told_before in [true, false] {
            let mut cluster = Cluster::new(&["1", "2", "3"]);
            let spread = ShardedSubmission {
                namespace: Namespace::default(),
                idempotency_key: None,
                jobs: vec![
                    (shard("1"), job()),
                    (shard("2"), job()),
                    (shard("3"), after(job(), &[0, 1])),
                ],
            };
            let mut parts = cluster.cut(spread);
            let late = parts.parts.pop().unwrap();
            cluster.prepare(&parts);
            cluster
                .named(canceller)
                .ok(Command::Cancel(Box::new(Cancel {
                    namespace: Namespace::default(),
                    jobs: Selection::Graph(parts.graph.clone()),
                    reason: "by hand".into(),
                })));
            if is_told_before {
                cluster.pump();
            } else {
                // Only shard 3 gets it, too early.
                let batch = cluster.batch(&shard(canceller), &shard("3"), 9);
                let (up_to, _) = cluster.deliver(&shard("3"), batch);
                cluster.confirm(&shard(canceller), &shard("3"), up_to);
            }
            cluster
                .at(&late.0)
                .ok(Command::Prepare(Box::new(late.1.clone())));
            cluster.decide(&parts, true).unwrap();
            cluster.restart_all();
            cluster.pump();
            for id in &parts.ids {
                assert_eq!(cluster.state(id), Some(JobState::Cancelled), "{id:?}");
            }
        }
    }
}

#[test]
fn a_job_may_wait_for_a_job_of_another_shard_in_any_state() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let live = cluster.named("2").enqueue_one(job());
    let done = cluster.named("2").enqueue_one(job());
    let broken = cluster.named("2").enqueue_one(job());
    let grants = cluster.named("2").lease("w", 3);
    cluster.named("2").ok(complete(&grants[1], "\"early\""));
    cluster.named("2").ok(fail(&grants[2], true));
    let never = JobId::new("never").unwrap();
    let mut wait = |id: &JobId, policy| {
        let mut job = job();
        job.inputs.push(remote("2", id, policy));
        cluster.named("1").enqueue_one(job)
    };
    let waits = wait(&live, FailurePolicy::Fail);
    let ready = wait(&done, FailurePolicy::Fail);
    let fails = wait(&broken, FailurePolicy::Fail);
    let ignores = wait(&broken, FailurePolicy::Ignore);
    let hopes = wait(&broken, FailurePolicy::Wait);
    let lost = wait(&never, FailurePolicy::Wait);
    cluster.pump();
    let world = cluster.named("1");
    assert_eq!(world.state(&waits), Some(JobState::Blocked));
    assert_eq!(world.state(&ready), Some(JobState::Ready));
    assert_eq!(world.state(&fails), Some(JobState::Failed));
    assert_eq!(world.state(&ignores), Some(JobState::Ready));
    assert_eq!(world.state(&hopes), Some(JobState::Blocked));
    assert_eq!(world.state(&lost), Some(JobState::Failed));
    cluster.restart_all();
    cluster.named("2").ok(complete(&grants[0], "1"));
    cluster.named("2").ok(retry(&[broken]));
    finish_one(cluster.named("2"), "\"at last\"");
    cluster.pump();
    let world = cluster.named("1");
    assert_eq!(world.state(&waits), Some(JobState::Ready));
    assert_eq!(world.state(&hopes), Some(JobState::Ready));
}

#[test]
fn rel_x2_a_message_that_comes_twice_or_too_early_changes_nothing() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let ids = two_saves_and_a_mail(&mut cluster);
    let (one, two) = (shard("1"), shard("2"));
    let early = cluster.batch(&one, &two, 9);
    cluster.deliver(&two, early.clone());
    finish_one(cluster.named("2"), "2");
    let ended = cluster.batch(&two, &one, 9);
    let mut gap = ended.clone();
    gap.last_sent += 1;
    for message in &mut gap.messages {
        message.number += 1;
    }
    assert_eq!(cluster.deliver(&one, gap), (0, None));
    assert_eq!(cluster.state(&ids[2]), Some(JobState::Blocked));
    for _ in 0..3 {
        assert_eq!(cluster.deliver(&one, ended.clone()), (1, None));
        assert_eq!(cluster.deliver(&two, early.clone()), (1, None));
    }
    finish_one(cluster.named("1"), "1");
    assert_eq!(cluster.state(&ids[2]), Some(JobState::Ready));
}

#[test]
fn rel_x2_a_very_late_batch_is_not_taken_for_a_restored_store() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let (one, two) = (shard("1"), shard("2"));
    two_saves_and_a_mail(&mut cluster);
    let late = cluster.batch(&one, &two, 9);
    cluster.pump();
    two_saves_and_a_mail(&mut cluster);
    cluster.pump();
    assert_eq!(cluster.deliver(&two, late), (2, None));
    two_saves_and_a_mail(&mut cluster);
    let batch = cluster.batch(&one, &two, 9);
    assert_eq!(cluster.deliver(&two, batch), (3, None));
}

#[test]
fn rel_x6_a_shard_whose_peer_has_more_than_it_sent_was_restored() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let (one, two) = (shard("1"), shard("2"));
    let backup = cluster.named("1").rows.clone();
    let meta = cluster.named("1").engine.meta();
    two_saves_and_a_mail(&mut cluster);
    cluster.pump();
    cluster.named("1").restore(backup, meta);
    let batch = cluster.batch(&one, &two, 9);
    let (up_to, _) = cluster.deliver(&two, batch);
    cluster.named("1").enqueue_one(job());
    cluster.confirm(&one, &two, up_to);
    cluster.named("1").restart();
    let Reply::Peers(peers) = cluster.named("1").query(Query::Peers) else {
        panic!("not peers");
    };
    assert!(peers[0].record.stopped.is_some());
}

#[test]
fn rel_x6_a_number_given_twice_is_detected_although_the_batch_ends_before_it() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let (one, two) = (shard("1"), shard("2"));
    let ids = two_saves_and_a_mail(&mut cluster);
    cluster.pump();
    let waits = || {
        let mut waits = job();
        waits
            .inputs
            .push(remote("2", &ids[1].id, FailurePolicy::Fail));
        waits
    };
    let backup = cluster.named("1").rows.clone();
    let meta = cluster.named("1").engine.meta();
    cluster.named("1").enqueue_one(waits());
    cluster.named("1").enqueue_one(waits());
    cluster.pump();
    // Shard 1 loses two messages and uses both numbers again; a short batch contains the first of them.
    cluster.named("1").restore(backup, meta);
    cluster.named("1").enqueue_one(waits());
    cluster.named("1").enqueue_one(waits());
    let batch = cluster.batch(&one, &two, 1);
    assert_eq!(batch.messages.len(), 1);
    let (up_to, stopped) = cluster.deliver(&two, batch);
    assert_eq!(stopped, None, "shard 2 cannot tell it from a repeat");
    cluster.confirm(&one, &two, up_to);

    let stopped = cluster.peer(&one, &two).stopped;
    assert!(stopped.unwrap().contains("went back in time"));
    let waiting = cluster.batch(&one, &two, 9).messages.len();
    assert_eq!(waiting, 2, "what shard 2 has not is not forgotten");
}

#[test]
fn rel_x7_a_shard_speaks_for_its_own_jobs_only() {
    let mut cluster = Cluster::new(&["1", "2", "3"]);
    let ids = two_saves_and_a_mail(&mut cluster);
    cluster.pump();
    let key = cluster
        .named("1")
        .rows
        .jobs
        .values()
        .find(|job| job.id == ids[2].id);
    let key = key.unwrap().key;
    let forged = OutboxRecord {
        to: shard("1"),
        number: 1,
        tag: 9,
        at: Timestamp(1),
        message: Message::Ended {
            namespace: Namespace::default(),
            dependency: ids[1].id.clone(),
            dependent: key,
            slot: 1,
            outcome: Outcome::Succeeded,
            result: MessageResult::Bytes(Bytes::from_static(b"\"forged\"")),
        },
    };
    let batch = Receive {
        from: shard("3"),
        stream_epoch: 1,
        last_sent: 1,
        confirmed: 0,
        messages: vec![forged],
        waits: Vec::new(),
    };
    cluster.deliver(&shard("1"), batch);
    let inputs = inputs(&cluster.shards[&shard("1")], &ids[2].id);
    assert!(matches!(inputs[1], InputState::Remote { .. }));
}

#[test]
fn rel_k2_a_result_stays_until_the_other_shard_has_it() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let mut brief = job();
    brief.keep_succeeded = Some(Some(std::time::Duration::ZERO));
    let ids = cluster.submit(vec![("2", brief), ("1", after(job(), &[0]))]);
    cluster.pump();
    finish_one(cluster.named("2"), "2");
    let world = cluster.named("2");
    assert_eq!(world.ok(delete(&[ids[0].id.clone()])), skipped(&ids[0].id));
    cluster.pump();
    assert_eq!(cluster.state(&ids[1]), Some(JobState::Ready));
    let world = cluster.named("2");
    assert_eq!(
        world.ok(delete(&[ids[0].id.clone()])),
        Reply::Changed {
            count: 1,
            skipped: vec![]
        }
    );
}

#[test]
fn rel_k2_what_an_undecided_submission_waits_for_is_not_deleted() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let outside = cluster.named("1").enqueue_one(job());
    let mut waits = job();
    waits.inputs.push(NewInput::Result(NewEdge {
        dependency: Dependency::Job(outside.clone()),
        policy: FailurePolicy::Fail,
    }));
    let jobs = vec![(shard("1"), waits), (shard("2"), job())];
    let parts = cluster.cut(ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs,
    });
    cluster.prepare(&parts);
    let world = cluster.named("1");
    assert_eq!(
        world.ok(delete(std::slice::from_ref(&outside))),
        skipped(&outside)
    );
    assert_eq!(world.state(&outside), Some(JobState::Ready));
    cluster.decide(&parts, true).unwrap();
    assert_eq!(cluster.state(&parts.ids[0]), Some(JobState::Blocked));
    finish_one(cluster.named("1"), "1");
    assert_eq!(cluster.state(&parts.ids[0]), Some(JobState::Ready));
}

fn delete(ids: &[JobId]) -> Command {
    Command::Delete(Delete {
        namespace: Namespace::default(),
        jobs: ids.to_vec(),
    })
}

fn skipped(id: &JobId) -> Reply {
    Reply::Changed {
        count: 0,
        skipped: vec![id.clone()],
    }
}

#[test]
fn rel_x6_a_restored_peer_is_detected_and_accepted_again_after_reconciling() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let (one, two) = (shard("1"), shard("2"));
    let ids = two_saves_and_a_mail(&mut cluster);
    cluster.pump();
    let backup = cluster.named("2").rows.clone();
    let meta = cluster.named("2").engine.meta();
    // The result reaches shard 1, then shard 2 is restored to an earlier state and has other messages.
    finish_one(cluster.named("2"), "2");
    cluster.pump();
    cluster.named("2").restore(backup, meta);
    let mut waits = job();
    waits
        .inputs
        .push(remote("1", &ids[0].id, FailurePolicy::Fail));
    let waits = cluster.named("2").enqueue_one(waits);
    let batch = cluster.batch(&two, &one, 9);
    let (_, stopped) = cluster.deliver(&one, batch);
    assert!(stopped.unwrap().contains("went back in time"));
    cluster.restart_all();
    let batch = cluster.batch(&two, &one, 9);
    let (_, stopped) = cluster.deliver(&one, batch);
    assert!(stopped.is_some(), "it stays so until a person acts");

    let reconcile = Reconcile { peer: two.clone() };
    cluster.named("1").ok(Command::Reconcile(reconcile.clone()));
    cluster.pump();
    assert_eq!(
        cluster.named("1").refused(Command::Reconcile(reconcile)),
        "peer_not_stopped"
    );
    finish_one(cluster.named("1"), "1");
    cluster.pump();
    assert_eq!(cluster.state(&ids[2]), Some(JobState::Ready));
    assert_eq!(cluster.named("2").state(&waits), Some(JobState::Ready));
    // The completed save runs once more, because shard 2 lost it; no job waits for it.
    assert_eq!(cluster.state(&ids[1]), Some(JobState::Ready));
}

#[test]
fn rel_x2_what_comes_late_from_before_a_reconciliation_changes_nothing() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let (one, two) = (shard("1"), shard("2"));
    let ids = two_saves_and_a_mail(&mut cluster);
    cluster.pump();
    let backup = cluster.named("1").rows.clone();
    let meta = cluster.named("1").engine.meta();
    let waits = |to: &ganger_types::JobId| {
        let mut waits = job();
        waits.inputs.push(remote("2", to, FailurePolicy::Fail));
        waits
    };
    // Shard 1 sends a message, loses it, and uses its number for another.
    cluster.named("1").enqueue_one(waits(&ids[1].id));
    let late = cluster.batch(&one, &two, 9);
    let (up_to, _) = cluster.deliver(&two, late.clone());
    cluster.named("1").restore(backup, meta);
    let answer = |line| {
        let peer = shard("2");
        let looked = None;
        Command::Confirm(Confirm {
            peer,
            stream_epoch: line,
            up_to,
            tag: 0,
            checked_waits: looked,
        })
    };
    let other = cluster.named("1").enqueue_one(waits(&ids[1].id));
    let batch = cluster.batch(&one, &two, 9);
    let (_, stopped) = cluster.deliver(&two, batch);
    assert!(stopped.is_some());
    cluster
        .named("2")
        .ok(Command::Reconcile(Reconcile { peer: one.clone() }));
    let news = cluster.batch(&two, &one, 9);
    cluster.deliver(&one, news);
    // Shard 1 is reconciled too, because it is the restored one.
    let line = cluster.peer(&one, &two).stream_epoch;
    cluster.named("1").ok(answer(line + 1));
    cluster
        .named("1")
        .ok(Command::Reconcile(Reconcile { peer: two.clone() }));
    let waiting = cluster.batch(&one, &two, 9);
    assert!(waiting.stream_epoch > line + 1 && !waiting.messages.is_empty());

    cluster.named("1").ok(answer(line));
    assert_eq!(cluster.batch(&one, &two, 9), waiting, "it is not confirmed");
    cluster.deliver(&two, waiting);
    let before = cluster.peer(&two, &one);
    let (_, stopped) = cluster.deliver(&two, late);
    assert_eq!(stopped, None);
    assert_eq!(cluster.peer(&two, &one), before);
    cluster.pump();
    finish_one(cluster.named("2"), "2");
    cluster.pump();
    assert_eq!(cluster.named("1").state(&other), Some(JobState::Ready));
}

#[test]
fn the_outbox_can_be_listed() {
    let mut cluster = Cluster::new(&["1", "2"]);
    two_saves_and_a_mail(&mut cluster);
    let Reply::Peers(peers) = cluster.named("1").query(Query::Peers) else {
        panic!("not peers");
    };
    assert_eq!((peers.len(), peers[0].waiting), (1, 1));
    assert_eq!(peers[0].oldest_at, Some(Timestamp(START)));
}

#[test]
fn what_only_one_shard_can_do_is_refused() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let mut unique = job();
    unique.unique = Some(Unique {
        key: UniqueKey::from_static("k"),
        window: None,
    });
    let spread = ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs: vec![(shard("1"), job()), (shard("2"), unique)],
    };
    let parts = cluster.cut(spread);
    let (home, part) = parts.parts[1].clone();
    let code = cluster.at(&home).refused(Command::Prepare(Box::new(part)));
    assert_eq!(code, "one_shard_only");
    let mut own = job();
    let id = JobId::new("x").unwrap();
    own.inputs.push(remote("1", &id, FailurePolicy::Fail));
    assert_eq!(cluster.named("1").refused(submit(vec![own])), "own_shard");
}

#[test]
fn cycles_over_shards_are_refused() {
    let spread = ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs: vec![
            (shard("1"), after(job(), &[1])),
            (shard("2"), after(job(), &[0])),
        ],
    };
    assert_eq!(spread.check().unwrap_err().code(), "cycle");
}

#[test]
fn rel_p1_a_key_is_taken_by_the_first_submission_under_it() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let spread = |jobs: &[&str]| ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: Some(IdempotencyKey::from_static("k")),
        jobs: jobs.iter().map(|name| (shard(name), job())).collect(),
    };
    let first = cluster.cut(spread(&["1", "2"]));
    let second = cluster.cut(spread(&["1", "2"]));
    let other = cluster.cut(spread(&["1", "2", "2"]));
    cluster.prepare(&first);
    let mut refused = |parts: &ganger_engine::ShardParts| {
        let part = parts.parts[0].1.clone();
        cluster.named("1").refused(Command::Prepare(Box::new(part)))
    };
    assert_eq!(refused(&second), "idempotency_busy");
    assert_eq!(refused(&other), "idempotency_conflict");
    cluster.decide(&first, true).unwrap();
    cluster.restart_all();
    let query = Query::SubmissionAnswer(Namespace::default(), IdempotencyKey::from_static("k"));
    let Reply::SubmissionAnswer(Some(part)) = cluster.named("1").query(query.clone()) else {
        panic!("it was decided here");
    };
    let claimed = part.answer.unwrap();
    let repeat = spread(&["1", "2"]);
    assert_eq!(claimed.fingerprint, repeat.fingerprint());
    let numbers = claimed.numbers.into_iter();
    let numbers = numbers.map(|(shard, first, tag)| (shard, (first, tag)));
    let repeat = repeat.without(
        &claimed
            .existed
            .iter()
            .map(|place| usize::try_from(*place).unwrap())
            .collect(),
    );
    let ids: Vec<JobRef> = repeat
        .answer(&numbers.collect())
        .into_iter()
        .map(|(job, _)| job)
        .collect();
    assert_eq!(ids, first.ids);
    cluster.pass(secs(86_401));
    assert_eq!(
        cluster.named("1").query(query),
        Reply::SubmissionAnswer(None)
    );
}

#[test]
fn a_part_whose_jobs_are_waited_for_here_through_the_outbox_is_refused() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let spread = ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs: vec![(shard("1"), job()), (shard("2"), after(job(), &[0]))],
    };
    let parts = cluster.cut(spread);
    let (home, mut part) = parts.parts[0].clone();
    part.dependents[0].1.shard = home.clone();
    let code = cluster.at(&home).refused(Command::Prepare(Box::new(part)));
    assert_eq!(code, "own_shard");
}

/// A job on shard 1 and one on shard 2, of one graph that is decided.
fn a_pair(cluster: &mut Cluster) -> (Graph, Vec<JobRef>) {
    let parts = cluster.cut(one_on_each());
    cluster.prepare(&parts);
    cluster.decide(&parts, true).unwrap();
    cluster.pump();
    (parts.graph, parts.ids)
}

fn cancel_graph(graph: Graph) -> Command {
    Command::Cancel(Box::new(Cancel {
        namespace: Namespace::default(),
        jobs: Selection::Graph(graph),
        reason: "by hand".into(),
    }))
}

#[test]
fn rel_g4_a_job_that_ends_earlier_in_a_batch_that_asks_about_it_exists() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let (graph, ids) = a_pair(&mut cluster);
    cluster.named("2").ok(cancel_graph(graph));
    let mut waits = job();
    waits
        .inputs
        .push(remote("1", &ids[0].id, FailurePolicy::Wait));
    let waits = cluster.named("2").enqueue_one(waits);
    let (one, two) = (shard("1"), shard("2"));
    assert_eq!(
        cluster.batch(&two, &one, 9).messages.len(),
        2,
        "both come at once"
    );
    cluster.pump();
    assert_eq!(cluster.state(&ids[0]), Some(JobState::Cancelled));
    assert_eq!(cluster.named("2").state(&waits), Some(JobState::Blocked));
    cluster.named("1").ok(retry(&[ids[0].id.clone()]));
    finish_one(cluster.named("1"), "1");
    cluster.pump();
    assert_eq!(cluster.named("2").state(&waits), Some(JobState::Ready));
}

#[test]
fn rel_g8_a_part_starts_though_what_it_waits_for_ended_earlier_in_the_same_batch() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let (graph, ids) = a_pair(&mut cluster);
    cluster.named("2").ok(cancel_graph(graph));
    let mut waits = job();
    waits.inputs.push(NewInput::Result(NewEdge {
        dependency: Dependency::Job(ids[0].id.clone()),
        policy: FailurePolicy::Ignore,
    }));
    let later = cluster.submit(vec![("2", job()), ("1", waits)]);
    let (one, two) = (shard("1"), shard("2"));
    assert_eq!(
        cluster.batch(&two, &one, 9).messages.len(),
        2,
        "both come at once"
    );
    cluster.pump();
    assert_eq!(cluster.state(&ids[0]), Some(JobState::Cancelled));
    assert_eq!(cluster.state(&later[1]), Some(JobState::Ready));
}

fn given(id: &'static str) -> NewJob {
    NewJob {
        id: Some(JobId::new(id).unwrap()),
        ..job()
    }
}

#[test]
fn rel_p1_a_part_makes_no_second_job_under_an_id() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let spread = |id| ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs: vec![(shard("1"), job()), (shard("2"), given(id))],
    };
    let (first, second) = (cluster.cut(spread("x")), cluster.cut(spread("x")));
    cluster.prepare(&first);
    let mut refused = |command| cluster.named("2").refused(command);
    let part =
        |parts: &ganger_engine::ShardParts| Command::Prepare(Box::new(parts.parts[1].1.clone()));
    // The submission is not decided yet.
    assert_eq!(refused(part(&second)), "id_busy");
    assert_eq!(refused(submit(vec![given("x")])), "id_busy");
    let print = spread("x").given()[&shard("2")][0].2;
    let look = |print| {
        let id = JobId::new("x").unwrap();
        Command::Query(Box::new(Query::ExistingIds(
            Namespace::default(),
            vec![(id, print)],
        )))
    };
    assert_eq!(refused(look(print)), "id_busy");
    cluster.decide(&first, true).unwrap();
    cluster.pump();
    let two = cluster.named("2");
    assert_eq!(two.ok(look(print)), Reply::ExistingIds(vec![true]));
    assert_eq!(two.refused(look(print + 1)), "id_taken");
    assert_eq!(two.refused(part(&second)), "id_busy");
    // The same job alone is the same job.
    let Reply::Enqueued { jobs, .. } = two.ok(submit(vec![given("x")])) else {
        panic!("it was enqueued");
    };
    assert!(jobs[0].existed);
    finish_one(two, "1");
    assert_eq!(
        two.ok(look(print)),
        Reply::ExistingIds(vec![true]),
        "it has ended"
    );
    assert_eq!(two.refused(part(&second)), "id_busy");
}

#[test]
fn rel_p4_a_member_that_is_not_decided_here_is_prepared_and_not_unknown() {
    let mut cluster = Cluster::new(&["1", "2"]);
    let spread = ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs: vec![
            (shard("1"), job()),
            (shard("2"), given("x")),
            (shard("2"), job()),
        ],
    };
    let parts = cluster.cut(spread);
    cluster.prepare(&parts);
    cluster.decide(&parts, true).unwrap();
    cluster.restart_all();
    // The submission is acknowledged, and shard 2 does not know it yet.
    let names: Vec<JobId> = parts.ids[1..].iter().map(|job| job.id.clone()).collect();
    let two = cluster.named("2");
    for id in &names {
        let why = Query::Why(Namespace::default(), id.clone());
        assert_eq!(two.refused(Command::Query(Box::new(why))), "job_prepared");
        assert_eq!(
            two.refused(cancel(std::slice::from_ref(id))),
            "job_prepared"
        );
    }
    cluster.pump();
    for job in &parts.ids[1..] {
        assert_eq!(cluster.state(job), Some(JobState::Ready));
    }
}
