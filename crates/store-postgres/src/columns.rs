//! Rows by column, as they are sent: as arrays of a statement, or in the binary format of `COPY`.

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio_postgres::types::{ToSql, Type};

use crate::session::Parameter;

/// From this number of rows on they are copied, which costs another flight and saves work per row.
const COPY_ROWS_MIN: usize = 32;
/// Copied rows are sent in pieces of about so many bytes.
const PIECE_BYTES: usize = 64 << 10;
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// The values of one column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Column {
    Int8(Vec<i64>),
    Int8Option(Vec<Option<i64>>),
    Int2(Vec<i16>),
    Bool(Vec<bool>),
    Bytes(Vec<Vec<u8>>),
    BytesOption(Vec<Option<Vec<u8>>>),
}

impl Column {
    /// Whether there is no value.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        match self {
            Self::Int8(values) => values.len(),
            Self::Int8Option(values) => values.len(),
            Self::Int2(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::Bytes(values) => values.len(),
            Self::BytesOption(values) => values.len(),
        }
    }

    /// Returns the column as the parameter of a statement: an array.
    pub(crate) fn parameter(&self) -> Parameter<'_> {
        fn of<T: ToSql + Sync>(values: &T, kind: Type) -> Parameter<'_> {
            (values, kind)
        }
        match self {
            Self::Int8(values) => of(values, Type::INT8_ARRAY),
            Self::Int8Option(values) => of(values, Type::INT8_ARRAY),
            Self::Int2(values) => of(values, Type::INT2_ARRAY),
            Self::Bool(values) => of(values, Type::BOOL_ARRAY),
            Self::Bytes(values) => of(values, Type::BYTEA_ARRAY),
            Self::BytesOption(values) => of(values, Type::BYTEA_ARRAY),
        }
    }

    /// Returns the type of the array, for SQL.
    fn array(&self) -> &'static str {
        match self {
            Self::Int8(_) | Self::Int8Option(_) => "int8[]",
            Self::Int2(_) => "int2[]",
            Self::Bool(_) => "bool[]",
            Self::Bytes(_) | Self::BytesOption(_) => "bytea[]",
        }
    }

    /// Writes the value of a row as a field of `COPY`.
    fn put(&self, row: usize, out: &mut BytesMut) {
        match self {
            Self::Int8(values) => put_field(&values[row].to_be_bytes(), out),
            Self::Int8Option(values) => match values[row] {
                Some(value) => put_field(&value.to_be_bytes(), out),
                None => out.put_i32(-1),
            },
            Self::Int2(values) => put_field(&values[row].to_be_bytes(), out),
            Self::Bool(values) => put_field(&[u8::from(values[row])], out),
            Self::Bytes(values) => put_field(&values[row], out),
            Self::BytesOption(values) => match &values[row] {
                Some(value) => put_field(value, out),
                None => out.put_i32(-1),
            },
        }
    }
}

fn put_field(bytes: &[u8], out: &mut BytesMut) {
    out.put_i32(i32::try_from(bytes.len()).expect("no row has 2 GiB"));
    out.put_slice(bytes);
}

/// Rows to insert into one table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Insert {
    /// Table with its schema.
    pub(crate) table: String,
    /// Names of the columns, separated by commas.
    pub(crate) names: &'static str,
    pub(crate) columns: Vec<Column>,
    /// What to do with rows that are there; empty if there are none.
    pub(crate) conflict: &'static str,
}

impl Insert {
    /// Number of rows in the columns.
    pub(crate) fn rows(&self) -> usize {
        self.columns.first().map_or(0, Column::len)
    }

    /// Whether the rows are copied.
    pub(crate) fn is_copied(&self) -> bool {
        self.conflict.is_empty() && self.rows() >= COPY_ROWS_MIN
    }

    /// Returns the statement that copies the rows.
    pub(crate) fn copy_sql(&self) -> String {
        format!(
            "COPY {} ({}) FROM STDIN (FORMAT BINARY)",
            self.table, self.names
        )
    }

    /// Returns the statement that inserts the rows; it takes the columns.
    pub(crate) fn sql(&self) -> String {
        let arrays: Vec<_> = (1..)
            .zip(&self.columns)
            .map(|(number, column)| format!("${number}::{}", column.array()))
            .collect();
        let Self {
            table,
            names,
            conflict,
            ..
        } = self;
        let arrays = arrays.join(", ");
        format!("INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays}) {conflict}")
    }

