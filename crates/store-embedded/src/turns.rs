//! The turn log: small commits, each flushed by itself, until many of them are written into the tables at once.
//!
//! It is a file beside the store with its size fixed, so that a flush has nothing to write but the record. A record
//! is `turn`, the length of its content, the content, and a CRC-32C that also covers where the record stands and
//! whose log it is. The content is a commit, or a stamp: "up to here all is in the tables, flushed". Records follow
//! each other from the beginning of the file; once all of them are in the tables, durably, a stamp takes the first
//! place, and the next commit takes the stamp's.
//!
//! Each record is flushed before the next is written, so at most the last one can be torn. What is intact therefore
//! tells all there is to know: the commits that the tables do not have yet must follow them without a gap, up to the
//! last number in the file. Where they do not, something was lost that was acknowledged (`rel D7`, `rel D8`).

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ganger_store::StoreError;
use ganger_store::encoding::{
    Cursor, SEAL_BYTES, Writer, decode, encode, encode_into, seal, unseal,
};
use ganger_types::Commit;
use memchr::memmem;

use crate::create::{beside, open_own, sync_parent};
use crate::fault::{Fault, io};

/// Size of the file: some thousand small commits.
const FILE_BYTES: u64 = 2 << 20;
/// A longer record goes into the tables at once: it costs as much there as here.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 10;
/// No log is longer, whichever version wrote it.
const READ_BYTES_MAX: u64 = 64 << 20;
/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;
/// Records that are not intact and are looked at.
const DAMAGED_MAX: usize = 10_000;
const MAGIC: &[u8; 4] = b"turn";
/// `turn`, the length, and which kind of content follows.
const HEAD_BYTES: usize = 9;
const COMMIT: u8 = 1;
const STAMP: u8 = 2;

/// Returns the path of the turn log that belongs to `store`.
pub(crate) fn path_of(store: &Path) -> PathBuf {
    beside(store, "-turns")
}

/// A record's place in the seal: whose log, and where in it.
fn place(identity: &[u8; 16], offset: u64) -> [u8; 24] {
    let mut place = [0; 24];
    place[..16].copy_from_slice(identity);
    place[16..].copy_from_slice(&offset.to_le_bytes());
    place
}

/// The log, being written.
pub(crate) struct TurnLog {
    file: File,
    identity: [u8; 16],
    /// Where the next record goes.
    end: u64,
    buffer: Vec<u8>,
}

impl TurnLog {
    /// Opens the log of a store whose tables have all that is in it, or makes it.
    pub(crate) fn open(store: &Path, identity: [u8; 16]) -> Result<Self, StoreError> {
        let path = path_of(store);
        let file = open_or_make(&path).map_err(|error| io(&path, "created", error))?;
        sync_parent(&path)?;
        Ok(Self {
            file,
            identity,
            end: 0,
            buffer: Vec::with_capacity(4_096),
        })
    }

    /// Appends a commit and flushes it; false if there is no room for it.
    ///
    /// # Errors
    /// If it cannot be written or flushed: then nobody knows whether it is there.
    pub(crate) fn append(&mut self, commit: &Commit) -> std::io::Result<bool> {
        self.frame(COMMIT, self.end, |out| encode_into(commit, out));
        debug_assert!(self.is_readable(), "what is written can be read");
        let length = self.buffer.len();
        let after = self.end + u64::try_from(length).unwrap_or(u64::MAX);
        if length > RECORD_BYTES_MAX || after > FILE_BYTES {
            self.buffer.shrink_to(RECORD_BYTES_MAX);
            return Ok(false);
        }
        self.file.write_all_at(&self.buffer, self.end)?;
        self.file.sync_data()?;
        self.end = after;
        Ok(true)
    }

    /// Whether what is in the buffer is read as what was written. (A number that is none equals nothing, so bytes are
    /// compared.)
    fn is_readable(&self) -> bool {
        let content = &self.buffer[HEAD_BYTES..self.buffer.len() - SEAL_BYTES];
        decode::<Commit>(content).is_ok_and(|read| encode(&read) == content)
    }

