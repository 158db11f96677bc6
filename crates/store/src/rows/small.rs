//! The small tables, whose rows have a name and a body: what a change writes there, and what is read back.

use ganger_types::change::UniqueRecord;
use ganger_types::{
    AuditRecord, Change, Dependent, Group, IdempotencyRecord, JobId, Namespace, NamespaceRecord,
    OperationRecord, OutboxRecord, Part, PartRecord, PeerRecord, QueueRecord, ScheduleRecord,
    StatisticsRecord, Tag, Timestamp,
};

use super::RowError;
use super::external;
use super::names::{
    SmallTable, dependency_of, dependent_name, number_name, outbox_name, part_name, two_parts,
};
use super::row::{open, open_record, seal_record, show};
use crate::encoding::{Cursor, Record, Writer, seal};
use crate::store::Loaded;

/// Writes the sealed row of a change into `buffer`; returns false if the row is to be deleted.
pub fn encode(table: &str, name: &[u8], change: &Change, buffer: &mut Vec<u8>) -> bool {
    match change {
        Change::PutQueue(record) => seal_record(table, name, &**record, buffer),
        Change::PutNamespace(record) => seal_record(table, name, &**record, buffer),
        Change::PutSchedule(record) => seal_record(table, name, &**record, buffer),
        Change::PutUnique(record) => seal_record(table, name, &**record, buffer),
        Change::PutIdempotencyRecord(record) => seal_record(table, name, &**record, buffer),
        Change::PutStatistics(record) => seal_record(table, name, &**record, buffer),
        Change::PutOperation(record) => seal_record(table, name, &**record, buffer),
        Change::PutAudit(record) => seal_record(table, name, &**record, buffer),
        Change::PutPeer(record) => seal_record(table, name, &**record, buffer),
        Change::PutOutbox(record) => seal_record(table, name, &**record, buffer),
        Change::PutPart(record) => seal_record(table, name, &**record, buffer),
        Change::PutPartJobs(part) => seal_record(table, name, &**part, buffer),
        Change::PutDependent(_, dependent) => seal_record(table, name, &**dependent, buffer),
        Change::External(change) => return external::encode(table, name, change, buffer),
        Change::PutTagCount(_, _, count) | Change::PutGroupCount(_, _, count) if *count > 0 => {
            seal_number(table, name, *count, buffer);
        }
        Change::PutTracked(_, _, Some(since)) => seal_number(table, name, since.0, buffer),
        _ => return false,
    }
    true
}

fn seal_number(table: &str, name: &[u8], number: u64, buffer: &mut Vec<u8>) {
    buffer.clear();
    Writer::new(buffer).number(number);
    seal(table, name, 0, buffer);
}

fn open_number(table: &str, name: &[u8], body: &[u8]) -> Result<u64, RowError> {
    let mut from = Cursor::new(open(table, name, body)?, "counter");
    let number = from.number().and_then(|number| from.end().map(|()| number));
    number.map_err(|error| RowError::unreadable(table, show(name), &error))
}

