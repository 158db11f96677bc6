//! Raw keys: strings with an expiry, and lists, as in Redis.
//!
//! Names, elements and values are any bytes. A list that becomes empty no longer exists. An expired key counts as
//! absent for every call at once.

use std::time::Duration;

use bytes::Bytes;

use crate::name::Namespace;
use crate::time::{Elapsed, Timestamp};

/// Calls on the keys of a namespace, applied in order, with nothing in between, in one commit. Each is accepted or
/// refused by itself; a refused call does not undo earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCalls {
    /// The namespace that owns the keys.
    pub namespace: Namespace,
    /// Watched keys with the revisions that [`KeyCall::Revision`] returned. If one has changed, no call is applied.
    pub watched: Vec<(Bytes, u64)>,
    /// The calls, in the order in which they are applied.
    pub calls: Vec<KeyCall>,
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The head: index 0.
    Left,
    /// The tail: index -1.
    Right,
}

/// When a string expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The string never expires.
    Never,
    /// After this duration from now.
    After(Duration),
    /// At this wall time, converted to a duration now: later jumps of the wall clock do not change it.
    At(Timestamp),
    /// As before: the string keeps its expiry.
    Kept,
}

/// The condition for a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// The write is unconditional.
    #[default]
    Always,
    /// Only if the key does not exist.
    IfAbsent,
    /// Only if the key exists.
    IfPresent,
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// The key holds a string.
    String,
    /// The key holds a list.
    List,
}

/// One call on the keys of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields that say what their names say")]
pub enum KeyCall {
    /// Returns a string: [`KeyReply::Value`] or [`KeyReply::Nil`].
    Get { key: Bytes },
    /// Returns several strings: [`KeyReply::Options`]; a key that is not a string counts as absent.
    GetMany { keys: Vec<Bytes> },
    /// Writes a string in place of any value: [`KeyReply::Done`], or [`KeyReply::Nil`] if the condition does not
    /// hold. With `gets` it returns the old string instead, written or not, and refuses a key that holds a list.
    Set {
        key: Bytes,
        value: Bytes,
        expiry: Expiry,
        condition: Condition,
        gets: bool,
    },
    /// Writes several strings without expiry: [`KeyReply::Done`].
    SetMany { pairs: Vec<(Bytes, Bytes)> },
    /// Returns a string and removes it: [`KeyReply::Value`] or [`KeyReply::Nil`].
    GetAndDelete { key: Bytes },
    /// Appends bytes to a string, or creates it. Returns its length.
    Append { key: Bytes, value: Bytes },
    /// Adds to the whole number in a string, 0 if there is none. Returns the sum; the expiry stays.
    Add { key: Bytes, by: i64 },
    /// Returns the length of a string in bytes; 0 if there is none.
    StringLength { key: Bytes },
    /// Removes keys. Returns how many existed.
    Delete { keys: Vec<Bytes> },
    /// Returns how many of the keys exist; a key that is named twice counts twice.
    Exists { keys: Vec<Bytes> },
    /// Returns the type of a key's value: [`KeyReply::Kind`].
    Kind { key: Bytes },
    /// Returns a page of the names that match a glob pattern, in the order of their bytes: [`KeyReply::Names`].
    Names {
        pattern: Bytes,
        /// Only names after this one.
        after: Option<Bytes>,
        /// Whether to refuse the call with [`KeyError::ReplyTooLarge`] if the names do not fit on one page.
        is_whole: bool,
    },
    /// Returns a page of names: [`KeyReply::Page`]. A key that exists from the first page to the last is returned
    /// exactly once.
    Scan {
        /// 0 for the first page, then the cursor that the previous page returned.
        cursor: u64,
        /// Approximate number of keys to look at, up to [`crate::limits::KEY_PAGE_KEYS_MAX`].
        count: u64,
        /// Only names that match this glob pattern.
        pattern: Option<Bytes>,
        /// Only keys of this type.
        kind: Option<KeyKind>,
    },
    /// Returns the number of keys.
    Count,
    /// Removes all keys: [`KeyReply::Done`].
    Clear,
    /// Sets or removes the expiry. Returns 1 if it did, 0 if the key does not exist or [`Expiry::Never`] found no
    /// expiry. An expiry in the past removes the key.
    Expire { key: Bytes, expiry: Expiry },
    /// Returns the time until a key expires: [`KeyReply::TimeLeft`].
    TimeLeft { key: Bytes },
    /// Adds elements at an end of a list, one after the other. Returns the length, or 0 if there is no list and the
    /// condition is [`Condition::IfPresent`].
    Push {
        key: Bytes,
        end: End,
        values: Vec<Bytes>,
        condition: Condition,
    },
    /// Removes elements from an end of a list and returns them: without a count one element or [`KeyReply::Nil`];
    /// with a count [`KeyReply::Values`], or [`KeyReply::NilList`] if there is no list.
    Pop {
        key: Bytes,
        end: End,
        count: Option<u64>,
    },
    /// Moves an element from an end of a list to an end of another, or of the same list. Returns it, or
    /// [`KeyReply::Nil`].
    Move {
        from: Bytes,
        to: Bytes,
        from_end: End,
        to_end: End,
    },
    /// Returns the length of a list; 0 if there is none.
    Length { key: Bytes },
    /// Returns the elements from one index to another, both included: [`KeyReply::Values`]. Negative indexes count
    /// from the end.
    Range { key: Bytes, start: i64, stop: i64 },
    /// Removes up to `count` elements that equal a value: from the left, from the right if `count` is negative, all
    /// if it is 0. Returns how many.
    Remove {
        key: Bytes,
        count: i64,
        value: Bytes,
    },
    /// Returns the element at an index, or [`KeyReply::Nil`].
    ElementAt { key: Bytes, index: i64 },
    /// Replaces the element at an index: [`KeyReply::Done`].
    SetElement {
        key: Bytes,
        index: i64,
        value: Bytes,
    },
    /// Inserts an element before or after the first one that equals the pivot. Returns the length, -1 without such an
    /// element, 0 without the list.
    Insert {
        key: Bytes,
        is_before: bool,
        pivot: Bytes,
        value: Bytes,
    },
    /// Keeps only the elements from one index to another: [`KeyReply::Done`].
    Trim { key: Bytes, start: i64, stop: i64 },
    /// Returns the indexes of elements that equal a value: without a count the first as a number or
    /// [`KeyReply::Nil`]; with a count [`KeyReply::Indexes`], all if it is 0.
    Find {
        key: Bytes,
        value: Bytes,
        /// Number of the first match to return, from 1; negative: counted from the right. Not 0.
        rank: i64,
        count: Option<u64>,
        /// Maximum number of elements to compare; 0: all.
        compared_max: u64,
    },
    /// Reports that the client which took `value` from the work queue `list` has disconnected. An item in processing
    /// goes back to the end that it was taken from, if no client has read its data or set a lease since. Returns 1 if
    /// it does, else 0. Does nothing if [`KeyUpkeep::put_back_after`] is `None`.
    GiveBack { list: Bytes, value: Bytes },
    /// Returns a number that changes whenever the key does; 0 while it does not exist. Valid until the server stops.
    Revision { key: Bytes },
}

