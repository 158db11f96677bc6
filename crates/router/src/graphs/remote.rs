//! Reads of graphs on one shard, in this process or behind a connection.

use ganger_proto::v1;
use ganger_shard::graph::{
    Dependency, GraphEdge, GraphEntry, GraphMember, GraphPage, GraphPosition, GraphQuery,
    MemberState,
};
use ganger_shard::{GraphTotals, Handle};
use ganger_types::{
    FailurePolicy, Graph, JobId, JobKey, JobName, JobRef, JobState, Kind, Namespace, ShardId,
    Timestamp, Words as _,
};
use tonic::codegen::Bytes;
use tonic::{Response, Status};

use crate::RouteError;
use crate::reach::{ShardClient, unexpected};
use crate::status::{from_status, to_status};

/// Most rows of one request of a peer.
const ROWS_MAX: u32 = 20_000;

fn bytes(name: &[u8]) -> Bytes {
    Bytes::copy_from_slice(name)
}

fn number(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

impl ShardClient {
    pub(super) async fn graph_page(&self, query: GraphQuery) -> Result<GraphPage, RouteError> {
        match self {
            Self::Here(handle) => Ok(handle.graph_page(query).await?),
            Self::There(shard, client) => {
                let request = v1::ReadGraphRequest {
                    shard: shard.to_string(),
                    namespace: bytes(query.namespace.as_bytes()),
                    graph: bytes(query.graph.as_bytes()),
                    after: query.after.map(|position| position.job.0),
                    slot: query.after.and_then(|position| position.slot),
                    limit: number(query.limit),
                };
                let reply = client.clone().read_graph(request).await;
                let reply = reply.map_err(|status| from_status(shard, &status))?;
                page_of(reply.into_inner()).ok_or_else(|| unexpected(shard))
            }
        }
    }

    pub(super) async fn graph_states(
        &self,
        (namespace, graph): (&Namespace, &Graph),
        after: Option<JobKey>,
        limit: usize,
    ) -> Result<Vec<MemberState>, RouteError> {
        match self {
            Self::Here(handle) => {
                let states = handle.graph_states(namespace, graph, after, limit);
                Ok(states.await?)
            }
            Self::There(shard, client) => {
                let request = v1::ReadGraphStatesRequest {
                    shard: shard.to_string(),
                    namespace: bytes(namespace.as_bytes()),
                    graph: bytes(graph.as_bytes()),
                    after: after.map(|key| key.0),
                    limit: number(limit),
                };
                let reply = client.clone().read_graph_states(request).await;
                let reply = reply.map_err(|status| from_status(shard, &status))?;
                states_of(&reply.into_inner()).ok_or_else(|| unexpected(shard))
            }
        }
    }

    pub(super) async fn graph_names(
        &self,
        namespace: &Namespace,
        before: Option<Graph>,
        limit: usize,
    ) -> Result<Vec<GraphEntry>, RouteError> {
        match self {
            Self::Here(handle) => Ok(handle.graph_names(namespace, before, limit).await?),
            Self::There(shard, client) => {
                let request = v1::ReadGraphNamesRequest {
                    shard: shard.to_string(),
                    namespace: bytes(namespace.as_bytes()),
                    before: before.map(|graph| bytes(graph.as_bytes())),
                    limit: number(limit),
                };
                let reply = client.clone().read_graph_names(request).await;
                let reply = reply.map_err(|status| from_status(shard, &status))?;
                let entries = reply.into_inner().graphs.into_iter().map(entry_of);
                let entries: Option<Vec<_>> = entries.collect();
                entries.ok_or_else(|| unexpected(shard))
            }
        }
    }

    pub(super) async fn graph_totals(
        &self,
        namespace: &Namespace,
        graphs: &[Graph],
        states_max: usize,
    ) -> Result<Vec<GraphTotals>, RouteError> {
        match self {
            Self::Here(handle) => Ok(handle.graph_totals(namespace, graphs, states_max).await?),
            Self::There(shard, client) => {
                let request = v1::ReadGraphTotalsRequest {
                    shard: shard.to_string(),
                    namespace: bytes(namespace.as_bytes()),
                    graphs: graphs.iter().map(|it| bytes(it.as_bytes())).collect(),
                    states_max: number(states_max),
                };
                let reply = client.clone().read_graph_totals(request).await;
                let reply = reply.map_err(|status| from_status(shard, &status))?;
                let totals = reply.into_inner().graphs;
                let totals = totals.iter().map(totals_of);
                let totals: Option<Vec<_>> = totals.collect();
                let totals = totals.filter(|it| it.len() == graphs.len());
                totals.ok_or_else(|| unexpected(shard))
            }
        }
    }
}

fn page_of(wire: v1::GraphPiece) -> Option<GraphPage> {
    let members = wire.members.into_iter().map(member_of);
    let edges = wire.edges.into_iter().map(edge_of);
    Some(GraphPage {
        members: members.collect::<Option<_>>()?,
        edges: edges.collect::<Option<_>>()?,
        next: wire.next.map(|job| GraphPosition {
            job: JobKey(job),
            slot: wire.next_slot,
        }),
    })
}

fn member_of(wire: v1::PieceMember) -> Option<GraphMember> {
    Some(GraphMember {
        key: JobKey(wire.key),
        id: JobId::new(wire.id).ok()?,
        name: wire.name.map(JobName::new).transpose().ok()?,
        kind: Kind::new(wire.kind).ok()?,
        state: state_of(wire.state)?,
        created_at: Timestamp(wire.created_at_us),
        ended_at: wire.ended_at_us.map(Timestamp),
    })
}

fn state_of(number: u32) -> Option<JobState> {
    JobState::from_number(u8::try_from(number).ok()?)
}

fn edge_of(wire: v1::PieceEdge) -> Option<GraphEdge> {
    let from = if let Some(key) = wire.here {
        Dependency::Here(JobKey(key))
    } else {
        let id = JobId::new(wire.id).ok()?;
        match ShardId::new(&wire.shard) {
            Some(shard) => Dependency::Elsewhere(JobRef { shard, id }),
            None => Dependency::Ignored(id),
        }
    };
    Some(GraphEdge {
        from,
        to: JobKey(wire.to),
        carries_data: wire.carries_data,
        policy: FailurePolicy::from_word(&wire.policy)?,
    })
}

fn states_of(wire: &v1::MemberStates) -> Option<Vec<MemberState>> {
    let is_whole =
        wire.keys.len() == wire.states.len() && wire.keys.len() == wire.ended_at_us.len();
    if !is_whole {
        return None;
    }
    let rows = wire.keys.iter().zip(&wire.states).zip(&wire.ended_at_us);
    rows.map(|((key, state), ended_at)| {
        Some(MemberState {
            key: JobKey(*key),
            state: state_of(*state)?,
            ended_at: (*ended_at > 0).then_some(Timestamp(*ended_at)),
        })
    })
    .collect()
}

fn entry_of(wire: v1::NamedGraph) -> Option<GraphEntry> {
    Some(GraphEntry {
        graph: Graph::new(wire.graph).ok()?,
        first: JobKey(wire.first),
        submitted_at: Timestamp(wire.submitted_at_us),
    })
}

fn totals_of(wire: &v1::TotalsOfGraph) -> Option<GraphTotals> {
    Some(GraphTotals {
        jobs: wire.jobs,
        submitted_at: wire.submitted_at_us.map(Timestamp),
        states: match &wire.states {
            None => None,
            Some(states) => Some(states_of(states)?),
        },
    })
}

fn from_member(member: GraphMember) -> v1::PieceMember {
    v1::PieceMember {
        key: member.key.0,
        id: bytes(member.id.as_bytes()),
        name: member.name.map(|name| bytes(name.as_bytes())),
        kind: bytes(member.kind.as_bytes()),
        state: u32::from(member.state.number()),
        created_at_us: member.created_at.0,
        ended_at_us: member.ended_at.map(|at| at.0),
    }
}

fn from_edge(edge: GraphEdge) -> v1::PieceEdge {
    let mut wire = v1::PieceEdge {
        to: edge.to.0,
        carries_data: edge.carries_data,
        policy: edge.policy.word().to_owned(),
        ..v1::PieceEdge::default()
    };
    match edge.from {
        Dependency::Here(key) => wire.here = Some(key.0),
        Dependency::Elsewhere(job) => {
            wire.shard = job.shard.to_string();
            wire.id = bytes(job.id.as_bytes());
        }
        Dependency::Ignored(id) => wire.id = bytes(id.as_bytes()),
    }
    wire
}

fn from_states(states: &[MemberState]) -> v1::MemberStates {
    v1::MemberStates {
        keys: states.iter().map(|it| it.key.0).collect(),
        states: states.iter().map(|it| it.state.number().into()).collect(),
        ended_at_us: states
            .iter()
            .map(|it| it.ended_at.map_or(0, |at| at.0))
            .collect(),
    }
}

fn wrong(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

fn refused(error: impl Into<RouteError>) -> Status {
    to_status(&error.into())
}

fn limit(asked: u32) -> usize {
    usize::try_from(asked.clamp(1, ROWS_MAX)).expect("32 bits fit")
}

/// Answers a peer that reads a page of a graph.
pub(crate) async fn serve_page(
    shard: &Handle,
    request: v1::ReadGraphRequest,
) -> Result<Response<v1::GraphPiece>, Status> {
    let query = GraphQuery {
        namespace: Namespace::new(&request.namespace).map_err(wrong)?,
        graph: Graph::new(&request.graph).map_err(wrong)?,
        after: request.after.map(|job| GraphPosition {
            job: JobKey(job),
            slot: request.slot,
        }),
        limit: limit(request.limit),
    };
    let page = shard.graph_page(query).await.map_err(refused)?;
    Ok(Response::new(v1::GraphPiece {
        members: page.members.into_iter().map(from_member).collect(),
        edges: page.edges.into_iter().map(from_edge).collect(),
        next: page.next.map(|position| position.job.0),
        next_slot: page.next.and_then(|position| position.slot),
    }))
}

/// Answers a peer that reads the states of a graph.
pub(crate) async fn serve_states(
    shard: &Handle,
    request: v1::ReadGraphStatesRequest,
) -> Result<Response<v1::MemberStates>, Status> {
    let namespace = Namespace::new(&request.namespace).map_err(wrong)?;
    let graph = Graph::new(&request.graph).map_err(wrong)?;
    let after = request.after.map(JobKey);
    let states = shard.graph_states(&namespace, &graph, after, limit(request.limit));
    let states = states.await.map_err(refused)?;
    Ok(Response::new(from_states(&states)))
}

/// Answers a peer that reads the names of graphs.
pub(crate) async fn serve_names(
    shard: &Handle,
    request: v1::ReadGraphNamesRequest,
) -> Result<Response<v1::GraphNames>, Status> {
    let namespace = Namespace::new(&request.namespace).map_err(wrong)?;
    let before = request.before.map(Graph::new).transpose().map_err(wrong)?;
    let names = shard.graph_names(&namespace, before, limit(request.limit));
    let names = names.await.map_err(refused)?.into_iter();
    let graphs = names.map(|entry| v1::NamedGraph {
        graph: bytes(entry.graph.as_bytes()),
        first: entry.first.0,
        submitted_at_us: entry.submitted_at.0,
    });
    Ok(Response::new(v1::GraphNames {
        graphs: graphs.collect(),
    }))
}

/// Answers a peer that reads how many jobs some graphs have.
pub(crate) async fn serve_totals(
    shard: &Handle,
    request: v1::ReadGraphTotalsRequest,
) -> Result<Response<v1::GraphTotalsReply>, Status> {
    let namespace = Namespace::new(&request.namespace).map_err(wrong)?;
    let graphs = request.graphs.iter().take(limit(ROWS_MAX)).map(Graph::new);
    let graphs = graphs.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let totals = shard.graph_totals(&namespace, &graphs, limit(request.states_max));
    let totals = totals.await.map_err(refused)?.into_iter();
    let graphs = totals.map(|totals| v1::TotalsOfGraph {
        jobs: totals.jobs,
        submitted_at_us: totals.submitted_at.map(|at| at.0),
        states: totals.states.as_deref().map(from_states),
    });
    Ok(Response::new(v1::GraphTotalsReply {
        graphs: graphs.collect(),
    }))
}
