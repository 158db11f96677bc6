//! External systems: the raw keys of Redis clients, and qless. A shard keeps their state beside its own jobs.
//!
//! The engine, the stores and the shard pass their calls, answers and rows on without looking into them; the modules
//! [`keys`] and [`qless`] define them.

pub mod import;
pub mod keys;
pub mod qless;
mod reason;

use std::fmt::{self, Write as _};
use std::str::FromStr;

use bytes::Bytes;

use crate::change::Change;
use crate::command::Command;
use crate::cursor::CursorError;
use crate::id::JobKey;
use crate::name::Namespace;
use keys::{ElementRecord, KeyAnswers, KeyCall, KeyCalls, KeyRecord};
use qless::{QlessAnswer, QlessCall, QlessKey, QlessMessage, QlessRow};
pub use reason::ExternalReason;

/// A call of a client of an external system.
#[derive(Clone, Debug, PartialEq)]
pub enum ExternalCall {
    /// Calls on the raw keys of a namespace.
    Keys(Box<KeyCalls>),
    /// A call of qless.
    Qless(Box<QlessCall>),
}

/// The answer to an [`ExternalCall`], of the same system.
#[derive(Clone, Debug, PartialEq)]
pub enum ExternalReply {
    /// The answers to [`ExternalCall::Keys`].
    Keys(KeyAnswers),
    /// The answer to [`ExternalCall::Qless`]. The engine accepts a call that the script refuses, and the call changes
    /// nothing.
    Qless(QlessAnswer),
}

impl ExternalCall {
    /// Whether the call only reads.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Keys(cmd) => cmd.calls.iter().all(|call| call.reads().is_some()),
            Self::Qless(_) => false,
        }
    }

    /// Whether the call adds data, which a full device refuses (`rel D9`).
    pub fn is_new_work(&self) -> bool {
        match self {
            Self::Keys(cmd) => cmd.calls.iter().any(KeyCall::is_new),
            Self::Qless(cmd) => cmd.request.is_new(),
        }
    }

    /// Size of the values that the call carries, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Keys(cmd) => cmd.calls.iter().map(KeyCall::bytes).sum(),
            Self::Qless(cmd) => cmd.request.bytes(),
        }
    }
}

impl From<KeyCalls> for Command {
    fn from(calls: KeyCalls) -> Self {
        Self::External(ExternalCall::Keys(Box::new(calls)))
    }
}

impl From<QlessCall> for Command {
    fn from(call: QlessCall) -> Self {
        Self::External(ExternalCall::Qless(Box::new(call)))
    }
}

/// A message for subscribers of an external system, with the namespace whose call caused it.
pub type ExternalMessage = (Namespace, QlessMessage);

/// A row of an external system, as stored.
#[derive(Clone, Debug, PartialEq)]
pub enum ExternalRow {
    /// A raw key, with its value if that is a string.
    Key(Box<KeyRecord>),
    /// An element of a list of raw keys. It is loaded after its list.
    Element(Box<ElementRecord>),
    /// A row of qless in a namespace.
    Qless(Namespace, Box<QlessRow>),
}

/// The key of a row of an external system, unique within a shard. Keys sort in the order in which their rows are
/// loaded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExternalRowKey {
    /// The number of a raw key.
    Key(u64),
    /// The number of a list, and the place of an element in it.
    Element(u64, i64),
    /// A row of qless in a namespace.
    Qless(Namespace, QlessKey),
}

/// A durable write of an external system.
#[derive(Clone, Debug, PartialEq)]
pub enum ExternalChange {
    /// Writes a raw key.
    PutKey(Box<KeyRecord>),
    /// Removes a raw key, by its number. The elements of a list are removed one by one.
    RemoveKey(u64),
    /// Writes an element of a list.
    PutElement(Box<ElementRecord>),
    /// Removes an element: number of the list, and place.
    RemoveElement(u64, i64),
    /// Writes a row of qless.
    PutQless(Namespace, Box<QlessRow>),
    /// Removes a row of qless.
    RemoveQless(Namespace, QlessKey),
}

impl ExternalRow {
    /// The key of the row.
    pub fn key(&self) -> ExternalRowKey {
        match self {
            Self::Key(record) => ExternalRowKey::Key(record.number),
            Self::Element(record) => ExternalRowKey::Element(record.list, record.place),
            Self::Qless(namespace, row) => ExternalRowKey::Qless(namespace.clone(), row.key()),
        }
    }
}