    /// Begins again: all up to `sequence` is in the tables, flushed.
    ///
    /// The stamp is not flushed by itself. Should it be lost, the records are found again, and found in the tables.
    pub(crate) fn restart(&mut self, sequence: u64) -> std::io::Result<()> {
        self.frame(STAMP, 0, |out| Writer::new(out).number(sequence));
        self.file.write_all_at(&self.buffer, 0)?;
        self.end = 0;
        Ok(())
    }

    /// Makes a record in the buffer.
    fn frame(&mut self, kind: u8, offset: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut self.buffer;
        out.clear();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.push(kind);
        write(out);
        // One that is longer than that is not written at all.
        let length = u32::try_from(out.len() - HEAD_BYTES).unwrap_or(u32::MAX);
        out[4..8].copy_from_slice(&length.to_le_bytes());
        seal("turns", &place(&self.identity, offset), 0, out);
    }
}

fn open_or_make(path: &Path) -> std::io::Result<File> {
    let mut file = open_own(path)?;
    if file.metadata()?.len() == FILE_BYTES {
        return Ok(file);
    }
    // Zeros that are written, not only promised: a later flush then changes nothing but content.
    let filled = file.set_len(0).and_then(|()| {
        let zeros = vec![0; 1 << 16];
        for _ in 0..FILE_BYTES >> 16 {
            file.write_all(&zeros)?;
        }
        file.sync_all()
    });
    if let Err(error) = filled {
        // Half of it would only be in the way of the space that is missing.
        drop(file.set_len(0));
        return Err(error);
    }
    Ok(file)
}

/// Removes the log of a store whose tables have all that is in it.
pub(crate) fn remove(store: &Path) -> Result<(), Fault> {
    let path = path_of(store);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Fault::Store(io(&path, "removed", error)))
        }
        _ => Ok(()),
    }
}

/// An intact record of the turn log.
struct IntactRecord {
    sequence: u64,
    /// Its commit, if it is one.
    commit: Option<Vec<u8>>,
}

/// A commit whose record cannot be read, although its beginning can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DamagedRecord {
    pub(crate) sequence: u64,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl DamagedRecord {
    /// Whether a power cut while it was written can have left it like that. A disk writes a sector whole or not at all,
    /// so of a record within one, no part is missing where another is there.
    pub(crate) fn may_be_torn(&self) -> bool {
        self.offset / SECTOR_BYTES != (self.offset + self.bytes - 1) / SECTOR_BYTES
    }
}

/// What a log says.
pub(crate) struct TurnLogContent {
    path: PathBuf,
    /// Length of the file; absent if there is none.
    length: Option<u64>,
    /// Intact records, ordered by sequence.
    found: Vec<IntactRecord>,
    broken: Vec<DamagedRecord>,
}

