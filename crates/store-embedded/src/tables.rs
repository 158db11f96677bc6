//! Writes commits into the tables and caches facts about them.

use ganger_store::merge::MergedCommit;
use ganger_store::rows::row::from_sql;
use ganger_types::{Commit, JobKey};
use rusqlite::Connection;

use crate::commit::{CommitWriter, QueueNumbers};
use crate::fault::Fault;
use crate::meta::Header;

/// Cached facts about the tables, so that not every commit looks them up.
pub(crate) struct Tables {
    /// The header as last written.
    pub(crate) header: Header,
    queue_numbers: QueueNumbers,
    new_from: JobKey,
}

/// New values of the cached facts, valid once the transaction has committed.
pub(crate) struct TablesUpdate {
    header: Header,
    new_from: JobKey,
}

impl Tables {
    /// Reads the state of the tables from the database.
    pub(crate) fn read_from(connection: &Connection) -> Result<Self, Fault> {
        let header = Header::read_from(connection)?;
        let new_from = new_from(connection)?.max(header.meta.next_key);
        Ok(Self {
            header,
            queue_numbers: QueueNumbers::new(),
            new_from,
        })
    }

    /// Writes consecutive commits. The caller begins and ends the transaction.
    pub(crate) fn write_commits<'c>(
        &mut self,
        connection: &Connection,
        commits: impl Iterator<Item = &'c Commit> + Clone,
    ) -> Result<TablesUpdate, Fault> {
        let merged = MergedCommit::new(commits.clone().flat_map(|commit| &commit.changes));
        let counts = self.header.counts;
        let mut writing =
            CommitWriter::new(connection, &mut self.queue_numbers, self.new_from, counts);
        writing.write(&merged)?;
        let mut header = Header {
            counts: writing.counts,
            ..self.header.clone()
        };
        drop(writing);
        if let Some(last) = commits.last() {
            (header.sequence, header.meta) = (last.sequence, last.meta);
        }
        if !header.replace(connection, &self.header)? {
            let what = "the epoch or sequence has changed under it";
            return Err(Fault::Inconsistent(what.to_owned()));
        }
        let largest = merged.jobs.last_key_value().map_or(0, |(key, _)| key.0 + 1);
        Ok(TablesUpdate {
            header,
            new_from: JobKey(self.new_from.0.max(largest)),
        })
    }

    /// Writes the header again.
    pub(crate) fn change_header(
        &mut self,
        connection: &Connection,
        change: impl FnOnce(&mut Header),
    ) -> Result<(), Fault> {
        let mut header = self.header.clone();
        change(&mut header);
        if !header.replace(connection, &self.header)? {
            return Err(Fault::row("meta", "1", "it cannot be replaced"));
        }
        self.header = header;
        Ok(())
    }

    /// Takes over the new facts after the transaction has committed.
    pub(crate) fn committed(&mut self, after: TablesUpdate) {
        self.header = after.header;
        self.new_from = after.new_from;
    }

    /// Forgets the cached queue numbers after a rollback, which removed the new ones.
    pub(crate) fn forget_queue_numbers(&mut self) {
        self.queue_numbers.clear();
    }
}

fn new_from(connection: &Connection) -> Result<JobKey, Fault> {
    let sql = "SELECT max(coalesce((SELECT max(key) FROM jobs), -1),
                          coalesce((SELECT max(key) FROM finished), -1)) + 1";
    Ok(JobKey(from_sql(
        connection.query_row(sql, [], |row| row.get(0))?,
    )))
}
