//! Names: short byte strings that clients choose.
//!
//! They are bytes, not text, because the Redis protocol allows any bytes; dialects that promise text check for UTF-8.
//! Cloning a name copies three words; a name of more than 22 bytes is shared by its clones.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::NAME_BYTES_MAX;
use crate::short_bytes::ShortBytes;

/// A name that is longer than [`NAME_BYTES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {bytes} bytes long, the limit is {NAME_BYTES_MAX}: choose a shorter one")]
pub struct NameError {
    /// What was named, such as `queue`.
    pub what: &'static str,
    /// Length of the refused name in bytes.
    pub bytes: usize,
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(ShortBytes);

        impl $name {
            /// Takes any bytes up to the limit of 255.
            ///
            /// # Errors
            /// If it is longer.
            pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, NameError> {
                let bytes = bytes.as_ref();
                if bytes.len() > NAME_BYTES_MAX {
                    return Err(NameError { what: $what, bytes: bytes.len() });
                }
                Ok(Self(bytes.into()))
            }

            /// A name that is a literal in the source.
            ///
            /// # Panics
            /// If it is longer than the limit.
            pub fn from_static(text: &'static str) -> Self {
                Self::new(text).expect("a name in our source is short")
            }

            /// The bytes of the name, as the client gave them.
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }

            /// The name as text; bytes that are not UTF-8 become U+FFFD.
            pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
                String::from_utf8_lossy(&self.0)
            }

            /// Whether the name is empty.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let bytes = ShortBytes::deserialize(deserializer)?;
                Self::new(&*bytes).map_err(serde::de::Error::custom)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.escape_ascii())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"{self}\"")
            }
        }
    )*};
}

names! {
    /// A namespace: a separate set of queues, jobs and keys, with its own rights and limits. `default` by default.
    Namespace = "namespace";
    /// A queue: a named line of jobs with its own settings. `default` by default.
    Queue = "queue";
    /// The kind of a job: names the program that runs it.
    Kind = "kind";
    /// The name of a job within its submission, such as `count-01`.
    JobName = "job name";
    /// The name of a worker: its host name plus random characters, new at each start.
    Worker = "worker";
    /// A tag: a word by which jobs are found and counted.
    Tag = "tag";
    /// The key of a label.
    LabelKey = "label key";
    /// The value of a label.
    LabelValue = "label value";
    /// A failure group: the common cause of failures, in a word.
    Group = "failure group";
    /// The id of a schedule.
    ScheduleId = "schedule";
    /// A key under which at most one job exists for a while.
    UniqueKey = "unique key";
    /// A key that makes a repeated submission return the answer of the first.
    IdempotencyKey = "idempotency key";
    /// A key that makes a repeated lease request return the grants of the first.
    RequestId = "request id";
    /// The name of a graph: the id of its first job.
    Graph = "graph";
}

impl Default for Kind {
    /// The empty kind, which enqueueing refuses.
    fn default() -> Self {
        Self::from_static("")
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::from_static("default")
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::from_static("default")
    }
}
