//! Random graphs over several shards.

use ganger_engine::ShardedSubmission;
use ganger_types::command::{Dependency, NewEdge, NewInput, NewJob};
use ganger_types::{
    Backoff, Bytes, FailurePolicy, IdempotencyKey, JobId, JobRef, Kind, Namespace, RetryPolicy,
    ShardId,
};

use crate::plan::{Feature, Plan};
use crate::rng::Rng;

/// The context of the next submission.
pub(crate) struct SubmissionContext<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) shards: &'a [ShardId],
    /// Jobs of earlier submissions.
    pub(crate) earlier: &'a [JobRef],
    /// Number of the submission, for its ids and payloads.
    pub(crate) number: usize,
}

/// Draws a submission of a graph at random.
pub(crate) fn draw(around: &SubmissionContext<'_>, rng: &mut Rng) -> ShardedSubmission {
    let dependencies = shape(around.plan, rng);
    let width = rng.index(around.shards.len()) + 1;
    let first = rng.index(around.shards.len());
    let mut jobs: Vec<(ShardId, NewJob)> = Vec::new();
    for (place, members) in dependencies.iter().enumerate() {
        let shard = &around.shards[(first + rng.index(width)) % around.shards.len()];
        jobs.push((shard.clone(), member(around, place, members, rng)));
    }
    if rng.chance(300) && !around.earlier.is_empty() {
        refer(around, &mut jobs, rng);
    }
    ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs,
    }
}

/// The idempotency key with this number.
pub(crate) fn key(number: u64) -> IdempotencyKey {
    IdempotencyKey::new(format!("key-{number}")).expect("a key is short")
}

/// For each job, the members that it waits for.
fn shape(plan: &Plan, rng: &mut Rng) -> Vec<Vec<usize>> {
    if !plan.does(Feature::Graphs) && rng.chance(500) {
        return vec![Vec::new(); rng.index(3) + 1];
    }
    let size = rng.index(6) + 2;
    match rng.below(5) {
        // A chain.
        0 => (0..size)
            .map(|place| place.checked_sub(1).into_iter().collect())
            .collect(),
        // Many dependencies of one job.
        1 => (0..=size)
            .map(|place| {
                if place == size {
                    (0..size).collect()
                } else {
                    Vec::new()
                }
            })
            .collect(),
        // A fan-out and a fan-in.
        2 => (0..size + 2)
            .map(|place| match place {
                0 => Vec::new(),
                last if last == size + 1 => (1..=size).collect(),
                _ => vec![0],
            })
            .collect(),
        // One dependency of many jobs.
        3 => (0..=size)
            .map(|place| if place == 0 { Vec::new() } else { vec![0] })
            .collect(),
        // Any earlier members.
        _ => (0..size + 2)
            .map(|place| (0..place).filter(|_| rng.chance(350)).collect())
            .collect(),
    }
}

fn policy(plan: &Plan, rng: &mut Rng) -> FailurePolicy {
    if !plan.does(Feature::EdgePolicies) {
        return FailurePolicy::Fail;
    }
    match rng.below(10) {
        0 => FailurePolicy::Wait,
        1..4 => FailurePolicy::Ignore,
        _ => FailurePolicy::Fail,
    }
}

fn member(
    around: &SubmissionContext<'_>,
    place: usize,
    members: &[usize],
    rng: &mut Rng,
) -> NewJob {
    let number = around.number;
    let mut job = NewJob {
        kind: Kind::from_static("echo"),
        payload: Bytes::from(format!("[{number},{place}]")),
        retry: Some(RetryPolicy {
            retries_max: rng.small(3),
            backoff: Backoff::Fixed(rng.millis(0, 2_000)),
            lease_expirations_max: rng.chance(300).then(|| rng.small(3)),
            ..RetryPolicy::default()
        }),
        ..NewJob::default()
    };
    if around.plan.does(Feature::GivenIds) && rng.chance(200) {
        job.id = Some(JobId::new(format!("given-{number}-{place}")).expect("an id is short"));
    }
    if rng.chance(300) {
        let value = Bytes::from(format!("\"value of {number}\""));
        job.inputs.push(NewInput::Value(value));
    }
    for dependency in members {
        let edge = NewEdge {
            dependency: Dependency::Member(u32::try_from(*dependency).expect("graphs are small")),
            policy: policy(around.plan, rng),
        };
        if rng.chance(200) {
            job.after.push(edge);
        } else {
            job.inputs.push(NewInput::Result(edge));
        }
    }
    job
}

/// Lets some jobs wait for jobs of earlier submissions, sometimes for one that never existed.
fn refer(around: &SubmissionContext<'_>, jobs: &mut [(ShardId, NewJob)], rng: &mut Rng) {
    for (shard, job) in jobs {
        if !rng.chance(400) {
            continue;
        }
        let mut dependency = rng.pick(around.earlier).clone();
        if rng.chance(100) && dependency.shard != *shard {
            dependency.id = JobId::new(format!("never-{}", around.number)).expect("an id is short");
        }
        let dependency = if dependency.shard == *shard {
            Dependency::Job(dependency.id)
        } else {
            Dependency::Remote {
                job: dependency,
                is_member: false,
            }
        };
        let policy = policy(around.plan, rng);
        job.inputs
            .push(NewInput::Result(NewEdge { dependency, policy }));
    }
}