/// The keys that a read-only call looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyReads<'a> {
    /// The call reads these keys only.
    Keys(&'a [Bytes]),
    /// All keys of the namespace.
    All,
}

impl KeyCall {
    /// The keys that the call looks at, if it only reads; `None` if it may write.
    pub fn reads(&self) -> Option<KeyReads<'_>> {
        let keys = match self {
            Self::Get { key }
            | Self::StringLength { key }
            | Self::Kind { key }
            | Self::TimeLeft { key }
            | Self::Length { key }
            | Self::Range { key, .. }
            | Self::ElementAt { key, .. }
            | Self::Find { key, .. } => std::slice::from_ref(key),
            Self::GetMany { keys } | Self::Exists { keys } => keys,
            Self::Names { .. } | Self::Scan { .. } | Self::Count => return Some(KeyReads::All),
            _ => return None,
        };
        Some(KeyReads::Keys(keys))
    }

    /// Whether the call adds data, which a full device refuses (`rel D9`).
    pub fn is_new(&self) -> bool {
        matches!(
            self,
            Self::Set { .. }
                | Self::SetMany { .. }
                | Self::Append { .. }
                | Self::Push { .. }
                | Self::Insert { .. }
                | Self::SetElement { .. }
        )
    }

    /// Size of the values that the call carries, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Set { value, .. }
            | Self::Append { value, .. }
            | Self::Insert { value, .. }
            | Self::SetElement { value, .. } => value.len(),
            Self::SetMany { pairs } => pairs.iter().map(|(_, value)| value.len()).sum(),
            Self::Push { values, .. } => values.iter().map(Bytes::len).sum(),
            _ => 0,
        }
    }
}

