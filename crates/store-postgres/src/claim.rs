//! Taking a shard over: the epoch is raised while the fence is locked, so that every commit of an earlier owner lies
//! wholly before or wholly after.
//!
//! A commit holds its row of the fence shared until its transaction has ended, its flush and its replication
//! included. A claim updates that row, so it waits for commits on their way, and what comes later finds another epoch.
//! The log and the checkpoint are read after the locks. Nothing is used before the claim's own commit is confirmed:
//! that lies behind all that it saw.

use std::time::Duration;

use ganger_store::StoreError;
use ganger_types::{Epoch, ShardId};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use ganger_store::rows::row::{from_sql, to_sql};

use crate::durability::{self, Durability};
use crate::fault::Fault;
use crate::header::Header;
use crate::log::Log;
use crate::names::Names;
use crate::schema::{FORMAT, SLOTS};
use crate::session::{Session, Wire};
use crate::settings::Settings;

/// Time for which a claim waits for an owner's transaction before it ends the sessions of that owner.
const OWNER_WAIT: &str = "2s";
/// Time for which it waits after that.
const LAST_WAIT: &str = "5s";
/// Time for the answer to a claim, beyond that for any statement: the waits above are part of it.
const CLAIM_EXTRA: Duration = Duration::from_secs(8);

/// A shard that was taken over.
pub(crate) struct Claim {
    pub(crate) log: Log,
    /// State of the rows.
    pub(crate) header: Header,
    pub(crate) durability: Durability,
    /// Time since the last record, by the clock of the database.
    pub(crate) away: Duration,
}

/// Takes a shard over; from anybody, or with `back` only from ourselves, if nobody else has taken it since.
///
/// `owner` names this store and no other: a claim of it whose outcome was unknown is recognised by that.
///
/// # Errors
/// If it has another owner than `back`, or cannot be used.
pub(crate) fn claim(
    settings: &Settings,
    names: &Names,
    owner: &str,
    shard: &ShardId,
    back: Option<Epoch>,
) -> Result<Claim, Fault> {
    let application = format!("ganger/{}/claim", names.number);
    let mut session = Session::connect(settings, &application)?;
    let durability = durability::inspect(&mut session, settings, &names.label)?;
    let attempt = Attempt {
        names,
        owner,
        shard,
        back,
        patience: settings.patience + CLAIM_EXTRA,
    };
    let taken = match attempt.run(&mut session, OWNER_WAIT) {
        Err(fault) if fault.is(&SqlState::LOCK_NOT_AVAILABLE) => {
            tracing::warn!(
                shard = names.number,
                "the last owner holds a lock on the shard: its sessions are ended"
            );
            end_owner(&mut session, names)?;
            attempt.run(&mut session, LAST_WAIT)?
        }
        taken => taken?,
    };
    Ok(Claim {
        log: taken.log,
        header: taken.header,
        durability,
        away: taken.away,
    })
}

struct Taken {
    log: Log,
    header: Header,
    away: Duration,
}

struct Attempt<'a> {
    names: &'a Names,
    owner: &'a str,
    shard: &'a ShardId,
    back: Option<Epoch>,
    patience: Duration,
}

