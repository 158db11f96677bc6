//! Answers to submissions.

use serde::Serialize;
use utoipa::ToSchema;

use crate::request::enq::TaskId;

/// A job as it was enqueued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Enqueued {
    /// Id of the job.
    pub id: String,
    /// Global name of the job, `shard/id`.
    pub r#ref: String,
    /// Whether the job existed before, by its id, unique key or idempotency key.
    pub existed: bool,
}

/// Answer to the submission of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SubmittedGraph {
    /// Name of the graph, for showing and cancelling it; absent if the jobs were submitted one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// Whether this is the answer to an earlier submission with the same idempotency key.
    pub repeat: bool,
    /// The jobs, in the order of the submission.
    pub jobs: Vec<SubmittedJob>,
}

/// A job of a submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SubmittedJob {
    /// Name that the submission gave the job; absent if it gave none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Mock id of the job, if the submission has enq's form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mock_id: Option<TaskId>,
    /// Final id of the job in enq's form, if the submission has that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The job as it was enqueued.
    #[serde(flatten)]
    pub enqueued: Enqueued,
}
