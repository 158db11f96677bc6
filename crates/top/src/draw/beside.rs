//! The large screen: queues on the left; what needs attention, failures and workers on the right.

use ganger_client::Gravity;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::table::clean;
use super::{lists, queues};
use crate::state::State;
use crate::text::cut_end;

/// Columns of the right part.
const RIGHT: u16 = 56;

pub(super) fn draw(state: &State, area: Rect, out: &mut Buffer) {
    let left = Rect {
        width: area.width - RIGHT - 1,
        ..area
    };
    queues::draw(state, left, out);
    let third = area.height / 3;
    let part = |number: u16, height: u16| Rect {
        x: left.right() + 1,
        y: area.y + third * number,
        width: RIGHT,
        height,
    };
    attention(state, part(0, third), out);
    titled(state, "Failures", part(1, third), out, lists::failures);
    let rest = area.height - third * 2;
    titled(state, "Workers", part(2, rest), out, lists::workers);
}

type Draw = fn(&State, Rect, &mut Buffer);

fn titled(state: &State, title: &str, area: Rect, out: &mut Buffer, draw: Draw) {
    out.set_stringn(
        area.x + 1,
        area.y,
        title,
        usize::from(area.width),
        state.theme.head(),
    );
    // The cursor and the filter are those of the queues.
    let mut without = state.clone();
    without.has_cursor = false;
    without.filter.clear();
    without.typing = None;
    let below = Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(2),
        ..area
    };
    draw(&without, below, out);
}

fn attention(state: &State, area: Rect, out: &mut Buffer) {
    let most = usize::from(area.width.saturating_sub(2));
    out.set_stringn(
        area.x + 1,
        area.y,
        "Needs attention",
        most,
        state.theme.head(),
    );
    let items = &state.data.attention;
    if items.is_empty() {
        out.set_stringn(
            area.x + 1,
            area.y + 1,
            "Nothing needs attention.",
            most,
            Style::new(),
        );
    }
    let room = usize::from(area.height.saturating_sub(2));
    for (place, item) in items.iter().take(room).enumerate() {
        let (mark, style) = match item.gravity {
            Gravity::Error => ("x", state.theme.bad()),
            Gravity::Warning => ("!", state.theme.warn()),
        };
        let text = format!("{mark} {}", clean(&item.text));
        let text = cut_end(&text, most, state.theme.ellipsis());
        let y = area.y + 1 + u16::try_from(place).unwrap_or(u16::MAX);
        out.set_stringn(area.x + 1, y, text, most, style);
    }
}
