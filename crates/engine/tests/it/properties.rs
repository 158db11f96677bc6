//! Properties over random commands with few names, so that they collide.

#![allow(
    clippy::unwrap_used,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "a test that unwraps wrongly fails, as it should"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::*;
use ganger_types::command::*;
use ganger_types::operation::{AlteredFields, JobFilter};
use ganger_types::*;
use proptest::prelude::*;

/// A step of a random history. Numbers select among existing things, modulo their count.
#[derive(Clone, Debug)]
enum Step {
    Enqueue {
        count: usize,
        delay: u8,
        priority: i8,
        chained: bool,
        policy: u8,
        given: u8,
        unique: bool,
    },
    Lease {
        queue: usize,
        max: u32,
    },
    Complete(usize),
    Fail {
        grant: usize,
        permanent: bool,
    },
    Lose(usize),
    Release {
        grant: usize,
        counted: bool,
        keep_place: bool,
        delay: u8,
    },
    Renew(usize),
    Cancel(usize),
    Retry(usize),
    RetryAll(usize),
    Delete(usize),
    TimeOut(usize),
    Operate {
        job: usize,
        other: usize,
        action: u8,
    },
    Move {
        job: usize,
        queue: usize,
        priority: i8,
    },
    Postpone {
        job: usize,
        delay: u8,
    },
    Depend {
        job: usize,
        on: usize,
    },
    Free(usize),
    Next {
        grant: usize,
        delay: u8,
    },
    Pause(bool),
    Limit(Option<u32>),
    DeregisterWorker(usize),
    Pass(u8),
    Jump(i16),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let place = 0_usize..64;
    prop_oneof![
        4 => (1_usize..5, 0_u8..3, -1_i8..2, any::<bool>(), 0_u8..3, 0_u8..12, any::<bool>()).prop_map(
            |(count, delay, priority, chained, policy, given, unique)| Step::Enqueue {
                count, delay, priority, chained, policy, given, unique: unique && given == 0,
            }
        ),
        6 => (0_usize..2, 1_u32..4).prop_map(|(queue, max)| Step::Lease { queue, max }),
        5 => place.clone().prop_map(Step::Complete),
        3 => (place.clone(), any::<bool>()).prop_map(|(grant, permanent)| Step::Fail { grant, permanent }),
        1 => place.clone().prop_map(Step::Lose),
        2 => (place.clone(), any::<bool>(), any::<bool>(), 0_u8..2).prop_map(
            |(grant, counted, keep_place, delay)| Step::Release { grant, counted, keep_place, delay }
        ),
        1 => place.clone().prop_map(Step::Renew),
        1 => place.clone().prop_map(Step::Cancel),
        2 => place.clone().prop_map(Step::Retry),
        2 => place.clone().prop_map(Step::RetryAll),
        1 => place.clone().prop_map(Step::Delete),
        1 => place.clone().prop_map(Step::TimeOut),
        2 => (place.clone(), place.clone(), 0_u8..4).prop_map(
            |(job, other, action)| Step::Operate { job, other, action }
        ),
        1 => (place.clone(), 0_usize..2, -1_i8..2).prop_map(|(job, queue, priority)| Step::Move { job, queue, priority }),
        1 => (place.clone(), 0_u8..3).prop_map(|(job, delay)| Step::Postpone { job, delay }),
        1 => (place.clone(), place.clone()).prop_map(|(job, on)| Step::Depend { job, on }),
        1 => place.clone().prop_map(Step::Free),
        1 => (place, 0_u8..2).prop_map(|(grant, delay)| Step::Next { grant, delay }),
        1 => any::<bool>().prop_map(Step::Pause),
        1 => proptest::option::of(0_u32..3).prop_map(Step::Limit),
        1 => (0_usize..3).prop_map(Step::DeregisterWorker),
        4 => (0_u8..100).prop_map(Step::Pass),
        1 => (-200_i16..200).prop_map(Step::Jump),
        2 => Just(Step::Restart),
    ]
}

const WORKERS: [&str; 3] = ["w0", "w1", "w2"];
const QUEUES: [&str; 2] = ["default", "other"];

struct History {
    world: World,
    ids: Vec<JobId>,
    grants: Vec<Grant>,
    /// Last granted attempt of each job.
    attempts: BTreeMap<JobKey, u32>,
    tokens: std::collections::BTreeSet<LeaseToken>,
    succeeded: BTreeMap<JobId, u32>,
}

