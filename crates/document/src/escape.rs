//! Escapes text from jobs, which must not control the terminal (`rel S7`).

use std::fmt::Write as _;

/// Escapes a line: every control character is written out.
pub fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push(&mut out, text, false);
    out
}

/// Escapes text of several lines: line ends and tabs stay, other control characters are written out.
pub fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push(&mut out, text, true);
    out
}

/// Like [`text`], for bytes; invalid UTF-8 is written as `\xNN`.
pub fn bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        push(&mut out, chunk.valid(), true);
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}").expect("writing to a string cannot fail");
        }
    }
    out
}

/// Returns one line of at most `most` characters, with an ellipsis where it was cut.
pub fn short(text: &str, most: usize) -> String {
    let first = text.lines().next().unwrap_or_default();
    let line = line(first);
    let is_cut = line.chars().count() > most || text.trim_end().lines().count() > 1;
    if !is_cut {
        return line;
    }
    let mut out: String = line.chars().take(most.saturating_sub(1)).collect();
    out.push('\u{2026}');
    out
}

/// Returns the last non-empty line of a failure's message, with at most `most` characters: a stack trace ends with
/// the error, after a first line that is the same for all.
pub fn last_line(text: &str, most: usize) -> String {
    let lines = text.lines().rev();
    let mut told = lines.filter(|line| !line.trim().is_empty());
    let last = told.next().unwrap_or_default().trim();
    let mut out = short(last, most);
    if told.next().is_some() && !out.ends_with('\u{2026}') {
        out.insert(0, '\u{2026}');
        if out.chars().count() > most {
            out = short(&out, most);
        }
    }
    out
}

fn push(out: &mut String, text: &str, keep_lines: bool) {
    for character in text.chars() {
        match character {
            '\n' | '\t' if keep_lines => out.push(character),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character.is_ascii_control() => {
                write!(out, "\\x{:02x}", u32::from(character))
                    .expect("writing to a string cannot fail");
            }
            _ if is_unseen(character) => out.extend(character.escape_unicode()),
            _ => out.push(character),
        }
    }
}

/// Whether a character beyond ASCII is invisible but affects the terminal or the direction of text.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_a_jobs_text_are_escaped() {
        assert_eq!(line("a\x1b[31mb\x07\x7f"), "a\\x1b[31mb\\x07\\x7f");
        assert_eq!(line("one\ntwo\tthree\r"), "one\\ntwo\\tthree\\r");
        assert_eq!(line("\u{9b}2J"), "\\u{9b}2J");
        assert_eq!(line("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(
            line("gr\u{fc}\u{df}e \u{4e16}\u{754c} \u{1f389}"),
            "gr\u{fc}\u{df}e \u{4e16}\u{754c} \u{1f389}"
        );
    }

    #[test]
    fn logs_keep_their_lines() {
        assert_eq!(
            bytes(b"one\ntwo\xff\x1b]0;x\x07\n"),
            "one\ntwo\\xff\\x1b]0;x\\x07\n"
        );
        assert_eq!(text("a\tb\r\nc"), "a\tb\\r\nc");
    }

    #[test]
    fn escaped_bytes_have_no_control_character() {
        let all: Vec<u8> = (0..=255).chain(0..=255).collect();
        let shown = bytes(&all);
        assert!(
            shown
                .chars()
                .all(|c| !c.is_control() || c == '\n' || c == '\t'),
            "{shown:?}"
        );
    }

    #[test]
    fn a_long_text_is_cut_to_one_line() {
        assert_eq!(short("hello", 10), "hello");
        assert_eq!(short("hello\n", 10), "hello");
        assert_eq!(short("hello\nworld", 10), "hello\u{2026}");
        assert_eq!(short("hello world", 6), "hello\u{2026}");
    }

    #[test]
    fn a_failure_is_shown_by_its_last_line() {
        let trace = "Traceback (most recent call last):\n  File \"x\", line 2\nValueError: x\n\n";
        assert_eq!(last_line(trace, 80), "\u{2026}ValueError: x");
        assert_eq!(last_line("no luck\n", 80), "no luck");
        assert_eq!(last_line("", 80), "");
        assert_eq!(last_line("a\n\x1b[2Jb", 80), "\u{2026}\\x1b[2Jb");
        assert_eq!(last_line("a\nhello world", 6).chars().count(), 6);
    }
}