/// Reads a small row. For the jobs of a part it returns the record that they were written with.
///
/// # Errors
/// If its checksum or its content is wrong.
pub fn read(small: SmallTable, name: &[u8], body: &[u8]) -> Result<Loaded, RowError> {
    let table = small.table();
    let loaded = match small {
        SmallTable::Namespaces => {
            Loaded::Namespace(Box::new(record::<NamespaceRecord>(table, name, body)?))
        }
        SmallTable::Queues => Loaded::Queue(Box::new(record::<QueueRecord>(table, name, body)?)),
        SmallTable::Schedules => {
            Loaded::Schedule(Box::new(record::<ScheduleRecord>(table, name, body)?))
        }
        SmallTable::UniqueKeys => {
            Loaded::Unique(Box::new(record::<UniqueRecord>(table, name, body)?))
        }
        SmallTable::IdempotencyRecords => {
            Loaded::IdempotencyRecord(Box::new(record::<IdempotencyRecord>(table, name, body)?))
        }
        SmallTable::Statistics => {
            Loaded::Statistics(Box::new(record::<StatisticsRecord>(table, name, body)?))
        }
        SmallTable::Operations => {
            let operation = record::<OperationRecord>(table, name, body)?;
            expect_name(table, name, &number_name(operation.number.0))?;
            Loaded::Operation(Box::new(operation))
        }
        SmallTable::AuditLog => {
            let audited = record::<AuditRecord>(table, name, body)?;
            expect_name(table, name, &number_name(audited.number))?;
            Loaded::Audit(Box::new(audited))
        }
        SmallTable::TagCounts | SmallTable::GroupCounts | SmallTable::Tracked => {
            return read_number(small, name, body);
        }
        SmallTable::Peers
        | SmallTable::Outbox
        | SmallTable::Parts
        | SmallTable::PartJobs
        | SmallTable::Dependents => {
            return read_of_shards(small, name, body);
        }
        SmallTable::External(table) => {
            return external::read(table, name, body).map(Loaded::External);
        }
    };
    Ok(loaded)
}

/// Reads a row about other shards and compares it with its key.
fn read_of_shards(small: SmallTable, at: &[u8], body: &[u8]) -> Result<Loaded, RowError> {
    let table = small.table();
    let (named, loaded) = match small {
        SmallTable::Peers => {
            let peer = record::<PeerRecord>(table, at, body)?;
            let named = peer.shard.as_str().into();
            (named, Loaded::Peer(Box::new(peer)))
        }
        SmallTable::Outbox => {
            let message = record::<OutboxRecord>(table, at, body)?;
            let named = outbox_name(&message.to, message.number);
            (named, Loaded::Outbox(Box::new(message)))
        }
        SmallTable::Dependents => {
            let dependency = dependency_of(at)
                .ok_or_else(|| RowError::row(table, show(at), "its name has a wrong form"))?;
            let dependent = record::<Dependent>(table, at, body)?;
            let (shard, key) = (&dependent.shard, dependent.key);
            let named = dependent_name(dependency, shard, key, dependent.slot);
            (named, Loaded::Dependent(dependency, Box::new(dependent)))
        }
        SmallTable::PartJobs => {
            let part = record::<Part>(table, at, body)?.record;
            let named = part_name(&part.namespace, &part.graph);
            (named, Loaded::Part(Box::new(part)))
        }
        _ => {
            let part = record::<PartRecord>(table, at, body)?;
            let named = part_name(&part.namespace, &part.graph);
            (named, Loaded::Part(Box::new(part)))
        }
    };
    expect_name(table, at, &named)?;
    Ok(loaded)
}

/// Refuses a row whose record has another key.
///
/// # Errors
/// If the keys differ.
pub fn expect_name(table: &str, at: &[u8], named: &[u8]) -> Result<(), RowError> {
    if named != at {
        let what = "it holds the record of another row";
        return Err(RowError::row(table, show(at), what));
    }
    Ok(())
}

fn record<R: Record>(table: &str, name: &[u8], body: &[u8]) -> Result<R, RowError> {
    open_record(table, name, body)
}

fn read_number(small: SmallTable, name: &[u8], body: &[u8]) -> Result<Loaded, RowError> {
    let number = open_number(small.table(), name, body)?;
    let wrong = || RowError::row(small.table(), show(name), "its name has a wrong form");
    let (namespace, rest) = two_parts(name).ok_or_else(wrong)?;
    let namespace = Namespace::new(namespace).map_err(|_| wrong())?;
    Ok(match small {
        SmallTable::TagCounts => {
            Loaded::TagCount(namespace, Tag::new(rest).map_err(|_| wrong())?, number)
        }
        SmallTable::GroupCounts => {
            Loaded::GroupCount(namespace, Group::new(rest).map_err(|_| wrong())?, number)
        }
        _ => Loaded::Tracked(
            namespace,
            JobId::new(rest).map_err(|_| wrong())?,
            Timestamp(number),
        ),
    })
}
