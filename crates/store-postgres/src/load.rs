//! Loads the rows that the engine needs at start, each verified.
//!
//! Live jobs are copied in ranges over several connections and parsed there; they are passed on in order.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use ganger_store::rows::names::SmallTable;
use ganger_store::rows::row::{open_record, record_at, row_key, slot_key};
use ganger_store::rows::small;
use ganger_store::{Loaded, statistics_loaded_from};
use ganger_types::{InputRow, JobKey, JobRecord, LeaseRecord};

use crate::columns::{CopyReader, NotCopied};
use crate::database::EXPORT_MAX;
use crate::fault::Fault;
use crate::header::Header;
use crate::postgres::Postgres;
use crate::session::Session;

/// Live jobs in a range.
const RANGE_JOBS: u32 = 16_384;
/// Most connections that load at once.
const LOADERS_MAX: usize = 4;
/// Ranges that wait to be passed on, for each connection.
const RANGES_AHEAD: usize = 2;
/// Time for a table that is loaded as a whole.
const TABLE_MAX: Duration = Duration::from_secs(600);

impl From<NotCopied> for Fault {
    fn from(_: NotCopied) -> Self {
        Self::Damaged("rows that were copied are cut off".to_owned())
    }
}

/// Passes all rows to `each`, in the order of [`Loaded`]. The rows are as `header` says.
pub(crate) fn load(
    shard: &Postgres,
    header: &Header,
    each: &mut dyn FnMut(Loaded),
) -> Result<(), Fault> {
    for small in &SmallTable::ALL[..3] {
        load_small(shard, *small, &[])?
            .into_iter()
            .for_each(&mut *each);
    }
    let live = load_jobs(shard, each)?;
    compare("jobs", "live jobs", header.counts.jobs, live.len())?;
    load_inputs(shard)?.into_iter().for_each(&mut *each);
    let leases = load_leases(shard)?;
    compare("leases", "leases", header.counts.leases, leases.len())?;
    for lease in leases {
        if live.binary_search(&lease.key).is_err() {
            let what = "the job that it leases is missing";
            return Err(Fault::row("leases", lease.key, what));
        }
        each(Loaded::Lease(Box::new(lease)));
    }
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
        load_small(shard, *small, &from)?
            .into_iter()
            .for_each(&mut *each);
    }
    Ok(())
}

fn load_small(shard: &Postgres, small: SmallTable, from: &[u8]) -> Result<Vec<Loaded>, Fault> {
    // A statement that copies takes no parameters.
    let from: Vec<_> = from.iter().map(|byte| format!("{byte:02x}")).collect();
    let (table, from) = (small.table(), from.concat());
    let sql = format!(
        "SELECT name, body FROM {{s}}.{table} WHERE name >= '\\x{from}'::bytea ORDER BY name"
    );
    copy_all(shard, &sql, TABLE_MAX, |fields| match fields {
        [Some(name), Some(body)] => Ok(small::read(small, name, body)?),
        _ => Err(NotCopied.into()),
    })
}

fn load_leases(shard: &Postgres) -> Result<Vec<LeaseRecord>, Fault> {
    let sql = "SELECT key, body FROM {s}.leases ORDER BY key";
    copy_all(shard, sql, TABLE_MAX, |fields| {
        let (key, body) = keyed(fields)?;
        let record: LeaseRecord = open_record("leases", &row_key(key), body)?;
        if record.key != key {
            return Err(Fault::row(
                "leases",
                key,
                "it holds the record of another job",
            ));
        }
        Ok(record)
    })
}

/// Loads those inputs of live jobs that name another job.
fn load_inputs(shard: &Postgres) -> Result<Vec<Loaded>, Fault> {
    let sql = "SELECT i.job, i.slot, i.body FROM {s}.inputs i JOIN {s}.jobs j ON j.key = i.job
        WHERE i.dependency IS NOT NULL ORDER BY i.job, i.slot";
    copy_all(shard, sql, TABLE_MAX, |fields| {
        let [job, slot, body] = fields else {
            return Err(NotCopied.into());
        };
        let (job, slot) = (number(*job)?, number(*slot)?);
        let slot = u32::try_from(slot).map_err(|_| NotCopied)?;
        let body = body.ok_or(NotCopied)?;
        let input: InputRow = open_record("inputs", &slot_key(JobKey(job), slot), body)?;
        Ok(Loaded::Input(input))
    })
}

