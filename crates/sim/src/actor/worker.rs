//! Workers: honest and slow ones, workers that die, and zombies that report with old tokens.

use std::time::Duration;

use ganger_types::command::{
    AppendLog, Complete, DeregisterWorker, Fail, Lease, LeaseRef, Next, Release, Renew, TakeFrom,
    TakeMode,
};
use ganger_types::{
    Bytes, Command, Grant, JobId, LeaseToken, Namespace, Progress, RequestId, Worker,
};

use super::{KnownIds, names};
use crate::plan::{Fault, Feature, Plan};
use crate::rng::Rng;

/// A job that a worker holds.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) held: LeaseRef,
    pub(crate) attempt: u32,
    pub(crate) lease_for: Duration,
    pub(crate) log_bytes: u64,
}

/// The state of a worker.
#[derive(Debug)]
pub(crate) struct SimWorker {
    pub(crate) number: usize,
    pub(crate) incarnation: u64,
    pub(crate) tasks: Vec<Task>,
    /// Reports that the worker sent, for repeats and for zombies.
    pub(crate) sent: Vec<Command>,
    last_lease: Option<Lease>,
}

/// What a worker does with a job during or after its work.
pub(crate) enum WorkerAction {
    /// Sends this command and is done with the job.
    Finish(Command),
    /// Sends this command and continues to work.
    Continue(Command),
    /// Dies with all its jobs.
    Die,
    /// Lets the lease expire, and may report afterwards.
    Sleep,
}

impl SimWorker {
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

    /// Kills the worker and replaces it by another one with a new name.
    pub(crate) fn dies(&mut self) {
        self.incarnation += 1;
        self.tasks.clear();
        self.last_lease = None;
    }

    pub(crate) fn takes(&mut self, grant: &Grant) -> usize {
        let held = LeaseRef {
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

    /// The next command of a worker without a job at hand: mostly a lease request.
    pub(crate) fn act(&mut self, plan: &Plan, known: &mut KnownIds, rng: &mut Rng) -> Command {
        if plan.does(Feature::Deregistrations) && rng.chance(40) {
            let namespace = names::namespace(plan, rng);
            return Command::DeregisterWorker(DeregisterWorker {
                namespace,
                worker: self.name(),
            });
        }
        let is_zombie = plan.suffers(Fault::Zombies) || plan.suffers(Fault::Repeats);
        if is_zombie
            && rng.chance(200)
            && let Some(old) = rng.maybe(&self.sent)
        {
            return old.clone();
        }
        if plan.suffers(Fault::WrongTokens) && rng.chance(120) && !known.ids.is_empty() {
            return wrong_report(known, rng);
        }
        let repeats = plan.does(Feature::RequestIds) && rng.chance(300);
        if repeats && let Some(lease) = &self.last_lease {
            return Command::Lease(Box::new(lease.clone()));
        }
        let lease = self.lease(plan, known, rng);
        if lease.request.is_some() {
            self.last_lease = Some(lease.clone());
        }
        Command::Lease(Box::new(lease))
    }

    fn lease(&self, plan: &Plan, known: &mut KnownIds, rng: &mut Rng) -> Lease {
        let mut order: Vec<usize> = (0..plan.queues).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, rng.index(place + 1));
        }
        order.truncate(rng.index(plan.queues) + 1);
        let from = |number: &usize| TakeFrom {
            queue: names::queue_number(*number),
            weight: u32::try_from(*number + 1).expect("few queues"),
        };
        let mode = if plan.does(Feature::TakeModes) {
            *rng.pick(&[TakeMode::Ordered, TakeMode::RoundRobin, TakeMode::Weighted])
        } else {
            TakeMode::Ordered
        };
        let jobs_max = if plan.does(Feature::Prefetch) {
            rng.small(5) + 1
        } else {
            1
        };
        let number = known.count();
        let request = plan
            .does(Feature::RequestIds)
            .then(|| RequestId::new(format!("r{number}")).expect("short"));
        Lease {
            namespace: names::namespace(plan, rng),
            queues: order.iter().map(from).collect(),
            mode,
            worker: Some(self.name()),
            jobs_max,
            lease_for: rng
                .chance(700)
                .then(|| rng.millis(100, plan.lease_ms * 2 + 100)),
            request,
        }
    }

    /// Time that a worker works on a job before it acts, in microseconds.
    pub(crate) fn works_for(plan: &Plan, rng: &mut Rng, lease_for: Duration) -> u64 {
        let lease = u64::try_from(lease_for.as_micros()).unwrap_or(u64::MAX / 8);
        if plan.suffers(Fault::WorkersSlow) && rng.chance(300) {
            // Near the end of the lease, sometimes exactly at it.
            return match rng.below(4) {
                0 => lease,
                1 => lease + rng.below(lease + 1),
                _ => lease.saturating_sub(rng.below(1_000)),
            };
        }
        rng.below(lease / 2 + 1)
    }

