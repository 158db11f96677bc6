//! Workers: honest and slow ones, those that die, zombies with old tokens, and the forgetful.

use std::time::Duration;

use ganger_types::command::{
    AppendLog, Complete, DeregisterWorker, Fail, Held, Lease, Next, Release, Renew, TakeFrom,
    TakeMode,
};
use ganger_types::{
    Bytes, Command, Grant, JobId, LeaseToken, Namespace, Progress, RequestId, Worker,
};

use super::{Lore, names};
use crate::dice::Dice;
use crate::plan::{Fault, Feature, Plan};

/// A job in a worker's hands.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) held: Held,
    pub(crate) attempt: u32,
    pub(crate) lease_for: Duration,
    pub(crate) log_bytes: u64,
}

/// A worker, as it knows itself.
#[derive(Debug)]
pub(crate) struct Hand {
    pub(crate) number: usize,
    pub(crate) incarnation: u64,
    pub(crate) tasks: Vec<Task>,
    /// Reports sent, for repeats and for zombies.
    pub(crate) sent: Vec<Command>,
    last_lease: Option<Lease>,
}

/// What a worker does with a job when its work is over, or on the way.
pub(crate) enum Act {
    /// Sends this, and is done with the job.
    Last(Command),
    /// Sends this and goes on working.
    Then(Command),
    /// Dies with all it holds.
    Dies,
    /// Lets the lease run out, and may report afterwards.
    Sleeps,
}

impl Hand {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            incarnation: 0,
            tasks: Vec::new(),
            sent: Vec::new(),
            last_lease: None,
        }
    }

    pub(crate) fn name(&self) -> Worker {
        names::worker(self.number, self.incarnation)
    }

    /// It dies and is replaced by another under a new name.
    pub(crate) fn dies(&mut self) {
        self.incarnation += 1;
        self.tasks.clear();
        self.last_lease = None;
    }

    pub(crate) fn takes(&mut self, grant: &Grant) -> usize {
        let held = Held {
            namespace: grant.namespace.clone(),
            job: grant.job.clone(),
            token: grant.token,
        };
        self.tasks.retain(|task| task.held != held);
        self.tasks.push(Task {
            held,
            attempt: grant.attempt,
            lease_for: grant.lease_for,
            log_bytes: 0,
        });
        self.tasks.len() - 1
    }

    /// What it does of itself: mostly ask for work.
    pub(crate) fn act(&mut self, plan: &Plan, lore: &mut Lore, dice: &mut Dice) -> Command {
        if plan.does(Feature::Deregistrations) && dice.chance(40) {
            let namespace = names::namespace(plan, dice);
            return Command::DeregisterWorker(DeregisterWorker {
                namespace,
                worker: self.name(),
            });
        }
        let is_zombie = plan.suffers(Fault::Zombies) || plan.suffers(Fault::Repeats);
        if is_zombie
            && dice.chance(200)
            && let Some(old) = dice.maybe(&self.sent)
        {
            return old.clone();
        }
        if plan.suffers(Fault::WrongTokens) && dice.chance(120) && !lore.ids.is_empty() {
            return wrong_report(lore, dice);
        }
        let repeats = plan.does(Feature::RequestIds) && dice.chance(300);
        if repeats && let Some(lease) = &self.last_lease {
            return Command::Lease(Box::new(lease.clone()));
        }
        let lease = self.lease(plan, lore, dice);
        if lease.request.is_some() {
            self.last_lease = Some(lease.clone());
        }
        Command::Lease(Box::new(lease))
    }

    fn lease(&self, plan: &Plan, lore: &mut Lore, dice: &mut Dice) -> Lease {
        let mut order: Vec<usize> = (0..plan.queues).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, dice.index(place + 1));
        }
        order.truncate(dice.index(plan.queues) + 1);
        let from = |number: &usize| TakeFrom {
            queue: names::queue_number(*number),
            weight: u32::try_from(*number + 1).expect("few queues"),
        };
        let mode = if plan.does(Feature::TakeModes) {
            *dice.pick(&[TakeMode::Ordered, TakeMode::RoundRobin, TakeMode::Weighted])
        } else {
            TakeMode::Ordered
        };
        let jobs_max = if plan.does(Feature::Prefetch) {
            dice.small(5) + 1
        } else {
            1
        };
        let number = lore.count();
        let request = plan
            .does(Feature::RequestIds)
            .then(|| RequestId::new(format!("r{number}")).expect("short"));
        Lease {
            namespace: names::namespace(plan, dice),
            queues: order.iter().map(from).collect(),
            mode,
            worker: Some(self.name()),
            jobs_max,
            lease_for: dice
                .chance(700)
                .then(|| dice.millis(100, plan.lease_ms * 2 + 100)),
            request,
        }
    }

    /// How long it works on a job before it acts, in microseconds.
    pub(crate) fn works_for(plan: &Plan, dice: &mut Dice, lease_for: Duration) -> u64 {
        let lease = u64::try_from(lease_for.as_micros()).unwrap_or(u64::MAX / 8);
        if plan.suffers(Fault::WorkersSlow) && dice.chance(300) {
            // Around the lease's end, sometimes exactly at it.
            return match dice.below(4) {
                0 => lease,
                1 => lease + dice.below(lease + 1),
                _ => lease.saturating_sub(dice.below(1_000)),
            };
        }
        dice.below(lease / 2 + 1)
    }

    /// What it does with a job now.
    pub(crate) fn handle(plan: &Plan, lore: &Lore, task: &mut Task, dice: &mut Dice) -> Act {
        let held = task.held.clone();
        if plan.suffers(Fault::WorkersDie) && dice.chance(plan.fault_rate) {
            return Act::Dies;
        }
        if plan.suffers(Fault::Zombies) && dice.chance(plan.fault_rate * 2) {
            return Act::Sleeps;
        }
        match dice.below(100) {
            0..12 if plan.does(Feature::Renewals) => Act::Then(renew(plan, held, dice)),
            12..20 if plan.does(Feature::Logs) => {
                let offset = if dice.chance(150) { 0 } else { task.log_bytes };
                let bytes = Bytes::from(vec![b'x'; dice.index(20) + 1]);
                let sent = u64::try_from(bytes.len()).expect("short");
                task.log_bytes = task.log_bytes.max(offset + sent);
                Act::Then(Command::AppendLog(Box::new(AppendLog {
                    held,
                    offset,
                    bytes,
                })))
            }
            20..32 if plan.does(Feature::Releases) => Act::Last(release(plan, held, dice)),
            32..60 if plan.does(Feature::Failures) => Act::Last(Command::Fail(Box::new(Fail {
                held,
                group: names::group(dice),
                message: "it went wrong".to_owned(),
                permanent: dice.chance(100),
                retry_after: dice.chance(100).then(|| dice.millis(0, plan.lease_ms)),
                lost: dice.chance(150),
            }))),
            _ => Act::Last(complete(plan, lore, task, dice)),
        }
    }
}

