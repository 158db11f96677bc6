//! Failures: what breaks, since when, and whether it is one cause.

use std::collections::BTreeMap;

use ganger_document::names::show;
use ganger_types::query::JobQuery;
use ganger_types::{Group, JobState, Kind, Queue, ShardId, StoredJob, Timestamp, Worker};
use maud::{Markup, html};

use crate::data::jobs;
use crate::fault::Fault;
use crate::format::counted;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::text::{Lines, cut, isolated, name, plain};
use crate::view::View;
use crate::widgets::{button, columns, danger, empty, kind_link, named_link, table};

/// Failed jobs that the list looks at for messages and times.
const LOOKED: usize = 1_000;
/// Groups on the page.
const GROUPS: usize = 200;
/// Jobs and samples on the page of a group.
const JOBS: usize = 50;
const SAMPLES: usize = 5;

/// What is known of a group from the failed jobs that were looked at.
#[derive(Default)]
struct Seen {
    message: String,
    kinds: BTreeMap<Kind, u64>,
    queues: BTreeMap<Queue, u64>,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["queue", "kind", "window"])?;
    view.rights.check("listFailures")?;
    let groups = jobs::groups(view).await?;
    let wanted = JobQuery {
        namespace: view.namespace().clone(),
        states: JobState::Failed.into(),
        queue: params.name("queue")?,
        kind: params.name("kind")?,
        newest_first: true,
        limit: LOOKED,
        ..JobQuery::default()
    };
    let is_filtered = wanted.queue.is_some() || wanted.kind.is_some();
    let listing = jobs::list(view, &wanted, None).await?;
    let is_whole = listing.next.is_none();
    let mut seen: BTreeMap<Group, Seen> = BTreeMap::new();
    for (_, job) in &listing.jobs {
        look_at(&mut seen, job);
    }
    let mut rows: Vec<(Group, u64, Option<Seen>)> = groups
        .into_iter()
        .map(|(group, count)| {
            let known = seen.remove(&group);
            (group, count, known)
        })
        .filter(|(_, _, known)| known.is_some() || !is_filtered)
        .collect();
    rows.sort_by_key(|(_, _, known)| {
        std::cmp::Reverse(known.as_ref().and_then(|known| known.last))
    });
    let head =
        html! { div.heading { h1 { "Failures" } span.soft { "(" (rows.len()) " groups)" } } };
    let page = Page::new("Failures", "Failures", head);
    Ok(page.part("part-failures", html! {
        (list(view, &rows))
        @if !is_whole { p.remark { "Messages and times are from the " (LOOKED) " failed jobs that were created last." } }
    }))
}

fn look_at(seen: &mut BTreeMap<Group, Seen>, job: &StoredJob) {
    let Some(failure) = &job.record.failure else {
        return;
    };
    let known = seen.entry(failure.group.clone()).or_default();
    if known.last.is_none_or(|last| last < failure.at) {
        known.message.clone_from(&failure.message);
        known.last = Some(failure.at);
    }
    known.first = Some(
        known
            .first
            .map_or(failure.at, |first| first.min(failure.at)),
    );
    *known.kinds.entry(job.record.kind.clone()).or_default() += 1;
    *known.queues.entry(job.record.queue.clone()).or_default() += 1;
}

fn list(view: &View, rows: &[(Group, u64, Option<Seen>)]) -> Markup {
    if rows.is_empty() {
        return empty("No failed jobs are kept.", &html! {});
    }
    let head = columns(&[
        "Group", "Message", "#Jobs", "First", "Last", "Kinds", "Queues",
    ]);
    let body = html! {
        @for (group, count, seen) in rows.iter().take(GROUPS) {
            tr data-row {
                th scope="row" { (named_link(&address(view, group), group.as_bytes())) }
                @match seen {
                    Some(seen) => {
                        td.message { (isolated(&cut(seen.message.lines().next().unwrap_or_default(), 120))) }
                        td.number { (counted(*count)) }
                        td { @if let Some(first) = seen.first { (view.clock.ago(first)) } }
                        td { @if let Some(last) = seen.last { (view.clock.ago(last)) } }
                        td { @for kind in seen.kinds.keys().take(3) { (kind_link(view, kind)) " " } }
                        td { @for queue in seen.queues.keys().take(3) { (named_link(&view.links.to("/queue").name("name", queue.as_bytes()), queue.as_bytes())) " " } }
                    }
                    None => { td {} td.number { (counted(*count)) } td { "\u{2013}" } td { "\u{2013}" } td {} td {} }
                }
            }
        }
    };
    table("Failure groups", &head, &body)
}

fn address(view: &View, group: &Group) -> crate::links::Address {
    view.links.to("/failure").name("group", group.as_bytes())
}

