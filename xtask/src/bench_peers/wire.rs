//! A buffered connection: writes are collected until a flush, reads are by line or by length.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail};

/// A buffered connection to a server.
pub(crate) struct Wire {
    reader: BufReader<TcpStream>,
    unsent: Vec<u8>,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self {
            reader: BufReader::with_capacity(1 << 16, stream),
            unsent: Vec::new(),
        })
    }

    /// Adds bytes to the next flush.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Sends the added bytes.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.reader.get_mut().write_all(&self.unsent)?;
        self.unsent.clear();
        Ok(())
    }

    /// Reads the next line; returns it without its line end.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        self.line_into(&mut line)?;
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    /// Reads the next line into `line`, without its line end.
    pub(crate) fn line_into(&mut self, line: &mut Vec<u8>) -> Result<()> {
        line.clear();
        if self.reader.read_until(b'\n', line)? == 0 {
            bail!("the server closed the connection");
        }
        line.truncate(line.trim_ascii_end().len());
        Ok(())
    }

    /// Reads exactly `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.bytes_into(count, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads exactly `count` bytes into `bytes`.
    pub(crate) fn bytes_into(&mut self, count: usize, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.resize(count, 0);
        self.reader.read_exact(bytes)?;
        Ok(())
    }
}
