//! The levels of a graph as a table: what a screen reader gets first, at any size.

use ganger_router::GraphState;
use ganger_types::{Graph, JobState};
use maud::{Markup, html};

use crate::format::counted;
use crate::view::View;
use crate::widgets::{columns, kind_link, table};

/// Rows of a page.
const ROWS: usize = 200;
const STATES: [JobState; 7] = [
    JobState::Ready,
    JobState::Running,
    JobState::Scheduled,
    JobState::Blocked,
    JobState::Succeeded,
    JobState::Failed,
    JobState::Cancelled,
];

pub(super) fn show(view: &View, graph: &Graph, state: &GraphState, after: usize) -> Markup {
    let rows = state.level_rows();
    let head = columns(&[
        "Level",
        "Kind",
        "#Jobs",
        "#Ready",
        "#Running",
        "#Scheduled",
        "#Blocked",
        "#Succeeded",
        "#Failed",
        "#Cancelled",
    ]);
    let body = html! {
        @for row in rows.iter().skip(after).take(ROWS) {
            tr data-row {
                th scope="row" { (row.level) }
                td { (kind_link(view, &state.shape.kinds()[row.kind])) }
                td.number { (counted(row.counts.total())) }
                @for state in STATES { td.number { (counted(row.counts.of(state))) } }
            }
        }
    };
    let address = super::address(view, graph.as_bytes()).with("view", "levels");
    html! {
        (table("Levels", &head, &body))
        nav.pages aria-label="Pages" {
            @if after > 0 { a href=(address) { "First levels" } }
            @if rows.len() > after + ROWS {
                a rel="next" href=(address.clone().with("after", &(after + ROWS).to_string())) { "Next levels" }
            }
        }
    }
}
