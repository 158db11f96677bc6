//! One frame as plain text, and the data behind it as a document: for scripts and bug reports.

use std::time::SystemTime;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::data::{Snapshot, Update};
use crate::draw;
use crate::feed::{Feed, Source, Want};
use crate::run::Settings;
use crate::state::State;

/// Columns and least number of lines of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of columns of the frame.
    pub columns: u16,
    /// Least number of lines: a longer list gets as many as it needs, up to 1,000.
    pub lines: u16,
}

/// Lines of a frame around its list.
const AROUND: usize = 6;
const LINES_MAX: usize = 1_000;

/// Asks the server once and returns the data of a screen.
///
/// # Errors
/// If the server cannot be reached, or refuses.
pub async fn document(
    source: Source,
    settings: &Settings,
) -> Result<Snapshot, ganger_client::Error> {
    ask(source, settings, false).await
}

/// Asks the server once and returns a frame without escape sequences, its last line without keys.
///
/// # Errors
/// If the server cannot be reached, or refuses.
pub async fn frame(
    source: Source,
    settings: &Settings,
    size: Size,
) -> Result<String, ganger_client::Error> {
    let is_beside = draw::is_beside((size.columns, size.lines));
    let data = ask(source, settings, is_beside).await?;
    let mut state = State::new(settings.theme, settings.screen.clone());
    state.is_read_only = true;
    state.update(Update::Data(Box::new(data)));
    state.now = SystemTime::now();
    state.clock = draw::clock(state.now);
    Ok(plain(&state, size))
}

async fn ask(
    source: Source,
    settings: &Settings,
    is_wide: bool,
) -> Result<Snapshot, ganger_client::Error> {
    let want = Want {
        screen: settings.screen.clone(),
        is_wide,
        ..Want::default()
    };
    Feed::new(source).ask(&want).await
}

/// The frame of a state as lines of text.
pub(crate) fn plain(state: &State, size: Size) -> String {
    let lines = usize::from(size.lines)
        .max(state.rows().len() + AROUND)
        .min(LINES_MAX);
    let lines = u16::try_from(lines).unwrap_or(size.lines);
    let area = Rect::new(0, 0, size.columns, lines);
    let mut buffer = Buffer::empty(area);
    draw::draw_into(state, area, &mut buffer);
    let mut text: Vec<String> = Vec::new();
    // The last line has keys, which are of no use here.
    for y in 0..lines.saturating_sub(1) {
        let mut line = String::new();
        let mut skip = 0;
        for x in 0..size.columns {
            let symbol = buffer[(x, y)].symbol();
            if skip == 0 {
                line.push_str(symbol);
            }
            skip = crate::text::width(symbol).max(skip).saturating_sub(1);
        }
        text.push(line.trim_end().to_owned());
    }
    while text.last().is_some_and(String::is_empty) {
        text.pop();
    }
    text.join("\n")
}
