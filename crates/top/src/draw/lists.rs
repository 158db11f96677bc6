//! Lists: jobs, failures, workers, graphs, events, shards.

use std::time::SystemTime;

use ganger_client::{Event, GraphItem, Happening, Job, JobState};
use ganger_document::measure::{count, span};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::table::{Cell, Column, Table};
use crate::data::{EventRow, Shard, WorkerRow, since};
use crate::state::State;
use crate::text::brief_whole;
use crate::theme::Theme;

/// Columns of the screen that the bar of a graph takes.
const BAR: u64 = 20;

pub(super) fn jobs(state: &State, area: Rect, out: &mut Buffer) {
    let rows = state.jobs();
    let columns = [
        Column::text("Job", 18).growing(),
        Column::text("State", 11),
        Column::text("Kind", 10),
        Column::text("Queue", 10).falling(2),
        Column::number("Attempt", 7),
        Column::number("Age", 6),
        Column::text("Message", 24).falling(1),
    ];
    let empty = match (state.data.jobs.is_empty(), state.data.has_more_jobs) {
        (true, _) => "No job matches.",
        (false, true) => "None of the newest 200 jobs matches the filter. Esc clears it.",
        (false, false) => "No job matches the filter. Esc clears it.",
    };
    let table = Table {
        theme: state.theme,
        columns: &columns,
        cursor: state.mark(rows.len()),
        rows: rows.into_iter().map(|job| job_cells(state, job)).collect(),
        empty,
    };
    table.draw(area, out);
}

/// The shape and the word of a state.
pub(super) fn state_cell(theme: Theme, state: JobState) -> Cell {
    Cell(
        format!("{} {}", theme.shape(state), capital(state.as_str())),
        theme.state(state),
    )
}

/// A word with a capital letter.
fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn job_cells(state: &State, job: &Job) -> Vec<Cell> {
    let message = job.failure.as_ref().map(|failure| failure.message.as_str());
    let progress = job
        .progress
        .as_ref()
        .map(|progress| progress.message.as_str());
    vec![
        job.r#ref.as_str().into(),
        state_cell(state.theme, job.state),
        job.kind.as_str().into(),
        job.queue.as_str().into(),
        attempt(job).into(),
        brief_whole(since(job.created_at, state.now)).into(),
        message
            .or(progress)
            .unwrap_or_default()
            .lines()
            .next()
            .unwrap_or_default()
            .into(),
    ]
}

/// `1 of 4`: the number of the last attempt, of those that the retries allow.
pub(super) fn attempt(job: &Job) -> String {
    let allowed = u64::from(job.retry.retries_max) + 1;
    format!("{} of {allowed}", job.attempt)
}

pub(super) fn failures(state: &State, area: Rect, out: &mut Buffer) {
    let rows = state.failures();
    let columns = [
        Column::text("Group", 20).growing(),
        Column::number("Jobs", 9),
    ];
    let table = Table {
        theme: state.theme,
        columns: &columns,
        cursor: state.mark(rows.len()),
        rows: rows
            .into_iter()
            .map(|row| {
                vec![
                    Cell(row.group.clone(), state.theme.bad()),
                    count(row.jobs).into(),
                ]
            })
            .collect(),
        empty: "No failed jobs are kept.",
    };
    table.draw(area, out);
}

pub(super) fn workers(state: &State, area: Rect, out: &mut Buffer) {
    let rows = state.workers();
    let columns = [
        Column::text("Worker", 16).growing(),
        Column::text("State", 6),
        Column::number("Holds", 5),
        Column::number("Longest", 7),
        Column::number("Last sign", 9),
        Column::text("Runs", 22).falling(1),
    ];
    let table = Table {
        theme: state.theme,
        columns: &columns,
        cursor: state.mark(rows.len()),
        rows: rows
            .into_iter()
            .map(|row| worker_cells(state, row))
            .collect(),
        empty: "No worker has asked for jobs yet.",
    };
    table.draw(area, out);
}

