//! Rows of the small tables: one name, one body.

use ganger_store::Loaded;
use ganger_store::encoding::{Cursor, Record, Writer, seal};
use ganger_store::merge::RowKey;
use ganger_types::change::{ClaimRecord, UniqueRecord};
use ganger_types::{
    Change, Group, JobId, Namespace, NamespaceRecord, QueueRecord, ScheduleRecord,
    StatisticsRecord, Tag, Timestamp,
};
use rusqlite::Connection;

use crate::fault::Fault;
use crate::names::{Small, row_name, two_parts};
use crate::row::{open, open_record, seal_record, show};

/// Writes the last change of a small row.
pub(crate) fn write(
    connection: &Connection,
    key: &RowKey<'_>,
    change: &Change,
    buffer: &mut Vec<u8>,
) -> Result<(), Fault> {
    let (small, name) = row_name(key);
    let table = small.table();
    if !encode(table, &name, change, buffer) {
        let sql = format!("DELETE FROM {table} WHERE name = ?1");
        connection.prepare_cached(&sql)?.execute([&name])?;
        return Ok(());
    }
    let sql = format!(
        "INSERT INTO {table} (name, body) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET body = excluded.body"
    );
    connection
        .prepare_cached(&sql)?
        .execute((&name, &*buffer))?;
    Ok(())
}

/// Puts the sealed row into `buffer`; false if the row is to go.
fn encode(table: &str, name: &[u8], change: &Change, buffer: &mut Vec<u8>) -> bool {
    match change {
        Change::PutQueue(record) => seal_record(table, name, &**record, buffer),
        Change::PutNamespace(record) => seal_record(table, name, &**record, buffer),
        Change::PutSchedule(record) => seal_record(table, name, &**record, buffer),
        Change::PutUnique(record) => seal_record(table, name, &**record, buffer),
        Change::PutClaim(record) => seal_record(table, name, &**record, buffer),
        Change::PutStatistics(record) => seal_record(table, name, &**record, buffer),
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

fn open_number(table: &str, name: &[u8], body: &[u8]) -> Result<u64, Fault> {
    let mut from = Cursor::new(open(table, name, body)?, "counter");
    let number = from.number().and_then(|number| from.end().map(|()| number));
    number.map_err(|error| Fault::unreadable(table, show(name), &error))
}

/// Reads a small row.
pub(crate) fn read(small: Small, name: &[u8], body: &[u8]) -> Result<Loaded, Fault> {
    let table = small.table();
    let loaded = match small {
        Small::Namespaces => {
            Loaded::Namespace(Box::new(record::<NamespaceRecord>(table, name, body)?))
        }
        Small::Queues => Loaded::Queue(Box::new(record::<QueueRecord>(table, name, body)?)),
        Small::Schedules => {
            Loaded::Schedule(Box::new(record::<ScheduleRecord>(table, name, body)?))
        }
        Small::UniqueKeys => Loaded::Unique(Box::new(record::<UniqueRecord>(table, name, body)?)),
        Small::Claims => Loaded::Claim(Box::new(record::<ClaimRecord>(table, name, body)?)),
        Small::Statistics => {
            Loaded::Statistics(Box::new(record::<StatisticsRecord>(table, name, body)?))
        }
        Small::TagCounts | Small::GroupCounts | Small::Tracked => {
            return read_number(small, name, body);
        }
    };
    Ok(loaded)
}

fn record<R: Record>(table: &str, name: &[u8], body: &[u8]) -> Result<R, Fault> {
    open_record(table, name, body)
}

fn read_number(small: Small, name: &[u8], body: &[u8]) -> Result<Loaded, Fault> {
    let number = open_number(small.table(), name, body)?;
    let wrong = || Fault::row(small.table(), show(name), "its name has a wrong form");
    let (namespace, rest) = two_parts(name).ok_or_else(wrong)?;
    let namespace = Namespace::new(namespace).map_err(|_| wrong())?;
    Ok(match small {
        Small::TagCounts => {
            Loaded::TagCount(namespace, Tag::new(rest).map_err(|_| wrong())?, number)
        }
        Small::GroupCounts => {
            Loaded::GroupCount(namespace, Group::new(rest).map_err(|_| wrong())?, number)
        }
        _ => Loaded::Tracked(
            namespace,
            JobId::new(rest).map_err(|_| wrong())?,
            Timestamp(number),
        ),
    })
}
