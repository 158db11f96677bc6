//! Byte strings that are cheap to clone: short ones lie in place, without a reference count that threads would share.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of bytes that lie in place: as many as fit into three words with the length.
const INLINE_MAX: usize = 22;

/// An immutable byte string.
#[derive(Clone)]
pub(crate) enum ShortBytes {
    /// Up to [`INLINE_MAX`] bytes, followed by zeros.
    Inline { len: u8, bytes: [u8; INLINE_MAX] },
    /// A longer string, shared by its clones.
    Shared(Arc<[u8]>),
}

impl From<&[u8]> for ShortBytes {
    fn from(from: &[u8]) -> Self {
        let mut bytes = [0; INLINE_MAX];
        match (bytes.get_mut(..from.len()), u8::try_from(from.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(from);
                Self::Inline { len, bytes }
            }
            _ => Self::Shared(from.into()),
        }
    }
}

impl Deref for ShortBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Self::Shared(bytes) => bytes,
        }
    }
}

/// Text as such, anything else as a list of bytes.
impl Serialize for ShortBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.serialize_bytes(self),
        }
    }
}

impl<'de> Deserialize<'de> for ShortBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrBytes)
    }
}

struct TextOrBytes;

impl<'de> Visitor<'de> for TextOrBytes {
    type Value = ShortBytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or a list of bytes")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ShortBytes, E> {
        Ok(text.as_bytes().into())
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<ShortBytes, E> {
        Ok(bytes.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ShortBytes, A::Error> {
        let mut bytes: Vec<u8> = Vec::new();
        while let Some(byte) = list.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes.as_slice().into())
    }
}

impl PartialEq for ShortBytes {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Inline { len, bytes },
                Self::Inline {
                    len: other_len,
                    bytes: other_bytes,
                },
            ) => len == other_len && bytes == other_bytes,
            (Self::Shared(bytes), Self::Shared(other)) => {
                Arc::ptr_eq(bytes, other) || bytes == other
            }
            _ => false,
        }
    }
}

impl Eq for ShortBytes {}

impl PartialOrd for ShortBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ShortBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        self.deref().cmp(other)
    }
}

impl Hash for ShortBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.deref().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_every_length_keep_their_bytes_and_order() {
        let text: Vec<u8> = (0..=255).rev().collect();
        let all: Vec<ShortBytes> = (0..=255).map(|len| text[..len].into()).collect();
        for (len, bytes) in all.iter().enumerate() {
            assert_eq!(&**bytes, &text[..len]);
            assert!(*bytes == bytes.clone());
            assert!(*bytes == ShortBytes::from(&text[..len]));
            assert!(all.iter().filter(|other| *other == bytes).count() == 1);
        }
        assert!(all.is_sorted(), "a prefix is before what it begins");
        let zeros: Vec<ShortBytes> = (0..30).map(|len| vec![0; len].as_slice().into()).collect();
        assert!(zeros.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_string_takes_three_words() {
        assert_eq!(size_of::<ShortBytes>(), 24);
        assert_eq!(size_of::<Option<ShortBytes>>(), 24);
    }
}
