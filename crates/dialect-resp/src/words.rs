//! Lines of words with quotes, as people type commands.

use bytes::Bytes;

/// Splits a line into words, with the quotes and escapes of Redis: `"a\x00\n"`, `'it\'s'`. `None` if a quote does not
/// end, or something other than a space follows it.
pub(crate) fn split(line: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let (word, behind) = one(rest)?;
        words.push(Bytes::from(word));
        rest = behind;
    }
}

fn one(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    while let Some((byte, behind)) = rest.split_first() {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' | 0 => break,
            b'"' => {
                let behind = double_quoted(behind, &mut word)?;
                return ends(behind).then_some((word, behind));
            }
            b'\'' => {
                let behind = single_quoted(behind, &mut word)?;
                return ends(behind).then_some((word, behind));
            }
            _ => word.push(*byte),
        }
        rest = behind;
    }
    // A zero byte ends the line, as it ends a string in C.
    if rest.first() == Some(&0) {
        rest = &[];
    }
    Some((word, rest))
}

fn ends(behind: &[u8]) -> bool {
    behind.first().is_none_or(u8::is_ascii_whitespace)
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'"', behind @ ..] => return Some(behind),
            [b'\\', b'x', high, low, behind @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(digit(*high) << 4 | digit(*low));
                rest = behind;
            }
            [b'\\', escaped, behind @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = behind;
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                rest = behind;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'\'', behind @ ..] => return Some(behind),
            [b'\\', b'\'', behind @ ..] => {
                word.push(b'\'');
                rest = behind;
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                rest = behind;
            }
        }
    }
}

fn digit(hexadecimal: u8) -> u8 {
    match hexadecimal {
        b'0'..=b'9' => hexadecimal - b'0',
        b'a'..=b'f' => hexadecimal - b'a' + 10,
        _ => hexadecimal - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_spaces_and_escapes() {
        let cases: [(&[u8], &[&[u8]]); 4] = [
            (b"  a\tb  ", &[b"a", b"b"]),
            (
                br#"set "a \"b\x00\n" 'it\'s \n'"#,
                &[b"set", b"a \"b\0\n", br"it's \n"],
            ),
            (b"\"\" ''", &[b"", b""]),
            (b"", &[]),
        ];
        for (line, expected) in cases {
            let words = split(line).expect("balanced");
            assert_eq!(words, expected, "{}", line.escape_ascii());
        }
        for wrong in [&b"\"a"[..], b"'a", b"\"a\"b", b"'a'b", b"\"\\"] {
            assert_eq!(split(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
