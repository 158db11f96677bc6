//! beanstalkd, which flushes its log at every write.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use ganger_bench::{BlockingLink, BlockingPeer};

use super::scratch::{Process, free_address};
use super::wire::Wire;

/// A private beanstalkd with an empty log.
pub(super) struct Server {
    _process: Process,
    address: SocketAddr,
}

impl Server {
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut command = Command::new("beanstalkd");
        command
            .args([
                "-l",
                "127.0.0.1",
                "-p",
                &address.port().to_string(),
                "-f0",
                "-b",
            ])
            .arg(directory);
        Ok(Self {
            _process: Process::start(&mut command, directory, address)?,
            address,
        })
    }
}

impl BlockingPeer for Server {
    fn connect(&self) -> Result<Box<dyn BlockingLink>> {
        Ok(Box::new(Tube {
            wire: Wire::connect(self.address)?,
            taken: Vec::new(),
        }))
    }
}

/// A connection, and the ids of the jobs that it has reserved.
struct Tube {
    wire: Wire,
    taken: Vec<String>,
}

impl Tube {
    fn reserved(&mut self) -> Result<Option<Vec<u8>>> {
        let line = self.wire.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["RESERVED", id, length] => {
                self.taken.push((*id).to_owned());
                let length: usize = length
                    .parse()
                    .context("beanstalkd sent a length that is not a number")?;
                let mut bytes = self.wire.bytes(length + 2)?;
                bytes.truncate(length);
                Ok(Some(bytes))
            }
            ["TIMED_OUT" | "DEADLINE_SOON"] => Ok(None),
            _ => bail!("beanstalkd answered {line:?}"),
        }
    }
}

impl BlockingLink for Tube {
    fn put(&mut self, payloads: &[Vec<u8>]) -> Result<()> {
        for payload in payloads {
            self.wire
                .add(format!("put 0 0 60 {}\r\n", payload.len()).as_bytes());
            self.wire.add(payload);
            self.wire.add(b"\r\n");
        }
        self.wire.flush()?;
        for _ in payloads {
            let line = self.wire.line()?;
            ensure!(line.starts_with("INSERTED"), "beanstalkd answered {line:?}");
        }
        Ok(())
    }

    fn take(&mut self, jobs: usize) -> Result<Vec<Vec<u8>>> {
        for _ in 0..jobs {
            self.wire.add(b"reserve-with-timeout 0\r\n");
        }
        self.wire.flush()?;
        let mut payloads = Vec::new();
        for _ in 0..jobs {
            payloads.extend(self.reserved()?);
        }
        Ok(payloads)
    }

    fn take_one_waiting(&mut self) -> Result<Option<Vec<u8>>> {
        self.wire.add(b"reserve-with-timeout 1\r\n");
        self.wire.flush()?;
        self.reserved()
    }

    fn finish(&mut self) -> Result<()> {
        let taken = std::mem::take(&mut self.taken);
        for id in &taken {
            self.wire.add(format!("delete {id}\r\n").as_bytes());
        }
        self.wire.flush()?;
        for _ in &taken {
            let line = self.wire.line()?;
            ensure!(line == "DELETED", "beanstalkd answered {line:?}");
        }
        Ok(())
    }
}
