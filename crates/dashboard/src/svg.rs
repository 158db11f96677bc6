//! Shapes of states, and small drawings. The only module that makes markup from text, all of it its own.
#![expect(
    clippy::disallowed_types,
    reason = "constant drawings without any text from outside"
)]

use ganger_types::JobState;
use maud::{Markup, PreEscaped, html};

/// Shape and word of a state: shapes differ for those who cannot tell the colours apart.
pub(crate) fn state(state: JobState) -> Markup {
    let (class, word, shape) = match state {
        JobState::Ready => ("ready", "Ready", READY),
        JobState::Running => ("running", "Running", RUNNING),
        JobState::Succeeded => ("succeeded", "Succeeded", SUCCEEDED),
        JobState::Failed => ("failed", "Failed", FAILED),
        JobState::Blocked => ("blocked", "Blocked", BLOCKED),
        JobState::Scheduled => ("scheduled", "Scheduled", SCHEDULED),
        JobState::Cancelled => ("cancelled", "Cancelled", CANCELLED),
    };
    with_shape(class, word, shape)
}

/// A word with a shape, in the colour of a class.
pub(crate) fn badge(class: &str, word: &str) -> Markup {
    let shape = match class {
        "bad" => FAILED,
        "warn" => WARNING,
        "busy" => RUNNING,
        "paused" => PAUSED,
        "good" => SUCCEEDED,
        _ => READY,
    };
    with_shape(class, word, shape)
}

fn with_shape(class: &str, word: &str, shape: &'static str) -> Markup {
    html! {
        span class={ "state state-" (class) } { (PreEscaped(shape)) (word) }
    }
}

/// The sign of a brand.
pub(crate) fn brand() -> Markup {
    html! { (PreEscaped(BRAND)) }
}

macro_rules! shape {
    ($inner:literal) => {
        concat!(
            "<svg class=\"shape\" viewBox=\"0 0 16 16\" width=\"13\" height=\"13\" aria-hidden=\"true\">",
            $inner,
            "</svg>"
        )
    };
}

const READY: &str = shape!(
    "<circle cx=\"8\" cy=\"8\" r=\"5.5\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"/>"
);
const RUNNING: &str = shape!("<path d=\"M4 2.5v11l9-5.5z\" fill=\"currentColor\"/>");
const SUCCEEDED: &str = shape!(
    "<path d=\"M2.5 8.5l4 4 7-9\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2.2\"/>"
);
const FAILED: &str = shape!(
    "<path d=\"M3 3l10 10M13 3L3 13\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2.2\"/>"
);
const BLOCKED: &str = shape!(
    "<path d=\"M8 1.5L14.5 8 8 14.5 1.5 8z\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"/>"
);
const SCHEDULED: &str = shape!(
    "<circle cx=\"8\" cy=\"8\" r=\"6\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.6\"/><path d=\"M8 8V2a6 6 0 0 1 6 6z\" fill=\"currentColor\"/>"
);
const CANCELLED: &str = shape!(
    "<circle cx=\"8\" cy=\"8\" r=\"6\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.8\"/><path d=\"M4 12l8-8\" stroke=\"currentColor\" stroke-width=\"1.8\"/>"
);
const PAUSED: &str =
    shape!("<path d=\"M4 3v10M12 3v10\" stroke=\"currentColor\" stroke-width=\"3\"/>");
const WARNING: &str = shape!(
    "<path d=\"M8 1.5l7 13H1z\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.6\"/><path d=\"M8 6v4M8 11.5v1.5\" stroke=\"currentColor\" stroke-width=\"1.8\"/>"
);
const BRAND: &str = "<svg class=\"brand-sign\" viewBox=\"0 0 32 32\" width=\"22\" height=\"22\" aria-hidden=\"true\"><rect x=\"2\" y=\"2\" width=\"28\" height=\"28\" rx=\"7\" fill=\"currentColor\"/><path class=\"brand-lines\" d=\"M9 10h14M9 16h9M9 22h5\" fill=\"none\" stroke-width=\"3\" stroke-linecap=\"round\"/></svg>";

/// A bar with its filled part, in millionths. The number stands beside it as text.
pub(crate) fn bar(millionths: u64, class: &str) -> Markup {
    let width = millionths.min(1_000_000) / 10_000;
    html! {
        svg class={ "bar bar-" (class) } viewBox="0 0 100 6" width="100" height="6" preserveAspectRatio="none" aria-hidden="true" {
            rect class="bar-ground" width="100" height="6" rx="2" {}
            rect class="bar-fill" width=(width) height="6" rx="2" {}
        }
    }
}

