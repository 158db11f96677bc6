//! Overview of all namespaces together: which one needs somebody, and where the work is.

use std::cmp::Reverse;

use maud::{Markup, html};

use crate::data::attention;
use crate::data::queues::Row;
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
    self, Failed, Overview, PARAMETERS, failure_row, longest_wait, oldest_text, rate, running_of,
    state_badge,
};
use super::queues::namespace_link;

/// Rows of each table but the first.
const ROWS: usize = 10;

/// One namespace, with what its own Overview shows.
type Found = (View, Overview);

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Fault> {
    let params = Params::read(query, PARAMETERS)?;
    let window = Window::of(&params)?;
    view.rights.check("listQueues")?;
    let mut found: Vec<Found> = Vec::new();
    for view in view.by_namespace().await {
        let overview = overview::read(&view, window).await?;
        found.push((view, overview));
    }
    let head = html! { div.heading { h1 { "Overview" } span.soft { "of all namespaces" } } };
    let missing = found.first().map(|(_, overview)| &overview.missing);
    let page = Page::new("Overview", "Overview", head).part(
        "part-attention",
        html! {
            h2 { "Needs attention" }
            (needs(&found))
            @if let Some(missing) = missing { (widgets::missing(view, "/", missing)) }
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

/// What needs attention in each namespace that has such.
fn needs(found: &[Found]) -> Markup {
    let mut bad = found.iter().filter(|(_, it)| !it.attention.is_empty());
    let Some((view, first)) = bad.next() else {
        return attention::list_of_none();
    };
    html! {
        @for (view, overview) in std::iter::once((view, first)).chain(bad.map(|it| (&it.0, &it.1))) {
            h3 { (name(view.namespace().as_bytes())) }
            (attention::list(view, &overview.attention, ROWS))
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
        @for (view, overview) in found {
            @let rows = &overview.queues;
            @let sum = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
            @let needs = u64::try_from(overview.attention.len()).unwrap_or(u64::MAX);
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
        .flat_map(|(view, overview)| overview.queues.iter().map(move |row| (view, row)));
    let load = |row: &Row| row.queue.counts.ready + row.queue.counts.running;
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
        .flat_map(|(view, overview)| overview.failures.iter().map(move |it| (view, it)));
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
