//! Graphs: to messages, and to the documents of HTTP and the SDK.

use ganger_document::view::graph::{Graph, GraphEdge, GraphJob};

use super::{At, FieldError, failure_policy, known_state, non_empty, state_number};
use crate::v1;

impl From<Graph> for v1::GraphView {
    fn from(graph: Graph) -> Self {
        Self {
            graph: graph.graph.unwrap_or_default(),
            jobs: graph.jobs.into_iter().map(Into::into).collect(),
            edges: graph.edges.into_iter().map(Into::into).collect(),
            more: graph.more,
            edges_cut: graph.edges_cut,
        }
    }
}

impl From<GraphJob> for v1::GraphJob {
    fn from(job: GraphJob) -> Self {
        Self {
            id: job.id,
            name: job.name.unwrap_or_default(),
            kind: job.kind,
            queue: job.queue,
            state: state_number(job.state),
            attempt: job.attempt,
            progress: job.progress.map(Into::into),
        }
    }
}

impl From<GraphEdge> for v1::GraphEdge {
    fn from(edge: GraphEdge) -> Self {
        Self {
            from: edge.from,
            to: edge.to,
            position: edge.position,
            policy: i32::from(v1::FailurePolicy::from(edge.policy)),
        }
    }
}

/// The document of a graph.
///
/// # Errors
/// If the state of a job or the policy of an edge is missing or unknown.
pub fn graph(wire: v1::GraphView) -> Result<Graph, FieldError> {
    let jobs = wire.jobs.into_iter().map(graph_job);
    let edges = wire.edges.into_iter().map(graph_edge);
    Ok(Graph {
        graph: non_empty(wire.graph),
        jobs: jobs.collect::<Result<_, _>>()?,
        edges: edges.collect::<Result<_, _>>()?,
        more: wire.more,
        edges_cut: wire.edges_cut,
        next: None,
    })
}

fn graph_job(wire: v1::GraphJob) -> Result<GraphJob, FieldError> {
    Ok(GraphJob {
        id: wire.id,
        name: non_empty(wire.name),
        kind: wire.kind,
        queue: wire.queue,
        state: known_state(At::top("jobs.state"), wire.state)?,
        attempt: wire.attempt,
        progress: wire.progress.map(Into::into),
    })
}

fn graph_edge(wire: v1::GraphEdge) -> Result<GraphEdge, FieldError> {
    Ok(GraphEdge {
        from: wire.from,
        to: wire.to,
        carries_data: wire.position.is_some(),
        position: wire.position,
        policy: failure_policy(At::top("edges.policy"), wire.policy)?,
    })
}
