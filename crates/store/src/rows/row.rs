//! The bytes of a row: a record, sealed with a checksum over its table and key too.

use ganger_types::{Bytes, Finished, InputState, JobKey, JobRecord, Timestamp};

use super::RowError;
use crate::encoding::{self, Cursor, Record, Writer};

/// Converts a number to the signed integer of SQL; numbers beyond its range, which do not occur, become the largest.
pub fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts an integer of SQL back to a number.
pub fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Returns a row's key: a job's number.
pub fn row_key(key: JobKey) -> [u8; 8] {
    key.0.to_be_bytes()
}

/// Reads the record of a job from its row in the table `jobs` or `finished`, and compares its number.
///
/// # Errors
/// If the row is damaged, or holds the record of another job.
pub fn record_at(table: &str, key: JobKey, sealed: &[u8]) -> Result<JobRecord, RowError> {
    let record: JobRecord = open_record(table, &row_key(key), sealed)?;
    if record.key != key {
        return Err(RowError::row(
            table,
            key,
            "it holds the record of another job",
        ));
    }
    Ok(record)
}

/// Returns a row's key: a job's number and a slot.
pub fn slot_key(key: JobKey, slot: u32) -> [u8; 12] {
    let mut row_key = [0; 12];
    row_key[..8].copy_from_slice(&key.0.to_be_bytes());
    row_key[8..].copy_from_slice(&slot.to_be_bytes());
    row_key
}

/// Returns a row's key: a job's number, an attempt and an offset.
pub fn log_key(key: JobKey, attempt: u32, offset: u64) -> [u8; 20] {
    let mut row_key = [0; 20];
    row_key[..8].copy_from_slice(&key.0.to_be_bytes());
    row_key[8..12].copy_from_slice(&attempt.to_be_bytes());
    row_key[12..].copy_from_slice(&offset.to_be_bytes());
    row_key
}

/// Writes the sealed form of a record into `buffer`, which is emptied first.
pub fn seal_record<R: Record>(table: &str, row_key: &[u8], record: &R, buffer: &mut Vec<u8>) {
    buffer.clear();
    encoding::encode_into(record, buffer);
    encoding::seal(table, row_key, 0, buffer);
}

/// Writes the sealed form of plain bytes into `buffer`, which is emptied first.
pub fn seal_bytes(table: &str, row_key: &[u8], bytes: &[u8], buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.extend_from_slice(bytes);
    encoding::seal(table, row_key, 0, buffer);
}

/// Verifies a row's checksum and returns the content.
///
/// # Errors
/// If its checksum or its content is wrong.
pub fn open<'a>(table: &str, row_key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8], RowError> {
    encoding::unseal(table, row_key, sealed).ok_or_else(|| {
        RowError::row(
            table,
            show(row_key),
            "its checksum does not match its content",
        )
    })
}

/// Verifies and reads a record.
///
/// # Errors
/// If its checksum or its content is wrong.
pub fn open_record<R: Record>(table: &str, row_key: &[u8], sealed: &[u8]) -> Result<R, RowError> {
    let content = open(table, row_key, sealed)?;
    encoding::decode(content).map_err(|error| RowError::unreadable(table, show(row_key), &error))
}

/// Verifies and copies plain bytes.
///
/// # Errors
/// If its checksum or its content is wrong.
pub fn open_bytes(table: &str, row_key: &[u8], sealed: &[u8]) -> Result<Bytes, RowError> {
    open(table, row_key, sealed).map(Bytes::copy_from_slice)
}

/// Writes the sealed form of a log chunk with its time into `buffer`.
pub fn seal_log(row_key: &[u8], at: Timestamp, bytes: &[u8], buffer: &mut Vec<u8>) {
    buffer.clear();
    let mut out = Writer::new(buffer);
    out.number(at.0);
    out.raw(bytes);
    encoding::seal("logs", row_key, 0, buffer);
}

/// Verifies and reads a log chunk with its time.
///
/// # Errors
/// If its checksum or its content is wrong.
pub fn open_log(row_key: &[u8], sealed: &[u8]) -> Result<(Timestamp, Bytes), RowError> {
    let content = open("logs", row_key, sealed)?;
    let mut from = Cursor::new(content, "log");
    let at = from
        .number()
        .map_err(|error| RowError::unreadable("logs", show(row_key), &error))?;
    Ok((Timestamp(at), Bytes::copy_from_slice(from.rest())))
}

/// Returns a row's key in readable form: a job's number and what follows, or a name.
pub fn show(row_key: &[u8]) -> String {
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0_u64, |all, byte| (all << 8) | u64::from(*byte))
    };
    match row_key.len() {
        8 => format!("job {}", number(row_key)),
        12 => format!(
            "job {}, slot {}",
            number(&row_key[..8]),
            number(&row_key[8..])
        ),
        20 => format!(
            "job {}, attempt {}, offset {}",
            number(&row_key[..8]),
            number(&row_key[8..12]),
            number(&row_key[12..])
        ),
        _ => format!("\"{}\"", row_key.escape_ascii()),
    }
}

/// Value of the column `dependency` of an input whose dependency is a job of another shard.
const ON_OTHER_SHARD: i64 = -1;

/// Value of the column `dependency` of an input; `None` for inputs that are not loaded at start.
pub fn dependency_column(state: &InputState) -> Option<i64> {
    match state {
        InputState::Missing { dependency, .. } | InputState::Delivered { dependency, .. } => {
            Some(to_sql(dependency.0))
        }
        InputState::Remote { .. } => Some(ON_OTHER_SHARD),
        InputState::Value(_) | InputState::Received { .. } | InputState::Ignored { .. } => None,
    }
}

/// Time until which the job's own setting keeps it, in microseconds since the Unix epoch; the largest number means
/// forever, `None` that the job has no such setting.
pub fn retention_end(end: &Finished) -> Option<i64> {
    end.keep_until
        .map(|until| until.map_or(i64::MAX, |at| to_sql(at.0)))
}
