//! The parser: the kind of a value, lists of tags or job ids, and objects whose values are written again.
//!
//! It keeps open containers on a stack of its own, so that no text causes deep recursion, and refuses more than 1000
//! levels as the script does. Strings may contain any bytes, including control characters. The parser accepts the words
//! `NaN` and `Infinity` in texts that are kept unchanged, because clients write them and the script accepts them.

mod scalars;

use std::fmt;

use bytes::Bytes;
use ganger_types::qless::{QlessRefusal, QlessTag};

use super::write::Writer;

/// Maximum depth of nested lists and objects.
const DEPTH_MAX: usize = 1000;

/// The kind of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    False,
    True,
    Number,
    Text,
    List,
    Object,
}

/// Why a text is not the JSON that was expected, in words like the script's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonError {
    /// Name of what the reader expected.
    expected: &'static str,
    /// Offset of the error in the text, in bytes from 0.
    at: usize,
}

impl fmt::Display for JsonError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected, at } = self;
        write!(
            out,
            "Expected {expected} but found invalid token at character {}",
            at + 1
        )
    }
}

impl From<JsonError> for QlessRefusal {
    fn from(wrong: JsonError) -> Self {
        Self(wrong.to_string().into())
    }
}

/// Returns the kind of the value in `text`.
///
/// # Errors
/// If it is not JSON.
pub(crate) fn kind(text: &[u8]) -> Result<Kind, JsonError> {
    let mut reader = Reader { text, at: 0 };
    let kind = reader.value(&mut Discard)?;
    reader.finish()?;
    Ok(kind)
}

/// Reads a list of strings and numbers. The empty object counts as an empty list, since the writer writes that.
pub(crate) fn list(text: &[u8]) -> Result<Vec<QlessTag>, JsonError> {
    let mut reader = Reader { text, at: 0 };
    let mut items = Vec::new();
    if reader.skip_token(b'{') {
        reader.expect(b'}', "an empty object or an array")?;
    } else {
        reader.expect(b'[', "an array")?;
        if !reader.skip_token(b']') {
            loop {
                items.push(reader.list_item()?);
                if !reader.skip_token(b',') {
                    break;
                }
            }
            reader.expect(b']', "comma or array end")?;
        }
    }
    reader.finish()?;
    Ok(items)
}

/// Reads an object. Returns each key once, in order of keys, with its value as the writer formats it. The last value of
/// a repeated key counts. An empty list counts as an empty object.
pub(crate) fn object(text: &[u8]) -> Result<Vec<(Bytes, Bytes)>, JsonError> {
    let mut reader = Reader { text, at: 0 };
    let mut members: Vec<(Bytes, Bytes)> = Vec::new();
    if reader.skip_token(b'[') {
        reader.expect(b']', "an object")?;
    } else {
        reader.expect(b'{', "an object")?;
        if !reader.skip_token(b'}') {
            loop {
                let key: Bytes = reader.key()?.into();
                let mut writer = Rewriter(Writer::default());
                reader.value(&mut writer)?;
                let value: Bytes = writer.0.finish().into();
                members.push((key, value));
                if !reader.skip_token(b',') {
                    break;
                }
            }
            reader.expect(b'}', "comma or object end")?;
        }
    }
    reader.finish()?;
    Ok(last_of_each(members))
}

/// Reads an array. Returns its values as the writer formats them. The empty object counts as an empty array.
pub(crate) fn values(text: &[u8]) -> Result<Vec<Bytes>, JsonError> {
    let mut reader = Reader { text, at: 0 };
    let mut values = Vec::new();
    if reader.skip_token(b'{') {
        reader.expect(b'}', "an empty object or an array")?;
    } else {
        reader.expect(b'[', "an array")?;
        if !reader.skip_token(b']') {
            loop {
                let mut writer = Rewriter(Writer::default());
                reader.value(&mut writer)?;
                values.push(writer.0.finish().into());
                if !reader.skip_token(b',') {
                    break;
                }
            }
            reader.expect(b']', "comma or array end")?;
        }
    }
    reader.finish()?;
    Ok(values)
}

/// Keeps the last member of each key, in order of keys.
fn last_of_each(mut members: Vec<(Bytes, Bytes)>) -> Vec<(Bytes, Bytes)> {
    members.reverse();
    members.sort_by(|left, right| left.0.cmp(&right.0));
    members.dedup_by(|later, kept| later.0 == kept.0);
    members
}

/// Receiver of the parts of a value while it is parsed.
trait Sink {
    fn begin(&mut self, container: Container, is_empty: bool);
    fn end(&mut self, container: Container);
    fn key(&mut self, key: Vec<u8>);
    fn text(&mut self, text: Vec<u8>);
    /// Receives a number; returns whether it accepts the number.
    fn number(&mut self, number: f64) -> bool;
    fn word(&mut self, word: &'static str);
    /// Whether the receiver needs the content of texts. If not, they are only checked.
    const WANTS_TEXT: bool;
}

/// Drops the parts of a value of which only the kind matters.
struct Discard;

impl Sink for Discard {
    const WANTS_TEXT: bool = false;
    fn begin(&mut self, _: Container, _: bool) {}
    fn end(&mut self, _: Container) {}
    fn key(&mut self, _: Vec<u8>) {}
    fn text(&mut self, _: Vec<u8>) {}
    fn number(&mut self, _: f64) -> bool {
        true
    }
    fn word(&mut self, _: &'static str) {}
}

/// Writes the value again, as the writer formats it.
struct Rewriter(Writer);

impl Sink for Rewriter {
    const WANTS_TEXT: bool = true;

