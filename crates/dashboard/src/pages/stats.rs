//! Statistics: is it getting slower? Rates, waiting and running times, totals by kind, failures and losses.

mod csv;
mod failures;

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_document::names::show;
use ganger_shard::Handle;
use ganger_shard::series::{KindTotals, Latency, Metric, Sketch, Step};
use ganger_types::{Kind, Queue, Timestamp};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::data::series::{Steps, Totals, WINDOWS, Which, Window, back};
use crate::fault::Fault;
use crate::format::{count, counted, percent, span};
use crate::frame::kept_scope;
use crate::links::Address;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::question::Question;
use crate::svg;
use crate::view::{Missing, View};
use crate::widgets::{self, columns, kind_link, table, tabs};

pub(crate) use csv::csv;

/// What the chart and its table show: metric, word, and class of its line.
const SHOWN: [(Metric, &str, &str); 3] = [
    (Metric::Started, "Started", "started"),
    (Metric::Succeeded, "Succeeded", "succeeded"),
    (Metric::Failed, "Failed", "failed"),
];
/// What is lost or tried again, which only queues count.
const LOSSES: [Metric; 2] = [Metric::Retried, Metric::Lost];
/// Rows of the table below the chart, and of the table of kinds.
const ROWS: usize = 100;
/// Quantiles of the times that tables show, as shares from 0 to 1.
const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];
const PARAMETERS: &[&str] = &["queue", "kind", "window", "compare"];

/// An earlier time that a window is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Earlier {
    word: &'static str,
    words: &'static str,
    before: Duration,
}

const EARLIER: [Earlier; 2] = [
    Earlier {
        word: "day",
        words: "a day before",
        before: Duration::from_secs(86_400),
    },
    Earlier {
        word: "week",
        words: "a week before",
        before: Duration::from_secs(7 * 86_400),
    },
];

/// What the page is asked for.
struct Asked {
    which: Which,
    window: Window,
    compare: Option<Earlier>,
}

/// The numbers of the page, added up over the shards of the view.
struct Found {
    /// Values of the metrics of [`SHOWN`].
    rates: Totals,
    /// The same at the earlier time, if one is asked for.
    earlier: Option<Totals>,
    /// Attempts that will be tried again, and leases that expired; `None` for a kind, which does not count them.
    losses: Option<Vec<u64>>,
    latency: Latency,
    kinds: BTreeMap<Option<Kind>, KindTotals>,
    missing: Missing,
}

impl Asked {
    fn read(view: &View, query: &str) -> Result<Self, Fault> {
        let params = Params::read(query, PARAMETERS)?;
        view.rights.check("getSeries")?;
        let earlier: Vec<(&str, Earlier)> = EARLIER.iter().map(|it| (it.word, *it)).collect();
        Ok(Self {
            which: Which {
                queue: params.name("queue")?,
                kind: params.name("kind")?,
            },
            window: Window::of(&params)?,
            compare: params.word("compare", &earlier)?,
        })
    }

    /// Adds what is asked for to an address, with another window and comparison.
    fn address(&self, address: Address, window: Window, compare: Option<Earlier>) -> Address {
        address
            .with("window", window.word)
            .name_if("queue", self.which.queue.as_ref().map(Queue::as_bytes))
            .name_if("kind", self.which.kind.as_ref().map(Kind::as_bytes))
            .with_if("compare", compare.map(|it| it.word))
    }
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let asked = Asked::read(view, query)?;
    let found = find(view, &asked).await?;
    let page = Page::new("Statistics", "Statistics", head(view, &asked));
    let page = page
        .part("part-rates", rates(view, &asked, &found))
        .part("part-attempts", attempts(&found))
        .part("part-times", times(&found.latency))
        .part(
            "part-kinds",
            html! { (kinds(view, &found.kinds)) (widgets::missing(&found.missing)) },
        );
    if !view.rights.may_read("listJobs") {
        return Ok(page);
    }
    let failures = failures::show(view, &asked.which, asked.window).await?;
    Ok(page.part("part-groups", failures))
}

/// What happened to the kinds of a shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kinds {
    queue: Option<Queue>,
    from: Timestamp,
    until: Timestamp,
}

impl Question for Kinds {
    const NAME: &'static str = "kinds";
    type Answer = Vec<(Option<Kind>, KindTotals)>;

    fn operation(&self) -> &'static str {
        "getSeries"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let (queue, time) = (self.queue.as_ref(), (self.from, self.until));
        let kinds = shard.series(|table| table.kinds(view.namespace(), queue, time, self.until))?;
        Ok(kinds.into_iter().collect())
    }
}

