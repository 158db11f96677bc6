//! Parses JSON so that numbers keep their text and no member's name has a special meaning.
//!
//! `serde_json` represents numbers that are not small integers internally as an object with one member of a private
//! name. With its own `Value`, such an object in a request would become a number, or a nested document that escapes the
//! depth limit. Here an object stays an object, whatever its members are called. `serde_json` limits nesting to 128
//! levels.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::Entity;

/// Parses one document. Of members with the same name the last one wins.
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

/// A JSON object that keeps the digits of its numbers, for fields of deserialized structs.
pub(crate) struct ExactObject(pub(crate) Entity);

impl<'de> Deserialize<'de> for ExactObject {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        match ExactValue::deserialize(input)?.0 {
            Value::Object(object) => Ok(Self(object)),
            _ => Err(D::Error::custom("an entity is not an object")),
        }
    }
}

/// Deserializes a value, and records whether it was passed as an owned string.
///
/// `serde_json` passes strings of the document borrowed, from the document or from its buffer. It passes only the text of
/// a number owned, as the member of the object that represents the number.
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
        parse(text.as_bytes()).expect("valid JSON").to_string()
    }

    #[test]
    fn numbers_keep_their_text() {
        let text = r#"[1180591620717411303424,-0,0.10,1e+400,{"a":-12.50},23.3]"#;
        assert_eq!(again(text), text);
    }

    #[test]
    fn the_last_of_members_with_one_name_wins_at_the_position_of_the_first() {
        assert_eq!(again(r#"{"a":1,"b":2,"a":[]}"#), r#"{"a":[],"b":2}"#);
    }

    #[test]
    fn an_object_that_looks_like_serde_jsons_number_stays_an_object() {
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
    fn nesting_is_limited() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(parse(nested(127).as_bytes()).is_ok());
        assert!(parse(nested(128).as_bytes()).is_err());
        assert!(parse(nested(100_000).as_bytes()).is_err());
    }

    #[test]
    fn text_after_the_document_is_an_error() {
        assert!(parse(b"{} {}").is_err());
        assert!(parse(b" {} \n").is_ok());
        assert!(parse(b"").is_err());
        assert!(parse(b"\"\xff\"").is_err());
        assert!(parse(b"NaN").is_err());
    }
}
