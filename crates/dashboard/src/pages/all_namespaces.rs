//! Overview of all namespaces together: which one needs somebody, and where the work is.

use std::cmp::Reverse;

use ganger_attention::Item;
use maud::{Markup, html};

use crate::data::attention;
use crate::data::queues::{self, Row};
use crate::data::rates;
use crate::data::series::Window;
use crate::fault::Fault;
use crate::format::{counted, plural};
use crate::page::Page;
use crate::params::Params;
use crate::text::name;
use crate::view::View;
use crate::widgets::{self, columns, named_link, queue_link, table};

use super::overview::{
    self, Failed, PARAMETERS, failure_row, longest_wait, oldest_text, rate, running_of, state_badge,
};
use super::queues::namespace_link;

/// Rows of each table but the first.
const ROWS: usize = 10;

/// One namespace of the page.
struct Found {
    view: View,
    queues: Vec<Row>,
    attention: Vec<Item>,
    failures: Vec<Failed>,
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Fault> {
    let params = Params::read(query, PARAMETERS)?;
    Window::of(&params)?;
    view.rights.check("listQueues")?;
    let (rows, missing) = queues::all(view).await?;
    let (views, _) = view.by_namespace().await;
    let mut found: Vec<Found> = Vec::new();
    let mut rows = rows.into_iter().peekable();
    for view in views {
        let is_own = |row: &Row| row.namespace == *view.namespace();
        let queues: Vec<Row> = std::iter::from_fn(|| rows.next_if(is_own)).collect();
        found.push(Found {
            attention: attention::items_of(&view, false).await,
            failures: recent(&view, &queues).await?,
            queues,
            view,
        });
    }
    look_at_busiest(view, &mut found).await;
    let servers = attention::items(view).await;
    let head = html! { div.heading { h1 { "Overview" } span.soft { "of all namespaces" } } };
    let page = Page::new("Overview", "Overview", head).part(
        "part-attention",
        html! {
            h2 { "Needs attention" }
            (needs(view, &servers, &found))
            (widgets::missing(&missing))
        },
    );
    Ok(page
        .part(
            "part-namespaces",
            html! { h2 { "Namespaces" } (namespaces(&found)) },
        )
        .part(
            "part-busiest",
            html! { h2 { "Busiest queues" } (busiest(&found)) },
        )
        .part(
            "part-failures",
            html! { h2 { "Recent failures" } (failures(&found)) },
        ))
}

/// The newest failure groups of a namespace; its jobs are read only if some have failed.
async fn recent(view: &View, queues: &[Row]) -> Result<Vec<Failed>, Fault> {
    let has_failed = queues.iter().any(|row| row.queue.counts.failed > 0);
    if !has_failed || !view.rights.may_read("listJobs") {
        return Ok(Vec::new());
    }
    overview::failures(view).await
}

/// Number of jobs that wait or run in a queue.
fn load(row: &Row) -> u64 {
    row.queue.counts.ready + row.queue.counts.running
}

/// Finds out for the queues that are shown whether workers ask for their jobs.
async fn look_at_busiest(view: &View, found: &mut [Found]) {
    let rows = found.iter_mut().flat_map(|it| it.queues.iter_mut());
    let mut rows: Vec<&mut Row> = rows.collect();
    rows.sort_by_key(|row| Reverse(load(row)));
    rows.truncate(ROWS);
    queues::look_closer(view, rows, false).await;
}

/// What needs attention: of servers, and in each namespace that has such.
fn needs(view: &View, servers: &[Item], found: &[Found]) -> Markup {
    let is_well = |it: &Found| it.attention.is_empty();
    if servers.is_empty() && found.iter().all(is_well) {
        return attention::list(view, &[], ROWS);
    }
    html! {
        @if !servers.is_empty() { (attention::list(view, servers, ROWS)) }
        @for it in found.iter().filter(|it| !is_well(it)) {
            h3 { (name(it.view.namespace().as_bytes())) }
            (attention::list(&it.view, &it.attention, ROWS))
        }
    }
}

fn namespaces(found: &[Found]) -> Markup {
    let head = columns(&[
        "Namespace",
        "#Ready",
        "#Running",
        "#Scheduled",
        "#Blocked",
        "#Failed",
        "#Oldest",
        "#Done/min",
        "Attention",
    ]);
    let body = html! {
        @for Found { view, queues: rows, attention, .. } in found {
            @let sum = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
            @let needs = u64::try_from(attention.len()).unwrap_or(u64::MAX);
            @let (_, done) = rates::sum(rows.iter().filter_map(|row| row.rate)).unzip();
            tr data-row {
                th scope="row" { (named_link(&view.links.to("/"), view.namespace().as_bytes())) }
                td.number { (counted(sum(|row| row.queue.counts.ready))) }
                td.number { (counted(sum(|row| row.queue.counts.running))) }
                td.number { (counted(sum(|row| row.queue.counts.scheduled))) }
                td.number { (counted(sum(|row| row.queue.counts.blocked))) }
                td.number { (counted(sum(|row| row.queue.counts.failed))) }
                td.number { (longest_wait(rows)) }
                td.number { (rate(done)) }
                td { @if needs > 0 { (plural(needs, "thing")) } }
            }
        }
    };
    table("Namespaces", &head, &body)
}

fn busiest(found: &[Found]) -> Markup {
    let rows = found
        .iter()
        .flat_map(|it| it.queues.iter().map(move |row| (&it.view, row)));
    let mut rows: Vec<(&View, &Row)> = rows.filter(|(_, row)| load(row) > 0).collect();
    rows.sort_by_key(|(_, row)| Reverse(load(row)));
    if rows.is_empty() {
        return html! { p.empty { "No queue has ready or running jobs." } };
    }
    let head = columns(&[
        "Queue",
        "Namespace",
        "State",
        "#Ready",
        "#Running",
        "#Oldest",
        "#Done/min",
    ]);
    let body = html! {
        @for (view, row) in rows.into_iter().take(ROWS) {
            tr {
                th scope="row" { (queue_link(view, row.shard.id(), &row.queue.queue)) @if view.is_of_many() { span.soft { " on " (row.shard.id()) } } }
                td { (namespace_link(view)) }
                td { (state_badge(row.state())) }
                td.number { (counted(row.queue.counts.ready)) }
                td.number { (running_of(row)) }
                td.number { (oldest_text(row)) }
                td.number { (rate(row.rate.map(|rate| rate.completions_in_tenths()))) }
            }
        }
    };
    table("Busiest queues", &head, &body)
}

fn failures(found: &[Found]) -> Markup {
    let all = found
        .iter()
        .flat_map(|it| it.failures.iter().map(move |failed| (&it.view, failed)));
    let mut all: Vec<(&View, &Failed)> = all.collect();
    all.sort_by_key(|(_, failed)| Reverse(failed.last));
    if all.is_empty() {
        return html! { p.empty { "No failed jobs are kept." } };
    }
    let head = columns(&["Group", "Kind", "Queue", "#Jobs", "Last", "Namespace"]);
    let body = html! {
        @for (view, failed) in all.into_iter().take(ROWS) {
            tr {
                (failure_row(view, failed))
                td { (namespace_link(view)) }
            }
        }
    };
    table("Recent failures", &head, &body)
}
