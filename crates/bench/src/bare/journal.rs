//! Group commit: an append-only, preallocated file with one flush for all that wait.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Pages that are written with zeros in advance, so that a flush changes no metadata of the file: 64 MiB.
pub(super) const PREALLOCATED_PAGES: usize = 1 << 14;

/// Bytes that are written at once when zeros are. Larger writes would give the page cache larger units, and the system
/// would count a whole unit as written for each record in it.
const PAGE_BYTES: usize = 4_096;

/// The file, and who waits for it.
pub(super) struct Journal {
    file: File,
    /// Pages that are preallocated at once.
    pages: usize,
    state: Mutex<State>,
    flushed: Condvar,
}

#[derive(Default)]
struct State {
    /// Records that are not in the file yet.
    pending: Vec<u8>,
    /// An emptied buffer to take turns with that one.
    spare: Vec<u8>,
    /// Bytes appended since the start, and of those the durable ones.
    appended: u64,
    durable: u64,
    /// End of what is preallocated.
    allocated: u64,
    is_flushing: bool,
    /// A flush has failed: nothing is acknowledged any more.
    is_broken: bool,
}

impl Journal {
    /// A new file that grows by so many pages at once.
    pub(super) fn create(path: &Path, pages: usize) -> io::Result<Self> {
        let file = File::create_new(path)?;
        Ok(Self {
            state: Mutex::new(State {
                allocated: allocate(&file, 0, pages)?,
                ..State::default()
            }),
            file,
            pages,
            flushed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends records and returns when they are durable.
    pub(super) fn commit(&self, records: &[u8]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut state = self.lock();
        state.pending.extend_from_slice(records);
        state.appended += u64::try_from(records.len()).unwrap_or(0);
        let end = state.appended;
        while state.durable < end {
            if state.is_broken {
                return Err(io::Error::other("the journal could not be flushed"));
            }
            if state.is_flushing {
                let waited = self.flushed.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
            } else {
                state = self.flush(state)?;
            }
        }
        Ok(())
    }

    /// Writes and flushes what is pending, for all that wait.
    fn flush<'a>(&'a self, mut state: MutexGuard<'a, State>) -> io::Result<MutexGuard<'a, State>> {
        let spare = std::mem::take(&mut state.spare);
        let records = std::mem::replace(&mut state.pending, spare);
        let (from, to) = (state.durable, state.appended);
        let mut allocated = state.allocated;
        state.is_flushing = true;
        drop(state);
        let written = self.write(&records, from, to, &mut allocated);
        let mut state = self.lock();
        state.is_flushing = false;
        state.is_broken = written.is_err();
        state.allocated = allocated;
        state.spare = records;
        state.spare.clear();
        self.flushed.notify_all();
        written?;
        state.durable = to;
        Ok(state)
    }

    fn write(&self, records: &[u8], from: u64, to: u64, allocated: &mut u64) -> io::Result<()> {
        while to > *allocated {
            *allocated += allocate(&self.file, *allocated, self.pages)?;
        }
        self.file.write_all_at(records, from)?;
        self.file.sync_data()
    }
}

/// Writes zeros at a place and flushes them; returns their number.
fn allocate(file: &File, at: u64, pages: usize) -> io::Result<u64> {
    let zeros = [0; PAGE_BYTES];
    let mut end = at;
    for _ in 0..pages {
        file.write_all_at(&zeros, end)?;
        end += u64::try_from(PAGE_BYTES).unwrap_or(0);
    }
    file.sync_all()?;
    Ok(end - at)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn all_records_of_all_threads_are_in_the_file() {
        let path = std::env::temp_dir().join(format!("bare-journal-{}", std::process::id()));
        let journal = Arc::new(Journal::create(&path, 1).expect("a new file"));
        let threads: Vec<_> = (1..=4_u8)
            .map(|mark| {
                let journal = Arc::clone(&journal);
                thread::spawn(move || {
                    for _ in 0..5 {
                        journal.commit(&[mark; 250]).expect("it is written");
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("it does not panic");
        }
        let bytes = fs::read(&path).expect("it is there");
        fs::remove_file(&path).expect("it is there");
        for mark in 1..=4_u8 {
            let records = bytes
                .chunks_exact(250)
                .filter(|record| **record == [mark; 250]);
            assert_eq!(records.count(), 5);
        }
        assert_eq!(bytes.len(), 2 * PAGE_BYTES, "it has grown once");
    }
}
