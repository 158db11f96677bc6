//! Output of programs as lines of markup: colours of terminals become classes, other control characters are shown.

use std::fmt::Write as _;

use maud::{Markup, Render, html};

/// Coloured pieces of one page. Further ones lose their colour, so that no log makes a page of too many elements.
const COLOURED_MAX: usize = 500;

/// A piece of a line in one colour.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    text: String,
    /// 0 to 15; `None` for the colour of text.
    colour: Option<u8>,
    is_bold: bool,
}

/// One line, made of pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line(Vec<Run>);

impl Render for Line {
    fn render_to(&self, out: &mut String) {
        let markup: Markup = html! {
            @for run in &self.0 {
                @if run.colour.is_none() && !run.is_bold { (Shown(&run.text)) }
                @else {
                    span class={ @if let Some(colour) = run.colour { "ansi-" (colour) } @if run.is_bold { " ansi-bold" } } { (Shown(&run.text)) }
                }
            }
        };
        out.push_str(&markup.0);
    }
}

/// Text in which a control character reads `\x1b`.
struct Shown<'a>(&'a str);

impl Render for Shown<'_> {
    fn render_to(&self, out: &mut String) {
        let mut plain = String::with_capacity(self.0.len());
        for character in self.0.chars() {
            match character {
                '\t' => plain.push('\t'),
                control if control.is_control() => {
                    write!(plain, "\\x{:02x}", u32::from(control))
                        .expect("strings take everything");
                }
                other => plain.push(other),
            }
        }
        crate::text::Lines(&plain).render_to(out);
    }
}

/// Splits bytes into lines. Bytes that are no text are shown as `\xNN`; a carriage return before a line break is dropped.
pub(crate) fn lines(bytes: &[u8]) -> Vec<Line> {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("strings take everything");
        }
    }
    let mut style = Style::default();
    let mut coloured = 0;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let lines = text.split('\n');
    lines
        .map(|line| style.line(line.strip_suffix('\r').unwrap_or(line), &mut coloured))
        .collect()
}

/// The style that is on, over the ends of lines.
#[derive(Default)]
struct Style {
    colour: Option<u8>,
    is_bold: bool,
}

impl Style {
    fn line(&mut self, line: &str, coloured: &mut usize) -> Line {
        let mut runs = Vec::new();
        let mut rest = line;
        while let Some(at) = rest.find("\u{1b}[") {
            let (before, sequence) = rest.split_at(at);
            let body = &sequence[2..];
            let end =
                body.find(|character: char| !(character.is_ascii_digit() || character == ';'));
            match end.map(|end| (end, body.as_bytes()[end])) {
                Some((end, b'm')) => {
                    self.put(before, &mut runs, coloured);
                    self.apply(&body[..end]);
                    rest = &body[end + 1..];
                }
                _ => {
                    // Another sequence: shown, not followed.
                    self.put(&rest[..at + 2], &mut runs, coloured);
                    rest = body;
                }
            }
        }
        self.put(rest, &mut runs, coloured);
        Line(runs)
    }

    fn put(&self, text: &str, runs: &mut Vec<Run>, coloured: &mut usize) {
        if text.is_empty() {
            return;
        }
        let is_plain = self.colour.is_none() && !self.is_bold || *coloured >= COLOURED_MAX;
        if !is_plain {
            *coloured += 1;
        }
        runs.push(Run {
            text: text.to_owned(),
            colour: self.colour.filter(|_| !is_plain),
            is_bold: self.is_bold && !is_plain,
        });
    }

    fn apply(&mut self, numbers: &str) {
        for number in numbers.split(';') {
            match number.parse().unwrap_or(0_u8) {
                0 => *self = Self::default(),
                1 => self.is_bold = true,
                22 => self.is_bold = false,
                colour @ 30..=37 => self.colour = Some(colour - 30),
                39 => self.colour = None,
                colour @ 90..=97 => self.colour = Some(colour - 82),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> Vec<String> {
        let lines = lines(bytes).into_iter();
        lines.map(|line| html! { (line) }.into_string()).collect()
    }

    #[test]
    fn colours_are_classes_and_other_controls_are_shown() {
        assert_eq!(
            shown(b"a\x1b[31mb\nc\x1b[0md\x1b[2Ke\xff<\r\n"),
            [
                "a<span class=\"ansi-1\">b</span>",
                "<span class=\"ansi-1\">c</span>d\\x1b[2Ke\\xff&lt;",
            ]
        );
        assert_eq!(
            shown(b"\x1b[1;92mok"),
            ["<span class=\"ansi-10 ansi-bold\">ok</span>"]
        );
    }

    #[test]
    fn a_log_of_colours_alone_makes_a_bounded_number_of_elements() {
        let line = b"\x1b[31mx\x1b[0m".repeat(10_000);
        let markup = shown(&line).concat();
        assert_eq!(markup.matches("<span").count(), COLOURED_MAX);
    }
}
