//! A buffered connection: writes are gathered, reads are by line or by length.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 16;

/// A server that sends nothing for so long, while an answer is due, is taken for dead.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// One connection to a server.
pub struct Wire {
    stream: TcpStream,
    unsent: Vec<u8>,
    /// What was read and not yet used is from `used` to `filled`.
    read: Vec<u8>,
    used: usize,
    filled: usize,
}

impl Wire {
    /// Connects to a server, without delay for small messages.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(Self::over(stream))
    }

    /// The wire over a connection that is open.
    pub(crate) fn over(stream: TcpStream) -> Self {
        Self {
            stream,
            unsent: Vec::new(),
            read: vec![0; 2 * READ_BYTES],
            used: 0,
            filled: 0,
        }
    }

    /// Adds bytes to what the next flush sends.
    pub fn add(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Sends what was gathered.
    pub fn flush(&mut self) -> Result<()> {
        if !self.unsent.is_empty() {
            self.stream.write_all(&self.unsent)?;
            self.unsent.clear();
        }
        Ok(())
    }

    /// What was read and not yet used, without waiting for more.
    pub fn buffered(&self) -> &[u8] {
        &self.read[self.used..self.filled]
    }

    /// Sends what was gathered, and waits until there is something to read, or until the time. Whether there is.
    pub fn flush_and_wait(&mut self, until: Option<Instant>) -> Result<bool> {
        self.flush()?;
        let Some(until) = until else {
            return Ok(true);
        };
        if !self.buffered().is_empty() {
            return Ok(true);
        }
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left)?;
        let mut sockets = [PollFd::new(&self.stream, PollFlags::IN)];
        Ok(poll(&mut sockets, Some(&left))? > 0)
    }

    /// Reads more; false at the end of the connection.
    pub(crate) fn fill(&mut self) -> Result<bool> {
        if self.read.len() - self.filled < READ_BYTES || self.used == self.filled {
            self.read.copy_within(self.used..self.filled, 0);
            self.filled -= self.used;
            self.used = 0;
        }
        if self.read.len() - self.filled < READ_BYTES {
            self.read.resize(2 * self.read.len(), 0);
        }
        let count = self.stream.read(&mut self.read[self.filled..])?;
        self.filled += count;
        Ok(count > 0)
    }

    fn fill_or_fail(&mut self) -> Result<()> {
        if !self.fill()? {
            bail!("the server closed the connection");
        }
        Ok(())
    }

    /// Whether a whole line was read and not yet used.
    pub fn has_line(&self) -> bool {
        self.buffered().contains(&b'\n')
    }

    /// The next line, without its end.
    pub fn line(&mut self) -> Result<&[u8]> {
        let mut searched = 0;
        let end = loop {
            let found = self.buffered()[searched..].iter().position(|b| *b == b'\n');
            if let Some(place) = found {
                break self.used + searched + place;
            }
            searched = self.buffered().len();
            self.fill_or_fail()?;
        };
        let line = &self.read[self.used..end];
        self.used = end + 1;
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// The next so many bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&[u8]> {
        while self.buffered().len() < count {
            self.fill_or_fail()?;
        }
        self.used += count;
        Ok(&self.read[self.used - count..self.used])
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn lines_and_bytes_are_read_whole_however_they_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut wire = Wire::connect(listener.local_addr().expect("it has one")).expect("it is up");
        let (mut server, _) = listener.accept().expect("the client comes");
        let soon = Instant::now() + Duration::from_millis(1);
        assert!(!wire.flush_and_wait(Some(soon)).expect("it waits"));
        server.write_all(b"a line\r\n12").expect("it listens");
        assert!(wire.flush_and_wait(None).expect("it is there"));
        assert_eq!(wire.line().expect("it is whole"), b"a line");
        assert!(!wire.has_line());
        server.write_all(b"345\r\nnext\n").expect("it listens");
        assert_eq!(wire.bytes(5).expect("they come"), b"12345");
        assert_eq!(wire.line().expect("it is empty"), b"");
        drop(server);
        assert_eq!(wire.line().expect("it is whole"), b"next");
        assert!(wire.line().is_err(), "the connection is closed");
    }
}
