//! The bytes of a record in the log: a commit, compressed where that helps, sealed for its place.
//!
//! The seal covers the identity of the shard, the epoch and the sequence, so that no record passes for another.

use ganger_store::encoding::{DecodeError, SEAL_BYTES, decode, encode_into, seal, unseal};
use ganger_types::Commit;

use crate::fault::Fault;

const TABLE: &str = "log";
/// First byte of a record: the rows have the commit already.
const IN_ROWS: u8 = 0;
/// First byte of a record: the commit follows.
const PLAIN: u8 = 1;
/// First byte of a record: the length of the commit and the commit in blocks of LZ4 follow.
const LZ4: u8 = 2;
/// Most bytes that a compressed commit may have; larger ones never get into the log.
const DECOMPRESSED_MAX: usize = 64 << 20;

/// Where a record belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Random number of the shard.
    pub identity: [u8; 16],
    /// Epoch in which it is appended.
    pub epoch: u64,
    /// Sequence of its commit.
    pub sequence: u64,
}

impl Place {
    fn bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.identity);
        bytes[16..24].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[24..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }
}

/// Builds records, one after the other.
#[derive(Default)]
pub(crate) struct RecordBuilder {
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl RecordBuilder {
    /// Bytes of the buffers that stay allocated.
    const BUFFER_BYTES: usize = 256 << 10;

    /// Encodes a commit; returns the length of the record without compression.
    pub(crate) fn encode(&mut self, commit: &Commit) -> usize {
        self.plain.clear();
        self.plain.shrink_to(Self::BUFFER_BYTES);
        self.plain.push(PLAIN);
        encode_into(commit, &mut self.plain);
        self.plain.len() + SEAL_BYTES
    }

    /// Returns the sealed record of the encoded commit, compressed from `compressed_from` bytes on if that is smaller.
    pub(crate) fn seal(&mut self, place: Place, compressed_from: usize) -> &[u8] {
        self.sealed.clear();
        self.sealed.shrink_to(Self::BUFFER_BYTES);
        let content = &self.plain[1..];
        if content.len() >= compressed_from {
            let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
            self.sealed.push(LZ4);
            self.sealed.extend_from_slice(&length.to_be_bytes());
            self.sealed
                .extend_from_slice(&lz4_flex::block::compress(content));
        }
        if self.sealed.is_empty() || self.sealed.len() >= self.plain.len() {
            self.sealed.clear();
            self.sealed.extend_from_slice(&self.plain);
        }
        seal(TABLE, &place.bytes(), 0, &mut self.sealed);
        &self.sealed
    }
}

/// Returns the record of a commit whose rows are written in the same transaction.
pub fn in_rows(place: Place) -> Vec<u8> {
    let mut record = vec![IN_ROWS];
    seal(TABLE, &place.bytes(), 0, &mut record);
    record
}

/// Reads a record; `None` if the rows have the commit already.
///
/// # Errors
/// If it is damaged, or belongs to another place.
pub fn open(place: Place, sealed: &[u8]) -> Result<Option<Commit>, Fault> {
    let damaged = |what: &str| Fault::row(TABLE, place.sequence, what);
    let content = unseal(TABLE, &place.bytes(), sealed);
    let content = content.ok_or_else(|| damaged("its checksum does not match its content"))?;
    let (kind, content) = content
        .split_first()
        .ok_or_else(|| damaged("it is empty"))?;
    let read = |bytes: &[u8]| {
        let commit: Result<Commit, DecodeError> = decode(bytes);
        commit.map_err(|error| damaged(&error.to_string()))
    };
    let commit = match *kind {
        IN_ROWS => return Ok(None),
        PLAIN => read(content)?,
        LZ4 => {
            let wrong = || damaged("it cannot be decompressed");
            let (length, blocks) = content.split_first_chunk().ok_or_else(wrong)?;
            let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| wrong())?;
            if length > DECOMPRESSED_MAX {
                return Err(wrong());
            }
            let bytes = lz4_flex::block::decompress(blocks, length).map_err(|_| wrong())?;
            read(&bytes)?
        }
        _ => return Err(damaged("it has a form that this program does not know")),
    };
    if (commit.epoch.0, commit.sequence) != (place.epoch, place.sequence) {
        return Err(damaged("it holds another commit"));
    }
    Ok(Some(commit))
}

#[cfg(test)]
mod tests {
    use ganger_store::suite::sample::job;
    use ganger_types::{Bytes, Change, Epoch, JobKey, Meta};
    use proptest::prelude::*;

    use super::*;

    fn commit(payload: Vec<u8>) -> Commit {
        Commit {
            epoch: Epoch(3),
            sequence: 7,
            meta: Meta::default(),
            changes: vec![
                Change::PutJob(Box::new(job(1))),
                Change::PutPayload {
                    key: JobKey(1),
                    payload: Bytes::from(payload),
                },
            ],
        }
    }

    const PLACE: Place = Place {
        identity: [9; 16],
        epoch: 3,
        sequence: 7,
    };

    fn sealed(commit: &Commit) -> Vec<u8> {
        let mut builder = RecordBuilder::default();
        builder.encode(commit);
        builder.seal(PLACE, 4_096).to_vec()
    }

    #[test]
    fn a_large_commit_is_compressed_and_read_back() {
        let commit = commit(vec![b'x'; 100_000]);
        let sealed = sealed(&commit);
        assert!(sealed.len() < 2_000, "{} bytes", sealed.len());
        assert_eq!(open(PLACE, &sealed).expect("it is whole"), Some(commit));
    }

    #[test]
    fn what_compression_would_not_make_smaller_stays_as_it_is() {
        let mut noise = vec![0; 8_192];
        getrandom::fill(&mut noise).expect("the system has random bytes");
        let commit = commit(noise);
        let sealed = sealed(&commit);
        assert_eq!(sealed.first(), Some(&PLAIN));
        assert_eq!(open(PLACE, &sealed).expect("it is whole"), Some(commit));
    }

    #[test]
    fn a_record_is_read_at_its_own_place_only() {
        let sealed = sealed(&commit(Vec::new()));
        for place in [
            Place { epoch: 4, ..PLACE },
            Place {
                sequence: 8,
                ..PLACE
            },
            Place {
                identity: [8; 16],
                ..PLACE
            },
        ] {
            assert!(matches!(open(place, &sealed), Err(Fault::Damaged(_))));
        }
        let empty = in_rows(PLACE);
        assert_eq!(open(PLACE, &empty).expect("it is whole"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_u8..4) {
            bytes.insert(0, kind);
            seal(TABLE, &PLACE.bytes(), 0, &mut bytes);
            let _ = open(PLACE, &bytes);
        }
    }
}
