//! The turn log: every commit is one record, one write and one flush; its rows follow in the tables later.
//!
//! The log consists of a few segments, files of one fixed size beside the store. They are filled with zeros when they
//! are made, so that a flush writes only the record. A record is `turn`, the length of its content, the content, and a
//! CRC-32C that also covers the record's place and the store's identity. The content is a commit, or a stamp: "up to
//! here all is in the tables, flushed". Records fill one segment after the other. A segment is written over from its
//! beginning once the tables have all of its commits, flushed.
//!
//! Each record is flushed before the next is written, so at most the last one can be torn. The intact records are
//! therefore complete: the commits that the tables lack must follow the tables without a gap, up to the last number
//! in the log. If they do not, an acknowledged commit was lost (`rel D7`, `rel D8`).

mod content;
mod record;
mod segment;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ganger_store::StoreError;
use ganger_types::Commit;

pub(crate) use self::content::TurnLogContent;
use self::record::Frame;
use self::segment::Segment;
use crate::create::beside;

/// Largest number of segments of a log. Together with their size it bounds the disk space that the log takes and the
/// time that recovery takes.
pub(crate) const SEGMENTS_MAX: u32 = 16;
/// Bytes of the buffer that stay allocated after a large commit.
const BUFFER_BYTES: usize = 256 << 10;

/// Number and size of the segments that a turn log has on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSize {
    /// Number of segments; 0 if the store has no turn log.
    pub(crate) segments: u32,
    /// Bytes of each segment.
    pub(crate) segment_bytes: u64,
}

impl LogSize {
    /// The log of format 7: one file of 2 MiB.
    pub(crate) const FORMAT_7: Self = Self {
        segments: 1,
        segment_bytes: 2 << 20,
    };

    /// Whether the store has a turn log.
    pub(crate) fn exists(self) -> bool {
        self.segments > 0
    }
}

/// Returns the path of a segment of the turn log that belongs to `store`; the first has the number 1.
pub(crate) fn segment_path(store: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return beside(store, "-turns");
    }
    beside(store, &format!("-turns-{number}"))
}

/// Whether a segment of a turn log is beside the store.
pub(crate) fn is_there(store: &Path) -> bool {
    (1..=SEGMENTS_MAX).any(|number| segment_path(store, number).exists())
}

/// Removes all segments from number `first` on.
///
/// # Errors
/// If one cannot be removed.
pub(crate) fn remove_from(store: &Path, first: u32) -> Result<(), StoreError> {
    // The last one goes first, so that what is left after an interruption is numbered without a gap.
    (first..=SEGMENTS_MAX)
        .rev()
        .try_for_each(|number| segment::remove(&segment_path(store, number)))
}

/// The result of an attempt to append a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    /// The commit is in the log, flushed, with this number of bytes.
    Flushed(u64),
    /// All segments have commits that the tables lack.
    NoRoom,
    /// The commit does not fit into an empty segment.
    TooLarge,
}

/// The turn log, open for writing.
pub(crate) struct TurnLog {
    store: PathBuf,
    segment_bytes: u64,
    segments: Vec<Segment>,
    /// Index of the segment that takes the next record.
    current: usize,
    /// Offset of the next record in that segment.
    end: u64,
    frame: Frame,
}

impl TurnLog {
    /// Creates or opens the log, with one segment, of a store whose tables have everything up to `sequence`, flushed.
    ///
    /// The stamp that says so is not flushed by itself. If it is lost, older records are found again, and the tables
    /// have them.
    ///
    /// # Errors
    /// If the segment cannot be made or written.
    pub(crate) fn open(
        store: &Path,
        identity: [u8; 16],
        segment_bytes: u64,
        sequence: u64,
    ) -> Result<Self, StoreError> {
        let first = Segment::make(segment_path(store, 1), segment_bytes)?;
        let mut log = Self {
            store: store.to_path_buf(),
            segment_bytes,
            segments: vec![first],
            current: 0,
            end: 0,
            frame: Frame::new(identity),
        };
        log.stamp(sequence)?;
        Ok(log)
    }

