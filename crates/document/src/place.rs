//! Lines and columns of values in the text of a document.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

/// Line and column, from 1, of byte `offset` of a text. Columns count characters.
pub fn of_offset(text: &[u8], offset: usize) -> (usize, usize) {
    let before = &text[..offset.min(text.len())];
    let line = before.split(|byte| *byte == b'\n').count();
    let start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    (line, column)
}

/// Line and column of the value at a JSON pointer, or of its innermost existing parent if the field is missing.
pub(crate) fn of_pointer(text: &[u8], pointer: &str) -> (usize, usize) {
    let mut offset = text.len() - text.trim_ascii_start().len();
    let mut value = serde_json::from_slice::<&RawValue>(text).ok();
    for segment in pointer.split('/').skip(1) {
        value = value.and_then(|value| child(value.get(), segment));
        let Some(value) = value else { break };
        offset = value.get().as_ptr().addr() - text.as_ptr().addr();
    }
    of_offset(text, offset)
}

/// The item or field of a JSON value that a segment of a pointer names.
fn child<'a>(value: &'a str, segment: &str) -> Option<&'a RawValue> {
    if value.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(value).ok()?;
        return items.get(segment.parse::<usize>().ok()?).copied();
    }
    let fields: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(value).ok()?;
    let name = segment.replace("~1", "/").replace("~0", "~");
    fields.get(name.as_str()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_to_the_line_and_column_of_its_value() {
        let text =
            b"{\"jobs\": [\n  {\"kind\": \"a\"},\n  {\"kind\": \"b\", \"in/puts\": [1,\n    {}]}]}";
        assert_eq!(of_pointer(text, ""), (1, 1));
        assert_eq!(of_pointer(text, "/jobs/1"), (3, 3));
        assert_eq!(of_pointer(text, "/jobs/1/kind"), (3, 12));
        assert_eq!(of_pointer(text, "/jobs/1/in~1puts/1/result_of"), (4, 5));
        assert_eq!(of_pointer(text, "/jobs/7"), (1, 10));
        assert_eq!(of_pointer(b"not JSON", "/jobs"), (1, 1));
        assert_eq!(of_offset("h\u{e9}\nx".as_bytes(), 3), (1, 3));
    }
}