impl ExternalChange {
    /// The key of the row that is written or removed.
    pub fn key(&self) -> ExternalRowKey {
        match self {
            Self::PutKey(record) => ExternalRowKey::Key(record.number),
            Self::RemoveKey(number) => ExternalRowKey::Key(*number),
            Self::PutElement(record) => ExternalRowKey::Element(record.list, record.place),
            Self::RemoveElement(list, place) => ExternalRowKey::Element(*list, *place),
            Self::PutQless(namespace, row) => ExternalRowKey::Qless(namespace.clone(), row.key()),
            Self::RemoveQless(namespace, key) => {
                ExternalRowKey::Qless(namespace.clone(), key.clone())
            }
        }
    }

    /// The row that is written; `None` if one is removed.
    pub fn row(&self) -> Option<ExternalRow> {
        match self {
            Self::PutKey(record) => Some(ExternalRow::Key(record.clone())),
            Self::PutElement(record) => Some(ExternalRow::Element(record.clone())),
            Self::PutQless(namespace, row) => {
                Some(ExternalRow::Qless(namespace.clone(), row.clone()))
            }
            Self::RemoveKey(_) | Self::RemoveElement(..) | Self::RemoveQless(..) => None,
        }
    }
}

impl From<ExternalChange> for Change {
    fn from(change: ExternalChange) -> Self {
        Self::External(change)
    }
}

/// A job of an external system, which has no number. Jobs of qless sort first, by id; then come items of raw keys, by
/// queue and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalJob {
    /// A job of qless: its jid.
    Qless(Bytes),
    /// An item of raw keys.
    Item {
        /// Queue of the item: the prefix of its key.
        queue: Bytes,
        /// The item's id within that queue.
        id: Bytes,
    },
}

/// The text form, which is part of a [`crate::cursor::PageCursor`]: opaque to clients.
impl fmt::Display for ExternalJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qless(jid) => write!(f, "q{}", hex(jid)),
            Self::Item { queue, id } => write!(f, "k{}-{}", hex(queue), hex(id)),
        }
    }
}

impl FromStr for ExternalJob {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        if let Some(jid) = text.strip_prefix('q') {
            return Ok(Self::Qless(unhex(jid)?));
        }
        let item = text.strip_prefix('k').ok_or(CursorError)?;
        let (queue, id) = item.split_once('-').ok_or(CursorError)?;
        let (queue, id) = (unhex(queue)?, unhex(id)?);
        Ok(Self::Item { queue, id })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Result<Bytes, CursorError> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(CursorError);
    }
    let pairs = digits.chunks_exact(2).map(|pair| {
        let pair = std::str::from_utf8(pair).map_err(|_| CursorError)?;
        u8::from_str_radix(pair, 16).map_err(|_| CursorError)
    });
    pairs
        .collect::<Result<Vec<u8>, CursorError>>()
        .map(Bytes::from)
}

impl JobKey {
    /// Placeholder for the number in the record of a job of qless, which has none. No row has this number.
    pub const OF_QLESS: Self = Self(u64::MAX);
    /// Placeholder for the number in the record of an item of raw keys. No row has this number.
    pub const OF_KEYS: Self = Self(u64::MAX - 1);

    /// Whether this is the placeholder in the record of a job of an external system.
    pub fn is_of_external_job(self) -> bool {
        self.kept_by().is_some()
    }

    /// Whether an event reports the end of the job. Items of raw keys have none: their clients just delete them.
    pub fn announces_end(self) -> bool {
        self != Self::OF_KEYS
    }

    /// The external system whose rules apply to the job: `qless`, or `keys` for raw keys. `None` for a job of the
    /// engine.
    pub fn kept_by(self) -> Option<&'static str> {
        match self {
            Self::OF_QLESS => Some("qless"),
            Self::OF_KEYS => Some("keys"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::PageCursor;

    #[test]
    fn a_cursor_at_an_external_job_is_read_back_as_it_was_written() {
        let item = |queue: &'static [u8], id: &'static [u8]| ExternalJob::Item {
            queue: Bytes::from_static(queue),
            id: Bytes::from_static(id),
        };
        for job in [
            ExternalJob::Qless(Bytes::from_static(b"a\x00\xff")),
            item(b"jobs:item", b""),
            item(b"", b"7"),
        ] {
            let cursor = PageCursor::ExternalJob(job);
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
    }
}
