//! Queues: how full, how old, how fast.

use std::cmp::Ordering;

use ganger_document::names::show;
use maud::{Markup, html};

use crate::data::queues::{self, Row};
use crate::fault::Fault;
use crate::format::{count, counted, span};
use crate::frame::kept_scope;
use crate::links::Address;
use crate::page::Page;
use crate::paging::{self, Slice};
use crate::params::Params;
use crate::svg;
use crate::text::plain;
use crate::view::{Missing, View};
use crate::widgets::{self, button, empty, named_link, queue_link, table};

use super::overview::{oldest_text, rate, running_of, state_badge};

pub(crate) const PARAMETERS: &[&str] = &["sort", "desc", "q", "after"];

/// A column by which rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    Ready,
    Oldest,
    Failed,
    Rate,
}

const SORTS: &[(&str, Sort)] = &[
    ("name", Sort::Name),
    ("ready", Sort::Ready),
    ("oldest", Sort::Oldest),
    ("failed", Sort::Failed),
    ("rate", Sort::Rate),
];

/// What the page shows.
pub(super) struct Queues {
    /// Rows of this page.
    pub(super) rows: Vec<Row>,
    /// Which queues of those that match the filter they are.
    pub(super) slice: Slice,
    pub(super) sort: Sort,
    pub(super) is_descending: bool,
    pub(super) part: String,
    pub(super) missing: Missing,
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Fault> {
    let params = Params::read(query, PARAMETERS)?;
    view.rights.check("listQueues")?;
    let sort = params.word("sort", SORTS)?.unwrap_or(Sort::Name);
    let is_descending = paging::descending(&params)?;
    let (mut rows, missing) = queues::all(view).await?;
    let part = params.text("q")?.unwrap_or_default().to_owned();
    rows.retain(|row| show(row.queue.queue.as_bytes()).contains(&part));
    let is_descending = is_descending.unwrap_or(sort != Sort::Name);
    rows.sort_by(|a, b| compare(a, b, sort, is_descending));
    let (mut rows, slice) = paging::take(rows, &params)?;
    queues::look_closer(view, rows.iter_mut().collect(), false).await;
    let queues = Queues {
        rows,
        slice,
        sort,
        is_descending,
        part,
        missing,
    };
    Ok(show_page(view, &queues))
}

fn compare(a: &Row, b: &Row, sort: Sort, is_descending: bool) -> Ordering {
    let by_name = a.queue.queue.cmp(&b.queue.queue);
    let order = match sort {
        Sort::Name => by_name,
        Sort::Ready => a.queue.counts.ready.cmp(&b.queue.counts.ready),
        Sort::Oldest => a.oldest().cmp(&b.oldest()),
        Sort::Failed => a.queue.counts.failed.cmp(&b.queue.counts.failed),
        Sort::Rate => a
            .rate
            .map(|rate| rate.completions_in_tenths())
            .cmp(&b.rate.map(|rate| rate.completions_in_tenths())),
    };
    let order = if is_descending {
        order.reverse()
    } else {
        order
    };
    order
        .then(by_name)
        .then_with(|| a.namespace.cmp(&b.namespace))
        .then_with(|| a.shard.id().cmp(b.shard.id()))
}

pub(super) fn show_page(view: &View, queues: &Queues) -> Page {
    let head = html! {
        div.heading {
            h1 { "Queues" } span.soft { "(" (queues.slice.matching) ")" }
            div.actions {
                @if view.rights.may_do("enqueueJob") { a.button href=(view.links.to("/jobs/new")) { "New job" } }
            }
        }
        form.filter role="search" aria-label="Filter queues" action=(view.links.bare("/queues")) {
            label { "Filter by name " input type="search" name="q" value=(queues.part) maxlength="255"; }
            (kept_scope(view))
            button { "Filter" }
        }
    };
    let page = Page::new("Queues", "Queues", head);
    page.part(
        "part-queues",
        html! { (list(view, queues)) (queues.slice.links(&address(view, queues, true))) (widgets::missing(&queues.missing)) },
    )
}

fn list(view: &View, queues: &Queues) -> Markup {
    if queues.rows.is_empty() {
        return if queues.part.is_empty() {
            let next = html! { p { a href=(view.links.to("/jobs/new")) { "New job" } } };
            empty("No queues yet. A queue begins with its first job.", &next)
        } else {
            let next = html! { p { a href=(view.links.to("/queues")) { "Clear filter" } } };
            empty("No queue matches.", &next)
        };
    }
    let head = html! {
        (heading(view, queues, "Queue", "name", Sort::Name, false))
        @if view.is_of_all_namespaces() { th scope="col" { "Namespace" } }
        @if view.is_of_many() { th scope="col" { "Shard" } }
        th scope="col" { "State" }
        (heading(view, queues, "Ready", "ready", Sort::Ready, true))
        th.number scope="col" { "Running" }
        th.number scope="col" { "Scheduled" }
        th.number scope="col" { "Blocked" }
        (heading(view, queues, "Failed", "failed", Sort::Failed, true))
        (heading(view, queues, "Oldest", "oldest", Sort::Oldest, true))
        (heading(view, queues, "Done/min", "rate", Sort::Rate, true))
        th.number scope="col" { "Time to empty" }
        th scope="col" { "Last hour" }
        @if view.rights.may_do("pauseQueue") { th scope="col" { "Actions" } }
    };
    let rows = html! {
        @for row in &queues.rows {
            @if view.is_of_all_namespaces() { (queue_row(view, &view.in_namespace(row.namespace.clone()), row)) }
            @else { (queue_row(view, view, row)) }
        }
    };
    table("Queues", &head, &rows)
}

/// A row of the page `of`; its links are those of `view`, the view of its namespace.
fn queue_row(of: &View, view: &View, row: &Row) -> Markup {
    let counts = &row.queue.counts;
    let name = show(row.queue.queue.as_bytes());
    let shard = row.shard.id().as_str();
    let of_state = |state: &str, number: u64| {
        let address = view
            .links
            .to("/jobs")
            .with("queue", &name)
            .with("state", state);
        html! { @if number == 0 { span.zero { "0" } } @else { a href=(address) { (counted(number)) } } }
    };
    let fields = [("queue", &*name), ("shard", shard)];
    html! {
        tr data-row {
            th scope="row" { (queue_link(view, row.shard.id(), &row.queue.queue)) }
            @if of.is_of_all_namespaces() { td { (namespace_link(view)) } }
            @if view.is_of_many() { td { (row.shard.id()) } }
            td { (state_badge(row.state())) }
            td.number { (of_state("ready", counts.ready)) }
            td.number { @if row.queue.settings.running_max.is_some() { (running_of(row)) } @else { (of_state("running", counts.running)) } }
            td.number { (of_state("scheduled", counts.scheduled)) }
            td.number { (of_state("blocked", counts.blocked)) }
            td.number { (of_state("failed", counts.failed)) }
            td.number { (oldest_text(row)) }
            td.number { (rate(row.rate.map(|rate| rate.completions_in_tenths()))) }
            td.number { (row.rate.and_then(|rate| rate.time_to_empty(counts.ready)).map_or_else(|| "-".to_owned(), span)) }
            td { (last_hour(row)) }
            @if of.rights.may_do("pauseQueue") {
                td {
                    @if row.queue.settings.paused { (button(view, "Resume", "resumeQueue", &fields)) }
                    @else { (button(view, "Pause", "pauseQueue", &fields)) }
                }
            }
        }
    }
}

/// The namespace of a view, with the way to its queues.
pub(super) fn namespace_link(view: &View) -> Markup {
    named_link(&view.links.to("/queues"), view.namespace().as_bytes())
}

/// The jobs that ended in the last hour, as a small drawing. Its numbers stand in a title.
fn last_hour(row: &Row) -> Markup {
    let ends = row.last_hour;
    let most = ends.into_iter().max().unwrap_or(0);
    if most == 0 {
        return html! { "-" };
    }
    let total = count(ends.iter().sum());
    let heights = ends.map(|number| number * 100 / most);
    html! { span title={ (total) " jobs ended in the last hour" } { (svg::histogram(&heights)) } }
}

/// A column heading that sorts.
fn heading(
    view: &View,
    queues: &Queues,
    word: &str,
    name: &str,
    sort: Sort,
    is_number: bool,
) -> Markup {
    let sorted = (queues.sort == sort).then_some(queues.is_descending);
    let address = address(view, queues, false);
    paging::heading(address, (word, name), sorted, is_number)
}

/// The address of the list with its filter, and with its order if that is to stay.
fn address(view: &View, queues: &Queues, is_sorted: bool) -> Address {
    let part = Some(queues.part.as_str()).filter(|part| !part.is_empty());
    let address = view.links.to("/queues").with_if("q", part);
    if !is_sorted {
        return address;
    }
    let sort = SORTS.iter().find(|(_, sort)| *sort == queues.sort);
    let address = address.with("sort", sort.map_or("name", |(name, _)| name));
    address.with("desc", if queues.is_descending { "1" } else { "0" })
}

/// Names that come near one that is not there: with a common beginning or part.
pub(super) fn near<'a>(wanted: &str, names: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let beginning: String = wanted.chars().take(3).collect();
    let wanted = wanted.to_lowercase();
    let names = names.map(|name| plain(&show(name)));
    let mut near: Vec<String> = names
        .filter(|name| {
            let lower = name.to_lowercase();
            lower.contains(&wanted)
                || wanted.contains(&lower)
                || lower.starts_with(&beginning.to_lowercase())
        })
        .collect();
    near.truncate(5);
    near
}
