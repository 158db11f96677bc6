//! Workers: who works, on what, who is gone.

use std::cmp::Ordering;

use ganger_document::names::show;
use ganger_shard::{Handle, worker_state};
use ganger_types::limits::PAGE_WORKERS_MAX;
use ganger_types::observed::{WorkerFacts, WorkerState};
use ganger_types::query::Query;
use ganger_types::reply::WorkerView;
use ganger_types::{Queue, Reply, ShardId};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::data::rates;
use crate::fault::Fault;
use crate::format::{count, counted};
use crate::frame::kept_scope;
use crate::links::Address;
use crate::page::{Page, Stop};
use crate::paging::{self, Slice};
use crate::params::Params;
use crate::question::{Question, Shard};
use crate::svg;
use crate::text::isolated;
use crate::view::{Missing, View};
use crate::widgets::{self, empty, job_link, named_link, queue_link, table};

/// Jobs that a row names. A page of a hundred busy workers has at most 3,000 elements.
const JOBS_NAMED: usize = 1;
/// Queues that a row names.
const QUEUES_NAMED: usize = 2;

/// A column by which rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Name,
    Holds,
    Seen,
    Done,
    Lost,
}

const SORTS: &[(&str, Sort)] = &[
    ("name", Sort::Name),
    ("holds", Sort::Holds),
    ("seen", Sort::Seen),
    ("done", Sort::Done),
    ("lost", Sort::Lost),
];

/// The words of the parameter `state`.
const STATES: &[(&str, WorkerState)] = &[
    ("busy", WorkerState::Busy),
    ("idle", WorkerState::Idle),
    ("silent", WorkerState::Silent),
];

/// A worker of one shard.
pub(super) struct Row {
    pub(super) shard: Shard,
    pub(super) worker: WorkerView,
    /// What is known of it since the start; `None` if it has not asked since, and where nobody needs to know.
    pub(super) facts: Option<WorkerFacts>,
}

impl Row {
    /// Finds out what its shard knows of it, if that is of this process; others say it at once.
    pub(super) fn observed(self, view: &View) -> Self {
        let Shard::Here(shard) = &self.shard else {
            return self;
        };
        let (worker, facts) = observe(view, shard, self.worker);
        Self {
            worker,
            facts,
            ..self
        }
    }

    pub(super) fn state(&self, view: &View) -> WorkerState {
        worker_state(&self.worker, view.clock.now)
    }

    /// The queues that it takes from, as its last request named them, or else those of the jobs that it holds.
    pub(super) fn queues(&self) -> Vec<Queue> {
        let mut queues = match &self.facts {
            Some(facts) => facts.queues.to_vec(),
            None => self
                .worker
                .holds
                .iter()
                .map(|held| held.1.clone())
                .collect(),
        };
        queues.sort();
        queues.dedup();
        queues
    }

    /// `4 of 8`: the jobs that it holds, of those that it can hold.
    pub(super) fn slots(&self) -> String {
        let held = number(self.worker.holds.len());
        match &self.facts {
            Some(facts) => {
                let all = held + u64::from(facts.free_slots);
                format!("{} of {}", count(held), count(all))
            }
            None => count(held),
        }
    }

    pub(super) fn rate(&self) -> Option<u64> {
        let facts = self.facts.as_ref()?;
        Some(facts.completed_per_minute_in_tenths)
    }
}

fn number(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn observe(view: &View, shard: &Handle, worker: WorkerView) -> (WorkerView, Option<WorkerFacts>) {
    let observed = shard.observe_worker(view.namespace(), worker);
    (observed.view, observed.facts)
}

/// The workers of a shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct All {
    /// Whether to tell what is known of each since the start.
    with_facts: bool,
}

impl Question for All {
    const NAME: &'static str = "workers";
    type Answer = Vec<(WorkerView, Option<WorkerFacts>)>;

    fn operation(&self) -> &'static str {
        "listWorkers"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let query = Query::Workers(view.namespace().clone(), after, PAGE_WORKERS_MAX);
            let Reply::Workers(workers) = view.ask(shard, query).await? else {
                return Err(Fault::unexpected_reply());
            };
            after = workers.last().map(|last| last.worker.clone());
            let is_last = workers.len() < PAGE_WORKERS_MAX;
            all.extend(workers.into_iter().map(|worker| {
                if self.with_facts {
                    observe(view, shard, worker)
                } else {
                    (worker, None)
                }
            }));
            if is_last {
                return Ok(all);
            }
        }
    }
}

