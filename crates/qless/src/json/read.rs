//! The reader: what kind of value a text is, lists of tags or job ids, and objects whose values are written anew.
//!
//! It keeps what is open on a stack of its own, so that no text makes it deep, and refuses more than 1000 levels as the
//! script does. Strings may hold any bytes, control characters included. The words `NaN` and `Infinity`, which the
//! client's language writes for such numbers and the script accepts, pass in texts that are kept as they came.

use std::fmt;

use bytes::Bytes;
use ganger_types::qless::{QlessRefusal, QlessTag};

use super::write::Writer;
use crate::number;

/// Levels of lists and objects within each other that are accepted.
const DEPTH_MAX: usize = 1000;

/// What kind of value a text is.
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

/// Why a text cannot be read, in words such as the script's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// What was wanted.
    wanted: &'static str,
    /// Before how many bytes of the text.
    at: usize,
}

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, at } = self;
        write!(
            out,
            "Expected {wanted} but found invalid token at character {}",
            at + 1
        )
    }
}

impl From<Wrong> for QlessRefusal {
    fn from(wrong: Wrong) -> Self {
        Self(wrong.to_string().into())
    }
}

/// What kind of value `text` is; an error if it is not JSON.
pub(crate) fn kind(text: &[u8]) -> Result<Kind, Wrong> {
    let mut reader = Reader { text, at: 0 };
    let kind = reader.value(&mut Nowhere)?;
    reader.finish()?;
    Ok(kind)
}

/// Reads a list of strings and numbers. The empty object counts as an empty list, since the writer writes that.
pub(crate) fn list(text: &[u8]) -> Result<Vec<QlessTag>, Wrong> {
    let mut reader = Reader { text, at: 0 };
    let mut items = Vec::new();
    if reader.is_next(b'{') {
        reader.expect(b'}', "an empty object or an array")?;
    } else {
        reader.expect(b'[', "an array")?;
        if !reader.is_next(b']') {
            loop {
                items.push(reader.item()?);
                if !reader.is_next(b',') {
                    break;
                }
            }
            reader.expect(b']', "comma or array end")?;
        }
    }
    reader.finish()?;
    Ok(items)
}

/// Reads an object: its keys, each once, with their values by the habits of the writer. Of a repeated key the last value
/// counts. An empty list counts as an empty object.
pub(crate) fn object(text: &[u8]) -> Result<Vec<(Bytes, Bytes)>, Wrong> {
    let mut reader = Reader { text, at: 0 };
    let mut members: Vec<(Bytes, Bytes)> = Vec::new();
    if reader.is_next(b'[') {
        reader.expect(b']', "an object")?;
    } else {
        reader.expect(b'{', "an object")?;
        if !reader.is_next(b'}') {
            loop {
                let key: Bytes = reader.key()?.into();
                let mut writer = Anew(Writer::default());
                reader.value(&mut writer)?;
                let value: Bytes = writer.0.finish().into();
                members.push((key, value));
                if !reader.is_next(b',') {
                    break;
                }
            }
            reader.expect(b'}', "comma or object end")?;
        }
    }
    reader.finish()?;
    Ok(last_of_each(members))
}

/// Leaves the last member of each key, in the order of the keys.
fn last_of_each(mut members: Vec<(Bytes, Bytes)>) -> Vec<(Bytes, Bytes)> {
    members.reverse();
    members.sort_by(|left, right| left.0.cmp(&right.0));
    members.dedup_by(|later, kept| later.0 == kept.0);
    members
}

