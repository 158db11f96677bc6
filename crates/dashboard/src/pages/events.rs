//! Events: what happens right now, the newest first, or what happened behind a position.

use ganger_document::names::{read, show};
use ganger_document::view::event::{KINDS, kind};
use ganger_types::time::MICROS_PER_SECOND;
use ganger_types::{Event, Happening, JobId, ShardId, Timestamp};
use maud::{Markup, html};

use crate::data::events::{
    self, Filter, Kept, LISTED_PER_SECOND, LOOKED_MAX, Place, Row, job_of, queue_of, worker_of,
};
use crate::fault::Fault;
use crate::format::{bytes, count};
use crate::frame::kept_scope;
use crate::links::Address;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::question::Shard;
use crate::svg;
use crate::text::{isolated, name, plain};
use crate::view::View;
use crate::widgets::{self, columns, empty, job_link, queue_link};

/// Rows of the page.
const ROWS: usize = 200;
/// Rows that the module keeps while newer ones come.
const KEPT: usize = 500;
/// Rows that a page which follows the newest events is sent again at least.
const FRESH: usize = 50;
/// Seconds of which such a page is sent all rows again, so that a state that a reader missed is in the next one.
const FRESH_SECONDS: u64 = 5;

/// The parameters of the filter.
const CONDITIONS: [&str; 4] = ["queue", "kind", "event", "job"];

/// What the page shows.
struct Events {
    rows: Vec<Row>,
    places: Vec<Place>,
    /// The position behind which to begin, by shard, `None` for the oldest that is kept; empty if the newest events are
    /// shown.
    after: Vec<(ShardId, Option<u64>)>,
    /// Whether only the rows are wanted that a page which is open may not have.
    is_fresh_only: bool,
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let known = [&CONDITIONS[..], &["after", "fresh"]].concat();
    let params = Params::read(query, &known)?;
    view.rights.check("followEvents")?;
    let filter = filter(view, &params)?;
    let after = match params.text("after")? {
        Some(text) => positions(view, text)?,
        None => Vec::new(),
    };
    let rows = (ROWS / view.everywhere().len().max(1)).max(LISTED_PER_SECOND + 1);
    let question = |shard: &ShardId| {
        let position = after.iter().find(|(of, _)| of == shard);
        let first = |position: &Option<u64>| position.map_or(0, |at| at.saturating_add(1));
        let first = position.map(|(_, position)| first(position));
        Some(Kept {
            filter: filter.clone(),
            first,
            rows: if first.is_some() { rows } else { ROWS },
        })
    };
    let gathered = view.gather_each(question).await?;
    let found: Vec<_> = gathered.found.into_iter().map(|(_, found)| found).collect();
    let places = found.iter().map(|found| found.place.clone()).collect();
    let mut events = Events {
        rows: events::rows(found),
        places,
        is_fresh_only: params.has("fresh") && after.is_empty(),
        after,
    };
    if events.after.is_empty() {
        events.rows.truncate(shown_of(view, &events));
    }
    let head = html! {
        div.heading { h1 { "Events" } }
        (form(view, &params))
    };
    let mut page = Page::new("Events", "Events", head);
    if events.after.is_empty() {
        page.live_with = Some(("fresh", "1".to_owned()));
    }
    Ok(page
        .part("part-position", position_lines(&events))
        .part("part-events", list(view, &events))
        .part(
            "part-pages",
            html! { (pages(view, &params, &events)) (widgets::missing(&gathered.missing)) },
        ))
}

/// Number of rows that are shown of the newest ones.
fn shown_of(view: &View, events: &Events) -> usize {
    if !events.is_fresh_only {
        return ROWS;
    }
    let now = view.clock.now.0 / MICROS_PER_SECOND;
    let is_fresh = |row: &Row| second_of(row) + FRESH_SECONDS >= now;
    let fresh = events.rows.iter().take_while(|row| is_fresh(row)).count();
    fresh.clamp(FRESH, ROWS)
}

fn second_of(row: &Row) -> u64 {
    match row {
        Row::Event(_, event) => event.at.0 / MICROS_PER_SECOND,
        Row::Sum { second, .. } => *second,
    }
}

