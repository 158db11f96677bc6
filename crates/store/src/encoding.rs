//! The encoding of records: versioned and compact, made from one list of the fields of each type (`field`).
//!
//! A record is one version byte and its fields: whole numbers as varints, byte strings with their length before them,
//! absent fields as a bit in a set. Decoding never panics, and never allocates more than the length of the input
//! justifies. Stored records are [`seal`]ed: a CRC-32C over the row's key and its bytes follows the record, and is
//! verified before decoding.

#[cfg(any(test, feature = "suite"))]
pub mod any;
mod attempt;
mod commit;
mod cursor;
mod external;
mod field;
mod history;
mod idempotency;
mod input;
mod job;
mod lease;
mod new_job;
mod operation;
mod part;
mod peer;
mod policy;
mod queue;
mod schedule;
mod seal;
mod small;
#[cfg(test)]
mod tests;
mod writer;

pub use cursor::{Cursor, DecodeError};
pub use job::JobHeader;
pub use seal::{SEAL_BYTES, seal, unseal};
pub use writer::Writer;

/// A record that has a stored form.
pub trait Record: Sized {
    /// The version that is written; every older version can be read.
    const VERSION: u8 = 1;
    /// Name of the record in error messages.
    const WHAT: &'static str;

    /// Writes the fields in their stored order.
    fn write(&self, out: &mut Writer<'_>);

    /// Reads the fields in the layout of [`Cursor::version`].
    ///
    /// # Errors
    /// If the bytes are not such a record.
    fn read(from: &mut Cursor<'_>) -> Result<Self, DecodeError>;
}

/// Appends the encoded `record` to `out`.
pub fn encode_into<R: Record>(record: &R, out: &mut Vec<u8>) {
    Writer::new(out).record(record);
}

/// Returns the bytes of a record in the newest version.
pub fn encode<R: Record>(record: &R) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    encode_into(record, &mut out);
    out
}

/// Decodes a record, which must take all of `bytes`.
///
/// # Errors
/// If the bytes are not such a record, or have a newer version.
pub fn decode<R: Record>(bytes: &[u8]) -> Result<R, DecodeError> {
    let mut cursor = Cursor::new(bytes, R::WHAT);
    let record = cursor.record()?;
    cursor.end()?;
    Ok(record)
}
