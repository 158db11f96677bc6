//! Makes hostile text safe to show (`rel S7`).

use std::fmt::Write;

/// Returns the start of `bytes` as text in which control characters and invalid UTF-8 are escaped.
pub(crate) fn excerpt(bytes: &[u8], bytes_max: usize) -> String {
    let is_cut = bytes.len() > bytes_max;
    let mut text = escape(&bytes[..bytes.len().min(bytes_max)]);
    if is_cut {
        let more = bytes.len() - bytes_max;
        // Writing to a string cannot fail.
        let _ = write!(text, "... ({more} bytes more)");
    }
    text
}

/// Returns `bytes` as text in which control characters and invalid UTF-8 are escaped.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\t' || !is_hostile(character) {
                text.push(character);
            } else {
                text.extend(character.escape_default());
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Whether the character is a control character, or changes the direction of text.
fn is_hostile(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_and_bad_bytes_are_shown_not_sent() {
        assert_eq!(escape(b"a\x1b[31mb\xff\r"), "a\\u{1b}[31mb\\xff\\r");
        assert_eq!(escape("x\u{202e}y".as_bytes()), "x\\u{202e}y");
    }

    #[test]
    fn a_cut_excerpt_says_how_much_is_missing() {
        assert_eq!(excerpt(b"abcdef", 4), "abcd... (2 bytes more)");
        assert_eq!(excerpt(b"abcd", 4), "abcd");
    }
}