/// One phase of a job's life in the drawing of its timeline.
pub(crate) struct Phase {
    /// `waiting`, `running`, `pause` or `folded`.
    pub(crate) class: &'static str,
    /// Width in hundredths of a percent of the whole.
    pub(crate) width: u64,
    /// What a pointer sees.
    pub(crate) title: String,
}

/// A timeline of phases from left to right. The table of attempts beside it has the same facts as text.
pub(crate) fn timeline(phases: &[Phase]) -> Markup {
    let mut from = 0;
    let placed: Vec<(u64, &Phase)> = phases
        .iter()
        .map(|phase| {
            let at = from;
            from += phase.width;
            (at, phase)
        })
        .collect();
    html! {
        svg class="timeline" viewBox="0 0 10000 28" width="100%" height="28" preserveAspectRatio="none" aria-hidden="true" {
            @for (at, phase) in &placed {
                rect class={ "phase phase-" (phase.class) } x=(at) y="4" width=(phase.width.saturating_sub(15).max(10)) height="20" {
                    title { (phase.title) }
                }
            }
        }
    }
}

/// Bars of a histogram, each in hundredths of the highest. All are one element: a table may have a hundred of these.
pub(crate) fn histogram(heights: &[u64]) -> Markup {
    let step = 12;
    let width = u64::try_from(heights.len()).unwrap_or(0).max(1) * step;
    let bars = (0_u64..).zip(heights).filter(|(_, height)| **height > 0);
    let bars = bars.map(|(at, height)| {
        let tall = (height * 58 / 100).max(1);
        format!("M{} 60v-{tall}h{}v{tall}z", at * step, step - 2)
    });
    html! {
        svg class="histogram" viewBox={ "0 0 " (width) " 60" } width=(width) height="60" aria-hidden="true" {
            path d=(bars.collect::<String>()) {}
        }
    }
}

/// A small line of values, without axes. The numbers stand beside it.
pub(crate) fn sparkline(values: &[Option<u64>]) -> Markup {
    let highest = values.iter().flatten().max().copied().unwrap_or(0).max(1);
    let last = u64::try_from(values.len().saturating_sub(1))
        .unwrap_or(1)
        .max(1);
    let known = (0_u64..)
        .zip(values)
        .filter_map(|(at, value)| Some((at, (*value)?)));
    let points: Vec<String> = known
        .map(|(at, value)| {
            let height = u128::from(value) * 14 / u128::from(highest);
            format!("{},{}", at * 90 / last, 15 - height)
        })
        .collect();
    html! {
        @if !points.is_empty() {
            svg class="sparkline" viewBox="0 0 90 16" width="90" height="16" aria-hidden="true" {
                polyline points=(points.join(" ")) {}
            }
        }
    }
}

/// Lines over time, each with its word at its end. The numbers stand in a table below the drawing.
///
/// It scrolls by itself on a narrow screen; the keyboard reaches it.
pub(crate) fn chart(label: &str, lines: &[(&str, &str, &[Option<u64>])]) -> Markup {
    let highest = lines.iter().flat_map(|line| line.2.iter().flatten()).max();
    let highest = (*highest.unwrap_or(&1)).max(1);
    let points = |values: &[Option<u64>]| -> String {
        let last = u64::try_from(values.len().saturating_sub(1))
            .unwrap_or(1)
            .max(1);
        let known = (0_u64..)
            .zip(values)
            .filter_map(|(at, value)| Some((at, (*value)?)));
        let known = known.map(|(at, value)| {
            let height = u128::from(value) * 100 / u128::from(highest);
            format!("{},{}", 40 + at * 560 / last, 110 - height)
        });
        known.collect::<Vec<_>>().join(" ")
    };
    let rows = (0_u64..).zip(lines);
    html! {
        figure.chart aria-label=(label) tabindex="0" {
            figcaption { (label) }
            svg viewBox="0 0 700 120" width="700" height="120" aria-hidden="true" {
                path class="chart-axis" d="M40 10V110H600" {}
                text class="chart-text" x="36" y="16" text-anchor="end" { (highest) }
                text class="chart-text" x="36" y="112" text-anchor="end" { "0" }
                @for (row, (word, class, values)) in rows {
                    polyline class={ "chart-line chart-" (class) } points=(points(values)) {}
                    path class={ "chart-line chart-" (class) } d={ "M606 " (20 + row * 18) "h18" } {}
                    text class="chart-text" x="628" y=(24 + row * 18) { (word) }
                }
            }
        }
    }
}