impl TurnLogContent {
    /// Reads the log beside a store; one that is missing says nothing.
    pub(crate) fn read(store: &Path, identity: &[u8; 16]) -> Result<Self, StoreError> {
        let path = path_of(store);
        let file = std::fs::metadata(&path);
        let length = file.as_ref().ok().map(std::fs::Metadata::len);
        let bytes = match file {
            Ok(file) if file.len() > READ_BYTES_MAX => {
                let reason = format!(
                    "it has {} bytes, a turn log has at most {READ_BYTES_MAX}",
                    file.len()
                );
                return Err(io(&path, "read", reason));
            }
            Ok(_) => std::fs::read(&path),
            Err(error) => Err(error),
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io(&path, "read", error)),
        };
        let (mut found, broken) = find_all(&bytes, identity);
        found.sort_by_key(|record| (record.sequence, record.commit.is_none()));
        Ok(Self {
            path,
            length,
            found,
            broken,
        })
    }

    /// Whether the file has the length that it was made with.
    pub(crate) fn is_whole(&self) -> bool {
        self.length.is_some_and(|length| length >= FILE_BYTES)
    }

    /// What is missing of the file of a store that was not closed, in words.
    pub(crate) fn cut(&self) -> Option<String> {
        let length = self.length.filter(|length| *length < FILE_BYTES)?;
        let log = self.path.display();
        Some(format!(
            "its turn log {log} has {length} bytes of {FILE_BYTES}, so what was acknowledged last may be missing"
        ))
    }

    /// Whether the file is empty: somebody has put it there for one that is lost.
    pub(crate) fn is_discarded(&self) -> bool {
        self.length == Some(0)
    }

    /// The record behind all that tables at `sequence` and the log have, if it is there and cannot be read.
    pub(crate) fn damaged_end(&self, sequence: u64) -> Option<&DamagedRecord> {
        let last = self.found.last().map_or(0, |record| record.sequence);
        let next = last.max(sequence) + 1;
        self.broken.iter().find(|broken| broken.sequence == next)
    }

    /// A broken record in words, with what to do about it.
    pub(crate) fn describe(&self, broken: &DamagedRecord) -> String {
        let DamagedRecord {
            sequence,
            offset,
            bytes,
        } = broken;
        let log = self.path.display();
        if broken.may_be_torn() {
            return format!(
                "commit {sequence}, {bytes} bytes at byte {offset} of its turn log {log}, is broken and left out: if the \
                 machine lost power while that was written, nobody was told of it; otherwise it was acknowledged and is lost"
            );
        }
        format!(
            "commit {sequence}, {bytes} bytes at byte {offset} of its turn log {log}, is broken, and not by a power cut: \
             restore a backup; to go on without that commit, run `printf '\\0' | dd of={log} bs=1 seek={offset} conv=notrunc`"
        )
    }

    /// The commits behind `sequence`, the last one in the tables.
    ///
    /// # Errors
    /// If there are later ones but not all of them.
    pub(crate) fn commits_after(&self, sequence: u64) -> Result<Vec<Commit>, Fault> {
        let commits = self.consecutive_commits_after(sequence)?;
        let last = commits.last().map_or(sequence, |commit| commit.sequence);
        let Some(later) = self.found.iter().find(|record| record.sequence > last) else {
            return Ok(commits);
        };
        let first_missing = last + 1;
        let last_missing = later.sequence - u64::from(later.commit.is_some());
        let log = self.path.display();
        Err(Fault::Damaged(format!(
            "commits {first_missing} to {last_missing} were acknowledged and are in neither its tables nor its turn log \
             {log}: restore a backup; if this file was put in the place of another one, move that log away"
        )))
    }

    /// The commits that follow `sequence` without a gap, whatever comes behind them.
    pub(crate) fn consecutive_commits_after(&self, sequence: u64) -> Result<Vec<Commit>, Fault> {
        let mut commits = Vec::new();
        let mut next = sequence + 1;
        for record in &self.found {
            let Some(content) = record.commit.as_ref().filter(|_| record.sequence == next) else {
                continue;
            };
            let commit = decode(content).map_err(|error| {
                let log = self.path.display();
                Fault::Damaged(format!("commit {next} in its turn log {log} {error}"))
            })?;
            commits.push(commit);
            next += 1;
        }
        Ok(commits)
    }
}

/// Every intact record, wherever it stands: behind a damaged one there may be more. And what may be damaged ones.
fn find_all(bytes: &[u8], identity: &[u8; 16]) -> (Vec<IntactRecord>, Vec<DamagedRecord>) {
    let finder = memmem::Finder::new(MAGIC);
    let (mut all, mut broken) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(ahead) = finder.find(&bytes[at..]) {
        at += ahead;
        match record_at(bytes, at, identity) {
            Some((record, length)) => {
                all.push(record);
                at += length;
            }
            None => {
                // There is one at most that matters; text in payloads must not make this long.
                if broken.len() < DAMAGED_MAX {
                    broken.extend(damaged_at(bytes, at));
                }
                at += 1;
            }
        }
    }
    (all, broken)
}

/// The commit whose record begins at an offset, whatever its checksum says.
fn damaged_at(bytes: &[u8], at: usize) -> Option<DamagedRecord> {
    let rest = &bytes[at..];
    let total = total_bytes(rest)?;
    let (head, content) = rest.split_at_checked(HEAD_BYTES)?;
    if head[HEAD_BYTES - 1] != COMMIT {
        return None;
    }
    Some(DamagedRecord {
        sequence: sequence_of(&mut Cursor::new(content, "turn"))?,
        offset: at,
        bytes: total,
    })
}

