//! The log of a shard: three tables of records, of which one takes the next record.
//!
//! The statement that appends a record locks the fence and looks for the record before it, so a record neither
//! follows a gap nor comes after another owner's claim. A table whose records all have their rows written is emptied
//! and used again.

use ganger_store::CommitError;
use ganger_store::rows::row::{from_sql, to_sql};
use ganger_types::{Commit, Epoch};
use tokio_postgres::types::Type;

use crate::admin::literal;
use crate::backend::{LogRecord, RowTables, SlotEnd};
use crate::fault::Fault;
use crate::fence::{Fence, Ownership};
use crate::names::Names;
use crate::record::{self, Place};
use crate::schema::SLOTS;
use crate::session::{Session, Wire};

/// Bytes of a record besides its body, about.
const RECORD_OVERHEAD: u64 = 48;
/// Records read at a time when the tail of the log is read; each has at most about 1 MiB.
const TAIL_RECORDS: i64 = 64;

/// One of the log tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// Sequence of its last record; `None` if it is empty.
    last: Option<u64>,
    bytes: u64,
}

/// Where the log of a shard ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) identity: [u8; 16],
    pub(crate) epoch: u64,
    /// Sequence of the last record.
    pub(crate) last: u64,
    slots: [Slot; SLOTS],
    /// The table that has the last record.
    newest: usize,
}

/// The tables of the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The table that takes the record.
    pub slot: usize,
    /// The table that has the record before it.
    pub before: usize,
}

impl Log {
    /// Takes over a log whose tables end so; `None` if all are empty.
    pub(crate) fn new(identity: [u8; 16], epoch: u64, ends: &[SlotEnd]) -> Option<Self> {
        let mut slots = [Slot::default(); SLOTS];
        for (slot, end) in slots.iter_mut().zip(ends) {
            (slot.last, slot.bytes) = (end.last, end.bytes);
        }
        let newest = (0..SLOTS).max_by_key(|slot| slots[*slot].last)?;
        Some(Self {
            identity,
            epoch,
            last: slots[newest].last?,
            slots,
            newest,
        })
    }

    /// Returns the place of a record in this epoch.
    pub(crate) fn place(&self, sequence: u64) -> Place {
        Place {
            identity: self.identity,
            epoch: self.epoch,
            sequence,
        }
    }

    /// Refuses a commit of another epoch, or out of order, before it is sent.
    pub(crate) fn check(&self, commit: &Commit) -> Result<(), CommitError> {
        if commit.epoch.0 != self.epoch {
            return Err(CommitError::Fenced {
                ours: commit.epoch,
                theirs: Epoch(self.epoch),
            });
        }
        if commit.sequence != self.last + 1 {
            let (ours, last) = (commit.sequence, self.last);
            let reason = format!("commit {ours} does not follow {last}, the last one");
            return Err(CommitError::NotApplied {
                reason,
                is_full: false,
            });
        }
        Ok(())
    }

    /// Returns where the next record goes: into the table with the last one, unless that has `slot_bytes` and the
    /// next table is empty.
    pub(crate) fn target(&self, slot_bytes: u64) -> Target {
        let next = (self.newest + 1) % SLOTS;
        let is_full = self.slots[self.newest].bytes >= slot_bytes;
        let is_free = self.slots[next].last.is_none();
        Target {
            slot: if is_full && is_free {
                next
            } else {
                self.newest
            },
            before: self.newest,
        }
    }

    /// Notes the record that was appended.
    pub(crate) fn appended(&mut self, target: Target, bytes: u64) {
        self.last += 1;
        self.newest = target.slot;
        let slot = &mut self.slots[target.slot];
        slot.last = Some(self.last);
        slot.bytes += bytes + RECORD_OVERHEAD;
    }

    /// Bytes of the records in all tables, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.bytes).sum()
    }

    /// Returns a table that can be emptied: all its records have their rows written up to `sequence`, and it has not
    /// the last record.
    pub(crate) fn obsolete(&self, sequence: u64) -> Option<usize> {
        (0..SLOTS).find(|slot| {
            *slot != self.newest && self.slots[*slot].last.is_some_and(|last| last < sequence)
        })
    }

    /// Notes that a table is empty now.
    pub(crate) fn emptied(&mut self, slot: usize) {
        self.slots[slot] = Slot::default();
    }
}

