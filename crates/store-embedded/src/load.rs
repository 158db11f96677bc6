//! Loads the rows that the engine needs at start, each verified.

use ganger_store::rows::names::SmallTable;
use ganger_store::rows::row::{from_sql, open_record, row_key, slot_key, to_sql};
use ganger_store::rows::small;
use ganger_store::{Loaded, statistics_loaded_from};
use ganger_types::{InputRow, JobKey, JobRecord, LeaseRecord};
use rusqlite::Connection;

use crate::fault::Fault;
use crate::meta::Header;

/// Passes all rows to `each`, in the order of [`Loaded`]. The caller begins and ends the transaction.
pub(crate) fn load(connection: &Connection, each: &mut dyn FnMut(Loaded)) -> Result<(), Fault> {
    let header = Header::read_from(connection)?;
    for small in &SmallTable::ALL[..3] {
        load_small(connection, *small, &[], each)?;
    }
    let live = load_jobs(connection, header.counts.jobs, each)?;
    load_inputs(connection, &live, each)?;
    load_leases(connection, header.counts.leases, &live, each)?;
    for small in &SmallTable::ALL[3..] {
        let from = match small {
            // These rows are read when the part is decided.
            SmallTable::PartJobs => continue,
            SmallTable::Statistics => statistics_loaded_from(header.meta.wall)
                .0
                .to_be_bytes()
                .to_vec(),
            _ => Vec::new(),
        };
        load_small(connection, *small, &from, each)?;
    }
    Ok(())
}

fn load_small(
    connection: &Connection,
    small: SmallTable,
    from: &[u8],
    each: &mut dyn FnMut(Loaded),
) -> Result<(), Fault> {
    let sql = format!(
        "SELECT name, body FROM {} WHERE name >= ?1 ORDER BY name",
        small.table()
    );
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([from])?;
    while let Some(row) = rows.next()? {
        let (name, body) = (row.get_ref(0)?, row.get_ref(1)?);
        let blob = |value: rusqlite::types::ValueRef<'_>| value.as_blob().map(<[u8]>::to_vec);
        let broken = |_| Fault::row(small.table(), "?", "it is not made of bytes");
        let (name, body) = (blob(name).map_err(broken)?, blob(body).map_err(broken)?);
        each(small::read(small, &name, &body)?);
    }
    Ok(())
}

/// Loads the live jobs; returns their numbers in order.
fn load_jobs(
    connection: &Connection,
    count: u64,
    each: &mut dyn FnMut(Loaded),
) -> Result<Vec<JobKey>, Fault> {
    let mut live = Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(1 << 24));
    let mut statement = connection.prepare("SELECT key, body FROM jobs ORDER BY key")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let key = JobKey(from_sql(row.get(0)?));
        let record = read_keyed("jobs", key, row, 1, |record: &JobRecord| record.key)?;
        live.push(key);
        each(Loaded::Job(Box::new(record)));
    }
    compare("jobs", "live jobs", count, live.len())?;
    Ok(live)
}

fn load_leases(
    connection: &Connection,
    count: u64,
    live: &[JobKey],
    each: &mut dyn FnMut(Loaded),
) -> Result<(), Fault> {
    let mut found = 0;
    let mut statement = connection.prepare("SELECT key, body FROM leases ORDER BY key")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let key = JobKey(from_sql(row.get(0)?));
        let record = read_keyed("leases", key, row, 1, |record: &LeaseRecord| record.key)?;
        if live.binary_search(&key).is_err() {
            return Err(Fault::row(
                "leases",
                key,
                "the job that it leases is missing",
            ));
        }
        found += 1;
        each(Loaded::Lease(Box::new(record)));
    }
    compare("leases", "leases", count, found)
}

/// Loads those inputs of live jobs that name another job. Jobs without inputs and inputs of finished jobs are skipped
/// by walking both orders in parallel and seeking where one is ahead.
fn load_inputs(
    connection: &Connection,
    live: &[JobKey],
    each: &mut dyn FnMut(Loaded),
) -> Result<(), Fault> {
    let mut statement = connection.prepare(
        "SELECT job, slot, upstream IS NOT NULL, body FROM inputs WHERE job >= ?1 ORDER BY job, slot",
    )?;
    let mut next = 0;
    while let Some(from) = live.get(next) {
        let mut rows = statement.query([to_sql(from.0)])?;
        // From here on the rows are read one by one, until a job that is not live.
        loop {
            let Some(row) = rows.next()? else {
                return Ok(());
            };
            let job = JobKey(from_sql(row.get(0)?));
            next += live[next..].partition_point(|key| *key < job);
            if live.get(next) != Some(&job) {
                break;
            }
            if row.get(2)? {
                each(Loaded::Input(read_input(job, row.get(1)?, row, 3)?));
            }
        }
    }
    Ok(())
}

/// Reads an input from a row and checks it against the row's key.
pub(crate) fn read_input(
    job: JobKey,
    slot: u32,
    row: &rusqlite::Row<'_>,
    column: usize,
) -> Result<InputRow, Fault> {
    let body = row.get_ref(column)?.as_blob().unwrap_or_default();
    Ok(open_record("inputs", &slot_key(job, slot), body)?)
}

/// Reads a record from a row and checks it against the row's key.
pub(crate) fn read_keyed<R: ganger_store::encoding::Record>(
    table: &str,
    key: JobKey,
    row: &rusqlite::Row<'_>,
    column: usize,
    key_of: impl FnOnce(&R) -> JobKey,
) -> Result<R, Fault> {
    // A column that is not a blob any more fails like any other wrong content.
    let body = row.get_ref(column)?.as_blob().unwrap_or_default();
    let record = open_record(table, &row_key(key), body)?;
    if key_of(&record) != key {
        return Err(Fault::row(table, key, "it holds the record of another job"));
    }
    Ok(record)
}

fn compare(table: &str, what: &str, expected: u64, found: usize) -> Result<(), Fault> {
    let found = u64::try_from(found).expect("a count fits 64 bits");
    if found == expected {
        return Ok(());
    }
    Err(Fault::Damaged(format!(
        "table {table}: {found} {what} were found where the last commit left {expected}"
    )))
}
