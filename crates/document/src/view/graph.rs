//! A graph, or the part of it around a job.

use ganger_types::{
    FailurePolicy, InputRow, InputState, JobId, JobState, Progress, ShardId, StoredJob,
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::names::{full_name, text};
use crate::one_of::{PolicyWord, StateWord, word};
use crate::view::job::{ProgressDocument, progress_if_any};

/// Jobs and the dependencies of these jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Graph {
    /// Name of the graph; absent if the job was not submitted with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// Jobs of the graph, as many as one answer shows.
    pub jobs: Vec<GraphJob>,
    /// Dependencies of these jobs, met or not, including those on jobs that are not in the list.
    pub edges: Vec<GraphEdge>,
    /// Whether there are more jobs or dependencies than are shown.
    pub more: bool,
    /// Jobs with more dependencies than are shown, as `shard/id`; their inputs have all. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges_cut: Vec<String>,
    /// Value of `after` for the next page; absent on the last page, and if there are no pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A job of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Node)]
pub struct GraphJob {
    /// Global name of the job, `shard/id`.
    pub id: String,
    /// Name that its submission gave the job; absent if it gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kind of the job: the program that runs it.
    pub kind: String,
    /// Queue of the job.
    pub queue: String,
    /// State of the job.
    #[serde(serialize_with = "word")]
    #[schema(value_type = StateWord)]
    pub state: JobState,
    /// Number of the last attempt; 0 before the first.
    pub attempt: u32,
    /// Progress of the running or last attempt; absent if none was reported.
    #[serde(
        serialize_with = "progress_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<ProgressDocument>)]
    pub progress: Option<Progress>,
}

/// A dependency of a job on another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Edge)]
pub struct GraphEdge {
    /// The dependency, as `shard/id`.
    pub from: String,
    /// The dependent, as `shard/id`.
    pub to: String,
    /// Whether the result of the dependency is an input of the dependent.
    pub carries_data: bool,
    /// Position of that input, from 0; absent if the dependency carries no data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// What happens to the dependent if the dependency does not succeed.
    #[serde(serialize_with = "word")]
    #[schema(value_type = PolicyWord)]
    pub policy: FailurePolicy,
}

impl GraphJob {
    /// The document of a job of a shard.
    pub fn new(shard: &ShardId, job: StoredJob) -> Self {
        let record = job.record;
        Self {
            id: full_name(shard, &record.id),
            name: record.name.map(|name| text(name.as_bytes())),
            kind: text(record.kind.as_bytes()),
            queue: text(record.queue.as_bytes()),
            state: record.state,
            attempt: record.attempt,
            progress: record.progress,
        }
    }
}

impl GraphEdge {
    /// The edge of an input of the job `to`; `None` for a value, which has no dependency.
    pub fn new(shard: &ShardId, to: &JobId, row: InputRow) -> Option<Self> {
        let position = row.position();
        let (from, policy) = match row.state {
            InputState::Value(_) => return None,
            InputState::Missing { id, policy, .. } | InputState::Delivered { id, policy, .. } => {
                (full_name(shard, &id), policy)
            }
            InputState::Ignored { id } => (full_name(shard, &id), FailurePolicy::Ignore),
            InputState::Remote {
                dependency, policy, ..
            }
            | InputState::Received {
                dependency, policy, ..
            } => (full_name(&dependency.shard, &dependency.id), policy),
        };
        Some(Self {
            from,
            to: full_name(shard, to),
            carries_data: position.is_some(),
            position,
            policy,
        })
    }
}
