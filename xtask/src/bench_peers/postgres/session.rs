//! One connection to PostgreSQL: simple queries, and prepared statements in pipelines.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use ganger_bench::Wire;

/// Text and numbers of 64 bits, as PostgreSQL numbers its types.
pub(super) const TEXT: u32 = 25;
pub(super) const INT8: u32 = 20;

/// A connection to PostgreSQL, without TLS.
pub(super) struct Session {
    wire: Wire,
}

/// What the server sends until it is ready again goes here, row by row.
type Rows<'a> = &'a mut dyn FnMut(Row<'_>) -> Result<()>;

impl Session {
    pub(super) fn open(address: SocketAddr) -> Result<Self> {
        let mut wire = Wire::connect(address)?;
        let mut startup = Vec::new();
        startup.extend_from_slice(&196_608_u32.to_be_bytes());
        startup.extend_from_slice(b"user\0bench\0database\0postgres\0\0");
        wire.add(&u32::try_from(startup.len() + 4)?.to_be_bytes());
        wire.add(&startup);
        let mut session = Self { wire };
        session.until_ready(&mut |_| Ok(()))?;
        Ok(session)
    }

    /// Runs a query; the first value of its first row, if it has one.
    pub(super) fn query(&mut self, text: &str) -> Result<Option<Vec<u8>>> {
        let mut body = text.as_bytes().to_vec();
        body.push(0);
        self.wire.add(&message(b'Q', &body)?);
        let mut first = None;
        self.until_ready(&mut |mut row| {
            if first.is_none() {
                first = Some(row.column()?.to_vec());
            }
            Ok(())
        })?;
        Ok(first)
    }

    /// Prepares a statement whose only parameter has the type, or array type, that the text says.
    pub(super) fn prepare(&mut self, name: &str, text: &str) -> Result<()> {
        let mut body = Vec::new();
        for word in [name, text] {
            body.extend_from_slice(word.as_bytes());
            body.push(0);
        }
        body.extend_from_slice(&0_u16.to_be_bytes());
        self.wire.add(&message(b'P', &body)?);
        self.sync()?;
        self.until_ready(&mut |_| Ok(()))
    }

    /// Adds messages to what is sent next.
    pub(super) fn add(&mut self, messages: &[u8]) {
        self.wire.add(messages);
    }

    /// Ends a transaction: what was added since the last one is committed together.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.wire.add(&message(b'S', b"")?);
        Ok(())
    }

    /// Sends what was added, and waits for an answer or until the time. Whether there is one.
    pub(super) fn flush_and_wait(&mut self, until: Option<Instant>) -> Result<bool> {
        self.wire.flush_and_wait(until)
    }

    /// Reads until a transaction has ended, and passes its rows on.
    pub(super) fn until_ready(&mut self, rows: Rows<'_>) -> Result<()> {
        self.wire.flush()?;
        let mut error = None;
        loop {
            let head = self.wire.bytes(5)?;
            let kind = head[0];
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let body = self.wire.bytes(usize::try_from(length)? - 4)?;
            match kind {
                b'D' => rows(Row {
                    rest: body.get(2..).context("a row too short")?,
                })?,
                b'E' => error = Some(String::from_utf8_lossy(body).replace('\0', " ")),
                b'Z' => break,
                _ => {}
            }
        }
        match error {
            None => Ok(()),
            Some(error) => bail!("PostgreSQL said: {error}"),
        }
    }
}

/// A row, read column by column.
pub(super) struct Row<'a> {
    rest: &'a [u8],
}

impl<'a> Row<'a> {
    /// The next column; a null is empty.
    pub(super) fn column(&mut self) -> Result<&'a [u8]> {
        let (length, after) = self
            .rest
            .split_first_chunk::<4>()
            .context("a row too short")?;
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        let (column, after) = after.split_at_checked(length).context("a row too short")?;
        self.rest = after;
        Ok(column)
    }
}

fn message(kind: u8, body: &[u8]) -> Result<Vec<u8>> {
    let mut message = vec![kind];
    message.extend_from_slice(&u32::try_from(body.len() + 4)?.to_be_bytes());
    message.extend_from_slice(body);
    Ok(message)
}

/// The messages that run a prepared statement, with its parameter in binary if there is one.
pub(super) fn execution(name: &str, parameter: Option<&[u8]>) -> Result<Vec<u8>> {
    let mut bind = vec![0];
    bind.extend_from_slice(name.as_bytes());
    bind.push(0);
    // One format for all parameters: binary.
    bind.extend_from_slice(&[0, 1, 0, 1]);
    bind.extend_from_slice(&u16::from(parameter.is_some()).to_be_bytes());
    if let Some(parameter) = parameter {
        bind.extend_from_slice(&u32::try_from(parameter.len())?.to_be_bytes());
        bind.extend_from_slice(parameter);
    }
    // The columns come as text.
    bind.extend_from_slice(&0_u16.to_be_bytes());
    let mut messages = message(b'B', &bind)?;
    messages.extend(message(b'E', &[0; 5])?);
    Ok(messages)
}

/// An array of one dimension, in binary.
pub(super) fn array<'a>(
    element: u32,
    values: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<Vec<u8>> {
    let mut array = Vec::new();
    for word in [1, 0, element, u32::try_from(values.len())?, 1] {
        array.extend_from_slice(&word.to_be_bytes());
    }
    for value in values {
        array.extend_from_slice(&u32::try_from(value.len())?.to_be_bytes());
        array.extend_from_slice(value);
    }
    Ok(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_its_length() {
        let sync = message(b'S', b"").expect("it is short");
        assert_eq!(sync, [b'S', 0, 0, 0, 4]);
    }

    #[test]
    fn an_array_has_a_head_and_its_values() {
        let values = [&b"ab"[..], b"c"];
        let array = array(TEXT, values.into_iter()).expect("it is short");
        assert_eq!(array.len(), 20 + 4 + 2 + 4 + 1);
        assert_eq!(array[..4], [0, 0, 0, 1]);
        assert_eq!(array[20..26], [0, 0, 0, 2, b'a', b'b']);
    }

    #[test]
    fn a_row_is_read_column_by_column() {
        let mut row = Row {
            rest: &[0, 0, 0, 2, b'1', b'2', 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1],
        };
        assert_eq!(row.column().expect("it is whole"), b"12");
        assert_eq!(row.column().expect("it is null"), b"");
        assert!(row.column().is_err(), "it is cut");
    }
}