fn renew(plan: &Plan, held: Held, dice: &mut Dice) -> Command {
    Command::Renew(Box::new(Renew {
        held,
        lease_for: dice
            .chance(400)
            .then(|| dice.millis(100, plan.lease_ms * 4 + 100)),
        progress: dice.chance(300).then(|| Progress {
            millionths: dice.small(1_000_001),
            message: "working".to_owned(),
        }),
        payload: dice
            .chance(100)
            .then(|| Bytes::from_static(b"renewed payload")),
    }))
}

fn release(plan: &Plan, held: Held, dice: &mut Dice) -> Command {
    Command::Release(Box::new(Release {
        held,
        delay: if dice.chance(500) {
            Duration::ZERO
        } else {
            dice.millis(1, plan.lease_ms)
        },
        counted: dice.chance(300),
        by_server: false,
        keep_place: dice.chance(500),
        reason: "not now".to_owned(),
    }))
}

/// The result tells the job and the attempt, so that a mixed-up input is seen.
pub(crate) fn result(job: &JobId, attempt: u32) -> Bytes {
    Bytes::from(format!("\"{job} by attempt {attempt}\""))
}

fn complete(plan: &Plan, lore: &Lore, task: &Task, dice: &mut Dice) -> Command {
    let held = task.held.clone();
    let result = (!dice.chance(100)).then(|| result(&held.job, task.attempt));
    let next = (plan.does(Feature::NextQueues) && dice.chance(120)).then(|| Next {
        queue: names::queue(plan, dice),
        delay: if dice.chance(500) {
            Duration::ZERO
        } else {
            dice.millis(1, plan.lease_ms)
        },
        after: dependencies(plan, lore, &held, dice),
        payload: dice.chance(300).then(|| Bytes::from_static(b"handed on")),
    });
    Command::Complete(Box::new(Complete { held, result, next }))
}

/// What a job waits for in its next queue: jobs that are known, sometimes itself, which must be refused.
fn dependencies(plan: &Plan, lore: &Lore, held: &Held, dice: &mut Dice) -> Vec<JobId> {
    if !plan.does(Feature::NextDependencies) || !dice.chance(600) {
        return Vec::new();
    }
    let known = lore.ids.iter().rev().take(12);
    let ours = known.filter(|(namespace, id)| *namespace == held.namespace && *id != held.job);
    let mut ids: Vec<JobId> = ours.map(|(_, id)| id.clone()).collect();
    for place in (1..ids.len()).rev() {
        ids.swap(place, dice.index(place + 1));
    }
    ids.dedup();
    ids.truncate(dice.index(3) + 1);
    if dice.chance(30) {
        ids.push(held.job.clone());
    }
    ids
}

/// A report that only an honest worker sends.
pub(crate) fn honest(task: &Task) -> Command {
    let result = Some(result(&task.held.job, task.attempt));
    Command::Complete(Box::new(Complete {
        held: task.held.clone(),
        result,
        next: None,
    }))
}

fn wrong_report(lore: &Lore, dice: &mut Dice) -> Command {
    let (namespace, job) = dice.pick(&lore.ids).clone();
    let token = LeaseToken {
        epoch: ganger_types::Epoch(dice.below(3)),
        counter: dice.below(50),
        secret: dice.bytes(),
    };
    let held = Held {
        namespace,
        job,
        token,
    };
    Command::Complete(Box::new(Complete {
        held,
        result: None,
        next: None,
    }))
}

/// A lease of everything, for the drain.
pub(crate) fn lease_all(plan: &Plan, namespace: Namespace, worker: Worker) -> Lease {
    let from = |number| TakeFrom {
        queue: names::queue_number(number),
        weight: 1,
    };
    Lease {
        namespace,
        queues: (0..plan.queues).map(from).collect(),
        worker: Some(worker),
        jobs_max: 100,
        lease_for: Some(Duration::from_secs(60)),
        ..Lease::default()
    }
}
