//! The load's side of the bare server.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Result, bail, ensure};

use super::protocol::{
    COMPLETE, ENQUEUE, HEAD_BYTES, ID_BYTES, LENGTH_BYTES, TAKE, TAKE_WAITING, add_head,
    add_length, head, length,
};
use crate::Used;
use crate::blocking::wire::Wire;
use crate::blocking::{BlockingLink, BlockingPeer};
use crate::link::Watch;

/// A bare server that runs. It has one queue.
pub struct Bare {
    /// Address at which the server listens.
    pub address: SocketAddr,
    /// Process id of the server, for its CPU time and memory.
    pub process: u32,
}

impl BlockingPeer for Bare {
    fn connect(&self, _: &str) -> Result<Box<dyn BlockingLink>> {
        Ok(Box::new(Caller {
            wire: Wire::connect(self.address)?,
            message: Vec::new(),
            taken: Vec::new(),
        }))
    }

    fn used(&self) -> Used {
        Used::of_family(self.process)
    }
}

/// One connection, and the ids that it has taken.
struct Caller {
    wire: Wire,
    message: Vec<u8>,
    taken: Vec<u8>,
}

impl Caller {
    fn answer(&mut self, expected: u8) -> Result<usize> {
        let bytes = self.wire.bytes(HEAD_BYTES)?;
        match head(bytes) {
            Some((what, count)) if what == expected => Ok(count),
            _ => bail!("the bare server answered {bytes:?}"),
        }
    }

    fn call(&mut self, what: u8, jobs: usize, watch: Watch<'_>) -> Result<usize> {
        let mut request = Vec::with_capacity(HEAD_BYTES);
        add_head(&mut request, what, jobs);
        self.wire.add(&request);
        self.wire.flush()?;
        let count = self.answer(TAKE)?;
        for _ in 0..count {
            self.taken.extend_from_slice(self.wire.bytes(ID_BYTES)?);
            let length = length(self.wire.bytes(LENGTH_BYTES)?).unwrap_or(0);
            watch(self.wire.bytes(length)?);
        }
        Ok(count)
    }
}

impl BlockingLink for Caller {
    fn prepare(&mut self, payload: &[u8], jobs: usize) -> Result<()> {
        self.message.clear();
        add_head(&mut self.message, ENQUEUE, jobs);
        for _ in 0..jobs {
            add_length(&mut self.message, payload.len());
            self.message.extend_from_slice(payload);
        }
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
        self.answer(ENQUEUE)?;
        let mut count = 1;
        while self.wire.buffered().len() >= HEAD_BYTES {
            self.answer(ENQUEUE)?;
            count += 1;
        }
        Ok(count)
    }

    fn take(&mut self, jobs: usize, watch: Watch<'_>) -> Result<usize> {
        self.call(TAKE, jobs, watch)
    }

    fn take_one_waiting(&mut self, watch: Watch<'_>) -> Result<usize> {
        self.call(TAKE_WAITING, 1, watch)
    }

    fn complete(&mut self) -> Result<()> {
        let count = self.taken.len() / ID_BYTES;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        add_head(&mut head, COMPLETE, count);
        self.wire.add(&head);
        self.wire.add(&self.taken);
        self.wire.flush()?;
        self.taken.clear();
        let completed = self.answer(COMPLETE)?;
        ensure!(
            completed == count,
            "the bare server completed {completed} of {count} jobs"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::bare::BareServer;

    #[test]
    fn jobs_come_out_as_they_went_in_and_are_completed_once() {
        let directory = std::env::temp_dir().join(format!("bare-server-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a new directory");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has one");
        let server = BareServer::create(&directory).expect("a new journal");
        thread::spawn(move || server.serve(&listener));
        let bare = Bare {
            address,
            process: std::process::id(),
        };
        let mut link = bare.connect("").expect("it listens");
        assert_eq!(link.take(3, &mut |_| ()).expect("it answers"), 0);
        for payload in [&b"one"[..], b"two"] {
            link.prepare(payload, 2).expect("it can be encoded");
            link.send().expect("it is added");
        }
        let mut answered = 0;
        while answered < 2 {
            answered += link.acknowledged(None).expect("it answers");
        }
        let mut seen = Vec::new();
        let mut watch = |payload: &[u8]| seen.push(payload.to_vec());
        assert_eq!(link.take(3, &mut watch).expect("it answers"), 3);
        assert_eq!(link.take_one_waiting(&mut watch).expect("it answers"), 1);
        assert_eq!(seen, [&b"one"[..], b"one", b"two", b"two"]);
        link.complete().expect("all four were taken");
        std::fs::remove_dir_all(&directory).expect("it is there");
    }
}
