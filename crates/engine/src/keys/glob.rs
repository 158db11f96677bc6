//! Glob patterns over bytes, as Redis reads them: `*`, `?`, `[a-z]`, `[^x]`, and a backslash before what is meant as it is.

/// Whether the whole text matches the pattern. Takes at most pattern times text steps: after a `*` only the last one is tried again.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where the last star was, and the text that it has taken.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, from));
            at += 1;
            continue;
        }
        match (one(&pattern[at..], text.get(from).copied()), star) {
            (Step::End, _) => return true,
            (Step::Match(used), _) => {
                at += used;
                from += 1;
            }
            (Step::Differs, Some((behind, taken))) if taken < text.len() => {
                star = Some((behind, taken + 1));
                at = behind;
                from = taken + 1;
            }
            (Step::Differs, _) => return false,
        }
    }
}

/// The bytes with which every match begins, for looking only where matches can be.
pub(crate) fn literal_prefix(pattern: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::new();
    let mut rest = pattern;
    loop {
        match rest {
            [] | [b'*' | b'?' | b'[', ..] => return prefix,
            [b'\\', next, tail @ ..] | [next, tail @ ..] => {
                prefix.push(*next);
                rest = tail;
            }
        }
    }
}

enum Step {
    /// Pattern and text end together.
    End,
    /// The byte matches so many bytes of the pattern.
    Match(usize),
    Differs,
}

/// Compares one byte of text, or its end, with the head of a pattern that does not begin with a star.
fn one(pattern: &[u8], byte: Option<u8>) -> Step {
    let Some(byte) = byte else {
        return if pattern.is_empty() {
            Step::End
        } else {
            Step::Differs
        };
    };
    let (is_match, used) = match pattern {
        [] => return Step::Differs,
        [b'?', ..] => (true, 1),
        [b'[', ..] => class(pattern, byte),
        [b'\\', next, ..] => (*next == byte, 2),
        [next, ..] => (*next == byte, 1),
    };
    if is_match {
        Step::Match(used)
    } else {
        Step::Differs
    }
}

/// Whether a class such as `[^a-c]` has the byte, and its length. One that is not closed ends with the pattern.
fn class(pattern: &[u8], byte: u8) -> (bool, usize) {
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = if is_negated { 2 } else { 1 };
    let mut has = false;
    while at < pattern.len() {
        match pattern[at..] {
            [b'\\', next, ..] => {
                has |= next == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                return (has != is_negated, at);
            }
            [low, b'-', high, ..] => {
                has |= (low.min(high)..=low.max(high)).contains(&byte);
                at += 3;
            }
            [next, ..] => {
                has |= next == byte;
                at += 1;
            }
            [] => break,
        }
    }
    (has != is_negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let table: &[(&str, &str, bool)] = &[
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbb", false),
            ("a*b*c", "axxbyyc", true),
            ("P:item:*", "P:item:", true),
            ("P:item:*", "P:items", false),
            ("?", "", false),
            ("?", "x", true),
            ("??", "x", false),
            ("[abc]", "b", true),
            ("[abc]", "d", false),
            ("[^abc]", "d", true),
            ("[^abc]", "a", false),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[a-c]x", "dx", false),
            (r"\*", "*", true),
            (r"\*", "a", false),
            (r"[\]]", "]", true),
            ("a[1]", "a1", true),
            ("a[1]", "a[1]", false),
            ("[ab", "a", true),
            ("***a", "bca", true),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                *expected,
                "{pattern:?} and {text:?}"
            );
        }
    }

    #[test]
    fn the_literal_prefix_is_what_every_match_begins_with() {
        assert_eq!(literal_prefix(b"P:item:*"), b"P:item:");
        assert_eq!(literal_prefix(br"a\*b?"), b"a*b");
        assert_eq!(literal_prefix(b"[a]b"), b"");
        assert_eq!(literal_prefix(b"plain"), b"plain");
        assert_eq!(literal_prefix(br"end\"), br"end\");
    }
}