/// The length of a record, by its head.
fn total_bytes(head: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(head.get(4..8)?.try_into().ok()?);
    let total = usize::try_from(length)
        .ok()?
        .checked_add(HEAD_BYTES + SEAL_BYTES)?;
    (total <= RECORD_BYTES_MAX).then_some(total)
}

/// The number of a commit; its version and epoch stand before it.
fn sequence_of(content: &mut Cursor<'_>) -> Option<u64> {
    let _version = content.byte().ok()?;
    let _epoch = content.number().ok()?;
    content.number().ok()
}

/// The record at an offset and its length, if it is intact.
fn record_at(bytes: &[u8], at: usize, identity: &[u8; 16]) -> Option<(IntactRecord, usize)> {
    let rest = &bytes[at..];
    let total = total_bytes(rest)?;
    let place = place(identity, u64::try_from(at).ok()?);
    let content = unseal("turns", &place, rest.get(..total)?)?.get(HEAD_BYTES..)?;
    let mut cursor = Cursor::new(content, "turn");
    let found = match rest[HEAD_BYTES - 1] {
        COMMIT => IntactRecord {
            sequence: sequence_of(&mut cursor)?,
            commit: Some(content.to_vec()),
        },
        STAMP => IntactRecord {
            sequence: cursor.number().ok()?,
            commit: None,
        },
        _ => return None,
    };
    Some((found, total))
}

#[cfg(test)]
mod tests {
    use ganger_types::{Change, JobKey};
    use proptest::prelude::*;

    use super::*;

    const IDENTITY: [u8; 16] = [7; 16];

    /// A log with these commits, one removal each.
    fn log_of(store: &Path, sequences: &[u64]) -> TurnLog {
        let mut log = TurnLog::open(store, IDENTITY).expect("it can be made");
        for sequence in sequences {
            let commit = Commit {
                sequence: *sequence,
                changes: vec![Change::RemoveJob(JobKey(*sequence))],
                ..Commit::default()
            };
            assert!(log.append(&commit).expect("it can be written"));
        }
        log
    }

    fn sequences(store: &Path, commits_after: u64) -> Result<Vec<u64>, Fault> {
        let turns = TurnLogContent::read(store, &IDENTITY).map_err(Fault::Store)?;
        let commits = turns.commits_after(commits_after)?;
        Ok(commits.iter().map(|commit| commit.sequence).collect())
    }

    #[test]
    fn a_log_that_was_restarted_says_up_to_where_the_tables_were() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let store = directory.path().join("1.db");
        let mut log = log_of(&store, &[4, 5, 6]);
        assert_eq!(sequences(&store, 4).expect("all are there"), [5, 6]);
        assert!(sequences(&store, 2).is_err(), "3 is missing");
        log.restart(6).expect("it can be written");
        assert_eq!(sequences(&store, 6).expect("all are there"), [0; 0]);
        assert_eq!(sequences(&store, 5).expect("it is there still"), [6]);
        assert!(sequences(&store, 3).is_err(), "4 is not there any more");
        // What comes next is written over the old.
        let mut log = log_of(&store, &[7]);
        assert_eq!(sequences(&store, 6).expect("all are there"), [7]);
        log.restart(9).expect("it can be written");
        assert!(sequences(&store, 7).is_err(), "8 and 9 were in the tables");
    }

    #[test]
    fn a_log_without_room_takes_nothing_more_until_it_starts_over() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let store = directory.path().join("1.db");
        let mut log = TurnLog::open(&store, IDENTITY).expect("it can be made");
        let mut commit = Commit {
            changes: vec![Change::PutPayload {
                key: JobKey(1),
                payload: vec![b'x'; RECORD_BYTES_MAX - 100].into(),
            }],
            ..Commit::default()
        };
        let mut taken = 0;
        while log.append(&commit).expect("it can be written") {
            taken += 1;
            commit.sequence = taken;
        }
        assert_eq!(taken, FILE_BYTES >> 16);
        log.restart(taken).expect("it can be written");
        assert!(log.append(&commit).expect("it can be written"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0..300_usize) {
            let at = at.min(bytes.len());
            bytes.splice(at..at, MAGIC.iter().copied());
            prop_assert!(find_all(&bytes, &IDENTITY).0.is_empty());
        }
    }
}