/// Returns the statement that appends a record; it takes epoch, sequence, body and owner.
///
/// The lock must be `FOR SHARE`: a weaker one does not conflict with the update of a claim.
pub(crate) fn append_sql(names: &Names, target: Target) -> String {
    let Target { slot, before } = target;
    let schema = &names.schema;
    format!(
        "WITH own AS (SELECT 1 FROM {schema}.fence
            WHERE what = 'log' AND epoch = $1 AND owner = $4 AND state = 'open'
              AND EXISTS (SELECT 1 FROM {schema}.log_{before} WHERE seq = $2 - 1)
            FOR SHARE OF fence)
         INSERT INTO {schema}.log_{slot} (seq, epoch, body) SELECT $2, $1, $3 FROM own"
    )
}

/// Appends a record; returns the number of records appended, which is 0 for another owner's shard or after a gap.
pub(crate) async fn append(
    wire: &Wire,
    sql: &str,
    owner: &str,
    place: Place,
    body: &[u8],
) -> Result<u64, Fault> {
    let (epoch, sequence) = (to_sql(place.epoch), to_sql(place.sequence));
    wire.execute_once(
        sql,
        &[
            (&epoch, Type::INT8),
            (&sequence, Type::INT8),
            (&body, Type::BYTEA),
            (&owner, Type::TEXT),
        ],
    )
    .await
}

/// Reads the row `log` of the fence; `None` if it is missing. `lock` is empty, or what the statement ends with.
pub(crate) async fn fence(wire: &Wire, names: &Names, lock: &str) -> Result<Option<Fence>, Fault> {
    let sql = names.sql(&format!(
        "SELECT epoch, owner, state, identity, format FROM {{s}}.fence WHERE what = 'log' {lock}"
    ));
    let rows = wire.query_once(&sql, &[]).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let (epoch, identity, format): (i64, &[u8], i32) =
        (row.try_get(0)?, row.try_get(3)?, row.try_get(4)?);
    let wrong = |_| Fault::row("fence", "log", "its identity has not 16 bytes");
    Ok(Some(Fence {
        epoch: from_sql(epoch),
        owner: row.try_get(1)?,
        state: row.try_get(2)?,
        identity: identity.try_into().map_err(wrong)?,
        format: u32::try_from(format).unwrap_or(0),
    }))
}

/// Returns what it means that no record was appended.
pub(crate) fn refusal(fence: Option<&Fence>, ours: &Ownership) -> Fault {
    match fence {
        Some(fence) => fence.refusal(ours),
        None => Fault::row("fence", "log", "it is missing"),
    }
}

/// Returns the condition that the log has the record with the sequence `$1`.
pub(crate) fn has_record_sql(names: &Names) -> String {
    let schema = &names.schema;
    let in_slot = |slot| format!("EXISTS (SELECT 1 FROM {schema}.log_{slot} WHERE seq = $1)");
    let slots: Vec<String> = (0..SLOTS).map(in_slot).collect();
    format!("({})", slots.join(" OR "))
}

