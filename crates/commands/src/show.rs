//! Output for people.

pub(crate) mod json;
pub(crate) mod table;
pub(crate) mod time;

use comfy_table::{Cell, Color};
use ganger_client::JobState;
pub(crate) use ganger_document::escape;

/// Colours of the terminal, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    is_on: bool,
}

impl Palette {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.is_on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Returns a state in its colour as a table cell, whose width ignores the colour codes.
    pub(crate) fn cell(self, state: JobState) -> Cell {
        let cell = Cell::new(state.as_str());
        if !self.is_on {
            return cell;
        }
        cell.fg(match state {
            JobState::Blocked | JobState::Scheduled => Color::DarkYellow,
            JobState::Ready => Color::DarkCyan,
            JobState::Running => Color::DarkBlue,
            JobState::Succeeded => Color::DarkGreen,
            JobState::Failed => Color::DarkRed,
            JobState::Cancelled => Color::DarkMagenta,
        })
    }

    /// Returns a state in its colour.
    pub(crate) fn state(self, state: JobState) -> String {
        let code = match state {
            JobState::Blocked | JobState::Scheduled => "33",
            JobState::Ready => "36",
            JobState::Running => "34",
            JobState::Succeeded => "32",
            JobState::Failed => "31",
            JobState::Cancelled => "35",
        };
        self.paint(code, state.as_str())
    }
}

/// Returns a count with its noun: `1 job`, `2 jobs`.
pub(crate) fn counted(count: u64, word: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {word}{ending}")
}

/// Formats bytes as `12 B`, `1.5 KiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, scale) in UNITS {
        if count >= scale {
            let tenths = count / (scale / 10);
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{count} B")
}
