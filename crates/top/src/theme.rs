//! Colours and shapes: the 16 colours of the terminal itself, or bold and reverse alone; shapes in Unicode or ASCII.

use ganger_client::JobState;
use ratatui::style::{Color, Modifier, Style};

/// How the screen looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Whether colours are used.
    pub has_color: bool,
    /// Whether only ASCII is used.
    pub is_ascii: bool,
}

/// Steps of a sparkline.
const BLOCKS: [char; 8] = [
    '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}',
];
const MARKS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

impl Theme {
    /// Returns the shape of a state.
    pub fn shape(self, state: JobState) -> char {
        let (plain, drawn) = match state {
            JobState::Ready => ('o', '\u{25cb}'),
            JobState::Running => ('>', '\u{25b6}'),
            JobState::Succeeded => ('+', '\u{2713}'),
            JobState::Failed => ('x', '\u{2715}'),
            JobState::Blocked => ('#', '\u{25c7}'),
            JobState::Scheduled => ('~', '\u{25d4}'),
            JobState::Cancelled => ('-', '\u{2298}'),
        };
        if self.is_ascii { plain } else { drawn }
    }

    /// Returns the style of a state.
    pub fn state(self, state: JobState) -> Style {
        let color = match state {
            JobState::Ready => Color::Blue,
            JobState::Running => Color::Yellow,
            JobState::Succeeded => Color::Green,
            JobState::Failed => Color::Red,
            JobState::Blocked => Color::Magenta,
            JobState::Scheduled => Color::Cyan,
            JobState::Cancelled => Color::Reset,
        };
        self.colored(color, state == JobState::Failed)
    }

    /// Returns the style of something that is wrong.
    pub fn bad(self) -> Style {
        self.colored(Color::Red, true)
    }

    /// Returns the style of something to look at.
    pub fn warn(self) -> Style {
        self.colored(Color::Yellow, true)
    }

    /// Returns the style of headings.
    pub fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of the row under the cursor.
    pub fn cursor(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Returns a sparkline of values, scaled to the largest.
    pub fn sparkline(self, values: &[u64]) -> String {
        let most = values.iter().copied().max().unwrap_or_default().max(1);
        let steps = if self.is_ascii { MARKS } else { BLOCKS };
        let step = |value: &u64| {
            let place = usize::try_from(value.saturating_mul(7).div_ceil(most)).unwrap_or(7);
            steps.get(place).copied().unwrap_or(' ')
        };
        values.iter().map(step).collect()
    }

    /// Returns what stands for left-out text.
    pub fn ellipsis(self) -> &'static str {
        if self.is_ascii { "..." } else { "\u{2026}" }
    }

    fn colored(self, color: Color, is_bold_without: bool) -> Style {
        if self.has_color {
            Style::new().fg(color)
        } else if is_bold_without {
            Style::new().add_modifier(Modifier::BOLD)
        } else {
            Style::new()
        }
    }
}
