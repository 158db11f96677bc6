//! Replaces what strict JSON does not have, comments and trailing commas, by spaces.
//!
//! The length stays the same, so that lines and columns of later errors are correct.

use super::problem::Problem;

/// Returns the text without comments and trailing commas; other errors stay.
pub(super) fn relax(text: &[u8]) -> Result<Vec<u8>, Problem> {
    let mut out = text.to_vec();
    // An editor may have written a byte order mark.
    if out.starts_with(b"\xef\xbb\xbf") {
        out[..3].fill(b' ');
    }
    let mut at = 0;
    let mut comma = None;
    while at < out.len() {
        match out[at] {
            b'"' => {
                at = string_end(&out, at);
                comma = None;
                continue;
            }
            b'/' => {
                at = blank_comment(&mut out, at)?;
                continue;
            }
            b',' => comma = Some(at),
            b']' | b'}' => {
                if let Some(at) = comma.take() {
                    out[at] = b' ';
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        at += 1;
    }
    Ok(out)
}

/// Returns the index after the string that begins at `start`.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Replaces the comment that begins at `start` by spaces, except line ends; returns the index after it.
fn blank_comment(text: &mut [u8], start: usize) -> Result<usize, Problem> {
    let rest = &text[start..];
    let length = if rest.starts_with(b"//") {
        rest.iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(rest.len())
    } else if rest.starts_with(b"/*") {
        let body = rest[2..].windows(2).position(|pair| pair == b"*/");
        let Some(body) = body else {
            let problem = Problem::new("a comment begins here with /* and never ends");
            return Err(problem.at(ganger_document::place::of_offset(text, start)));
        };
        body + 4
    } else {
        1 // A lone slash is for the parser to refuse.
    };
    if length > 1 {
        for byte in &mut text[start..start + length] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    Ok(start + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relaxed(text: &str) -> String {
        String::from_utf8(relax(text.as_bytes()).expect("closed comments")).expect("UTF-8")
    }

    #[test]
    fn commas_before_brackets_are_blanked_outside_of_strings_only() {
        assert_eq!(
            relaxed(r#"[{"a":[1, ],"b":",]\",}",},]"#),
            r#"[{"a":[1  ],"b":",]\",}" } ]"#
        );
    }

    #[test]
    fn comments_are_blanked_outside_of_strings_only() {
        assert_eq!(
            relaxed("[1, // one\n2 /* two\n */ ,/**/ ]").replace(' ', ""),
            "[1,\n2\n]"
        );
        assert_eq!(relaxed(r#"["http://x/*y*/"]"#), r#"["http://x/*y*/"]"#);
    }

    #[test]
    fn a_comment_without_end_is_located() {
        let problem = relax(b"[1,\n /* x").expect_err("no end");
        assert_eq!(problem.place(), Some((2, 2)));
    }

    #[test]
    fn two_commas_are_still_an_error() {
        let text = relax(b"[1,,]").expect("no comments");
        assert!(serde_json::from_slice::<Vec<u8>>(&text).is_err());
    }
}
