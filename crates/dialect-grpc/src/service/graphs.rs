//! Graphs as a whole: the list, how far one is, and its drawing.

use std::time::Duration;

use ganger_proto::v1;
use ganger_proto::v1::graphs_server::Graphs;
use ganger_router::{
    BOXES_MAX, BOXES_MIN, DEPTH_MAX, GraphState, LayoutRequest, OPEN_MAX, read_position,
};
use ganger_types::{Graph, JobRef, Namespace};
use tonic::{Request, Response, Status};

use crate::ServiceContext;
use crate::decode::{self, At};
use crate::problem::Problem;

/// Graphs on a page unless asked otherwise, and at most.
const PAGE_DEFAULT: u32 = 100;
const PAGE_MAX: u32 = 1_000;
/// How long a request waits for a large graph to be read.
const WAIT: Duration = Duration::from_secs(5);

fn named(namespace: &str, graph: &str) -> Result<(Namespace, Graph), Problem> {
    let namespace = decode::namespace(namespace)?;
    if graph.is_empty() {
        return Err(Problem::missing(At::top("graph"), "the name of a graph"));
    }
    let graph = Graph::new(graph).map_err(|error| Problem::invalid(At::top("graph"), error))?;
    Ok((namespace, graph))
}

impl ServiceContext {
    fn layout_request(&self, request: v1::GraphLayoutRequest) -> Result<LayoutRequest, Problem> {
        let bound = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let boxes = decode::bounded(
            At::top("max"),
            request.max,
            bound(BOXES_MAX),
            bound(BOXES_MAX),
        )?;
        if boxes < bound(BOXES_MIN) {
            let reason = format!("must be {BOXES_MIN} to {BOXES_MAX}, not {boxes}");
            return Err(Problem::invalid(At::top("max"), reason));
        }
        if request.open.len() > OPEN_MAX {
            return Err(Problem::too_large(
                At::top("open"),
                request.open.len(),
                OPEN_MAX,
            ));
        }
        let focus = Some(request.focus).filter(|job| !job.is_empty());
        let focus = focus.map(|job| JobRef::read(job.as_bytes(), self.handle.id()));
        let focus = focus.transpose();
        Ok(LayoutRequest {
            boxes_max: usize::try_from(boxes).unwrap_or(BOXES_MAX),
            open: request.open,
            focus: focus.map_err(|error| Problem::invalid(At::top("focus"), error))?,
            depth: decode::bounded(At::top("depth"), request.depth, 1, DEPTH_MAX)?,
        })
    }

    async fn read_graph(
        &self,
        namespace: &Namespace,
        graph: &Graph,
    ) -> Result<GraphState, Problem> {
        Ok(self.graphs.read(namespace, graph, WAIT).await?)
    }
}

/// Runs what takes time for a large graph where it does not hold other requests up.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Problem::new("internal", error.to_string()))
}

#[tonic::async_trait]
impl Graphs for ServiceContext {
    async fn list(
        &self,
        request: Request<v1::ListGraphsRequest>,
    ) -> Result<Response<v1::ListGraphsReply>, Status> {
        let request = request.into_inner();
        let namespace = decode::namespace(&request.namespace)?;
        let limit = decode::bounded(At::top("limit"), request.limit, PAGE_DEFAULT, PAGE_MAX)?;
        let after = match request.after.as_str() {
            "" => None,
            text => Some(read_position(text).ok_or_else(|| {
                Problem::invalid(At::top("after"), "is not the `next` of a page of graphs")
            })?),
        };
        let limit = usize::try_from(limit).expect("a page is small");
        let page = self.graphs.list(&namespace, after.as_ref(), limit).await;
        Ok(Response::new(
            page.map_err(Problem::from)?.document().into(),
        ))
    }

    async fn show(
        &self,
        request: Request<v1::ShowGraphRequest>,
    ) -> Result<Response<v1::GraphSummary>, Status> {
        let request = request.into_inner();
        let (namespace, graph) = named(&request.namespace, &request.graph)?;
        let state = self.read_graph(&namespace, &graph).await?;
        let summary = aside(move || state.summary(&graph)).await?;
        Ok(Response::new(summary.into()))
    }

    async fn layout(
        &self,
        request: Request<v1::GraphLayoutRequest>,
    ) -> Result<Response<v1::GraphLayout>, Status> {
        let request = request.into_inner();
        let (namespace, graph) = named(&request.namespace, &request.graph)?;
        let asked = self.layout_request(request)?;
        let state = self.read_graph(&namespace, &graph).await?;
        let layout = aside(move || state.layout(&graph, &asked)).await?;
        Ok(Response::new(layout.map_err(Problem::from)?.into()))
    }
}
