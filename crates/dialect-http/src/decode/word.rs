//! Fields that take one of a few words.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Reads one of `words`. Other strings and other values are refused with the words there are.
pub(crate) fn read_word<'de, T: Copy, D: Deserializer<'de>>(
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
                $crate::decode::word::read_word(deserializer, &[$(($word, <$type>::$value)),+])
            }
        }
    };
}
pub(crate) use words;
