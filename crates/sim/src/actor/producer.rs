//! Producers: single jobs, bulks and graphs; keys and ids that collide; submissions that must be refused.

use std::time::Duration;

use ganger_types::command::{Dependency, Enqueue, NewEdge, NewInput, NewJob, Start, Unique};
use ganger_types::{
    Backoff, Bytes, Command, FailurePolicy, JobId, JobName, Kind, Now, Priority, RetryPolicy,
};

use super::{KnownIds, importer, names};
use crate::plan::{Feature, Plan};
use crate::rng::Rng;

/// The shapes of graphs.
#[derive(Clone, Copy)]
enum Shape {
    Chain,
    FanIn,
    Diamond,
    Layers,
    Wide,
}

/// The next command of a producer.
pub(crate) fn act(plan: &Plan, known: &mut KnownIds, rng: &mut Rng, now: Now) -> Command {
    if plan.does(Feature::Imports) && rng.chance(100) {
        return importer::act(plan, known, rng, now);
    }
    if plan.does(Feature::IdempotencyKeys)
        && rng.chance(150)
        && let Some(earlier) = rng.maybe(&known.submissions)
    {
        // Repeat an earlier submission, as a client that lost the answer does.
        return Command::Enqueue(Box::new(earlier.clone()));
    }
    let namespace = names::namespace(plan, rng);
    let mut cmd = Enqueue {
        namespace,
        ..Enqueue::default()
    };
    if plan.does(Feature::Graphs) && rng.chance(400) {
        cmd.jobs = graph(plan, known, rng, now);
        cmd.graph = rng.chance(300);
    } else {
        let count = if plan.does(Feature::Bulk) && rng.chance(300) {
            rng.index(6) + 1
        } else {
            1
        };
        cmd.jobs = (0..count).map(|_| job(plan, known, rng, now)).collect();
        refer_to_existing(plan, known, rng, &mut cmd);
    }
    if plan.does(Feature::IdempotencyKeys) && rng.chance(400) {
        cmd.idempotency_key = Some(names::idempotency_key(plan, rng));
    }
    if plan.does(Feature::Refusals) && rng.chance(100) {
        spoil(&mut cmd, rng, now);
    }
    if cmd.idempotency_key.is_some() || cmd.jobs.iter().any(|job| job.id.is_some()) {
        if known.submissions.len() == 12 {
            known.submissions.remove(0);
        }
        known.submissions.push(cmd.clone());
    }
    Command::Enqueue(Box::new(cmd))
}

pub(crate) fn job(plan: &Plan, known: &mut KnownIds, rng: &mut Rng, now: Now) -> NewJob {
    let mut job = NewJob {
        queue: names::queue(plan, rng),
        kind: names::kind(rng),
        payload: Bytes::from(format!("payload {}", known.count())),
        ..NewJob::default()
    };
    if plan.does(Feature::Delays) && rng.chance(300) {
        job.start = start(plan, rng, now);
    }
    if plan.does(Feature::Priorities) && rng.chance(500) {
        let value = i64::from(rng.small(5)) - 2;
        job.priority = Priority::whole(value).expect("a small priority");
    }
    if plan.does(Feature::Deadlines) && rng.chance(150) {
        job.deadline = Some(now.wall.after(rng.millis(1, plan.lease_ms * 4)));
    }
    if plan.does(Feature::Timeouts) && rng.chance(200) {
        job.timeout = Some(rng.millis(plan.lease_ms / 4 + 1, plan.lease_ms * 3));
    }
    if plan.does(Feature::RetryPolicies) && rng.chance(600) {
        job.retry = Some(retry(plan, rng));
    }
    if plan.does(Feature::Labels) && rng.chance(400) {
        job.tags = vec![names::tag(rng)];
        job.labels = vec![names::label(rng)];
        job.name = JobName::new(job.tags[0].as_bytes()).ok();
        job.tracked = rng.chance(200);
    }
    if plan.does(Feature::UniqueKeys) && rng.chance(300) {
        let window = rng.chance(500).then(|| rng.millis(1, plan.lease_ms * 3));
        job.unique = Some(Unique {
            key: names::unique(plan, rng),
            window,
        });
    } else if plan.does(Feature::GivenIds) && rng.chance(300) {
        let id = format!("given-{}", rng.below(12));
        job.id = Some(JobId::new(id).expect("a short id"));
    }
    if plan.does(Feature::Retention) && rng.chance(150) {
        job.keep_succeeded = Some(rng.chance(700).then(|| rng.millis(1, plan.lease_ms * 20)));
        job.keep_failed = Some(rng.chance(700).then(|| rng.millis(1, plan.lease_ms * 20)));
    }
    job
}

pub(crate) fn start(plan: &Plan, rng: &mut Rng, now: Now) -> Start {
    match rng.below(10) {
        0..5 => Start::After(rng.millis(1, plan.lease_ms * 2)),
        5..9 => Start::At(now.wall.after(rng.millis(0, plan.lease_ms * 2))),
        _ => Start::At(now.wall.before(Duration::from_secs(60))),
    }
}

