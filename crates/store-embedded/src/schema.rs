//! The tables, and the upgrade of older files.

mod external;

use ganger_store::rows::names::SmallTable;
use ganger_types::IdempotencyRecord;
use rusqlite::{Connection, TransactionBehavior};

use crate::fault::Fault;
use crate::upgrade;

/// Application id in the SQLite header: "gang", by which `file` and this program recognise a store.
pub(crate) const APPLICATION_ID: i64 = 0x6761_6e67;
/// Version of the tables.
pub(crate) const FORMAT: u32 = 9;

/// Version 1. Rows of `body BLOB` are records of the `store` crate with their checksum behind them.
///
/// The hot table `jobs` has no index besides its key. `marked` says whether the secondary index (`marks`) has entries
/// for a job, so that the usual job, which has none, costs no lookup. Leases are separate and small: they are written
/// and removed with every attempt. `own` is the end of a job's own retention; the largest number means forever.
const VERSION_1: &str = "
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    shard TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE places (
    id INTEGER PRIMARY KEY,
    namespace BLOB NOT NULL,
    queue BLOB NOT NULL,
    UNIQUE (namespace, queue)
);
CREATE TABLE jobs (key INTEGER PRIMARY KEY, marked INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE payloads (key INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE leases (key INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE inputs (
    job INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    upstream INTEGER,
    body BLOB NOT NULL,
    PRIMARY KEY (job, slot)
) WITHOUT ROWID;
CREATE INDEX inputs_by_upstream ON inputs (upstream) WHERE upstream IS NOT NULL;
CREATE TABLE finished (
    key INTEGER PRIMARY KEY,
    marked INTEGER NOT NULL,
    place INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    ended_order INTEGER NOT NULL,
    own INTEGER,
    body BLOB NOT NULL,
    result BLOB
);
CREATE INDEX finished_by_order ON finished (place, outcome, ended_order, own);
CREATE INDEX finished_by_age ON finished (place, outcome, ended_at) WHERE own IS NULL;
CREATE INDEX finished_by_own ON finished (own) WHERE own IS NOT NULL;
CREATE TABLE marks (mark BLOB NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (mark, key)) WITHOUT ROWID;
CREATE TABLE logs (
    job INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    start INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (job, attempt, start)
) WITHOUT ROWID;
CREATE TABLE namespaces (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE queues (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE schedules (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE unique_keys (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE claims (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE tag_counts (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE group_counts (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE tracked (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE statistics (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
";

/// Tables about other shards: peers, messages to them in order, parts of submissions, jobs of parts until they are
/// decided, and jobs there that wait for jobs here.
const SHARDS: &str = "
CREATE TABLE peers (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE outbox (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE parts (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE part_jobs (name BLOB PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE dependents (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
";

/// Tables of operations and of the newest records of the audit log, by number.
const OPERATIONS: &str = "
CREATE TABLE operations (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE audit_log (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
";

/// Upgrades a store from one version to the next.
type Step = fn(&Connection) -> Result<(), Fault>;

/// Upgrade steps; the first makes an empty file a store of version 1. A released step never changes.
const STEPS: [Step; 9] = [
    version_1, version_2, version_3, version_4, version_5, version_6, version_7, version_8,
    version_9,
];

fn version_1(connection: &Connection) -> Result<(), Fault> {
    Ok(connection.execute_batch(VERSION_1)?)
}

/// Idempotency records hold runs of jobs instead of single jobs.
fn version_2(connection: &Connection) -> Result<(), Fault> {
    upgrade::rewrite::<IdempotencyRecord>(connection, SmallTable::IdempotencyRecords)
}

/// Adds the tables about other shards.
fn version_3(connection: &Connection) -> Result<(), Fault> {
    Ok(connection.execute_batch(SHARDS)?)
}

/// Adds the tables of keys and list elements.
fn version_4(connection: &Connection) -> Result<(), Fault> {
    Ok(connection.execute_batch(external::KEYS)?)
}

/// Adds the table of a further external system.
fn version_5(connection: &Connection) -> Result<(), Fault> {
    Ok(connection.execute_batch(external::QLESS)?)
}

/// Names the rows of external jobs by number.
fn version_6(connection: &Connection) -> Result<(), Fault> {
    upgrade::number_jobs(connection)
}

/// The tables are unchanged, but a turn log may hold commits that they lack, so a program that does not know the log
/// must not rely on the tables. Until that log is written into the tables, a later step must not read rows that its
/// commits may change.
#[expect(clippy::unnecessary_wraps, reason = "as the other steps")]
fn version_7(_: &Connection) -> Result<(), Fault> {
    Ok(())
}

/// The tables are unchanged, but the turn log may have several segments, and may hold every kind of commit.
#[expect(clippy::unnecessary_wraps, reason = "as the other steps")]
fn version_8(_: &Connection) -> Result<(), Fault> {
    Ok(())
}

/// Adds the tables of operations and of the audit log.
fn version_9(connection: &Connection) -> Result<(), Fault> {
    Ok(connection.execute_batch(OPERATIONS)?)
}

/// Upgrades the tables to [`FORMAT`]. Each step is one transaction, so an interrupted one is simply repeated (`rel
/// D14`).
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), Fault> {
    for (step, version) in STEPS.iter().zip(1_u32..) {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Exclusive)?;
        if version_of(&tx)? < version {
            step(&tx)?;
            tx.pragma_update(None, "user_version", version)?;
            tx.commit()?;
        }
    }
    Ok(())
}

/// Returns the version of the tables in a file; 0 for an empty file.
pub(crate) fn version_of(connection: &Connection) -> Result<u32, Fault> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}
