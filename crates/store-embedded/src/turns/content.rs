//! What a turn log has, read from its files: by recovery, audits and backups.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ganger_store::StoreError;
use ganger_store::encoding::decode;
use ganger_types::Commit;

use super::record::{DamagedRecord, IntactRecord, SegmentBytes};
use super::{SEGMENTS_MAX, segment_path};
use crate::fault::{Fault, io};
use crate::meta::Header;

/// Maximum length in bytes of a segment that is read.
const READ_BYTES_MAX: u64 = 64 << 20;

/// The files of a turn log, and its commits that the tables lacked when they were read.
pub(crate) struct TurnLogContent {
    files: Vec<SegmentFile>,
    /// Bytes that each file should have.
    segment_bytes: u64,
    /// Intact records after the tables, ordered by sequence.
    found: Vec<IntactRecord>,
    damaged: Vec<DamagedRecord>,
}

struct SegmentFile {
    path: PathBuf,
    /// Length of the file in bytes; `None` if there is no file.
    length: Option<u64>,
}

impl TurnLogContent {
    /// Reads the log beside a store with this header. Segments that the header does not count are ignored, except the
    /// first: a closed store may still have one.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn read(store: &Path, header: &Header) -> Result<Self, StoreError> {
        let mut content = Self {
            files: Vec::new(),
            segment_bytes: header.log.segment_bytes,
            found: Vec::new(),
            damaged: Vec::new(),
        };
        for number in 1..=header.log.segments.clamp(1, SEGMENTS_MAX) {
            content.read_segment(segment_path(store, number), header)?;
        }
        let order = |record: &IntactRecord| (record.sequence, record.commit.is_none());
        content.found.sort_by_key(order);
        Ok(content)
    }

    fn read_segment(&mut self, path: PathBuf, header: &Header) -> Result<(), StoreError> {
        let (length, bytes) = read_file(&path)?;
        let segment = SegmentBytes {
            bytes: &bytes,
            segment: self.files.len(),
            identity: &header.identity,
        };
        let (found, damaged) = segment.find_after(header.sequence);
        self.found.extend(found);
        self.damaged.extend(damaged);
        self.files.push(SegmentFile { path, length });
        Ok(())
    }

    /// Returns the path of the first file that is missing, if the store has a log.
    pub(crate) fn missing(&self) -> Option<&Path> {
        let missing = self.files.iter().find(|file| file.length.is_none())?;
        Some(&missing.path)
    }

    /// Describes a file that is shorter than it was made, whose store was not closed; `None` if all are whole.
    pub(crate) fn cut(&self) -> Option<String> {
        let file = self.cut_files().max_by_key(|file| file.length)?;
        let (log, length) = (file.path.display(), file.length.unwrap_or(0));
        Some(format!(
            "its turn log {log} has {length} bytes of {}, so what was acknowledged last may be missing",
            self.segment_bytes
        ))
    }

    /// Whether every shortened file is empty: an operator has put it there in place of a lost one.
    pub(crate) fn is_discarded(&self) -> bool {
        self.cut_files().all(|file| file.length == Some(0))
    }

    /// Whether all files have the length with which they were created.
    pub(crate) fn is_whole(&self) -> bool {
        self.missing().is_none() && self.cut_files().next().is_none()
    }

    fn cut_files(&self) -> impl Iterator<Item = &SegmentFile> {
        let is_short = |file: &&SegmentFile| {
            file.length
                .is_some_and(|length| length < self.segment_bytes)
        };
        self.files.iter().filter(is_short)
    }

    /// Returns the damaged record after everything that the log and tables at `sequence` have, if there is one.
    pub(crate) fn damaged_end(&self, sequence: u64) -> Option<&DamagedRecord> {
        let last = self.found.last().map_or(0, |record| record.sequence);
        let next = last.max(sequence) + 1;
        self.damaged.iter().find(|record| record.sequence == next)
    }

    /// Describes a damaged record and what the operator can do.
    pub(crate) fn describe(&self, record: &DamagedRecord) -> String {
        let DamagedRecord {
            sequence,
            segment,
            offset,
            bytes,
        } = record;
        let log = self.files[*segment].path.display();
        if record.may_be_torn() {
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
        let log = self.files[0].path.display();
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
                let log = self.files[0].path.display();
                Fault::Damaged(format!("commit {next} in its turn log {log} {error}"))
            })?;
            commits.push(commit);
            next += 1;
        }
        Ok(commits)
    }
}

/// Reads a segment; a missing one has no bytes and no length.
fn read_file(path: &Path) -> Result<(Option<u64>, Vec<u8>), StoreError> {
    let file = std::fs::metadata(path);
    let length = file.as_ref().ok().map(std::fs::Metadata::len);
    let bytes = match file {
        Ok(file) if file.len() > READ_BYTES_MAX => {
            let reason = format!(
                "it has {} bytes, a turn log has at most {READ_BYTES_MAX}",
                file.len()
            );
            return Err(io(path, "read", reason));
        }
        Ok(_) => std::fs::read(path),
        Err(error) => Err(error),
    };
    match bytes {
        Ok(bytes) => Ok((length, bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok((None, Vec::new())),
        Err(error) => Err(io(path, "read", error)),
    }
}
