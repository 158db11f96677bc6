//! The keys: all of them on the help, and those of the screen on the last line.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::screen::Screen;
use crate::state::State;

const KEYS: [(&str, &str); 19] = [
    (
        "1 2 3 4 5 6 7",
        "queues, jobs, failures, workers, graphs, events, shards",
    ),
    ("arrows, j k", "move; also PgUp, PgDn, Home, End"),
    ("Enter", "open the row"),
    ("Esc", "back"),
    ("/", "filter by a part of the name"),
    ("s, S", "sort by the next column, turn the order"),
    ("Space", "freeze the screen"),
    ("+ -", "ask the server more often, less often (0.5 to 30 s)"),
    ("w", "all columns, even where they are narrow"),
    ("f", "follow the log of the job"),
    ("y", "print the id on leaving"),
    ("r", "retry the job, or all jobs of the failure group"),
    ("c", "cancel the job, or the graph"),
    ("D", "delete the job"),
    ("p", "pause or resume the queue"),
    ("?", "this help"),
    ("q, Ctrl-C", "leave"),
    ("", ""),
    (
        "",
        "Whatever changes something asks first, on the last line.",
    ),
];

pub(super) fn draw(state: &State, area: Rect, out: &mut Buffer) {
    let most = usize::from(area.width.saturating_sub(2));
    for (place, (keys, words)) in KEYS.iter().take(usize::from(area.height)).enumerate() {
        let y = area.y + u16::try_from(place).unwrap_or(u16::MAX);
        out.set_stringn(area.x + 1, y, keys, most, state.theme.head());
        out.set_stringn(area.x + 16, y, words, most.saturating_sub(15), Style::new());
    }
}

/// The keys of the screen. Deeds that the caller may not do are left out.
pub(super) fn keys(state: &State) -> String {
    let (operate, cancel) = (state.may_operate(), state.may_cancel());
    let mut keys: Vec<&str> = Vec::new();
    let mut deed = |may: bool, words: &'static str| {
        if may {
            keys.push(words);
        }
    };
    match state.screen() {
        Screen::Queues => {
            deed(true, "Enter open");
            deed(true, "/ filter");
            deed(true, "s sort");
            deed(operate, "p pause queue");
            deed(true, "2 jobs");
            deed(true, "3 failures");
            deed(true, "4 workers");
        }
        Screen::Jobs(_) => {
            deed(true, "Enter open");
            deed(true, "/ filter");
            deed(operate, "r retry");
            deed(cancel, "c cancel");
            deed(operate, "D delete");
            deed(true, "Esc back");
        }
        Screen::Job(_) => {
            deed(true, "f follow");
            deed(operate, "r retry");
            deed(cancel, "c cancel");
            deed(operate, "D delete");
            deed(true, "y keep id");
            deed(true, "Esc back");
        }
        Screen::Failures => {
            deed(true, "Enter jobs");
            deed(true, "/ filter");
            deed(true, "s sort");
            deed(operate, "r retry all");
            deed(true, "1 queues");
        }
        Screen::Graphs => {
            deed(true, "Enter jobs");
            deed(true, "/ filter");
            deed(true, "s sort");
            deed(cancel, "c cancel");
            deed(true, "1 queues");
        }
        Screen::Workers => {
            deed(true, "Enter jobs");
            deed(true, "/ filter");
            deed(true, "s sort");
            deed(true, "1 queues");
        }
        Screen::Events | Screen::Shards => deed(true, "1 queues"),
    }
    keys.push("? help");
    keys.push("q quit");
    keys.join("  ")
}