/// The reply to a call on keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyReply {
    /// The call was applied and has no value to return.
    Done,
    /// The key, element or value does not exist.
    Nil,
    /// The list does not exist, and the call asked for several elements.
    NilList,
    /// A whole number, such as a length or a count.
    Number(i64),
    /// A string or an element.
    Value(Bytes),
    /// Strings, elements or names.
    Values(Vec<Bytes>),
    /// Strings that may be absent.
    Options(Vec<Option<Bytes>>),
    /// Indexes of list elements.
    Indexes(Vec<i64>),
    /// The type of a key's value; `None` if the key does not exist.
    Kind(Option<KeyKind>),
    /// The cursor of the next page, 0 after the last one, and a page of names.
    Page(u64, Vec<Bytes>),
    /// A page of names, and the last name that was looked at if there may be more.
    Names(Vec<Bytes>, Option<Bytes>),
    /// The time until a key expires.
    TimeLeft(TimeLeft),
    /// A revision, as [`KeyCall::Revision`] describes it.
    Revision(u64),
}

/// The time until a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLeft {
    /// The key does not exist.
    Absent,
    /// The key exists and never expires.
    Unlimited,
    /// Time until the key expires.
    For(Duration),
}

/// Why a call was refused. A refused call has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key holds a list where the call needs a string, or the other way round.
    #[error("the key holds another kind of value")]
    WrongKind,
    /// The string is not a whole number of 64 bits.
    #[error("the value is not an integer or out of range")]
    NotANumber,
    /// The sum is not a whole number of 64 bits.
    #[error("the sum would overflow")]
    Overflow,
    /// The list does not exist.
    #[error("there is no such key")]
    NoSuchKey,
    /// The list has no such index.
    #[error("index out of range")]
    OutOfRange,
    /// The value would be longer than [`crate::limits::KEY_VALUE_MAX`].
    #[error("the value would exceed the largest length")]
    TooLong,
    /// The pattern is longer than [`crate::limits::KEY_PATTERN_MAX`].
    #[error("the pattern exceeds the largest length")]
    PatternTooLong,
    /// The answer would exceed [`crate::limits::KEY_REPLY_BYTES_MAX`], or the answers to all calls of the commit
    /// [`crate::limits::KEY_REPLY_ELEMENTS_MAX`].
    #[error("the reply would exceed the largest length")]
    ReplyTooLarge,
    /// The calls of the commit have taken more than [`crate::limits::KEY_STEPS_MAX`] steps.
    #[error("the calls look at too many elements")]
    TooMuchWork,
}

/// The answers to [`KeyCalls`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyAnswers {
    /// One answer for each call, in order.
    Each(Vec<Result<KeyReply, KeyError>>),
    /// A watched key has changed; nothing was applied.
    Changed,
}

/// Waits until one of several lists has an element, and then removes and returns it. Clients that wait for a list are
/// served in the order in which they began to wait, in the commit of the push that serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyWait {
    /// Namespace that owns the lists.
    pub namespace: Namespace,
    /// Lists; the first one with an element is used.
    pub lists: Vec<Bytes>,
    /// End of the list from which the element is taken.
    pub end: End,
    /// List, and its end, to which the same step adds the element; `None`: none.
    pub to: Option<(Bytes, End)>,
}

/// The outcome of a wait: the list and the element, or `None` when the time is over.
pub type Popped = Result<Option<(Bytes, Bytes)>, KeyError>;

/// A raw key as stored: a string with its value, or a list without its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Number of the key, unique within the shard while the key exists. Elements are stored under it.
    pub number: u64,
    /// The namespace that owns the key.
    pub namespace: Namespace,
    /// The name of the key.
    pub name: Bytes,
    /// The string; `None` for a list.
    pub value: Option<Bytes>,
    /// Time at which the key expires on the shard's elapsed clock, which continues over restarts; `None`: never.
    pub expires_at: Option<Elapsed>,
}

/// An element of a list as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementRecord {
    /// Number of the list.
    pub list: u64,
    /// Place of the element; elements to its right have larger places.
    pub place: i64,
    /// The bytes of the element.
    pub value: Bytes,
}

/// The times after which the server repairs work queues of raw keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUpkeep {
    /// Time after which an item in processing without a lease goes back to its queue; 10 s by default. `None`: never.
    pub put_back_after: Option<Duration>,
    /// Time after which an item that is in no list and has no lease is added to its queue; 60 s by default, much
    /// longer than a producer needs between its two commands. `None`: never.
    pub rescue_after: Option<Duration>,
}

impl Default for KeyUpkeep {
    fn default() -> Self {
        Self {
            put_back_after: Some(Duration::from_secs(10)),
            rescue_after: Some(Duration::from_secs(60)),
        }
    }
}

impl KeyUpkeep {
    /// The settings without any upkeep.
    pub const OFF: Self = Self {
        put_back_after: None,
        rescue_after: None,
    };
}

/// What the upkeep of raw keys has done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpkeepCounts {
    /// Number of items that went back from processing to their queue.
    pub put_back: u64,
    /// Number of items in no list that were added to their queue.
    pub rescued: u64,
    /// Number of items that went back because their client disconnected before it used them.
    pub returned: u64,
}
