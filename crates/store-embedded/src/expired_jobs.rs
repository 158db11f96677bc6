//! Finds finished jobs whose retention may have expired, through the indexes.

use ganger_store::rows::row::{from_sql, to_sql};
use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::{JobKey, JobRecord, Namespace, Outcome, Queue};
use rusqlite::{Connection, Params};

use crate::commit::find_queue_number;
use crate::fault::Fault;
use crate::load::read_keyed;

const BY_AGE: &str = "SELECT key, body FROM finished
    WHERE place = ?1 AND outcome = ?2 AND own IS NULL AND ended_at <= ?3
    ORDER BY ended_at, key LIMIT ?4";
/// Oldest finished jobs of a queue beyond the number to keep. Jobs with their own retention count among the oldest,
/// but are not removed for exceeding that number.
const BY_COUNT: &str = "SELECT key, body FROM finished WHERE key IN (
        SELECT key FROM (SELECT key, own FROM finished WHERE place = ?1 AND outcome = ?2
            ORDER BY ended_order LIMIT ?3)
        WHERE own IS NULL LIMIT ?4)
    ORDER BY ended_order";
const BY_OWN_TIME: &str = "SELECT key, body FROM finished
    WHERE own IS NOT NULL AND own <= ?1 ORDER BY own, key LIMIT ?2";

pub(crate) fn find(
    connection: &Connection,
    query: &ExpiredJobsQuery,
    limit: usize,
) -> Result<Vec<ExpiredJob>, Fault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    match query {
        ExpiredJobsQuery::ByAge {
            namespace,
            queue,
            outcome,
            before,
        } => {
            let Some((place, outcome)) = corner(connection, namespace, queue, *outcome)? else {
                return Ok(Vec::new());
            };
            read(
                connection,
                BY_AGE,
                (place, outcome, to_sql(before.0), limit),
                false,
            )
        }
        ExpiredJobsQuery::ByCount {
            namespace,
            queue,
            outcome,
            excess,
        } => {
            let Some((place, outcome)) = corner(connection, namespace, queue, *outcome)? else {
                return Ok(Vec::new());
            };
            read(
                connection,
                BY_COUNT,
                (place, outcome, to_sql(*excess), limit),
                true,
            )
        }
        ExpiredJobsQuery::ByOwnTime { before } => {
            // The largest number stands for "forever".
            let before = to_sql(before.0).min(i64::MAX - 1);
            read(connection, BY_OWN_TIME, (before, limit), false)
        }
    }
}

fn corner(
    connection: &Connection,
    namespace: &Namespace,
    queue: &Queue,
    outcome: Outcome,
) -> Result<Option<(i64, u8)>, Fault> {
    let place = find_queue_number(connection, namespace, queue)?;
    Ok(place.map(|place| (place, outcome.state().number())))
}

fn read(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    beyond_count: bool,
) -> Result<Vec<ExpiredJob>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let key = JobKey(from_sql(row.get(0)?));
        let record = read_keyed("finished", key, row, 1, |record: &JobRecord| record.key)?;
        found.push(ExpiredJob {
            record: Box::new(record),
            beyond_count,
        });
    }
    Ok(found)
}
