//! The writer. Like the encoder of the script, it writes `{}` for an empty list, numbers with 14 digits, and a
//! backslash before each slash.

use ganger_types::qless::{QlessReply, QlessTag};

use crate::number;

/// Whether a byte in a string must be escaped.
fn is_escaped(byte: u8) -> bool {
    matches!(byte, 0..0x20 | b'"' | b'/' | b'\\' | 0x7f)
}

/// Writes JSON without spaces, and adds the commas itself.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// Returns a writer that has memory for a text of that many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self {
            out: Vec::with_capacity(bytes),
        }
    }

    /// Returns the written text.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.out
    }

    /// Begins an object. The caller then writes keys, each followed by its value, and calls [`Writer::end`].
    pub(crate) fn begin(&mut self) {
        self.separate();
        self.out.push(b'{');
    }

    /// Ends the innermost object.
    pub(crate) fn end(&mut self) {
        self.out.push(b'}');
    }

    /// Begins a list that has elements. [`Writer::list`] also writes empty lists, as empty objects.
    pub(super) fn begin_list(&mut self) {
        self.separate();
        self.out.push(b'[');
    }

    /// Ends the innermost list.
    pub(super) fn end_list(&mut self) {
        self.out.push(b']');
    }

    /// Writes the key of the value that comes next.
    pub(crate) fn key(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.string(key);
        self.out.push(b':');
        self
    }

    /// Writes a string value.
    pub(crate) fn string(&mut self, text: impl AsRef<[u8]>) {
        self.separate();
        self.out.push(b'"');
        let mut rest = text.as_ref();
        // Most texts have nothing to escape.
        while let Some(at) = rest.iter().position(|byte| is_escaped(*byte)) {
            self.out.extend_from_slice(&rest[..at]);
            self.escaped(rest[at]);
            rest = &rest[at + 1..];
        }
        self.out.extend_from_slice(rest);
        self.out.push(b'"');
    }

    /// Writes a number with or without a fraction.
    pub(crate) fn number(&mut self, number: f64) {
        self.separate();
        number::write_to(&mut self.out, number);
    }

    /// Writes a count as a whole number.
    pub(crate) fn count(&mut self, count: usize) {
        self.number(number::from_length(count));
    }

    /// Writes a whole number.
    pub(crate) fn whole(&mut self, number: i64) {
        self.raw(number.to_string().as_bytes());
    }

    /// Writes `true` or `false`.
    pub(crate) fn boolean(&mut self, is_true: bool) {
        self.raw(if is_true { b"true" } else { b"false" });
    }

    /// Writes a value that is JSON already.
    pub(crate) fn raw(&mut self, json: &[u8]) {
        self.separate();
        self.out.extend_from_slice(json);
    }

    /// Writes a list; `write` writes each element. An empty list becomes `{}`.
    pub(crate) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_none() {
            self.raw(b"{}");
            return;
        }
        self.begin_list();
        for item in items {
            write(self, item);
        }
        self.end_list();
    }

    /// Writes a list of strings.
    pub(crate) fn strings(&mut self, texts: impl IntoIterator<Item: AsRef<[u8]>>) {
        self.list(texts, Self::string);
    }

    /// Writes a list of tags. Each tag keeps its JSON type.
    pub(crate) fn tags(&mut self, tags: &[QlessTag]) {
        self.list(tags, |it, tag| match tag {
            QlessTag::Text(text) => it.string(text),
            QlessTag::Number(number) => it.number(*number),
        });
    }

    /// Writes a comma unless the value is the first one here. No value ends in one of these bytes, since strings end in
    /// a quote.
    fn separate(&mut self) {
        if !matches!(self.out.last(), None | Some(b'{' | b'[' | b':')) {
            self.out.push(b',');
        }
    }

    /// Writes the escape sequence of a byte.
    fn escaped(&mut self, byte: u8) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let letter = match byte {
            b'"' | b'\\' | b'/' => byte,
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            _ => {
                self.out.extend_from_slice(b"\\u00");
                self.out.push(DIGITS[usize::from(byte >> 4)]);
                self.out.push(DIGITS[usize::from(byte & 15)]);
                return;
            }
        };
        self.out.extend_from_slice(&[b'\\', letter]);
    }
}

impl From<Writer> for QlessReply {
    fn from(json: Writer) -> Self {
        Self::Text(json.finish().into())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ganger_types::qless::QlessTag;
    use proptest::prelude::*;

    use super::Writer;

    fn written(write: impl FnOnce(&mut Writer)) -> String {
        let mut writer = Writer::default();
        write(&mut writer);
        String::from_utf8(writer.finish()).expect("the test writes UTF-8")
    }

    #[test]
    fn commas_are_put_between_values_and_nowhere_else() {
        let text = written(|it| {
            it.begin();
            it.key("a").number(1.0);
            it.key("b").strings(["x", "", "{"]);
            it.key("c").begin();
            it.key("").boolean(false);
            it.end();
            it.key("d").raw(b"[[]]");
            it.key("e").list([0, 2], Writer::count);
            it.end();
        });
        assert_eq!(
            text,
            r#"{"a":1,"b":["x","","{"],"c":{"":false},"d":[[]],"e":[0,2]}"#
        );
    }

    #[test]
    fn an_empty_list_is_written_as_an_empty_object() {
        assert_eq!(written(|it| it.strings([""; 0])), "{}");
        assert_eq!(written(|it| it.tags(&[])), "{}");
    }

    #[test]
    fn tags_keep_their_type() {
        let tags = [QlessTag::Number(1.5), QlessTag::Text(Bytes::from("1.5"))];
        assert_eq!(written(|it| it.tags(&tags)), r#"[1.5,"1.5"]"#);
    }

    #[test]
    fn strings_are_escaped_by_the_habits_of_the_encoder() {
        let text = written(|it| it.string("a\"b\\c/d\u{8}\u{c}\n\r\t\u{0}\u{1f}\u{7f}\u{e9}"));
        assert_eq!(
            text,
            concat!(r#""a\"b\\c\/d\b\f\n\r\t\u0000\u001f\u007f"#, "\u{e9}\"")
        );
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_written_as_they_are() {
        let mut writer = Writer::default();
        writer.string(b"\xff\x80");
        assert_eq!(writer.finish(), b"\"\xff\x80\"");
    }

    proptest! {
        #[test]
        fn a_strict_reader_reads_what_was_written(texts in proptest::collection::vec(".*", 1..5), number in -1e300..1e300_f64) {
            let text = written(|it| {
                it.begin();
                it.key("texts").strings(&texts);
                it.key("number").number(number);
                it.end();
            });
            let value: serde_json::Value = serde_json::from_str(&text).expect("what was written is JSON");
            prop_assert_eq!(&value["texts"], &serde_json::json!(texts));
            let near = value["number"].as_f64().expect("a number");
            prop_assert!((near - number).abs() <= number.abs() * 1e-13);
        }
    }
}
