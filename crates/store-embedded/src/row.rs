//! The bytes of a row: a record, sealed with a checksum over its table and key too.

use ganger_store::encoding::{self, Cursor, Record, Writer};
use ganger_types::{Bytes, JobKey, Timestamp};

use crate::fault::Fault;

/// Converts a number to SQLite's signed integer; numbers beyond its range, which do not occur, become the largest.
pub(crate) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts an SQLite integer back to a number.
pub(crate) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Returns a row's key: a job's number.
pub(crate) fn row_key(key: JobKey) -> [u8; 8] {
    key.0.to_be_bytes()
}

/// Returns a row's key: a job's number and a slot.
pub(crate) fn slot_key(key: JobKey, slot: u32) -> [u8; 12] {
    let mut row_key = [0; 12];
    row_key[..8].copy_from_slice(&key.0.to_be_bytes());
    row_key[8..].copy_from_slice(&slot.to_be_bytes());
    row_key
}

/// Returns a row's key: a job's number, an attempt and an offset.
pub(crate) fn log_key(key: JobKey, attempt: u32, offset: u64) -> [u8; 20] {
    let mut row_key = [0; 20];
    row_key[..8].copy_from_slice(&key.0.to_be_bytes());
    row_key[8..12].copy_from_slice(&attempt.to_be_bytes());
    row_key[12..].copy_from_slice(&offset.to_be_bytes());
    row_key
}

/// Writes the sealed form of a record into `buffer`, which is emptied first.
pub(crate) fn seal_record<R: Record>(
    table: &str,
    row_key: &[u8],
    record: &R,
    buffer: &mut Vec<u8>,
) {
    buffer.clear();
    encoding::encode_into(record, buffer);
    encoding::seal(table, row_key, 0, buffer);
}

/// Writes the sealed form of plain bytes into `buffer`, which is emptied first.
pub(crate) fn seal_bytes(table: &str, row_key: &[u8], bytes: &[u8], buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.extend_from_slice(bytes);
    encoding::seal(table, row_key, 0, buffer);
}

/// Verifies a row's checksum and returns the content.
pub(crate) fn open<'a>(table: &str, row_key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8], Fault> {
    encoding::unseal(table, row_key, sealed).ok_or_else(|| {
        Fault::row(
            table,
            show(row_key),
            "its checksum does not match its content",
        )
    })
}

/// Verifies and reads a record.
pub(crate) fn open_record<R: Record>(
    table: &str,
    row_key: &[u8],
    sealed: &[u8],
) -> Result<R, Fault> {
    let content = open(table, row_key, sealed)?;
    encoding::decode(content).map_err(|error| Fault::unreadable(table, show(row_key), &error))
}

/// Verifies and copies plain bytes.
pub(crate) fn open_bytes(table: &str, row_key: &[u8], sealed: &[u8]) -> Result<Bytes, Fault> {
    open(table, row_key, sealed).map(Bytes::copy_from_slice)
}

/// Writes the sealed form of a log chunk with its time into `buffer`.
pub(crate) fn seal_log(row_key: &[u8], at: Timestamp, bytes: &[u8], buffer: &mut Vec<u8>) {
    buffer.clear();
    let mut out = Writer::new(buffer);
    out.number(at.0);
    out.raw(bytes);
    encoding::seal("logs", row_key, 0, buffer);
}

/// Verifies and reads a log chunk with its time.
pub(crate) fn open_log(row_key: &[u8], sealed: &[u8]) -> Result<(Timestamp, Bytes), Fault> {
    let content = open("logs", row_key, sealed)?;
    let mut from = Cursor::new(content, "log");
    let at = from
        .number()
        .map_err(|error| Fault::unreadable("logs", show(row_key), &error))?;
    Ok((Timestamp(at), Bytes::copy_from_slice(from.rest())))
}

/// Returns a row's key in readable form: a job's number and what follows, or a name.
pub(crate) fn show(row_key: &[u8]) -> String {
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
