//! The queues.

use ganger_document::measure::count;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::table::{Cell, Column, Table};
use crate::data::QueueRow;
use crate::state::State;
use crate::text::{brief, brief_whole, per_second};
use crate::theme::Theme;

/// The columns. They fall away in this order: sparkline, p95, blocked, scheduled, and at last the rate.
const COLUMNS: [Column; 11] = [
    Column::text("Queue", 10).growing(),
    Column::text("State", 9),
    Column::number("Ready", 6),
    Column::number("Running", 7),
    Column::number("Sched", 5).falling(2),
    Column::number("Block", 5).falling(3),
    Column::number("Failed", 6),
    Column::number("Oldest", 6),
    Column::number("Done/s", 6).falling(1),
    Column::number("p95 run", 7).falling(4),
    Column::text("Last 10 min", 11).falling(5),
];

/// Columns of the screen from which sparkline and p95 are shown without being asked for.
const WIDE: u16 = 120;

pub(super) fn draw(state: &State, area: Rect, out: &mut Buffer) {
    let rows = state.queues();
    let is_of_many = state.data.shards.len() > 1;
    let columns = if area.width >= WIDE || state.is_wide {
        &COLUMNS[..]
    } else {
        &COLUMNS[..9]
    };
    let empty = if state.data.queues.is_empty() {
        "No queues yet. A queue begins with its first job."
    } else {
        "No queue matches the filter. Esc clears it."
    };
    let table = Table {
        theme: state.theme,
        columns,
        cursor: state.mark(rows.len()),
        rows: rows
            .into_iter()
            .map(|row| cells(state.theme, row, is_of_many))
            .collect(),
        empty,
    };
    table.draw(area, out);
}

fn cells(theme: Theme, row: &QueueRow, is_of_many: bool) -> Vec<Cell> {
    let counts = &row.view.counts;
    let name = if is_of_many {
        format!("{}/{}", row.shard, row.view.queue)
    } else {
        row.view.queue.clone()
    };
    let running = match row.view.settings.running_max {
        Some(limit) => format!("{} of {limit}", counts.running),
        None => count(counts.running),
    };
    let failed = if counts.failed > 0 {
        theme.bad()
    } else {
        Style::new()
    };
    let oldest = row.view.oldest_ready_for;
    let rates = row.rates.as_ref();
    let done = rates.map(|rates| rates.succeeded_per_minute + rates.failed_per_minute);
    let p95 = rates.and_then(|rates| rates.run_p95_seconds);
    let p95 = p95.and_then(|seconds| std::time::Duration::try_from_secs_f64(seconds).ok());
    vec![
        Cell::from(name),
        state_of(theme, row),
        count(counts.ready).into(),
        running.into(),
        count(counts.scheduled).into(),
        count(counts.blocked).into(),
        Cell(count(counts.failed), failed),
        oldest.map_or_else(|| "-".to_owned(), brief_whole).into(),
        done.map_or_else(|| "-".to_owned(), per_second).into(),
        p95.map_or_else(|| "-".to_owned(), brief).into(),
        rates
            .map_or_else(String::new, |rates| theme.sparkline(&rates.ended_by_minute))
            .into(),
    ]
}

/// The word for what a queue is in, as on the dashboard.
fn state_of(theme: Theme, row: &QueueRow) -> Cell {
    let (counts, settings) = (&row.view.counts, &row.view.settings);
    let limit = settings.running_max.map(u64::from);
    let (word, style) = if settings.paused {
        ("Paused", theme.warn())
    } else if row.has_no_worker {
        ("No worker", theme.bad())
    } else if limit.is_some_and(|limit| counts.running >= limit) {
        ("At limit", theme.warn())
    } else if counts.ready + counts.running > 0 {
        ("Active", Style::new())
    } else {
        ("Idle", Style::new())
    };
    Cell(word.to_owned(), style)
}