    /// Returns the rows in the binary format of `COPY`.
    pub(crate) fn copied(&self) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let mut out = BytesMut::with_capacity(PIECE_BYTES + 4_096);
        out.put_slice(SIGNATURE);
        out.put_i32(0);
        out.put_i32(0);
        let fields = i16::try_from(self.columns.len()).expect("a table has few columns");
        for row in 0..self.rows() {
            out.put_i16(fields);
            self.columns
                .iter()
                .for_each(|column| column.put(row, &mut out));
            if out.len() >= PIECE_BYTES {
                pieces.push(out.split().freeze());
            }
        }
        out.put_i16(-1);
        pieces.push(out.freeze());
        pieces
    }
}

/// Reads rows in the binary format of `COPY` as their bytes come.
#[derive(Default)]
pub(crate) struct CopyReader {
    buffer: BytesMut,
    has_begun: bool,
    is_over: bool,
}

/// Bytes that are not in the binary format of `COPY`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotCopied;

impl CopyReader {
    /// Adds bytes and passes the fields of each whole row to `each`; `None` stands for NULL.
    pub(crate) fn read<E: From<NotCopied>>(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[Option<&[u8]>]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.buffer.extend_from_slice(bytes);
        if !self.has_begun {
            let head = SIGNATURE.len() + 8;
            if self.buffer.len() < head {
                return Ok(());
            }
            if !self.buffer.starts_with(SIGNATURE) {
                return Err(NotCopied.into());
            }
            let _ = self.buffer.split_to(head);
            self.has_begun = true;
        }
        let mut read = 0;
        while !self.is_over {
            let mut fields = Fields {
                bytes: &self.buffer[read..],
                at: 0,
            };
            match fields.row()? {
                Row::Partial => break,
                Row::End => self.is_over = true,
                Row::Fields(values) => each(&values)?,
            }
            read += fields.at;
        }
        let _ = self.buffer.split_to(read);
        Ok(())
    }

    /// Whether the end of the rows has come.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}

enum Row<'a> {
    Partial,
    End,
    Fields(Vec<Option<&'a [u8]>>),
}

struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(*taken)
    }

    fn row(&mut self) -> Result<Row<'a>, NotCopied> {
        let Some(count) = self.take::<2>().map(i16::from_be_bytes) else {
            return Ok(Row::Partial);
        };
        if count == -1 {
            return Ok(Row::End);
        }
        let count = usize::try_from(count).map_err(|_| NotCopied)?;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            let Some(length) = self.take::<4>().map(i32::from_be_bytes) else {
                return Ok(Row::Partial);
            };
            if length == -1 {
                values.push(None);
                continue;
            }
            let length = usize::try_from(length).map_err(|_| NotCopied)?;
            let Some(value) = self.bytes.get(self.at..self.at + length) else {
                return Ok(Row::Partial);
            };
            self.at += length;
            values.push(Some(value));
        }
        Ok(Row::Fields(values))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl From<NotCopied> for () {
        fn from(_: NotCopied) -> Self {}
    }

    fn insert(numbers: Vec<i64>, bodies: Vec<Option<Vec<u8>>>) -> Insert {
        Insert {
            table: "t".to_owned(),
            names: "a, b",
            columns: vec![Column::Int8(numbers), Column::BytesOption(bodies)],
            conflict: "",
        }
    }

    proptest! {
        #[test]
        fn copied_rows_are_read_back_however_their_bytes_are_cut(
            rows in prop::collection::vec((any::<i64>(), any::<Option<Vec<u8>>>()), 0..20),
            cut in 1_usize..50,
        ) {
            let (numbers, bodies) = rows.iter().cloned().unzip();
            let bytes = insert(numbers, bodies).copied().concat();
            let mut reader = CopyReader::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(cut) {
                let read: Result<(), ()> = reader.read(piece, |fields| {
                    let number = fields[0].and_then(|field| field.try_into().ok());
                    let number = number.map(i64::from_be_bytes).expect("it is there");
                    found.push((number, fields[1].map(<[u8]>::to_vec)));
                    Ok(())
                });
                read.expect("they are rows");
            }
            prop_assert!(reader.is_over());
            prop_assert_eq!(found, rows);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [SIGNATURE, &[0; 8], &bytes].concat();
            let _: Result<(), ()> = CopyReader::default().read(&bytes, |_| Ok(()));
        }
    }

    #[test]
    fn the_statement_has_an_array_for_each_column() {
        assert_eq!(
            insert(vec![1], vec![None]).sql(),
            "INSERT INTO t (a, b) SELECT * FROM unnest($1::int8[], $2::bytea[]) "
        );
    }
}
