//! Names as keys of rows: each part with its length before it, so that no two lists of parts collide.

use ganger_store::encoding::{Cursor, Writer};
use ganger_store::merge::RowKey;

/// The key made of `parts`.
pub(crate) fn name(parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    let mut out = Writer::new(&mut key);
    for part in parts {
        out.bytes(part);
    }
    key
}

/// The two parts of a key, or `None` if it has others.
pub(crate) fn two_parts(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = Cursor::new(key, "name");
    let parts = (from.bytes().ok()?, from.bytes().ok()?);
    from.end().ok()?;
    Some(parts)
}

/// The table and key of a small row.
pub(crate) fn row_name(key: &RowKey<'_>) -> (Small, Vec<u8>) {
    match key {
        RowKey::Namespace(namespace) => (Small::Namespaces, name(&[namespace.as_bytes()])),
        RowKey::Queue(namespace, queue) => (
            Small::Queues,
            name(&[namespace.as_bytes(), queue.as_bytes()]),
        ),
        RowKey::Schedule(namespace, id) => (
            Small::Schedules,
            name(&[namespace.as_bytes(), id.as_bytes()]),
        ),
        RowKey::Unique(namespace, key) => (
            Small::UniqueKeys,
            name(&[namespace.as_bytes(), key.as_bytes()]),
        ),
        RowKey::Claim(namespace, key) => {
            (Small::Claims, name(&[namespace.as_bytes(), key.as_bytes()]))
        }
        RowKey::TagCount(namespace, tag) => (
            Small::TagCounts,
            name(&[namespace.as_bytes(), tag.as_bytes()]),
        ),
        RowKey::GroupCount(namespace, group) => (
            Small::GroupCounts,
            name(&[namespace.as_bytes(), group.as_bytes()]),
        ),
        RowKey::Tracked(namespace, id) => {
            (Small::Tracked, name(&[namespace.as_bytes(), id.as_bytes()]))
        }
        RowKey::Statistics(day, namespace, queue) => (
            Small::Statistics,
            statistics_name(day.0, namespace.as_bytes(), queue.as_bytes()),
        ),
    }
}

/// Statistics sort by day, so that the newest are a range.
pub(crate) fn statistics_name(day: u32, namespace: &[u8], queue: &[u8]) -> Vec<u8> {
    let mut key = day.to_be_bytes().to_vec();
    key.extend_from_slice(&name(&[namespace, queue]));
    key
}

/// The tables of a name and a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Small {
    Namespaces,
    Queues,
    Schedules,
    UniqueKeys,
    Claims,
    TagCounts,
    GroupCounts,
    Tracked,
    Statistics,
}

impl Small {
    /// In the order in which they are loaded; the first three before the jobs.
    pub(crate) const ALL: [Self; 9] = [
        Self::Namespaces,
        Self::Queues,
        Self::Schedules,
        Self::UniqueKeys,
        Self::Claims,
        Self::TagCounts,
        Self::GroupCounts,
        Self::Tracked,
        Self::Statistics,
    ];

    pub(crate) fn table(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Queues => "queues",
            Self::Schedules => "schedules",
            Self::UniqueKeys => "unique_keys",
            Self::Claims => "claims",
            Self::TagCounts => "tag_counts",
            Self::GroupCounts => "group_counts",
            Self::Tracked => "tracked",
            Self::Statistics => "statistics",
        }
    }
}
