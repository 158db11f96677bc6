//! Raw lists over the Redis protocol: push, move to a list of what is being worked on, remove from there. For Redis
//! itself and for every server that speaks its protocol.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Result, bail, ensure};

use super::wire::Wire;
use super::{BlockingLink, BlockingPeer};
use crate::Used;
use crate::link::Watch;

/// A server that speaks the Redis protocol.
pub struct Lists {
    address: SocketAddr,
    /// Its process; absent if its use is not measured here.
    process: Option<u32>,
    /// Connections opened so far, for the names of their lists.
    links: AtomicU64,
}

impl Lists {
    /// The server at an address, and its process if its use is to be measured.
    pub fn new(address: SocketAddr, process: Option<u32>) -> Self {
        Self {
            address,
            process,
            links: AtomicU64::new(0),
        }
    }
}

impl BlockingPeer for Lists {
    fn connect(&self, queue: &str) -> Result<Box<dyn BlockingLink>> {
        let number = self.links.fetch_add(1, Ordering::Relaxed);
        let held = format!("{queue}:held:{number}").into_bytes();
        let queue = queue.as_bytes();
        let mut take = Vec::new();
        add_command(&mut take, &[b"LMOVE", queue, &held, b"RIGHT", b"LEFT"]);
        let mut take_waiting = Vec::new();
        let words: [&[u8]; 6] = [b"BLMOVE", queue, &held, b"RIGHT", b"LEFT", b"1"];
        add_command(&mut take_waiting, &words);
        Ok(Box::new(List {
            wire: Wire::connect(self.address)?,
            queue: queue.to_vec(),
            message: Vec::new(),
            take,
            take_waiting,
            held,
            removals: Vec::new(),
            taken: 0,
        }))
    }

    fn used(&self) -> Used {
        self.process.map(Used::of_family).unwrap_or_default()
    }
}

/// One connection with a list of its own for what it holds.
struct List {
    wire: Wire,
    queue: Vec<u8>,
    /// The command that enqueues one message, encoded once and sent for each job.
    message: Vec<u8>,
    /// One take, and one that waits.
    take: Vec<u8>,
    take_waiting: Vec<u8>,
    held: Vec<u8>,
    /// The commands that complete what was taken, and their number.
    removals: Vec<u8>,
    taken: usize,
}

fn add_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

impl List {
    fn number(&mut self) -> Result<i64> {
        let line = self.wire.line()?;
        match line.split_first() {
            Some((b':', number)) => Ok(str::from_utf8(number)?.parse()?),
            _ => bail!("Redis said {:?}", String::from_utf8_lossy(line)),
        }
    }

    /// Reads the answer to a take, and notes what completes the job. Whether there was one.
    fn taken(&mut self, watch: Watch<'_>) -> Result<bool> {
        let line = self.wire.line()?;
        let length = match line.split_first() {
            // A move that waited in vain is answered with an array that is none.
            Some((b'$' | b'*', b"-1")) => return Ok(false),
            Some((b'$', length)) => str::from_utf8(length)?.parse::<usize>()?,
            _ => bail!("Redis said {:?}", String::from_utf8_lossy(line)),
        };
        let bytes = self.wire.bytes(length + 2)?;
        let payload = &bytes[..length];
        watch(payload);
        let words: [&[u8]; 4] = [b"LREM", &self.held, b"-1", payload];
        add_command(&mut self.removals, &words);
        self.taken += 1;
        Ok(true)
    }
}

impl BlockingLink for List {
    fn prepare(&mut self, payload: &[u8], jobs: usize) -> Result<()> {
        let mut words: Vec<&[u8]> = vec![b"LPUSH", &self.queue];
        words.resize(jobs + 2, payload);
        self.message.clear();
        add_command(&mut self.message, &words);
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
        self.number()?;
        let mut count = 1;
        while self.wire.has_line() {
            self.number()?;
            count += 1;
        }
        Ok(count)
    }

    fn take(&mut self, jobs: usize, watch: Watch<'_>) -> Result<usize> {
        for _ in 0..jobs {
            self.wire.add(&self.take);
        }
        self.wire.flush()?;
        let mut count = 0;
        for _ in 0..jobs {
            count += usize::from(self.taken(watch)?);
        }
        Ok(count)
    }

    fn take_one_waiting(&mut self, watch: Watch<'_>) -> Result<usize> {
        self.wire.add(&self.take_waiting);
        self.wire.flush()?;
        self.taken(watch).map(usize::from)
    }

    fn complete(&mut self) -> Result<()> {
        self.wire.add(&self.removals);
        self.wire.flush()?;
        self.removals.clear();
        for _ in 0..std::mem::take(&mut self.taken) {
            let removed = self.number()?;
            ensure!(removed == 1, "Redis removed {removed} items instead of 1");
        }
        Ok(())
    }
}