pub(crate) fn retry(plan: &Plan, rng: &mut Rng) -> RetryPolicy {
    let unit = plan.lease_ms / 2 + 1;
    let backoff = match rng.below(4) {
        0 => Backoff::Fixed(Duration::ZERO),
        1 => Backoff::Fixed(rng.millis(1, unit)),
        2 => Backoff::List((0..=rng.below(3)).map(|_| rng.millis(0, unit)).collect()),
        _ => Backoff::Exponential {
            base: rng.millis(1, unit),
            cap: Duration::from_millis(unit * 4),
        },
    };
    let jitter_percent = if rng.chance(300) { 20 } else { 0 };
    RetryPolicy {
        retries_max: rng.small(4),
        backoff,
        jitter_percent,
        lease_expirations_max: rng.chance(300).then(|| rng.small(4)),
    }
}

fn policy(plan: &Plan, rng: &mut Rng) -> FailurePolicy {
    if !plan.does(Feature::EdgePolicies) {
        return FailurePolicy::Fail;
    }
    *rng.pick(&[
        FailurePolicy::Fail,
        FailurePolicy::Fail,
        FailurePolicy::Wait,
        FailurePolicy::Ignore,
    ])
}

/// An edge to an earlier member, sometimes carrying its result.
fn link(plan: &Plan, rng: &mut Rng, job: &mut NewJob, dependency: Dependency) {
    let edge = NewEdge {
        dependency,
        policy: policy(plan, rng),
    };
    if rng.chance(600) {
        if rng.chance(200) {
            job.inputs
                .push(NewInput::Value(Bytes::from_static(b"\"given\"")));
        }
        job.inputs.push(NewInput::Result(edge));
    } else {
        job.after.push(edge);
    }
}

fn graph(plan: &Plan, known: &mut KnownIds, rng: &mut Rng, now: Now) -> Vec<NewJob> {
    use Shape::{Chain, Diamond, FanIn, Layers, Wide};
    let shape = *rng.pick(&[Chain, FanIn, Diamond, Layers, Wide]);
    let count = match shape {
        Chain | FanIn => rng.index(4) + 2,
        Diamond => 4,
        Layers => rng.index(8) + 3,
        Wide => rng.index(8) + 2,
    };
    let mut jobs: Vec<NewJob> = (0..count).map(|_| job(plan, known, rng, now)).collect();
    // A unique key that another job holds would replace the member by that job.
    for job in &mut jobs {
        job.unique = None;
    }
    let mut seen = std::collections::BTreeSet::new();
    for job in &mut jobs {
        if job.id.as_ref().is_some_and(|id| !seen.insert(id.clone())) {
            job.id = None;
        }
    }
    let member = |place: usize| Dependency::Member(u32::try_from(place).expect("few members"));
    for (place, job) in jobs.iter_mut().enumerate().skip(1) {
        let dependencies: Vec<usize> = match shape {
            Chain => vec![place - 1],
            FanIn => {
                if place + 1 == count {
                    (0..place).collect()
                } else {
                    Vec::new()
                }
            }
            Diamond => {
                if place == 3 {
                    vec![1, 2]
                } else {
                    vec![0]
                }
            }
            Layers => (0..place).filter(|_| rng.chance(300)).collect(),
            Wide => vec![0],
        };
        for dependency in dependencies {
            link(plan, rng, job, member(dependency));
        }
    }
    if rng.chance(200) {
        // Members need not be in the order of their edges.
        reverse(&mut jobs);
    }
    jobs
}

fn reverse(jobs: &mut [NewJob]) {
    let count = u32::try_from(jobs.len()).expect("few members");
    jobs.reverse();
    for job in jobs {
        let inputs = job.inputs.iter_mut().filter_map(|input| match input {
            NewInput::Result(edge) => Some(edge),
            NewInput::Value(_) => None,
        });
        for edge in inputs.chain(&mut job.after) {
            if let Dependency::Member(member) = &mut edge.dependency {
                *member = count - 1 - *member;
            }
        }
    }
}

/// Sometimes lets a job wait for one of an earlier submission.
fn refer_to_existing(plan: &Plan, known: &KnownIds, rng: &mut Rng, cmd: &mut Enqueue) {
    if !plan.does(Feature::Graphs) || !rng.chance(250) {
        return;
    }
    let known: Vec<_> = known
        .ids
        .iter()
        .filter(|(namespace, _)| *namespace == cmd.namespace)
        .collect();
    if let (Some((_, id)), Some(job)) = (rng.maybe(&known), cmd.jobs.first_mut()) {
        link(plan, rng, job, Dependency::Job(id.clone()));
    }
}

/// Makes the submission one that must be refused.
fn spoil(cmd: &mut Enqueue, rng: &mut Rng, now: Now) {
    let place = rng.index(cmd.jobs.len());
    let edge = |dependency| NewEdge {
        dependency,
        policy: FailurePolicy::Fail,
    };
    let here = u32::try_from(place).expect("few members");
    match rng.below(8) {
        0 => cmd.jobs.clear(),
        1 => cmd.jobs[place].kind = Kind::default(),
        2 => cmd.jobs[place].after.push(edge(Dependency::Member(99))),
        3 => cmd.jobs[place].after.push(edge(Dependency::Member(here))),
        4 => {
            let nobody = JobId::new("nobody").expect("short");
            cmd.jobs[place]
                .inputs
                .push(NewInput::Result(edge(Dependency::Job(nobody))));
        }
        5 => cmd.jobs[place].deadline = Some(now.wall.before(Duration::from_secs(1))),
        6 => cmd.jobs[place].payload = Bytes::from(vec![0; (1 << 20) + 1]),
        _ => {
            let made = JobId::made(ganger_types::JobKey(7), ganger_types::IdTag(7));
            cmd.jobs[place].id = Some(made);
        }
    }
}