/// Whether a record is in the log.
pub(crate) async fn has_record(wire: &Wire, names: &Names, sequence: u64) -> Result<bool, Fault> {
    let sql = format!("SELECT {}", has_record_sql(names));
    let rows = wire
        .query_once(&sql, &[(&to_sql(sequence), Type::INT8)])
        .await?;
    Ok(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
}

/// Reads the commits after `sequence`, up to the last one of the log; refuses a gap.
pub(crate) fn tail<T: RowTables>(
    tables: &mut T,
    log: &Log,
    sequence: u64,
) -> Result<Vec<Commit>, Fault> {
    let mut commits = Vec::new();
    let mut read = sequence;
    while read < log.last {
        let after = read;
        for record in tables.records(after)? {
            let place = Place {
                identity: log.identity,
                epoch: record.epoch,
                sequence: record.sequence,
            };
            if place.sequence != read + 1 {
                break;
            }
            match record::open(place, &record.body)? {
                Some(commit) => commits.push(commit),
                None => {
                    let what = "its rows are not written, though it says so";
                    return Err(Fault::row("log", record.sequence, what));
                }
            }
            read = place.sequence;
        }
        if after == read {
            let (missing, last) = (read + 1, log.last);
            return Err(Fault::Damaged(format!(
                "record {missing} of the log is missing, before {last}, the last one"
            )));
        }
    }
    Ok(commits)
}

/// Reads the next records after `sequence`, in order.
pub(crate) fn records(
    session: &mut Session,
    names: &Names,
    sequence: u64,
) -> Result<Vec<LogRecord>, Fault> {
    let parts: Vec<String> = (0..SLOTS)
        .map(|slot| {
            format!(
                "(SELECT seq, epoch, body FROM {}.log_{slot} WHERE seq > $1 ORDER BY seq LIMIT {TAIL_RECORDS})",
                names.schema
            )
        })
        .collect();
    let sql = format!(
        "{} ORDER BY seq LIMIT {TAIL_RECORDS}",
        parts.join(" UNION ALL ")
    );
    let after = to_sql(sequence);
    let rows = session.run(async |wire| wire.query_once(&sql, &[(&after, Type::INT8)]).await)?;
    let record = |row: &tokio_postgres::Row| {
        let (sequence, epoch): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok(LogRecord {
            sequence: from_sql(sequence),
            epoch: from_sql(epoch),
            body: row.try_get(2)?,
        })
    };
    rows.iter().map(record).collect()
}

/// Empties a log table if this owner still has the shard and the rows of all its records are written. Returns
/// whether it is empty now.
///
/// The table is locked before it is looked at, so a statement that comes late empties nothing that was appended in
/// the meantime. A dump may hold the table: then this gives up after a moment, since appends would wait behind it.
pub(crate) fn empty(
    session: &mut Session,
    names: &Names,
    ours: &Ownership,
    slot: usize,
) -> Result<bool, Fault> {
    let (epoch, owner) = (ours.epoch, literal(&ours.owner));
    let (schema, table) = (&names.schema, format!("{}.log_{slot}", names.schema));
    let sql = format!(
        "BEGIN; SET LOCAL lock_timeout = '50ms'; SET LOCAL synchronous_commit = off;
         DO $$ BEGIN
            PERFORM 1 FROM {schema}.fence WHERE what = 'rows' AND epoch = {epoch} AND owner = {owner} AND state = 'open' FOR SHARE;
            IF NOT FOUND THEN RETURN; END IF;
            LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE;
            IF NOT EXISTS (SELECT 1 FROM {table} WHERE seq >= (SELECT sequence FROM {schema}.checkpoint)) THEN
                TRUNCATE {table};
            END IF;
         END $$;"
    );
    let look = format!("SELECT NOT EXISTS (SELECT 1 FROM {table})");
    session.run(async |wire| {
        let emptied = async {
            wire.batch(&sql).await?;
            let rows = wire.query_once(&look, &[]).await?;
            wire.batch("COMMIT").await?;
            Ok(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
        };
        let emptied: Result<bool, Fault> = emptied.await;
        if emptied.as_ref().is_err_and(|fault| !fault.is_lost()) {
            wire.batch("ROLLBACK").await?;
        }
        emptied
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables that end with these sequences.
    fn ends(last: [Option<u64>; SLOTS]) -> [SlotEnd; SLOTS] {
        last.map(|last| SlotEnd {
            last,
            ..SlotEnd::default()
        })
    }

    #[test]
    fn records_go_into_the_next_table_once_one_is_full_and_the_next_is_empty() {
        let mut log = Log::new([0; 16], 1, &ends([Some(0), None, None])).expect("it is there");
        let at = |slot, before| Target { slot, before };
        assert_eq!(log.target(100), at(0, 0));
        log.appended(at(0, 0), 100);
        assert_eq!(log.target(100), at(1, 0));
        log.appended(at(1, 0), 100);
        log.appended(log.target(100), 100);
        // The third is full too, and the first still has records.
        assert_eq!((log.last, log.target(100)), (3, at(2, 2)));
        assert_eq!(log.obsolete(1), None, "the record of the checkpoint stays");
        assert_eq!(log.obsolete(2), Some(0));
        log.emptied(0);
        assert_eq!(log.target(100), at(0, 2));
        assert_eq!(log.obsolete(9), Some(1));
    }

    #[test]
    fn a_log_that_is_taken_over_goes_on_behind_its_last_record() {
        let log = Log::new([0; 16], 1, &ends([Some(12), None, Some(9)])).expect("it is there");
        assert_eq!(log.last, 12);
        assert_eq!(log.target(100), Target { slot: 0, before: 0 });
        assert_eq!(log.obsolete(12), Some(2));
        assert_eq!(Log::new([0; 16], 1, &ends([None; SLOTS])), None);
    }
}