async fn find(view: &View, asked: &Asked) -> Result<Found, Fault> {
    let now = view.clock.now;
    let which = &asked.which;
    let metrics = SHOWN.map(|shown| shown.0);
    let read = async |until, metrics: &[Metric]| {
        let steps = Steps::of(which, asked.window, until, metrics);
        steps.totals(view).await
    };
    let mut found = Found {
        rates: read(now, &metrics).await?,
        earlier: match asked.compare {
            Some(it) => Some(read(back(now, it.before), &metrics).await?),
            None => None,
        },
        losses: match which.kind {
            Some(_) => None,
            None => Some(read(now, &LOSSES).await?.sums()),
        },
        latency: Latency::default(),
        kinds: BTreeMap::new(),
        missing: Missing::default(),
    };
    let question = Kinds {
        queue: which.queue.clone(),
        from: asked.window.from(now),
        until: now,
    };
    let gathered = view.gather(&question).await?;
    found.missing = gathered.missing;
    for (kind, totals) in gathered.found.into_iter().flat_map(|(_, kinds)| kinds) {
        if which.kind.is_none() || which.kind == kind {
            found.latency.merge(&totals.latency);
            found.kinds.entry(kind).or_default().merge(&totals);
        }
    }
    Ok(found)
}

fn head(view: &View, asked: &Asked) -> Markup {
    let stats = || view.links.to("/stats");
    let windows = WINDOWS.iter().map(|window| {
        let address = asked.address(stats(), *window, asked.compare);
        (window.words, address, *window == asked.window)
    });
    let compared = std::iter::once(None)
        .chain(EARLIER.map(Some))
        .map(|earlier| {
            let words = earlier.map_or("nothing", |it| it.words);
            let address = asked.address(stats(), asked.window, earlier);
            (words, address, earlier == asked.compare)
        });
    let shown = |bytes: Option<&[u8]>| bytes.map(|bytes| show(bytes).into_owned());
    html! {
        div.heading { h1 { "Statistics" } }
        (tabs("Time", &windows.collect::<Vec<_>>()))
        p.soft { "Compare with:" }
        (tabs("Compare", &compared.collect::<Vec<_>>()))
        form.filter role="search" aria-label="Choose what is counted" action=(view.links.bare("/stats")) {
            label { "Queue " input name="queue" maxlength="255" value=[shown(asked.which.queue.as_ref().map(Queue::as_bytes))]; }
            label { "Kind " input name="kind" maxlength="255" value=[shown(asked.which.kind.as_ref().map(Kind::as_bytes))]; }
            input type="hidden" name="window" value=(asked.window.word);
            @if let Some(compare) = asked.compare { input type="hidden" name="compare" value=(compare.word); }
            (kept_scope(view))
            button { "Show" }
        }
    }
}

fn rates(view: &View, asked: &Asked, found: &Found) -> Markup {
    let mut lines: Vec<(&str, &str, &[Option<u64>])> = SHOWN
        .iter()
        .zip(&found.rates.values)
        .map(|((_, word, class), values)| (*word, *class, values.as_slice()))
        .collect();
    let words = asked.compare.map(|it| format!("Started, {}", it.words));
    if let (Some(earlier), Some(words)) = (&found.earlier, &words) {
        let started = earlier.values.first().map_or(&[][..], Vec::as_slice);
        lines.push((words, "earlier", started));
    }
    let sums = found.rates.sums();
    let csv = asked.address(view.links.to("/stats/csv"), asked.window, asked.compare);
    html! {
        h2 { "Rates" }
        @if found.rates.is_known() {
            p { @for ((_, word, _), sum) in SHOWN.iter().zip(&sums) { (*word) " " (counted(*sum)) " " } }
            @if let Some(earlier) = &found.earlier {
                p.soft { (asked.compare.map_or("", |it| it.words)) ": " @for ((_, word, _), sum) in SHOWN.iter().zip(earlier.sums()) { (*word) " " (counted(sum)) " " } }
            }
            (svg::chart(&format!("Jobs per {}", asked.window.per()), &lines))
            details { summary { "Numbers as a table" } (numbers(view, asked.window.step, &found.rates, &SHOWN.map(|it| it.1))) }
            p { a href=(csv) download { "CSV" } }
        } @else {
            p.empty { "Nothing was counted in this time. Counting begins with the start of the server." }
        }
    }
}

/// Attempts for each success, retries and losses.
fn attempts(found: &Found) -> Markup {
    let sums = found.rates.sums();
    let (started, succeeded) = (
        sums.first().copied().unwrap_or(0),
        sums.get(1).copied().unwrap_or(0),
    );
    let share = (started * 10).checked_div(succeeded);
    html! {
        @if started > 0 {
            h2 { "Attempts" }
            dl.facts {
                div { dt { "Attempts a success" } dd { @if let Some(tenths) = share { (crate::data::rates::text(tenths)) } @else { "\u{2013}" } } }
                @if let Some([retried, lost]) = found.losses.as_deref() {
                    div { dt { "Attempts that were tried again" } dd { (counted(*retried)) } }
                    div { dt { "Leases that expired" } dd { (counted(*lost)) } }
                }
            }
        }
    }
}

