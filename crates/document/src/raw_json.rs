//! Payloads, inputs and results in JSON: opaque bytes, embedded as JSON if they are JSON.
//!
//! The convention is the same in requests and answers. A field `payload` contains any JSON value, whose exact text is
//! stored; `payload_base64` contains any bytes. Answers use the first form if the stored bytes are JSON, else the
//! second. Without bytes, both are absent.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::error::DocumentError;
use crate::json::{DEPTH_MAX, depth};

/// Standard alphabet, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Any JSON value, kept as its text.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct RawJson(pub Box<RawValue>);

impl PartialEq for RawJson {
    /// Compares the exact texts.
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

/// Bytes that JSON carries as base64 text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base64(pub Bytes);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        decode(&text).map(Self).map_err(|error| {
            serde::de::Error::custom(format_args!("not base64 of the standard alphabet: {error}"))
        })
    }
}

/// The JSON value of a text; `None` if the text is not JSON.
pub fn parse(text: &str) -> Option<RawJson> {
    serde_json::from_str(text).ok().map(RawJson)
}

/// Decodes base64 text to bytes.
///
/// # Errors
/// If the text is not base64.
pub fn decode(text: &str) -> Result<Bytes, base64::DecodeError> {
    BASE64.decode(text).map(Bytes::from)
}

/// For `#[serde(deserialize_with)]`: distinguishes `null`, which is a value, from an absent field.
///
/// # Errors
/// If the value is not JSON.
pub fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RawJson>, D::Error> {
    RawJson::deserialize(deserializer).map(Some)
}

/// The bytes of a pair of fields; `None` if both are absent. `field` is the name of the plain one.
///
/// # Errors
/// If both fields are given.
pub fn take(
    exact: Option<RawJson>,
    base64: Option<Base64>,
    field: &str,
    pointer: &str,
) -> Result<Option<Bytes>, DocumentError> {
    match (exact, base64) {
        (Some(_), Some(_)) => Err(DocumentError::new(
            "invalid_value",
            format!("{field} and {field}_base64 are both given: give one"),
        )
        .at(format!("{pointer}/{field}_base64"))),
        (Some(exact), None) => Ok(Some(Bytes::copy_from_slice(exact.0.get().as_bytes()))),
        (None, Some(base64)) => Ok(Some(base64.0)),
        (None, None) => Ok(None),
    }
}

/// Bytes as one of a pair of fields.
pub fn show(bytes: &Bytes) -> (Option<RawJson>, Option<Base64>) {
    match as_json(bytes) {
        _ if bytes.is_empty() => (None, None),
        Some(exact) => (Some(exact), None),
        None => (None, Some(Base64(bytes.clone()))),
    }
}

/// The bytes as embedded JSON; `None` if they are not JSON.
fn as_json(bytes: &[u8]) -> Option<RawJson> {
    if depth(bytes) > DEPTH_MAX {
        return None;
    }
    serde_json::from_slice(bytes).ok().map(RawJson)
}

/// The media type of stored bytes that are sent unchanged.
pub fn media_type(bytes: &[u8]) -> &'static str {
    if as_json(bytes).is_some() {
        "application/json"
    } else {
        "application/octet-stream"
    }
}

impl PartialSchema for RawJson {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .description(Some("Any JSON value; its exact text is kept."))
            .into()
    }
}

impl ToSchema for RawJson {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("AnyJson")
    }
}

impl PartialSchema for Base64 {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Byte)))
            .into()
    }
}

impl ToSchema for Base64 {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Base64")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_shown_as_json_and_other_bytes_as_base64() {
        let shown = |bytes: &'static [u8]| {
            let (exact, base64) = show(&Bytes::from_static(bytes));
            (exact.map(|it| it.0.get().to_owned()), base64.is_some())
        };
        assert_eq!(
            shown(b"{\"a\":  1.0}"),
            (Some("{\"a\":  1.0}".to_owned()), false)
        );
        assert_eq!(shown(b"null"), (Some("null".to_owned()), false));
        assert_eq!(shown(b"hello"), (None, true));
        assert_eq!(shown(b"\xff"), (None, true));
        assert_eq!(shown(b""), (None, false));
    }
}
