//! A graph to be: our own form, and the way from either form to the jobs and their shards.

use ganger_types::command::NewJob;
use ganger_types::{IdempotencyKey, ShardId};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::DocumentError;
use crate::json;
use crate::names::IdempotencyKeyName;
use crate::reference::Shards;
use crate::request::enq::{self, TaskId, TaskIn};
use crate::request::job::{JobIn, Members, caption};

/// A graph: jobs with names, and references between them. All or none is enqueued.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"jobs\": [{\"name\": \"left\", \"kind\": \"count\"}]}"
)]
#[schema(as = NewGraph)]
pub struct GraphIn {
    /// The jobs, in any order.
    jobs: Vec<JobIn>,
    /// A repeat under the same key returns the first one's answer; as the header `Idempotency-Key`.
    idempotency_key: Option<IdempotencyKeyName>,
}

/// A submission that has been read, and what the answer must repeat.
pub struct Submission {
    /// The jobs with their shards, in the order of the document.
    pub jobs: Vec<(ShardId, NewJob)>,
    /// Idempotency key of the document; `None` if it has none.
    pub idempotency_key: Option<IdempotencyKey>,
    /// How the document calls each job, in order.
    pub called: Vec<Called>,
    /// Pointer to the list of jobs in the document.
    pub pointer: &'static str,
}

/// How a document calls a job of its submission.
pub enum Called {
    /// By a name, or an id, or not at all.
    Name(Option<String>),
    /// By enq's mock id.
    Task(TaskId),
}

impl Called {
    /// The name as text for error messages.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Name(name) => name.clone(),
            Self::Task(task) => Some(task.to_string()),
        }
    }
}

/// Reads either form: an object with `jobs`, or enq's array of task specs.
///
/// # Errors
/// If it is not such a document, or a reference in it is unknown.
pub fn read(shards: &dyn Shards, body: &[u8]) -> Result<Submission, DocumentError> {
    if body.trim_ascii_start().starts_with(b"[") {
        let mut text = body.to_vec();
        json::blank_trailing_commas(&mut text);
        let tasks: Vec<TaskIn> = json::read(&text)?;
        let (jobs, called) = enq::convert(shards, tasks)?;
        return Ok(Submission {
            jobs,
            idempotency_key: None,
            called,
            pointer: "",
        });
    }
    let graph: GraphIn = json::read(body)?;
    let members = members(&graph.jobs)?;
    let mut called = Vec::with_capacity(graph.jobs.len());
    let mut jobs = Vec::with_capacity(graph.jobs.len());
    for (place, job) in graph.jobs.into_iter().enumerate() {
        called.push(Called::Name(caption(job.name.as_deref(), job.id.as_ref())));
        jobs.push(job.convert(shards, &members, &format!("/jobs/{place}"))?);
    }
    Ok(Submission {
        jobs,
        idempotency_key: graph.idempotency_key.map(|key| key.0),
        called,
        pointer: "/jobs",
    })
}

fn members(jobs: &[JobIn]) -> Result<Members, DocumentError> {
    let mut members = Members::with_capacity(jobs.len());
    for (place, job) in jobs.iter().enumerate() {
        let Some(name) = &job.name else { continue };
        let index = u32::try_from(place).map_err(|_| too_many(jobs.len()))?;
        if let Some(earlier) = members.insert(name.clone(), index) {
            return Err(DocumentError::new(
                "invalid_value",
                format!("/jobs/{place}/name: job {earlier} is named {name:?} already: each name stands for one job"),
            )
            .at(format!("/jobs/{place}/name")));
        }
    }
    Ok(members)
}

fn too_many(count: usize) -> DocumentError {
    DocumentError::new(
        "too_large",
        format!("the submission has {count} jobs: send fewer at once"),
    )
}