fn worker_cells(state: &State, row: &WorkerRow) -> Vec<Cell> {
    let worker = &row.worker;
    let oldest = worker.holds.iter().min_by_key(|held| held.leased_at);
    let longest = oldest.map(|held| brief_whole(since(held.leased_at, state.now)));
    let runs = oldest.map_or_else(String::new, |held| format!("{} {}", held.kind, held.job));
    let word = if worker.holds.is_empty() {
        "Idle"
    } else {
        "Busy"
    };
    vec![
        worker.worker.as_str().into(),
        word.into(),
        worker.holds.len().to_string().into(),
        longest.unwrap_or_else(|| "-".to_owned()).into(),
        brief_whole(since(worker.seen_at, state.now)).into(),
        runs.into(),
    ]
}

pub(super) fn graphs(state: &State, area: Rect, out: &mut Buffer) {
    let rows = state.graphs();
    let columns = [
        Column::text("Graph", 14).growing(),
        Column::text("Progress", 20),
        Column::number("Done", 14),
        Column::number("Running", 7),
        Column::number("Failed", 6),
    ];
    let empty = match (state.data.graphs.is_empty(), state.data.has_more_graphs) {
        (true, _) => "No graphs are kept.",
        (false, true) => "None of the newest 200 graphs matches the filter. Esc clears it.",
        (false, false) => "No graph matches the filter. Esc clears it.",
    };
    let table = Table {
        theme: state.theme,
        columns: &columns,
        cursor: state.mark(rows.len()),
        rows: rows
            .into_iter()
            .map(|row| graph_cells(state.theme, row))
            .collect(),
        empty,
    };
    table.draw(area, out);
}

fn graph_cells(theme: Theme, row: &GraphItem) -> Vec<Cell> {
    let Some(counts) = &row.counts else {
        // It has too many jobs to count them for a list.
        let jobs = format!("- of {}", count(row.jobs));
        let unknown = || Cell::from("-");
        return vec![
            row.graph.as_str().into(),
            unknown(),
            jobs.into(),
            unknown(),
            unknown(),
        ];
    };
    let ended = counts.ended();
    let filled = usize::try_from(ended * BAR / row.jobs.max(1)).unwrap_or(0);
    let (full, rest) = if theme.is_ascii {
        ("#", ".")
    } else {
        ("\u{2588}", "\u{2591}")
    };
    let left = usize::try_from(BAR).unwrap_or(0).saturating_sub(filled);
    let failed = counts.failed;
    let style = if failed > 0 {
        theme.bad()
    } else {
        Style::new()
    };
    vec![
        row.graph.as_str().into(),
        format!("{}{}", full.repeat(filled), rest.repeat(left)).into(),
        format!("{} of {}", count(ended), count(row.jobs)).into(),
        count(counts.running).into(),
        Cell(count(failed), style),
    ]
}

pub(super) fn events(state: &State, area: Rect, out: &mut Buffer) {
    let columns = [
        Column::text("Time", 8),
        Column::text("Event", 12),
        Column::text("Job", 16).growing(),
        Column::text("Queue", 10),
        Column::text("Change", 22),
        Column::text("Worker", 10).falling(2),
        Column::text("Reason", 14).falling(1),
    ];
    let mut rows: Vec<Vec<Cell>> = state
        .data
        .events
        .iter()
        .map(|row| event_cells(state, row))
        .collect();
    // The newest is at the top, where the eye is.
    rows.reverse();
    let rows: Vec<_> = rows.into_iter().skip(state.scroll).collect();
    let table = Table {
        theme: state.theme,
        columns: &columns,
        cursor: None,
        rows,
        empty: "Nothing has happened since this screen was opened.",
    };
    table.draw(area, out);
}

fn event_cells(state: &State, row: &EventRow) -> Vec<Cell> {
    let event = match row {
        EventRow::One(event) => event,
        EventRow::More { at, count: more } => {
            let words = format!("{} more in this second", count(*more));
            return vec![clock(*at).into(), Cell::default(), words.into()];
        }
    };
    let mut cells: Vec<Cell> = vec![clock(event.at).into()];
    cells.extend(happening(state.theme, event));
    cells
}

