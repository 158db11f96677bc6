//! Estimates the memory of a parsed JSON document from its text: it may take fifty times the text's bytes, so the
//! budget must know before the text is parsed.

/// Bytes of an element or member in a tree of values: the value, its number or text on the heap, and spare capacity.
const TREE_ELEMENT_BYTES: usize = 160;
/// Additional bytes for the name of a member.
const TREE_NAME_BYTES: usize = 64;
/// Bytes of an element or member of a document that is parsed into typed fields.
const TYPED_ELEMENT_BYTES: usize = 64;

/// Number of elements and members of a JSON text, and of names among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parts {
    elements: usize,
    names: usize,
}

impl Parts {
    fn of(text: &[u8]) -> Self {
        let mut parts = Self::default();
        let (mut is_in_string, mut is_escaped) = (false, false);
        for &byte in text {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_in_string => is_escaped = true,
                b'"' => is_in_string = !is_in_string,
                _ if is_in_string => {}
                b'[' | b'{' | b',' => parts.elements += 1,
                b':' => parts.names += 1,
                _ => {}
            }
        }
        parts
    }
}

/// Returns the maximum bytes of a tree of values parsed from `text`.
pub fn tree_bytes(text: &[u8]) -> usize {
    let parts = Parts::of(text);
    text.len() + parts.elements * TREE_ELEMENT_BYTES + parts.names * TREE_NAME_BYTES
}

/// Returns the approximate bytes of a document of typed fields parsed from `text`.
pub fn typed_bytes(text: &[u8]) -> usize {
    text.len() + Parts::of(text).elements * TYPED_ELEMENT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_counted_outside_of_strings_only() {
        let parts = |elements, names| Parts { elements, names };
        assert_eq!(Parts::of(b"[1,1,1]"), parts(3, 0));
        assert_eq!(Parts::of(br#"{"a,[\"":"{:,","b":[]}"#), parts(3, 2));
        assert_eq!(Parts::of(b"7"), parts(0, 0));
        assert!(tree_bytes(b"[1,1,1]") >= 3 * 90, "as measured");
    }
}
