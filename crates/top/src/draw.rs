//! Draws a frame: a pure function of the state.

mod beside;
mod help;
mod job;
mod lists;
mod queues;
mod table;

use std::time::Duration;

use ganger_client::Gravity;
use ganger_document::measure::span;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::screen::Screen;
use crate::state::State;
use crate::text::{brief_whole, cut_end, per_second, width};

/// Smallest size that can be drawn.
pub const SIZE_MIN: (u16, u16) = (60, 15);
/// Size from which failures and workers stand beside the queues.
pub const SIZE_BESIDE: (u16, u16) = (160, 40);
/// Lines above the list: server, attention, breadcrumb.
const ABOVE: u16 = 3;

/// Whether failures, workers and what needs attention stand beside the queues.
pub fn is_beside((columns, lines): (u16, u16)) -> bool {
    columns >= SIZE_BESIDE.0 && lines >= SIZE_BESIDE.1
}

pub(crate) use lists::clock;

/// Draws the state into a frame.
pub fn draw(state: &State, frame: &mut Frame<'_>) {
    let area = frame.area();
    draw_into(state, area, frame.buffer_mut());
}

/// Draws the state into a part of a buffer.
pub fn draw_into(state: &State, area: Rect, out: &mut Buffer) {
    let mut page = Page { state, out, area };
    if area.width < SIZE_MIN.0 || area.height < SIZE_MIN.1 {
        let text = format!("Too small: {} by {} at least", SIZE_MIN.0, SIZE_MIN.1);
        page.line(0, &text, Style::new());
        return;
    }
    page.header();
    page.attention();
    page.breadcrumb();
    let body = Rect {
        y: area.y + ABOVE,
        height: area.height - ABOVE - 2,
        ..area
    };
    if state.shows_help {
        help::draw(state, body, page.out);
    } else if !state.has_data {
        let text = match &state.error {
            Some(error) => format!("No answer yet: {error}"),
            None => "Asking the server ...".to_owned(),
        };
        page.line(ABOVE + 1, &text, Style::new());
    } else {
        page.body(body);
    }
    page.last_line();
}

/// A frame while it is drawn.
struct Page<'a> {
    state: &'a State,
    out: &'a mut Buffer,
    area: Rect,
}

