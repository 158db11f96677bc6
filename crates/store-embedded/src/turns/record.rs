//! Records of the turn log: how they are framed, and how they are found in the bytes of a segment.

use ganger_store::encoding::{
    Cursor, SEAL_BYTES, Writer, decode, encode, encode_into, seal, unseal,
};
use ganger_types::Commit;
use memchr::memmem;

/// Bytes that a disk writes completely or not at all.
const SECTOR_BYTES: usize = 512;
/// Maximum number of damaged records that are examined in a segment.
const DAMAGED_MAX: usize = 10_000;
const MAGIC: &[u8; 4] = b"turn";
/// Bytes of a record's head: `turn`, the length, and the kind of content.
const HEAD_BYTES: usize = 9;
const COMMIT: u8 = 1;
const STAMP: u8 = 2;

/// Bit of a record's place from which on it is the index of the segment; below is the offset.
const SEGMENT_SHIFT: u32 = 40;

/// Returns the bytes that the checksum covers besides the content: the store's identity, and the record's segment and
/// offset.
fn place(identity: &[u8; 16], segment: usize, offset: u64) -> [u8; 24] {
    let segment = u64::try_from(segment).unwrap_or(u64::MAX) << SEGMENT_SHIFT;
    let mut place = [0; 24];
    place[..16].copy_from_slice(identity);
    place[16..].copy_from_slice(&(segment | offset).to_le_bytes());
    place
}

/// A buffer in which records are built, one after the other.
pub(super) struct Frame {
    identity: [u8; 16],
    buffer: Vec<u8>,
}

impl Frame {
    pub(super) fn new(identity: [u8; 16]) -> Self {
        Self {
            identity,
            buffer: Vec::with_capacity(4_096),
        }
    }

    /// Builds the record of a commit, apart from its checksum; returns the length of the whole record.
    pub(super) fn encode(&mut self, commit: &Commit) -> u64 {
        self.build(COMMIT, |out| encode_into(commit, out));
        debug_assert!(self.is_readable(), "what is written can be read");
        u64::try_from(self.buffer.len() + SEAL_BYTES).unwrap_or(u64::MAX)
    }

    /// Completes the record for its place, by the index of the segment and the offset in it.
    pub(super) fn seal(&mut self, segment: usize, offset: u64) -> &[u8] {
        let place = place(&self.identity, segment, offset);
        seal("turns", &place, 0, &mut self.buffer);
        &self.buffer
    }

    /// Builds a stamp for its place.
    pub(super) fn stamp(&mut self, sequence: u64, segment: usize, offset: u64) -> &[u8] {
        self.build(STAMP, |out| Writer::new(out).number(sequence));
        self.seal(segment, offset)
    }

    /// Frees the memory of the buffer beyond this size.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        if self.buffer.capacity() > bytes {
            self.buffer = Vec::with_capacity(bytes);
        }
    }

    fn build(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut self.buffer;
        out.clear();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.push(kind);
        write(out);
        // A longer record is not written at all.
        let length = u32::try_from(out.len() - HEAD_BYTES).unwrap_or(u32::MAX);
        out[4..8].copy_from_slice(&length.to_le_bytes());
    }

    /// Whether the buffer decodes to what was encoded. (Bytes are compared, since a NaN is not equal to itself.)
    fn is_readable(&self) -> bool {
        let content = &self.buffer[HEAD_BYTES..];
        decode::<Commit>(content).is_ok_and(|read| encode(&read) == content)
    }
}

/// An intact record of the turn log.
pub(super) struct IntactRecord {
    pub(super) sequence: u64,
    /// Encoded commit; `None` if the record is a stamp.
    pub(super) commit: Option<Vec<u8>>,
}

/// A commit whose record is damaged, although its head can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DamagedRecord {
    pub(crate) sequence: u64,
    /// Index of the segment.
    pub(crate) segment: usize,
    /// Offset in the segment.
    pub(crate) offset: usize,
    /// Length of the record.
    pub(crate) bytes: usize,
}

impl DamagedRecord {
    /// Whether a power cut during the write can explain the damage. A disk writes a sector completely or not at all,
    /// so a record within one sector cannot be partly there.
    pub(crate) fn may_be_torn(&self) -> bool {
        self.offset / SECTOR_BYTES != (self.offset + self.bytes - 1) / SECTOR_BYTES
    }
}

/// The bytes of a segment, by its index.
pub(super) struct SegmentBytes<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) segment: usize,
    pub(super) identity: &'a [u8; 16],
}

impl SegmentBytes<'_> {
    /// Finds every record after `sequence` that is intact, at any offset, since more may follow a damaged one; and the
    /// damaged ones.
    pub(super) fn find_after(&self, sequence: u64) -> (Vec<IntactRecord>, Vec<DamagedRecord>) {
        let finder = memmem::Finder::new(MAGIC);
        let (mut all, mut damaged) = (Vec::new(), Vec::new());
        let mut at = 0;
        while let Some(ahead) = finder.find(&self.bytes[at..]) {
            at += ahead;
            match self.intact_at(at, sequence) {
                Some((record, length)) => {
                    all.extend(record);
                    at += length;
                }
                None => {
                    // At most one of them matters; text in payloads that looks like a record must not make this slow.
                    if damaged.len() < DAMAGED_MAX {
                        let found = self.damaged_at(at);
                        damaged.extend(found.filter(|found| found.sequence > sequence));
                    }
                    at += 1;
                }
            }
        }
        (all, damaged)
    }

    /// Reads the head of a commit at an offset, ignoring its checksum.
    fn damaged_at(&self, at: usize) -> Option<DamagedRecord> {
        let rest = &self.bytes[at..];
        let total = self.total_bytes(rest)?;
        let (head, content) = rest.split_at_checked(HEAD_BYTES)?;
        if head[HEAD_BYTES - 1] != COMMIT {
            return None;
        }
        Some(DamagedRecord {
            sequence: sequence_of(&mut Cursor::new(content, "turn"))?,
            segment: self.segment,
            offset: at,
            bytes: total,
        })
    }

    /// Returns the length of a record by its head.
    fn total_bytes(&self, head: &[u8]) -> Option<usize> {
        let length = u32::from_le_bytes(head.get(4..8)?.try_into().ok()?);
        let total = usize::try_from(length)
            .ok()?
            .checked_add(HEAD_BYTES + SEAL_BYTES)?;
        (total <= self.bytes.len()).then_some(total)
    }

    /// Reads the record at an offset, if it comes after `sequence`, and its length; `None` unless it is intact.
    fn intact_at(&self, at: usize, after: u64) -> Option<(Option<IntactRecord>, usize)> {
        let rest = &self.bytes[at..];
        let total = self.total_bytes(rest)?;
        let place = place(self.identity, self.segment, u64::try_from(at).ok()?);
        let content = unseal("turns", &place, rest.get(..total)?)?.get(HEAD_BYTES..)?;
        let mut cursor = Cursor::new(content, "turn");
        let (sequence, is_commit) = match rest[HEAD_BYTES - 1] {
            COMMIT => (sequence_of(&mut cursor)?, true),
            STAMP => (cursor.number().ok()?, false),
            _ => return None,
        };
        let record = (sequence > after).then(|| IntactRecord {
            sequence,
            commit: is_commit.then(|| content.to_vec()),
        });
        Some((record, total))
    }
}

/// Reads the sequence of a commit, after its version and epoch.
fn sequence_of(content: &mut Cursor<'_>) -> Option<u64> {
    let _version = content.byte().ok()?;
    let _epoch = content.number().ok()?;
    content.number().ok()
}
