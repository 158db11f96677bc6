//! Rows of external systems (raw keys, elements of lists, qless) in their tables: the name and the body of each.

use ganger_types::{
    ElementRecord, ExternalChange, ExternalRow, ExternalRowKey, KeyRecord, Namespace, QlessKey,
    QlessRow,
};

use super::RowError;
use super::names::name;
use super::row::{open_record, seal_record, show};
use super::small::expect_name;
use crate::encoding::{Cursor, Writer};

/// The tables of external systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalTable {
    /// Raw keys by number.
    Keys,
    /// Elements of lists of raw keys.
    Elements,
    /// Rows of qless, by namespace, kind and name.
    Qless,
}

impl ExternalTable {
    /// All of them, in the order in which they are loaded.
    pub const ALL: [Self; 3] = [Self::Keys, Self::Elements, Self::Qless];

    /// Whether the table has many rows that are written several times and then removed, so that a database must often
    /// clear away old versions of them.
    pub fn is_rewritten_often(self) -> bool {
        self == Self::Qless
    }

    /// Version of the embedded store's tables in which this table appeared.
    pub fn since(self) -> u32 {
        match self {
            Self::Keys | Self::Elements => 4,
            Self::Qless => 5,
        }
    }

    /// Returns the name of the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Elements => "elements",
            Self::Qless => "qless",
        }
    }
}

/// Returns the table and key of a row.
pub fn row_name(key: &ExternalRowKey) -> (ExternalTable, Vec<u8>) {
    match key {
        ExternalRowKey::Key(number) => (ExternalTable::Keys, number.to_be_bytes().to_vec()),
        ExternalRowKey::Element(list, place) => {
            (ExternalTable::Elements, element_name(*list, *place))
        }
        ExternalRowKey::Qless(namespace, key) => (ExternalTable::Qless, qless_name(namespace, key)),
    }
}

/// Writes the sealed row into `buffer`; returns false if the row is to be deleted.
pub fn encode(table: &str, name: &[u8], change: &ExternalChange, buffer: &mut Vec<u8>) -> bool {
    match change {
        ExternalChange::PutKey(record) => seal_record(table, name, &**record, buffer),
        ExternalChange::PutElement(record) => seal_record(table, name, &**record, buffer),
        ExternalChange::PutQless(_, row) => seal_record(table, name, &**row, buffer),
        ExternalChange::RemoveKey(_)
        | ExternalChange::RemoveElement(..)
        | ExternalChange::RemoveQless(..) => return false,
    }
    true
}

/// Reads a row and compares it with its key.
///
/// # Errors
/// If its checksum or its content is wrong.
pub fn read(table: ExternalTable, at: &[u8], body: &[u8]) -> Result<ExternalRow, RowError> {
    let row = match table {
        ExternalTable::Keys => {
            ExternalRow::Key(Box::new(open_record::<KeyRecord>(table.name(), at, body)?))
        }
        ExternalTable::Elements => {
            let element = open_record::<ElementRecord>(table.name(), at, body)?;
            ExternalRow::Element(Box::new(element))
        }
        ExternalTable::Qless => {
            let (namespace, row) = read_qless_row(at, body)?;
            return Ok(ExternalRow::Qless(namespace, Box::new(row)));
        }
    };
    expect_name(table.name(), at, &row_name(&row.key()).1)?;
    Ok(row)
}

/// Reads a qless row and its namespace.
///
/// # Errors
/// If its checksum or its content is wrong.
pub fn read_qless_row(at: &[u8], body: &[u8]) -> Result<(Namespace, QlessRow), RowError> {
    let table = ExternalTable::Qless.name();
    let namespace = namespace_of(at)
        .ok_or_else(|| RowError::row(table, show(at), "its name has a wrong form"))?;
    let row = open_record::<QlessRow>(table, at, body)?;
    let named = match row.key() {
        QlessKey::Job { number: 0, jid } => qless_job_name_by_id(&namespace, &jid),
        key => qless_name(&namespace, &key),
    };
    expect_name(table, at, &named)?;
    Ok((namespace, row))
}

/// Returns the key of a list element. They sort by list, then from left to right.
fn element_name(list: u64, place: i64) -> Vec<u8> {
    let mut name = list.to_be_bytes().to_vec();
    let from_the_leftmost = place.cast_unsigned() ^ (1 << 63);
    name.extend_from_slice(&from_the_leftmost.to_be_bytes());
    name
}

/// Kind byte of qless jobs in the keys of their rows. Before version 6 of the tables the byte was 1, followed by the
/// job's id.
const QLESS_JOB: u8 = 10;
const QLESS_JOB_BY_ID: u8 = 1;

/// Returns the key of a qless row. They sort by namespace and kind.
pub fn qless_name(namespace: &Namespace, key: &QlessKey) -> Vec<u8> {
    let mut key_of_row = name(&[namespace.as_bytes()]);
    let mut out = Writer::new(&mut key_of_row);
    let (kind, part) = match key {
        // Most rows are jobs. Keyed by number, new jobs come after all others, so a commit changes few pages; ids are
        // mostly random.
        QlessKey::Job { number, .. } => {
            out.byte(QLESS_JOB);
            out.raw(&number.to_be_bytes());
            return key_of_row;
        }
        QlessKey::Recurring(jid) => (2, jid),
        QlessKey::Queue(queue) => (3, queue),
        QlessKey::Worker(worker) => (4, worker),
        QlessKey::Setting(option) => (5, option),
        QlessKey::TagCount(tag) => (6, tag),
        QlessKey::Tracked(jid) => (7, jid),
        QlessKey::Statistics(queue, _) => (8, queue),
        QlessKey::Throttle(id) => (9, id),
    };
    out.byte(kind);
    out.bytes(part);
    if let QlessKey::Statistics(_, day) = key {
        out.float(day.seconds());
    }
    key_of_row
}

/// Returns the namespace in the key of a qless row.
fn namespace_of(qless: &[u8]) -> Option<Namespace> {
    Namespace::new(Cursor::new(qless, "name").bytes().ok()?).ok()
}

/// Returns the key of a qless job's row in versions before 6.
fn qless_job_name_by_id(namespace: &Namespace, jid: &[u8]) -> Vec<u8> {
    let mut key_of_row = name(&[namespace.as_bytes()]);
    let mut out = Writer::new(&mut key_of_row);
    out.byte(QLESS_JOB_BY_ID);
    out.bytes(jid);
    key_of_row
}

/// Whether the key of a qless row is that of a job in versions before 6.
pub fn is_qless_job_by_id(qless: &[u8]) -> bool {
    let mut from = Cursor::new(qless, "name");
    from.bytes().is_ok() && from.byte().is_ok_and(|kind| kind == QLESS_JOB_BY_ID)
}