    /// Returns the number and the size of the segments.
    pub(crate) fn size(&self) -> LogSize {
        LogSize {
            segments: u32::try_from(self.segments.len()).unwrap_or(u32::MAX),
            segment_bytes: self.segment_bytes,
        }
    }

    /// Appends a commit and flushes it. The tables have everything up to `in_tables`, flushed.
    ///
    /// # Errors
    /// If it cannot be written or flushed; it is then unknown whether it is on disk.
    pub(crate) fn append(
        &mut self,
        commit: &Commit,
        in_tables: u64,
    ) -> Result<Appended, StoreError> {
        let length = self.frame.encode(commit);
        let appended = self.write_record(length, commit.sequence, in_tables);
        self.frame.shrink_to(BUFFER_BYTES);
        appended
    }

    fn write_record(
        &mut self,
        length: u64,
        sequence: u64,
        in_tables: u64,
    ) -> Result<Appended, StoreError> {
        if length > self.segment_bytes {
            return Ok(Appended::TooLarge);
        }
        if self.end + length > self.segment_bytes {
            let Some(next) = self.free_segment(in_tables) else {
                return Ok(Appended::NoRoom);
            };
            (self.current, self.end) = (next, 0);
        }
        let sealed = self.frame.seal(self.current, self.end);
        let segment = &mut self.segments[self.current];
        segment.write(sealed, self.end)?;
        segment.flush()?;
        segment.last = sequence;
        self.end += length;
        Ok(Appended::Flushed(length))
    }

    /// Returns the index of a segment whose commits are all in the tables; the current one only if no other is.
    fn free_segment(&self, in_tables: u64) -> Option<usize> {
        let after = self.current + 1..self.segments.len();
        let mut indexes = after.chain(0..=self.current);
        indexes.find(|index| self.segments[*index].last <= in_tables)
    }

    /// Whether half of the current segment is used and no other one can be written over.
    pub(crate) fn will_need_segment(&self, in_tables: u64) -> bool {
        self.end > self.segment_bytes / 2
            && self
                .free_segment(in_tables)
                .is_none_or(|index| index == self.current)
    }

    /// Plans the next segment; `None` if there are enough.
    pub(crate) fn plan_segment(&self, segments_max: u32) -> Option<PlannedSegment> {
        let number = self.size().segments + 1;
        (number <= segments_max.min(SEGMENTS_MAX)).then(|| PlannedSegment {
            path: segment_path(&self.store, number),
            bytes: self.segment_bytes,
            number,
        })
    }

    /// Adds the next segment. The header of the tables must count it already.
    pub(crate) fn add(&mut self, made: MadeSegment) {
        debug_assert_eq!(made.number, self.size().segments + 1);
        self.segments.push(made.segment);
    }

    fn stamp(&mut self, sequence: u64) -> Result<(), StoreError> {
        let stamp = self.frame.stamp(sequence, self.current, 0);
        self.segments[self.current].write(stamp, 0)
    }
}

/// A segment that does not exist yet.
pub(crate) struct PlannedSegment {
    path: PathBuf,
    bytes: u64,
    number: u32,
}

impl PlannedSegment {
    /// Makes the segment, durably. That takes some milliseconds.
    ///
    /// # Errors
    /// If it cannot be made, for example because the disk is full.
    pub(crate) fn make(self) -> Result<MadeSegment, StoreError> {
        let segment = Segment::make(self.path, self.bytes)?;
        Ok(MadeSegment {
            segment,
            number: self.number,
        })
    }
}

/// A segment that exists and is not part of the log yet.
pub(crate) struct MadeSegment {
    segment: Segment,
    number: u32,
}

impl MadeSegment {
    /// Returns the size of the log with this segment.
    pub(crate) fn size(&self) -> LogSize {
        LogSize {
            segments: self.number,
            segment_bytes: self.segment.bytes(),
        }
    }
}
