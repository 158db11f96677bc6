//! Names as keys of rows. Each part is preceded by its length, so different lists of parts never give the same key.

use ganger_store::encoding::{Cursor, Writer};
use ganger_store::merge::RowKey;
use ganger_types::{Graph, JobKey, Namespace, QlessKey, ShardId};

/// Returns the key made of `parts`.
pub(crate) fn name(parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    let mut out = Writer::new(&mut key);
    for part in parts {
        out.bytes(part);
    }
    key
}

/// Splits a key into its two parts; `None` if it has another number of parts.
pub(crate) fn two_parts(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = Cursor::new(key, "name");
    let parts = (from.bytes().ok()?, from.bytes().ok()?);
    from.end().ok()?;
    Some(parts)
}

/// Returns the table and key of a small row.
pub(crate) fn row_name(key: &RowKey<'_>) -> (SmallTable, Vec<u8>) {
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
        RowKey::Peer(shard) => (SmallTable::Peers, shard.as_str().into()),
        RowKey::Outbox(shard, number) => (SmallTable::Outbox, outbox_name(shard, *number)),
        RowKey::Part(namespace, graph) => (SmallTable::Parts, part_name(namespace, graph)),
        RowKey::PartJobs(namespace, graph) => (SmallTable::PartJobs, part_name(namespace, graph)),
        RowKey::Dependent(dependency, shard, key, slot) => (
            SmallTable::Dependents,
            dependent_name(*dependency, shard, *key, *slot),
        ),
        RowKey::Key(number) => (SmallTable::Keys, number.to_be_bytes().to_vec()),
        RowKey::Element(list, place) => (SmallTable::Elements, element_name(*list, *place)),
        RowKey::Qless(namespace, key) => (SmallTable::Qless, qless_name(namespace, key)),
    }
}

/// Returns the key of a statistics row. They sort by day, so that the newest are a range.
pub(crate) fn statistics_name(day: u32, namespace: &[u8], queue: &[u8]) -> Vec<u8> {
    let mut key = day.to_be_bytes().to_vec();
    key.extend_from_slice(&name(&[namespace, queue]));
    key
}

/// Returns the key of a part of a submission, which is also the key of its jobs.
pub(crate) fn part_name(namespace: &Namespace, graph: &Graph) -> Vec<u8> {
    name(&[namespace.as_bytes(), graph.as_bytes()])
}

