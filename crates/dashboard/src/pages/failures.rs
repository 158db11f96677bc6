//! Failures: what breaks, since when, and whether it is one cause.

use std::collections::BTreeMap;

use ganger_document::names::show;
use ganger_shard::{GroupFacts, GroupView, Handle};
use ganger_types::query::JobQuery;
use ganger_types::{Group, JobState, Kind, Queue, ShardId, StoredJob, Timestamp, Worker};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::data::jobs;
use crate::fault::Fault;
use crate::format::counted;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::question::Question;
use crate::svg;
use crate::text::{Lines, cut, isolated, name, plain};
use crate::view::{Missing, View};
use crate::widgets::{self, button, columns, danger, empty, kind_link, named_link, table};

/// Groups on a page.
const GROUPS: usize = 100;
/// Failed jobs that the page of a group looks at.
const LOOKED: usize = 1_000;
/// Jobs and samples on the page of a group.
const JOBS: usize = 50;
const SAMPLES: usize = 5;

/// A group over all shards of the view.
struct Row {
    group: Group,
    jobs: u64,
    facts: Option<GroupFacts>,
    last_hour: [u64; 6],
}

impl Row {
    fn last(&self) -> Option<Timestamp> {
        self.facts.as_ref().map(|facts| facts.last_at)
    }

    fn add(&mut self, other: Self) {
        self.jobs += other.jobs;
        for (own, more) in self.last_hour.iter_mut().zip(other.last_hour) {
            *own += more;
        }
        self.facts = match (self.facts.take(), other.facts) {
            (Some(own), Some(more)) => Some(own.merged(more)),
            (own, more) => own.or(more),
        };
    }

    /// Whether the group has failures of this queue and kind; what is not asked for is always so.
    fn has(&self, queue: Option<&Queue>, kind: Option<&Kind>) -> bool {
        let facts = self.facts.as_ref();
        queue.is_none_or(|queue| facts.is_some_and(|facts| facts.by_queue.contains_key(queue)))
            && kind.is_none_or(|kind| facts.is_some_and(|facts| facts.by_kind.contains_key(kind)))
    }
}

/// The failure groups of a shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct Groups;

impl Question for Groups {
    const NAME: &'static str = "groups";
    type Answer = Vec<GroupView>;

    fn operation(&self) -> &'static str {
        "listFailures"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        Ok(shard.failure_groups(view.namespace()).await?)
    }
}

/// The groups of all shards of the view, the last failure first.
async fn groups(view: &View) -> Result<(Vec<Row>, Missing), Fault> {
    let gathered = view.gather(&Groups).await?;
    let mut rows: BTreeMap<Group, Row> = BTreeMap::new();
    for found in gathered.found.into_iter().flat_map(|(_, groups)| groups) {
        let row = Row {
            group: found.group.clone(),
            jobs: found.jobs,
            last_hour: found
                .facts
                .as_ref()
                .map(|facts| facts.last_hour(view.clock.now))
                .unwrap_or_default(),
            facts: found.facts,
        };
        match rows.get_mut(&found.group) {
            Some(known) => known.add(row),
            None => drop(rows.insert(found.group, row)),
        }
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.last()));
    Ok((rows, gathered.missing))
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["queue", "kind", "window", "after"])?;
    view.rights.check("listFailures")?;
    let (queue, kind) = (params.name::<Queue>("queue")?, params.name::<Kind>("kind")?);
    let (mut rows, missing) = groups(view).await?;
    rows.retain(|row| row.has(queue.as_ref(), kind.as_ref()));
    let matching = rows.len();
    let skipped = params
        .number("after", 0, 1_000_000)?
        .unwrap_or(0)
        .min(matching);
    let rows: Vec<Row> = rows.into_iter().skip(skipped).take(GROUPS).collect();
    let head = html! { div.heading { h1 { "Failures" } span.soft { "(" (matching) " groups)" } } };
    let page = Page::new("Failures", "Failures", head);
    let shown = rows.len();
    Ok(page.part(
        "part-failures",
        html! {
            (list(view, &rows, queue.is_some() || kind.is_some()))
            (pages(view, &params, skipped, shown, matching))
            (widgets::missing(&missing))
        },
    ))
}

/// Links to the pages before and after this one.
fn pages(view: &View, params: &Params, skipped: usize, shown: usize, matching: usize) -> Markup {
    let to = |skip: usize| {
        let names = ["queue", "kind"].into_iter();
        let address = names.fold(view.links.to("/failures"), |address, name| {
            address.with_if(name, params.text(name).ok().flatten())
        });
        address.with("after", &skip.to_string())
    };
    let end = skipped + shown;
    html! {
        @if skipped > 0 || end < matching {
            nav.pages aria-label="Pages" {
                @if skipped > 0 { a.button href=(to(skipped.saturating_sub(GROUPS))) data-page="newer" { "Previous" } }
                @if end < matching { a.button href=(to(end)) data-page="older" { "Next" } }
            }
        }
    }
}

fn list(view: &View, rows: &[Row], is_filtered: bool) -> Markup {
    if rows.is_empty() {
        return if is_filtered {
            let next = html! { p { a href=(view.links.to("/failures")) { "Clear filters" } } };
            empty("No failure group matches.", &next)
        } else {
            empty("No failed jobs are kept.", &html! {})
        };
    }
    let head = columns(&[
        "Group",
        "Message",
        "#Jobs",
        "Last hour",
        "First",
        "Last",
        "Kinds",
        "Queues",
    ]);
    let body = html! {
        @for row in rows {
            tr data-row {
                th scope="row" { (named_link(&address(view, &row.group), row.group.as_bytes())) }
                @match &row.facts {
                    Some(facts) => {
                        td.message { (isolated(&cut(facts.message.lines().next().unwrap_or_default(), 120))) }
                        td.number { (counted(row.jobs)) }
                        td { (last_hour(&row.last_hour)) }
                        td { (view.clock.ago(facts.first_at)) }
                        td { (view.clock.ago(facts.last_at)) }
                        td { @for kind in facts.by_kind.keys().take(3) { (kind_link(view, kind)) " " } }
                        td { @for queue in facts.by_queue.keys().take(3) { (named_link(&view.links.to("/queue").name("name", queue.as_bytes()), queue.as_bytes())) " " } }
                    }
                    None => { td {} td.number { (counted(row.jobs)) } td { "-" } td { "\u{2013}" } td { "\u{2013}" } td {} td {} }
                }
            }
        }
    };
    table("Failure groups", &head, &body)
}

/// Failures of the last hour as a small drawing, with their number in a title.
fn last_hour(steps: &[u64; 6]) -> Markup {
    let most = steps.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return html! { "-" };
    }
    let total = crate::format::plural(steps.iter().sum(), "failure");
    let heights = steps.map(|number| number * 100 / most);
    html! { span title={ (total) " in the last hour" } { (svg::histogram(&heights)) } }
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
    let (rows, _) = groups(view).await?;
    let found = rows.into_iter().find(|row| row.group == group);
    let Some(Row { jobs: count, .. }) = found else {
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
