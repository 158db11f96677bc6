//! Statistics: is it getting slower? Rates, waiting and running times, and totals by kind.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_document::names::show;
use ganger_shard::series::{KindTotals, Latency, Metric, SeriesQuery, Sketch, Step};
use ganger_types::{Kind, Queue, Timestamp};
use maud::{Markup, html};

use crate::format::{count, counted, percent, span};
use crate::frame::kept_scope;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::view::View;
use crate::widgets::{columns, kind_link, table, tabs};

/// Lengths of time that a page can show: parameter, words, length, and the step of its chart.
const WINDOWS: [(&str, &str, Duration, Step); 4] = [
    ("1h", "1 hour", Duration::from_secs(3_600), Step::Minute),
    ("24h", "24 hours", Duration::from_secs(86_400), Step::Minute),
    ("7d", "7 days", Duration::from_secs(7 * 86_400), Step::Hour),
    (
        "31d",
        "31 days",
        Duration::from_secs(31 * 86_400),
        Step::Hour,
    ),
];
/// What the chart and its table show.
const SHOWN: [(Metric, &str, &str); 3] = [
    (Metric::Started, "Started", "started"),
    (Metric::Succeeded, "Succeeded", "succeeded"),
    (Metric::Failed, "Failed", "failed"),
];
/// Rows of the table below the chart, and of the table of kinds.
const ROWS: usize = 100;
/// Quantiles of the times that tables show, as shares from 0 to 1.
const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];

/// What the page is asked for.
struct Asked {
    queue: Option<Queue>,
    kind: Option<Kind>,
    /// The length of time, as its place in [`WINDOWS`].
    window: usize,
}

/// The numbers of the page, added up over the shards of the view.
#[derive(Default)]
struct Found {
    /// Beginning of the first step.
    from: Timestamp,
    /// For each metric of [`SHOWN`] its values; `None` where nothing was counted.
    values: Vec<Vec<Option<u64>>>,
    latency: Latency,
    kinds: BTreeMap<Option<Kind>, KindTotals>,
}

pub(super) fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["queue", "kind", "window"])?;
    view.rights.check("getSeries")?;
    let places: Vec<(&str, usize)> = WINDOWS.iter().map(|it| it.0).zip(0..).collect();
    let asked = Asked {
        queue: params.name("queue")?,
        kind: params.name("kind")?,
        window: params.word("window", &places)?.unwrap_or(0),
    };
    let found = find(view, &asked);
    let page = Page::new("Statistics", "Statistics", head(view, &asked));
    Ok(page
        .part("part-rates", rates(view, &asked, &found))
        .part("part-times", times(&found.latency))
        .part("part-kinds", kinds(view, &found.kinds)))
}

fn find(view: &View, asked: &Asked) -> Found {
    let (_, _, length, step) = WINDOWS[asked.window];
    let now = view.clock.now;
    let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    let from = Timestamp(now.0.saturating_sub(micros));
    let query = SeriesQuery {
        namespace: view.namespace().clone(),
        queue: asked.queue.clone(),
        kind: asked.kind.clone(),
        from,
        to: now,
        step,
        metrics: SHOWN.map(|shown| shown.0).to_vec(),
        is_total: true,
    };
    let mut found = Found::default();
    for shard in view.shards() {
        let (reply, kinds) = shard.series(|table| {
            let queue = asked.queue.as_ref();
            let kinds = table.kinds(view.namespace(), queue, (from, now), now);
            (table.read(&query, now), kinds)
        });
        found.from = reply.from;
        found.values.resize(SHOWN.len(), Vec::new());
        for (sum, line) in found.values.iter_mut().zip(reply.lines) {
            sum.resize(line.values.len(), None);
            for (sum, value) in sum.iter_mut().zip(line.values) {
                *sum = match (*sum, value) {
                    (Some(sum), Some(value)) => Some(sum + value),
                    (sum, value) => sum.or(value),
                };
            }
        }
        for (kind, totals) in kinds {
            let is_wanted = asked.kind.is_none() || asked.kind == kind;
            if is_wanted {
                found.latency.merge(&totals.latency);
                found.kinds.entry(kind).or_default().merge(&totals);
            }
        }
    }
    found
}

fn head(view: &View, asked: &Asked) -> Markup {
    let windows = WINDOWS.iter().zip(0..).map(|((window, words, ..), place)| {
        let address = view.links.to("/stats").with("window", window);
        let address = address
            .name_if("queue", asked.queue.as_ref().map(Queue::as_bytes))
            .name_if("kind", asked.kind.as_ref().map(Kind::as_bytes));
        (*words, address, place == asked.window)
    });
    let shown = |bytes: Option<&[u8]>| bytes.map(|bytes| show(bytes).into_owned());
    html! {
        div.heading { h1 { "Statistics" } }
        (tabs("Time", &windows.collect::<Vec<_>>()))
        form.filter role="search" aria-label="Choose what is counted" action=(view.links.bare("/stats")) {
            label { "Queue " input name="queue" maxlength="255" value=[shown(asked.queue.as_ref().map(Queue::as_bytes))]; }
            label { "Kind " input name="kind" maxlength="255" value=[shown(asked.kind.as_ref().map(Kind::as_bytes))]; }
            input type="hidden" name="window" value=(WINDOWS[asked.window].0);
            (kept_scope(view))
            button { "Show" }
        }
    }
}

fn rates(view: &View, asked: &Asked, found: &Found) -> Markup {
    let step = WINDOWS[asked.window].3;
    let per = if step == Step::Hour { "hour" } else { "minute" };
    let sums: Vec<u64> = found
        .values
        .iter()
        .map(|values| values.iter().flatten().sum())
        .collect();
    let lines: Vec<(&str, &str, &[Option<u64>])> = SHOWN
        .iter()
        .zip(&found.values)
        .map(|((_, word, class), values)| (*word, *class, values.as_slice()))
        .collect();
    let is_known = found.values.iter().flatten().any(Option::is_some);
    html! {
        h2 { "Rates" }
        @if is_known {
            p { @for ((_, word, _), sum) in SHOWN.iter().zip(&sums) { (*word) " " (counted(*sum)) " " } }
            (svg::chart(&format!("Jobs per {per}"), &lines))
            details { summary { "Numbers as a table" } (numbers(view, step, found)) }
        } @else {
            p.empty { "Nothing was counted in this time. Counting begins with the start of the server." }
        }
    }
}

/// The newest steps of the chart in which something happened.
fn numbers(view: &View, step: Step, found: &Found) -> Markup {
    let first = step.number(found.from);
    let steps = found.values.first().map_or(0, Vec::len);
    let row = |place: usize| -> Vec<Option<u64>> {
        let of = found.values.iter();
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
    let head = columns(&["From", "#Started", "#Succeeded", "#Failed"]);
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
            }
        }
    };
    html! {
        h2 { "By kind" }
        @if rows.is_empty() { p.empty { "No kind was run in this time." } }
        @else { (table("By kind", &head, &body)) }
    }
}
