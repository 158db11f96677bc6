//! Encoding of replies in parts, so that a large reply is never copied as a whole.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::value::{Protocol, Value, bulk, header_of, length};

/// Length up to which a string is copied into the output with its neighbours; longer ones are a part of their own.
const SHORT_BYTES: usize = 16 << 10;

/// A reply that is being encoded.
pub(crate) struct Encoder(Vec<Part>);

/// The remainder of a part of a reply.
enum Part {
    Values(std::vec::IntoIter<Value>),
    Pairs(std::vec::IntoIter<(Value, Value)>),
    Bulks(std::vec::IntoIter<Bytes>),
    /// The rest of a string, with its line end.
    Rest(Bytes),
}

impl Encoder {
    pub(crate) fn new(value: Value) -> Self {
        Self(vec![Part::Values(vec![value].into_iter())])
    }

    /// Appends to `out` until it has about `full_at` bytes. Returns true once the reply is complete.
    pub(crate) fn fill(&mut self, protocol: Protocol, out: &mut BytesMut, full_at: usize) -> bool {
        while out.len() < full_at {
            let Some(part) = self.0.last_mut() else {
                return true;
            };
            match part {
                Part::Values(all) => match all.next() {
                    Some(value) => self.begin(value, protocol, out),
                    None => drop(self.0.pop()),
                },
                Part::Pairs(all) => match all.next() {
                    Some((name, value)) => {
                        let pair = vec![name, value];
                        self.0.push(Part::Values(pair.into_iter()));
                    }
                    None => drop(self.0.pop()),
                },
                Part::Bulks(all) => match all.next() {
                    Some(bytes) => self.begin_bulk(bytes, out),
                    None => drop(self.0.pop()),
                },
                Part::Rest(bytes) => {
                    let piece = bytes.len().min(full_at - out.len());
                    out.put_slice(&bytes[..piece]);
                    bytes.advance(piece);
                    if bytes.is_empty() {
                        out.put_slice(b"\r\n");
                        self.0.pop();
                    }
                }
            }
        }
        self.0.is_empty()
    }

    fn begin(&mut self, value: Value, protocol: Protocol, out: &mut BytesMut) {
        match value {
            Value::Bulk(bytes) => self.begin_bulk(bytes, out),
            Value::Bulks(all) => {
                length(out, b'*', all.len());
                self.0.push(Part::Bulks(all.into_iter()));
            }
            Value::Array(all) => {
                length(out, b'*', all.len());
                self.0.push(Part::Values(all.into_iter()));
            }
            Value::Push(all) => {
                let kind = header_of(protocol, b'>', b'*');
                length(out, kind, all.len());
                self.0.push(Part::Values(all.into_iter()));
            }
            Value::Map(pairs) => {
                match protocol {
                    Protocol::Three => length(out, b'%', pairs.len()),
                    Protocol::Two => length(out, b'*', pairs.len() * 2),
                }
                self.0.push(Part::Pairs(pairs.into_iter()));
            }
            Value::Text(text) => {
                let tag: &[u8] = match protocol {
                    Protocol::Three => b"txt:",
                    Protocol::Two => b"",
                };
                let kind = header_of(protocol, b'=', b'$');
                length(out, kind, tag.len() + text.len());
                out.put_slice(tag);
                self.0.push(Part::Rest(Bytes::from(text)));
            }
            other => other.write(protocol, out),
        }
    }

    fn begin_bulk(&mut self, bytes: Bytes, out: &mut BytesMut) {
        if bytes.len() <= SHORT_BYTES {
            bulk(out, b'$', b"", &bytes);
        } else {
            length(out, b'$', bytes.len());
            self.0.push(Part::Rest(bytes));
        }
    }
}

impl Value {
    /// Whether the reply is certainly short.
    pub(crate) fn is_short(&self) -> bool {
        match self {
            Self::Bulk(bytes) => bytes.len() <= SHORT_BYTES,
            Self::Bulks(_) | Self::Array(_) | Self::Map(_) | Self::Push(_) | Self::Text(_) => false,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let bytes = || {
            let length = prop_oneof![0_usize..4, Just(SHORT_BYTES + 1), Just(3 * SHORT_BYTES)];
            length.prop_map(|length| Bytes::from(vec![b'x'; length]))
        };
        let leaf = prop_oneof![
            Just(Value::OK),
            Just(Value::Nil),
            any::<i64>().prop_map(Value::Number),
            bytes().prop_map(Value::Bulk),
            vec(bytes(), 0..4).prop_map(Value::Bulks),
            bytes().prop_map(|bytes| Value::Text(String::from_utf8_lossy(&bytes).into_owned())),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::Array),
                vec(inner.clone(), 0..4).prop_map(Value::Push),
                vec((inner.clone(), inner), 0..3).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn pieces_make_the_whole_and_none_is_large(value in value(), full_at in 1_usize..20_000) {
            for protocol in [Protocol::Two, Protocol::Three] {
                let mut whole = BytesMut::new();
                value.write(protocol, &mut whole);
                let (mut encoder, mut all) = (Encoder::new(value.clone()), Vec::new());
                loop {
                    let mut out = BytesMut::new();
                    let is_done = encoder.fill(protocol, &mut out, full_at);
                    prop_assert!(out.len() < full_at + SHORT_BYTES + 64);
                    all.extend_from_slice(&out);
                    if is_done {
                        break;
                    }
                }
                prop_assert_eq!(&all[..], &whole[..]);
            }
        }
    }
}
