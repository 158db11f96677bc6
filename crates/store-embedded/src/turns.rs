//! The turn log: small commits, each flushed by itself, until many of them are written into the tables together.
//!
//! The log is a file of fixed size beside the store, so that a flush writes only the record. A record is `turn`, the
//! length of its content, the content, and a CRC-32C that also covers the record's offset and the store's identity.
//! The content is a commit, or a stamp: "up to here all is in the tables, flushed". Records follow each other from
//! the beginning of the file; once all of them are durable in the tables, a stamp is written at the beginning, and
//! the next commit overwrites the stamp.
//!
//! Each record is flushed before the next is written, so at most the last one can be torn. The intact records are
//! therefore complete: the commits that the tables lack must follow the tables without a gap, up to the last number
//! in the file. If they do not, an acknowledged commit was lost (`rel D7`, `rel D8`).

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

/// Size of the file in bytes: some thousand small commits.
const FILE_BYTES: u64 = 2 << 20;
/// Maximum bytes of a record. A longer one goes into the tables at once: it costs as much there as here.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 10;
/// Maximum length in bytes of a log that any version wrote.
const READ_BYTES_MAX: u64 = 64 << 20;
/// Bytes that a disk writes completely or not at all.
const SECTOR_BYTES: usize = 512;
/// Maximum number of damaged records that are examined.
const DAMAGED_MAX: usize = 10_000;
const MAGIC: &[u8; 4] = b"turn";
/// Bytes of a record's head: `turn`, the length, and the kind of content.
const HEAD_BYTES: usize = 9;
const COMMIT: u8 = 1;
const STAMP: u8 = 2;

/// Returns the path of the turn log that belongs to `store`.
pub(crate) fn path_of(store: &Path) -> PathBuf {
    beside(store, "-turns")
}

/// Returns the bytes that the checksum covers besides the content: the store's identity and the record's offset.
fn place(identity: &[u8; 16], offset: u64) -> [u8; 24] {
    let mut place = [0; 24];
    place[..16].copy_from_slice(identity);
    place[16..].copy_from_slice(&offset.to_le_bytes());
    place
}

/// The turn log, open for writing.
pub(crate) struct TurnLog {
    file: File,
    identity: [u8; 16],
    /// Offset of the next record.
    end: u64,
    buffer: Vec<u8>,
}

impl TurnLog {
    /// Opens or creates the log of a store whose tables have everything in it.
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

    /// Appends a commit and flushes it; returns false if there is no room for it.
    ///
    /// # Errors
    /// If it cannot be written or flushed; it is then unknown whether it is on disk.
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

    /// Whether the buffer decodes to what was encoded. (Bytes are compared, since a NaN is not equal to itself.)
    fn is_readable(&self) -> bool {
        let content = &self.buffer[HEAD_BYTES..self.buffer.len() - SEAL_BYTES];
        decode::<Commit>(content).is_ok_and(|read| encode(&read) == content)
    }

    /// Restarts the log: everything up to `sequence` is in the tables, flushed.
    ///
    /// The stamp is not flushed by itself. If it is lost, the old records are found again, and the tables already
    /// have them.
    pub(crate) fn restart(&mut self, sequence: u64) -> std::io::Result<()> {
        self.frame(STAMP, 0, |out| Writer::new(out).number(sequence));
        self.file.write_all_at(&self.buffer, 0)?;
        self.end = 0;
        Ok(())
    }

    /// Builds a record in the buffer.
    fn frame(&mut self, kind: u8, offset: u64, write: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut self.buffer;
        out.clear();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.push(kind);
        write(out);
        // A longer record is not written at all.
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
    // The zeros are really written, so that a later flush changes content only.
    let filled = file.set_len(0).and_then(|()| {
        let zeros = vec![0; 1 << 16];
        for _ in 0..FILE_BYTES >> 16 {
            file.write_all(&zeros)?;
        }
        file.sync_all()
    });
    if let Err(error) = filled {
        // A partial file would only take space that is needed elsewhere.
        drop(file.set_len(0));
        return Err(error);
    }
    Ok(file)
}

/// Removes the log of a store whose tables have everything in it.
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
    /// Encoded commit; `None` if the record is a stamp.
    commit: Option<Vec<u8>>,
}

/// A commit whose record is damaged, although its head can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DamagedRecord {
    pub(crate) sequence: u64,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl DamagedRecord {
    /// Whether a power cut during the write can explain the damage. A disk writes a sector completely or not at all,
    /// so a record within one sector cannot be partly there.
    pub(crate) fn may_be_torn(&self) -> bool {
        self.offset / SECTOR_BYTES != (self.offset + self.bytes - 1) / SECTOR_BYTES
    }
}

/// The content of a turn log.
pub(crate) struct TurnLogContent {
    path: PathBuf,
    /// Length of the file in bytes; `None` if there is no file.
    length: Option<u64>,
    /// Intact records, ordered by sequence.
    found: Vec<IntactRecord>,
    broken: Vec<DamagedRecord>,
}

impl TurnLogContent {
    /// Reads the log beside a store; a missing log has no records.
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

    /// Whether the file has the length with which it was created.
    pub(crate) fn is_whole(&self) -> bool {
        self.length.is_some_and(|length| length >= FILE_BYTES)
    }

    /// Describes what is missing from the log of a store that was not closed; `None` if it is complete.
    pub(crate) fn cut(&self) -> Option<String> {
        let length = self.length.filter(|length| *length < FILE_BYTES)?;
        let log = self.path.display();
        Some(format!(
            "its turn log {log} has {length} bytes of {FILE_BYTES}, so what was acknowledged last may be missing"
        ))
    }

    /// Whether the file is empty: an operator has put it there in place of a lost one.
    pub(crate) fn is_discarded(&self) -> bool {
        self.length == Some(0)
    }

    /// Returns the damaged record after everything that the log and tables at `sequence` have, if there is one.
    pub(crate) fn damaged_end(&self, sequence: u64) -> Option<&DamagedRecord> {
        let last = self.found.last().map_or(0, |record| record.sequence);
        let next = last.max(sequence) + 1;
        self.broken.iter().find(|broken| broken.sequence == next)
    }

    /// Describes a damaged record and what the operator can do.
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

    /// Returns the commits after `sequence`, the last one in the tables.
    ///
    /// # Errors
    /// If there are later commits but some are missing.
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

    /// Returns the commits that follow `sequence` without a gap, ignoring any after a gap.
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

/// Finds every intact record at any offset, since more may follow a damaged one, and the damaged ones.
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
                // At most one of them matters; text in payloads that looks like a record must not make this slow.
                if broken.len() < DAMAGED_MAX {
                    broken.extend(damaged_at(bytes, at));
                }
                at += 1;
            }
        }
    }
    (all, broken)
}

/// Reads the head of a commit at an offset, ignoring its checksum.
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

/// Returns the length of a record by its head.
fn total_bytes(head: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(head.get(4..8)?.try_into().ok()?);
    let total = usize::try_from(length)
        .ok()?
        .checked_add(HEAD_BYTES + SEAL_BYTES)?;
    (total <= RECORD_BYTES_MAX).then_some(total)
}

/// Reads the sequence of a commit, after its version and epoch.
fn sequence_of(content: &mut Cursor<'_>) -> Option<u64> {
    let _version = content.byte().ok()?;
    let _epoch = content.number().ok()?;
    content.number().ok()
}

/// Reads the record at an offset and its length; `None` unless it is intact.
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

    /// Writes a log with these commits, each of which removes one job.
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
        // The next commit overwrites the old one.
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
