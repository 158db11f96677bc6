//! The number of rows that a store should have, kept in its header, so that lost rows are noticed.

use crate::encoding::{Cursor, DecodeError, Writer};

/// Number of rows in the tables of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of live jobs.
    pub jobs: u64,
    /// Number of leases of live jobs.
    pub leases: u64,
    /// Number of jobs that have ended and are kept.
    pub finished: u64,
}

impl Counts {
    /// Writes the three numbers, as a part of the header.
    pub fn write(&self, out: &mut Writer<'_>) {
        out.number(self.jobs);
        out.number(self.leases);
        out.number(self.finished);
    }

    /// Reads the three numbers.
    ///
    /// # Errors
    /// If the header ends before them.
    pub fn read(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            jobs: from.number()?,
            leases: from.number()?,
            finished: from.number()?,
        })
    }
}
