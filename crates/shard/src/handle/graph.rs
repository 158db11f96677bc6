//! Reads of graphs. Each takes a reading thread for a bounded number of rows; callers go on page by page.

use ganger_store::graph::{GraphEntry, GraphPage, GraphQuery, MemberState};
use ganger_types::query::JobQuery;
use ganger_types::{Graph, JobKey, Namespace, Timestamp};

use super::Handle;
use crate::CallError;

/// Members whose states are read at a time.
const STATES_PAGE: usize = 5_000;

/// A graph with what its jobs on this shard are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphTotals {
    /// Number of its jobs on this shard.
    pub jobs: u64,
    /// Time at which the first kept job was enqueued; `None` without jobs.
    pub submitted_at: Option<Timestamp>,
    /// The members; `None` if there were too many to look at.
    pub states: Option<Vec<MemberState>>,
}

impl Handle {
    /// Reads a page of a graph's members and edges.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn graph_page(&self, query: GraphQuery) -> Result<GraphPage, CallError> {
        let read = self
            .shared
            .reads
            .read(move |reader| reader.graph_page(&query));
        read.await
    }

    /// Reads the states of at most `limit` members of a graph after a job.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn graph_states(
        &self,
        namespace: &Namespace,
        graph: &Graph,
        after: Option<JobKey>,
        limit: usize,
    ) -> Result<Vec<MemberState>, CallError> {
        let (namespace, graph) = (namespace.clone(), graph.clone());
        let read = self
            .shared
            .reads
            .read(move |reader| reader.graph_states(&namespace, &graph, after, limit));
        read.await
    }

    /// Reads at most `limit` names of graphs before a graph, the last name first.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn graph_names(
        &self,
        namespace: &Namespace,
        before: Option<Graph>,
        limit: usize,
    ) -> Result<Vec<GraphEntry>, CallError> {
        let namespace = namespace.clone();
        let read = self
            .shared
            .reads
            .read(move |reader| reader.graphs(&namespace, before.as_ref(), limit));
        read.await
    }

    /// Reads how many jobs graphs have here, and their states as long as these are at most `states_max` together.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn graph_totals(
        &self,
        namespace: &Namespace,
        graphs: &[Graph],
        states_max: usize,
    ) -> Result<Vec<GraphTotals>, CallError> {
        let mut left = states_max;
        let mut found = Vec::with_capacity(graphs.len());
        for graph in graphs {
            let totals = self.totals_of(namespace, graph, &mut left).await?;
            found.push(totals);
        }
        Ok(found)
    }

    async fn totals_of(
        &self,
        namespace: &Namespace,
        graph: &Graph,
        left: &mut usize,
    ) -> Result<GraphTotals, CallError> {
        let query = JobQuery {
            namespace: namespace.clone(),
            graph: Some(graph.clone()),
            limit: 1,
            ..JobQuery::default()
        };
        let (jobs, first) = self
            .shared
            .reads
            .read(move |reader| Ok((reader.count(&query)?.jobs, reader.list(&query)?)))
            .await?;
        let mut totals = GraphTotals {
            jobs,
            submitted_at: first.jobs.first().map(|job| job.record.created_at),
            states: None,
        };
        let count = usize::try_from(jobs).unwrap_or(usize::MAX);
        if count > *left {
            return Ok(totals);
        }
        *left -= count;
        let mut states: Vec<MemberState> = Vec::with_capacity(count);
        while states.len() < count {
            let after = states.last().map(|member| member.key);
            let page = self.graph_states(namespace, graph, after, STATES_PAGE);
            let page = page.await?;
            if page.is_empty() {
                break;
            }
            states.extend(page);
        }
        totals.states = Some(states);
        Ok(totals)
    }
}
