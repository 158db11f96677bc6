//! Text from outside as markup: escaped, kept apart from the text around it, and with what cannot be seen made visible.
//!
//! A name can hold any bytes. A bidirectional control could turn the line around, and a zero-width character could make
//! one name look like another, so such characters are shown as `\u{202e}` in a box.

use std::fmt::Write as _;

use ganger_document::names::show;
use maud::{Escaper, Markup, Render, html};

/// One line of text. Line breaks and tabs are shown like other control characters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a>(pub(crate) &'a str);

/// Text for a `pre` element: line breaks and tabs stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines<'a>(pub(crate) &'a str);

impl Render for Text<'_> {
    fn render_to(&self, out: &mut String) {
        render(self.0, |_| false, out);
    }
}

impl Render for Lines<'_> {
    fn render_to(&self, out: &mut String) {
        render(self.0, |character| matches!(character, '\n' | '\t'), out);
    }
}

/// A name of any bytes, isolated from the direction of the text around it.
pub(crate) fn name(bytes: &[u8]) -> Markup {
    isolated(&show(bytes))
}

/// A text of one line from outside, isolated likewise.
pub(crate) fn isolated(text: &str) -> Markup {
    html! { bdi { (Text(text)) } }
}

/// The text as [`Text`] shows it, for attributes and titles, where no markup can be.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out
}

/// At most so many characters of the text, with an ellipsis if some are left out.
pub(crate) fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}\u{2026}", &text[..end]),
    }
}

fn render(text: &str, stays: impl Fn(char) -> bool, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find(|character| is_hidden(character) && !stays(character)) {
        escape(&rest[..at], out);
        let hidden = rest[at..].chars().next().unwrap_or_default();
        out.push_str("<span class=\"hidden-character\">");
        out.extend(hidden.escape_unicode());
        out.push_str("</span>");
        rest = &rest[at + hidden.len_utf8()..];
    }
    escape(rest, out);
}

fn escape(text: &str, out: &mut String) {
    Escaper::new(out)
        .write_str(text)
        .expect("strings take everything");
}

/// Whether a character shows nothing itself, but may change how others look.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_hidden_characters_are_shown_as_what_they_are() {
        let shown = html! { (Text("<b>&\"\u{202e}\n")) }.into_string();
        assert_eq!(
            shown,
            "&lt;b&gt;&amp;&quot;<span class=\"hidden-character\">\\u{202e}</span>\
             <span class=\"hidden-character\">\\u{a}</span>"
        );
        assert_eq!(html! { (Lines("a\n\tb")) }.into_string(), "a\n\tb");
        assert_eq!(plain("a\u{200b}b"), "a\\u{200b}b");
        assert_eq!(name(b"a\xff<").into_string(), "<bdi>a\\xff&lt;</bdi>");
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("\u{e4}\u{f6}\u{fc}", 3), "\u{e4}\u{f6}\u{fc}");
        assert_eq!(cut("\u{e4}\u{f6}\u{fc}", 2), "\u{e4}\u{f6}\u{2026}");
    }
}
