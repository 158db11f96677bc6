//! Names: short byte strings that users choose.
//!
//! They are bytes, not text, because the protocols we stand in for allow any bytes; dialects that
//! promise text check for UTF-8 at their edge. Cloning is a reference count.

use std::fmt;
use std::sync::Arc;

use crate::limits::NAME_BYTES_MAX;

/// A name that is longer than [`NAME_BYTES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {bytes} bytes long, the limit is {NAME_BYTES_MAX}: choose a shorter one")]
pub struct NameError {
    /// What the name is of, such as `queue`.
    pub what: &'static str,
    /// Length of the refused name in bytes.
    pub bytes: usize,
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<[u8]>);

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

            /// A name written in our own source.
            ///
            /// # Panics
            /// If it is longer than the limit.
            pub fn from_static(text: &'static str) -> Self {
                Self::new(text).expect("a name in our source is short")
            }

            /// The bytes as the user gave them.
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }

            /// The name as text; bytes that are not UTF-8 become U+FFFD.
            pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
                String::from_utf8_lossy(&self.0)
            }

            /// Whether it has no bytes.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
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
    /// A tenant: isolates names, rights and quotas. The default one is `default`.
    Namespace = "namespace";
    /// A named line of jobs with its own limits and pause. The default one is `default`.
    Queue = "queue";
    /// Which program runs the job.
    Kind = "kind";
    /// How a submission calls one of its jobs, such as `count-01`.
    JobName = "job name";
    /// Who leases: host name plus something random, new at each start.
    Worker = "worker";
    /// A word put on a job, for finding it again.
    Tag = "tag";
    /// The key of a label.
    LabelKey = "label key";
    /// The value of a label.
    LabelValue = "label value";
    /// Failures of one cause, as in qless.
    Group = "failure group";
    /// The id of a recurring schedule.
    ScheduleId = "schedule";
    /// A key under which at most one job exists for a while.
    UniqueKey = "unique key";
    /// A key that makes a repeated submission return the first one's answer.
    IdempotencyKey = "idempotency key";
    /// A key that makes a repeated lease request return the first one's grants.
    RequestId = "request id";
    /// Jobs submitted together with their edges; named by its first job's id.
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