/// Returns the key of a message. They sort by receiver and number. No shard's name contains a zero byte.
pub(crate) fn outbox_name(to: &ShardId, number: u64) -> Vec<u8> {
    let mut key = to.as_str().as_bytes().to_vec();
    key.push(0);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Returns the key of a dependent on another shard. They sort by dependency, shard, number, slot.
pub(crate) fn dependent_name(
    dependency: JobKey,
    shard: &ShardId,
    key: JobKey,
    slot: u32,
) -> Vec<u8> {
    let mut name = dependency.0.to_be_bytes().to_vec();
    name.extend_from_slice(&outbox_name(shard, key.0));
    name.extend_from_slice(&slot.to_be_bytes());
    name
}

/// Returns the key of a list element. They sort by list, then from left to right.
pub(crate) fn element_name(list: u64, place: i64) -> Vec<u8> {
    let mut name = list.to_be_bytes().to_vec();
    let from_the_leftmost = place.cast_unsigned() ^ (1 << 63);
    name.extend_from_slice(&from_the_leftmost.to_be_bytes());
    name
}

/// Kind byte of qless jobs in the keys of their rows. Before version 6 of the tables the byte was 1, followed by the
/// job's id.
const QLESS_JOB: u8 = 10;
const QLESS_JOB_BY_ID: u8 = 1;

/// Returns the key of a qless row. They sort by namespace and kind.
pub(crate) fn qless_name(namespace: &Namespace, key: &QlessKey) -> Vec<u8> {
    let mut key_of_row = name(&[namespace.as_bytes()]);
    let mut out = Writer::new(&mut key_of_row);
    let (kind, part) = match key {
        // Most rows are jobs. Keyed by number, new jobs come after all others, so a commit changes few pages; ids are
        // mostly random.
        QlessKey::Job { number, .. } => {
            out.byte(QLESS_JOB);
            out.raw(&number.to_be_bytes());
            return key_of_row;
        }
        QlessKey::Recurring(jid) => (2, jid),
        QlessKey::Queue(queue) => (3, queue),
        QlessKey::Worker(worker) => (4, worker),
        QlessKey::Setting(option) => (5, option),
        QlessKey::TagCount(tag) => (6, tag),
        QlessKey::Tracked(jid) => (7, jid),
        QlessKey::Statistics(queue, _) => (8, queue),
        QlessKey::Throttle(id) => (9, id),
    };
    out.byte(kind);
    out.bytes(part);
    if let QlessKey::Statistics(_, day) = key {
        out.float(day.seconds());
    }
    key_of_row
}

/// Returns the namespace in the key of a qless row.
pub(crate) fn namespace_of(qless: &[u8]) -> Option<Namespace> {
    Namespace::new(Cursor::new(qless, "name").bytes().ok()?).ok()
}

/// Returns the key of a qless job's row in versions before 6.
pub(crate) fn qless_job_name_by_id(namespace: &Namespace, jid: &[u8]) -> Vec<u8> {
    let mut key_of_row = name(&[namespace.as_bytes()]);
    let mut out = Writer::new(&mut key_of_row);
    out.byte(QLESS_JOB_BY_ID);
    out.bytes(jid);
    key_of_row
}

/// Whether the key of a qless row is that of a job in versions before 6.
pub(crate) fn is_qless_job_by_id(qless: &[u8]) -> bool {
    let mut from = Cursor::new(qless, "name");
    from.bytes().is_ok() && from.byte().is_ok_and(|kind| kind == QLESS_JOB_BY_ID)
}

/// Returns the dependency in a dependent's key.
pub(crate) fn dependency_of(dependent: &[u8]) -> Option<JobKey> {
    let (dependency, _) = dependent.split_first_chunk()?;
    Some(JobKey(u64::from_be_bytes(*dependency)))
}

/// The tables that consist of a name and a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmallTable {
    Namespaces,
    Queues,
    Schedules,
    UniqueKeys,
    IdempotencyRecords,
    TagCounts,
    GroupCounts,
    Tracked,
    Statistics,
    Peers,
    Outbox,
    Parts,
    PartJobs,
    Dependents,
    Keys,
    Elements,
    Qless,
}

impl SmallTable {
    /// All of them, in the order in which they are loaded; the first three before the jobs.
    pub(crate) const ALL: [Self; 17] = [
        Self::Namespaces,
        Self::Queues,
        Self::Schedules,
        Self::UniqueKeys,
        Self::IdempotencyRecords,
        Self::TagCounts,
        Self::GroupCounts,
        Self::Tracked,
        Self::Statistics,
        Self::Peers,
        Self::Outbox,
        Self::Parts,
        Self::PartJobs,
        Self::Dependents,
        Self::Keys,
        Self::Elements,
        Self::Qless,
    ];

    /// Version of the tables in which this table appeared.
    pub(crate) fn since(self) -> u32 {
        match self {
            Self::Peers | Self::Outbox | Self::Parts | Self::PartJobs | Self::Dependents => 3,
            Self::Keys | Self::Elements => 4,
            Self::Qless => 5,
            _ => 1,
        }
    }

    pub(crate) fn table(self) -> &'static str {
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
            Self::Peers => "peers",
            Self::Outbox => "outbox",
            Self::Parts => "parts",
            Self::PartJobs => "part_jobs",
            Self::Dependents => "dependents",
            Self::Keys => "keys",
            Self::Elements => "elements",
            Self::Qless => "qless",
        }
    }
}
