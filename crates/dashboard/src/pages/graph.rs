//! One graph: how far it is, what holds it up, and what it looks like.

mod drawing;
mod levels;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ganger_document::names::{full_name, show};
use ganger_document::view::graphs::{GraphLayout, GraphMember, GraphSummary};
use ganger_router::{DEPTH_MAX, GraphError, GraphState, LayoutRequest, OPEN_MAX};
use ganger_types::query::JobQuery;
use ganger_types::{Graph, JobRef, JobState, Timestamp};
use maud::{Markup, html};

use crate::data::jobs;
use crate::fault::Fault;
use crate::format::{count, counted, plural, span, whole};
use crate::links::Address;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::text::{isolated, name, plain};
use crate::view::View;
use crate::widgets::{button, danger, tabs};

use super::graphs::states;
pub(super) use drawing::{Place, Zoom, draw};

/// How long a page waits for a large graph to be read. Then it says how far the reading is, and comes again.
const WAIT: Duration = Duration::from_millis(300);
/// Jobs of the view List.
const JOBS: usize = 50;
/// Jobs of the critical path that are named.
const CHAIN: usize = 12;
const PARAMETERS: &[&str] = &["name", "view", "focus", "depth", "open", "zoom", "after"];

/// A view of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tab {
    Drawing,
    Levels,
    List,
}

const TABS: &[(&str, Tab)] = &[
    ("drawing", Tab::Drawing),
    ("levels", Tab::Levels),
    ("list", Tab::List),
];

/// What the address asks for.
struct Asked {
    graph: Graph,
    tab: Tab,
    layout: LayoutRequest,
    zoom: Zoom,
    /// First row of the table of levels.
    after: usize,
}

/// The page of a graph.
pub(super) fn address(view: &View, graph: &[u8]) -> Address {
    view.links.to("/graph").name("name", graph)
}

/// The state of a graph, as a shape with a word.
pub(super) fn graph_state(state: JobState) -> Markup {
    svg::state(state)
}

/// The time of a document.
pub(super) fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

fn read(view: &View, query: &str) -> Result<Asked, Fault> {
    let params = Params::read(query, PARAMETERS)?;
    view.rights.check("showGraph")?;
    let focus = params.bytes("focus").map(ganger_document::names::read);
    let focus = focus.map(|job| JobRef::read(&job, view.home().id()));
    let focus = focus.transpose();
    let open = params.text("open")?.unwrap_or_default().split(',');
    Ok(Asked {
        graph: params.needed("name")?,
        tab: params.word("view", TABS)?.unwrap_or(Tab::Drawing),
        layout: LayoutRequest {
            boxes_max: ganger_router::BOXES_MAX,
            open: open
                .filter(|id| !id.is_empty())
                .take(OPEN_MAX)
                .map(str::to_owned)
                .collect(),
            focus: focus.map_err(|error| Fault::value("focus", &error.to_string()))?,
            depth: params.number("depth", 1, DEPTH_MAX)?.unwrap_or(1),
        },
        zoom: params.word("zoom", drawing::ZOOMS)?.unwrap_or_default(),
        after: params.number("after", 0, 10_000_000)?.unwrap_or(0),
    })
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let asked = read(view, query)?;
    let shown = plain(&show(asked.graph.as_bytes()));
    let graphs = &view.site.graphs;
    let state = match graphs.read(view.namespace(), &asked.graph, WAIT).await {
        Ok(state) => state,
        Err(GraphError::Computing { jobs }) => return Ok(computing(&asked, &shown, jobs)),
        Err(error) => return Err(Fault::from(error).into()),
    };
    let (summary, layout) = describe(&asked, &state).await?;
    let head = head(view, &asked, &summary);
    let page = Page::new(format!("Graph {shown}"), "Graphs", head)
        .part("part-progress", progress(view, &summary));
    Ok(match asked.tab {
        Tab::Drawing => {
            let layout = layout.ok_or_else(Fault::unexpected_reply)?;
            page.part("part-drawing", drawn(view, &asked, &layout))
        }
        Tab::Levels => page.part(
            "part-levels",
            levels::show(view, &asked.graph, &state, asked.after),
        ),
        Tab::List => page.part("part-list", list(view, &asked).await?),
    })
}

/// Makes the documents where that does not hold other pages up.
async fn describe(
    asked: &Asked,
    state: &GraphState,
) -> Result<(GraphSummary, Option<GraphLayout>), Fault> {
    let (state, graph) = (state.clone(), asked.graph.clone());
    let request = (asked.tab == Tab::Drawing).then(|| asked.layout.clone());
    let made = tokio::task::spawn_blocking(move || {
        let layout = request.map(|request| state.layout(&graph, &request));
        Ok((state.summary(&graph), layout.transpose()?))
    });
    let made = made.await.map_err(|_| Fault::unexpected_reply())?;
    made.map_err(|error: GraphError| error.into())
}

/// The page of a graph that is still being read. It comes again by itself.
fn computing(asked: &Asked, shown: &str, jobs: u64) -> Page {
    let head = html! {
        div.heading { h1 { "Graph " (name(asked.graph.as_bytes())) } }
        p.empty { "Computing \u{2026} " (plural(jobs, "job")) " read so far." }
    };
    let mut page = Page::new(format!("Graph {shown}"), "Graphs", head);
    page.refresh_after = Some(1);
    page
}

