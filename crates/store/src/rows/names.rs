//! Names as keys of rows. Each part is preceded by its length, so different lists of parts never give the same key.

use ganger_types::{Graph, JobKey, Namespace, ShardId};

use super::external::{self, ExternalTable};
use crate::encoding::{Cursor, Writer};
use crate::merge::RowKey;

/// Returns the key made of `parts`.
pub fn name(parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    let mut out = Writer::new(&mut key);
    for part in parts {
        out.bytes(part);
    }
    key
}

/// Splits a key into its two parts; `None` if it has another number of parts.
pub fn two_parts(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = Cursor::new(key, "name");
    let parts = (from.bytes().ok()?, from.bytes().ok()?);
    from.end().ok()?;
    Some(parts)
}

/// Returns the table and key of a small row.
pub fn row_name(key: &RowKey<'_>) -> (SmallTable, Vec<u8>) {
    match key {
        RowKey::Namespace(namespace) => (SmallTable::Namespaces, name(&[namespace.as_bytes()])),
        RowKey::Queue(namespace, queue) => (
            SmallTable::Queues,
            name(&[namespace.as_bytes(), queue.as_bytes()]),
        ),
        RowKey::Schedule(namespace, id) => (
            SmallTable::Schedules,
            name(&[namespace.as_bytes(), id.as_bytes()]),
        ),
        RowKey::Unique(namespace, key) => (
            SmallTable::UniqueKeys,
            name(&[namespace.as_bytes(), key.as_bytes()]),
        ),
        RowKey::SubmissionAnswer(namespace, key) => (
            SmallTable::IdempotencyRecords,
            name(&[namespace.as_bytes(), key.as_bytes()]),
        ),
        RowKey::TagCount(namespace, tag) => (
            SmallTable::TagCounts,
            name(&[namespace.as_bytes(), tag.as_bytes()]),
        ),
        RowKey::GroupCount(namespace, group) => (
            SmallTable::GroupCounts,
            name(&[namespace.as_bytes(), group.as_bytes()]),
        ),
        RowKey::Tracked(namespace, id) => (
            SmallTable::Tracked,
            name(&[namespace.as_bytes(), id.as_bytes()]),
        ),
        RowKey::Statistics(day, namespace, queue) => (
            SmallTable::Statistics,
            statistics_name(day.0, namespace.as_bytes(), queue.as_bytes()),
        ),
        RowKey::Operation(number) => (SmallTable::Operations, number_name(number.0)),
        RowKey::Audit(number) => (SmallTable::AuditLog, number_name(*number)),
        RowKey::Peer(shard) => (SmallTable::Peers, shard.as_str().into()),
        RowKey::Outbox(shard, number) => (SmallTable::Outbox, outbox_name(shard, *number)),
        RowKey::Part(namespace, graph) => (SmallTable::Parts, part_name(namespace, graph)),
        RowKey::PartJobs(namespace, graph) => (SmallTable::PartJobs, part_name(namespace, graph)),
        RowKey::Dependent(dependency, shard, key, slot) => (
            SmallTable::Dependents,
            dependent_name(*dependency, shard, *key, *slot),
        ),
        RowKey::External(key) => {
            let (table, name) = external::row_name(key);
            (SmallTable::External(table), name)
        }
    }
}

/// Returns the key of a statistics row. They sort by day, so that the newest are a range.
pub fn statistics_name(day: u32, namespace: &[u8], queue: &[u8]) -> Vec<u8> {
    let mut key = day.to_be_bytes().to_vec();
    key.extend_from_slice(&name(&[namespace, queue]));
    key
}

/// Returns the key of a row with a number. They sort by number.
pub fn number_name(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Returns the key of a part of a submission, which is also the key of its jobs.
pub fn part_name(namespace: &Namespace, graph: &Graph) -> Vec<u8> {
    name(&[namespace.as_bytes(), graph.as_bytes()])
}

/// Returns the key of a message. They sort by receiver and number. No shard's name contains a zero byte.
pub fn outbox_name(to: &ShardId, number: u64) -> Vec<u8> {
    let mut key = to.as_str().as_bytes().to_vec();
    key.push(0);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Returns the key of a dependent on another shard. They sort by dependency, shard, number, slot.
pub fn dependent_name(dependency: JobKey, shard: &ShardId, key: JobKey, slot: u32) -> Vec<u8> {
    let mut name = dependency.0.to_be_bytes().to_vec();
    name.extend_from_slice(&outbox_name(shard, key.0));
    name.extend_from_slice(&slot.to_be_bytes());
    name
}

/// Returns the dependency in a dependent's key.
pub fn dependency_of(dependent: &[u8]) -> Option<JobKey> {
    let (dependency, _) = dependent.split_first_chunk()?;
    Some(JobKey(u64::from_be_bytes(*dependency)))
}

/// The tables that consist of a name and a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is named as the table")]
pub enum SmallTable {
    Namespaces,
    Queues,
    Schedules,
    UniqueKeys,
    IdempotencyRecords,
    TagCounts,
    GroupCounts,
    Tracked,
    Statistics,
    Operations,
    AuditLog,
    Peers,
    Outbox,
    Parts,
    PartJobs,
    Dependents,
    External(ExternalTable),
}

impl SmallTable {
    /// All of them, in the order in which they are loaded; the first three before the jobs.
    pub const ALL: [Self; 19] = [
        Self::Namespaces,
        Self::Queues,
        Self::Schedules,
        Self::UniqueKeys,
        Self::IdempotencyRecords,
        Self::TagCounts,
        Self::GroupCounts,
        Self::Tracked,
        Self::Statistics,
        Self::Operations,
        Self::AuditLog,
        Self::Peers,
        Self::Outbox,
        Self::Parts,
        Self::PartJobs,
        Self::Dependents,
        Self::External(ExternalTable::ALL[0]),
        Self::External(ExternalTable::ALL[1]),
        Self::External(ExternalTable::ALL[2]),
    ];

    /// Version of the embedded store's tables in which this table appeared.
    pub fn since(self) -> u32 {
        match self {
            Self::Peers | Self::Outbox | Self::Parts | Self::PartJobs | Self::Dependents => 3,
            Self::Operations | Self::AuditLog => 9,
            Self::External(table) => table.since(),
            _ => 1,
        }
    }

    /// Returns the name of the table.
    pub fn table(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Queues => "queues",
            Self::Schedules => "schedules",
            Self::UniqueKeys => "unique_keys",
            Self::IdempotencyRecords => "claims",
            Self::TagCounts => "tag_counts",
            Self::GroupCounts => "group_counts",
            Self::Tracked => "tracked",
            Self::Statistics => "statistics",
            Self::Operations => "operations",
            Self::AuditLog => "audit_log",
            Self::Peers => "peers",
            Self::Outbox => "outbox",
            Self::Parts => "parts",
            Self::PartJobs => "part_jobs",
            Self::Dependents => "dependents",
            Self::External(table) => table.name(),
        }
    }
}
