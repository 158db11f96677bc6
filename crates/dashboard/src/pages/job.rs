//! One job: what happened to it, why it does not run, what to do.

mod data;
mod graph;
mod history;
mod log;
mod raw;
mod summary;
mod why;

use ganger_document::names::show;
use ganger_shard::Handle;
use ganger_types::query::Query;
use ganger_types::why::Explanation;
use ganger_types::{JobRef, JobState, Reply, StoredJob};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::links::{Address, job_name};
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::text::{isolated, name, plain};
use crate::view::View;
use crate::widgets::{button, danger, kind_link, named_link, queue_link, tabs};

pub(crate) use raw::raw;

pub(crate) const PARAMETERS: &[&str] = &["id", "view", "attempt", "from", "wrap"];

/// A view of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tab {
    Summary,
    Data,
    Log,
    Graph,
    History,
}

const TABS: &[(&str, Tab)] = &[
    ("summary", Tab::Summary),
    ("data", Tab::Data),
    ("log", Tab::Log),
    ("graph", Tab::Graph),
    ("history", Tab::History),
];

/// A job that was found.
pub(super) struct Found {
    pub(super) shard: Handle,
    pub(super) job: StoredJob,
}

impl Found {
    fn full_name(&self) -> String {
        job_name(self.shard.id(), &self.job.record.id)
    }

    fn address(&self, view: &View) -> Address {
        view.links.job(self.shard.id(), &self.job.record.id)
    }
}

/// The job that a reference names: `shard/id`, or the id alone, which any shard of the view may have.
pub(super) async fn find(view: &View, reference: &[u8]) -> Result<Found, Fault> {
    let home = view.home().id();
    let asked =
        JobRef::read(reference, home).map_err(|error| Fault::value("id", &error.to_string()))?;
    let missing = || {
        let text = plain(&show(reference));
        Fault::missing("job_not_found", format!("There is no job {text}"))
    };
    let shard = view.shard(&asked.shard)?.clone();
    if let Some(job) = shard.job(view.namespace(), &asked.id).await? {
        return Ok(Found { shard, job });
    }
    for shard in view.shards().iter().filter(|it| *it.id() != asked.shard) {
        if reference.contains(&b'/') {
            break;
        }
        if let Some(job) = shard.job(view.namespace(), &asked.id).await? {
            return Ok(Found {
                shard: shard.clone(),
                job,
            });
        }
    }
    Err(missing())
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, PARAMETERS)?;
    view.rights.check("getJob")?;
    let reference = params
        .bytes("id")
        .ok_or_else(|| Fault::value("id", "is missing from the address"))?;
    let found = find(view, &ganger_document::names::read(reference)).await?;
    let tab = params.word("view", TABS)?.unwrap_or(Tab::Summary);
    let page = Page::new(
        format!("Job {}", plain(&found.full_name())),
        "Jobs",
        head(view, &found, tab),
    );
    Ok(match tab {
        Tab::Summary => summary::add(view, &found, page).await?,
        Tab::Data => data::add(view, &found, &params, page).await?,
        Tab::Log => log::add(view, &found, &params, page).await?,
        Tab::Graph => graph::add(view, &found, page).await?,
        Tab::History => history::add(view, &found, page),
    })
}

/// Why the job does not run, or that it does.
pub(super) async fn explain(view: &View, found: &Found) -> Result<Explanation, Fault> {
    let query = Query::Why(view.namespace().clone(), found.job.record.id.clone());
    match view.ask(&found.shard, query).await? {
        Reply::Why(explanation) => Ok(*explanation),
        _ => Err(Fault::unexpected_reply()),
    }
}

fn head(view: &View, found: &Found, tab: Tab) -> Markup {
    let record = &found.job.record;
    let full = found.full_name();
    let words: Vec<(&str, Address, bool)> = TABS
        .iter()
        .zip(["Summary", "Data", "Log", "Graph", "History"])
        .map(|((value, of), word)| {
            let address = found.address(view);
            let address = if *of == Tab::Summary {
                address
            } else {
                address.with("view", value)
            };
            (word, address, *of == tab)
        })
        .collect();
    html! {
        div.heading {
            h1 { "Job " (isolated(&full)) }
            (svg::state(record.state))
            div.actions { (actions(view, found)) }
        }
        p.soft.facts-line {
            "kind " (kind_link(view, &record.kind))
            " \u{b7} queue " (queue_link(view, found.shard.id(), &record.queue))
            " \u{b7} priority " (ganger_document::view::priority(record.priority))
            " \u{b7} created " (view.clock.time(record.created_at)) " (" (view.clock.ago(record.created_at)) ")"
            @if let Some(called) = &record.name { " \u{b7} name " (name(called.as_bytes())) }
            @if let Some(graph) = &record.graph { " \u{b7} graph " (named_link(&super::graph::address(view, graph.as_bytes()), graph.as_bytes())) }
            @if let Some(schedule) = &record.schedule { " \u{b7} schedule " (named_link(&view.links.on(found.shard.id(), "/schedule").name("id", schedule.as_bytes()), schedule.as_bytes())) }
            @for tag in &record.tags { " \u{b7} " a.tag href=(view.links.to("/jobs").name("tag", tag.as_bytes())) { (name(tag.as_bytes())) } }
            @for (key, value) in &record.labels {
                @let pair = format!("{}={}", show(key.as_bytes()), show(value.as_bytes()));
                " \u{b7} " a.tag href=(view.links.to("/jobs").with("label", &pair)) { (isolated(&pair)) }
            }
            @if record.tracked { " \u{b7} tracked" }
        }
        (tabs("Views of the job", &words))
    }
}

/// The actions that the state of the job allows.
fn actions(view: &View, found: &Found) -> Markup {
    let record = &found.job.record;
    let full = found.full_name();
    let fields = [("job", full.as_str())];
    let is_live = !record.state.is_terminal();
    let may_change = record.state != JobState::Running && is_live;
    let tracked = if record.tracked { "false" } else { "true" };
    html! {
        @if !is_live { (button(view, "Retry", "retryJob", &fields)) }
        @if record.state == JobState::Failed {
            @if let Some(why) = view.rights.why_not("retryJob") { span.soft { "Retry: " (why) } }
        }
        @if record.state == JobState::Scheduled { (button(view, "Run now", "alterJob", &[("job", full.as_str()), ("start", "now")])) }
        @if record.state == JobState::Running { (danger(view, "Time out attempt", "timeOutJob", &fields)) }
        @if is_live { (danger(view, "Cancel", "cancelJob", &fields)) }
        @if may_change { (button(view, "Change \u{2026}", "alterJob", &[("job", full.as_str()), ("ask", "1")])) }
        @if view.rights.may_do("enqueueJob") { a.button href=(view.links.to("/jobs/new").with("like", &full)) { "Enqueue again" } }
        (button(view, if record.tracked { "Untrack" } else { "Track" }, "alterJob", &[("job", full.as_str()), ("tracked", tracked)]))
        (danger(view, "Delete", "deleteJob", &fields))
    }
}

/// A payload as the page of a job shows it.
pub(super) fn data_shown(bytes: &[u8]) -> Markup {
    data::shown(bytes, 4 << 10)
}
