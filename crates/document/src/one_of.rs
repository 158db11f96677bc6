//! Fields that take one of a few words.

use std::borrow::Cow;

use ganger_types::command::TakeMode;
use ganger_types::{CatchUp, Clock, DueOrder, FailurePolicy, JobState, Overlap, Words};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// A value of an enumeration, written as its word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneOf<T>(pub T);

// Schemas are derived from field types without parameters, hence a name for each.
/// A word of [`FailurePolicy`].
pub type PolicyWord = OneOf<FailurePolicy>;
/// A word of [`JobState`].
pub type StateWord = OneOf<JobState>;
/// A word of [`DueOrder`].
pub type DueOrderWord = OneOf<DueOrder>;
/// A word of [`Clock`].
pub type ClockWord = OneOf<Clock>;
/// A word of [`CatchUp`].
pub type CatchUpWord = OneOf<CatchUp>;
/// A word of [`Overlap`].
pub type OverlapWord = OneOf<Overlap>;
/// A word of [`TakeMode`].
pub type TakeModeWord = OneOf<TakeMode>;

impl<T: Words> Serialize for OneOf<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.word())
    }
}

impl<'de, T: Words> Deserialize<'de> for OneOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_word(deserializer, T::WORDS).map(Self)
    }
}

impl<T: Words> PartialSchema for OneOf<T> {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(T::WORDS.iter().map(|(word, _)| *word)))
            .into()
    }
}

impl<T: Words> ToSchema for OneOf<T> {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed(T::NAME)
    }
}

/// For `#[serde(serialize_with)]`: a value as its word.
pub(crate) fn word<T: Words, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.word())
}

/// For `#[serde(serialize_with)]`: as [`word`], or null.
#[expect(clippy::ref_option, reason = "serde passes fields by reference")]
pub(crate) fn word_if_any<T: Words, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.map(OneOf).serialize(serializer)
}

/// Parses one of `words`. The error for any other value lists them.
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
