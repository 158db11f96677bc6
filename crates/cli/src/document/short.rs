//! Short forms: a string where an object with one important field would say the same, and fields that take
//! one of a few words.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A value that is written as an object, or in short as a string.
pub(super) trait ShortOr: Sized {
    /// Type of the object form.
    type Long: DeserializeOwned;
    /// What to write here.
    const EXPECTED: &'static str;

    /// The value that a string stands for.
    fn short(text: &str) -> Self;

    /// The value that an object stands for.
    fn long(long: Self::Long) -> Self;
}

/// Reads either the short form or the object form.
pub(super) fn read_short_or<'de, T: ShortOr, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Either(PhantomData))
}

struct Either<T>(PhantomData<T>);

impl<'de, T: ShortOr> Visitor<'de> for Either<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Ok(T::short(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::Long::deserialize(MapAccessDeserializer::new(map)).map(T::long)
    }
}

/// Reads one of `words`. Other strings and other values are refused with the words there are.
pub(super) fn read_word<'de, T: Copy, D: Deserializer<'de>>(
    deserializer: D,
    words: &[(&str, T)],
) -> Result<T, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    let text: Option<String> = serde_json::from_str(raw.get()).ok();
    let found = words
        .iter()
        .find(|(word, _)| Some(*word) == text.as_deref());
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let shown: String = raw.get().chars().take(60).collect();
        D::Error::custom(format_args!("expected {}, not {shown}", known.join(" or ")))
    })
}

/// Implements reading of an enumeration from its words.
macro_rules! words {
    ($type:ty { $($word:literal => $value:ident),+ $(,)? }) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                super::short::read_word(deserializer, &[$(($word, <$type>::$value)),+])
            }
        }
    };
}
pub(super) use words;
