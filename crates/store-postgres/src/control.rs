//! The control tables of a cluster: its name, its shards, and what each says of itself.
//!
//! They advise: who owns a shard is decided by the fence of the shard alone.

use std::sync::Arc;

use ganger_store::StoreError;
use ganger_types::ShardId;
use tokio_postgres::error::SqlState;

use crate::database::{Database, QUERY_MAX};
use crate::fault::Fault;
use crate::fence::{OPEN, REWOUND};
use crate::formats::Formats;
use crate::schema::NODE;

/// Makes the control tables. `{node}` stands for the role of the nodes.
pub(crate) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS ganger.cluster (one int PRIMARY KEY CHECK (one = 1), name text NOT NULL,
    identity bytea NOT NULL, format int NOT NULL, made_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS ganger.shard (number int PRIMARY KEY, id text NOT NULL UNIQUE);
GRANT SELECT ON ganger.cluster, ganger.shard TO {node};
GRANT UPDATE (format) ON ganger.cluster TO {node};
";

/// A shard of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardEntry {
    /// Number of the shard in its database.
    pub number: u32,
    /// Id of the shard.
    pub id: ShardId,
}

/// What the control tables say of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Name of the cluster.
    pub name: String,
    /// Random number of the cluster, in hexadecimal digits: another cluster of the same name has another one.
    pub identity: String,
    /// Format of the tables.
    pub format: u32,
    /// The shards, in order of their numbers.
    pub shards: Vec<ShardEntry>,
}

/// The state of a shard in its own tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardStatus {
    /// Number of the shard.
    pub number: u32,
    /// Epoch of the last claim; 0 before the first.
    pub epoch: u64,
    /// `open`, or why nobody may own the shard.
    pub state: String,
    /// Name of the store that made the last claim; empty before the first.
    pub owner: String,
    /// Format of the shard's tables.
    pub format: u32,
    /// Sequence of the last commit whose rows are written.
    pub checkpoint: u64,
    /// Sequence of the last commit in the log.
    pub last: u64,
}

impl ShardStatus {
    /// Whether a node may own the shard.
    pub fn is_open(&self) -> bool {
        self.state == OPEN
    }
}

impl Directory {
    /// Reads the control tables.
    ///
    /// # Errors
    /// If the database is not that of a cluster that this program can use, or cannot be reached.
    pub fn read(database: &Arc<Database>) -> Result<Self, StoreError> {
        let label = database.settings().label();
        let refused = |reason: String| StoreError::Io {
            path: label.clone(),
            doing: "used",
            reason,
        };
        let sql = "SELECT name, encode(identity, 'hex'), format FROM ganger.cluster";
        let rows = database.query(sql, &[], QUERY_MAX);
        let rows = rows.map_err(|fault| explain(fault, &label))?;
        let row = rows.first().ok_or_else(|| {
            refused("it has no cluster: make one with `ganger cluster init`".to_owned())
        })?;
        let damaged = |error: tokio_postgres::Error| Fault::from(error).at(&label, "read");
        let format: i32 = row.try_get(2).map_err(damaged)?;
        let format = u32::try_from(format).unwrap_or(0);
        let Formats { min, max } = Formats::OWN;
        if format > max {
            return Err(StoreError::TooNew {
                path: label.clone(),
                found: format,
                known: max,
            });
        }
        if format < min {
            return Err(refused(format!(
                "it has format {format}, and this program needs {min} or newer: start nodes with a program that knows both, and run `ganger cluster finalize`"
            )));
        }
        let sql = "SELECT number, id FROM ganger.shard ORDER BY number";
        let shards = database.query(sql, &[], QUERY_MAX);
        let shards = shards.map_err(|fault| explain(fault, &label))?;
        let mut entries = Vec::with_capacity(shards.len());
        for shard in &shards {
            let number: i32 = shard.try_get(0).map_err(damaged)?;
            let id: String = shard.try_get(1).map_err(damaged)?;
            let id = ShardId::new(&id)
                .ok_or_else(|| refused(format!("its directory has {id:?}, which is no shard")))?;
            entries.push(ShardEntry {
                number: u32::try_from(number).unwrap_or(0),
                id,
            });
        }
        Ok(Self {
            name: row.try_get(0).map_err(damaged)?,
            identity: row.try_get(1).map_err(damaged)?,
            format,
            shards: entries,
        })
    }

