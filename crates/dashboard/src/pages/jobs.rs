//! Jobs: find these jobs, and do something with all of them.

use std::collections::BTreeSet;

use ganger_document::names::show;
use ganger_shard::NamesOf;
use ganger_types::query::JobQuery;
use ganger_types::{Due, JobState, ShardId, StoredJob, Timestamp};
use maud::{Markup, html};

use crate::data::jobs::{self, Listing, Place};
use crate::fault::Fault;
use crate::filter::{CONDITIONS, Filter};
use crate::format::{count, plural, span};
use crate::frame::kept_scope;
use crate::links::{Address, job_name};
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::text::{cut, isolated, name};
use crate::view::View;
use crate::widgets::{self, ACTIONS_FORM, empty, job_link, kind_link, queue_link, table};

use super::search::Beginning;

/// Parameters beside the conditions.
const OTHERS: &[&str] = &[
    "order", "after", "limit", "columns", "newer", "count", "seen",
];
/// Jobs on a page unless the address says otherwise.
const LIMIT: usize = 50;
const LIMITS: &[(&str, usize)] = &[("25", 25), ("50", 50), ("100", 100), ("200", 200)];
/// Pages that the way back remembers.
const BACK_MAX: usize = 20;
/// Characters of a message in a row.
const MESSAGE_CHARACTERS: usize = 120;
/// Queues that the form offers.
const QUEUES_OFFERED: usize = 50;
/// New jobs that are counted.
const NEW_MAX: usize = 100;

/// Columns that can be added.
const COLUMNS: &[(&str, &str)] = &[
    ("priority", "Priority"),
    ("payload", "Payload"),
    ("ran", "Run time"),
    ("worker", "Worker"),
    ("finished", "Finished"),
];

/// What the page shows.
pub(super) struct Jobs {
    pub(super) filter: Filter,
    pub(super) listing: Listing,
    pub(super) count: Count,
    pub(super) columns: Vec<&'static str>,
    pub(super) limit: usize,
    pub(super) is_newest_first: bool,
    /// Whether this is the first page.
    pub(super) is_first: bool,
    /// Text of `after` and `newer` of the address.
    pub(super) place: String,
    pub(super) back: Vec<String>,
    /// Jobs that came since the page was made; `None` where that is not looked for.
    pub(super) fresh: Option<usize>,
    /// Names that the form offers.
    pub(super) queues: Vec<String>,
}

/// How many jobs match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Exact(u64),
    /// These are on the page, and there are more.
    MoreThan(u64),
    /// These are on the last page, and earlier pages may have had others.
    AtLeast(u64),
    /// So many were found, and not all records were looked at.
    Found(u64),
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let known: Vec<&str> = CONDITIONS.iter().chain(OTHERS).copied().collect();
    let params = Params::read(query, &known)?;
    view.rights.check("listJobs")?;
    let filter = Filter::read(&params, view.namespace(), &view.clock.zone)?;
    if params.has("label_key") || params.has("label_value") {
        // The form has two fields for what is one parameter of the address.
        let others = OTHERS
            .iter()
            .filter_map(|name| Some((*name, params.text(name).ok()??)));
        let address = filter.add_to(view.links.to("/jobs"), None);
        let address = others.fold(address, |address, (name, value)| address.with(name, value));
        return Err(Stop::Elsewhere(address.as_str().to_owned()));
    }
    Ok(show_page(view, &read(view, filter, &params).await?))
}