/// Where the parts of a value go that is read.
trait Sink {
    fn begin(&mut self, container: Container, is_empty: bool);
    fn end(&mut self, container: Container);
    fn key(&mut self, key: Vec<u8>);
    fn text(&mut self, text: Vec<u8>);
    /// Tells whether the number can go there.
    fn number(&mut self, number: f64) -> bool;
    fn word(&mut self, word: &'static str);
    /// Whether texts are wanted, or only their being right.
    const WANTS_TEXT: bool;
}

/// For a value of which only the kind is wanted.
struct Nowhere;

impl Sink for Nowhere {
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

/// Writes the value anew, by the habits of the writer.
struct Anew(Writer);

impl Sink for Anew {
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

/// What holds other values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    List,
    Object,
}

/// Reads a text from its beginning.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads a value whole and tells its kind.
    fn value<S: Sink>(&mut self, sink: &mut S) -> Result<Kind, Wrong> {
        let mut open = Vec::new();
        let mut outermost = None;
        loop {
            let (kind, opened) = self.beginning(sink)?;
            outermost.get_or_insert(kind);
            if open.len() == DEPTH_MAX && matches!(kind, Kind::List | Kind::Object) {
                return Err(self.wrong("less depth"));
            }
            if let Some(container) = opened {
                open.push(container);
            } else if self.close(&mut open, sink)? {
                return Ok(outermost.unwrap_or(kind));
            }
        }
    }

