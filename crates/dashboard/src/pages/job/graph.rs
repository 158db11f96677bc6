//! The jobs around a job: those that it waits for, those that wait for it, and the graph that it was submitted with.

use std::time::Duration;

use ganger_router::{BOXES_MAX, GraphError, LayoutRequest};
use ganger_types::{InputState, JobRef, ShardId, StoredJob};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::format::plural;
use crate::page::Page;
use crate::pages::graph::{Place, Zoom, address, draw};
use crate::pages::jobs::rows;
use crate::view::View;
use crate::widgets::{job_link, named_link};

use super::Found;

/// Jobs of each direction that are shown.
const SHOWN: usize = 50;
/// Steps of the drawing around the job.
const DEPTH: u32 = 2;
/// How long the page waits for a large graph to be read.
const WAIT: Duration = Duration::from_millis(300);

pub(super) async fn add(view: &View, found: &Found, page: Page) -> Result<Page, Fault> {
    view.rights.check("getGraph")?;
    let record = &found.job.record;
    let inputs = found.shard.inputs(record.key, 0, SHOWN).await?;
    let (mut before, mut elsewhere) = (Vec::new(), Vec::new());
    for row in &inputs {
        match &row.state {
            InputState::Missing { dependency, .. } | InputState::Delivered { dependency, .. } => {
                before.extend(found.shard.job_by_key(*dependency).await?);
            }
            InputState::Remote { dependency, .. } => elsewhere.push(dependency.clone()),
            InputState::Value(_) | InputState::Ignored { .. } | InputState::Received { .. } => {}
        }
    }
    let mut behind = Vec::new();
    for key in found.shard.dependents(record.key, SHOWN).await? {
        behind.extend(found.shard.job_by_key(key).await?);
    }
    let shard = found.shard.id();
    Ok(page
        .part("part-before", html! {
            h2 { "Waits for" }
            (jobs(view, shard, before, "It waits for no job of this shard."))
            (remote(view, &elsewhere))
        })
        .part("part-behind", html! { h2 { "Wait for it" } (jobs(view, shard, behind, "No job of this shard waits for it.")) })
        .part("part-graph", around(view, found).await?))
}

/// The drawing of the jobs around the job, if it was submitted with a graph.
async fn around(view: &View, found: &Found) -> Result<Markup, Fault> {
    let Some(graph) = &found.job.record.graph else {
        return Ok(html! {});
    };
    let page = address(view, graph.as_bytes());
    let full = found.full_name();
    let head = html! {
        h2 { "Graph" }
        p { "It belongs to the graph " (named_link(&page, graph.as_bytes())) "." }
    };
    if !view.rights.may_read("getGraphLayout") {
        return Ok(head);
    }
    let state = match view.site.graphs.read(view.namespace(), graph, WAIT).await {
        Ok(state) => state,
        Err(GraphError::Computing { jobs }) => {
            return Ok(
                html! { (head) p.empty { "Computing \u{2026} " (plural(jobs, "job")) " read so far." } },
            );
        }
        Err(error) => return Err(error.into()),
    };
    let request = LayoutRequest {
        boxes_max: BOXES_MAX,
        open: Vec::new(),
        focus: Some(JobRef {
            shard: found.shard.id().clone(),
            id: found.job.record.id.clone(),
        }),
        depth: DEPTH,
    };
    let name = graph.clone();
    let layout = tokio::task::spawn_blocking(move || state.layout(&name, &request));
    let layout = layout.await.map_err(|_| Fault::unexpected_reply())??;
    let place = Place {
        address: page
            .clone()
            .with("focus", &full)
            .with("depth", &DEPTH.to_string()),
        open: &[],
        zoom: Zoom::Whole,
        table: page.with("view", "levels"),
    };
    Ok(html! { (head) (draw(view, &layout, &place)) })
}

fn jobs(view: &View, shard: &ShardId, jobs: Vec<StoredJob>, none: &str) -> Markup {
    if jobs.is_empty() {
        return html! { p.empty { (none) } };
    }
    let is_cut = jobs.len() >= SHOWN;
    let jobs: Vec<(ShardId, StoredJob)> =
        jobs.into_iter().map(|job| (shard.clone(), job)).collect();
    html! {
        (rows(view, &jobs, &[], false))
        @if is_cut { p.remark { "The first " (SHOWN) " are shown." } }
    }
}

fn remote(view: &View, jobs: &[JobRef]) -> Markup {
    html! {
        @if !jobs.is_empty() {
            p { "And for jobs of other shards:" }
            ul { @for job in jobs { li { (job_link(view, &job.shard, &job.id)) } } }
        }
    }
}