fn pick<T: Clone>(from: &[T], place: usize) -> Option<T> {
    (!from.is_empty()).then(|| from[place % from.len()].clone())
}

impl History {
    fn new() -> Self {
        Self {
            world: World::new(),
            ids: Vec::new(),
            grants: Vec::new(),
            attempts: BTreeMap::new(),
            tokens: std::collections::BTreeSet::new(),
            succeeded: BTreeMap::new(),
        }
    }

    /// Runs a command and checks that a refused one has changed nothing (`rel P6`).
    fn run(&mut self, command: Command) -> Answer {
        self.world.advance();
        let before = self.world.engine.dump();
        let answer = self.world.run(command);
        if answer.is_err() {
            assert_eq!(
                before,
                self.world.engine.dump(),
                "a refused command changed something"
            );
        }
        answer
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Enqueue {
                count,
                delay,
                priority,
                chained,
                policy,
                given,
                unique,
            } => {
                self.enqueue(count, delay, priority, chained, policy, given, unique);
            }
            Step::Lease { queue, max } => self.lease(queue, max),
            Step::Complete(grant) => {
                let Some(grant) = pick(&self.grants, grant) else {
                    return;
                };
                if let Ok(Reply::Reported { repeat: false, .. }) = self.run(complete(&grant, "1")) {
                    *self.succeeded.entry(grant.job).or_default() += 1;
                }
            }
            Step::Fail { grant, permanent } => {
                let Some(grant) = pick(&self.grants, grant) else {
                    return;
                };
                let _ = self.run(fail(&grant, permanent));
            }
            Step::Lose(grant) => {
                let Some(grant) = pick(&self.grants, grant) else {
                    return;
                };
                let _ = self.run(lost(&grant));
            }
            Step::Release {
                grant,
                counted,
                keep_place,
                delay,
            } => {
                let Some(grant) = pick(&self.grants, grant) else {
                    return;
                };
                let _ = self.run(release(
                    &grant,
                    counted,
                    keep_place,
                    secs(u64::from(delay) * 5),
                ));
            }
            Step::Renew(grant) => {
                let Some(grant) = pick(&self.grants, grant) else {
                    return;
                };
                let _ = self.run(renew(&grant));
            }
            Step::Next { grant, delay } => self.complete_into_next(grant, delay),
            Step::Pause(paused) => {
                let settings = QueueSettings {
                    paused,
                    ..QueueSettings::default()
                };
                self.run(configure("default", settings)).unwrap();
            }
            Step::Limit(running_max) => {
                let settings = QueueSettings {
                    running_max,
                    ..QueueSettings::default()
                };
                self.run(configure("other", settings)).unwrap();
            }
            Step::DeregisterWorker(worker) => {
                let worker = Worker::from_static(WORKERS[worker]);
                let bye = DeregisterWorker {
                    namespace: Namespace::default(),
                    worker,
                };
                self.run(Command::DeregisterWorker(bye)).unwrap();
            }
            Step::Pass(seconds) => self.world.pass(secs(u64::from(seconds))),
            Step::Jump(seconds) => {
                let by = secs(u64::from(seconds.unsigned_abs()));
                let wall = self.world.now.wall;
                self.world.now.wall = if seconds < 0 {
                    wall.before(by)
                } else {
                    wall.after(by)
                };
                self.world.advance();
            }
            Step::Restart => self.world.restart(),
            Step::Operate { job, other, action } => self.work_through(job, other, action),
            step => self.operate(step),
        }
    }

    fn enqueue(
        &mut self,
        count: usize,
        delay: u8,
        priority: i8,
        chained: bool,
        policy: u8,
        given: u8,
        unique: bool,
    ) {
        let policy = [
            FailurePolicy::Fail,
            FailurePolicy::Wait,
            FailurePolicy::Ignore,
        ][usize::from(policy)];
        let jobs = (0..count)
            .map(|place| NewJob {
                id: (given > 0 && place == 0).then(|| JobId::new(format!("id{given}")).unwrap()),
                queue: Queue::from_static(QUEUES[place % 2]),
                priority: Priority::whole(i64::from(priority)).unwrap(),
                start: if delay == 0 {
                    Start::Now
                } else {
                    Start::After(secs(u64::from(delay) * 20))
                },
                inputs: (chained && place > 0)
                    .then(|| result_of(u32::try_from(place / 2).unwrap(), policy))
                    .into_iter()
                    .collect(),
                retry: Some(RetryPolicy {
                    retries_max: 2,
                    backoff: Backoff::Fixed(secs(u64::from(delay) * 7)),
                    jitter_percent: 0,
                    lease_expirations_max: (priority > 0).then_some(u32::from(given % 3)),
                }),
                unique: unique.then(|| Unique {
                    key: UniqueKey::new(format!("u{place}")).unwrap(),
                    window: (delay > 1).then(|| secs(50)),
                }),
                tags: (priority > 0)
                    .then(|| Tag::from_static("t"))
                    .into_iter()
                    .collect(),
                ..job()
            })
            .collect();
        if let Ok(Reply::Enqueued { jobs, .. }) = self.run(submit(jobs)) {
            self.ids.extend(jobs.into_iter().map(|job| job.id));
        }
    }

    /// An operation on two jobs, with a page for each; the first page is sent twice.
    fn work_through(&mut self, job: usize, other: usize, action: u8) {
        let (Some(first), Some(second)) = (pick(&self.ids, job), pick(&self.ids, other)) else {
            return;
        };
        let namespace = Namespace::default;
        let action = match action {
            0 => OperationAction::Cancel,
            1 => OperationAction::Delete,
            2 => OperationAction::Retry { queue: None },
            _ => OperationAction::Alter(AlteredFields {
                queue: Some(Queue::from_static("other")),
                ..AlteredFields::default()
            }),
        };
        let start = StartOperation {
            namespace: namespace(),
            action,
            filter: JobFilter {
                kind: Some(Kind::from_static("echo")),
                ..JobFilter::default()
            },
            created_before: None,
            at_most: None,
            spread_over: None,
            reason: String::new(),
            by: String::new(),
        };
        let Ok(Reply::Operation(begun)) = self.run(Command::StartOperation(Box::new(start))) else {
            panic!("the operations before have ended")
        };
        let cursor = PageCursor::Job(JobKey(7));
        let page = |after: Option<&PageCursor>, id: JobId, next: Option<PageCursor>| {
            let step = OperationStep::Page {
                after: after.cloned(),
                jobs: vec![id],
                next,
            };
            Command::WorkOperation(Box::new(WorkOperation {
                namespace: namespace(),
                number: begun.number,
                step,
            }))
        };
        let early = page(None, first, Some(cursor.clone()));
        self.run(early.clone()).unwrap();
        let before = self.world.engine.dump();
        self.run(early).unwrap();
        assert_eq!(
            before,
            self.world.engine.dump(),
            "a page is worked through once"
        );
        let end = self.run(page(Some(&cursor), second, None)).unwrap();
        let Reply::OperationWorked { operation, .. } = end else {
            panic!("{end:?}")
        };
        assert_eq!(operation.looked_at(), 2);
    }

    fn lease(&mut self, queue: usize, max: u32) {
        let worker = WORKERS[self.grants.len() % 3];
        let Ok(Reply::Leased(grants)) = self.run(lease(worker, &[QUEUES[queue]], max)) else {
            panic!()
        };
        for grant in grants {
            let last = self.attempts.insert(grant.key, grant.attempt).unwrap_or(0);
            assert_eq!(
                grant.attempt,
                last + 1,
                "attempts have no gaps and no repeats"
            );
            assert!(
                self.tokens.insert(grant.token),
                "a token is never issued twice"
            );
            self.grants.push(grant);
        }
    }

    fn complete_into_next(&mut self, grant: usize, delay: u8) {
        let Some(grant) = pick(&self.grants, grant) else {
            return;
        };
        let next = Next {
            queue: Queue::from_static("other"),
            delay: secs(u64::from(delay) * 9),
            after: pick(&self.ids, usize::from(delay) + self.ids.len() / 2)
                .into_iter()
                .collect(),
            payload: None,
        };
        let cmd = Complete {
            held: held(&grant),
            result: None,
            next: Some(next),
        };
        let _ = self.run(Command::Complete(Box::new(cmd)));
    }

    fn operate(&mut self, step: Step) {
        let (Step::Cancel(place)
        | Step::Retry(place)
        | Step::RetryAll(place)
        | Step::Delete(place)
        | Step::TimeOut(place)
        | Step::Free(place)
        | Step::Move { job: place, .. }
        | Step::Postpone { job: place, .. }
        | Step::Depend { job: place, .. }) = step
        else {
            unreachable!("handled before")
        };
        let Some(id) = pick(&self.ids, place) else {
            return;
        };
        let namespace = Namespace::default();
        let jobs = vec![id.clone()];
        let command = match step {
            Step::Cancel(_) => cancel(&jobs),
            Step::Retry(_) => retry(&jobs),
            Step::RetryAll(_) => retry_all(&jobs),
            Step::Delete(_) => Command::Delete(Delete { namespace, jobs }),
            Step::TimeOut(_) => Command::TimeOut(TimeOut { namespace, jobs }),
            Step::Free(_) => Command::RemoveDependencies(RemoveDependencies {
                namespace,
                job: id,
                on: None,
            }),
            Step::Depend { on, .. } => Command::AddDependencies(AddDependencies {
                namespace,
                job: id,
                on: pick(&self.ids, on).into_iter().collect(),
                policy: FailurePolicy::Fail,
            }),
            Step::Move {
                queue, priority, ..
            } => Command::Alter(Box::new(Alter {
                job: Some(id),
                queue: Some(Queue::from_static(QUEUES[queue])),
                priority: Priority::whole(i64::from(priority)),
                ..Alter::default()
            })),
            Step::Postpone { delay, .. } => Command::Alter(Box::new(Alter {
                job: Some(id),
                start: Some(Start::After(secs(u64::from(delay) * 11))),
                ..Alter::default()
            })),
            _ => unreachable!("handled before"),
        };
        let _ = self.run(command);
    }

    /// Checks that an honest worker ends everything that can end (`rel T8`), and that the rest waits for a job that
    /// must be retried by hand.
    fn drain(&mut self) {
        self.world
            .ok(configure("default", QueueSettings::default()));
        self.world.ok(configure("other", QueueSettings::default()));
        for _ in 0..400 {
            if self.world.engine.live_jobs() == 0 {
                return;
            }
            let Reply::Leased(grants) = self.world.ok(lease("w0", &QUEUES, 100)) else {
                panic!()
            };
            for grant in grants {
                self.world.complete(&grant).unwrap();
            }
            self.world.pass(secs(10));
        }
        for (key, job) in &self.world.rows.jobs {
            assert_eq!(job.state, JobState::Blocked, "job {key} is stuck: {job:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    /// After every command the indexes agree, refused commands have changed nothing, the rows rebuild the engine, and
    /// attempts and tokens are unique. At the end everything drains.
    #[test]
    fn any_history_keeps_the_rules(steps in proptest::collection::vec(step(), 1..120)) {
        let mut history = History::new();
        for step in steps {
            history.apply(step);
        }
        history.drain();
        history.world.restart();
    }

    /// One long `advance` equals many short ones.
    #[test]
    fn one_long_step_equals_many_short_ones(
        steps in proptest::collection::vec(step(), 1..40),
        pauses in proptest::collection::vec(1_u64..40_000_000, 1..12),
    ) {
        let run = |split: bool| {
            let mut history = History::new();
            for step in steps.clone() {
                history.apply(step);
            }
            let whole: u64 = pauses.iter().sum();
            if split {
                for pause in &pauses {
                    history.world.pass(Duration::from_micros(*pause));
                }
            } else {
                history.world.pass(Duration::from_micros(whole));
            }
            let mut dump = history.world.engine.dump();
            dump.retain(|line| !line.starts_with("queue") || !line.contains("created_at"));
            (dump, history.world.events.iter().map(|event| event.happening.clone()).collect::<Vec<_>>())
        };
        prop_assert_eq!(run(true), run(false));
    }

    /// The same commands at the same times give the same output, byte for byte (`rel A4`).
    #[test]
    fn the_engine_is_deterministic(steps in proptest::collection::vec(step(), 1..60)) {
        let run = || {
            let mut history = History::new();
            steps.iter().cloned().for_each(|step| history.apply(step));
            (history.world.engine.dump(), history.world.events)
        };
        prop_assert_eq!(run(), run());
    }
}