    /// What the worker does with a job now.
    pub(crate) fn handle(
        plan: &Plan,
        known: &KnownIds,
        task: &mut Task,
        rng: &mut Rng,
    ) -> WorkerAction {
        let held = task.held.clone();
        if plan.suffers(Fault::WorkersDie) && rng.chance(plan.fault_rate) {
            return WorkerAction::Die;
        }
        if plan.suffers(Fault::Zombies) && rng.chance(plan.fault_rate * 2) {
            return WorkerAction::Sleep;
        }
        match rng.below(100) {
            0..12 if plan.does(Feature::Renewals) => WorkerAction::Continue(renew(plan, held, rng)),
            12..20 if plan.does(Feature::Logs) => {
                let offset = if rng.chance(150) { 0 } else { task.log_bytes };
                let bytes = Bytes::from(vec![b'x'; rng.index(20) + 1]);
                let sent = u64::try_from(bytes.len()).expect("short");
                task.log_bytes = task.log_bytes.max(offset + sent);
                WorkerAction::Continue(Command::AppendLog(Box::new(AppendLog {
                    held,
                    offset,
                    bytes,
                })))
            }
            20..32 if plan.does(Feature::Releases) => {
                WorkerAction::Finish(release(plan, held, rng))
            }
            32..60 if plan.does(Feature::Failures) => {
                WorkerAction::Finish(Command::Fail(Box::new(Fail {
                    held,
                    group: names::group(rng),
                    message: "it went wrong".to_owned(),
                    permanent: rng.chance(100),
                    retry_after: rng.chance(100).then(|| rng.millis(0, plan.lease_ms)),
                    lost: rng.chance(150),
                })))
            }
            _ => WorkerAction::Finish(complete(plan, known, task, rng)),
        }
    }
}

fn renew(plan: &Plan, held: LeaseRef, rng: &mut Rng) -> Command {
    Command::Renew(Box::new(Renew {
        held,
        lease_for: rng
            .chance(400)
            .then(|| rng.millis(100, plan.lease_ms * 4 + 100)),
        progress: rng.chance(300).then(|| Progress {
            millionths: rng.small(1_000_001),
            message: "working".to_owned(),
        }),
        payload: rng
            .chance(100)
            .then(|| Bytes::from_static(b"renewed payload")),
    }))
}

fn release(plan: &Plan, held: LeaseRef, rng: &mut Rng) -> Command {
    Command::Release(Box::new(Release {
        held,
        delay: if rng.chance(500) {
            Duration::ZERO
        } else {
            rng.millis(1, plan.lease_ms)
        },
        counted: rng.chance(300),
        by_server: false,
        keep_place: rng.chance(500),
        reason: "not now".to_owned(),
    }))
}

/// The result contains the job and the attempt, so that a wrong input is detected.
pub(crate) fn result(job: &JobId, attempt: u32) -> Bytes {
    Bytes::from(format!("\"{job} by attempt {attempt}\""))
}

fn complete(plan: &Plan, known: &KnownIds, task: &Task, rng: &mut Rng) -> Command {
    let held = task.held.clone();
    let result = (!rng.chance(100)).then(|| result(&held.job, task.attempt));
    let next = (plan.does(Feature::NextQueues) && rng.chance(120)).then(|| Next {
        queue: names::queue(plan, rng),
        delay: if rng.chance(500) {
            Duration::ZERO
        } else {
            rng.millis(1, plan.lease_ms)
        },
        after: dependencies(plan, known, &held, rng),
        payload: rng.chance(300).then(|| Bytes::from_static(b"handed on")),
    });
    Command::Complete(Box::new(Complete { held, result, next }))
}

/// Dependencies of a job in its next queue: known jobs, sometimes the job itself, which must be refused.
fn dependencies(plan: &Plan, known: &KnownIds, held: &LeaseRef, rng: &mut Rng) -> Vec<JobId> {
    if !plan.does(Feature::NextDependencies) || !rng.chance(600) {
        return Vec::new();
    }
    let known = known.ids.iter().rev().take(12);
    let ours = known.filter(|(namespace, id)| *namespace == held.namespace && *id != held.job);
    let mut ids: Vec<JobId> = ours.map(|(_, id)| id.clone()).collect();
    for place in (1..ids.len()).rev() {
        ids.swap(place, rng.index(place + 1));
    }
    ids.dedup();
    ids.truncate(rng.index(3) + 1);
    if rng.chance(30) {
        ids.push(held.job.clone());
    }
    ids
}

/// The report of an honest worker.
pub(crate) fn honest(task: &Task) -> Command {
    let result = Some(result(&task.held.job, task.attempt));
    Command::Complete(Box::new(Complete {
        held: task.held.clone(),
        result,
        next: None,
    }))
}

fn wrong_report(known: &KnownIds, rng: &mut Rng) -> Command {
    let (namespace, job) = rng.pick(&known.ids).clone();
    let token = LeaseToken {
        epoch: ganger_types::Epoch(rng.below(3)),
        counter: rng.below(50),
        secret: rng.bytes(),
    };
    let held = LeaseRef {
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

/// A lease request for all queues, for the drain.
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