async fn read(view: &View, filter: Filter, params: &Params) -> Result<Jobs, Fault> {
    let is_newest_first = params
        .word("order", &[("newest", true), ("oldest", false)])?
        .unwrap_or(true);
    let limit = params.word("limit", LIMITS)?.unwrap_or(LIMIT);
    let place = params.text("after")?.unwrap_or_default().to_owned();
    let after = (!place.is_empty())
        .then(|| Place::read(&place))
        .transpose()?;
    let seen: Option<u64> = params.number("seen", 0, u64::MAX)?;
    let mut query = JobQuery {
        newest_first: is_newest_first,
        limit,
        ..filter.query.clone()
    };
    if let Some(seen) = seen {
        let before = Timestamp(seen.saturating_add(1));
        query.created_before = Some(query.created_before.map_or(before, |own| own.min(before)));
    }
    let is_first = after.is_none();
    let listing = jobs::list(view, &query, after).await?;
    let count = if params.has("count") {
        Count::Exact(jobs::exact_count(view, &filter.query).await?)
    } else {
        counted(view, &filter, &listing, is_first).await?
    };
    let fresh = match seen {
        None => None,
        Some(seen) => Some(fresh(view, &filter, seen).await?),
    };
    let back = params.text("newer")?.unwrap_or_default();
    let back = back.strip_suffix(',').unwrap_or(back);
    Ok(Jobs {
        columns: chosen(params)?,
        queues: first_queues(view).await?,
        back: back
            .split(',')
            .map(str::to_owned)
            .filter(|_| !is_first)
            .collect(),
        filter,
        listing,
        count,
        limit,
        is_newest_first,
        is_first,
        place,
        fresh,
    })
}

/// The first queues of the view, for the form.
async fn first_queues(view: &View) -> Result<Vec<String>, Fault> {
    if !view.rights.may_read("listQueues") {
        return Ok(Vec::new());
    }
    let question = Beginning {
        of: NamesOf::Queue,
        wanted: Vec::new(),
        limit: QUEUES_OFFERED,
    };
    let gathered = view.gather(&question).await?;
    let names = gathered.found.into_iter().flat_map(|(_, names)| names);
    let names: BTreeSet<Vec<u8>> = names.collect();
    let names = names.iter().take(QUEUES_OFFERED);
    Ok(names.map(|name| show(name).into_owned()).collect())
}

/// Jobs that match and were created after the newest of the page.
async fn fresh(view: &View, filter: &Filter, seen: u64) -> Result<usize, Fault> {
    let query = JobQuery {
        created_from: Some(Timestamp(seen.saturating_add(1))),
        newest_first: true,
        limit: NEW_MAX,
        ..filter.query.clone()
    };
    Ok(jobs::list(view, &query, None).await?.jobs.len())
}

async fn counted(
    view: &View,
    filter: &Filter,
    listing: &Listing,
    is_first: bool,
) -> Result<Count, Fault> {
    let found = u64::try_from(listing.jobs.len()).unwrap_or(u64::MAX);
    if is_first && listing.next.is_none() {
        return Ok(Count::Exact(found));
    }
    if let Some(known) = jobs::known_count(view, &filter.query).await? {
        return Ok(Count::Exact(known));
    }
    Ok(match listing.looked_back_to {
        Some(_) => Count::Found(found),
        None if listing.next.is_none() => Count::AtLeast(found),
        None => Count::MoreThan(found),
    })
}

fn chosen(params: &Params) -> Result<Vec<&'static str>, Fault> {
    let given = params.texts("columns")?.join(",");
    let words = given.split(',').filter(|word| !word.is_empty());
    words
        .map(|word| {
            let found = COLUMNS.iter().find(|(name, _)| *name == word);
            found.map(|(name, _)| *name).ok_or_else(|| {
                let known: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
                Fault::value(
                    "columns",
                    &format!("must be of {}, not {word:?}", known.join(", ")),
                )
            })
        })
        .collect()
}

