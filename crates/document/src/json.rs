//! Strict JSON parsing: limited depth, no unknown and no duplicate fields, and errors that name the place.

use ganger_types::json_error::in_json_words;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use crate::error::DocumentError;

/// Maximum depth of nesting, including payloads, so that programs that parse the answers do not overflow their stack.
pub const DEPTH_MAX: usize = 128;

/// Reads one JSON document from the bytes of a body.
///
/// # Errors
/// If the text is not JSON, is nested too deeply, or is not a document of this type; the error names the place.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, DocumentError> {
    check_depth(text)?;
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| explain(error.inner(), &pointer(error.path())))?;
    deserializer.end().map_err(|error| explain(&error, ""))?;
    Ok(value)
}

/// Refuses a text that is nested too deeply, before it is parsed.
fn check_depth(text: &[u8]) -> Result<(), DocumentError> {
    if depth(text) > DEPTH_MAX {
        return Err(DocumentError::new(
            "too_deep",
            format!(
                "the JSON is nested more than {DEPTH_MAX} levels deep: flatten it, or send it as payload_base64"
            ),
        ));
    }
    Ok(())
}

/// The depth of nesting of a JSON text; some number for other bytes.
pub fn depth(text: &[u8]) -> usize {
    let (mut level, mut deepest) = (0_usize, 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    for &byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                level += 1;
                deepest = deepest.max(level);
            }
            b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Replaces commas before a closing bracket by spaces, so that offsets in later errors stay correct.
///
/// The examples in enq's documentation have such commas, and users paste them.
pub fn blank_trailing_commas(text: &mut [u8]) {
    let (mut in_string, mut escaped) = (false, false);
    let mut comma = None;
    for at in 0..text.len() {
        match text[at] {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => {
                in_string = !in_string;
                comma = None;
            }
            _ if in_string => {}
            b',' => comma = Some(at),
            b']' | b'}' => {
                if let Some(at) = comma.take() {
                    text[at] = b' ';
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
    }
}

/// A JSON pointer (RFC 6901) from the path that the deserializer walked.
fn pointer(path: &Path) -> String {
    let mut out = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                out.push('/');
                out.push_str(&index.to_string());
            }
            Segment::Map { key } | Segment::Enum { variant: key } => {
                out.push('/');
                out.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            Segment::Unknown => {}
        }
    }
    out
}

fn explain(error: &serde_json::Error, pointer: &str) -> DocumentError {
    use serde_json::error::Category;
    let text = error.to_string();
    // The place is a field of its own, not part of the message.
    let message = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(message, _)| message);
    let mut problem = match error.classify() {
        Category::Data => explain_data(message, pointer),
        // A number such as 1e400 is valid JSON but out of range.
        _ if message == "number out of range" => explain_data(message, pointer),
        Category::Eof => DocumentError::new(
            "malformed_json",
            format!("the JSON ends too early: {message}"),
        ),
        Category::Syntax | Category::Io if message == "trailing characters" => DocumentError::new(
            "malformed_json",
            "there is more after the end of the JSON document",
        ),
        Category::Syntax | Category::Io => DocumentError::new(
            "malformed_json",
            format!("this is not valid JSON: {message}"),
        ),
    };
    if error.line() > 0 {
        problem.place = Some((error.line(), error.column()));
    }
    problem
}

fn explain_data(message: &str, pointer: &str) -> DocumentError {
    let code = if message.starts_with("unknown field") {
        "unknown_field"
    } else if message.starts_with("missing field") {
        "missing_field"
    } else if message.starts_with("duplicate field") {
        "duplicate_field"
    } else {
        "invalid_value"
    };
    let message = in_json_words(message);
    let detail = if pointer.is_empty() {
        message
    } else {
        format!("{pointer}: {message}")
    };
    DocumentError::new(code, detail).at(pointer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[expect(dead_code, reason = "only reading it is tested")]
        inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "only reading it is tested")]
        number: u32,
    }

    #[test]
    fn errors_name_code_and_place() {
        for (text, code, place) in [
            (
                r#"{"inner":[{"number":1},{"number":2,"x":3}]}"#,
                "unknown_field",
                "/inner/1/x",
            ),
            (r#"{"inner":[{}]}"#, "missing_field", "/inner/0"),
            (
                r#"{"inner":[{"number":1,"number":2}]}"#,
                "duplicate_field",
                "/inner/0",
            ),
            (
                r#"{"inner":[{"number":4294967296}]}"#,
                "invalid_value",
                "/inner/0/number",
            ),
            (
                r#"{"inner":[{"number":-1}]}"#,
                "invalid_value",
                "/inner/0/number",
            ),
            (
                r#"{"inner":[{"number":1.5}]}"#,
                "invalid_value",
                "/inner/0/number",
            ),
            (
                r#"{"inner":[{"number":"1"}]}"#,
                "invalid_value",
                "/inner/0/number",
            ),
            (r#"{"inner":7}"#, "invalid_value", "/inner"),
            ("[]", "invalid_value", ""),
        ] {
            let error = read::<Outer>(text.as_bytes()).expect_err(text);
            assert_eq!(error.code, code, "{text}: {error:?}");
            let pointer = error.pointer.unwrap_or_default();
            assert!(pointer.starts_with(place), "{text}: {pointer}");
        }
        for text in [
            "",
            "{",
            "{\"inner\":[]} x",
            "{'inner':[]}",
            "{\"inner\":[],}",
            "\u{feff}{}",
        ] {
            assert_eq!(
                read::<Outer>(text.as_bytes()).expect_err(text).code,
                "malformed_json",
                "{text}"
            );
        }
        let deep = "[".repeat(100_000);
        assert_eq!(
            read::<Outer>(deep.as_bytes()).expect_err("deep").code,
            "too_deep"
        );
    }

    #[test]
    fn trailing_commas_are_blanked_outside_of_strings_only() {
        let mut text = br#"[{"a":[1,2, ],"b":",]\",}",},]"#.to_vec();
        blank_trailing_commas(&mut text);
        assert_eq!(text, br#"[{"a":[1,2  ],"b":",]\",}" } ]"#);
    }
}
