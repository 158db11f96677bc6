//! Reads what a program wrote into a terminal and writes the screen as an SVG, for documents.
//!
//! Arguments: columns and lines of the terminal. The terminal's own 16 colours are those of the dashboard, in the theme
//! of the person who looks at the picture.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;

use anyhow::{Context as _, Result};

/// Width of a column and height of a line, in the units of the picture.
const CELL: (u32, u32) = (8, 18);
/// Free space around the screen.
const MARGIN: u32 = 12;
/// Colours of text: light and dark theme, by the number of the terminal's colour. Others are shown as plain text.
const COLOURS: [(u8, &str, &str); 6] = [
    (1, "#b3261e", "#ff9184"),
    (2, "#00695c", "#5ccfb0"),
    (3, "#8a5200", "#f0b750"),
    (4, "#0a58a8", "#7db8ff"),
    (5, "#6a4aa8", "#c4a8ff"),
    (6, "#3f6274", "#94bacd"),
];

/// How a piece of text looks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    colour: Option<u8>,
    is_bold: bool,
    is_dim: bool,
    is_inverse: bool,
}

impl Look {
    fn of(cell: &vt100::Cell) -> Self {
        Self {
            colour: match cell.fgcolor() {
                // The bright ones are the same, a little lighter.
                vt100::Color::Idx(number) => Some(number % 8),
                _ => None,
            },
            is_bold: cell.bold(),
            is_dim: cell.dim(),
            is_inverse: cell.inverse(),
        }
    }

    fn class(self) -> String {
        let known = |number: &u8| COLOURS.iter().any(|(colour, ..)| colour == number);
        let mut classes = Vec::new();
        if self.is_inverse {
            classes.push("i".to_owned());
        } else if let Some(number) = self.colour.filter(known) {
            classes.push(format!("c{number}"));
        }
        if self.is_bold {
            classes.push("b".to_owned());
        }
        if self.is_dim {
            classes.push("d".to_owned());
        }
        classes.join(" ")
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut size = || -> Result<NonZeroU16> {
        let text = arguments.next().context("columns and lines are missing")?;
        Ok(text.parse()?)
    };
    let (columns, lines) = (size()?, size()?);
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes)?;
    let mut parser = vt100::Parser::new(lines, columns, 0);
    parser.process(&bytes);
    let svg = picture(parser.screen(), columns.get(), lines.get());
    std::io::stdout().write_all(svg.as_bytes())?;
    Ok(())
}

fn picture(screen: &vt100::Screen, columns: u16, lines: u16) -> String {
    let width = u32::from(columns) * CELL.0 + 2 * MARGIN;
    let height = u32::from(lines) * CELL.1 + 2 * MARGIN;
    let colours = |which: fn(&(u8, &'static str, &'static str)) -> &'static str| {
        let each = COLOURS.iter();
        let rules = each.map(|it| format!(".c{}{{fill:{}}}", it.0, which(it)));
        rules.collect::<Vec<_>>().concat()
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"ganger top\"><style>\
         text{{font:14px ui-monospace,monospace;white-space:pre;fill:#1b2027}}.p{{fill:#f4f6f8}}.r{{fill:#1b2027}}.i{{fill:#f4f6f8}}.b{{font-weight:bold}}.d{{opacity:.7}}{}\
         @media (prefers-color-scheme:dark){{text{{fill:#e5eaf0}}.p{{fill:#181e26}}.r{{fill:#e5eaf0}}.i{{fill:#181e26}}{}}}\
         </style><rect class=\"p\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n",
        colours(|it| it.1),
        colours(|it| it.2),
    );
    for line in 0..lines {
        for (start, text, look) in pieces(screen, line, columns) {
            piece(&mut out, line, start, &text, look);
        }
    }
    out.push_str("</svg>\n");
    out
}

/// The pieces of a line that look alike: their first column, text and look.
fn pieces(screen: &vt100::Screen, line: u16, columns: u16) -> Vec<(u16, String, Look)> {
    let mut pieces: Vec<(u16, String, Look)> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(line, column) else {
            continue;
        };
        let look = Look::of(cell);
        let contents = cell.contents();
        let text = if contents.is_empty() { " " } else { contents };
        match pieces.last_mut() {
            Some((_, known, last)) if *last == look => known.push_str(text),
            _ => pieces.push((column, text.to_owned(), look)),
        }
    }
    pieces.retain(|(_, text, look)| look.is_inverse || !text.trim().is_empty());
    pieces
}

fn piece(out: &mut String, line: u16, column: u16, text: &str, look: Look) {
    let x = u32::from(column) * CELL.0 + MARGIN;
    let y = u32::from(line) * CELL.1 + MARGIN;
    let width = u32::try_from(text.chars().count()).unwrap_or(0) * CELL.0;
    if look.is_inverse {
        let height = CELL.1;
        let rect = format!(
            "<rect class=\"r\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        );
        out.push_str(&rect);
    }
    let escaped = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let base = y + CELL.1 - 5;
    writeln!(
        out,
        "<text x=\"{x}\" y=\"{base}\" textLength=\"{width}\" class=\"{}\">{escaped}</text>",
        look.class()
    )
    .expect("strings take everything");
}