pub(super) fn show_page(view: &View, jobs: &Jobs) -> Page {
    let head = html! {
        div.heading {
            h1 { "Jobs" }
            span.soft { (count_text(jobs)) }
            @if !matches!(jobs.count, Count::Exact(_)) {
                a href=(address(view, jobs, None).with("count", "exact")) { "Count exactly" }
            }
            div.actions {
                a.button href=(view.links.to("/operations")) { "Operations" }
                @if view.rights.may_do("enqueueJob") { a.button href=(view.links.to("/jobs/new")) { "New job" } }
                button #save-view.with-module type="button" { "Save view" }
            }
        }
    };
    let mut page = Page::new("Jobs", "Jobs", head).part("part-filter", form(view, jobs));
    page.live_with = jobs.newest().map(|at| ("seen", at.0.to_string()));
    page.part("part-new", fresh_jobs(view, jobs))
        .part("part-jobs", html! { (list(view, jobs)) (actions(view, jobs)) (pages(view, jobs)) (widgets::missing(&jobs.listing.missing)) })
}

impl Jobs {
    /// The time of the newest job of the page, from which on others are new.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        let is_followed = self.is_first && self.is_newest_first;
        let times = self
            .listing
            .jobs
            .iter()
            .map(|(_, job)| job.record.created_at);
        times.max().filter(|_| is_followed)
    }
}

fn count_text(jobs: &Jobs) -> String {
    match jobs.count {
        Count::Exact(1) => "1 job matches".to_owned(),
        Count::Exact(number) => format!("{} jobs match", count(number)),
        Count::MoreThan(number) => format!("more than {} match", count(number)),
        Count::AtLeast(1) => "at least 1 job matches".to_owned(),
        Count::AtLeast(number) => format!("at least {} jobs match", count(number)),
        Count::Found(number) => format!("{} found so far", count(number)),
    }
}

/// The address of this page without its place.
fn address(view: &View, jobs: &Jobs, without: Option<&str>) -> Address {
    let address = jobs.filter.add_to(view.links.to("/jobs"), without);
    let address = if jobs.is_newest_first {
        address
    } else {
        address.with("order", "oldest")
    };
    let address = if jobs.limit == LIMIT {
        address
    } else {
        address.with("limit", &jobs.limit.to_string())
    };
    if jobs.columns.is_empty() {
        address
    } else {
        address.with("columns", &jobs.columns.join(","))
    }
}

fn form(view: &View, jobs: &Jobs) -> Markup {
    let filter = &jobs.filter;
    let (key, value) = filter.value("label").split_once('=').unwrap_or_default();
    let field = |label: &str, name: &str, value: &str, list: Option<&str>| {
        html! { label { (label) input name=(name) value=(value) maxlength="512" list=[list] autocomplete="off"; } }
    };
    let all = filter.query.states.is_all();
    let is_folded = [
        "tag",
        "label",
        "group",
        "failure_text",
        "worker",
        "graph",
        "schedule",
        "created_from",
        "created_before",
    ]
    .iter()
    .all(|name| filter.value(name).is_empty());
    html! {
        form.filter role="search" aria-label="Filter jobs" action=(view.links.bare("/jobs")) {
            fieldset.states {
                legend { "State" }
                @for state in [JobState::Ready, JobState::Running, JobState::Scheduled, JobState::Blocked, JobState::Succeeded, JobState::Failed, JobState::Cancelled] {
                    label { input type="checkbox" name="state" value=(state.as_str()) checked[!all && filter.query.states.contains(state)]; (svg::state(state)) }
                }
            }
            div.fields {
                (field("Queue", "queue", filter.value("queue"), Some("queue-names")))
                datalist #queue-names { @for queue in &jobs.queues { option value=(queue) {} } }
                (field("Kind", "kind", filter.value("kind"), None))
                label { "Order" select name="order" {
                    option value="newest" selected[jobs.is_newest_first] { "newest" }
                    option value="oldest" selected[!jobs.is_newest_first] { "oldest" }
                } }
                div.actions { button.primary { "Apply" } a.button href=(view.links.to("/jobs")) { "Clear" } }
            }
            details.more open[!is_folded] {
                summary { "More filters" }
                div.fields {
                    (field("Tag", "tag", filter.value("tag"), None))
                    (field("Label key", "label_key", key, None))
                    (field("Label value", "label_value", value, None))
                    (field("Failure group", "group", filter.value("group"), None))
                    (field("Failure text", "failure_text", filter.value("failure_text"), None))
                    (field("Worker", "worker", filter.value("worker"), None))
                    (field("Graph", "graph", filter.value("graph"), None))
                    (field("Schedule", "schedule", filter.value("schedule"), None))
                    (field("Created from", "created_from", filter.value("created_from"), None))
                    (field("before", "created_before", filter.value("created_before"), None))
                    label { "Jobs a page" select name="limit" {
                        @for (word, limit) in LIMITS { option value=(word) selected[*limit == jobs.limit] { (word) } }
                    } }
                }
                fieldset.states {
                    legend { "More columns" }
                    @for (name, word) in COLUMNS {
                        label { input type="checkbox" name="columns" value=(name) checked[jobs.columns.contains(name)]; (word) }
                    }
                }
            }
            (kept_scope(view))
        }
        (chips(view, jobs))
    }
}