    /// Returns the number of a shard; `None` if the cluster has no such shard.
    pub fn number(&self, shard: &ShardId) -> Option<u32> {
        let entry = self.shards.iter().find(|entry| entry.id == *shard);
        entry.map(|entry| entry.number)
    }

    /// Reads the state of each shard from its own tables.
    ///
    /// # Errors
    /// If the database cannot be reached, or a shard of the directory is missing.
    pub fn status(&self, database: &Arc<Database>) -> Result<Vec<ShardStatus>, StoreError> {
        statuses(database, &self.shards)
    }

    /// Returns the shards that are closed because they have lost commits, each with the sequence of its last commit.
    ///
    /// # Errors
    /// As [`Directory::status`].
    pub fn rewound(&self, database: &Arc<Database>) -> Result<Vec<(ShardEntry, u64)>, StoreError> {
        let rewound = self.status(database)?.into_iter().filter_map(|status| {
            let entry = self.shards.iter().find(|it| it.number == status.number)?;
            (status.state == REWOUND).then(|| (entry.clone(), status.last))
        });
        Ok(rewound.collect())
    }
}

/// Reads the state of shards, in the order of their numbers.
pub(crate) fn statuses(
    database: &Arc<Database>,
    shards: &[ShardEntry],
) -> Result<Vec<ShardStatus>, StoreError> {
    let label = database.settings().label();
    let parts = shards.iter().map(|shard| {
        let (number, schema) = (shard.number, crate::schema::schema_of(shard.number));
        format!(
            "SELECT {number}::int8, epoch, state, owner, format::int8,
                    (SELECT sequence FROM {schema}.checkpoint),
                    (SELECT max(seq) FROM (SELECT max(seq) AS seq FROM {schema}.log_0
                        UNION ALL SELECT max(seq) FROM {schema}.log_1
                        UNION ALL SELECT max(seq) FROM {schema}.log_2) AS ends)
                 FROM {schema}.fence WHERE what = 'log'"
        )
    });
    let sql = parts.collect::<Vec<_>>().join("\nUNION ALL ");
    if sql.is_empty() {
        return Ok(Vec::new());
    }
    let rows = database.query(&sql, &[], QUERY_MAX);
    let rows = rows.map_err(|fault| explain(fault, &label))?;
    let damaged = |error: tokio_postgres::Error| Fault::from(error).at(&label, "read");
    let number = |row: &tokio_postgres::Row, column: usize| {
        let number: Option<i64> = row.try_get(column).map_err(damaged)?;
        Ok(u64::try_from(number.unwrap_or(0)).unwrap_or(0))
    };
    let mut all = Vec::with_capacity(rows.len());
    for row in &rows {
        all.push(ShardStatus {
            number: u32::try_from(number(row, 0)?).unwrap_or(0),
            epoch: number(row, 1)?,
            state: row.try_get(2).map_err(damaged)?,
            owner: row.try_get(3).map_err(damaged)?,
            format: u32::try_from(number(row, 4)?).unwrap_or(0),
            checkpoint: number(row, 5)?,
            last: number(row, 6)?,
        });
    }
    all.sort_unstable_by_key(|shard| shard.number);
    Ok(all)
}

/// Says what to do if the control tables cannot be read.
pub(crate) fn explain(fault: Fault, label: &str) -> StoreError {
    let is = |codes: &[SqlState]| codes.iter().any(|code| fault.is(code));
    let reason = if is(&[SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME]) {
        "it is not prepared for ganger: run `ganger cluster init` with a role that may create roles and schemas"
            .to_owned()
    } else if is(&[SqlState::INSUFFICIENT_PRIVILEGE]) {
        format!("the role may not read the tables of ganger: connect as {NODE}")
    } else {
        return fault.at(label, "used");
    };
    StoreError::Io {
        path: label.to_owned(),
        doing: "used",
        reason,
    }
}
