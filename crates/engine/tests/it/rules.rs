//! Rules of the queue: one test per rule, named as a sentence.

#![allow(
    clippy::unwrap_used,
    clippy::items_after_statements,
    clippy::unchecked_time_subtraction,
    reason = "a test that unwraps wrongly fails, as it should"
)]

use std::time::Duration;

use crate::support::*;
use ganger_types::command::*;
use ganger_types::history::AttemptEnd;
use ganger_types::query::Query;
use ganger_types::why::Reason;
use ganger_types::*;

fn reported(answer: Answer) -> (JobState, bool) {
    match answer.unwrap() {
        Reply::Reported { state, repeat, .. } => (state, repeat),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_is_enqueued_leased_and_completed() {
    let mut world = World::new();
    let id = world.enqueue_one(job());
    let grant = world.lease_one("w");
    assert_eq!(
        (grant.job.clone(), grant.attempt, grant.retries_left),
        (id.clone(), 1, 3)
    );
    assert_eq!(
        reported(world.complete(&grant)),
        (JobState::Succeeded, false)
    );
    let record = world.ended(&id);
    assert!(matches!(
        &record.history[1].what,
        What::Attempt {
            end: AttemptEnd::Succeeded,
            ..
        }
    ));
    assert_eq!(world.rows.results[&record.key], "\"done\"");
}

#[test]
fn rel_l5_a_stale_token_cannot_complete() {
    let mut world = World::new();
    world.enqueue_one(job());
    let first = world.lease_one("w1");
    world.pass(secs(61));
    let second = world.lease_one("w2");
    assert_eq!(second.attempt, 2);
    assert_eq!(world.refused(complete(&first, "1")), "lease_lost");
    assert_eq!(world.refused(renew(&first)), "lease_lost");
    assert_eq!(world.refused(fail(&first, true)), "lease_lost");
    assert_eq!(reported(world.complete(&second)).0, JobState::Succeeded);
    assert_eq!(world.refused(complete(&first, "1")), "lease_lost");
}

#[test]
fn rel_l7_a_repeated_report_gets_the_first_answer_and_another_one_is_refused() {
    let mut world = World::new();
    world.enqueue(vec![job(), job()]);
    let grants = world.lease("w", 2);
    assert_eq!(
        reported(world.complete(&grants[0])),
        (JobState::Succeeded, false)
    );
    assert_eq!(
        reported(world.complete(&grants[0])),
        (JobState::Succeeded, true)
    );
    assert_eq!(world.refused(fail(&grants[0], false)), "report_conflict");
    assert_eq!(
        reported(world.fail(&grants[1])),
        (JobState::Scheduled, false)
    );
    assert_eq!(
        reported(world.fail(&grants[1])),
        (JobState::Scheduled, true)
    );
    assert_eq!(world.refused(complete(&grants[1], "1")), "report_conflict");
}

#[test]
fn rel_l9_a_renewal_never_shortens_a_lease() {
    let mut world = World::new();
    world.enqueue_one(job());
    let grant = world.lease_one("w");
    let short = Renew {
        held: held(&grant),
        lease_for: Some(secs(1)),
        progress: None,
        payload: None,
    };
    world.ok(Command::Renew(Box::new(short)));
    world.pass(secs(59));
    world.ok(renew(&grant));
    world.pass(secs(59));
    assert_eq!(reported(world.complete(&grant)).0, JobState::Succeeded);
}

#[test]
fn rel_l11_a_repeated_lease_request_gets_the_same_grant() {
    let mut world = World::new();
    world.enqueue(vec![job(), job()]);
    let request = |world: &mut World| {
        let Command::Lease(mut cmd) = lease("w", &["default"], 1) else {
            unreachable!()
        };
        cmd.request = Some(RequestId::from_static("r1"));
        match world.ok(Command::Lease(cmd)) {
            Reply::Leased(grants) => grants,
            other => panic!("{other:?}"),
        }
    };
    let first = request(&mut world);
    assert_eq!(first, request(&mut world));
    world.restart();
    assert_eq!(first[0].token, request(&mut world)[0].token);
    world.complete(&first[0]).unwrap();
    assert_ne!(first[0].job, request(&mut world)[0].job);
}

#[test]
fn rel_r1_attempts_never_exceed_the_limit() {
    let mut world = World::new();
    let id = world.enqueue_one(NewJob {
        retry: Some(quick_retries(2)),
        ..job()
    });
    for attempt in 1..=3 {
        let grant = world.lease_one("w");
        assert_eq!(grant.attempt, attempt);
        world.fail(&grant).unwrap();
    }
    assert_eq!(world.state(&id), Some(JobState::Failed));
    assert_eq!(
        world.ended(&id).failure.as_ref().unwrap().message,
        "it broke"
    );
}

#[test]
fn rel_r3_retries_wait_by_the_retry_policy() {
    let mut world = World::new();
    let id = world.enqueue_one(job());
    for pause in [20, 40, 80] {
        let grant = world.lease_one("w");
        world.fail(&grant).unwrap();
        world.pass(secs(pause).checked_sub(Duration::from_micros(1)).unwrap());
        assert!(world.lease("w", 1).is_empty(), "not before its time");
        world.pass(Duration::from_micros(1));
    }
    let grant = world.lease_one("w");
    world.fail(&grant).unwrap();
    assert_eq!(world.state(&id), Some(JobState::Failed));
}

#[test]
fn rel_r5_after_the_deadline_nothing_starts_and_nothing_is_retried() {
    let mut world = World::new();
    let deadline = Some(world.now.wall.after(secs(30)));
    let late = world.enqueue_one(NewJob {
        deadline,
        priority: Priority::whole(5).unwrap(),
        ..job()
    });
    let tried = world.enqueue_one(NewJob { deadline, ..job() });
    let grant = world.lease_one("w");
    world.pass(secs(15));
    world.fail(&grant).unwrap();
    assert_eq!(
        world.state(&tried),
        Some(JobState::Failed),
        "a retry in 20 s would be too late"
    );
    world.pass(secs(15));
    assert_eq!(world.state(&late), Some(JobState::Failed));
    assert_eq!(
        world.ended(&late).failure.as_ref().unwrap().group.to_text(),
        "deadline"
    );
}

#[test]
fn rel_r6_a_job_that_loses_its_workers_is_set_aside() {
    let mut world = World::new();
    let id = world.enqueue_one(NewJob {
        retry: Some(quick_retries(10)),
        ..job()
    });
    for _ in 0..3 {
        world.lease_one("w");
        world.pass(secs(60));
    }
    assert_eq!(
        world.ended(&id).failure.as_ref().unwrap().group.to_text(),
        "poison"
    );
}

#[test]
fn a_report_between_two_losses_clears_the_suspicion() {
    let mut world = World::new();
    let id = world.enqueue_one(NewJob {
        retry: Some(quick_retries(10)),
        ..job()
    });
    for _ in 0..3 {
        world.lease_one("w");
        world.pass(secs(60));
        let grant = world.lease_one("w");
        world.fail(&grant).unwrap();
    }
    assert_eq!(world.state(&id), Some(JobState::Ready));
}

/// A job whose retry policy limits its lease expirations.
fn limited_expirations(lease_expirations_max: u32, retries_max: u32) -> NewJob {
    NewJob {
        retry: Some(RetryPolicy {
            lease_expirations_max: Some(lease_expirations_max),
            ..quick_retries(retries_max)
        }),
        ..job()
    }
}

fn group_of(record: &JobRecord) -> String {
    let failure = record.failure.as_ref().unwrap();
    failure.group.to_text().into_owned()
}

#[test]
fn lease_expirations_up_to_the_limit_cost_no_retry_and_the_next_one_fails_the_job() {
    let mut world = World::new();
    let id = world.enqueue_one(limited_expirations(3, 0));
    for attempt in 1..=3 {
        let grant = world.lease_one("w");
        assert_eq!((grant.attempt, grant.retries_left), (attempt, 0));
        world.pass(secs(60));
        assert_eq!(world.state(&id), Some(JobState::Ready), "at once");
    }
    world.lease_one("w");
    world.pass(secs(60));
    let record = world.ended(&id);
    assert_eq!(group_of(record), "poison");
    assert_eq!(
        (
            record.attempt,
            record.attempts_counted,
            record.lease_expirations
        ),
        (4, 0, 4)
    );
    let abandoned = |entry: &&HistoryEntry| {
        let end = AttemptEnd::Expired;
        matches!(&entry.what, What::Attempt { end: it, .. } if *it == end)
    };
    assert_eq!(record.history.iter().filter(abandoned).count(), 4);
}

#[test]
fn with_no_lease_expirations_allowed_the_first_one_fails_the_job() {
    let mut world = World::new();
    let id = world.enqueue_one(limited_expirations(0, 10));
    world.lease_one("w");
    world.pass(secs(60));
    assert_eq!(group_of(world.ended(&id)), "poison");
}

#[test]
fn a_bound_of_losses_counts_all_of_them_whatever_is_reported_between() {
    let mut world = World::new();
    let id = world.enqueue_one(limited_expirations(2, 10));
    for report in [
        |it: &Grant| fail(it, false),
        |it: &Grant| release(it, false, false, Duration::ZERO),
    ] {
        world.lease_one("w");
        world.pass(secs(60));
        let grant = world.lease_one("w");
        world.ok(report(&grant));
    }
    assert_eq!(world.state(&id), Some(JobState::Ready));
    world.lease_one("w");
    world.pass(secs(60));
    assert_eq!(group_of(world.ended(&id)), "poison");
}

#[test]
fn losses_in_a_row_beyond_the_namespaces_bound_are_allowed_by_the_jobs_own() {
    let mut world = World::new();
    let id = world.enqueue_one(limited_expirations(10, 0));
    for _ in 0..10 {
        world.lease_one("w");
        world.pass(secs(60));
    }
    assert_eq!(world.state(&id), Some(JobState::Ready));
    let grant = world.lease_one("w");
    assert_eq!(reported(world.complete(&grant)).0, JobState::Succeeded);
}

#[test]
fn failures_still_count_between_losses_that_do_not() {
    let mut world = World::new();
    let id = world.enqueue_one(limited_expirations(3, 1));
    world.lease_one("w");
    world.pass(secs(60));
    let grant = world.lease_one("w");
    assert_eq!(grant.retries_left, 1);
    assert_eq!(reported(world.fail(&grant)).0, JobState::Ready);
    world.lease_one("w");
    world.pass(secs(60));
    let grant = world.lease_one("w");
    assert_eq!(grant.retries_left, 0);
    assert_eq!(reported(world.fail(&grant)).0, JobState::Failed);
    let record = world.ended(&id);
    assert_eq!((record.attempts_counted, record.lease_expirations), (2, 2));
}

#[test]
fn a_lease_expiration_after_the_deadline_fails_the_job() {
    let mut world = World::new();
    let id = world.enqueue_one(NewJob {
        deadline: Some(world.now.wall.after(secs(30))),
        ..limited_expirations(3, 3)
    });
    world.lease_one("w");
    world.pass(secs(60));
    assert_eq!(group_of(world.ended(&id)), "lease-expired");
}

#[test]
fn a_retried_job_may_be_lost_as_often_as_a_new_one() {
    let mut world = World::new();
    let id = world.enqueue_one(limited_expirations(1, 0));
    for _ in 0..2 {
        world.lease_one("w");
        world.pass(secs(60));
    }
    assert_eq!(group_of(world.ended(&id)), "poison");
    world.ok(retry(std::slice::from_ref(&id)));
    world.lease_one("w");
    world.pass(secs(60));
    assert_eq!(world.state(&id), Some(JobState::Ready));
}

#[test]
fn losses_are_counted_on_after_a_restart() {
    let mut world = World::new();
    let id = world.enqueue_one(limited_expirations(1, 0));
    world.lease_one("w");
    world.pass(secs(60));
    world.restart();
    let grant = world.lease_one("w");
    assert_eq!((grant.attempt, grant.retries_left), (2, 0));
    world.pass(secs(60));
    assert_eq!(group_of(world.ended(&id)), "poison");
}

#[test]
fn a_report_of_a_lost_attempt_is_as_if_the_lease_had_run_out() {
    let mut world = World::new();
    let id = world.enqueue_one(NewJob {
        retry: Some(quick_retries(1)),
        ..job()
    });
    let grant = world.lease_one("w");
    let report = lost(&grant);
    assert_eq!(
        reported(world.run(report.clone())),
        (JobState::Ready, false)
    );
    assert_eq!(reported(world.run(report)), (JobState::Ready, true));
    assert_eq!(world.refused(complete(&grant, "1")), "report_conflict");
    let grant = world.lease_one("w");
    assert_eq!((grant.attempt, grant.retries_left), (2, 0));
    assert_eq!(reported(world.run(lost(&grant))).0, JobState::Failed);
    let record = world.ended(&id);
    assert_eq!(group_of(record), "lease-expired");
    assert!(matches!(
        &record.history.last().unwrap().what,
        What::Attempt {
            end: AttemptEnd::Expired,
            ..
        }
    ));
}

#[test]
fn reports_of_lost_attempts_count_among_the_losses_in_a_row() {
    let mut world = World::new();
    let id = world.enqueue_one(NewJob {
        retry: Some(quick_retries(10)),
        ..job()
    });
    let grant = world.lease_one("w");
    world.ok(lost(&grant));
    world.lease_one("w");
    world.pass(secs(60));
    let grant = world.lease_one("w");
    assert_eq!(reported(world.run(lost(&grant))).0, JobState::Failed);
    assert_eq!(group_of(world.ended(&id)), "poison");
}

#[test]
fn reports_of_lost_attempts_cost_no_retry_if_expirations_do_not_count() {
    let mut world = World::new();
    let id = world.enqueue_one(limited_expirations(1, 0));
    let grant = world.lease_one("w");
    assert_eq!(reported(world.run(lost(&grant))).0, JobState::Ready);
    let grant = world.lease_one("w");
    assert_eq!(grant.retries_left, 0);
    assert_eq!(reported(world.run(lost(&grant))).0, JobState::Failed);
    assert_eq!(group_of(world.ended(&id)), "poison");
}

#[test]
fn a_stale_report_of_a_lost_attempt_changes_nothing() {
    let mut world = World::new();
    let id = world.enqueue_one(limited_expirations(1, 0));
    let first = world.lease_one("w");
    world.pass(secs(60));
    let second = world.lease_one("w");
    assert_eq!(world.refused(lost(&first)), "lease_lost");
    assert_eq!(reported(world.complete(&second)).0, JobState::Succeeded);
    assert_eq!(world.ended(&id).lease_expirations, 1);
}

#[test]
fn rel_r7_a_permanent_failure_skips_the_retries() {
    let mut world = World::new();
    let id = world.enqueue_one(job());
    let grant = world.lease_one("w");
    assert_eq!(reported(world.run(fail(&grant, true))).0, JobState::Failed);
    assert_eq!(world.ended(&id).attempt, 1);
}

#[test]
fn rel_t6_a_restart_gives_a_lease_its_full_length_again() {
    let mut world = World::new();
    world.enqueue_one(job());
    let grant = world.lease_one("w");
    world.pass(secs(59));
    world.restart();
    world.pass(secs(59));
    assert_eq!(reported(world.complete(&grant)).0, JobState::Succeeded);
}

#[test]
fn rel_o1_jobs_are_leased_by_priority_then_by_age() {
    let mut world = World::new();
    let urgent = |priority| NewJob {
        priority: Priority::whole(priority).unwrap(),
        ..job()
    };
    let ids = world.enqueue(vec![urgent(1), urgent(0), urgent(-5), urgent(0)]);
    let order: Vec<JobId> = world
        .lease("w", 9)
        .into_iter()
        .map(|grant| grant.job)
        .collect();
    assert_eq!(
        order,
        [&ids[2], &ids[1], &ids[3], &ids[0]].map(Clone::clone)
    );
}

#[test]
fn rel_o3_a_released_job_goes_to_the_end_or_to_its_old_place() {
    let mut world = World::new();
    let ids = world.enqueue(vec![job(), job()]);
    let grant = world.lease_one("w");
    world.pass(secs(1));
    world.ok(release(&grant, false, true, Duration::ZERO));
    let grant = world.lease_one("w");
    assert_eq!(grant.job, ids[0]);
    assert_eq!(grant.retries_left, 3, "an uncounted release costs no retry");
    world.ok(release(&grant, false, false, Duration::ZERO));
    assert_eq!(world.lease_one("w").job, ids[1]);
}

#[test]
fn releases_without_end_begin_to_count() {
    let mut world = World::new();
    let id = world.enqueue_one(NewJob {
        retry: Some(quick_retries(0)),
        ..job()
    });
    for _ in 0..=limits::RELEASES_MAX {
        let grant = world.lease_one("w");
        world.ok(release(&grant, false, false, Duration::ZERO));
    }
    assert_eq!(world.state(&id), Some(JobState::Failed));
}

#[test]
fn releases_by_the_server_never_count_and_use_up_no_others() {
    let mut world = World::new();
    let id = world.enqueue_one(NewJob {
        retry: Some(quick_retries(0)),
        ..job()
    });
    let by_server = |grant: &Grant| match release(grant, false, true, Duration::ZERO) {
        Command::Release(mut release) => {
            release.by_server = true;
            Command::Release(release)
        }
        other => other,
    };
    for _ in 0..3 * limits::RELEASES_MAX {
        let grant = world.lease_one("w");
        world.ok(by_server(&grant));
    }
    for _ in 0..limits::RELEASES_MAX {
        let grant = world.lease_one("w");
        world.ok(release(&grant, false, false, Duration::ZERO));
    }
    assert_eq!(world.state(&id), Some(JobState::Ready));
    let grant = world.lease_one("w");
    world.ok(by_server(&grant));
    assert_eq!(world.state(&id), Some(JobState::Ready));
}

#[test]
fn a_delayed_job_is_ready_at_its_time_and_not_before() {
    let mut world = World::new();
    world.enqueue_one(NewJob {
        start: Start::After(secs(10)),
        ..job()
    });
    world.enqueue_one(NewJob {
        start: Start::At(world.now.wall.after(secs(20))),
        ..job()
    });
    world.pass(secs(10).checked_sub(Duration::from_micros(1)).unwrap());
    assert!(world.lease("w", 9).is_empty());
    world.pass(Duration::from_micros(1));
    assert_eq!(world.lease("w", 9).len(), 1);
    world.pass(secs(10));
    assert_eq!(world.lease("w", 9).len(), 1);
}

#[test]
fn rel_c2_c3_jumps_of_the_wall_clock_move_no_lease_and_no_delay() {
    let mut world = World::new();
    world.enqueue_one(NewJob {
        start: Start::After(secs(10)),
        ..job()
    });
    world.enqueue_one(job());
    let grant = world.lease_one("w");
    let day = Duration::from_secs(86_400);
    world.now.wall = world.now.wall.after(day);
    world.advance();
    assert!(world.lease("w", 9).is_empty(), "a delay does not shorten");
    world.now.wall = world.now.wall.before(2 * day);
    world.pass(secs(10));
    assert_eq!(world.lease("w", 9).len(), 1, "a delay does not lengthen");
    assert_eq!(reported(world.complete(&grant)).0, JobState::Succeeded);
}

#[test]
fn a_paused_queue_gives_nothing_and_a_limit_holds() {
    let mut world = World::new();
    world.enqueue(vec![job(), job(), job()]);
    world.ok(configure(
        "default",
        QueueSettings {
            paused: true,
            ..Default::default()
        },
    ));
    assert!(world.lease("w", 9).is_empty());
    world.engine.take_woken();
    world.ok(configure(
        "default",
        QueueSettings {
            running_max: Some(2),
            ..Default::default()
        },
    ));
    assert_eq!(
        world.engine.take_woken().len(),
        1,
        "resuming wakes waiting workers"
    );
    let grants = world.lease("w", 9);
    assert_eq!(grants.len(), 2);
    assert!(world.engine.take_woken().is_empty());
    world.complete(&grants[0]).unwrap();
    assert_eq!(
        world.engine.take_woken().len(),
        1,
        "a slot given back wakes them too"
    );
    assert_eq!(world.lease("w", 9).len(), 1);
}

#[test]
fn queues_are_taken_in_order_in_turn_or_by_weight() {
    let take = |mode: TakeMode| {
        let mut world = World::new();
        let [a, b] = ["a", "b"].map(Queue::from_static);
        for queue in [&a, &b] {
            world.enqueue(
                (0..40)
                    .map(|_| NewJob {
                        queue: queue.clone(),
                        ..job()
                    })
                    .collect(),
            );
        }
        let queues = vec![
            TakeFrom {
                queue: a.clone(),
                weight: 3,
            },
            TakeFrom {
                queue: b,
                weight: 1,
            },
        ];
        let cmd = Lease {
            queues,
            mode,
            worker: Some(Worker::from_static("w")),
            jobs_max: 1,
            ..Lease::default()
        };
        let mut from_a = 0;
        for _ in 0..20 {
            let Reply::Leased(grants) = world.ok(Command::Lease(Box::new(cmd.clone()))) else {
                panic!()
            };
            from_a += u32::from(grants[0].queue == a);
        }
        from_a
    };
    assert_eq!(
        [TakeMode::Ordered, TakeMode::RoundRobin, TakeMode::Weighted].map(take),
        [20, 10, 15]
    );
}

#[test]
fn rel_p1_the_same_id_gives_the_same_job_and_other_content_is_refused() {
    let mut world = World::new();
    world.enqueue_one(named("a"));
    let again = |world: &mut World| match world.ok(submit(vec![named("a")])) {
        Reply::Enqueued { jobs, .. } => jobs[0].existed,
        other => panic!("{other:?}"),
    };
    assert!(again(&mut world));
    assert_eq!(
        world.refused(submit(vec![NewJob {
            payload: "other".into(),
            ..named("a")
        }])),
        "id_taken"
    );
    world.restart();
    let grant = world.lease_one("w");
    world.complete(&grant).unwrap();
    assert!(again(&mut world), "also after it has ended");
    assert_eq!(
        world.refused(submit(vec![NewJob {
            payload: "other".into(),
            ..named("a")
        }])),
        "id_taken"
    );
}

#[test]
fn ids_in_the_form_of_ours_are_refused() {
    assert_eq!(
        World::new().refused(submit(vec![named("00000k3v-x7qz")])),
        "id_reserved"
    );
}

#[test]
fn rel_p1_an_idempotency_key_returns_the_first_answer() {
    let mut world = World::new();
    let keyed = |payload: &'static str| {
        let jobs = vec![NewJob {
            payload: payload.into(),
            ..job()
        }];
        let idempotency_key = Some(IdempotencyKey::from_static("k"));
        Command::Enqueue(Box::new(Enqueue {
            jobs,
            idempotency_key,
            ..Enqueue::default()
        }))
    };
    let Reply::Enqueued {
        jobs: first,
        repeat: false,
        ..
    } = world.ok(keyed("1"))
    else {
        panic!()
    };
    world.restart();
    let Reply::Enqueued {
        jobs: again,
        repeat: true,
        ..
    } = world.ok(keyed("1"))
    else {
        panic!()
    };
    assert_eq!(first[0].id, again[0].id);
    assert_eq!(world.refused(keyed("2")), "idempotency_conflict");
    world.pass(secs(86_400));
    let Reply::Enqueued { repeat: false, .. } = world.ok(keyed("2")) else {
        panic!()
    };
}

#[test]
fn a_unique_key_holds_while_the_job_lives_or_for_its_window() {
    let mut world = World::new();
    let unique = |window| NewJob {
        unique: Some(Unique {
            key: UniqueKey::from_static("k"),
            window,
        }),
        ..job()
    };
    let first = world.enqueue_one(unique(None));
    assert_eq!(world.enqueue_one(unique(None)), first);
    let grant = world.lease_one("w");
    world.complete(&grant).unwrap();
    let second = world.enqueue_one(unique(Some(secs(100))));
    assert_ne!(first, second);
    let grant = world.lease_one("w");
    world.complete(&grant).unwrap();
    assert_eq!(
        world.enqueue_one(unique(None)),
        second,
        "the window outlives the job"
    );
    world.pass(secs(100));
    assert_ne!(world.enqueue_one(unique(None)), second);
}

#[test]
fn rel_g1_g2_a_dependent_is_ready_once_all_its_inputs_are_there() {
    let mut world = World::new();
    let merge = NewJob {
        inputs: vec![
            result_of(1, FailurePolicy::Fail),
            NewInput::Value("7".into()),
            result_of(0, FailurePolicy::Fail),
        ],
        ..job()
    };
    let ids = world.enqueue(vec![job(), job(), merge]);
    let grants = world.lease("w", 9);
    assert_eq!(grants.len(), 2);
    world.complete(&grants[0]).unwrap();
    assert_eq!(world.state(&ids[2]), Some(JobState::Blocked));
    world.restart();
    world.complete(&grants[1]).unwrap();
    let merge = world.lease_one("w");
    assert_eq!((merge.job.clone(), merge.inputs), (ids[2].clone(), 3));
    let slots: Vec<_> = world
        .rows
        .inputs
        .range((merge.key, 0)..)
        .map(|(_, row)| match &row.state {
            InputState::Delivered { id, .. } => id.clone(),
            InputState::Value(bytes) => JobId::new(bytes).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        slots,
        [ids[1].clone(), JobId::new("7").unwrap(), ids[0].clone()]
    );
}

#[test]
fn rel_g4_g5_a_failure_fails_its_dependents_and_cancels_jobs_that_no_job_needs() {
    let mut world = World::new();
    // 0 and 1 feed 2; 1 also feeds 3; 4 feeds 2 alone; 2 feeds 5.
    let needs = |members: &[u32]| NewJob {
        inputs: members
            .iter()
            .map(|member| result_of(*member, FailurePolicy::Fail))
            .collect(),
        ..job()
    };
    let ids = world.enqueue(vec![
        NewJob {
            priority: Priority::whole(-1).unwrap(),
            ..job()
        },
        job(),
        needs(&[0, 1, 4]),
        needs(&[1]),
        job(),
        needs(&[2]),
    ]);
    let grant = world.lease_one("w");
    world.run(fail(&grant, true)).unwrap();
    use JobState::{Blocked, Cancelled, Failed, Ready};
    let states: Vec<_> = ids.iter().map(|id| world.state(id).unwrap()).collect();
    assert_eq!(states, [Failed, Ready, Failed, Blocked, Cancelled, Failed]);
}

#[test]
fn edges_may_ignore_a_failure_or_wait_for_a_retry() {
    let mut world = World::new();
    let with = |policy| NewJob {
        inputs: vec![result_of(0, policy)],
        ..job()
    };
    let ids = world.enqueue(vec![
        job(),
        with(FailurePolicy::Ignore),
        with(FailurePolicy::Wait),
    ]);
    let grant = world.lease_one("w");
    world.run(fail(&grant, true)).unwrap();
    assert_eq!(world.state(&ids[1]), Some(JobState::Ready));
    assert_eq!(world.state(&ids[2]), Some(JobState::Blocked));
    world.restart();
    world.ok(retry(&ids[..1]));
    let retried = world
        .lease("w", 9)
        .into_iter()
        .find(|grant| grant.job == ids[0])
        .unwrap();
    assert_eq!((retried.attempt, retried.retries_left), (2, 3));
    world.complete(&retried).unwrap();
    assert_eq!(world.state(&ids[2]), Some(JobState::Ready));
}

#[test]
fn a_failed_graph_is_retried_from_its_root() {
    let mut world = World::new();
    let next = |member| NewJob {
        inputs: vec![result_of(member, FailurePolicy::Fail)],
        ..job()
    };
    let ids = world.enqueue(vec![job(), next(0), next(1)]);
    let grant = world.lease_one("w");
    world.run(fail(&grant, true)).unwrap();
    let Reply::Changed { count: 0, skipped } = world.ok(retry(&ids[1..2])) else {
        panic!()
    };
    assert_eq!(skipped, ids[1..2], "alone it would fail again at once");
    let Reply::Changed { count: 3, .. } = world.ok(retry(&ids)) else {
        panic!()
    };
    for id in &ids {
        let grant = world.lease_one("w");
        assert_eq!(grant.job, *id);
        world.complete(&grant).unwrap();
    }
}

#[test]
fn a_retry_with_dependents_brings_back_what_ended_because_of_it() {
    let mut world = World::new();
    let on = |members: &[u32]| NewJob {
        inputs: members
            .iter()
            .map(|member| result_of(*member, FailurePolicy::Fail))
            .collect(),
        ..job()
    };
    // 0 fails. 1 and 3 fail with it; 2 is cancelled because no job needs it any more; 4 is independent.
    let ids = world.enqueue(vec![job(), on(&[0]), job(), on(&[1, 2]), job()]);
    let grant = world.lease_one("w");
    world.run(fail(&grant, true)).unwrap();
    assert_eq!(world.ended(&ids[2]).state, JobState::Cancelled);
    assert_eq!(world.ended(&ids[3]).state, JobState::Failed);
    let Reply::Retried {
        count,
        skipped,
        dependents,
        ..
    } = world.ok(retry_all(&ids[..1]))
    else {
        panic!()
    };
    assert_eq!((count, &skipped[..]), (4, &[][..]));
    assert_eq!(dependents, ids[1..4]);
    for (id, state) in [
        (1, JobState::Blocked),
        (2, JobState::Ready),
        (3, JobState::Blocked),
    ] {
        assert_eq!(world.state(&ids[id]), Some(state), "{id}");
    }
    while world.state(&ids[3]) != Some(JobState::Succeeded) {
        let grant = world.lease_one("w");
        world.complete(&grant).unwrap();
    }
    assert_eq!(world.ended(&ids[3]).state, JobState::Succeeded);
}

#[test]
fn a_retry_with_dependents_reaches_them_when_the_job_is_live_already() {
    let mut world = World::new();
    let next = NewJob {
        inputs: vec![result_of(0, FailurePolicy::Fail)],
        ..job()
    };
    let ids = world.enqueue(vec![job(), next]);
    world.ok(cancel(&ids[..1]));
    world.ok(retry(&ids[..1]));
    assert_eq!(world.ended(&ids[1]).state, JobState::Failed);
    let Reply::Retried {
        count: 1,
        skipped,
        dependents,
        ..
    } = world.ok(retry_all(&ids[..1]))
    else {
        panic!()
    };
    assert_eq!(
        (skipped, dependents),
        (ids[..1].to_vec(), ids[1..].to_vec())
    );
    assert_eq!(world.state(&ids[1]), Some(JobState::Blocked));
}

#[test]
fn a_retry_with_dependents_leaves_alone_what_ended_for_other_reasons() {
    let mut world = World::new();
    let other = world.enqueue_one(NewJob {
        priority: Priority::whole(1).expect("small"),
        ..job()
    });
    let next = NewJob {
        inputs: vec![result_of(0, FailurePolicy::Fail)],
        ..job()
    };
    let both = NewJob {
        after: vec![NewEdge {
            dependency: Dependency::Job(other),
            policy: FailurePolicy::Fail,
        }],
        ..next.clone()
    };
    // 1 needs 0 and another job, and both fail. 2 needs 0 and was cancelled by hand.
    let ids = world.enqueue(vec![job(), both, next]);
    world.ok(cancel(&ids[2..]));
    for _ in 0..2 {
        let grant = world.lease_one("w");
        world.run(fail(&grant, true)).unwrap();
    }
    let Reply::Retried {
        count: 1,
        skipped,
        dependents,
        ..
    } = world.ok(retry_all(&ids[..1]))
    else {
        panic!()
    };
    assert_eq!(
        skipped,
        ids[1..2],
        "it would fail again with the other dependency"
    );
    assert_eq!(dependents, []);
    assert_eq!(world.ended(&ids[2]).state, JobState::Cancelled);
}

#[test]
fn a_job_whose_input_was_removed_is_not_retried() {
    let mut world = World::new();
    let needs = NewJob {
        inputs: vec![result_of(0, FailurePolicy::Fail)],
        ..job()
    };
    let ids = world.enqueue(vec![job(), needs]);
    let grant = world.lease_one("w");
    world.complete(&grant).unwrap();
    let grant = world.lease_one("w");
    world.run(fail(&grant, true)).unwrap();
    world.ok(Command::Delete(Delete {
        namespace: Namespace::default(),
        jobs: ids[..1].to_vec(),
    }));
    let Reply::Changed { count: 0, skipped } = world.ok(retry(&ids[1..])) else {
        panic!()
    };
    assert_eq!(skipped, ids[1..]);
}

#[test]
fn rel_g9_cancelling_a_graph_reaches_every_member() {
    let mut world = World::new();
    let jobs = vec![
        job(),
        NewJob {
            inputs: vec![result_of(0, FailurePolicy::Fail)],
            ..job()
        },
    ];
    let Reply::Enqueued {
        jobs,
        graph: Some(graph),
        ..
    } = world.ok(submit(jobs))
    else {
        panic!()
    };
    let grant = world.lease_one("w");
    let cmd = Cancel {
        namespace: Namespace::default(),
        jobs: Selection::Graph(graph),
        reason: "x".into(),
    };
    let Reply::Changed { count: 2, .. } = world.ok(Command::Cancel(Box::new(cmd))) else {
        panic!()
    };
    assert!(
        jobs.iter()
            .all(|job| world.state(&job.id).unwrap().is_terminal())
    );
    assert_eq!(world.refused(complete(&grant, "1")), "lease_lost");
}

#[test]
fn rel_g7_a_submission_that_cannot_be_run_is_refused_whole() {
    let mut world = World::new();
    let needs = |member| NewJob {
        inputs: vec![result_of(member, FailurePolicy::Fail)],
        ..job()
    };
    assert_eq!(world.refused(submit(vec![])), "nothing_submitted");
    assert_eq!(world.refused(submit(vec![job(), needs(1)])), "cycle");
    assert_eq!(world.refused(submit(vec![needs(1), needs(0)])), "cycle");
    assert_eq!(world.refused(submit(vec![needs(9)])), "member_not_found");
    assert_eq!(
        world.refused(submit(vec![named("a"), named("a")])),
        "duplicate_id"
    );
    assert_eq!(
        world.refused(submit(vec![NewJob::default()])),
        "kind_missing"
    );
    let nowhere = NewEdge {
        dependency: Dependency::Job(JobId::new("x").unwrap()),
        policy: FailurePolicy::Fail,
    };
    assert_eq!(
        world.refused(submit(vec![NewJob {
            after: vec![nowhere],
            ..job()
        }])),
        "dependency_not_found"
    );
    let large = Bytes::from(vec![0; (1 << 20) + 1]);
    assert_eq!(
        world.refused(submit(vec![
            job(),
            NewJob {
                payload: large,
                ..job()
            }
        ])),
        "too_large"
    );
    let past = Some(world.now.wall.before(secs(1)));
    assert_eq!(
        world.refused(submit(vec![NewJob {
            deadline: past,
            ..job()
        }])),
        "deadline_passed"
    );
}

#[test]
fn a_completed_job_may_go_on_in_another_queue() {
    let mut world = World::new();
    let id = world.enqueue_one(job());
    let grant = world.lease_one("w");
    let next = Next {
        queue: Queue::from_static("second"),
        delay: secs(5),
        after: vec![],
        payload: Some("new".into()),
    };
    let cmd = Complete {
        held: held(&grant),
        result: None,
        next: Some(next),
    };
    assert_eq!(
        reported(world.run(Command::Complete(Box::new(cmd)))).0,
        JobState::Scheduled
    );
    world.restart();
    world.pass(secs(5));
    let Reply::Leased(grants) = world.ok(lease("w", &["second"], 1)) else {
        panic!()
    };
    assert_eq!(
        (
            grants[0].job.clone(),
            grants[0].attempt,
            grants[0].retries_left
        ),
        (id, 2, 3)
    );
    assert_eq!(world.rows.payloads[&grants[0].key], "new");
}

#[test]
fn dependencies_of_a_blocked_job_can_be_added_and_taken_back() {
    let mut world = World::new();
    let edge = |member| NewEdge {
        dependency: Dependency::Member(member),
        policy: FailurePolicy::Wait,
    };
    let ids = world.enqueue(vec![
        job(),
        NewJob {
            after: vec![edge(0)],
            ..job()
        },
        job(),
    ]);
    let add = |job: &JobId, on: &JobId| {
        Command::AddDependencies(AddDependencies {
            namespace: Namespace::default(),
            job: job.clone(),
            on: vec![on.clone()],
            policy: FailurePolicy::Wait,
        })
    };
    world.ok(add(&ids[1], &ids[2]));
    assert_eq!(world.refused(add(&ids[0], &ids[2])), "wrong_state");
    let remove = |on: Option<Vec<JobId>>| {
        Command::RemoveDependencies(RemoveDependencies {
            namespace: Namespace::default(),
            job: ids[1].clone(),
            on,
        })
    };
    world.ok(remove(Some(vec![ids[0].clone()])));
    assert_eq!(world.state(&ids[1]), Some(JobState::Blocked));
    world.ok(remove(None));
    assert_eq!(world.state(&ids[1]), Some(JobState::Ready));
}

#[test]
fn rel_t7_a_schedule_fires_each_point_once_over_restarts_and_jumps() {
    let mut world = World::new();
    let schedule = ScheduleRecord {
        namespace: Namespace::default(),
        id: ScheduleId::from_static("s"),
        spec: ScheduleSpec::Interval {
            every: secs(60),
            first_at: world.now.wall.after(secs(60)),
        },
        catch_up: CatchUp::Last,
        overlap: Overlap::Allow,
        paused: false,
        queue: Queue::default(),
        kind: Kind::from_static("tick"),
        payload: Bytes::new(),
        priority: Priority::default(),
        retry: None,
        timeout: None,
        tags: vec![],
        labels: vec![],
        created_at: Timestamp(0),
        next_at: None,
        runs: 0,
        last_job: None,
    };
    world.ok(Command::PutSchedule(Box::new(PutSchedule {
        schedule: schedule.clone(),
    })));
    world.pass(secs(59));
    assert_eq!(world.lease("w", 9).len(), 0);
    world.pass(secs(1));
    let grant = world.lease_one("w");
    world.complete(&grant).unwrap();
    world.restart();
    world.now.wall = world.now.wall.before(secs(3_600));
    world.pass(secs(60));
    assert_eq!(
        world.lease("w", 9).len(),
        0,
        "a clock that went back fires nothing twice"
    );
    world.now.wall = world.now.wall.after(secs(7_200));
    world.advance();
    let grants = world.lease("w", 9);
    assert_eq!(grants.len(), 1, "one job stands for all that were missed");
    world.complete(&grants[0]).unwrap();
    let all = ScheduleRecord {
        catch_up: CatchUp::All { max: 3 },
        ..schedule
    };
    world.ok(Command::PutSchedule(Box::new(PutSchedule {
        schedule: all,
    })));
    world.pass(secs(600));
    assert_eq!(world.lease("w", 9).len(), 3);
}

/// A schedule that fires every second from one second after `now` on, with jobs for all missed runs.
fn every_second(id: &str, now: Timestamp) -> ScheduleRecord {
    ScheduleRecord {
        namespace: Namespace::default(),
        id: ScheduleId::new(id).unwrap(),
        spec: ScheduleSpec::Interval {
            every: secs(1),
            first_at: now.after(secs(1)),
        },
        catch_up: CatchUp::All { max: 0 },
        overlap: Overlap::Allow,
        paused: false,
        queue: Queue::default(),
        kind: Kind::from_static("tick"),
        payload: Bytes::new(),
        priority: Priority::default(),
        retry: None,
        timeout: None,
        tags: vec![],
        labels: vec![],
        created_at: Timestamp(0),
        next_at: None,
        runs: 0,
        last_job: None,
    }
}

#[test]
fn a_namespace_has_a_limit_of_schedules() {
    let mut world = World::new();
    let now = world.now.wall;
    let put = |number: usize| {
        let schedule = every_second(&number.to_string(), now);
        Command::PutSchedule(Box::new(PutSchedule { schedule }))
    };
    for number in 0..limits::SCHEDULES_MAX {
        world.ok(put(number));
    }
    let refused = world.run(put(limits::SCHEDULES_MAX)).unwrap_err();
    assert_eq!(refused.code(), "too_large");
    assert!(
        refused.to_string().contains("delete schedules"),
        "{refused}"
    );
    // An existing schedule may be replaced.
    world.ok(put(0));
}

#[test]
fn rel_t7_all_missed_runs_are_enqueued_if_there_is_no_limit() {
    let mut world = World::new();
    let schedule = every_second("s", world.now.wall);
    world.ok(Command::PutSchedule(Box::new(PutSchedule { schedule })));
    world.pass(secs(9));
    let grants = world.lease("w", 99);
    assert_eq!(grants.len(), 9);
    for grant in grants {
        world.complete(&grant).unwrap();
    }
    // At most the newest ten thousand.
    world.pass(secs(20_000));
    assert_eq!(world.lease("w", 10_000).len(), 10_000);
    assert_eq!(world.lease("w", 1).len(), 0);
}

#[test]
fn rel_k3_retention_by_count_keeps_the_newest() {
    let mut world = World::new();
    let keep = Keep {
        age: None,
        count: Some(2),
    };
    let retention = Some(Retention {
        succeeded: keep,
        ..Retention::default()
    });
    world.ok(configure(
        "default",
        QueueSettings {
            retention,
            ..Default::default()
        },
    ));
    let ids = world.enqueue((0..4).map(|_| job()).collect());
    for grant in world.lease("w", 9) {
        world.complete(&grant).unwrap();
    }
    let due = world.engine.retention_due(world.now);
    assert!(
        due.iter()
            .any(|query| matches!(query, ExpiredJobsQuery::ByCount { excess: 2, .. })),
        "{due:?}"
    );
    let oldest = |world: &World| {
        world
            .rows
            .finished
            .values()
            .map(|record| ExpiredJob {
                record: Box::new(record.clone()),
                beyond_count: true,
            })
            .collect()
    };
    let jobs = oldest(&world);
    world.ok(Command::Retire(Retire { jobs }));
    assert_eq!(world.state(&ids[0]), None);
    assert_eq!(world.state(&ids[2]), Some(JobState::Succeeded));
    let jobs = oldest(&world);
    world.ok(Command::Retire(Retire { jobs }));
    assert_eq!(world.rows.finished.len(), 2, "no more than are too many");
}

#[test]
fn rel_k2_a_result_that_a_live_job_needs_outlives_its_retention() {
    let mut world = World::new();
    let needs = NewJob {
        inputs: vec![result_of(0, FailurePolicy::Fail)],
        start: Start::After(secs(10 * 86_400)),
        ..job()
    };
    let ids = world.enqueue(vec![job(), needs]);
    let grant = world.lease_one("w");
    world.complete(&grant).unwrap();
    world.pass(secs(5 * 86_400));
    let record = Box::new(world.ended(&ids[0]).clone());
    world.now.elapsed = world.now.elapsed.after(secs(3_600));
    let retire = Command::Retire(Retire {
        jobs: vec![ExpiredJob {
            record,
            beyond_count: false,
        }],
    });
    world.ok(retire.clone());
    assert!(world.state(&ids[0]).is_some());
    world.ok(cancel(&ids[1..]));
    world.ok(retire.clone());
    assert!(world.state(&ids[0]).is_none());
    world.ok(retire);
}

#[test]
fn rel_c4_a_forward_jump_removes_nothing_for_ten_minutes() {
    let mut world = World::new();
    let id = world.enqueue_one(job());
    let grant = world.lease_one("w");
    world.complete(&grant).unwrap();
    world.now.wall = world.now.wall.after(secs(10 * 86_400));
    world.advance();
    let record = Box::new(world.ended(&id).clone());
    let retire = Command::Retire(Retire {
        jobs: vec![ExpiredJob {
            record,
            beyond_count: false,
        }],
    });
    world.ok(retire.clone());
    assert!(world.state(&id).is_some());
    world.pass(secs(600));
    world.ok(retire);
    assert!(world.state(&id).is_none());
}

#[test]
fn rel_k5_a_deleted_running_job_cannot_be_brought_back_by_its_report() {
    let mut world = World::new();
    let id = world.enqueue_one(job());
    let grant = world.lease_one("w");
    let delete = Delete {
        namespace: Namespace::default(),
        jobs: vec![id.clone()],
    };
    world.ok(Command::Delete(delete.clone()));
    assert_eq!(world.state(&id), None);
    assert_eq!(world.refused(complete(&grant, "1")), "job_not_found");
    assert_eq!(world.refused(Command::Delete(delete)), "job_not_found");
}

#[test]
fn a_run_that_takes_too_long_is_timed_out_however_often_it_renews() {
    let mut world = World::new();
    let retry = Some(quick_retries(0));
    let id = world.enqueue_one(NewJob {
        timeout: Some(secs(90)),
        retry,
        ..job()
    });
    let grant = world.lease_one("w");
    world.pass(secs(50));
    world.ok(renew(&grant));
    world.pass(secs(39));
    world.ok(renew(&grant));
    world.pass(secs(1));
    assert_eq!(
        world.ended(&id).failure.as_ref().unwrap().group.to_text(),
        "timeout"
    );
}

#[test]
fn grace_warns_once_before_it_takes_a_job_away() {
    let mut world = World::new();
    world.ok(configure(
        "default",
        QueueSettings {
            grace_for: Some(secs(10)),
            ..Default::default()
        },
    ));
    let id = world.enqueue_one(job());
    world.lease_one("w");
    world.pass(secs(69));
    assert_eq!(world.state(&id), Some(JobState::Running));
    world.pass(secs(1));
    assert_eq!(world.state(&id), Some(JobState::Ready));
}

#[test]
fn kickq_r51_due_jobs_go_first_if_the_queue_is_set_so() {
    let mut world = World::new();
    world.ok(configure(
        "default",
        QueueSettings {
            due_order: DueOrder::Ahead,
            ..Default::default()
        },
    ));
    let later = world.enqueue_one(NewJob {
        start: Start::After(secs(5)),
        ..job()
    });
    world.enqueue(vec![job(), job()]);
    world.pass(secs(5));
    world.restart();
    assert_eq!(world.lease_one("w").job, later);
}

#[test]
fn a_worker_that_deregisters_gives_its_jobs_back_to_their_places() {
    let mut world = World::new();
    let ids = world.enqueue(vec![job(), job()]);
    world.lease_one("w");
    let bye = DeregisterWorker {
        namespace: Namespace::default(),
        worker: Worker::from_static("w"),
    };
    let Reply::Changed { count: 1, .. } = world.ok(Command::DeregisterWorker(bye)) else {
        panic!()
    };
    let grant = world.lease_one("v");
    assert_eq!((grant.job, grant.retries_left), (ids[0].clone(), 3));
}

#[test]
fn tags_labels_and_notes_can_be_put_on_finished_jobs_but_not_queues() {
    let mut world = World::new();
    let id = world.enqueue_one(NewJob {
        tags: vec![Tag::from_static("a")],
        ..job()
    });
    let grant = world.lease_one("w");
    world.complete(&grant).unwrap();
    let alter = |alter: Alter| {
        Command::Alter(Box::new(Alter {
            job: Some(id.clone()),
            ..alter
        }))
    };
    let tags = vec![Tag::from_static("b")];
    world.ok(alter(Alter {
        tags_added: tags,
        note: Some(("seen".into(), String::new())),
        ..Alter::default()
    }));
    let queue = Some(Queue::from_static("q"));
    assert_eq!(
        world.refused(alter(Alter {
            queue,
            ..Alter::default()
        })),
        "wrong_state"
    );
    let Reply::Tags(tags) = world.query(Query::TopTags(Namespace::default(), 0, 9)) else {
        panic!()
    };
    assert_eq!(tags.len(), 2);
    world.restart();
    world.ok(Command::Delete(Delete {
        namespace: Namespace::default(),
        jobs: vec![id.clone()],
    }));
    let Reply::Tags(tags) = world.query(Query::TopTags(Namespace::default(), 0, 9)) else {
        panic!()
    };
    assert!(tags.is_empty());
}

#[test]
fn why_names_the_causes() {
    let mut world = World::new();
    let ids = world.enqueue(vec![
        job(),
        NewJob {
            inputs: vec![result_of(0, FailurePolicy::Fail)],
            ..job()
        },
        NewJob {
            start: Start::After(secs(9)),
            ..job()
        },
    ]);
    let why = |world: &mut World, id: &JobId| match world
        .query(Query::Why(Namespace::default(), id.clone()))
    {
        Reply::Why(why) => why.reasons,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        why(&mut world, &ids[0]),
        [Reason::NoWorker { silent_for: None }]
    );
    assert!(matches!(
        &why(&mut world, &ids[1])[..],
        [Reason::WaitsFor { count: 1, .. }]
    ));
    assert!(matches!(
        &why(&mut world, &ids[2])[..],
        [Reason::NotBefore {
            after_attempt: 0,
            ..
        }]
    ));
    let grant = world.lease_one("w");
    assert!(matches!(
        &why(&mut world, &ids[0])[..],
        [Reason::Runs { attempt: 1, .. }]
    ));
    world.ok(configure(
        "default",
        QueueSettings {
            paused: true,
            ..Default::default()
        },
    ));
    world.complete(&grant).unwrap();
    assert_eq!(why(&mut world, &ids[1]), [Reason::QueuePaused]);
    assert!(matches!(
        &why(&mut world, &ids[0])[..],
        [Reason::Ended { .. }]
    ));
}

#[test]
fn why_names_the_reason_of_the_last_worker_first() {
    let mut world = World::new();
    let id = world.enqueue(vec![job()]).remove(0);
    let why = |world: &mut World| match world.query(Query::Why(Namespace::default(), id.clone())) {
        Reply::Why(why) => why.reasons,
        other => panic!("{other:?}"),
    };
    let grant = world.lease_one("w1");
    world.ok(release(&grant, false, false, secs(30)));
    let released = Reason::Released {
        times: 1,
        worker: Worker::from_static("w1"),
        reason: "no handler".into(),
    };
    // No attempt failed, so the pause is not a backoff.
    assert!(matches!(
        &why(&mut world)[..],
        [first, Reason::NotBefore { after_attempt: 0, .. }] if *first == released
    ));
    world.pass(secs(31));
    let grant = world.lease_one("w2");
    world.fail(&grant).unwrap();
    assert!(matches!(
        &why(&mut world)[..],
        [Reason::NotBefore { after_attempt: 2, .. }, second] if *second == released
    ));
}

#[test]
fn no_worker_is_a_later_reason_than_the_jobs_that_go_first() {
    let mut world = World::new();
    let ids = world.enqueue(vec![job(), job()]);
    let query = Query::Why(Namespace::default(), ids[1].clone());
    let Reply::Why(why) = world.query(query) else {
        panic!()
    };
    assert!(matches!(
        &why.reasons[..],
        [Reason::NoWorker { .. }, Reason::Behind { jobs: 1, .. }]
    ));
}

#[test]
fn a_namespace_on_its_callers_clock_moves_only_when_called() {
    let mut world = World::new();
    let namespace = Namespace::from_static("q");
    let settings = NamespaceSettings {
        clock: Clock::Caller,
        ..NamespaceSettings::default()
    };
    let cmd = ConfigureNamespace {
        namespace: namespace.clone(),
        settings,
    };
    world.ok(Command::ConfigureNamespace(Box::new(cmd)));
    let server = world.now;
    let at = |seconds: u64| Now {
        elapsed: Elapsed(seconds * 1_000_000),
        wall: Timestamp(seconds * 1_000_000),
    };
    world.now = at(100);
    let jobs = vec![NewJob {
        start: Start::After(secs(10)),
        ..job()
    }];
    world.ok(Command::Enqueue(Box::new(Enqueue {
        namespace: namespace.clone(),
        jobs,
        ..Enqueue::default()
    })));
    world.now = server;
    world.pass(secs(10_000));
    let Command::Lease(mut cmd) = lease("w", &["default"], 1) else {
        unreachable!()
    };
    cmd.namespace = namespace;
    world.now = at(109);
    assert_eq!(world.ok(Command::Lease(cmd.clone())), Reply::Leased(vec![]));
    world.now = at(110);
    let Reply::Leased(grants) = world.ok(Command::Lease(cmd)) else {
        panic!()
    };
    assert_eq!(grants.len(), 1);
}

#[test]
fn grace_does_not_outlast_the_time_limit_of_an_attempt() {
    let mut world = World::new();
    let grace_for = Some(secs(50));
    world.ok(configure(
        "default",
        QueueSettings {
            grace_for,
            ..Default::default()
        },
    ));
    let retry = Some(quick_retries(0));
    let id = world.enqueue_one(NewJob {
        timeout: Some(secs(70)),
        retry,
        ..job()
    });
    world.lease_one("w");
    world.pass(secs(70));
    assert_eq!(
        world.ended(&id).failure.as_ref().unwrap().group.to_text(),
        "timeout"
    );
}

#[test]
fn rel_c4_a_jump_is_remembered_over_a_restart_but_new_endings_are_judged_at_once() {
    let mut world = World::new();
    let keep = Keep {
        age: Some(secs(60)),
        count: None,
    };
    let retention = Some(Retention {
        succeeded: keep,
        ..Retention::default()
    });
    world.ok(configure(
        "default",
        QueueSettings {
            retention,
            ..Default::default()
        },
    ));
    let ids = world.enqueue(vec![job(), job()]);
    let grants = world.lease("w", 2);
    world.complete(&grants[0]).unwrap();
    world.now.wall = world.now.wall.after(secs(86_400));
    world.advance();
    world.restart();
    world.complete(&grants[1]).unwrap();
    world.pass(secs(60));
    let expired_jobs = |world: &World| {
        let expired = |record: &JobRecord| ExpiredJob {
            record: Box::new(record.clone()),
            beyond_count: false,
        };
        Retire {
            jobs: world.rows.finished.values().map(expired).collect(),
        }
    };
    let jobs = expired_jobs(&world);
    world.ok(Command::Retire(jobs));
    assert!(
        world.state(&ids[0]).is_some(),
        "it ended before the clock jumped"
    );
    assert!(
        world.state(&ids[1]).is_none(),
        "it ended after the last start"
    );
    world.pass(secs(600));
    let jobs = expired_jobs(&world);
    world.ok(Command::Retire(jobs));
    assert!(world.state(&ids[0]).is_none());
}

#[test]
fn rel_l9_a_longer_renewal_outlives_a_restart() {
    let mut world = World::new();
    world.enqueue_one(job());
    let grant = world.lease_one("w");
    let longer = Renew {
        held: held(&grant),
        lease_for: Some(secs(600)),
        progress: None,
        payload: None,
    };
    world.ok(Command::Renew(Box::new(longer)));
    world.restart();
    world.pass(secs(599));
    assert_eq!(reported(world.complete(&grant)).0, JobState::Succeeded);
}

#[test]
fn rel_t1_jobs_are_not_made_to_wait_for_each_other() {
    let mut world = World::new();
    let edge = NewEdge {
        dependency: Dependency::Member(0),
        policy: FailurePolicy::Wait,
    };
    let ids = world.enqueue(vec![
        job(),
        NewJob {
            after: vec![edge],
            ..job()
        },
    ]);
    let grant = world.lease_one("w");
    for after in [&ids[0], &ids[1]] {
        let next = Next {
            queue: Queue::default(),
            delay: Duration::ZERO,
            after: vec![after.clone()],
            payload: None,
        };
        let cmd = Complete {
            held: held(&grant),
            result: None,
            next: Some(next),
        };
        assert_eq!(
            world.refused(Command::Complete(Box::new(cmd))),
            "wrong_state"
        );
    }
}

#[test]
fn rel_t1_a_retry_does_not_close_a_cycle() {
    let mut world = World::new();
    let waiting_for = |id: &JobId| {
        let dependency = Dependency::Job(id.clone());
        let edge = NewEdge {
            dependency,
            policy: FailurePolicy::Wait,
        };
        NewJob {
            after: vec![edge],
            ..job()
        }
    };
    let first = world.enqueue_one(job());
    let second = world.enqueue_one(waiting_for(&first));
    world.ok(cancel(std::slice::from_ref(&second)));
    let third = world.enqueue_one(waiting_for(&second));
    let grant = world.lease_one("w");
    assert_eq!(grant.job, first);
    let next = Next {
        queue: Queue::default(),
        delay: Duration::ZERO,
        after: vec![third],
        payload: None,
    };
    let cmd = Complete {
        held: held(&grant),
        result: None,
        next: Some(next),
    };
    world.run(Command::Complete(Box::new(cmd))).unwrap();
    let Reply::Changed { count: 0, skipped } = world.ok(retry(std::slice::from_ref(&second)))
    else {
        panic!()
    };
    assert_eq!(
        skipped,
        [second],
        "second waits for first, first for third, third for second"
    );
}

#[test]
fn rel_t1_a_dependency_on_a_job_that_has_failed_is_refused_or_ignored() {
    let mut world = World::new();
    let edge = NewEdge {
        dependency: Dependency::Member(0),
        policy: FailurePolicy::Wait,
    };
    let ids = world.enqueue(vec![
        job(),
        NewJob {
            after: vec![edge],
            ..job()
        },
        job(),
    ]);
    world.ok(cancel(&ids[2..]));
    let add = |policy| {
        Command::AddDependencies(AddDependencies {
            namespace: Namespace::default(),
            job: ids[1].clone(),
            on: vec![ids[2].clone()],
            policy,
        })
    };
    assert_eq!(world.refused(add(FailurePolicy::Fail)), "wrong_state");
    let Reply::Changed { count: 0, .. } = world.ok(add(FailurePolicy::Ignore)) else {
        panic!()
    };
    let Reply::Changed { count: 1, .. } = world.ok(add(FailurePolicy::Wait)) else {
        panic!()
    };
}

#[test]
fn rel_r5_a_job_that_comes_back_after_its_deadline_is_not_handed_out_again() {
    let mut world = World::new();
    let deadline = Some(world.now.wall.after(secs(30)));
    let id = world.enqueue_one(NewJob { deadline, ..job() });
    let grant = world.lease_one("w");
    world.pass(secs(40));
    let mut out = ganger_engine::Effects::default();
    let known = ganger_engine::PrefetchedRows::default();
    let engine = &mut world.engine;
    engine
        .apply(
            world.now,
            release(&grant, false, true, Duration::ZERO),
            &known,
            &mut out,
        )
        .unwrap();
    // The next request comes in the same turn, before the timers fire.
    let answer = engine.apply(world.now, lease("v", &["default"], 1), &known, &mut out);
    assert_eq!(answer, Ok(Reply::Leased(vec![])));
    assert!(!engine.is_live(id.parts().unwrap().0));
    assert!(engine.check_invariants().is_empty());
}

#[test]
fn rel_g5_a_dependency_of_two_graphs_is_cancelled_when_both_fail_at_once() {
    // Job 1 is needed by its own graph and by another; both dependents fail with job 0.
    for own_is_first in [true, false] {
        let mut world = World::new();
        let after = |id: &JobId| {
            NewInput::Result(NewEdge {
                dependency: Dependency::Job(id.clone()),
                policy: FailurePolicy::Fail,
            })
        };
        let root = world.enqueue_one(job());
        let graph = |inputs| submit(vec![job(), NewJob { inputs, ..job() }]);
        let other = |world: &mut World, shared: &JobId| {
            world.enqueue_one(NewJob {
                inputs: vec![after(shared), after(&root)],
                ..job()
            })
        };
        let own_inputs = vec![result_of(0, FailurePolicy::Fail), after(&root)];
        let Reply::Enqueued { jobs, .. } = world.ok(graph(own_inputs)) else {
            panic!()
        };
        let (shared, own) = (jobs[0].id.clone(), jobs[1].id.clone());
        let stranger = other(&mut world, &shared);
        let named = if own_is_first {
            [own.clone(), stranger.clone()]
        } else {
            [stranger.clone(), own.clone()]
        };
        world.ok(cancel(&named));
        assert_eq!(world.state(&shared), Some(JobState::Cancelled));
        assert_eq!(world.state(&root), Some(JobState::Ready));
    }
}

#[test]
fn rel_k5_what_is_named_is_deleted_whatever_is_named_before_it() {
    for order in [[0, 1], [1, 0]] {
        let mut world = World::new();
        let next = NewJob {
            inputs: vec![result_of(0, FailurePolicy::Fail)],
            ..job()
        };
        let ids = world.enqueue(vec![job(), next]);
        let jobs = order.iter().map(|place| ids[*place].clone()).collect();
        let namespace = Namespace::default();
        let Reply::Changed { count, skipped } =
            world.ok(Command::Delete(Delete { namespace, jobs }))
        else {
            panic!()
        };
        assert_eq!((count, skipped), (2, Vec::new()));
        assert!(ids.iter().all(|id| world.state(id).is_none()));
    }
}

#[test]
fn rel_t1_a_job_that_waits_for_the_retry_of_a_deleted_job_fails() {
    let mut world = World::new();
    let with = |member, policy| NewJob {
        inputs: vec![result_of(member, policy)],
        ..job()
    };
    let ids = world.enqueue(vec![
        job(),
        with(0, FailurePolicy::Wait),
        with(1, FailurePolicy::Ignore),
        with(1, FailurePolicy::Fail),
    ]);
    world.ok(Command::Delete(Delete {
        namespace: Namespace::default(),
        jobs: ids[..1].to_vec(),
    }));
    let states: Vec<_> = ids.iter().map(|id| world.state(id)).collect();
    let (failed, ready) = (Some(JobState::Failed), Some(JobState::Ready));
    assert_eq!(states, [None, failed, ready, failed]);
}

#[test]
fn a_retried_job_ignores_the_failure_that_its_edge_ignores() {
    let mut world = World::new();
    let deadline = Some(world.now.wall.after(secs(5)));
    let root = world.enqueue_one(job());
    let edge = NewEdge {
        dependency: Dependency::Job(root),
        policy: FailurePolicy::Ignore,
    };
    let lenient = world.enqueue_one(NewJob {
        inputs: vec![NewInput::Result(edge)],
        deadline,
        ..job()
    });
    let grant = world.lease_one("w");
    world.pass(secs(6));
    assert_eq!(world.state(&lenient), Some(JobState::Failed));
    world.run(fail(&grant, true)).unwrap();
    let Reply::Changed { count: 1, skipped } = world.ok(retry(std::slice::from_ref(&lenient)))
    else {
        panic!("it is skipped")
    };
    assert!(skipped.is_empty());
    assert_eq!(world.state(&lenient), Some(JobState::Ready));
    world.restart();
}

#[test]
fn a_schedule_replaces_its_earlier_run_also_when_that_stands_in_a_full_queue() {
    let mut world = World::new();
    let put = |queue, first_at| {
        let schedule = ScheduleRecord {
            namespace: Namespace::default(),
            id: ScheduleId::from_static("nightly"),
            spec: ScheduleSpec::Interval {
                every: secs(60),
                first_at,
            },
            catch_up: CatchUp::Last,
            overlap: Overlap::Replace,
            paused: false,
            queue: Queue::from_static(queue),
            kind: Kind::from_static("k"),
            payload: Bytes::new(),
            priority: Priority::default(),
            retry: None,
            timeout: None,
            tags: Vec::new(),
            labels: Vec::new(),
            created_at: first_at,
            next_at: None,
            runs: 0,
            last_job: None,
        };
        Command::PutSchedule(Box::new(PutSchedule { schedule }))
    };
    let start = world.now.wall;
    world.ok(put("default", start.after(secs(10))));
    world.pass(secs(10));
    world.enqueue_one(job());
    let limit = QueueSettings {
        live_max: Some(1),
        ..QueueSettings::default()
    };
    world.ok(configure("default", limit));
    // The next run goes to another queue, which has room.
    world.ok(put("other", start.after(secs(20))));
    world.pass(secs(10));
    let Reply::Leased(grants) = world.ok(lease("w", &["other"], 9)) else {
        panic!()
    };
    assert_eq!(grants.len(), 1, "the run was made");
    assert_eq!(
        world.rows.finished.len(),
        1,
        "the earlier one was cancelled"
    );
}

#[test]
fn the_grace_of_a_warned_holder_outlasts_a_restart() {
    let mut world = World::new();
    let grace = |grace_for| {
        let settings = QueueSettings {
            grace_for,
            lease_for: Some(secs(10)),
            ..Default::default()
        };
        configure("default", settings)
    };
    world.ok(grace(Some(secs(100))));
    let id = world.enqueue_one(job());
    world.lease_one("w");
    world.pass(secs(10));
    world.restart();
    // Neither the restart nor the change shortens the grace period: it ends at 110.
    world.ok(grace(None));
    world.pass(secs(99));
    assert_eq!(world.state(&id), Some(JobState::Running));
    world.pass(secs(1));
    assert_eq!(world.state(&id), Some(JobState::Ready));
}

#[test]
fn on_callers_clocks_a_lease_expires_at_the_granted_time_also_after_a_restart() {
    let mut world = World::new();
    let settings = NamespaceSettings {
        clock: Clock::Caller,
        ..NamespaceSettings::default()
    };
    world.ok(Command::ConfigureNamespace(Box::new(ConfigureNamespace {
        namespace: Namespace::default(),
        settings,
    })));
    let ids = world.enqueue(vec![job(), job()]);
    let grants = world.lease("w", 2);
    assert_eq!(grants[0].lease_for, secs(60));
    world.pass(secs(30));
    world.ok(renew(&grants[0]));
    world.restart();
    // The lease renewed at 30 expires at 90, the other at 60.
    world.pass(secs(31));
    assert_eq!(world.lease_one("v").job, ids[1]);
    world.pass(secs(28));
    assert!(world.lease("v", 9).is_empty());
    world.pass(secs(2));
    assert_eq!(world.lease_one("v").job, ids[0]);
}
