//! Fields that accept a string instead of an object with one important field.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize as _, Deserializer};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema as _, ToSchema};

/// A value that is written as an object, or as a string for short.
pub trait ShortOr: Sized {
    /// Type of the object form.
    type Long: DeserializeOwned;
    /// The allowed forms, for the error about any other.
    const EXPECTED: &'static str;

    /// The value for a string.
    ///
    /// # Errors
    /// If the string is not a value.
    fn short<E: Error>(text: &str) -> Result<Self, E>;

    /// The value for an object.
    fn long(long: Self::Long) -> Self;
}

/// Parses either form. It works on the value itself, so errors inside the object keep their place.
///
/// # Errors
/// If the value is neither a string nor the object.
pub fn read_short_or<'de, T: ShortOr, D: Deserializer<'de>>(
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
        T::short(text)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::Long::deserialize(MapAccessDeserializer::new(map)).map(T::long)
    }
}

/// Implements reading and the schema (`oneOf`) of a type that is [`ShortOr`].
macro_rules! or_string {
    ($type:ty as $name:literal) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::short::read_short_or(deserializer)
            }
        }

        impl utoipa::PartialSchema for $type {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $crate::short::schema::<$type>()
            }
        }

        impl utoipa::ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                std::borrow::Cow::Borrowed($name)
            }

            fn schemas(
                schemas: &mut Vec<(
                    String,
                    utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>,
                )>,
            ) {
                $crate::short::schemas::<$type>(schemas);
            }
        }
    };
}
pub(crate) use or_string;

/// A string, or the object.
pub fn schema<T: ShortOr<Long: ToSchema>>() -> RefOr<Schema> {
    OneOfBuilder::new()
        .item(ObjectBuilder::new().schema_type(Type::String))
        .item(Ref::from_schema_name(T::Long::name()))
        .into()
}

/// The schemas that [`schema`] refers to.
pub fn schemas<T: ShortOr<Long: ToSchema>>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::Long::name().into_owned(), T::Long::schema()));
    T::Long::schemas(schemas);
}