/// The chosen conditions, each with a link that takes it away.
fn chips(view: &View, jobs: &Jobs) -> Markup {
    if jobs.filter.is_empty() {
        return html! {};
    }
    html! {
        ul.chips aria-label="Chosen filters" {
            @for (name, value) in &jobs.filter.pairs {
                li { (word_of(name)) ": " (isolated(value)) " "
                    a href=(address(view, jobs, Some(name))) aria-label={ "Remove the filter " (word_of(name)) } { "\u{2715}" } }
            }
        }
    }
}

fn word_of(name: &str) -> &str {
    match name {
        "state" => "State",
        "queue" => "Queue",
        "kind" => "Kind",
        "tag" => "Tag",
        "label" => "Label",
        "group" => "Failure group",
        "failure_text" => "Failure text",
        "worker" => "Worker",
        "graph" => "Graph",
        "schedule" => "Schedule",
        "created_from" => "Created from",
        "created_before" => "Created before",
        other => other,
    }
}

fn fresh_jobs(view: &View, jobs: &Jobs) -> Markup {
    match jobs.fresh {
        None | Some(0) => html! {},
        Some(number) => {
            let number64 = u64::try_from(number).unwrap_or(u64::MAX);
            let jobs_text = if number == NEW_MAX {
                format!("{} or more new jobs", count(number64))
            } else {
                plural(number64, "new job")
            };
            html! { p { a.button href=(address(view, jobs, None)) { (jobs_text) ": show" } } }
        }
    }
}

fn list(view: &View, jobs: &Jobs) -> Markup {
    let listing = &jobs.listing;
    let further = listing.looked_back_to.map(|back| {
        let looked = count(u64::try_from(listing.looked).unwrap_or(0));
        let found = count(u64::try_from(listing.jobs.len()).unwrap_or(0));
        let which = if jobs.is_newest_first { "newest" } else { "oldest" };
        html! { p.remark {
            (found) " found among " (looked) " records from the " (which) " on, to " (view.clock.time(back)) ". "
            @if let Some(next) = &listing.next { a href=(older(view, jobs, next)) { "Look further" } }
        } }
    });
    if listing.jobs.is_empty() && further.is_none() {
        return if jobs.filter.is_empty() {
            let next = html! { p { a href=(view.links.to("/jobs/new")) { "New job" } } };
            empty("No jobs yet.", &next)
        } else {
            let next = html! { p { a href=(view.links.to("/jobs")) { "Clear filters" } } };
            empty("No job matches.", &next)
        };
    }
    html! {
        @if !listing.jobs.is_empty() { (rows(view, &listing.jobs, &jobs.columns, may_select(view))) }
        @if let Some(further) = further { (further) }
    }
}

fn may_select(view: &View) -> bool {
    ["retryJobs", "cancelJobs", "deleteJobs"]
        .iter()
        .any(|action| view.rights.may_do(action))
}