/// Loads the live jobs; returns their numbers in order.
fn load_jobs(shard: &Postgres, each: &mut dyn FnMut(Loaded)) -> Result<Vec<JobKey>, Fault> {
    let sql = format!(
        "SELECT key FROM (SELECT key, row_number() OVER (ORDER BY key) AS place FROM {{s}}.jobs) p
         WHERE place % {RANGE_JOBS} = 1 ORDER BY key"
    );
    let firsts = copy_all(shard, &sql, TABLE_MAX, |fields| match fields {
        [key] => Ok(number(*key)?),
        _ => Err(NotCopied.into()),
    })?;
    let loaders = LOADERS_MAX
        .min(shard.database.settings().readers)
        .min(firsts.len());
    let mut live = Vec::new();
    thread::scope(|scope| {
        let mut ranges: Vec<Receiver<Result<Vec<JobRecord>, Fault>>> = Vec::new();
        for loader in 0..loaders {
            let (sender, receiver) = sync_channel(RANGES_AHEAD);
            ranges.push(receiver);
            let firsts = &firsts;
            scope.spawn(move || load_ranges(shard, firsts, loader, loaders, &sender));
        }
        for range in 0..firsts.len() {
            let loaded = ranges[range % loaders].recv();
            let ended = || Fault::Lost("a thread that loads has ended".to_owned());
            for record in loaded.map_err(|_| ended())?? {
                live.push(record.key);
                each(Loaded::Job(Box::new(record)));
            }
        }
        Ok(live)
    })
}

/// Loads every `loaders`th range, beginning with number `loader`.
fn load_ranges(
    shard: &Postgres,
    firsts: &[u64],
    loader: usize,
    loaders: usize,
    ranges: &SyncSender<Result<Vec<JobRecord>, Fault>>,
) {
    for range in (loader..firsts.len()).step_by(loaders) {
        let first = firsts[range];
        let end = firsts.get(range + 1);
        let end = end.map_or(String::new(), |end| format!("AND key < {end}"));
        let sql =
            format!("SELECT key, body FROM {{s}}.jobs WHERE key >= {first} {end} ORDER BY key");
        let jobs = copy_all(shard, &sql, EXPORT_MAX, |fields| {
            let (key, body) = keyed(fields)?;
            Ok(record_at("jobs", key, body)?)
        });
        let is_last = jobs.is_err();
        // The receiver is gone after a fault of another range.
        if ranges.send(jobs).is_err() || is_last {
            return;
        }
    }
}

/// Reads all rows of a query in the binary format of `COPY`; again on another connection if the first is lost.
fn copy_all<T>(
    shard: &Postgres,
    sql: &str,
    limit: Duration,
    read: impl Fn(&[Option<&[u8]>]) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let sql = format!("COPY ({}) TO STDOUT (FORMAT BINARY)", shard.names.sql(sql));
    let begin = format!(
        "BEGIN READ ONLY; SET LOCAL statement_timeout = {}",
        limit.as_millis()
    );
    let copy = |session: &mut Session| {
        session.run_for(limit, async |wire| {
            let mut rows = Vec::new();
            let mut reader = CopyReader::default();
            wire.batch(&begin).await?;
            let copied = wire
                .copy_out(&sql, |bytes| {
                    reader.read(&bytes, |fields| {
                        rows.push(read(fields)?);
                        Ok::<(), Fault>(())
                    })
                })
                .await;
            wire.batch("COMMIT").await?;
            copied?;
            if !reader.is_over() {
                return Err(NotCopied.into());
            }
            Ok(rows)
        })
    };
    let database = &shard.database;
    database.outlast(|| database.with_reader(copy))
}

fn keyed<'a>(fields: &[Option<&'a [u8]>]) -> Result<(JobKey, &'a [u8]), Fault> {
    match fields {
        [key, Some(body)] => Ok((JobKey(number(*key)?), body)),
        _ => Err(NotCopied.into()),
    }
}

fn number(field: Option<&[u8]>) -> Result<u64, NotCopied> {
    let bytes: [u8; 8] = field
        .and_then(|field| field.try_into().ok())
        .ok_or(NotCopied)?;
    u64::try_from(i64::from_be_bytes(bytes)).map_err(|_| NotCopied)
}

fn compare(table: &str, what: &str, expected: u64, found: usize) -> Result<(), Fault> {
    if u64::try_from(found) == Ok(expected) {
        return Ok(());
    }
    Err(Fault::Damaged(format!(
        "table {table}: {found} {what} were found where the last checkpoint left {expected}"
    )))
}