/// One group: samples, counts, and its jobs.
pub(super) async fn one(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["group"])?;
    let group: Group = params.needed("group")?;
    view.rights.check("listFailedJobs")?;
    let text = plain(&show(group.as_bytes()));
    let count = jobs::groups(view)
        .await?
        .into_iter()
        .find(|(known, _)| *known == group);
    let Some((_, count)) = count else {
        let heading = format!("There is no failure group {text}");
        return Err(Fault::new("path_not_found", heading, "No failed job of it is kept.").into());
    };
    let wanted = JobQuery {
        namespace: view.namespace().clone(),
        states: JobState::Failed.into(),
        group: Some(group.clone()),
        newest_first: true,
        limit: LOOKED,
        ..JobQuery::default()
    };
    let listing = jobs::list(view, &wanted, None).await?;
    let page = Page::new(
        format!("Failure {text}"),
        "Failures",
        head(view, &group, count),
    );
    let shown = &listing.jobs[..listing.jobs.len().min(JOBS)];
    Ok(page
        .part("part-samples", html! { h2 { "Samples" } (samples(&listing.jobs)) })
        .part("part-by", html! { (by(view, &listing.jobs)) @if listing.next.is_some() { p.remark { "Of the " (LOOKED) " jobs that were created last." } } })
        .part("part-jobs", html! {
            h2 { "Jobs" }
            (super::jobs::rows(view, shown, &[], false))
            p { a href=(view.links.to("/jobs").with("state", "failed").name("group", group.as_bytes())) { "All jobs of this group" } }
        }))
}

fn head(view: &View, group: &Group, count: u64) -> Markup {
    let shown = show(group.as_bytes());
    let fields = [("scope", "all"), ("state", "failed"), ("group", &*shown)];
    html! {
        div.heading {
            h1 { "Failure " (name(group.as_bytes())) }
            span.soft { (crate::format::plural(count, "job")) }
            div.actions {
                (button(view, "Retry all in group", "retryJobs", &fields))
                (danger(view, "Delete all in group", "deleteJobs", &fields))
            }
        }
        @if let Some(why) = view.rights.why_not("retryJobs") { p.soft { "Retry: " (why) } }
    }
}

/// Different messages, the newest first.
fn samples(jobs: &[(ShardId, StoredJob)]) -> Markup {
    let mut messages: Vec<&str> = Vec::new();
    for (_, job) in jobs {
        let message = job
            .record
            .failure
            .as_ref()
            .map_or("", |failure| failure.message.as_str());
        if !message.is_empty() && !messages.contains(&message) {
            messages.push(message);
        }
        if messages.len() == SAMPLES {
            break;
        }
    }
    html! {
        @if messages.is_empty() { p.empty { "These failures have no messages." } }
        @for message in messages { pre.block dir="auto" tabindex="0" { (Lines(&cut(message, 2_000))) } }
    }
}

fn by(view: &View, jobs: &[(ShardId, StoredJob)]) -> Markup {
    let (mut kinds, mut queues, mut workers) = (
        BTreeMap::<Kind, u64>::new(),
        BTreeMap::<Queue, u64>::new(),
        BTreeMap::<Worker, u64>::new(),
    );
    for (_, job) in jobs {
        *kinds.entry(job.record.kind.clone()).or_default() += 1;
        *queues.entry(job.record.queue.clone()).or_default() += 1;
        if let Some(worker) = job
            .record
            .failure
            .as_ref()
            .and_then(|failure| failure.worker.clone())
        {
            *workers.entry(worker).or_default() += 1;
        }
    }
    let part = |heading: &str, column: &str, rows: Vec<(Markup, u64)>| {
        let mut rows = rows;
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        html! {
            section {
                h2 { (heading) }
                @if rows.is_empty() { p.empty { "None is known." } }
                @else {
                    (table(heading, &columns(&[column, "#Jobs"]), &html! {
                        @for (word, count) in rows.iter().take(20) { tr { th scope="row" { (word) } td.number { (counted(*count)) } } }
                    }))
                }
            }
        }
    };
    let queue = |queue: &Queue| {
        named_link(
            &view.links.to("/queue").name("name", queue.as_bytes()),
            queue.as_bytes(),
        )
    };
    html! {
        div.side-by-side {
            (part("By kind", "Kind", kinds.iter().map(|(it, count)| (kind_link(view, it), *count)).collect()))
            (part("By queue", "Queue", queues.iter().map(|(it, count)| (queue(it), *count)).collect()))
            (part("By worker", "Worker", workers.iter().map(|(it, count)| (name(it.as_bytes()), *count)).collect()))
        }
    }
}
