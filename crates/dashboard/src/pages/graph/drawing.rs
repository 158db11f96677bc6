//! The drawing of a graph: an SVG of boxes and lines, every box a link with a name.

use ganger_document::view::graphs::{GraphBox, GraphLayout, GraphLine, GraphPoint, StateCounts};
use maud::{Markup, html};
use std::collections::HashMap;

use crate::format::{count, plural};
use crate::links::Address;
use crate::text::{cut, plain};
use crate::view::View;

use super::super::graphs::states;

/// Width and height of a box, and of a column and a row, in user units.
const BOX: (f64, f64) = (184.0, 46.0);
const CELL: (f64, f64) = (248.0, 62.0);
/// Space around the drawing.
const MARGIN: f64 = 12.0;
/// Characters of a kind or name in a box.
const CHARACTERS: usize = 22;

/// How large the drawing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Zoom {
    /// As wide as the page.
    Fit,
    Half,
    ThreeQuarters,
    #[default]
    Whole,
    OneAndAHalf,
    Double,
}

/// Words of addresses for the sizes, from the smallest on.
pub(super) const ZOOMS: &[(&str, Zoom)] = &[
    ("50", Zoom::Half),
    ("75", Zoom::ThreeQuarters),
    ("100", Zoom::Whole),
    ("150", Zoom::OneAndAHalf),
    ("200", Zoom::Double),
    ("fit", Zoom::Fit),
];

impl Zoom {
    fn factor(self) -> f64 {
        match self {
            Self::Half => 0.5,
            Self::ThreeQuarters => 0.75,
            Self::Whole | Self::Fit => 1.0,
            Self::OneAndAHalf => 1.5,
            Self::Double => 2.0,
        }
    }

    /// The next size in a direction, as a word of an address.
    fn next(self, is_larger: bool) -> Option<&'static str> {
        let sizes = &ZOOMS[..ZOOMS.len() - 1];
        let from = if self == Self::Fit { Self::Whole } else { self };
        let at = sizes.iter().position(|(_, size)| *size == from)?;
        let at = if is_larger {
            at + 1
        } else {
            at.checked_sub(1)?
        };
        sizes.get(at).map(|(word, _)| *word)
    }

    fn word(self) -> Option<&'static str> {
        let mut known = ZOOMS.iter().filter(|(_, zoom)| *zoom == self);
        known
            .next()
            .map(|(word, _)| *word)
            .filter(|_| self != Self::Whole)
    }
}

/// Where a drawing is shown, for the links in it.
pub(crate) struct Place<'a> {
    /// The page, without what is open and the size.
    pub(crate) address: Address,
    /// Ids of the boxes that are open.
    pub(crate) open: &'a [String],
    pub(crate) zoom: Zoom,
    /// The same as a table.
    pub(crate) table: Address,
}

impl Place<'_> {
    /// The page with these boxes open, in this size.
    fn with(&self, open: &[String], zoom: Option<&str>) -> Address {
        let open = open.join(",");
        let open = Some(open.as_str()).filter(|open| !open.is_empty());
        self.address
            .clone()
            .with_if("open", open)
            .with_if("zoom", zoom)
    }
}

