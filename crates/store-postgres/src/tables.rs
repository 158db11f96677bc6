//! Reads of the tables, each one statement on one of the connections that read.

use ganger_store::LogChunk;
use ganger_store::encoding::Record;
use ganger_store::rows::row::{
    from_sql, log_key, open_bytes, open_log, open_record, record_at, row_key, slot_key, to_sql,
};
use ganger_store::rows::secondary_index::id_entry;
use ganger_store::waiting::JobRows;
use ganger_types::{Bytes, InputRow, JobId, JobKey, LeaseRecord, Namespace};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::database::QUERY_MAX;
use crate::fault::Fault;
use crate::session::Parameter;
use crate::shared::Shared;

/// Pieces of a log read at a time.
const LOG_PIECES: i64 = 256;

/// Runs statements: `{s}` stands for the schema of the shard.
pub(crate) struct Tables<'a> {
    pub(crate) shared: &'a Shared,
}

impl Tables<'_> {
    pub(crate) fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Fault> {
        let sql = self.shared.backend.names.sql(sql);
        self.shared
            .backend
            .database
            .query(&sql, parameters, QUERY_MAX)
    }

    /// Reads the only column of the only row.
    fn body(&self, sql: &str, key: JobKey) -> Result<Option<Vec<u8>>, Fault> {
        let number = to_sql(key.0);
        let rows = self.query(sql, &[(&number, Type::INT8)])?;
        let body: Option<Option<Vec<u8>>> = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(body.flatten())
    }

    /// Reads the rows of the job with this number, live or finished.
    pub(crate) fn job_rows(&self, key: JobKey) -> Result<Option<JobRows>, Fault> {
        let number = to_sql(key.0);
        let rows = self.query(
            "SELECT (SELECT body FROM {s}.jobs WHERE key = $1), (SELECT body FROM {s}.leases WHERE key = $1),
                (SELECT body FROM {s}.finished WHERE key = $1)",
            &[(&number, Type::INT8)],
        )?;
        match rows.first() {
            Some(row) => job_rows_of(row, 0, key),
            None => Ok(None),
        }
    }

    pub(crate) fn payload(&self, key: JobKey) -> Result<Option<Bytes>, Fault> {
        let sealed = self.body("SELECT body FROM {s}.payloads WHERE key = $1", key)?;
        Ok(sealed
            .map(|sealed| open_bytes("payloads", &row_key(key), &sealed))
            .transpose()?)
    }

    pub(crate) fn result(&self, key: JobKey) -> Result<Option<Bytes>, Fault> {
        let sealed = self.body("SELECT result FROM {s}.finished WHERE key = $1", key)?;
        Ok(sealed
            .map(|sealed| open_bytes("results", &row_key(key), &sealed))
            .transpose()?)
    }

    pub(crate) fn inputs(
        &self,
        key: JobKey,
        from: u32,
        limit: usize,
    ) -> Result<Vec<InputRow>, Fault> {
        let (number, from, limit) = (to_sql(key.0), i64::from(from), limit_of(limit));
        let rows = self.query(
            "SELECT slot, body FROM {s}.inputs WHERE job = $1 AND slot >= $2 ORDER BY slot LIMIT $3",
            &[
                (&number, Type::INT8),
                (&from, Type::INT8),
                (&limit, Type::INT8),
            ],
        )?;
        rows.iter()
            .map(|row| {
                let (slot, body): (i64, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
                let slot = u32::try_from(slot)
                    .map_err(|_| Fault::row("inputs", key, "its slot is out of range"))?;
                Ok(open_record("inputs", &slot_key(key, slot), body)?)
            })
            .collect()
    }

    /// Finds the number of the job with this id that a client chose.
    pub(crate) fn key_of(
        &self,
        namespace: &Namespace,
        id: &JobId,
    ) -> Result<Option<JobKey>, Fault> {
        let mark = id_entry(namespace, id);
        let rows = self.query(
            "SELECT key FROM {s}.marks WHERE mark = $1 ORDER BY key LIMIT 1",
            &[(&mark, Type::BYTEA)],
        )?;
        let key: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(key.map(|key| JobKey(from_sql(key))))
    }

    pub(crate) fn named<R: Record>(&self, table: &str, name: &[u8]) -> Result<Option<R>, Fault> {
        let sql = format!("SELECT body FROM {{s}}.{table} WHERE name = $1");
        let rows = self.query(&sql, &[(&name, Type::BYTEA)])?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        Ok(Some(open_record(table, name, row.try_get(0)?)?))
    }

    /// Returns the length of the log of an attempt.
    pub(crate) fn log_bytes(&self, key: JobKey, attempt: u32) -> Result<u64, Fault> {
        let (number, of) = (to_sql(key.0), i64::from(attempt));
        let rows = self.query(
            "SELECT start, body FROM {s}.logs WHERE job = $1 AND attempt = $2
             ORDER BY start DESC LIMIT 1",
            &[(&number, Type::INT8), (&of, Type::INT8)],
        )?;
        let Some(row) = rows.first() else {
            return Ok(0);
        };
        let offset = from_sql(row.try_get(0)?);
        let (_, bytes) = open_log(&log_key(key, attempt, offset), row.try_get(1)?)?;
        Ok(offset + u64::try_from(bytes.len()).unwrap_or(u64::MAX))
    }

    pub(crate) fn log_pieces(
        &self,
        key: JobKey,
        (attempt, offset): (u32, u64),
        is_first: bool,
    ) -> Result<Vec<LogChunk>, Fault> {
        let number = to_sql(key.0);
        let (after, start) = (i64::from(attempt), to_sql(offset));
        // The chunk that contains the offset may begin before it.
        let from = if is_first {
            "(attempt, start) >= ($2, coalesce((SELECT max(start) FROM {s}.logs
                WHERE job = $1 AND attempt = $2 AND start <= $3), 0))"
        } else {
            "(attempt, start) > ($2, $3)"
        };
        let sql = format!(
            "SELECT attempt, start, body FROM {{s}}.logs WHERE job = $1 AND {from}
             ORDER BY attempt, start LIMIT {LOG_PIECES}"
        );
        let parameters: [Parameter<'_>; 3] = [
            (&number, Type::INT8),
            (&after, Type::INT8),
            (&start, Type::INT8),
        ];
        let rows = self.query(&sql, &parameters)?;
        rows.iter()
            .map(|row| {
                let (attempt, start, sealed): (i64, i64, &[u8]) =
                    (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                let attempt = u32::try_from(attempt)
                    .map_err(|_| Fault::row("logs", key, "its attempt is out of range"))?;
                let offset = from_sql(start);
                let (at, bytes) = open_log(&log_key(key, attempt, offset), sealed)?;
                Ok(LogChunk {
                    attempt,
                    offset,
                    at,
                    bytes,
                })
            })
            .collect()
    }
}

/// Reads a job from three columns: its live row, its lease, its finished row. `None` if it has neither row.
pub(crate) fn job_rows_of(row: &Row, first: usize, key: JobKey) -> Result<Option<JobRows>, Fault> {
    let live: Option<&[u8]> = row.try_get(first)?;
    let finished: Option<&[u8]> = row.try_get(first + 2)?;
    if let Some(sealed) = live {
        let record = record_at("jobs", key, sealed)?;
        let lease: Option<&[u8]> = row.try_get(first + 1)?;
        let lease = lease
            .map(|sealed| open_record::<LeaseRecord>("leases", &row_key(key), sealed))
            .transpose()?;
        return Ok(Some(JobRows { record, lease }));
    }
    let record = finished
        .map(|sealed| record_at("finished", key, sealed))
        .transpose()?;
    Ok(record.map(|record| JobRows {
        record,
        lease: None,
    }))
}

pub(crate) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
