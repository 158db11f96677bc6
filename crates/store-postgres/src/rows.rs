//! The rows of a shard as their writer knows them: up to which commit they go, and what a new connection must find.
//!
//! If the outcome of a transaction that writes rows is unknown, the next attempt reads first how far the rows go.

use std::sync::Arc;

use ganger_types::Commit;

use crate::backend::{Backend, RowTables, RowWrite};
use crate::fault::Fault;
use crate::fence::Ownership;
use crate::header::Header;

/// Attempts to write a checkpoint, each on a new connection.
const ATTEMPTS: u32 = 3;

/// The connection that writes rows, and what it has written.
pub(crate) struct Rows<B: Backend> {
    ours: Ownership,
    tables: Option<B::Writing>,
    /// Number of its server.
    server: u64,
    /// State of the rows as last read or written.
    pub(crate) header: Header,
    /// The last commit whose rows were ever written. Those that a failover has lost are still missed while they are written
    /// again, until the last one is there.
    written: u64,
}

impl<B: Backend> Rows<B> {
    pub(crate) fn new(ours: Ownership, header: Header) -> Self {
        Self {
            ours,
            tables: None,
            server: 0,
            written: header.sequence,
            header,
        }
    }

    /// Writes the rows of consecutive commits that are in the log, whose last record is in table `slot`.
    pub(crate) fn write_behind(
        &mut self,
        backend: &B,
        commits: &[Arc<Commit>],
        slot: usize,
    ) -> Result<(), Fault> {
        let mut attempt = 1;
        loop {
            let done = self.tables(backend).map(|_| ()).and_then(|()| {
                // An attempt whose outcome was unknown may have written them.
                let written = self.header.sequence;
                let first = commits.partition_point(|commit| commit.sequence <= written);
                if first == commits.len() {
                    return Ok(());
                }
                self.write(&commits[first..], RowWrite::Behind { slot })?;
                Ok(())
            });
            match done {
                Err(Fault::Lost(reason)) if attempt < ATTEMPTS => {
                    tracing::debug!(reason, attempt, "a checkpoint is tried again");
                }
                Err(Fault::Refused { message, .. }) if attempt < ATTEMPTS => {
                    tracing::debug!(message, attempt, "a checkpoint is tried again");
                }
                done => return done,
            }
            attempt += 1;
        }
    }

    /// Writes the rows of a commit that is not in the log, with an empty record of it. All commits before it must
    /// have their rows written. Returns the warning of the server if the wait for a standby was cancelled: then the
    /// commit is visible, nobody has a copy, and the connection is closed.
    pub(crate) fn write_at_once(
        &mut self,
        backend: &B,
        commit: &Arc<Commit>,
        write: RowWrite,
    ) -> Result<Option<String>, Fault> {
        self.tables(backend)?;
        self.write(std::slice::from_ref(commit), write)
    }

    /// Returns the connection, made again if it has ended or another server has taken the place of its own; then the
    /// rows must be there that were written before.
    pub(crate) fn tables(&mut self, backend: &B) -> Result<&mut B::Writing, Fault> {
        let is_newest = self.server == backend.server();
        if !is_newest || !self.tables.as_mut().is_some_and(RowTables::is_alive) {
            let found = self.connect(backend)?;
            if let Err(fault) = self.expect_written(found.sequence) {
                self.tables = None;
                return Err(fault);
            }
            self.written = found.sequence;
            self.header = found;
        }
        Ok(self.tables.as_mut().expect("it was just made"))
    }

    /// Connects and goes on with the rows that are there, though some may be lost that were written before.
    pub(crate) fn start_over(&mut self, backend: &B) -> Result<&mut B::Writing, Fault> {
        self.header = self.connect(backend)?;
        Ok(self.tables.as_mut().expect("it was just made"))
    }

    /// Connects, and returns the state of the rows there.
    fn connect(&mut self, backend: &B) -> Result<Header, Fault> {
        self.tables = None;
        let mut tables = backend.writing(&self.ours)?;
        let server = backend.server();
        let found = tables.read_tables()?.ok_or_else(missing)?;
        let found = Header::open(&found.1, found.0)?;
        (self.tables, self.server) = (Some(tables), server);
        Ok(found)
    }

    /// Returns up to which commit the rows go. Checks that those are there that were written last: a database that
    /// crashed, or a standby in its place, may have lost some.
    pub(crate) fn verify(&mut self, backend: &B) -> Result<u64, Fault> {
        let found = self.tables(backend)?.written()?.ok_or_else(missing)?;
        self.expect_written(found)?;
        Ok(found)
    }

    fn expect_written(&self, found: u64) -> Result<(), Fault> {
        let written = self.written;
        if found < written {
            return Err(Fault::Rewound(format!(
                "the rows were written up to commit {written}, and the database has them up to commit {found}"
            )));
        }
        Ok(())
    }

    /// Refuses commits that do not follow the ones whose rows are written.
    fn expect_next(&self, commits: &[Arc<Commit>]) -> Result<(), Fault> {
        let (last, next) = (self.header.sequence, commits.first());
        if let Some(next) = next.filter(|next| next.sequence != last + 1) {
            let next = next.sequence;
            return Err(Fault::Rewound(format!(
                "the rows go up to commit {last}, and those of commit {next} would be written after a gap"
            )));
        }
        Ok(())
    }

    /// Writes commits in one transaction. After a fault the connection is closed, and after a warning in a commit that
    /// waits for a standby, which is returned.
    fn write(&mut self, commits: &[Arc<Commit>], write: RowWrite) -> Result<Option<String>, Fault> {
        self.expect_next(commits)?;
        let tables = self.tables.as_mut().expect("the caller has connected");
        tables.take_warning();
        let written = tables.write(commits, write, &self.header);
        let warning = match write {
            RowWrite::AtOnce { .. } => tables.take_warning(),
            RowWrite::Behind { .. } => None,
        };
        match (written, warning) {
            (Ok(header), None) => {
                self.written = self.written.max(header.sequence);
                self.header = header;
                Ok(None)
            }
            // What is known of the tables may be wrong now; the next connection reads it again.
            (Ok(_), Some(warning)) => {
                self.tables = None;
                Ok(Some(warning))
            }
            (Err(fault), _) => {
                self.tables = None;
                Err(fault)
            }
        }
    }
}

fn missing() -> Fault {
    Fault::row("checkpoint", "1", "it is missing")
}