fn happening(theme: Theme, event: &Event) -> Vec<Cell> {
    let words = |event: &str, job: &str, queue: &str, change: &str| {
        vec![event.into(), job.into(), queue.into(), Cell::from(change)]
    };
    match &event.happening {
        Happening::JobMoved(moved) => {
            let from = moved.from.map_or("new", JobState::as_str);
            let change = format!(
                "{from} {} {}",
                if theme.is_ascii { "->" } else { "\u{2192}" },
                moved.to.as_str()
            );
            let mut cells = words("job moved", &moved.job, &moved.queue, "");
            cells[3] = Cell(change, theme.state(moved.to));
            cells.push(moved.worker.clone().unwrap_or_default().into());
            cells.push(moved.reason.as_str().into());
            cells
        }
        Happening::JobProgressed { job, progress, .. } => {
            let percent = progress.millionths / 10_000;
            words(
                "progress",
                job,
                "",
                &format!("{percent} % {}", progress.message),
            )
        }
        Happening::LogAppended { number, bytes, .. } => words(
            "log",
            &format!("number {number}"),
            "",
            &format!("{} bytes", count(*bytes)),
        ),
        Happening::JobRemoved { job, queue, .. } => words("job removed", job, queue, ""),
        Happening::QueueChanged { queue, paused } => words(
            "queue",
            "",
            queue,
            if *paused { "paused" } else { "changed" },
        ),
        Happening::ScheduleChanged { schedule } => words("schedule", "", "", schedule),
        Happening::WorkerSeen { worker } => words("worker seen", "", "", worker),
        Happening::WorkerGone { worker } => words("worker gone", "", "", worker),
    }
}

/// The time of day in the person's zone.
pub(crate) fn clock(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(
        |_| String::new(),
        |at| {
            at.to_zoned(jiff::tz::TimeZone::system())
                .strftime("%H:%M:%S")
                .to_string()
        },
    )
}

pub(super) fn shards(state: &State, area: Rect, out: &mut Buffer) {
    let columns = [
        Column::text("Shard", 12).growing(),
        Column::text("State", 12),
        Column::number("Live jobs", 12),
        Column::number("Up", 12),
        Column::text("Version", 10),
    ];
    let rows = state
        .data
        .shards
        .iter()
        .map(|shard| shard_cells(state.theme, shard));
    let table = Table {
        theme: state.theme,
        columns: &columns,
        cursor: None,
        rows: rows.collect(),
        empty: "No shard answers.",
    };
    let height = u16::try_from(state.data.shards.len() + 2)
        .unwrap_or(area.height)
        .min(area.height);
    table.draw(Rect { height, ..area }, out);
    let rest = Rect {
        y: area.y + height,
        height: area.height - height,
        ..area
    };
    if rest.height > 1 {
        outbox(state, rest, out);
    }
}

fn shard_cells(theme: Theme, shard: &Shard) -> Vec<Cell> {
    let style = if shard.health == "ready" {
        Style::new()
    } else {
        theme.bad()
    };
    let info = shard.info.as_ref();
    vec![
        shard.shard.as_str().into(),
        Cell(capital(&shard.health), style),
        shard.live_jobs.map_or_else(|| "-".to_owned(), count).into(),
        info.map_or_else(String::new, |info| {
            span(std::time::Duration::from_secs(info.uptime.as_secs()))
        })
        .into(),
        info.map_or("", |info| info.version.as_str()).into(),
    ]
}

fn outbox(state: &State, area: Rect, out: &mut Buffer) {
    let columns = [
        Column::text("Outbox of", 10),
        Column::text("To", 10),
        Column::number("Waiting", 8),
        Column::number("Oldest", 7),
        Column::number("Tries", 6),
        Column::text("State", 8),
        Column::text("Last error", 12).growing(),
    ];
    let rows = state.data.shards.iter().flat_map(|shard| {
        shard.peers.iter().map(|peer| {
            let is_stopped = peer.stopped.is_some() || peer.stopped_there.is_some();
            let (word, style) = if is_stopped {
                ("Stopped", state.theme.bad())
            } else if peer.waiting > 0 {
                ("Waits", Style::new())
            } else {
                ("Flows", Style::new())
            };
            let oldest = peer.oldest_at.map(|at| brief_whole(since(at, state.now)));
            vec![
                shard.shard.as_str().into(),
                peer.shard.as_str().into(),
                count(peer.waiting).into(),
                oldest.unwrap_or_else(|| "-".to_owned()).into(),
                peer.tries_failed.to_string().into(),
                Cell(word.to_owned(), style),
                peer.last_error.as_deref().unwrap_or_default().into(),
            ]
        })
    });
    let table = Table {
        theme: state.theme,
        columns: &columns,
        cursor: None,
        rows: rows.collect(),
        empty: "No messages with other shards, or no right to see them.",
    };
    table.draw(area, out);
}
