//! How long the jobs of a queue waited and ran.

use ganger_document::names::show;
use maud::{Markup, html};

use crate::data::sample::{Quantiles, merged};
use crate::format::{count, counted, plural};
use crate::svg;
use crate::view::View;
use crate::widgets::{columns, table};

use super::{QueuePage, WINDOWS};

pub(super) fn show_times(view: &View, page: &QueuePage) -> Markup {
    let shown = show(page.row.queue.queue.as_bytes());
    let words = ["Today", "2 days", "7 days", "31 days"];
    let windows: Vec<_> = WINDOWS
        .iter()
        .zip(words)
        .map(|((window, (of, _)), word)| {
            let address = view.links.on(page.row.shard.id(), "/queue");
            let address = address.with("name", &shown).with("window", window);
            (word, address, *of == page.window)
        })
        .collect();
    let waiting = merged(page.days.iter().map(|day| &day.waiting));
    let running = merged(page.days.iter().map(|day| &day.running));
    let failures: u64 = page.days.iter().map(|day| day.failures).sum();
    let retries: u64 = page.days.iter().map(|day| day.retries).sum();
    html! {
        (crate::widgets::tabs("Window", &windows))
        p.soft { "Of " (page.window) ": " (plural(failures, "failed attempt")) ", " (count(retries)) " retries and expired leases." }
        @if waiting.count == 0 { p.empty { "No job was leased in this time." } }
        @else {
            (quantile_table(&[("Waiting", &waiting), ("Running", &running)]))
            (distribution("Waiting time", &waiting))
            (distribution("Running time", &running))
        }
    }
}

fn quantile_table(rows: &[(&str, &Quantiles)]) -> Markup {
    let head = columns(&["Time", "#Jobs", "#p50", "#p95", "#p99", "#Mean"]);
    let body = html! {
        @for (word, sample) in rows {
            tr {
                th scope="row" { (word) }
                td.number { (counted(sample.count)) }
                td.number { (sample.quantile(0.5)) }
                td.number { (sample.quantile(0.95)) }
                td.number { (sample.quantile(0.99)) }
                td.number { (sample.mean()) }
            }
        }
    };
    table("Waiting and running time", &head, &body)
}

/// A histogram, with its numbers as a table below.
fn distribution(caption: &str, sample: &Quantiles) -> Markup {
    let bins = sample.coarse();
    let most = bins
        .iter()
        .map(|(_, count)| *count)
        .max()
        .unwrap_or(0)
        .max(1);
    let heights: Vec<u64> = bins.iter().map(|(_, count)| count * 100 / most).collect();
    html! {
        figure.distribution {
            figcaption { (caption) }
            (svg::histogram(&heights))
            details { summary { "Numbers as a table" }
                (table(caption, &columns(&["From", "#Jobs"]), &html! {
                    @for (from, number) in &bins { tr { th scope="row" { (from) } td.number { (counted(*number)) } } }
                }))
            }
        }
    }
}