impl Attempt<'_> {
    /// Takes the shard over in one transaction. A warning during its commit means that the commit is not confirmed.
    fn run(&self, session: &mut Session, wait: &str) -> Result<Taken, Fault> {
        session.take_warning();
        let taken = session.run_for(self.patience, async |wire| {
            let taken = self.take(wire, wait).await;
            if taken.as_ref().is_err_and(|fault| !fault.is_lost()) {
                wire.batch("ROLLBACK").await?;
            }
            taken
        })?;
        match session.take_warning() {
            None => Ok(taken),
            Some(warning) => Err(Fault::Lost(warning)),
        }
    }

    async fn take(&self, wire: &Wire, wait: &str) -> Result<Taken, Fault> {
        wire.batch(&format!("BEGIN; SET LOCAL lock_timeout = '{wait}'"))
            .await?;
        let (epoch, identity) = self.raise_epoch(wire).await?;
        let (sequence, sealed) = self.checkpoint(wire).await?;
        let header = Header::open(&sealed, sequence)?;
        if header.shard != self.shard.as_str() {
            return Err(Fault::Store(StoreError::OtherShard {
                path: self.names.label.clone(),
                found: header.shard,
                wanted: self.shard.to_string(),
            }));
        }
        let (log, away) = self.log(wire, epoch, identity).await?;
        if log.last < header.sequence {
            let (last, rows) = (log.last, header.sequence);
            return Err(Fault::Damaged(format!(
                "the log ends with record {last}, before {rows}, the last one whose rows are written"
            )));
        }
        wire.batch("COMMIT").await?;
        Ok(Taken { log, header, away })
    }

    /// Raises the epoch in both rows of the fence, which waits for every commit and checkpoint on its way.
    async fn raise_epoch(&self, wire: &Wire) -> Result<(u64, [u8; 16]), Fault> {
        let back = self.back.map(|epoch| to_sql(epoch.0));
        let log = self.names.sql(
            "UPDATE {s}.fence SET epoch = epoch + 1, owner = $2
             WHERE what = 'log' AND state = 'open' AND format <= $3 AND ($1 IS NULL OR epoch = $1 OR owner = $2)
             RETURNING epoch, identity",
        );
        let format = i32::try_from(FORMAT).unwrap_or(i32::MAX);
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] = [
            (&back, Type::INT8),
            (&self.owner, Type::TEXT),
            (&format, Type::INT4),
        ];
        let raised = wire.query_once(&log, &parameters).await;
        let raised = raised.map_err(|fault| no_shard(self.names, fault))?;
        let Some(row) = raised.first() else {
            return Err(self.refusal(wire).await?);
        };
        let (epoch, identity): (i64, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
        let wrong = |_| Fault::row("fence", "log", "its identity has not 16 bytes");
        let identity = identity.try_into().map_err(wrong)?;
        let rows = self
            .names
            .sql("UPDATE {s}.fence SET epoch = $1, owner = $2 WHERE what = 'rows'");
        let changed = wire
            .execute_once(&rows, &[(&epoch, Type::INT8), (&self.owner, Type::TEXT)])
            .await?;
        if changed != 1 {
            return Err(Fault::row("fence", "rows", "it is missing"));
        }
        Ok((from_sql(epoch), identity))
    }

    /// Returns why the shard cannot be taken over.
    async fn refusal(&self, wire: &Wire) -> Result<Fault, Fault> {
        let sql = self
            .names
            .sql("SELECT epoch, state, format FROM {s}.fence WHERE what = 'log'");
        let rows = wire.query_once(&sql, &[]).await?;
        let Some(row) = rows.first() else {
            return Ok(Fault::row("fence", "log", "it is missing"));
        };
        let (epoch, state, format): (i64, String, i32) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let (path, found) = (self.names.label.clone(), u32::try_from(format).unwrap_or(0));
        if found > FORMAT {
            let known = FORMAT;
            return Ok(Fault::Store(StoreError::TooNew { path, found, known }));
        }
        if state != "open" {
            let reason = format!(
                "it is {state}: the shard is being moved, or has moved, to another database"
            );
            return Ok(Fault::Store(StoreError::Io {
                path,
                doing: "opened",
                reason,
            }));
        }
        Ok(Fault::Fenced {
            theirs: Some(Epoch(from_sql(epoch))),
        })
    }

    async fn checkpoint(&self, wire: &Wire) -> Result<(u64, Vec<u8>), Fault> {
        let sql = self.names.sql("SELECT sequence, meta FROM {s}.checkpoint");
        let rows = wire.query_once(&sql, &[]).await?;
        let row = rows
            .first()
            .ok_or_else(|| Fault::row("checkpoint", "1", "it is missing"))?;
        let sequence: i64 = row.try_get(0)?;
        Ok((from_sql(sequence), row.try_get(1)?))
    }

    /// Reads where the log ends, in a snapshot that is newer than the locks.
    async fn log(
        &self,
        wire: &Wire,
        epoch: u64,
        identity: [u8; 16],
    ) -> Result<(Log, Duration), Fault> {
        let ends: Vec<String> = (0..SLOTS)
            .map(|slot| {
                let table = format!("{}.log_{slot}", self.names.schema);
                format!(
                    "SELECT {slot}::int4, (SELECT max(seq) FROM {table}), pg_table_size('{table}'::regclass),
                        (SELECT extract(epoch FROM clock_timestamp() - at)::float8 FROM {table}
                         ORDER BY seq DESC LIMIT 1)"
                )
            })
            .collect();
        let rows = wire.query_once(&ends.join("\nUNION ALL "), &[]).await?;
        let mut ends = Vec::with_capacity(SLOTS);
        let mut away = Duration::ZERO;
        let mut newest = None;
        for row in &rows {
            let (last, bytes, age): (Option<i64>, i64, Option<f64>) =
                (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            if last > newest {
                newest = last;
                away = Duration::try_from_secs_f64(age.unwrap_or_default()).unwrap_or_default();
            }
            ends.push((last.map(from_sql), from_sql(bytes)));
        }
        let log = Log::new(identity, epoch, &ends)
            .ok_or_else(|| Fault::Damaged("the log has lost its last record".to_owned()))?;
        Ok((log, away))
    }
}

/// Ends the sessions of the owner whose epoch is in the fence. A role may end its own sessions.
fn end_owner(session: &mut Session, names: &Names) -> Result<(), Fault> {
    let sql = names.sql(
        "SELECT count(pg_terminate_backend(pid, 2000)) FROM pg_stat_activity
         WHERE usename = current_user AND pid <> pg_backend_pid() AND application_name = $1 ||
            (SELECT epoch FROM {s}.fence WHERE what = 'log')",
    );
    let prefix = format!("ganger/{}/", names.number);
    session.run_for(CLAIM_EXTRA * 2, async |wire| {
        wire.query_once(&sql, &[(&prefix, Type::TEXT)]).await
    })?;
    Ok(())
}

/// Says what to do if the database has no such shard.
fn no_shard(names: &Names, fault: Fault) -> Fault {
    if !fault.is(&SqlState::UNDEFINED_TABLE) && !fault.is(&SqlState::INVALID_SCHEMA_NAME) {
        return fault;
    }
    Fault::Store(StoreError::Io {
        path: names.label.clone(),
        doing: "opened",
        reason: "the database has no such shard: make it with `ganger cluster add-shard`"
            .to_owned(),
    })
}