/// The drawing, with a link to the table before it.
pub(crate) fn draw(view: &View, layout: &GraphLayout, place: &Place<'_>) -> Markup {
    let places: HashMap<&str, &GraphBox> = layout
        .boxes
        .iter()
        .map(|drawn| (drawn.id.as_str(), drawn))
        .collect();
    let width = f64::from(layout.columns.max(1)) * CELL.0 - (CELL.0 - BOX.0) + 2.0 * MARGIN;
    let height = layout.rows.max(1.0) * CELL.1 - (CELL.1 - BOX.1) + 2.0 * MARGIN;
    let factor = place.zoom.factor();
    let is_fit = place.zoom == Zoom::Fit;
    html! {
        p.graph-tools {
            a href=(place.table) { "Show as table" }
            @if let Some(word) = place.zoom.next(true) { " " a href=(place.with(place.open, Some(word))) { "Zoom in" } }
            @if let Some(word) = place.zoom.next(false) { " " a href=(place.with(place.open, Some(word))) { "Zoom out" } }
            @if !is_fit { " " a href=(place.with(place.open, Some("fit"))) { "Fit" } }
            @if !place.open.is_empty() { " " a href=(place.with(&[], place.zoom.word())) { "Close all" } }
        }
        div.wide.graph role="region" aria-label="Drawing of the graph" tabindex="0" {
            svg viewBox=(format!("0 0 {width:.0} {height:.0}"))
                width=(if is_fit { "100%".to_owned() } else { whole(width * factor) })
                height=[(!is_fit).then(|| whole(height * factor))]
                role="group" aria-label=(plural(layout_jobs(layout), "job")) {
                g aria-hidden="true" {
                    @for line in &layout.lines { (self::line(line, &places)) }
                }
                @for drawn in &layout.boxes { (self::drawn(view, drawn, place)) }
            }
        }
        p.soft {
            "Solid lines carry results, dashed ones only order; with a thick line the dependent waits for a retry if the dependency fails."
            @if layout.collapsed { " " (grouping(&layout.grouping)) }
            @if layout.lines_left_out > 0 { " " (plural(layout.lines_left_out, "line")) " more are not drawn." }
        }
    }
}

fn layout_jobs(layout: &GraphLayout) -> u64 {
    layout.boxes.iter().map(|drawn| drawn.jobs).sum()
}

/// What the jobs of a box have in common.
fn grouping(word: &str) -> &'static str {
    match word {
        "neighbours" => "A box stands for jobs of one level and kind with the same neighbours.",
        "kinds" => "A box stands for jobs of one level and kind.",
        "levels" => "A box stands for all jobs of a level.",
        "level_ranges" => "A box stands for all jobs of several levels.",
        _ => "A box with a number stands for several jobs.",
    }
}

fn whole(number: f64) -> String {
    format!("{number:.0}")
}

/// The left edge and the middle of a place.
fn left(point: GraphPoint) -> (f64, f64) {
    (
        MARGIN + f64::from(point.x) * CELL.0,
        MARGIN + point.y * CELL.1 + BOX.1 / 2.0,
    )
}

fn line(line: &GraphLine, places: &HashMap<&str, &GraphBox>) -> Markup {
    let place = |id: &str| {
        let drawn = places.get(id)?;
        Some(left(GraphPoint {
            x: drawn.x,
            y: drawn.y,
        }))
    };
    let (Some(from), Some(to)) = (place(&line.from), place(&line.to)) else {
        return html! {};
    };
    let mut at = (from.0 + BOX.0, from.1);
    let mut path = format!("M{:.0} {:.0}", at.0, at.1);
    let mut curve = |to: (f64, f64)| {
        let middle = f64::midpoint(at.0, to.0);
        let piece = format!(
            "C{middle:.0} {:.0} {middle:.0} {:.0} {:.0} {:.0}",
            at.1, to.1, to.0, to.1
        );
        path.push_str(&piece);
        at = to;
    };
    for point in &line.via {
        let near = left(*point);
        curve(near);
        curve((near.0 + BOX.0, near.1));
    }
    curve(to);
    let order = if line.carries_data {
        ""
    } else {
        " graph-order"
    };
    let wait = if line.policy == ganger_types::FailurePolicy::Wait {
        " graph-wait"
    } else {
        ""
    };
    html! { path class={ "graph-line" (order) (wait) } d=(path) {} }
}