fn head(view: &View, asked: &Asked, summary: &GraphSummary) -> Markup {
    let address = address(view, asked.graph.as_bytes());
    let words: Vec<(&str, Address, bool)> = TABS
        .iter()
        .zip(["Drawing", "Levels", "List"])
        .map(|((value, tab), word)| {
            let is_first = *tab == Tab::Drawing;
            let value = (!is_first).then_some(*value);
            (
                word,
                address.clone().with_if("view", value),
                *tab == asked.tab,
            )
        })
        .collect();
    let jobs = view.links.to("/jobs").name("graph", asked.graph.as_bytes());
    let submitted_at = timestamp(summary.submitted_at);
    html! {
        div.heading {
            h1 { "Graph " (name(asked.graph.as_bytes())) }
            (graph_state(summary.state))
            div.actions { (actions(view, asked, summary)) }
        }
        p.soft.facts-line {
            (plural(summary.jobs, "job")) " in " (plural(u64::from(summary.levels), "level"))
            " \u{b7} submitted " (view.clock.time(submitted_at)) " (" (view.clock.ago(submitted_at)) ")"
            @if let Some(ended_at) = summary.ended_at {
                " \u{b7} ran for " (span(whole(ended_at.duration_since(summary.submitted_at).unwrap_or_default())))
            }
            @if summary.shards.len() > 1 { " \u{b7} shards " (summary.shards.join(", ")) }
            @if summary.edges_outside > 0 { " \u{b7} " (counted(summary.edges_outside)) " dependencies on other jobs or on removed ones" }
        }
        @for shard in &summary.unreachable { p.remark { "Shard " (shard) " cannot be reached; its jobs are not in these numbers." } }
        @if !summary.complete { p.remark { "The graph has more jobs or dependencies than were read." } }
        dl.facts {
            @for (word, count) in states(&summary.counts) {
                div { dt { (capital(word)) } dd { a href=(jobs.clone().with("state", word)) { (counted(count)) } } }
            }
        }
        (tabs("Views of the graph", &words))
    }
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

fn actions(view: &View, asked: &Asked, summary: &GraphSummary) -> Markup {
    let shown = show(asked.graph.as_bytes());
    let fields = [("graph", &*shown)];
    let counts = &summary.counts;
    html! {
        @if counts.failed + counts.cancelled > 0 { (button(view, "Retry failed jobs", "retryGraph", &fields)) }
        @if summary.state == JobState::Running { (danger(view, "Cancel graph", "cancelGraph", &fields)) }
    }
}

fn progress(view: &View, summary: &GraphSummary) -> Markup {
    let path = &summary.critical_path;
    html! {
        @if path.length > 0 {
            h2 { "Critical path" }
            p {
                "The longest chain of unfinished jobs has " (plural(u64::from(path.length), "job")) ": "
                @for (at, job) in path.jobs.iter().take(CHAIN).enumerate() {
                    @if at > 0 { " \u{2192} " }
                    (member(view, job))
                }
                @let named = path.jobs.len().min(CHAIN);
                @let more = u64::from(path.length).saturating_sub(u64::try_from(named).unwrap_or(0));
                @if more > 0 { " \u{2192} \u{2026} " (count(more)) " more" }
            }
        }
        @if !summary.holding_up.is_empty() {
            h2 { "Holding it up" }
            ul {
                @for held in &summary.holding_up {
                    li {
                        (member(view, &held.job)) " " (svg::state(held.job.state)) ": "
                        @if !held.exact { "more than " }
                        (plural(held.behind, "unfinished job")) " behind it"
                    }
                }
            }
        }
    }
}

/// A link to a job, with its name or its kind.
fn member(view: &View, job: &GraphMember) -> Markup {
    let word = job.name.as_ref().unwrap_or(&job.kind);
    html! {
        a href=(view.links.bare_job(&job.id)) title=(plain(&job.id)) { (isolated(word)) }
    }
}

fn drawn(view: &View, asked: &Asked, layout: &GraphLayout) -> Markup {
    let address = address(view, asked.graph.as_bytes());
    let focus = asked.layout.focus.as_ref();
    let focus = focus.map(|job| full_name(&job.shard, &job.id));
    let depth = focus.is_some().then(|| asked.layout.depth.to_string());
    let at = Place {
        address: address
            .with_if("focus", focus.as_deref())
            .with_if("depth", depth.as_deref()),
        open: &asked.layout.open,
        zoom: asked.zoom,
        table: self::address(view, asked.graph.as_bytes()).with("view", "levels"),
    };
    html! {
        @if let Some(focus) = &focus {
            p {
                "Only the jobs around " (isolated(focus)) " are drawn. "
                a href=(self::address(view, asked.graph.as_bytes())) { "Draw the whole graph" }
                @if asked.layout.depth < DEPTH_MAX {
                    " \u{b7} "
                    @let deeper = (asked.layout.depth + 1).to_string();
                    a href=(self::address(view, asked.graph.as_bytes()).with("focus", focus).with("depth", &deeper)) { "One step more" }
                }
            }
        }
        (draw(view, layout, &at))
    }
}

async fn list(view: &View, asked: &Asked) -> Result<Markup, Fault> {
    view.rights.check("listJobs")?;
    let query = JobQuery {
        namespace: view.namespace().clone(),
        graph: Some(asked.graph.clone()),
        limit: JOBS,
        ..JobQuery::default()
    };
    let listing = jobs::list(view, &query, None).await?;
    let all = view.links.to("/jobs").name("graph", asked.graph.as_bytes());
    Ok(html! {
        (super::jobs::rows(view, &listing.jobs, &[], false))
        p { a href=(all) { "All jobs of the graph" } }
    })
}
