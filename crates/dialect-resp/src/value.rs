//! Replies and their encoding in each version of the protocol.

use std::borrow::Cow;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::limits::PART_BYTES;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Version 2 of the protocol (RESP2), the default.
    #[default]
    Two,
    /// Version 3 of the protocol (RESP3).
    Three,
}

/// A reply to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A word such as `OK`.
    Simple(&'static str),
    /// An error, which begins with its code. Line ends are written as spaces.
    Error(Cow<'static, str>),
    /// An error of any bytes.
    Failure(Bytes),
    /// A whole number of 64 bits.
    Number(i64),
    /// A string of any bytes.
    Bulk(Bytes),
    /// The null string, for an absent value.
    Nil,
    /// The null array, for an absent list.
    NilList,
    /// An array of any bytes.
    Bulks(Vec<Bytes>),
    /// An array of values.
    Array(Vec<Value>),
    /// A map: names with their values, in order.
    Map(Vec<(Value, Value)>),
    /// A message that is not a reply.
    Push(Vec<Value>),
    /// A number with a fraction.
    Double(f64),
    /// A text for people to read.
    Text(String),
}

impl Value {
    /// The reply `OK` of commands without another answer.
    pub const OK: Self = Self::Simple("OK");

    /// Makes an error reply with this text.
    pub fn error(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(text.into())
    }

    /// A string that is a literal in the source.
    pub fn word(text: &'static str) -> Self {
        Self::Bulk(Bytes::from_static(text.as_bytes()))
    }

    /// Approximate size in memory: the bytes, and 64 for each part.
    pub(crate) fn held(&self) -> usize {
        let within = match self {
            Self::Simple(_) | Self::Number(_) | Self::Nil | Self::NilList | Self::Double(_) => 0,
            Self::Error(text) => text.len(),
            Self::Failure(bytes) | Self::Bulk(bytes) => bytes.len(),
            Self::Text(text) => text.len(),
            Self::Bulks(all) => all.iter().map(|bytes| PART_BYTES + bytes.len()).sum(),
            Self::Array(all) | Self::Push(all) => all.iter().map(Self::held).sum(),
            Self::Map(pairs) => {
                let held = |(name, value): &(Self, Self)| name.held() + value.held();
                pairs.iter().map(held).sum()
            }
        };
        PART_BYTES + within
    }

    /// The number of parts, including itself. Parts belong to this reply alone, while bytes are shared with the keys.
    pub(crate) fn parts(&self) -> usize {
        1 + match self {
            Self::Bulks(all) => all.len(),
            Self::Array(all) | Self::Push(all) => all.iter().map(Self::parts).sum(),
            Self::Map(pairs) => pairs.len() * 2,
            _ => 0,
        }
    }

    /// Appends the encoded reply to `out`.
    pub fn write(&self, protocol: Protocol, out: &mut BytesMut) {
        let is_three = protocol == Protocol::Three;
        match self {
            Self::Simple(word) => line(out, b'+', word.as_bytes()),
            Self::Error(text) => error(out, text.as_bytes()),
            Self::Failure(text) => error(out, text),
            Self::Number(number) => header(out, b':', *number),
            Self::Bulk(bytes) => bulk(out, b'$', b"", bytes),
            Self::Nil | Self::NilList if is_three => out.put_slice(b"_\r\n"),
            Self::Nil => out.put_slice(b"$-1\r\n"),
            Self::NilList => out.put_slice(b"*-1\r\n"),
            Self::Bulks(all) => {
                length(out, b'*', all.len());
                for bytes in all {
                    bulk(out, b'$', b"", bytes);
                }
            }
            Self::Array(all) => array(out, b'*', all, protocol),
            Self::Push(all) => array(out, if is_three { b'>' } else { b'*' }, all, protocol),
            Self::Map(pairs) => {
                if is_three {
                    length(out, b'%', pairs.len());
                } else {
                    length(out, b'*', pairs.len() * 2);
                }
                for (name, value) in pairs {
                    name.write(protocol, out);
                    value.write(protocol, out);
                }
            }
            Self::Double(number) if is_three => line(out, b',', double(*number).as_bytes()),
            Self::Double(number) => bulk(out, b'$', b"", double(*number).as_bytes()),
            Self::Text(text) if is_three => bulk(out, b'=', b"txt:", text.as_bytes()),
            Self::Text(text) => bulk(out, b'$', b"", text.as_bytes()),
        }
    }
}

/// The type byte of a reply that differs between RESP3 and RESP2.
pub(crate) fn header_of(protocol: Protocol, three: u8, two: u8) -> u8 {
    match protocol {
        Protocol::Three => three,
        Protocol::Two => two,
    }
}

fn array(out: &mut BytesMut, kind: u8, all: &[Value], protocol: Protocol) {
    length(out, kind, all.len());
    for value in all {
        value.write(protocol, out);
    }
}

fn line(out: &mut BytesMut, kind: u8, text: &[u8]) {
    out.put_u8(kind);
    out.put_slice(text);
    out.put_slice(b"\r\n");
}

fn error(out: &mut BytesMut, text: &[u8]) {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let end = text.iter().rposition(|byte| !is_end(byte));
    out.put_u8(b'-');
    let text = text[..end.map_or(0, |end| end + 1)].iter();
    out.extend(text.map(|byte| if is_end(byte) { b' ' } else { *byte }));
    out.put_slice(b"\r\n");
}

fn header(out: &mut BytesMut, kind: u8, number: i64) {
    // Room for the digits of the largest number and a sign.
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(left % 10).unwrap_or_default();
        left /= 10;
        if left == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    line(out, kind, &digits[at..]);
}

pub(crate) fn length(out: &mut BytesMut, kind: u8, length: usize) {
    header(out, kind, i64::try_from(length).unwrap_or(i64::MAX));
}

pub(crate) fn bulk(out: &mut BytesMut, kind: u8, tag: &[u8], bytes: &[u8]) {
    length(out, kind, tag.len() + bytes.len());
    out.reserve(tag.len() + bytes.len() + 2);
    out.put_slice(tag);
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

/// A number with the fewest digits that parse to the same number.
fn double(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &Value, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        value.write(protocol, &mut out);
        String::from_utf8(out.to_vec()).expect("text")
    }

    #[test]
    fn each_kind_has_its_form_in_each_version() {
        let map = Value::Map(vec![(Value::word("a"), Value::Number(1))]);
        let cases = [
            (Value::OK, "+OK\r\n", "+OK\r\n"),
            (Value::error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (
                Value::Failure(Bytes::from_static(b"ERR a\n\n")),
                "-ERR a\r\n",
                "-ERR a\r\n",
            ),
            (
                Value::Number(i64::MIN),
                ":-9223372036854775808\r\n",
                ":-9223372036854775808\r\n",
            ),
            (Value::Number(0), ":0\r\n", ":0\r\n"),
            (Value::word(""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (Value::Nil, "$-1\r\n", "_\r\n"),
            (Value::NilList, "*-1\r\n", "_\r\n"),
            (
                Value::Bulks(vec![Bytes::from_static(b"x")]),
                "*1\r\n$1\r\nx\r\n",
                "*1\r\n$1\r\nx\r\n",
            ),
            (
                Value::Array(vec![Value::Nil]),
                "*1\r\n$-1\r\n",
                "*1\r\n_\r\n",
            ),
            (map, "*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n$1\r\na\r\n:1\r\n"),
            (Value::Push(vec![]), "*0\r\n", ">0\r\n"),
            (Value::Double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (
                Value::Text("a".to_owned()),
                "$1\r\na\r\n",
                "=5\r\ntxt:a\r\n",
            ),
        ];
        for (value, two, three) in cases {
            assert_eq!(written(&value, Protocol::Two), two);
            assert_eq!(written(&value, Protocol::Three), three);
        }
    }
}
