//! A graph to be: our own form, and the way from either form to the jobs and their shards.

use ganger_engine::ShardedSubmission;
use ganger_types::{IdempotencyKey, Namespace};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api::Api;
use crate::decode::enq::{TaskId, TaskIn};
use crate::decode::job::{JobIn, Members, caption};
use crate::json;
use crate::names::IdempotencyKeyName;
use crate::problem::Problem;

/// A graph: jobs with names, and references between them. All or none is enqueued.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"jobs\": [{\"name\": \"left\", \"kind\": \"count\"}]}"
)]
#[schema(as = NewGraph)]
pub(crate) struct GraphIn {
    /// The jobs, in any order.
    jobs: Vec<JobIn>,
    /// A repeat under the same key returns the first one's answer; as the header `Idempotency-Key`.
    idempotency_key: Option<IdempotencyKeyName>,
}

/// A submission that has been read, and what the answer must repeat.
pub(crate) struct Submission {
    pub(crate) spread: ShardedSubmission,
    /// How each job was called, in order.
    pub(crate) called: Vec<Called>,
    /// Where the jobs stand in the body.
    pub(crate) pointer: &'static str,
}

/// How the client calls a job of its submission.
pub(crate) enum Called {
    /// By a name, or an id, or not at all.
    Name(Option<String>),
    /// By enq's mock id.
    Task(TaskId),
}

impl Called {
    /// The name as text for error messages.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Name(name) => name.clone(),
            Self::Task(task) => Some(task.to_string()),
        }
    }
}

/// Reads either form: an object with `jobs`, or enq's array of task specs.
pub(crate) fn read(
    api: &Api,
    body: &[u8],
    namespace: Namespace,
    idempotency_key: Option<IdempotencyKey>,
) -> Result<Submission, Problem> {
    if body.trim_ascii_start().starts_with(b"[") {
        let mut text = body.to_vec();
        json::blank_trailing_commas(&mut text);
        let tasks: Vec<TaskIn> = json::read(&text)?;
        let (jobs, called) = super::enq::convert(api, tasks)?;
        let spread = ShardedSubmission {
            namespace,
            idempotency_key,
            jobs,
        };
        return Ok(Submission {
            spread,
            called,
            pointer: "",
        });
    }
    let graph: GraphIn = json::read(body)?;
    let idempotency_key = idempotency_key.or(graph.idempotency_key.map(|key| key.0));
    let members = members(&graph.jobs)?;
    let mut called = Vec::with_capacity(graph.jobs.len());
    let mut jobs = Vec::with_capacity(graph.jobs.len());
    for (place, job) in graph.jobs.into_iter().enumerate() {
        called.push(Called::Name(caption(job.name.as_deref(), job.id.as_ref())));
        jobs.push(job.convert(api, &members, &format!("/jobs/{place}"))?);
    }
    let spread = ShardedSubmission {
        namespace,
        idempotency_key,
        jobs,
    };
    Ok(Submission {
        spread,
        called,
        pointer: "/jobs",
    })
}

fn members(jobs: &[JobIn]) -> Result<Members, Problem> {
    let mut members = Members::with_capacity(jobs.len());
    for (place, job) in jobs.iter().enumerate() {
        let Some(name) = &job.name else { continue };
        let index = u32::try_from(place).map_err(|_| too_many(jobs.len()))?;
        if let Some(earlier) = members.insert(name.clone(), index) {
            return Err(Problem::new(
                "invalid_value",
                format!("/jobs/{place}/name: job {earlier} is named {name:?} already: each name stands for one job"),
            )
            .at(format!("/jobs/{place}/name")));
        }
    }
    Ok(members)
}

fn too_many(count: usize) -> Problem {
    Problem::new(
        "too_large",
        format!("the submission has {count} jobs: send fewer at once"),
    )
}
