//! Graphs: which there are, how far each is, and which have failed.

use std::time::Duration;

use ganger_document::names::read;
use ganger_document::view::graphs::{GraphItem, Graphs, StateCounts};
use ganger_router::read_position;
use maud::{Markup, html};

use crate::fault::Fault;
use crate::format::{counted, span, whole};
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::view::View;
use crate::widgets::{columns, command, empty, named_link, table};

use super::graph::{address, graph_state, timestamp};

/// Graphs on a page.
const GRAPHS: usize = 50;

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["after"])?;
    view.rights.check("listGraphs")?;
    let after = match params.text("after")? {
        None => None,
        Some(text) => Some(
            read_position(text)
                .ok_or_else(|| Fault::value("after", "is not the end of a page of graphs"))?,
        ),
    };
    let graphs = &view.site.graphs;
    let found = graphs.list(view.namespace(), after.as_ref(), GRAPHS).await;
    let found = found.map_err(Fault::from)?.document();
    let head = html! { div.heading { h1 { "Graphs" } } };
    Ok(Page::new("Graphs", "Graphs", head)
        .part("part-graphs", list(view, &found, after.is_none()))
        .part("part-pages", pages(view, &found, after.is_none())))
}

fn list(view: &View, found: &Graphs, is_first: bool) -> Markup {
    let shards = found.unreachable.iter();
    let missing = html! {
        @for shard in shards {
            p.remark { "Shard " (shard) " cannot be reached; its jobs are not in these numbers." }
        }
    };
    if found.graphs.is_empty() && is_first {
        let next = html! {
            p { "A graph is a set of jobs that depend on each other, submitted together:" }
            (command("ganger submit graph.json"))
        };
        return html! { (missing) (empty("No graphs are kept.", &next)) };
    }
    let head = columns(&[
        "Graph",
        "#Jobs",
        "Progress",
        "Submitted",
        "Running for",
        "#Failed",
        "State",
    ]);
    let body = html! { @for item in &found.graphs { (row(view, item)) } };
    html! { (missing) (table("Graphs", &head, &body)) }
}

fn row(view: &View, item: &GraphItem) -> Markup {
    let name = read(item.graph.as_bytes());
    let submitted_at = timestamp(item.submitted_at);
    html! {
        tr data-row {
            th scope="row" { (named_link(&address(view, &name), &name)) }
            td.number { (counted(item.jobs)) }
            td { @if let Some(counts) = &item.counts { (progress(item.jobs, counts)) } @else { span.soft { "open the graph to count" } } }
            td { (view.clock.ago(submitted_at)) }
            td {
                @match item.ended_at {
                    Some(ended_at) => { (span(run_time(item, ended_at))) }
                    None => { @if item.counts.is_some() { (view.clock.since(submitted_at)) } @else { "\u{2013}" } }
                }
            }
            td.number { @if let Some(counts) = &item.counts { (counted(counts.failed)) } @else { "\u{2013}" } }
            td { @if let Some(state) = item.state { (graph_state(state)) } @else { "\u{2013}" } }
        }
    }
}

/// Time from the submission of a graph to the end of its last job.
fn run_time(item: &GraphItem, ended_at: std::time::SystemTime) -> Duration {
    whole(
        ended_at
            .duration_since(item.submitted_at)
            .unwrap_or_default(),
    )
}

/// A bar of what has ended, and the numbers by state.
pub(super) fn progress(jobs: u64, counts: &StateCounts) -> Markup {
    let ended = counts.succeeded + counts.failed + counts.cancelled;
    let share = (ended * 1_000_000).checked_div(jobs).unwrap_or(0);
    html! {
        span.progress {
            (svg::bar(share, "progress")) " "
            (counted(ended)) " of " (counted(jobs)) " ended"
        }
        @for (word, count) in states(counts) {
            @if count > 0 && !matches!(word, "succeeded") { span.soft { " \u{b7} " (counted(count)) " " (word) } }
        }
    }
}

/// The states with their numbers, in the order in which pages show them.
pub(super) fn states(counts: &StateCounts) -> [(&'static str, u64); 7] {
    [
        ("ready", counts.ready),
        ("running", counts.running),
        ("scheduled", counts.scheduled),
        ("blocked", counts.blocked),
        ("succeeded", counts.succeeded),
        ("failed", counts.failed),
        ("cancelled", counts.cancelled),
    ]
}

fn pages(view: &View, found: &Graphs, is_first: bool) -> Markup {
    html! {
        @if !is_first || found.next.is_some() {
            nav.pages aria-label="Pages" {
                @if !is_first { a href=(view.links.to("/graphs")) { "Newest" } }
                @if let Some(next) = &found.next { a rel="next" href=(view.links.to("/graphs").with("after", next)) { "Older" } }
            }
        }
        @if !found.complete { p.remark { "The list has the newest 50,000 graphs of each shard. Older ones are found by their names." } }
    }
}
