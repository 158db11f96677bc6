//! Reading JSON so that every number keeps its text and no member's name has a hidden meaning.
//!
//! `serde_json` passes numbers that are no usual integers around as an object with one member of a secret name. Read the plain way,
//! such an object in a request turns into a number, or into a document of its own that is not counted as nesting. Here an
//! object is an object, whatever its members are called. Nesting is bounded by `serde_json`'s own limit of 128 levels.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::Entity;

/// Reads one document. Of members with the same name the last wins.
pub(crate) fn parse(text: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(text).map(|ExactValue(value)| value)
}

/// A JSON value that keeps the digits of its numbers.
struct ExactValue(Value);

impl<'de> Deserialize<'de> for ExactValue {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let mut is_owned = false;
        let seed = ValueSeed {
            is_owned: &mut is_owned,
        };
        seed.deserialize(input).map(Self)
    }
}

/// An object; for members of documents that are read into a struct.
pub(crate) struct ExactObject(pub(crate) Entity);

impl<'de> Deserialize<'de> for ExactObject {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        match ExactValue::deserialize(input)?.0 {
            Value::Object(object) => Ok(Self(object)),
            _ => Err(D::Error::custom("an entity is not an object")),
        }
    }
}

/// Reads a value, and tells whether it was a text that was handed over as owned.
///
/// Texts of a document come borrowed, from the document or from the reader's buffer. The only owned one is that of a
/// number, as the member of the object that stands for it.
struct ValueSeed<'a> {
    is_owned: &'a mut bool,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        *self.is_owned = true;
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(ExactValue(item)) = list.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let mut is_owned = false;
            let value = map.next_value_seed(ValueSeed {
                is_owned: &mut is_owned,
            })?;
            match value {
                Value::String(text) if is_owned => return number(&text),
                value => object.insert(name, value),
            };
        }
        Ok(Value::Object(object))
    }
}

fn number<E: Error>(text: &str) -> Result<Value, E> {
    text.parse::<Number>().map(Value::Number).map_err(E::custom)
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn again(text: &str) -> String {
        parse(text.as_bytes()).expect("it is JSON").to_string()
    }

    #[test]
    fn numbers_keep_their_text() {
        let text = r#"[1180591620717411303424,-0,0.10,1e+400,{"a":-12.50},23.3]"#;
        assert_eq!(again(text), text);
    }

    #[test]
    fn the_last_of_members_with_one_name_wins_in_the_place_of_the_first() {
        assert_eq!(again(r#"{"a":1,"b":2,"a":[]}"#), r#"{"a":[],"b":2}"#);
    }

    #[test]
    fn an_object_that_looks_like_a_number_inside_stays_an_object() {
        for text in [
            r#"{"$serde_json::private::Number":"12"}"#,
            r#"{"$serde_json::private::Number":12}"#,
            r#"{"$serde_json::private::Number":{}}"#,
            r#"{"$serde_json::private::RawValue":"[1,2]"}"#,
            r#"{"$serde_json::private::Number":"a\nb","b":1}"#,
        ] {
            assert_eq!(again(text), text);
        }
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(parse(nested(127).as_bytes()).is_ok());
        assert!(parse(nested(128).as_bytes()).is_err());
        assert!(parse(nested(100_000).as_bytes()).is_err());
    }

    #[test]
    fn what_follows_the_document_is_an_error() {
        assert!(parse(b"{} {}").is_err());
        assert!(parse(b" {} \n").is_ok());
        assert!(parse(b"").is_err());
        assert!(parse(b"\"\xff\"").is_err());
        assert!(parse(b"NaN").is_err());
    }
}