    fn begin(&mut self, container: Container, is_empty: bool) {
        match container {
            _ if is_empty => self.0.raw(b"{}"),
            Container::List => self.0.begin_list(),
            Container::Object => self.0.begin(),
        }
    }

    fn end(&mut self, container: Container) {
        match container {
            Container::List => self.0.end_list(),
            Container::Object => self.0.end(),
        }
    }

    fn key(&mut self, key: Vec<u8>) {
        self.0.key(key);
    }

    fn text(&mut self, text: Vec<u8>) {
        self.0.string(text);
    }

    fn number(&mut self, number: f64) -> bool {
        self.0.number(number);
        number.is_finite()
    }

    fn word(&mut self, word: &'static str) {
        self.0.raw(word.as_bytes());
    }
}

/// A JSON value that contains other values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    List,
    Object,
}

/// The position in a text that is parsed from its beginning.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// Reads a complete value and returns its kind.
    fn value<S: Sink>(&mut self, sink: &mut S) -> Result<Kind, JsonError> {
        let mut open = Vec::new();
        let mut outermost = None;
        loop {
            let (kind, opened) = self.begin_value(sink)?;
            outermost.get_or_insert(kind);
            if open.len() == DEPTH_MAX && matches!(kind, Kind::List | Kind::Object) {
                return Err(self.error("less depth"));
            }
            if let Some(container) = opened {
                open.push(container);
            } else if self.close(&mut open, sink)? {
                return Ok(outermost.unwrap_or(kind));
            }
        }
    }

    /// Reads a simple value or an empty container completely, or the beginning of a container up to its first value.
    /// Returns the container if one is open now.
    fn begin_value<S: Sink>(
        &mut self,
        sink: &mut S,
    ) -> Result<(Kind, Option<Container>), JsonError> {
        self.skip_spaces();
        let kind = match self.peek() {
            Some(b'[') => return self.open(Container::List, sink),
            Some(b'{') => return self.open(Container::Object, sink),
            Some(b'"') => {
                if S::WANTS_TEXT {
                    let text = self.string()?;
                    sink.text(text);
                } else {
                    self.skip_string()?;
                }
                Kind::Text
            }
            Some(b'-' | b'0'..=b'9' | b'N' | b'I') => {
                let number = self.number()?;
                if !sink.number(number) {
                    return Err(self.error("finite number"));
                }
                Kind::Number
            }
            Some(b't') => self.word("true", Kind::True, sink)?,
            Some(b'f') => self.word("false", Kind::False, sink)?,
            Some(b'n') => self.word("null", Kind::Null, sink)?,
            _ => return Err(self.error("value")),
        };
        Ok((kind, None))
    }

    fn open<S: Sink>(
        &mut self,
        container: Container,
        sink: &mut S,
    ) -> Result<(Kind, Option<Container>), JsonError> {
        self.at += 1;
        let (kind, end) = match container {
            Container::List => (Kind::List, b']'),
            Container::Object => (Kind::Object, b'}'),
        };
        let is_empty = self.skip_token(end);
        sink.begin(container, is_empty);
        if !is_empty && container == Container::Object {
            self.member::<S>(sink)?;
        }
        Ok((kind, (!is_empty).then_some(container)))
    }

    /// Closes the containers that end after a value. Returns whether none is open now; if not, another value follows.
    fn close<S: Sink>(
        &mut self,
        open: &mut Vec<Container>,
        sink: &mut S,
    ) -> Result<bool, JsonError> {
        while let Some(&container) = open.last() {
            if self.skip_token(b',') {
                if container == Container::Object {
                    self.member::<S>(sink)?;
                }
                return Ok(false);
            }
            match container {
                Container::List => self.expect(b']', "comma or array end")?,
                Container::Object => self.expect(b'}', "comma or object end")?,
            }
            sink.end(container);
            open.pop();
        }
        Ok(true)
    }

    fn member<S: Sink>(&mut self, sink: &mut S) -> Result<(), JsonError> {
        if S::WANTS_TEXT {
            let key = self.key()?;
            sink.key(key);
            Ok(())
        } else {
            self.expect_key()?;
            self.skip_string()?;
            self.expect(b':', "colon")
        }
    }

    /// Reads a key and the colon after it.
    fn key(&mut self) -> Result<Vec<u8>, JsonError> {
        self.expect_key()?;
        let key = self.string()?;
        self.expect(b':', "colon")?;
        Ok(key)
    }

    /// Checks that a key begins here.
    fn expect_key(&mut self) -> Result<(), JsonError> {
        self.skip_spaces();
        if self.peek() == Some(b'"') {
            Ok(())
        } else {
            Err(self.error("object key string"))
        }
    }

    /// Reads an element of a list of tags.
    fn list_item(&mut self) -> Result<QlessTag, JsonError> {
        self.skip_spaces();
        match self.peek() {
            Some(b'"') => Ok(QlessTag::Text(self.string()?.into())),
            Some(b'-' | b'0'..=b'9') => {
                let number = self.number()?;
                if number.is_finite() {
                    Ok(QlessTag::Number(number))
                } else {
                    Err(self.error("finite number"))
                }
            }
            _ => Err(self.error("string or number")),
        }
    }

    /// Checks that only spaces follow up to the end of the text.
    fn finish(&mut self) -> Result<(), JsonError> {
        self.skip_spaces();
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(self.error("the end"))
        }
    }

    fn word<S: Sink>(
        &mut self,
        word: &'static str,
        kind: Kind,
        sink: &mut S,
    ) -> Result<Kind, JsonError> {
        self.literal(word)?;
        sink.word(word);
        Ok(kind)
    }
}

#[cfg(test)]
mod tests;
