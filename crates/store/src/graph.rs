//! What a reader returns of a graph: its members, the edges that lead to them, and the names of all graphs.

use ganger_types::{
    FailurePolicy, Graph, InputRow, InputState, JobId, JobKey, JobName, JobRef, JobState, Kind,
    Namespace, StoredJob, Timestamp,
};

/// A question about the members of a graph on this shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphQuery {
    /// Namespace of the graph.
    pub namespace: Namespace,
    /// Name of the graph.
    pub graph: Graph,
    /// Where the previous page ended; `None`: from the start.
    pub after: Option<GraphPosition>,
    /// Maximum number of members and edges together, at least 1.
    pub limit: usize,
}

/// Where a page of a graph ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphPosition {
    /// Last member that was returned.
    pub job: JobKey,
    /// First slot of this member's inputs that was not read; `None`: all were read.
    pub slot: Option<u32>,
}

/// Members of a graph in the order of their numbers, and edges that lead to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphPage {
    /// The members. A member comes once, before its edges, which may fill several pages.
    pub members: Vec<GraphMember>,
    /// Edges to these members, and to the last member of the page before.
    pub edges: Vec<GraphEdge>,
    /// Value of `after` for the next page; `None`: there is none.
    pub next: Option<GraphPosition>,
}

/// A job of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphMember {
    /// Number of the job.
    pub key: JobKey,
    /// Id of the job.
    pub id: JobId,
    /// Name that the submission gave the job; `None`: none.
    pub name: Option<JobName>,
    /// Kind of the job.
    pub kind: Kind,
    /// State of the job.
    pub state: JobState,
    /// Time at which the job was enqueued.
    pub created_at: Timestamp,
    /// Time at which the job ended; `None` while it is live.
    pub ended_at: Option<Timestamp>,
}

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// Number of the job.
    pub key: JobKey,
    /// State of the job.
    pub state: JobState,
    /// Time at which the job ended; `None` while it is live.
    pub ended_at: Option<Timestamp>,
}

/// An edge to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphEdge {
    /// The job that is depended on.
    pub from: Dependency,
    /// The member that depends on it.
    pub to: JobKey,
    /// Whether the result of the dependency is an input of the dependent.
    pub carries_data: bool,
    /// What happens to the dependent if the dependency does not succeed.
    pub policy: FailurePolicy,
}

/// A job that a member depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// A job of this shard.
    Here(JobKey),
    /// A job of another shard.
    Elsewhere(JobRef),
    /// A job that did not succeed, which the edge ignored; only its id is kept.
    Ignored(JobId),
}

/// The name of a graph that has jobs in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphEntry {
    /// Name of the graph.
    pub graph: Graph,
    /// First job of the graph in this store.
    pub first: JobKey,
    /// Time at which that job was enqueued.
    pub submitted_at: Timestamp,
}

impl From<StoredJob> for GraphMember {
    fn from(job: StoredJob) -> Self {
        let record = job.record;
        Self {
            key: record.key,
            id: record.id,
            name: record.name,
            kind: record.kind,
            state: record.state,
            created_at: record.created_at,
            ended_at: record.finished.map(|end| end.at),
        }
    }
}

impl From<&StoredJob> for MemberState {
    fn from(job: &StoredJob) -> Self {
        let record = &job.record;
        Self {
            key: record.key,
            state: record.state,
            ended_at: record.finished.as_ref().map(|end| end.at),
        }
    }
}

impl GraphEdge {
    /// The edge of an input; `None` for a value, which has no dependency.
    pub fn of(row: InputRow) -> Option<Self> {
        let carries_data = row.position().is_some();
        let (from, policy) = match row.state {
            InputState::Value(_) => return None,
            InputState::Missing {
                dependency, policy, ..
            }
            | InputState::Delivered {
                dependency, policy, ..
            } => (Dependency::Here(dependency), policy),
            InputState::Remote {
                dependency, policy, ..
            }
            | InputState::Received {
                dependency, policy, ..
            } => (Dependency::Elsewhere(dependency), policy),
            InputState::Ignored { id } => (Dependency::Ignored(id), FailurePolicy::Ignore),
        };
        Some(Self {
            from,
            to: row.job,
            carries_data,
            policy,
        })
    }
}

impl GraphPage {
    /// Number of members and edges.
    pub fn rows(&self) -> usize {
        self.members.len() + self.edges.len()
    }
}