/// All workers of the view. What is known of those of this process is for [`Row::observed`].
pub(super) async fn all(view: &View) -> Result<(Vec<Row>, Missing), Fault> {
    let question = |shard: &ShardId| {
        let with_facts = matches!(view.place_of(shard), Shard::Elsewhere(_));
        Some(All { with_facts })
    };
    let gathered = view.gather_each(question).await?;
    let rows = gathered.found.into_iter().flat_map(|(shard, workers)| {
        let shard = view.place_of(&shard);
        workers.into_iter().map(move |(worker, facts)| Row {
            shard: shard.clone(),
            worker,
            facts,
        })
    });
    Ok((rows.collect(), gathered.missing))
}

/// The word for what a worker does.
pub(super) fn badge(state: WorkerState) -> Markup {
    match state {
        WorkerState::Busy => svg::badge("busy", "Busy"),
        WorkerState::Idle => svg::badge("idle", "Idle"),
        WorkerState::Silent => svg::badge("bad", "Silent"),
    }
}

/// Which workers are listed, and in which order.
struct Chosen {
    /// Part of the name; empty: any.
    part: String,
    state: Option<WorkerState>,
    queue: Option<Queue>,
    sort: Sort,
    is_descending: bool,
}

impl Chosen {
    fn read(params: &Params) -> Result<Self, Fault> {
        let sort = params.word("sort", SORTS)?.unwrap_or(Sort::Holds);
        let is_descending = paging::descending(params)?;
        Ok(Self {
            part: params.text("name")?.unwrap_or_default().to_owned(),
            state: params.word("state", STATES)?,
            queue: params.name("queue")?,
            sort,
            is_descending: is_descending.unwrap_or(!matches!(sort, Sort::Name | Sort::Seen)),
        })
    }

    /// Whether choosing and sorting needs what is known of each worker. Else that is looked up for the page only.
    fn needs_facts(&self) -> bool {
        self.queue.is_some() || matches!(self.sort, Sort::Done | Sort::Lost)
    }

    fn is_filter(&self) -> bool {
        !self.part.is_empty() || self.state.is_some() || self.queue.is_some()
    }

    fn takes(&self, view: &View, row: &Row) -> bool {
        self.state.is_none_or(|state| row.state(view) == state)
            && self
                .queue
                .as_ref()
                .is_none_or(|queue| row.queues().contains(queue))
            && show(row.worker.worker.as_bytes()).contains(&self.part)
    }

    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let by_name = a.worker.worker.cmp(&b.worker.worker);
        let lost = |row: &Row| row.facts.as_ref().map(|facts| facts.lost);
        let order = match self.sort {
            Sort::Name => by_name,
            Sort::Holds => a.worker.holds.len().cmp(&b.worker.holds.len()),
            Sort::Seen => a.worker.seen_at.cmp(&b.worker.seen_at),
            Sort::Done => a.rate().cmp(&b.rate()),
            Sort::Lost => lost(a).cmp(&lost(b)),
        };
        let order = if self.is_descending {
            order.reverse()
        } else {
            order
        };
        order
            .then(by_name)
            .then_with(|| a.shard.id().cmp(b.shard.id()))
    }

    /// The address of the list with its filter, and with its order if that is to stay.
    fn address(&self, view: &View, is_sorted: bool) -> Address {
        let part = Some(self.part.as_str()).filter(|part| !part.is_empty());
        let address = view.links.to("/workers").with_if("name", part);
        let address = address.with_if("state", self.state.map(WorkerState::as_str));
        let address = address.name_if("queue", self.queue.as_ref().map(Queue::as_bytes));
        if !is_sorted {
            return address;
        }
        let sort = SORTS.iter().find(|(_, sort)| *sort == self.sort);
        let address = address.with("sort", sort.map_or("name", |(name, _)| name));
        address.with("desc", if self.is_descending { "1" } else { "0" })
    }

    fn heading(&self, view: &View, word: &str, name: &str, sort: Sort, is_number: bool) -> Markup {
        let sorted = (self.sort == sort).then_some(self.is_descending);
        paging::heading(self.address(view, false), (word, name), sorted, is_number)
    }
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let known = ["state", "queue", "name", "sort", "desc", "after"];
    let params = Params::read(query, &known)?;
    view.rights.check("listWorkers")?;
    let chosen = Chosen::read(&params)?;
    let (mut rows, missing) = all(view).await?;
    if chosen.needs_facts() {
        rows = rows.into_iter().map(|row| row.observed(view)).collect();
    }
    rows.retain(|row| chosen.takes(view, row));
    rows.sort_by(|a, b| chosen.compare(a, b));
    let (mut rows, slice) = paging::take(rows, &params)?;
    if !chosen.needs_facts() {
        rows = rows.into_iter().map(|row| row.observed(view)).collect();
    }
    let page = Page::new("Workers", "Workers", head(view, &chosen, slice));
    Ok(page.part(
        "part-workers",
        html! {
            (list(view, &chosen, &rows))
            (slice.links(&chosen.address(view, true)))
            (widgets::missing(&missing))
        },
    ))
}