/// The newest steps of the chart in which something happened.
pub(super) fn numbers(view: &View, step: Step, totals: &Totals, words: &[&str]) -> Markup {
    let first = step.number(totals.from);
    let steps = totals.values.first().map_or(0, Vec::len);
    let row = |place: usize| -> Vec<Option<u64>> {
        let of = totals.values.iter();
        of.map(|values| values.get(place).copied().flatten())
            .collect()
    };
    let rows: Vec<_> = (0..steps)
        .rev()
        .map(|place| (place, row(place)))
        .filter(|(_, values)| values.iter().flatten().any(|value| *value > 0))
        .take(ROWS)
        .collect();
    let start = |place: usize| step.start(first + u32::try_from(place).unwrap_or(0));
    let words: Vec<String> = words.iter().map(|word| format!("#{word}")).collect();
    let heads: Vec<&str> = std::iter::once("From")
        .chain(words.iter().map(String::as_str))
        .collect();
    let head = columns(&heads);
    let body = html! {
        @for (place, values) in &rows {
            tr {
                th scope="row" { (view.clock.time(start(*place))) }
                @for value in values { td.number { @if let Some(value) = value { (counted(*value)) } @else { "\u{2013}" } } }
            }
        }
    };
    table("Rates", &head, &body)
}

fn times(latency: &Latency) -> Markup {
    let rows = [("Waiting", &latency.waiting), ("Running", &latency.running)];
    let head = columns(&["Time", "#Jobs", "#p50", "#p95", "#p99"]);
    let body = html! {
        @for (word, sketch) in &rows {
            tr {
                th scope="row" { (*word) }
                td.number { (counted(sketch.count())) }
                (quantiles(sketch))
            }
        }
    };
    html! {
        h2 { "Waiting and running time" }
        @if latency.waiting.count() + latency.running.count() == 0 { p.empty { "No attempt in this time." } }
        @else {
            (table("Waiting and running time", &head, &body))
            @for (word, sketch) in &rows { (histogram(word, sketch)) }
        }
    }
}

fn quantiles(sketch: &Sketch) -> Markup {
    html! {
        @for share in QUANTILES {
            td.number {
                @if let Some(seconds) = sketch.quantile(share) { (about(seconds)) } @else { "\u{2013}" }
            }
        }
    }
}

/// A duration that is known within 10 %.
fn about(seconds: f64) -> String {
    span(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// The sum of all durations, as well as their bins tell: a bin is a fifth wider than it begins.
fn total_seconds(sketch: &Sketch) -> f64 {
    let bins = sketch.bins();
    bins.map(|(from, jobs)| from * 1.09 * f64::from(jobs)).sum()
}

/// Bins from the shortest to the longest, with their numbers as a table.
fn histogram(word: &str, sketch: &Sketch) -> Markup {
    let bins: Vec<(f64, u32)> = sketch.bins().collect();
    let highest = bins.iter().map(|bin| bin.1).max().unwrap_or(1).max(1);
    let heights = bins
        .iter()
        .map(|bin| u64::from(bin.1) * 100 / u64::from(highest));
    let heights: Vec<u64> = heights.collect();
    let head = columns(&["From", "#Jobs"]);
    let body = html! {
        @for (from, jobs) in &bins {
            tr { th scope="row" { (about(*from)) } td.number { (count(u64::from(*jobs))) } }
        }
    };
    let caption = format!("{word} time of jobs");
    html! {
        @if !bins.is_empty() {
            h3 { (word) " time" }
            (svg::histogram(&heights))
            details { summary { "Numbers as a table" } (table(&caption, &head, &body)) }
        }
    }
}

fn kinds(view: &View, kinds: &BTreeMap<Option<Kind>, KindTotals>) -> Markup {
    let mut rows: Vec<_> = kinds.iter().collect();
    rows.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.started));
    let head = columns(&[
        "Kind",
        "#Started",
        "#Succeeded",
        "#Failed",
        "#Share failed",
        "#p50",
        "#p95",
        "#p99",
        "#Total run time",
    ]);
    let share = |totals: &KindTotals| {
        let ended = totals.succeeded + totals.failed;
        (totals.failed * 1_000_000).checked_div(ended)
    };
    let body = html! {
        @for (kind, totals) in rows.iter().take(ROWS) {
            tr data-row {
                th scope="row" { @if let Some(kind) = kind { (kind_link(view, kind)) } @else { "all others" } }
                td.number { (counted(totals.started)) }
                td.number { (counted(totals.succeeded)) }
                td.number { (counted(totals.failed)) }
                td.number { @if let Some(share) = share(totals) { (percent(share)) } @else { "\u{2013}" } }
                (quantiles(&totals.latency.running))
                td.number { "about " (about(total_seconds(&totals.latency.running))) }
            }
        }
    };
    html! {
        h2 { "By kind" }
        @if rows.is_empty() { p.empty { "No kind was run in this time." } }
        @else { (table("By kind", &head, &body)) }
    }
}
