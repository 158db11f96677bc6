//! The bare server: plain threads, a queue in memory, and its journal.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use super::journal::{Journal, PREALLOCATED_PAGES};
use super::protocol::{
    COMPLETE, ENQUEUE, HEAD_BYTES, ID_BYTES, LENGTH_BYTES, TAKE, TAKE_WAITING, add_head,
    add_length, head, id, length,
};
use crate::blocking::wire::Wire;

/// How long a take that waits waits.
const TAKE_WITHIN: Duration = Duration::from_secs(1);

/// The queue and its journal.
pub struct BareServer {
    journal: Journal,
    jobs: Mutex<Jobs>,
    ready: Condvar,
}

#[derive(Default)]
struct Jobs {
    id_last: u64,
    ready: VecDeque<(u64, Box<[u8]>)>,
    leased: HashMap<u64, Box<[u8]>>,
}

/// What one connection has to do before it waits again.
#[derive(Default)]
struct Turn {
    /// Records to append to the journal, which is flushed once for all of them.
    records: Vec<u8>,
    /// Jobs that become ready when the records are durable.
    enqueued: Vec<(u64, Box<[u8]>)>,
    answers: Vec<u8>,
}

impl BareServer {
    /// A server with a new journal in the directory. Preallocating it takes a while.
    pub fn create(directory: &Path) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            journal: Journal::create(&directory.join("journal"), PREALLOCATED_PAGES)?,
            jobs: Mutex::new(Jobs::default()),
            ready: Condvar::new(),
        }))
    }

    /// Serves until the process ends.
    pub fn serve(self: Arc<Self>, listener: &TcpListener) -> io::Result<()> {
        for stream in listener.incoming() {
            let (stream, server) = (stream?, Arc::clone(&self));
            // A connection that breaks is its client's affair.
            thread::spawn(move || server.converse(stream));
        }
        Ok(())
    }

    fn converse(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut wire = Wire::over(stream);
        let mut turn = Turn::default();
        loop {
            let mut used = 0;
            while let Some(bytes) = self.request(&wire.buffered()[used..], &mut turn)? {
                used += bytes;
            }
            wire.bytes(used)?;
            self.finish(&mut turn)?;
            wire.add(&turn.answers);
            wire.flush()?;
            turn.answers.clear();
            if !wire.fill()? {
                return Ok(());
            }
        }
    }

    /// Makes everything durable, then lets others see it.
    fn finish(&self, turn: &mut Turn) -> Result<()> {
        self.journal.commit(&turn.records)?;
        turn.records.clear();
        if !turn.enqueued.is_empty() {
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.ready.extend(turn.enqueued.drain(..));
            self.ready.notify_all();
        }
        Ok(())
    }

    /// Does the request at the beginning, if it is there whole; its bytes.
    fn request(&self, bytes: &[u8], turn: &mut Turn) -> Result<Option<usize>> {
        let Some((what, count)) = head(bytes) else {
            return Ok(None);
        };
        let body = &bytes[HEAD_BYTES..];
        let used = match what {
            ENQUEUE => self.enqueue(body, count, turn),
            TAKE => {
                self.take(count, turn);
                Some(0)
            }
            TAKE_WAITING => {
                // What came before must not wait with it.
                self.finish(turn)?;
                self.wait();
                self.take(count, turn);
                Some(0)
            }
            COMPLETE => self.complete(body, count, turn),
            _ => bail!("{what} is no request"),
        };
        Ok(used.map(|used| HEAD_BYTES + used))
    }

    fn enqueue(&self, body: &[u8], count: usize, turn: &mut Turn) -> Option<usize> {
        let mut used = 0;
        for _ in 0..count {
            used += LENGTH_BYTES + length(body.get(used..)?)?;
        }
        let body = body.get(..used)?;
        let last = {
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.id_last += u64::try_from(count).unwrap_or(0);
            jobs.id_last
        };
        let first = last - u64::try_from(count).unwrap_or(0) + 1;
        add_head(&mut turn.records, ENQUEUE, count);
        turn.records.extend_from_slice(&first.to_be_bytes());
        turn.records.extend_from_slice(body);
        let mut rest = body;
        for id in first..=last {
            let (payload, after) = rest[LENGTH_BYTES..].split_at(length(rest)?);
            turn.enqueued.push((id, payload.into()));
            rest = after;
        }
        add_head(&mut turn.answers, ENQUEUE, 0);
        Some(used)
    }

    fn wait(&self) {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = |jobs: &mut Jobs| jobs.ready.is_empty();
        // Another one may take the job first; then this take finds none.
        drop(self.ready.wait_timeout_while(jobs, TAKE_WITHIN, is_empty));
    }

    fn take(&self, count: usize, turn: &mut Turn) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let count = count.min(jobs.ready.len());
        add_head(&mut turn.answers, TAKE, count);
        for _ in 0..count {
            let Some((id, payload)) = jobs.ready.pop_front() else {
                break;
            };
            turn.answers.extend_from_slice(&id.to_be_bytes());
            add_length(&mut turn.answers, payload.len());
            turn.answers.extend_from_slice(&payload);
            jobs.leased.insert(id, payload);
        }
    }

    fn complete(&self, body: &[u8], count: usize, turn: &mut Turn) -> Option<usize> {
        let body = body.get(..count * ID_BYTES)?;
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut completed = 0;
        for bytes in body.chunks_exact(ID_BYTES) {
            completed += usize::from(jobs.leased.remove(&id(bytes)?).is_some());
        }
        drop(jobs);
        add_head(&mut turn.records, COMPLETE, count);
        turn.records.extend_from_slice(body);
        add_head(&mut turn.answers, COMPLETE, completed);
        Some(body.len())
    }
}
