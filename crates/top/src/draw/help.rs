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

/// The keys of the screen. Actions that the caller may not do are left out.
pub(super) fn keys(state: &State) -> String {
    let (operate, cancel) = (state.may_operate(), state.may_cancel());
    let mut keys: Vec<&str> = Vec::new();
    let mut action = |may: bool, words: &'static str| {
        if may {
            keys.push(words);
        }
    };
    match state.screen() {
        Screen::Queues => {
            action(true, "Enter open");
            action(true, "/ filter");
            action(true, "s sort");
            action(operate, "p pause queue");
            action(true, "2 jobs");
            action(true, "3 failures");
            action(true, "4 workers");
        }
        Screen::Jobs(_) => {
            action(true, "Enter open");
            action(true, "/ filter");
            action(operate, "r retry");
            action(cancel, "c cancel");
            action(operate, "D delete");
            action(true, "Esc back");
        }
        Screen::Job(_) => {
            action(true, "f follow");
            action(operate, "r retry");
            action(cancel, "c cancel");
            action(operate, "D delete");
            action(true, "y keep id");
            action(true, "Esc back");
        }
        Screen::Failures => {
            action(true, "Enter jobs");
            action(true, "/ filter");
            action(true, "s sort");
            action(operate, "r retry all");
            action(true, "1 queues");
        }
        Screen::Graphs => {
            action(true, "Enter jobs");
            action(true, "/ filter");
            action(true, "s sort");
            action(cancel, "c cancel");
            action(true, "1 queues");
        }
        Screen::Workers => {
            action(true, "Enter jobs");
            action(true, "/ filter");
            action(true, "s sort");
            action(true, "1 queues");
        }
        Screen::Events | Screen::Shards => action(true, "1 queues"),
    }
    keys.push("? help");
    keys.push("q quit");
    keys.join("  ")
}