/// A table of jobs of any shards.
pub(super) fn rows(
    view: &View,
    jobs: &[(ShardId, StoredJob)],
    chosen: &[&str],
    is_selectable: bool,
) -> Markup {
    let has = |column: &str| chosen.contains(&column);
    let head = html! {
        @if is_selectable { th scope="col" { span.visually-hidden { "Select" } } }
        th scope="col" { "Job" } th scope="col" { "State" } th scope="col" { "Kind" } th scope="col" { "Queue" }
        th.number scope="col" { "Attempt" } th.number scope="col" { "Age" } th scope="col" { "Next or ended" }
        th scope="col" { "Tags, labels" } th scope="col" { "Message" }
        @for (name, word) in COLUMNS { @if has(name) { th scope="col" { (word) } } }
    };
    let body = html! {
        @for (shard, job) in jobs {
            @let record = &job.record;
            @let full = job_name(shard, &record.id);
            tr data-row data-job=(full) {
                @if is_selectable { td.select { input type="checkbox" name="job" value=(full) form=(ACTIONS_FORM) aria-label={ "Select " (crate::text::plain(&full)) }; } }
                th scope="row" { (job_link(view, shard, &record.id)) @if let Some(called) = &record.name { " " span.soft { (name(called.as_bytes())) } } }
                td { a.plain href=(view.links.to("/jobs").with("state", record.state.as_str())) { (svg::state(record.state)) } }
                td { (kind_link(view, &record.kind)) }
                td { (queue_link(view, shard, &record.queue)) }
                td.number { (attempts(job)) }
                td.number { (view.clock.since(record.created_at)) }
                td { (next_or_ended(view, job)) }
                td { (words(view, job)) }
                td.message { (message(job)) }
                @if has("priority") { td.number { (ganger_document::view::priority(record.priority)) } }
                @if has("payload") { td.number { (crate::format::bytes(record.payload_bytes)) } }
                @if has("ran") { td.number { (ran(view, job)) } }
                @if has("worker") { td { @if let Some(lease) = &job.lease { (name(lease.worker.as_bytes())) } } }
                @if has("finished") { td { @if let Some(end) = &record.finished { (view.clock.time(end.at)) } } }
            }
        }
    };
    table("Jobs", &head, &body)
}

fn attempts(job: &StoredJob) -> String {
    let record = &job.record;
    format!(
        "{} of {}",
        record.attempt,
        u64::from(record.retry.retries_max) + 1
    )
}

fn next_or_ended(view: &View, job: &StoredJob) -> Markup {
    let record = &job.record;
    if let Some(end) = &record.finished {
        return html! { "ended " (view.clock.ago(end.at)) };
    }
    match (record.state, record.due, &job.lease) {
        (JobState::Scheduled, Some(Due::Wall(at)), _) => view.clock.ago(at),
        (JobState::Scheduled, _, _) => html! { "later" },
        (JobState::Running, _, Some(lease)) => {
            html! { "for " (view.clock.since(lease.granted_at)) }
        }
        _ => html! { "\u{2013}" },
    }
}

fn ran(view: &View, job: &StoredJob) -> Markup {
    let last = job
        .record
        .history
        .iter()
        .rev()
        .find_map(|entry| match &entry.what {
            ganger_types::What::Attempt { leased_at, .. } => Some(entry.at.since(*leased_at)),
            _ => None,
        });
    match (&job.lease, last) {
        (Some(lease), _) => view.clock.since(lease.granted_at),
        (None, Some(ran)) => html! { (span(ran)) },
        (None, None) => html! { "\u{2013}" },
    }
}

fn words(view: &View, job: &StoredJob) -> Markup {
    html! {
        @for tag in &job.record.tags {
            a.tag href=(view.links.to("/jobs").name("tag", tag.as_bytes())) { (name(tag.as_bytes())) } " "
        }
        @for (key, value) in &job.record.labels {
            @let pair = format!("{}={}", show(key.as_bytes()), show(value.as_bytes()));
            a.tag href=(view.links.to("/jobs").with("label", &pair)) { (isolated(&pair)) } " "
        }
    }
}

