//! Raw keys: strings with an expiry, and lists, as clients of Redis know them.
//!
//! Names, elements and values are any bytes. A list that becomes empty is a key that does not exist. An expired key
//! counts as absent for every call at once.

use std::time::Duration;

use bytes::Bytes;

use crate::name::Namespace;
use crate::time::{Elapsed, Timestamp};

/// Calls on the keys of a namespace: applied in order with nothing in between, in one commit. Each is accepted or
/// refused by itself; what one has done stays done if a later one is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCalls {
    /// The namespace that owns the keys.
    pub namespace: Namespace,
    /// Keys with the revisions that [`KeyCall::Revision`] told. If one differs now, no call is applied.
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
    /// So long from now.
    After(Duration),
    /// At this time of the wall clock, as far away as it is now: later jumps of that clock do not move it.
    At(Timestamp),
    /// When it would have expired anyway.
    Kept,
}

/// When a write is made at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// The write is always made.
    #[default]
    Always,
    /// Only if the key does not exist.
    IfAbsent,
    /// Only if the key exists.
    IfPresent,
}

/// What a key holds.
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
    /// A string, as [`KeyReply::Value`] or [`KeyReply::Nil`].
    Get { key: Bytes },
    /// Several, as [`KeyReply::Options`]; what is no string reads as absent.
    GetMany { keys: Vec<Bytes> },
    /// Writes a string, in place of whatever the key held: [`KeyReply::Done`], or [`KeyReply::Nil`] if the condition
    /// does not hold. With `gets` the old string instead, written or not; a key that holds a list is then refused.
    Set {
        key: Bytes,
        value: Bytes,
        expiry: Expiry,
        condition: Condition,
        gets: bool,
    },
    /// Writes several strings without expiry: [`KeyReply::Done`].
    SetMany { pairs: Vec<(Bytes, Bytes)> },
    /// A string, which goes: [`KeyReply::Value`] or [`KeyReply::Nil`].
    GetAndDelete { key: Bytes },
    /// Puts bytes behind a string, or makes it: its length.
    Append { key: Bytes, value: Bytes },
    /// Adds to the whole number that a string holds, 0 if there is none; the expiry stays. The sum.
    Add { key: Bytes, by: i64 },
    /// Length of a string in bytes; 0 if there is none.
    StringLength { key: Bytes },
    /// Removes keys: how many there were.
    Delete { keys: Vec<Bytes> },
    /// How many of the keys exist; one that is named twice counts twice.
    Exists { keys: Vec<Bytes> },
    /// Asks what a key holds: [`KeyReply::Kind`].
    Kind { key: Bytes },
    /// Names of keys that match a glob pattern, in order of their bytes, a page at a time: [`KeyReply::Names`].
    Names {
        pattern: Bytes,
        /// Only names behind this one.
        after: Option<Bytes>,
        /// Refused as [`KeyError::ReplyTooLarge`] if one page does not suffice, rather than answered with the first.
        is_whole: bool,
    },
    /// Names, a page at a time: [`KeyReply::Page`]. A key that is there from the first page to the last comes exactly
    /// once.
    Scan {
        /// 0 for the first page, then what the last one gave.
        cursor: u64,
        /// About how many to look at, up to [`crate::limits::KEY_PAGE_KEYS_MAX`].
        count: u64,
        /// Only those that match.
        pattern: Option<Bytes>,
        /// Only those of this kind.
        kind: Option<KeyKind>,
    },
    /// How many keys there are.
    Count,
    /// Removes all keys: [`KeyReply::Done`].
    Clear,
    /// Sets or ends the expiry: 1 if the key exists and it was set, 0 if not. One in the past removes the key.
    /// [`Expiry::Never`] answers 0 too if there was none to end.
    Expire { key: Bytes, expiry: Expiry },
    /// Asks how long a key still lives: [`KeyReply::TimeLeft`].
    TimeLeft { key: Bytes },
    /// Puts elements at an end, one after the other: the length then. With [`Condition::IfPresent`] 0 if there is no
    /// such list.
    Push {
        key: Bytes,
        end: End,
        values: Vec<Bytes>,
        condition: Condition,
    },
    /// Takes from an end: an element or [`KeyReply::Nil`]; with a count [`KeyReply::Values`], or [`KeyReply::NilList`]
    /// if there is no such list.
    Pop {
        key: Bytes,
        end: End,
        count: Option<u64>,
    },
    /// Takes an element from the end of one list to the end of another, or of the same: it, or [`KeyReply::Nil`].
    Move {
        from: Bytes,
        to: Bytes,
        from_end: End,
        to_end: End,
    },
    /// Length of a list; 0 if there is none.
    Length { key: Bytes },
    /// Elements from one index to another, both included, negative ones from the end: [`KeyReply::Values`].
    Range { key: Bytes, start: i64, stop: i64 },
    /// Removes up to `count` elements equal to a value: from the left, if negative from the right, all if 0. How many.
    Remove {
        key: Bytes,
        count: i64,
        value: Bytes,
    },
    /// The element at an index, or [`KeyReply::Nil`].
    ElementAt { key: Bytes, index: i64 },
    /// Replaces the element at an index: [`KeyReply::Done`].
    SetElement {
        key: Bytes,
        index: i64,
        value: Bytes,
    },
    /// Puts an element before or behind the first one that equals the pivot: the length then; -1 if there is none such,
    /// 0 if there is no list.
    Insert {
        key: Bytes,
        is_before: bool,
        pivot: Bytes,
        value: Bytes,
    },
    /// Keeps only the elements from one index to another: [`KeyReply::Done`].
    Trim { key: Bytes, start: i64, stop: i64 },
    /// Indexes of elements equal to a value: without a count the first as a number or [`KeyReply::Nil`], with one
    /// [`KeyReply::Indexes`], all if it is 0.
    Find {
        key: Bytes,
        value: Bytes,
        /// From which match on; negative: from the right. Not 0.
        rank: i64,
        count: Option<u64>,
        /// How many elements to compare at most; 0: all.
        compared_max: u64,
    },
    /// The client that took `value` from the work queue `list` has disconnected. If it is an item that stands in
    /// processing, and nobody has asked for its data or set a lease since, it goes back to where it was next: 1, else
    /// 0. Nothing is done where [`KeyUpkeep::put_back_after`] is `None`.
    GiveBack { list: Bytes, value: Bytes },
    /// A number that changes whenever the key does; 0 while it does not exist. Good until the server ends.
    Revision { key: Bytes },
}

