//! Names as JSON text: readable if they are text, and without loss if they are not.
//!
//! Names are bytes. In JSON, a byte that is not part of valid UTF-8 is written as `\xNN` with two lower-case
//! hexadecimal digits. The backslash of a literal `\xNN` is written as `\x5c`, so that the text can be converted
//! back. All other names do not change.

use std::borrow::Cow;
use std::fmt::Write as _;

use ganger_types::limits::NAME_BYTES_MAX;
use ganger_types::{
    Graph, Group, IdempotencyKey, JobId, JobName as StoredName, Kind, LabelKey, LabelValue,
    NameError, Namespace, Queue, RequestId, ScheduleId, ShardId, Tag, UniqueKey, Worker,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// A name of the engine, which consists of bytes.
pub trait Name: Sized {
    /// The name with these bytes, at most 255.
    ///
    /// # Errors
    /// If there are more bytes than a name may have.
    fn from_bytes(bytes: &[u8]) -> Result<Self, NameError>;
    /// Bytes of the name.
    fn bytes(&self) -> &[u8];
}

macro_rules! names {
    ($($name:ident)*) => {$(
        impl Name for $name {
            fn from_bytes(bytes: &[u8]) -> Result<Self, NameError> {
                Self::new(bytes)
            }

            fn bytes(&self) -> &[u8] {
                self.as_bytes()
            }
        }
    )*};
}
names! {
    IdempotencyKey Graph Group JobId StoredName Kind LabelKey LabelValue Namespace Queue RequestId ScheduleId Tag
    UniqueKey Worker
}

/// A name on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<T>(pub T);

// Schemas are derived from field types without parameters, hence a word for each.
/// An idempotency key as text.
pub type IdempotencyKeyName = Named<IdempotencyKey>;
/// The name of a graph as text.
pub type GraphName = Named<Graph>;
/// The name of a failure group as text.
pub type GroupName = Named<Group>;
/// The id of a job as text.
pub type JobName = Named<JobId>;
/// The name that a submission gives a job as text.
pub type CalledName = Named<StoredName>;
/// The kind of a job as text.
pub type KindName = Named<Kind>;
/// The name of a namespace as text.
pub type NamespaceName = Named<Namespace>;
/// The name of a queue as text.
pub type QueueName = Named<Queue>;
/// The id of a request as text.
pub type RequestName = Named<RequestId>;
/// The id of a schedule as text.
pub type ScheduleName = Named<ScheduleId>;
/// A tag as text.
pub type TagName = Named<Tag>;
/// A unique key as text.
pub type UniqueName = Named<UniqueKey>;
/// The name of a worker as text.
pub type WorkerName = Named<Worker>;

impl<T: Name> Named<T> {
    /// The name for a text.
    ///
    /// # Errors
    /// If the name is too long.
    pub fn from_text(text: &str) -> Result<Self, NameError> {
        T::from_bytes(&read(text.as_bytes())).map(Self)
    }
}

impl<T: Name> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&show(self.0.bytes()))
    }
}

impl<'de, T: Name> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_text(&text).map_err(serde::de::Error::custom)
    }
}

impl<T> PartialSchema for Named<T> {
    fn schema() -> RefOr<Schema> {
        let about = "A name: text of at most 255 bytes; a byte that is not UTF-8 is written \\xNN.";
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(about))
            .into()
    }
}

impl<T> ToSchema for Named<T> {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Name")
    }
}

/// The first bytes of names, as text; at most as many as a name has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePrefix(pub Vec<u8>);

impl<'de> Deserialize<'de> for NamePrefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let prefix = read(String::deserialize(deserializer)?.as_bytes());
        if prefix.len() > NAME_BYTES_MAX {
            return Err(serde::de::Error::custom(format_args!(
                "a prefix of {} bytes is longer than a name, which has at most {NAME_BYTES_MAX}",
                prefix.len()
            )));
        }
        Ok(Self(prefix))
    }
}

impl PartialSchema for NamePrefix {
    fn schema() -> RefOr<Schema> {
        let about =
            "What names begin with: at most 255 bytes; a byte that is not UTF-8 is written \\xNN.";
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(about))
            .into()
    }
}

impl ToSchema for NamePrefix {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("NamePrefix")
    }
}

/// A job as requests name it: its id, or `shard/id`, as bytes. The shard that is asked decides between the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobReference(pub Vec<u8>);

impl<'de> Deserialize<'de> for JobReference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self(read(text.as_bytes())))
    }
}

impl PartialSchema for JobReference {
    fn schema() -> RefOr<Schema> {
        let about = "A job: its id, or shard/id. A byte that is not UTF-8 is written \\xNN.";
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some(about))
            .into()
    }
}

impl ToSchema for JobReference {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("JobReference")
    }
}

fn is_hex_pair(bytes: &[u8]) -> bool {
    bytes.len() >= 2
        && bytes[..2]
            .iter()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Value of a lower-case hexadecimal digit.
fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'0',
    }
}

/// Whether `\xNN` begins here.
fn is_escape(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\\x") && is_hex_pair(&bytes[2..])
}

/// The name as text.
pub fn show(bytes: &[u8]) -> Cow<'_, str> {
    if !bytes.contains(&b'\\')
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 8);
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' && is_escape(&bytes[at..]) {
                out.push_str("\\x5c");
            } else {
                out.push(character);
            }
            at += character.len_utf8();
        }
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}").expect("writing to a string cannot fail");
        }
        at += chunk.invalid().len();
    }
    Cow::Owned(out)
}

/// The name as text, as an owned string; see [`show`].
pub fn text(name: &[u8]) -> String {
    show(name).into_owned()
}

/// The global text form of a job's id, `shard/id`.
pub fn full_name(shard: &ShardId, id: &JobId) -> String {
    format!("{shard}/{}", show(id.as_bytes()))
}

/// The bytes of a name from its text; reverses [`show`].
pub fn read(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if is_escape(&text[at..]) {
            out.push(hex_digit(text[at + 2]) << 4 | hex_digit(text[at + 3]));
            at += 4;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_whatever_their_bytes() {
        let all: Vec<u8> = (0..=255).collect();
        let names: [&[u8]; 7] = [
            b"mail",
            b"App\\Jobs\\Mail",
            b"\\x41",
            b"a\xffb",
            b"\\x5cx41",
            "\u{e9}\\xe9".as_bytes(),
            &all,
        ];
        for name in names {
            assert_eq!(read(show(name).as_bytes()), name, "{:?}", show(name));
        }
        assert_eq!(show(b"App\\Jobs\\Mail"), "App\\Jobs\\Mail");
        assert_eq!(show(b"a\xffb"), "a\\xffb");
    }
}
