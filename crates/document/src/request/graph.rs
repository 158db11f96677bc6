//! A graph as submitted, in ganger's form or in enq's.

use ganger_types::command::NewJob;
use ganger_types::{IdempotencyKey, ShardId};
use serde::Deserialize;
use serde::de::IgnoredAny;
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
    /// Idempotency key: a repeat with the same key returns the answer of the first. Instead of the header
    /// `Idempotency-Key`.
    idempotency_key: Option<IdempotencyKeyName>,
}

/// A submission whose form was checked: jobs, and which of them wait for others.
#[derive(Debug)]
pub struct Submission {
    /// The jobs with their shards, in the order of the document.
    pub jobs: Vec<(ShardId, NewJob)>,
    /// Idempotency key of the document; `None` if it has none.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Name of each job in the document, in order.
    pub called: Vec<MemberName>,
    /// Pointer to the list of jobs in the document.
    pub pointer: &'static str,
    /// Whether the document is one job, not a graph.
    pub is_single: bool,
}

/// The name of a job in the document of its submission.
#[derive(Debug)]
pub enum MemberName {
    /// The name or id of the job; `None` if it has neither.
    Name(Option<String>),
    /// The mock id, in enq's form.
    Task(TaskId),
}

impl MemberName {
    /// The name as text for error messages.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Name(name) => name.clone(),
            Self::Task(task) => Some(task.to_string()),
        }
    }
}

/// The fields that distinguish the forms of a submission.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Probe {
    kind: Option<IgnoredAny>,
    jobs: Option<IgnoredAny>,
    task_id: Option<IgnoredAny>,
    method: Option<IgnoredAny>,
}

impl Probe {
    fn is_task(&self) -> bool {
        self.task_id.is_some() || self.method.is_some()
    }

    /// Whether the object has the fields of a job and none of a task in enq's form.
    fn is_job(&self) -> bool {
        self.kind.is_some() && !self.is_task()
    }
}

/// Reads a graph: an object with `jobs`, or enq's array of task specs.
///
/// # Errors
/// If it is not such a document, or a reference in it is unknown; the error names line and column.
pub fn read(shards: &dyn Shards, text: &[u8]) -> Result<Submission, DocumentError> {
    let read = if text.trim_ascii_start().starts_with(b"[") {
        json::read(&without_trailing_commas(text)).and_then(|tasks| of_tasks(shards, tasks))
    } else {
        json::read(text).and_then(|graph| of_graph(shards, graph))
    };
    read.map_err(|error| error.located_in(text))
}

/// Reads a submission in any form: a graph as [`read`] does, an array of jobs, one job, or one task spec.
///
/// # Errors
/// As [`read`].
pub fn read_any(shards: &dyn Shards, text: &[u8]) -> Result<Submission, DocumentError> {
    let read = if text.trim_ascii_start().starts_with(b"[") {
        let first: Option<Probe> = serde_json::from_slice::<Vec<Probe>>(text)
            .ok()
            .and_then(|items| items.into_iter().next());
        if first.is_some_and(|first| first.is_job()) {
            json::read(text).and_then(|list| of_jobs(shards, list, ""))
        } else {
            json::read(&without_trailing_commas(text)).and_then(|tasks| of_tasks(shards, tasks))
        }
    } else {
        let probe: Probe = serde_json::from_slice(text).unwrap_or_default();
        if probe.jobs.is_some() {
            json::read(text).and_then(|graph| of_graph(shards, graph))
        } else if probe.is_task() {
            json::read(text).and_then(|task| of_tasks(shards, vec![task]))
        } else {
            json::read(text).and_then(|job| of_job(shards, job))
        }
    };
    read.map_err(|error| error.located_in(text))
}

fn without_trailing_commas(text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    json::blank_trailing_commas(&mut text);
    text
}

fn of_tasks(shards: &dyn Shards, tasks: Vec<TaskIn>) -> Result<Submission, DocumentError> {
    let (jobs, called) = enq::convert(shards, tasks)?;
    Ok(Submission {
        jobs,
        idempotency_key: None,
        called,
        pointer: "",
        is_single: false,
    })
}

fn of_graph(shards: &dyn Shards, graph: GraphIn) -> Result<Submission, DocumentError> {
    Ok(Submission {
        idempotency_key: graph.idempotency_key.map(|key| key.0),
        ..of_jobs(shards, graph.jobs, "/jobs")?
    })
}

fn of_job(shards: &dyn Shards, job: JobIn) -> Result<Submission, DocumentError> {
    let called = vec![MemberName::Name(caption(
        job.name.as_deref(),
        job.id.as_ref(),
    ))];
    Ok(Submission {
        jobs: vec![job.convert_alone(shards)?],
        idempotency_key: None,
        called,
        pointer: "",
        is_single: true,
    })
}

/// The submission of jobs that refer to each other by name; their list is at `pointer`.
fn of_jobs(
    shards: &dyn Shards,
    list: Vec<JobIn>,
    pointer: &'static str,
) -> Result<Submission, DocumentError> {
    let members = members(&list, pointer)?;
    let mut called = Vec::with_capacity(list.len());
    let mut jobs = Vec::with_capacity(list.len());
    for (place, job) in list.into_iter().enumerate() {
        called.push(MemberName::Name(caption(
            job.name.as_deref(),
            job.id.as_ref(),
        )));
        jobs.push(job.convert(shards, &members, &format!("{pointer}/{place}"))?);
    }
    Ok(Submission {
        jobs,
        idempotency_key: None,
        called,
        pointer,
        is_single: false,
    })
}

fn members(jobs: &[JobIn], pointer: &str) -> Result<Members, DocumentError> {
    let mut members = Members::with_capacity(jobs.len());
    for (place, job) in jobs.iter().enumerate() {
        let Some(name) = &job.name else { continue };
        let index = u32::try_from(place).map_err(|_| too_many(jobs.len()))?;
        if let Some(earlier) = members.insert(name.clone(), index) {
            return Err(DocumentError::new(
                "invalid_value",
                format!("{pointer}/{place}/name: job {earlier} is named {name:?} already: each name stands for one job"),
            )
            .at(format!("{pointer}/{place}/name")));
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
