//! One job: its facts, why it does not run, its attempts, and the end of its log.

use ganger_document::measure::span;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::lists::{attempt, clock, state_cell};
use super::table::{Cell, clean};
use crate::data::{JobDetail, since};
use crate::state::State;
use crate::text::{brief, cut_end};

/// A line of the screen.
struct Line(String, Style);

pub(super) fn draw(state: &State, area: Rect, out: &mut Buffer) {
    let Some(detail) = &state.data.job else {
        out.set_stringn(
            area.x + 1,
            area.y,
            "Asking for the job ...",
            usize::from(area.width),
            Style::new(),
        );
        return;
    };
    let lines = lines(state, detail);
    let room = usize::from(area.height);
    let last = lines.len().saturating_sub(room);
    let first = if state.follows {
        last
    } else {
        state.scroll.min(last)
    };
    let most = usize::from(area.width.saturating_sub(2));
    for (place, Line(text, style)) in lines.iter().skip(first).take(room).enumerate() {
        let y = area.y + u16::try_from(place).unwrap_or(u16::MAX);
        let text = cut_end(text, most, state.theme.ellipsis());
        out.set_stringn(area.x + 1, y, text, most, *style);
    }
}

fn lines(state: &State, detail: &JobDetail) -> Vec<Line> {
    let (theme, job) = (state.theme, &detail.job);
    let mut lines = Vec::new();
    let mut say = |text: String, style: Style| lines.push(Line(clean(&text), style));
    let Cell(word, style) = state_cell(theme, job.state);
    say(word, style);
    let age = brief(since(job.created_at, state.now));
    say(
        format!(
            "kind {}  queue {}  attempt {}  created {age} ago",
            job.kind,
            job.queue,
            attempt(job)
        ),
        Style::new(),
    );
    if let Some(graph) = &job.graph {
        say(format!("graph {graph}"), Style::new());
    }
    if let Some(progress) = &job.progress {
        let percent = progress.millionths / 10_000;
        say(
            format!("progress {percent} %  {}", progress.message),
            Style::new(),
        );
    }
    if let Some(failure) = &job.failure {
        say(
            format!("failed with {}: {}", failure.group, failure.message),
            theme.bad(),
        );
    }
    say(String::new(), Style::new());
    let heading = if job.state.is_terminal() {
        "How it ended"
    } else {
        "Why it does not run"
    };
    let heading = if job.lease.is_some() {
        "It runs"
    } else {
        heading
    };
    say(heading.to_owned(), theme.head());
    for (number, reason) in detail.why.reasons.iter().enumerate() {
        say(format!("  {}. {}", number + 1, reason.text), Style::new());
    }
    say(String::new(), Style::new());
    say("Attempts".to_owned(), theme.head());
    let attempts = job.history.iter().filter(|entry| entry.what == "attempt");
    let mut has_attempts = false;
    for entry in attempts {
        has_attempts = true;
        let ran = entry
            .leased_at
            .map(|leased_at| span(since(leased_at, entry.at)));
        let began = entry.leased_at.map_or_else(String::new, clock);
        let text = format!(
            "  {}  {began}  ran {}  on {}  {}  {}",
            entry.attempt.unwrap_or_default(),
            ran.unwrap_or_default(),
            entry.worker.as_deref().unwrap_or("-"),
            entry.end.as_deref().unwrap_or_default(),
            entry.message.as_deref().unwrap_or_default(),
        );
        say(text, Style::new());
    }
    if let Some(lease) = &job.lease {
        has_attempts = true;
        let ran = brief(since(lease.granted_at, state.now));
        let text = format!(
            "  {}  {}  runs for {ran} on {}",
            lease.attempt,
            clock(lease.granted_at),
            lease.worker
        );
        say(text, theme.state(job.state));
    }
    if !has_attempts {
        say("  none yet".to_owned(), Style::new());
    }
    say(String::new(), Style::new());
    let more = if detail.has_more_log {
        " (reading on)"
    } else {
        ""
    };
    let follows = if state.follows { ", followed" } else { "" };
    say(
        format!("Log of the last attempt{follows}{more}"),
        theme.head(),
    );
    if detail.log.is_empty() {
        say("  nothing was written".to_owned(), Style::new());
    }
    for line in &detail.log {
        say(format!("  {line}"), Style::new());
    }
    lines
}