impl Page<'_> {
    /// Writes a line, with a column free on its left; what does not fit is cut.
    fn line(&mut self, number: u16, text: &str, style: Style) {
        let most = usize::from(self.area.width.saturating_sub(2));
        let text = cut_end(text, most, self.state.theme.ellipsis());
        self.put(self.area.x + 1, number, &text, style);
    }

    fn put(&mut self, x: u16, number: u16, text: &str, style: Style) {
        let y = self.area.y + number;
        if y < self.area.bottom() && x < self.area.right() {
            let most = usize::from(self.area.right() - x);
            self.out.set_stringn(x, y, text, most, style);
        }
    }

    /// Writes text that ends at the right edge, over what is there.
    fn right(&mut self, number: u16, text: &str, style: Style) {
        let wide = u16::try_from(width(text)).unwrap_or(u16::MAX);
        let x = self
            .area
            .right()
            .saturating_sub(wide.saturating_add(1))
            .max(self.area.x);
        self.put(x, number, text, style);
    }

    /// The server, and how fast jobs come and go.
    fn header(&mut self) {
        let state = self.state;
        let data = &state.data;
        let first = data.shards.iter().find_map(|shard| shard.info.as_ref());
        let version = first.map_or("", |info| info.version.as_str());
        let shards = match data.shards.as_slice() {
            [] => String::new(),
            [one] => format!("shard {} {}", one.shard, one.health),
            several => {
                let ready = several
                    .iter()
                    .filter(|shard| shard.health == "ready")
                    .count();
                format!("{ready} of {} shards ready", several.len())
            }
        };
        let up = first.map_or_else(String::new, |info| {
            let whole = Duration::from_secs(info.uptime.as_secs());
            format!("up {}", span(whole))
        });
        let mut left = format!("ganger {version}  {}  {shards}  {up}", data.namespace);
        let total = &data.total;
        let gap = if self.area.width < 100 { " " } else { "  " };
        let rates = format!(
            "{}/s in{gap}{}/s done{gap}{}/s failed",
            per_second(total.enqueued_per_minute),
            per_second(total.succeeded_per_minute),
            per_second(total.failed_per_minute)
        );
        let silence = state
            .silence()
            .map(|silent| format!("no answer for {}", brief_whole(silent)));
        let is_silent = silence.is_some();
        let middle = silence.unwrap_or(rates);
        let frozen = if state.is_frozen { "frozen  " } else { "" };
        let right = format!("{frozen}{middle}{gap}{}", state.clock);
        let room = usize::from(self.area.width).saturating_sub(width(&right) + 3);
        if width(&left) > room {
            left = format!("ganger {version}  {}  {shards}", data.namespace);
        }
        let left = cut_end(&left, room, state.theme.ellipsis());
        self.line(0, &left, state.theme.head());
        let style = if is_silent {
            state.theme.bad()
        } else {
            Style::new()
        };
        self.right(0, &right, style);
    }

    /// The worst of what needs attention.
    fn attention(&mut self) {
        let items = &self.state.data.attention;
        let Some(worst) = items.first() else {
            let text = if self.state.has_data {
                "Nothing needs attention."
            } else {
                ""
            };
            return self.line(1, text, Style::new());
        };
        let more = match items.len() {
            1 => String::new(),
            several => format!("  (+{} more)", several - 1),
        };
        let style = match worst.gravity {
            Gravity::Error => self.state.theme.bad(),
            Gravity::Warning => self.state.theme.warn(),
        };
        let room = usize::from(self.area.width).saturating_sub(4 + width(&more));
        let text = cut_end(
            &table::clean(&worst.text),
            room,
            self.state.theme.ellipsis(),
        );
        self.line(1, &format!("! {text}{more}"), style);
    }

    /// Where the person is, the order and the filter.
    fn breadcrumb(&mut self) {
        let state = self.state;
        let trail: Vec<String> = state.screens.iter().map(Screen::title).collect();
        let trail = table::clean(&trail.join(" > "));
        let rows = state.rows().len();
        let place = match (state.screen(), rows) {
            (Screen::Events | Screen::Shards | Screen::Job(_), _) => String::new(),
            (_, 0) => " 0".to_owned(),
            (_, rows) => format!(" {}/{rows}", state.place() + 1),
        };
        let sorts = state.screen().sorts();
        let arrow = if state.is_turned { "^" } else { "v" };
        let sort = sorts
            .get(state.sort)
            .map(|sort| format!("sort: {sort} {arrow}"));
        let filter = match (&state.typing, state.filter.as_str()) {
            (Some(typing), _) => format!("filter: {typing}_"),
            (None, "") => "filter: -".to_owned(),
            (None, filter) => format!("filter: {filter}"),
        };
        let right = match (sort, state.screen()) {
            (Some(sort), _) => format!("{sort}   {}", table::clean(&filter)),
            (None, Screen::Jobs(_)) => table::clean(&filter),
            (None, _) => String::new(),
        };
        let room = usize::from(self.area.width).saturating_sub(width(&right) + width(&place) + 4);
        let trail = crate::text::cut_middle(&trail, room, state.theme.ellipsis());
        self.line(2, &format!("{trail}{place}"), state.theme.head());
        self.right(2, &right, Style::new());
    }

    fn body(&mut self, body: Rect) {
        let state = self.state;
        match state.screen() {
            Screen::Queues if is_beside((self.area.width, self.area.height)) => {
                beside::draw(state, body, self.out);
            }
            Screen::Queues => queues::draw(state, body, self.out),
            Screen::Jobs(_) => lists::jobs(state, body, self.out),
            Screen::Failures => lists::failures(state, body, self.out),
            Screen::Workers => lists::workers(state, body, self.out),
            Screen::Graphs => lists::graphs(state, body, self.out),
            Screen::Events => lists::events(state, body, self.out),
            Screen::Shards => lists::shards(state, body, self.out),
            Screen::Job(_) => job::draw(state, body, self.out),
        }
    }

    /// A question, a notice, or the keys of the screen.
    fn last_line(&mut self) {
        let number = self.area.height - 1;
        let state = self.state;
        if let Some(question) = &state.question {
            let text = format!("{} {}", table::clean(&question.text), question.typed);
            return self.line(number, &text, state.theme.warn());
        }
        if let Some(notice) = &state.notice {
            return self.line(number, &table::clean(notice), state.theme.head());
        }
        if let Some(error) = state.error.as_ref().filter(|_| state.silence().is_some()) {
            let text = format!("No answer: {}", table::clean(error));
            return self.line(number, &text, state.theme.bad());
        }
        self.line(number, &help::keys(state), Style::new());
    }
}
