//! Graphs as a whole: the list, how far one is, and its drawing.

use std::time::Duration;

use axum::response::Response;
use ganger_router::{
    BOXES_MAX, BOXES_MIN, DEPTH_MAX, GraphState, LayoutRequest, OPEN_MAX, read_position,
};
use ganger_types::{Graph, JobRef};

use crate::arguments::{Arguments, refused};
use crate::filter;
use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;

/// How long a request waits for a large graph to be read.
const WAIT: Duration = Duration::from_secs(5);

/// Parameters of a drawing.
pub(crate) const LAYOUT_PARAMETERS: &[(&str, &str)] = &[
    ("max", "boxes at most, 10 to 150; 150 if absent"),
    (
        "open",
        "ids of boxes to open, separated by commas, at most 20",
    ),
    ("focus", "a job: only its surroundings are drawn"),
    (
        "depth",
        "steps from that job in each direction, 1 to 5; 1 if absent",
    ),
];

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let limit = filter::limit(&context.arguments)?;
    let after = match context.arguments.text("after")? {
        None => None,
        Some(text) => Some(read_position(text).ok_or_else(|| {
            refused(
                "after",
                &format!("{text:?} is not the `next` of a page of graphs"),
            )
        })?),
    };
    let graphs = context.api.graphs();
    let page = graphs.list(&context.namespace, after.as_ref(), limit);
    Ok(json::ok(&page.await?.document()))
}

pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    let (graph, state) = read(&context).await?;
    let summary = aside(move || state.summary(&graph)).await?;
    Ok(json::ok(&summary))
}

pub(crate) async fn layout(context: RequestContext) -> Result<Response, Problem> {
    let request = layout_request(&context.arguments, &context)?;
    let (graph, state) = read(&context).await?;
    let layout = aside(move || state.layout(&graph, &request)).await?;
    Ok(json::ok(&layout?))
}

fn layout_request(
    arguments: &Arguments,
    context: &RequestContext,
) -> Result<LayoutRequest, Problem> {
    let bound = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let boxes_max = arguments.number("max", bound(BOXES_MIN), bound(BOXES_MAX))?;
    let open = arguments.text("open")?.unwrap_or_default().split(',');
    let open: Vec<String> = open
        .filter(|id| !id.is_empty())
        .map(str::to_owned)
        .collect();
    if open.len() > OPEN_MAX {
        let reason = format!(
            "names {} boxes, but one drawing opens at most {OPEN_MAX}",
            open.len()
        );
        return Err(refused("open", &reason));
    }
    let focus = arguments.job("focus");
    let focus = focus.map(|job| JobRef::read(&job.0, context.shard().id()));
    let depth = arguments.number("depth", 1, DEPTH_MAX.into())?;
    Ok(LayoutRequest {
        boxes_max: boxes_max.map_or(BOXES_MAX, |max| usize::try_from(max).unwrap_or(BOXES_MAX)),
        open,
        focus: focus
            .transpose()
            .map_err(|error| refused("focus", &error.to_string()))?,
        depth: depth.map_or(1, |depth| u32::try_from(depth).unwrap_or(DEPTH_MAX)),
    })
}

async fn read(context: &RequestContext) -> Result<(Graph, GraphState), Problem> {
    let graph: Graph = context.name()?;
    let graphs = context.api.graphs();
    let state = graphs.read(&context.namespace, &graph, WAIT).await?;
    Ok((graph, state))
}

/// Runs what takes time for a large graph where it does not hold other requests up.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Problem::new("internal", error.to_string()))
}