/// What a call looks at that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look<'a> {
    /// The call looks at these keys only.
    At(&'a [Bytes]),
    /// All keys of the namespace.
    Everywhere,
}

impl KeyCall {
    /// What it looks at, if it changes nothing.
    pub fn look(&self) -> Option<Look<'_>> {
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
            Self::Names { .. } | Self::Scan { .. } | Self::Count => return Some(Look::Everywhere),
            _ => return None,
        };
        Some(Look::At(keys))
    }

    /// Whether it brings new bytes to keep, which a full device refuses (`rel D9`).
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

    /// Bytes of values that it brings.
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

/// What a call gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyReply {
    /// The call was applied and has no value to return.
    Done,
    /// The key, element or value does not exist.
    Nil,
    /// There is no such list, where a list of elements was asked for.
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
    /// What a key holds; `None` if it does not exist.
    Kind(Option<KeyKind>),
    /// A page of names, and where to go on; 0: that was the last.
    Page(u64, Vec<Bytes>),
    /// A page of names, and the last one that was looked at if there may be more.
    Names(Vec<Bytes>, Option<Bytes>),
    /// How long a key lives yet.
    TimeLeft(TimeLeft),
    /// A revision, as [`KeyCall::Revision`] describes it.
    Revision(u64),
}

/// How long a key lives yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLeft {
    /// It does not exist.
    Absent,
    /// The key exists and never expires.
    Unlimited,
    /// Time until the key expires.
    For(Duration),
}

/// Why a call was refused. It has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key holds a list where a string is wanted, or the other way round.
    #[error("the key holds another kind of value")]
    WrongKind,
    /// The string is no whole number of 64 bits.
    #[error("the value is not an integer or out of range")]
    NotANumber,
    /// The sum is no whole number of 64 bits.
    #[error("the sum would overflow")]
    Overflow,
    /// There is no such list.
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
    /// The answer would exceed [`crate::limits::KEY_REPLY_BYTES_MAX`], or those to all calls of the commit
    /// [`crate::limits::KEY_REPLY_ELEMENTS_MAX`].
    #[error("the reply would exceed the largest length")]
    ReplyTooLarge,
    /// The calls of the commit have taken more than [`crate::limits::KEY_STEPS_MAX`].
    #[error("the calls look at too many elements")]
    TooMuchWork,
}

/// The answers to [`KeyCalls`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyAnswers {
    /// One for each call, in order.
    Each(Vec<Result<KeyReply, KeyError>>),
    /// A watched key has changed; nothing was applied.
    Changed,
}

/// Waits until one of several lists has an element, and takes it then. Those who wait for a list are served in the
/// order in which they began to wait, within the commit of the push that serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyWait {
    /// The namespace that owns the lists.
    pub namespace: Namespace,
    /// The lists; the first that has an element is taken from.
    pub lists: Vec<Bytes>,
    /// The end of the list from which the element is taken.
    pub end: End,
    /// Where the element goes within the same step, if it is to stay in a list.
    pub to: Option<(Bytes, End)>,
}

/// What came of a wait: the list and the element, or none when its time was over.
pub type Popped = Result<Option<(Bytes, Bytes)>, KeyError>;

/// A raw key as stored: a string whole, of a list that it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its number: unique within the shard while the key exists. Elements are stored under it.
    pub number: u64,
    /// The namespace that owns the key.
    pub namespace: Namespace,
    /// The name of the key.
    pub name: Bytes,
    /// The string; `None` for a list.
    pub value: Option<Bytes>,
    /// When it expires, on the shard's own time line, which goes on over restarts.
    pub expires_at: Option<Elapsed>,
}

/// An element of a list as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementRecord {
    /// The number of its list.
    pub list: u64,
    /// Its place: elements to the right have larger ones.
    pub place: i64,
    /// The bytes of the element.
    pub value: Bytes,
}

/// How long work queues of raw keys are left alone before they are put in order; `None`: forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUpkeep {
    /// An item in processing without a lease goes back to its queue after this. 10 s.
    pub put_back_after: Option<Duration>,
    /// An item in no list, without a lease, is put on its queue after this. 60 s: much longer than any producer needs
    /// between its two commands.
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
    /// Settings under which no upkeep is done.
    pub const OFF: Self = Self {
        put_back_after: None,
        rescue_after: None,
    };
}

/// What the upkeep of raw keys has done since it was begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpkeepCounts {
    /// Items taken out of processing and put back.
    pub put_back: u64,
    /// Items put on their queue that were in no list.
    pub rescued: u64,
    /// Items that went back because their client disconnected before anybody asked for them.
    pub returned: u64,
}