fn filter(view: &View, params: &Params) -> Result<Filter, Fault> {
    let words: Vec<(&str, &'static str)> = KINDS.iter().map(|kind| (*kind, *kind)).collect();
    Ok(Filter {
        namespace: view.namespace().clone(),
        queue: params.name("queue")?,
        kind: params.name("kind")?,
        event: params.word("event", &words)?.map(str::to_owned),
        job: params
            .bytes("job")
            .map(|text| job(view, text))
            .transpose()?,
    })
}

/// The job that a text names, with or without its shard.
fn job(view: &View, text: &[u8]) -> Result<JobId, Fault> {
    let full = read(text);
    let slash = full.iter().position(|byte| *byte == b'/');
    let is_shard = |shard: &[u8]| {
        let mut shards = view.everywhere().iter();
        shards.any(|known| known.id().as_str().as_bytes() == shard)
    };
    let id = match slash {
        Some(at) if is_shard(&full[..at]) => &full[at + 1..],
        _ => &full[..],
    };
    JobId::new(id).map_err(|error| Fault::value("job", &error.to_string()))
}

/// The word for the position before the oldest event that is kept.
const START: &str = "start";

/// Reads `1234` or `start`, a position of every shard of the view, or `1=1234,2=start`.
fn positions(view: &View, text: &str) -> Result<Vec<(ShardId, Option<u64>)>, Fault> {
    let wrong = || {
        let reason = format!(
            "must be the position of an event, start, or one for each shard such as 1=1234,2=start, not {text:?}"
        );
        Fault::value("after", &reason)
    };
    let position = |text: &str| match text {
        START => Some(None),
        text => text.parse().ok().map(Some),
    };
    let shards = view.everywhere().iter().map(Shard::id);
    if let Some(position) = position(text) {
        return Ok(shards.map(|shard| (shard.clone(), position)).collect());
    }
    let pairs = text.split(',').map(|pair| {
        let (shard, text) = pair.split_once('=').ok_or_else(wrong)?;
        let shard = ShardId::new(shard).ok_or_else(wrong)?;
        Ok((shard, position(text).ok_or_else(wrong)?))
    });
    let pairs: Vec<(ShardId, Option<u64>)> = pairs.collect::<Result<_, Fault>>()?;
    for shard in shards {
        if !pairs.iter().any(|(named, _)| named == shard) {
            let reason = format!("has no position for shard {shard}");
            return Err(Fault::value("after", &reason));
        }
    }
    Ok(pairs)
}

fn form(view: &View, params: &Params) -> Markup {
    let value = |name: &str| {
        let value = params.bytes(name).map(String::from_utf8_lossy);
        value.map(|value| plain(&value)).unwrap_or_default()
    };
    let chosen = value("event");
    let is_filter = CONDITIONS.iter().any(|name| params.has(name));
    html! {
        form.filter role="search" aria-label="Filter events" action=(view.links.bare("/events")) {
            div.fields {
                label { "Queue" input name="queue" value=(value("queue")) autocomplete="off"; }
                label { "Kind" input name="kind" value=(value("kind")) autocomplete="off"; }
                label { "Job" input name="job" value=(value("job")) autocomplete="off"; }
                label { "Event" select name="event" {
                    option value="" { "all" }
                    @for word in KINDS { option value=(word) selected[chosen == word] { (word.replace('_', " ")) } }
                } }
                div.actions {
                    button { "Filter" }
                    @if is_filter { a.button href=(view.links.to("/events")) { "Clear" } }
                }
            }
            (kept_scope(view))
        }
    }
}

/// Where the shards are, and what of the past cannot be shown.
fn position_lines(events: &Events) -> Markup {
    html! {
        @for place in &events.places {
            @let shard = &place.shard;
            @let asked = events.after.iter().find(|(of, _)| of == shard).map(|(_, position)| *position);
            p.soft {
                @match place.end.checked_sub(1) {
                    Some(newest) => { "Shard " (shard) " is at position " (newest) "." },
                    None => { "Shard " (shard) " has had no event." },
                }
                @match asked {
                    Some(Some(asked)) => { " These are its events after position " (asked) "." },
                    Some(None) => " These are its events from the oldest that is kept on.",
                    None => {},
                }
            }
            @match asked.flatten() {
                Some(asked) if asked >= place.end => p.remark { "Position " (asked) " of shard " (shard) " has not been reached." },
                Some(asked) if asked + 1 < place.oldest => p.remark {
                    "Events of shard " (shard) " before position " (place.oldest) " are not kept any more"
                    @if place.oldest == place.end { ", and there is none since." } @else { ": these begin there." }
                },
                _ => {},
            }
            @if place.is_cut { p.remark { "Of shard " (shard) ", " (count(LOOKED_MAX)) " events were looked at, positions " (place.from) " to " (place.to.saturating_sub(1)) "." } }
        }
    }
}

fn list(view: &View, events: &Events) -> Markup {
    if events.rows.is_empty() {
        let next = html! { p { "Events are kept in memory, since the start of the server." } };
        return empty("No such event is kept.", &next);
    }
    let head = columns(&[
        "Time", "Event", "Job", "Queue", "Change", "Worker", "Reason",
    ]);
    // Only the newest events are a tail; others do not move.
    let kept = events.after.is_empty().then_some(KEPT);
    html! {
        div.wide role="region" aria-label="Events" tabindex="0" {
            table {
                caption { "Events" }
                thead { tr { (head) } }
                tbody data-keep=[kept] { @for row in &events.rows { @match row {
                    Row::Event(shard, event) => (event_row(view, shard, event)),
                    Row::Sum { second, more } => (sum_row(view, *second, *more)),
                } } }
            }
        }
        p.remark { "Of one second, " (LISTED_PER_SECOND) " events are listed, the first ones." }
    }
}

/// The events of a second that are not listed.
fn sum_row(view: &View, second: u64, more: u64) -> Markup {
    let at = Timestamp(second * MICROS_PER_SECOND);
    html! {
        tr id={ "sum-" (second) } {
            th scope="row" { (view.clock.time(at)) }
            td colspan="6" { (count(more)) " more in this second" }
        }
    }
}

fn event_row(view: &View, shard: &ShardId, event: &Event) -> Markup {
    let happening = &event.happening;
    html! {
        tr data-row id={ "event-" (shard) "-" (event.position.0) } {
            th scope="row" { (view.clock.time(event.at)) }
            td { (kind(happening).replace('_', " ")) }
            td { @if let Some(job) = job_of(happening) { (job_link(view, shard, job)) } }
            td { @if let Some(queue) = queue_of(happening) { (queue_link(view, shard, queue)) } }
            td { (change(happening)) }
            td { @if let Some(worker) = worker_of(happening) { a href=(view.links.to("/worker").name("name", worker.as_bytes())) { (name(worker.as_bytes())) } } }
            td.message { (reason(happening)) }
        }
    }
}

fn change(happening: &Happening) -> Markup {
    match happening {
        Happening::JobMoved { from, to, .. } => html! {
            @if let Some(from) = from { (svg::state(*from)) " \u{2192} " } (svg::state(*to))
        },
        Happening::JobProgressed { progress, .. } => super::overview::progress_of(progress),
        Happening::QueueChanged { paused, .. } => {
            html! { @if *paused { "paused" } @else { "not paused" } }
        }
        Happening::LogAppended { bytes: log, .. } => html! { "log of " (bytes(*log)) },
        Happening::ScheduleChanged { schedule } => {
            html! { "schedule " (isolated(&show(schedule.as_bytes()))) }
        }
        _ => html! {},
    }
}

fn reason(happening: &Happening) -> Markup {
    match happening {
        Happening::JobMoved { reason, .. } => isolated(reason),
        _ => html! {},
    }
}

/// Links to older and newer events, as far as they are kept.
fn pages(view: &View, params: &Params, events: &Events) -> Markup {
    let base = || {
        let address = view.links.to("/events");
        CONDITIONS.iter().fold(address, |address, name| {
            let value = params.text(name).ok().flatten();
            address.with_if(name, value)
        })
    };
    let at = |start: &dyn Fn(&Place) -> u64| -> Address {
        let positions: Vec<String> = events
            .places
            .iter()
            .map(|place| {
                let before = start(place).checked_sub(1);
                let position = before.map_or_else(|| START.to_owned(), |it| it.to_string());
                match &events.places[..] {
                    [_] => position,
                    _ => format!("{}={position}", place.shard),
                }
            })
            .collect();
        base().with("after", &positions.join(","))
    };
    let is_past = !events.after.is_empty();
    let has_newer = events.places.iter().any(|place| place.to < place.end);
    let has_older = events
        .places
        .iter()
        .any(|place| first(events, place) > place.oldest);
    let rows = u64::try_from(ROWS).unwrap_or(u64::MAX);
    let older = |place: &Place| {
        let first = first(events, place).saturating_sub(rows);
        if first > place.oldest { first } else { 0 }
    };
    html! {
        nav.pages aria-label="Pages" {
            @if is_past { a.button href=(base()) { "Newest" } }
            @if is_past && has_newer { a.button href=(at(&|place: &Place| place.to)) data-page="newer" { "Newer" } }
            @if has_older {
                a.button href=(at(&older)) data-page="older" { "Older" }
                a.button href=(at(&|_: &Place| 0)) { "Oldest that is kept" }
            }
        }
    }
}

/// The position of the oldest event of a shard that the page shows; where it began to look, if it shows none.
fn first(events: &Events, place: &Place) -> u64 {
    let of_shard = events.rows.iter().filter_map(|row| match row {
        Row::Event(shard, event) if *shard == place.shard => Some(event.position.0),
        _ => None,
    });
    of_shard.min().unwrap_or(place.from)
}
