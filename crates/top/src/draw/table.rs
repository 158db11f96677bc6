//! Tables: columns of fixed widths, one that takes what is left, and columns that fall away where there is no room.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::text::{cut_end, cut_middle, width};
use crate::theme::Theme;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Words of the heading.
    pub(super) head: &'static str,
    /// Number of columns of the screen; the least of a column that grows.
    pub(super) width: u16,
    /// Whether its text stands at the right.
    pub(super) is_number: bool,
    /// Whether the column takes what is left.
    pub(super) grows: bool,
    /// Order in which columns fall away: the largest first; 0 for those that stay.
    pub(super) falls: u8,
}

impl Column {
    /// A column of text.
    pub(super) const fn text(head: &'static str, width: u16) -> Self {
        Self {
            head,
            width,
            is_number: false,
            grows: false,
            falls: 0,
        }
    }

    /// A column of numbers, which stand at the right.
    pub(super) const fn number(head: &'static str, width: u16) -> Self {
        Self {
            is_number: true,
            ..Self::text(head, width)
        }
    }

    /// The same column, which takes what is left.
    pub(super) const fn growing(self) -> Self {
        Self {
            grows: true,
            ..self
        }
    }

    /// The same column, which falls away before those with a smaller number.
    pub(super) const fn falling(self, falls: u8) -> Self {
        Self { falls, ..self }
    }
}

/// A cell: text and its style.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell(pub(super) String, pub(super) Style);

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self(text, Style::new())
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self(text.to_owned(), Style::new())
    }
}

/// A table with its rows.
pub(super) struct Table<'a> {
    pub(super) theme: Theme,
    pub(super) columns: &'a [Column],
    pub(super) rows: Vec<Vec<Cell>>,
    /// Number of the row under the cursor; `None` if there is none.
    pub(super) cursor: Option<usize>,
    /// What stands instead of rows if there are none.
    pub(super) empty: &'a str,
}

/// Columns of the screen that mark the cursor.
const MARK: u16 = 3;

impl Table<'_> {
    /// Draws the heading and as many rows as fit, those around the cursor.
    pub(super) fn draw(&self, area: Rect, out: &mut Buffer) {
        let shown = self.layout(area.width);
        let mut x = area.x + MARK;
        for (column, wide) in &shown {
            let text = aligned(
                self.columns[*column],
                self.columns[*column].head,
                *wide,
                self.theme,
            );
            out.set_stringn(x, area.y, text, usize::from(*wide), self.theme.head());
            x += wide + 2;
        }
        if self.rows.is_empty() {
            let most = usize::from(area.width.saturating_sub(MARK));
            let text = cut_end(self.empty, most, self.theme.ellipsis());
            out.set_stringn(area.x + MARK, area.y + 1, text, most, Style::new());
            return;
        }
        let room = usize::from(area.height.saturating_sub(1));
        let cursor = self.cursor.unwrap_or(0);
        let first = cursor.saturating_sub(room.saturating_sub(1));
        for (line, row) in self.rows.iter().enumerate().skip(first).take(room) {
            let y = area.y + 1 + u16::try_from(line - first).unwrap_or(u16::MAX);
            self.draw_row(
                row,
                &shown,
                Rect {
                    y,
                    height: 1,
                    ..area
                },
                out,
                self.cursor == Some(line),
            );
        }
    }

    fn draw_row(
        &self,
        row: &[Cell],
        shown: &[(usize, u16)],
        area: Rect,
        out: &mut Buffer,
        is_cursor: bool,
    ) {
        let mut x = area.x + MARK;
        for (column, wide) in shown {
            let (cell, column) = (row.get(*column), self.columns[*column]);
            if let Some(Cell(text, style)) = cell {
                let text = aligned(column, &clean(text), *wide, self.theme);
                out.set_stringn(x, area.y, text, usize::from(*wide), *style);
            }
            x += wide + 2;
        }
        if is_cursor {
            out.set_stringn(area.x + 1, area.y, ">", 1, Style::new());
            out.set_style(area, self.theme.cursor());
        }
    }

    /// The columns that fit, with their widths.
    fn layout(&self, wide: u16) -> Vec<(usize, u16)> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let needed = |shown: &[usize]| -> u16 {
            let widths = shown.iter().map(|place| self.columns[*place].width + 2);
            widths.sum::<u16>() + MARK
        };
        // The last gap needs no room.
        while needed(&shown) > wide + 2 {
            let falling = shown
                .iter()
                .copied()
                .max_by_key(|place| self.columns[*place].falls);
            match falling.filter(|place| self.columns[*place].falls > 0) {
                Some(place) => shown.retain(|known| *known != place),
                None => break,
            }
        }
        let left = (wide + 2).saturating_sub(needed(&shown));
        let with_width = shown.into_iter().map(|place| {
            let column = self.columns[place];
            let more = if column.grows { left } else { 0 };
            (place, column.width + more)
        });
        with_width.collect()
    }
}

fn aligned(column: Column, text: &str, wide: u16, theme: Theme) -> String {
    let wide = usize::from(wide);
    let text = cut_middle(text, wide, theme.ellipsis());
    let pad = " ".repeat(wide.saturating_sub(width(&text)));
    if column.is_number {
        format!("{pad}{text}")
    } else {
        format!("{text}{pad}")
    }
}

/// A text in one line without characters that could change the screen: they are written out.
pub(super) fn clean(text: &str) -> String {
    ganger_document::escape::line(text)
}
