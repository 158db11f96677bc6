//! The SQL statements that write the rows of jobs.

use rusqlite::{CachedStatement, Connection, Params};

/// A statement that is looked up when it is first used: most commits use few.
pub(crate) struct LazyStatement<'a> {
    connection: &'a Connection,
    sql: &'static str,
    found: Option<CachedStatement<'a>>,
}

impl<'a> LazyStatement<'a> {
    pub(crate) fn get(&mut self) -> rusqlite::Result<&mut CachedStatement<'a>> {
        let found = match self.found.take() {
            Some(found) => found,
            None => self.connection.prepare_cached(self.sql)?,
        };
        Ok(self.found.insert(found))
    }

    pub(crate) fn execute(&mut self, parameters: impl Params) -> rusqlite::Result<usize> {
        self.get()?.execute(parameters)
    }
}

macro_rules! statements {
    ($($name:ident = $sql:literal;)*) => {
        /// The statements of one commit, each looked up at most once.
        pub(crate) struct Statements<'a> { $(pub(crate) $name: LazyStatement<'a>,)* }

        impl<'a> Statements<'a> {
            pub(crate) fn of(connection: &'a Connection) -> Self {
                Self { $($name: LazyStatement { connection, sql: $sql, found: None },)* }
            }
        }
    };
}

statements! {
    insert_job = "INSERT INTO jobs (key, marked, body) VALUES (?1, ?2, ?3)";
    update_unmarked = "UPDATE jobs SET body = ?2 WHERE key = ?1 AND marked = 0";
    update_job = "UPDATE jobs SET marked = ?2, body = ?3 WHERE key = ?1";
    select_job = "SELECT body FROM jobs WHERE key = ?1";
    delete_unmarked = "DELETE FROM jobs WHERE key BETWEEN ?1 AND ?2 AND marked = 0";
    delete_job = "DELETE FROM jobs WHERE key = ?1";
    insert_finished = "INSERT INTO finished
        (key, marked, place, outcome, ended_at, ended_order, own, body, result)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    update_finished = "UPDATE finished SET marked = ?2, place = ?3, outcome = ?4, ended_at = ?5,
        ended_order = ?6, own = ?7, body = ?8 WHERE key = ?1";
    select_finished = "SELECT body FROM finished WHERE key = ?1";
    delete_finished_unmarked = "DELETE FROM finished WHERE key BETWEEN ?1 AND ?2 AND marked = 0";
    delete_finished = "DELETE FROM finished WHERE key = ?1";
    put_payload = "INSERT INTO payloads (key, body) VALUES (?1, ?2)
        ON CONFLICT (key) DO UPDATE SET body = excluded.body";
    delete_payloads = "DELETE FROM payloads WHERE key BETWEEN ?1 AND ?2";
    insert_lease = "INSERT INTO leases (key, body) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING";
    update_lease = "UPDATE leases SET body = ?2 WHERE key = ?1";
    delete_leases = "DELETE FROM leases WHERE key BETWEEN ?1 AND ?2";
    put_input = "INSERT INTO inputs (job, slot, upstream, body) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (job, slot) DO UPDATE SET upstream = excluded.upstream, body = excluded.body";
    delete_input = "DELETE FROM inputs WHERE job = ?1 AND slot = ?2";
    delete_inputs = "DELETE FROM inputs WHERE job BETWEEN ?1 AND ?2";
    put_log = "INSERT INTO logs (job, attempt, start, body) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (job, attempt, start) DO UPDATE SET body = excluded.body";
    delete_logs = "DELETE FROM logs WHERE job BETWEEN ?1 AND ?2";
    insert_mark = "INSERT INTO marks (mark, key) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    delete_mark = "DELETE FROM marks WHERE mark = ?1 AND key = ?2";
}