/// Sign and state of a box: the state that needs attention most.
fn leading(counts: &StateCounts) -> (&'static str, &'static str) {
    let order = [
        ("failed", counts.failed),
        ("running", counts.running),
        ("ready", counts.ready),
        ("scheduled", counts.scheduled),
        ("blocked", counts.blocked),
        ("cancelled", counts.cancelled),
    ];
    let found = order.into_iter().find(|(_, count)| *count > 0);
    let word = found.map_or("succeeded", |(word, _)| word);
    (sign(word), word)
}

fn sign(state: &str) -> &'static str {
    match state {
        "ready" => "\u{25cb}",
        "running" => "\u{25b6}",
        "succeeded" => "\u{2713}",
        "failed" => "\u{2715}",
        "blocked" => "\u{25c7}",
        "scheduled" => "\u{25d4}",
        _ => "\u{2298}",
    }
}

fn drawn(view: &View, drawn: &GraphBox, place: &Place<'_>) -> Markup {
    let (x, y) = left(GraphPoint {
        x: drawn.x,
        y: drawn.y,
    });
    let y = y - BOX.1 / 2.0;
    let (mark, state) = leading(&drawn.counts);
    let title = title(drawn);
    html! {
        a href=(target(view, drawn, place)) aria-label=(label(drawn)) class={ "graph-box state-" (state) } {
            title { (label(drawn)) }
            rect x=(whole(x)) y=(whole(y)) width=(whole(BOX.0)) height=(whole(BOX.1)) rx="4" class=[(drawn.jobs > 1).then_some("graph-many")] {}
            text x=(whole(x + 10.0)) y=(whole(y + 19.0)) { (cut(&plain(&title), CHARACTERS)) }
            text.graph-mark x=(whole(x + 10.0)) y=(whole(y + 37.0)) {
                @if drawn.jobs == 1 { (mark) " " (state) }
                @else {
                    @for (word, jobs) in states(&drawn.counts).into_iter().filter(|(_, jobs)| *jobs > 0).take(4) {
                        tspan class={ "state-" (word) } { (sign(word)) " " (count(jobs)) "\u{2002}" }
                    }
                }
            }
        }
    }
}

/// First line of a box.
fn title(drawn: &GraphBox) -> String {
    let kind = drawn.kind.as_deref();
    if drawn.jobs == 1 {
        let kind = kind.unwrap_or("?");
        let name = drawn.name.as_deref().or(drawn.job.as_deref());
        // Many graphs name a job like its kind.
        let name = name.filter(|name| *name != kind);
        return name.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name}"));
    }
    let what = match (kind, drawn.level_last) {
        (Some(kind), _) => kind.to_owned(),
        (None, Some(last)) => format!("levels {}\u{2013}{last}", drawn.level),
        (None, None) => format!("level {}", drawn.level),
    };
    if drawn.rest {
        return format!("and {} more {what}", count(drawn.jobs));
    }
    format!("{what} \u{d7} {}", count(drawn.jobs))
}

/// The name of a box for those who do not see it, such as `resize \u{d7} 1,000, 3 (failed), 997 (succeeded)`.
///
/// It repeats what the box shows, in the same order, so that people who speak to the page can say what they see; the
/// words of the signs stand in parentheses between it.
fn label(drawn: &GraphBox) -> String {
    let present = states(&drawn.counts)
        .into_iter()
        .filter(|(_, jobs)| *jobs > 0);
    let present = present.map(|(word, jobs)| match drawn.jobs {
        1 => word.to_owned(),
        _ => format!("{} ({word})", count(jobs)),
    });
    let label: Vec<String> = std::iter::once(title(drawn)).chain(present).collect();
    plain(&label.join(", "))
}

/// Where a box leads: to its job, to the drawing with it open, or to the table.
fn target(view: &View, drawn: &GraphBox, place: &Place<'_>) -> Address {
    match &drawn.job {
        Some(job) => view.links.bare_job(job),
        None if drawn.can_open => {
            let mut open = place.open.to_vec();
            open.push(drawn.id.clone());
            place.with(&open, place.zoom.word())
        }
        None => place.table.clone(),
    }
}
