//! Redis as a queue of lists: push, move to a processing list, remove from it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail, ensure};
use ganger_bench::{BlockingLink, BlockingPeer};

use super::scratch::{Process, free_address};
use super::wire::Wire;

/// A private Redis with an empty data set.
pub(super) struct Server {
    _process: Process,
    address: SocketAddr,
    links: AtomicU64,
}

impl Server {
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut command = command(address, directory);
        let process = Process::start(&mut command, directory, address)?;
        Ok(Self {
            _process: process,
            address,
            links: AtomicU64::new(0),
        })
    }
}

/// Returns the command that starts a Redis that flushes before it answers.
pub(crate) fn command(address: SocketAddr, directory: &Path) -> Command {
    let mut command = Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--appendonly", "yes", "--appendfsync", "always"])
        .args(["--save", "", "--dir"])
        .arg(directory);
    command
}

impl BlockingPeer for Server {
    fn connect(&self) -> Result<Box<dyn BlockingLink>> {
        let number = self.links.fetch_add(1, Ordering::Relaxed);
        let held = format!("held:{number}");
        Ok(Box::new(Lists {
            wire: Wire::connect(self.address)?,
            held,
            taken: Vec::new(),
        }))
    }
}

/// A connection with its own processing list.
struct Lists {
    wire: Wire,
    held: String,
    taken: Vec<Vec<u8>>,
}

impl Lists {
    fn command(&mut self, words: &[&[u8]]) {
        self.wire.add(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.wire.add(format!("${}\r\n", word.len()).as_bytes());
            self.wire.add(word);
            self.wire.add(b"\r\n");
        }
    }

    fn number(&mut self) -> Result<i64> {
        let line = self.wire.line()?;
        match line.strip_prefix(':') {
            Some(number) => Ok(number.parse()?),
            None => bail!("Redis answered {line:?}"),
        }
    }

    fn text(&mut self) -> Result<Option<Vec<u8>>> {
        let line = self.wire.line()?;
        // The reply to a move that timed out is a null array.
        if line == "*-1" {
            return Ok(None);
        }
        match line.strip_prefix('$') {
            Some("-1") => Ok(None),
            Some(length) => {
                let length: usize = length.parse()?;
                let mut bytes = self.wire.bytes(length + 2)?;
                bytes.truncate(length);
                Ok(Some(bytes))
            }
            None => bail!("Redis answered {line:?}"),
        }
    }
}

impl BlockingLink for Lists {
    fn put(&mut self, payloads: &[Vec<u8>]) -> Result<()> {
        for payload in payloads {
            self.command(&[b"LPUSH", b"queue", payload]);
        }
        self.wire.flush()?;
        for _ in payloads {
            self.number()?;
        }
        Ok(())
    }

    fn take(&mut self, jobs: usize) -> Result<Vec<Vec<u8>>> {
        let held = self.held.clone();
        for _ in 0..jobs {
            self.command(&[b"LMOVE", b"queue", held.as_bytes(), b"RIGHT", b"LEFT"]);
        }
        self.wire.flush()?;
        for _ in 0..jobs {
            let payload = self.text()?;
            self.taken.extend(payload);
        }
        Ok(self.taken.clone())
    }

    fn take_one_waiting(&mut self) -> Result<Option<Vec<u8>>> {
        let held = self.held.clone();
        self.command(&[
            b"BLMOVE",
            b"queue",
            held.as_bytes(),
            b"RIGHT",
            b"LEFT",
            b"1",
        ]);
        self.wire.flush()?;
        let payload = self.text()?;
        self.taken.extend(payload.clone());
        Ok(payload)
    }

    fn finish(&mut self) -> Result<()> {
        let taken = std::mem::take(&mut self.taken);
        let held = self.held.clone();
        for payload in &taken {
            self.command(&[b"LREM", held.as_bytes(), b"-1", payload]);
        }
        self.wire.flush()?;
        for _ in &taken {
            let removed = self.number()?;
            ensure!(removed == 1, "Redis removed {removed} items instead of 1");
        }
        Ok(())
    }
}
