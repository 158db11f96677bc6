//! Calls that read graphs as a whole.

use ganger_proto::{convert, v1};

use super::jobs::call;
use crate::Client;
use crate::error::Error;
use crate::model::{GraphLayout, GraphSummary, Graphs, LayoutOptions};

impl Client {
    /// Lists graphs, the newest first, over all shards: at most `limit` (100 if 0) after the `next` of an earlier page
    /// (the newest if empty).
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn graphs(&self, after: &str, limit: u32) -> Result<Graphs, Error> {
        let request = v1::ListGraphsRequest {
            namespace: self.namespace(),
            after: after.to_owned(),
            limit,
        };
        Ok(convert::graphs(call!(
            self,
            Safe,
            graphs_wire.list(request)
        )?)?)
    }

    /// Returns how far a graph is, and what holds it up.
    ///
    /// # Errors
    /// `graph_not_found`, `graph_computing` if the graph is so large that it is still being read, or if the server
    /// cannot be reached.
    pub async fn graph_summary(&self, graph: &str) -> Result<GraphSummary, Error> {
        let request = v1::ShowGraphRequest {
            namespace: self.namespace(),
            graph: graph.to_owned(),
        };
        Ok(convert::graph_summary(call!(
            self,
            Safe,
            graphs_wire.show(request)
        )?)?)
    }

    /// Returns a drawing of a graph with at most 150 boxes.
    ///
    /// # Errors
    /// See [`Client::graph_summary`]; also if an option is out of range, or the job in focus is not in the graph.
    pub async fn graph_layout(
        &self,
        graph: &str,
        options: LayoutOptions,
    ) -> Result<GraphLayout, Error> {
        let request = v1::GraphLayoutRequest {
            namespace: self.namespace(),
            graph: graph.to_owned(),
            max: options.max,
            open: options.open,
            focus: options.focus.unwrap_or_default(),
            depth: options.depth,
        };
        Ok(convert::graph_layout(call!(
            self,
            Safe,
            graphs_wire.layout(request)
        )?)?)
    }
}
