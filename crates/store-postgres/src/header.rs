//! The state of the rows as a whole, stored with every checkpoint.

use ganger_store::encoding::{Cursor, DecodeError, Record, Writer};
use ganger_store::rows::counts::Counts;
use ganger_store::rows::row::{open_record, seal_record};
use ganger_types::{Meta, ShardId};

use crate::fault::Fault;

const TABLE: &str = "checkpoint";
const PLACE: &[u8] = b"store";

/// The state of the rows as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Id of the shard.
    pub shard: String,
    /// Sequence of the last commit whose rows are written.
    pub sequence: u64,
    /// Counters and clocks of that commit.
    pub meta: Meta,
    /// Number of rows in the tables of jobs.
    pub counts: Counts,
}

impl Record for Header {
    const WHAT: &'static str = "checkpoint";

    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.shard.as_bytes());
        out.number(self.sequence);
        self.meta.write(out);
        self.counts.write(out);
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            shard: from.text()?.to_owned(),
            sequence: from.number()?,
            meta: from.in_version(Meta::VERSION, Meta::read)?,
            counts: Counts::read(from)?,
        })
    }
}

impl Header {
    /// Returns the header of an empty shard.
    pub fn new(shard: &ShardId) -> Self {
        Self {
            shard: shard.as_str().to_owned(),
            sequence: 0,
            meta: Meta::default(),
            counts: Counts::default(),
        }
    }

    /// Returns the sealed bytes.
    pub fn seal(&self) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(96);
        seal_record(TABLE, PLACE, self, &mut sealed);
        sealed
    }

    /// Reads sealed bytes and compares them with the column beside them.
    ///
    /// # Errors
    /// If they are damaged.
    pub fn open(sealed: &[u8], sequence: u64) -> Result<Self, Fault> {
        let header: Self = open_record(TABLE, PLACE, sealed)?;
        if header.sequence != sequence {
            return Err(Fault::row(
                TABLE,
                "1",
                "its column does not match its content",
            ));
        }
        Ok(header)
    }
}