    /// Reads a simple value or an empty container whole, or the beginning of a container up to its first value.
    fn beginning<S: Sink>(&mut self, sink: &mut S) -> Result<(Kind, Option<Container>), Wrong> {
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
                    return Err(self.wrong("finite number"));
                }
                Kind::Number
            }
            Some(b't') => self.word("true", Kind::True, sink)?,
            Some(b'f') => self.word("false", Kind::False, sink)?,
            Some(b'n') => self.word("null", Kind::Null, sink)?,
            _ => return Err(self.wrong("value")),
        };
        Ok((kind, None))
    }

    fn open<S: Sink>(
        &mut self,
        container: Container,
        sink: &mut S,
    ) -> Result<(Kind, Option<Container>), Wrong> {
        self.at += 1;
        let (kind, end) = match container {
            Container::List => (Kind::List, b']'),
            Container::Object => (Kind::Object, b'}'),
        };
        let is_empty = self.is_next(end);
        sink.begin(container, is_empty);
        if !is_empty && container == Container::Object {
            self.member::<S>(sink)?;
        }
        Ok((kind, (!is_empty).then_some(container)))
    }

    /// After a value: closes what ends here. Tells whether nothing is open any more; else another value follows.
    fn close<S: Sink>(&mut self, open: &mut Vec<Container>, sink: &mut S) -> Result<bool, Wrong> {
        while let Some(&container) = open.last() {
            if self.is_next(b',') {
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

    fn member<S: Sink>(&mut self, sink: &mut S) -> Result<(), Wrong> {
        if S::WANTS_TEXT {
            let key = self.key()?;
            sink.key(key);
            Ok(())
        } else {
            self.begin_key()?;
            self.skip_string()?;
            self.expect(b':', "colon")
        }
    }

    /// Reads a key and the colon behind it.
    fn key(&mut self) -> Result<Vec<u8>, Wrong> {
        self.begin_key()?;
        let key = self.string()?;
        self.expect(b':', "colon")?;
        Ok(key)
    }

    /// A key must begin here.
    fn begin_key(&mut self) -> Result<(), Wrong> {
        self.skip_spaces();
        if self.peek() == Some(b'"') {
            Ok(())
        } else {
            Err(self.wrong("object key string"))
        }
    }

    /// Reads an element of a list of tags.
    fn item(&mut self) -> Result<QlessTag, Wrong> {
        self.skip_spaces();
        match self.peek() {
            Some(b'"') => Ok(QlessTag::Text(self.string()?.into())),
            Some(b'-' | b'0'..=b'9') => {
                let number = self.number()?;
                if number.is_finite() {
                    Ok(QlessTag::Number(number))
                } else {
                    Err(self.wrong("finite number"))
                }
            }
            _ => Err(self.wrong("string or number")),
        }
    }

    /// The end of the text must be here.
    fn finish(&mut self) -> Result<(), Wrong> {
        self.skip_spaces();
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(self.wrong("the end"))
        }
    }

    fn word<S: Sink>(
        &mut self,
        word: &'static str,
        kind: Kind,
        sink: &mut S,
    ) -> Result<Kind, Wrong> {
        self.literal(word)?;
        sink.word(word);
        Ok(kind)
    }

    fn literal(&mut self, word: &str) -> Result<(), Wrong> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.wrong("value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Reads a number; one that is too large, or one of the words for what is not finite, becomes what it says.
    fn number(&mut self) -> Result<f64, Wrong> {
        let begin = self.at;
        let is_negative = self.take(b'-');
        match self.peek() {
            Some(b'N') if !is_negative => {
                self.literal("NaN")?;
                return Ok(f64::NAN);
            }
            Some(b'I') => {
                self.literal("Infinity")?;
                return Ok(f64::INFINITY);
            }
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        Ok(number::parse(&self.text[begin..self.at]).unwrap_or(f64::INFINITY))
    }

    fn digits(&mut self) -> Result<(), Wrong> {
        let rest = self.rest();
        let count = rest.iter().take_while(|it| it.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.wrong("number"));
        }
        self.at += count;
        Ok(())
    }

    /// Passes over a string.
    fn skip_string(&mut self) -> Result<(), Wrong> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.escape()?;
                }
                Some(_) => self.at += 1,
                None => return Err(self.wrong("string end")),
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Reads a string; what its escapes stand for is in it as UTF-8.
    fn string(&mut self) -> Result<Vec<u8>, Wrong> {
        let begin = self.at + 1;
        self.skip_string()?;
        let end = self.at - 1;
        let mut inside = Reader {
            text: &self.text[..end],
            at: begin,
        };
        let mut out = Vec::with_capacity(end - begin);
        while let Some(byte) = inside.peek() {
            if byte == b'\\' {
                let letter = inside.escape()?;
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                inside.at += 1;
                out.push(byte);
            }
        }
        Ok(out)
    }

    /// Reads an escape: the backslash and what belongs to it.
    fn escape(&mut self) -> Result<char, Wrong> {
        let begin = self.at;
        self.at += 1;
        let letter = self.peek();
        self.at += 1;
        let found = match letter {
            Some(it @ (b'"' | b'\\' | b'/')) => Some(char::from(it)),
            Some(b'b') => Some('\u{8}'),
            Some(b'f') => Some('\u{c}'),
            Some(b'n') => Some('\n'),
            Some(b'r') => Some('\r'),
            Some(b't') => Some('\t'),
            Some(b'u') => self.escaped_character(),
            _ => None,
        };
        found.ok_or(Wrong {
            wanted: "escape",
            at: begin,
        })
    }

    /// Reads four hexadecimal digits, or a pair of surrogates. A lone surrogate is none, to the script as well.
    fn escaped_character(&mut self) -> Option<char> {
        let first = self.four_digits()?;
        if !(0xd800..0xe000).contains(&first) {
            return char::from_u32(first);
        }
        let is_pair = self.take(b'\\') && self.take(b'u');
        let second = is_pair.then(|| self.four_digits()).flatten()?;
        let pair = (first < 0xdc00 && (0xdc00..0xe000).contains(&second))
            .then(|| 0x1_0000 + ((first & 0x3ff) << 10) + (second & 0x3ff))?;
        char::from_u32(pair)
    }

    fn four_digits(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        let mut value = 0;
        for &digit in digits {
            value = value << 4 | char::from(digit).to_digit(16)?;
        }
        Some(value)
    }

    /// Passes over `byte`, if it is next but for spaces.
    fn is_next(&mut self, byte: u8) -> bool {
        self.skip_spaces();
        self.take(byte)
    }

    fn expect(&mut self, byte: u8, wanted: &'static str) -> Result<(), Wrong> {
        if self.is_next(byte) {
            Ok(())
        } else {
            Err(self.wrong(wanted))
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_here = self.peek() == Some(byte);
        self.at += usize::from(is_here);
        is_here
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or(&[])
    }

    fn wrong(&self, wanted: &'static str) -> Wrong {
        Wrong {
            wanted,
            at: self.at.min(self.text.len()),
        }
    }
}

#[cfg(test)]
mod tests;