fn message(job: &StoredJob) -> Markup {
    let record = &job.record;
    match (&record.failure, &record.progress) {
        (Some(failure), _) if record.state != JobState::Succeeded => {
            let first = failure.message.lines().next().unwrap_or_default();
            html! { (isolated(&cut(first, MESSAGE_CHARACTERS))) }
        }
        (_, Some(progress)) if record.state == JobState::Running => {
            html! { (isolated(&cut(&progress.message, MESSAGE_CHARACTERS))) }
        }
        _ => html! {},
    }
}

/// Buttons for the selected jobs, and for all that match.
fn actions(view: &View, jobs: &Jobs) -> Markup {
    if !may_select(view) || jobs.listing.jobs.is_empty() {
        return html! {};
    }
    let actions = [
        ("Retry", "retryJobs"),
        ("Cancel", "cancelJobs"),
        ("Delete", "deleteJobs"),
    ];
    let selected: Vec<(&str, &str)> = vec![("scope", "selected")];
    let mut all: Vec<(&str, &str)> = jobs
        .filter
        .pairs
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    all.push(("scope", "all"));
    if let Some(shard) = view.links.shard() {
        all.push(("shard", shard.as_str()));
    }
    html! {
        div.bulk role="group" aria-label="Selected jobs" {
            span #selected-count { "Selected:" }
            @for (word, action) in actions { (styled(view, word, action, &selected)) }
            (widgets::button(view, "Change queue or priority", "alterJob", &[("scope", "selected"), ("ask", "1")]))
        }
        @if !jobs.filter.is_empty() {
            div.bulk role="group" aria-label="All jobs that match" {
                span { "All that match:" }
                @for (word, action) in actions { (styled(view, &format!("{word} all \u{2026}"), action, &all)) }
            }
        }
    }
}

fn styled(view: &View, word: &str, action: &'static str, fields: &[(&str, &str)]) -> Markup {
    if action == "deleteJobs" {
        widgets::danger(view, word, action, fields)
    } else {
        widgets::button(view, word, action, fields)
    }
}

fn older(view: &View, jobs: &Jobs, next: &Place) -> Address {
    let mut back = jobs.back.clone();
    back.push(jobs.place.clone());
    let from = back.len().saturating_sub(BACK_MAX);
    let address = address(view, jobs, None).with("after", &next.text());
    address.with("newer", &format!("{},", back[from..].join(",")))
}

/// The way to newer jobs, kept in the address, and to older ones.
fn pages(view: &View, jobs: &Jobs) -> Markup {
    let newer = jobs.back.iter().rposition(|place| !place.is_empty());
    let newer = newer.map(|at| {
        let address = address(view, jobs, None).with("after", &jobs.back[at]);
        let rest = jobs.back[..at].join(",");
        if rest.is_empty() {
            address
        } else {
            address.with("newer", &format!("{rest},"))
        }
    });
    let newer = newer.or_else(|| (!jobs.is_first).then(|| address(view, jobs, None)));
    let (first, later, earlier) = if jobs.is_newest_first {
        ("Newest", "Newer", "Older")
    } else {
        ("Oldest", "Older", "Newer")
    };
    html! {
        nav.pages aria-label="Pages" {
            @if !jobs.is_first { a.button href=(address(view, jobs, None)) { (first) } }
            @if let Some(newer) = newer { a.button href=(newer) data-page="newer" { (later) } }
            @if let Some(next) = &jobs.listing.next { a.button href=(older(view, jobs, next)) data-page="older" { (earlier) } }
            span.soft { (jobs.limit) " a page \u{b7} looked at " (plural(u64::try_from(jobs.listing.looked).unwrap_or(0), "record")) }
        }
    }
}
