//! Finds finished jobs whose retention may have expired, through the indexes.

use ganger_store::rows::row::{from_sql, record_at, to_sql};
use ganger_types::JobKey;
use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use tokio_postgres::types::Type;

use crate::fault::Fault;
use crate::session::Parameter;
use crate::tables::{Tables, limit_of};

const BY_AGE: &str = "SELECT key, body FROM {s}.finished
    WHERE place = (SELECT id FROM {s}.places WHERE namespace = $1 AND queue = $2)
      AND outcome = $3 AND own IS NULL AND ended_at <= $4
    ORDER BY ended_at, key LIMIT $5";
/// Oldest finished jobs of a queue beyond the number to keep. Jobs with their own retention count among the oldest,
/// but are not removed for exceeding that number.
const BY_COUNT: &str = "SELECT f.key, f.body FROM (
        SELECT key, ended_order FROM (SELECT key, own, ended_order FROM {s}.finished
            WHERE place = (SELECT id FROM {s}.places WHERE namespace = $1 AND queue = $2) AND outcome = $3
            ORDER BY ended_order LIMIT $4) oldest
        WHERE own IS NULL ORDER BY ended_order LIMIT $5) k
    JOIN {s}.finished f USING (key) ORDER BY k.ended_order";
const BY_OWN_TIME: &str = "SELECT key, body FROM {s}.finished
    WHERE own IS NOT NULL AND own <= $1 ORDER BY own, key LIMIT $2";

pub(crate) fn find(
    tables: &Tables<'_>,
    query: &ExpiredJobsQuery,
    limit: usize,
) -> Result<Vec<ExpiredJob>, Fault> {
    let limit = limit_of(limit);
    let (sql, namespace, queue, outcome, bound, beyond_count) = match query {
        ExpiredJobsQuery::ByAge {
            namespace,
            queue,
            outcome,
            before,
        } => (BY_AGE, namespace, queue, outcome, before.0, false),
        ExpiredJobsQuery::ByCount {
            namespace,
            queue,
            outcome,
            excess,
        } => (BY_COUNT, namespace, queue, outcome, *excess, true),
        ExpiredJobsQuery::ByOwnTime { before } => {
            // The largest number stands for "forever".
            let before = to_sql(before.0).min(i64::MAX - 1);
            let parameters: [Parameter<'_>; 2] = [(&before, Type::INT8), (&limit, Type::INT8)];
            return read(tables, BY_OWN_TIME, &parameters, false);
        }
    };
    let (namespace, queue) = (namespace.as_bytes(), queue.as_bytes());
    let outcome = i16::from(outcome.state().number());
    let bound = to_sql(bound);
    let parameters: [Parameter<'_>; 5] = [
        (&namespace, Type::BYTEA),
        (&queue, Type::BYTEA),
        (&outcome, Type::INT2),
        (&bound, Type::INT8),
        (&limit, Type::INT8),
    ];
    read(tables, sql, &parameters, beyond_count)
}

fn read(
    tables: &Tables<'_>,
    sql: &str,
    parameters: &[Parameter<'_>],
    beyond_count: bool,
) -> Result<Vec<ExpiredJob>, Fault> {
    let rows = tables.query(sql, parameters)?;
    let jobs = rows.iter().map(|row| {
        let key = JobKey(from_sql(row.try_get(0)?));
        let record = record_at("finished", key, row.try_get(1)?)?;
        Ok(ExpiredJob {
            record: Box::new(record),
            beyond_count,
        })
    });
    jobs.collect()
}