fn head(view: &View, chosen: &Chosen, slice: Slice) -> Markup {
    let queue = chosen.queue.as_ref();
    let queue = queue.map(|queue| show(queue.as_bytes()).into_owned());
    html! {
        div.heading { h1 { "Workers" } span.soft { "(" (count(number(slice.matching))) ")" } }
        form.filter role="search" aria-label="Filter workers" action=(view.links.bare("/workers")) {
            div.fields {
                label { "Filter by name " input type="search" name="name" value=(chosen.part) maxlength="255"; }
                label { "State" select name="state" {
                    option value="" { "all" }
                    @for (word, state) in STATES { option value=(word) selected[chosen.state == Some(*state)] { (word) } }
                } }
                label { "Queue" input name="queue" value=(queue.unwrap_or_default()) maxlength="1020" autocomplete="off"; }
                div.actions {
                    button { "Filter" }
                    @if chosen.is_filter() { a.button href=(view.links.to("/workers")) { "Clear" } }
                }
            }
            (kept_scope(view))
        }
    }
}

fn list(view: &View, chosen: &Chosen, rows: &[Row]) -> Markup {
    if rows.is_empty() && chosen.is_filter() {
        let next = html! { p { a href=(view.links.to("/workers")) { "Clear filter" } } };
        return empty("No worker matches.", &next);
    }
    if rows.is_empty() {
        let next = widgets::command("ganger worker --queue default --dir ./programs");
        return empty("No worker has been seen.", &next);
    }
    let head = html! {
        (chosen.heading(view, "Worker", "name", Sort::Name, false))
        @if view.is_of_many() { th scope="col" { "Shard" } }
        th scope="col" { "State" }
        th scope="col" { "Queues" }
        th.number scope="col" { "Slots" }
        (chosen.heading(view, "Holds", "holds", Sort::Holds, true))
        (chosen.heading(view, "Last sign", "seen", Sort::Seen, false))
        th scope="col" { "Address" }
        th scope="col" { "Version" }
        (chosen.heading(view, "Done/min", "done", Sort::Done, true))
        (chosen.heading(view, "Lost", "lost", Sort::Lost, true))
    };
    let body = html! { @for row in rows { (worker_row(view, row)) } };
    html! {
        (table("Workers", &head, &body))
        p.remark { "What a worker asked for, where it is and what it has done is known since the start of the server." }
    }
}

fn worker_row(view: &View, row: &Row) -> Markup {
    let (worker, facts) = (&row.worker, row.facts.as_ref());
    html! {
        tr data-row {
            th scope="row" { (named_link(&view.links.to("/worker").name("name", worker.worker.as_bytes()), worker.worker.as_bytes())) }
            @if view.is_of_many() { td { (row.shard.id()) } }
            td { (badge(row.state(view))) }
            td { (queues(view, row)) }
            td.number { (row.slots()) }
            td {
                @for (id, _, _, since) in worker.holds.iter().take(JOBS_NAMED) { (job_link(view, row.shard.id(), id)) " for " (view.clock.since(*since)) " " }
                (more(worker.holds.len(), JOBS_NAMED))
            }
            td { (view.clock.ago(worker.seen_at)) }
            td { (text(facts.map(|facts| facts.address.as_str()))) }
            td { (text(facts.map(|facts| facts.version.as_str()))) }
            td.number { (row.rate().map_or_else(|| "\u{2013}".to_owned(), rates::text)) }
            td.number { @match facts { Some(facts) => (counted(facts.lost)), None => "\u{2013}" } }
        }
    }
}

/// The first queues of a worker, each a link.
pub(super) fn queues(view: &View, row: &Row) -> Markup {
    let queues = row.queues();
    html! {
        @for queue in queues.iter().take(QUEUES_NAMED) { (queue_link(view, row.shard.id(), queue)) " " }
        (more(queues.len(), QUEUES_NAMED))
    }
}

/// How many things are not named.
fn more(all: usize, named: usize) -> String {
    if all <= named {
        return String::new();
    }
    format!("and {} more", count(number(all - named)))
}

/// A text from outside; a dash if it is not known.
pub(super) fn text(text: Option<&str>) -> Markup {
    match text.filter(|text| !text.is_empty()) {
        Some(text) => isolated(text),
        None => html! { "\u{2013}" },
    }
}
