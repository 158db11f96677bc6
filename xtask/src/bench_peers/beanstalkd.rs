//! beanstalkd with its log flushed at every write.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use ganger_bench::{BlockingLink, BlockingPeer, Used, Watch, Wire};

use super::scratch::{Process, free_address};

/// A beanstalkd that only this benchmark uses. All loads use its default tube.
pub(super) struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let address = free_address()?;
        let mut command = Command::new("beanstalkd");
        command
            .args(["-l", "127.0.0.1", "-p", &address.port().to_string()])
            .args(["-f0", "-b"])
            .arg(directory);
        Ok(Self {
            process: Process::start(&mut command, directory, address)?,
            address,
        })
    }
}

impl BlockingPeer for Server {
    fn connect(&self, _: &str) -> Result<Box<dyn BlockingLink>> {
        Ok(Box::new(Tube {
            wire: Wire::connect(self.address)?,
            message: Vec::new(),
            jobs: 1,
            inserted: 0,
            deletes: Vec::new(),
            taken: 0,
        }))
    }

    fn used(&self) -> Used {
        Used::of_family(self.process.id())
    }
}

/// One connection and what it has reserved.
struct Tube {
    wire: Wire,
    /// One enqueue: a `put` for each of so many jobs.
    message: Vec<u8>,
    jobs: usize,
    /// Answers to the oldest message that came so far.
    inserted: usize,
    /// The commands that complete what was taken, and their number.
    deletes: Vec<u8>,
    taken: usize,
}

impl Tube {
    /// Reads an answer to a `put`; the number of messages it completes.
    fn inserted(&mut self) -> Result<usize> {
        let line = self.wire.line()?;
        let is_inserted = line.starts_with(b"INSERTED");
        ensure!(is_inserted, "beanstalkd said {:?}", show(line));
        self.inserted += 1;
        if self.inserted < self.jobs {
            return Ok(0);
        }
        self.inserted = 0;
        Ok(1)
    }

    /// Reads the answer to a reserve, and notes what completes the job. Whether there was one.
    fn reserved(&mut self, watch: Watch<'_>) -> Result<bool> {
        let line = show(self.wire.line()?);
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["RESERVED", id, length] => {
                let length: usize = length
                    .parse()
                    .context("beanstalkd sent a length that is no number")?;
                self.deletes
                    .extend_from_slice(format!("delete {id}\r\n").as_bytes());
                self.taken += 1;
                watch(&self.wire.bytes(length + 2)?[..length]);
                Ok(true)
            }
            ["TIMED_OUT" | "DEADLINE_SOON"] => Ok(false),
            _ => bail!("beanstalkd said {line:?}"),
        }
    }
}

fn show(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

impl BlockingLink for Tube {
    fn prepare(&mut self, payload: &[u8], jobs: usize) -> Result<()> {
        let mut put = format!("put 0 0 60 {}\r\n", payload.len()).into_bytes();
        put.extend_from_slice(payload);
        put.extend_from_slice(b"\r\n");
        self.message = put.repeat(jobs);
        self.jobs = jobs;
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.wire.add(&self.message);
        Ok(())
    }

    fn acknowledged(&mut self, until: Option<Instant>) -> Result<usize> {
        if !self.wire.flush_and_wait(until)? {
            return Ok(0);
        }
        let mut count = 0;
        while count == 0 || self.wire.has_line() {
            count += self.inserted()?;
        }
        Ok(count)
    }

    fn take(&mut self, jobs: usize, watch: Watch<'_>) -> Result<usize> {
        for _ in 0..jobs {
            self.wire.add(b"reserve-with-timeout 0\r\n");
        }
        self.wire.flush()?;
        let mut count = 0;
        for _ in 0..jobs {
            count += usize::from(self.reserved(watch)?);
        }
        Ok(count)
    }

    fn take_one_waiting(&mut self, watch: Watch<'_>) -> Result<usize> {
        self.wire.add(b"reserve-with-timeout 1\r\n");
        self.wire.flush()?;
        self.reserved(watch).map(usize::from)
    }

    fn complete(&mut self) -> Result<()> {
        self.wire.add(&self.deletes);
        self.wire.flush()?;
        self.deletes.clear();
        for _ in 0..std::mem::take(&mut self.taken) {
            let line = self.wire.line()?;
            ensure!(line == b"DELETED", "beanstalkd said {:?}", show(line));
        }
        Ok(())
    }
}
