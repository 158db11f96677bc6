//! PostgreSQL behind the rules: one shard in its database, and the statements of a claim and of the log.

use std::sync::Arc;
use std::time::Duration;

use ganger_store::rows::row::{from_sql, to_sql};
use ganger_store::{Loaded, StoreError, StoreHold};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use crate::backend::{Backend, ClaimTables, FenceRow, LockWait, LogTables, SlotEnd};
use crate::database::Database;
use crate::durability::Durability;
use crate::fault::Fault;
use crate::fence::{Fence, Ownership};
use crate::header::Header;
use crate::limits::Limits;
use crate::load;
use crate::log::{self, Target};
use crate::names::Names;
use crate::reader::PostgresReader;
use crate::record::Place;
use crate::row_tables::PostgresRows;
use crate::schema::SLOTS;
use crate::session::Session;
use crate::shared::Shared;
use crate::standby_wait::StandbyWait;

/// Time for which a claim waits for an owner's transaction before it ends the sessions of that owner, and after that.
const OWNER_WAIT: &str = "2s";
const LAST_WAIT: &str = "5s";
/// Time for the answer to a statement of a claim, beyond that for any statement: the waits above are part of it.
const CLAIM_EXTRA: Duration = Duration::from_secs(8);

/// One shard in PostgreSQL.
pub struct Postgres {
    pub(crate) database: Arc<Database>,
    pub(crate) names: Arc<Names>,
    /// Name of the node.
    node: String,
    /// What holds up the commits of the shard.
    hold: StoreHold,
}

impl Postgres {
    pub(crate) fn new(database: &Arc<Database>, number: u32, node: &str) -> Self {
        let names = Names::new(&database.settings().label(), number);
        Self {
            database: Arc::clone(database),
            names: Arc::new(names),
            node: node.to_owned(),
            hold: StoreHold::default(),
        }
    }

    fn connect(&self, application: &str) -> Result<(Session, Durability), Fault> {
        let (session, durability) = self.database.connect(application, &self.names.label)?;
        let watch = StandbyWait {
            settings: Arc::clone(self.database.settings()),
            application: application.to_owned(),
            hold: self.hold.clone(),
            newest: Arc::clone(self.database.newest()),
        };
        Ok((session.watched(watch), durability))
    }
}

impl Backend for Postgres {
    type Claiming = PostgresClaim;
    type Appending = PostgresLog;
    type Writing = PostgresRows;
    type Reader = PostgresReader;

    fn label(&self) -> &str {
        &self.names.label
    }

    fn number(&self) -> u32 {
        self.names.number
    }

    fn hold(&self) -> Option<StoreHold> {
        Some(self.hold.clone())
    }

    fn limits(&self) -> Limits {
        self.database.settings().limits
    }

    fn server(&self) -> u64 {
        self.database.server()
    }

    fn new_owner(&self) -> Result<String, Fault> {
        let mut random = [0; 16];
        let filled = getrandom::fill(&mut random);
        filled.map_err(|error| Fault::Lost(error.to_string()))?;
        Ok(format!(
            "{} {:032x}",
            self.node,
            u128::from_ne_bytes(random)
        ))
    }

    fn claiming(&self) -> Result<PostgresClaim, Fault> {
        let application = format!("ganger/{}/claim", self.names.number);
        let (session, durability) = self.connect(&application)?;
        Ok(PostgresClaim {
            names: Arc::clone(&self.names),
            session,
            durability,
            patience: self.database.settings().patience + CLAIM_EXTRA,
        })
    }

    fn appending(&self, ours: &Ownership) -> Result<PostgresLog, Fault> {
        let (session, durability) = self.connect(&self.names.application(ours.epoch))?;
        Ok(PostgresLog {
            names: Arc::clone(&self.names),
            owner: Arc::clone(&ours.owner),
            session,
            durability,
        })
    }

    fn writing(&self, ours: &Ownership) -> Result<PostgresRows, Fault> {
        let (session, _) = self.connect(&self.names.application(ours.epoch))?;
        Ok(PostgresRows::new(session, &self.names, ours.clone()))
    }

    fn outlast<T>(&self, attempt: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
        self.database.outlast(attempt)
    }

    fn load(&self, header: &Header, each: &mut dyn FnMut(Loaded)) -> Result<(), Fault> {
        load::load(self, header, each)
    }

    fn reader(shared: &Arc<Shared<Self>>) -> Result<PostgresReader, Fault> {
        Ok(PostgresReader::new(shared))
    }
}

/// A connection that takes a shard over.
pub struct PostgresClaim {
    names: Arc<Names>,
    session: Session,
    durability: Durability,
    /// Time for the answer to a statement.
    patience: Duration,
}

impl PostgresClaim {
    fn batch(&mut self, sql: &str) -> Result<(), Fault> {
        self.session
            .run_for(self.patience, async |wire| wire.batch(sql).await)
    }
}

impl ClaimTables for PostgresClaim {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn begin(&mut self, wait: LockWait) -> Result<(), Fault> {
        let wait = match wait {
            LockWait::Owner => OWNER_WAIT,
            LockWait::Last => LAST_WAIT,
        };
        self.batch(&format!("BEGIN; SET LOCAL lock_timeout = '{wait}'"))
    }

    fn lock_fence(&mut self) -> Result<Option<Fence>, Fault> {
        let names = &self.names;
        let locked = self.session.run_for(self.patience, async |wire| {
            // It conflicts with the shared locks of commits; the update that follows takes the same lock.
            log::fence(wire, names, "FOR NO KEY UPDATE").await
        });
        locked.map_err(|fault| no_shard(names, fault))
    }

    fn write_fence(&mut self, row: FenceRow, epoch: u64, owner: &str) -> Result<u64, Fault> {
        let what = match row {
            FenceRow::Log => "log",
            FenceRow::Rows => "rows",
        };
        let sql = self.names.sql(&format!(
            "UPDATE {{s}}.fence SET epoch = $1, owner = $2 WHERE what = '{what}'"
        ));
        let epoch = to_sql(epoch);
        self.session.run_for(self.patience, async |wire| {
            wire.execute_once(&sql, &[(&epoch, Type::INT8), (&owner, Type::TEXT)])
                .await
        })
    }

    fn write_state(&mut self, state: &str) -> Result<(), Fault> {
        let sql = self.names.sql("UPDATE {s}.fence SET state = $1");
        let written = self.session.run_for(self.patience, async |wire| {
            wire.execute_once(&sql, &[(&state, Type::TEXT)]).await
        });
        written.map(|_| ())
    }

    fn checkpoint(&mut self) -> Result<Option<(u64, Vec<u8>)>, Fault> {
        let sql = self.names.sql("SELECT sequence, meta FROM {s}.checkpoint");
        let rows = self
            .session
            .run_for(self.patience, async |wire| wire.query_once(&sql, &[]).await)?;
        let read = |row: &tokio_postgres::Row| {
            let sequence: i64 = row.try_get(0)?;
            Ok((from_sql(sequence), row.try_get(1)?))
        };
        rows.first().map(read).transpose()
    }

    fn ends(&mut self) -> Result<Vec<SlotEnd>, Fault> {
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
        let sql = ends.join("\nUNION ALL ");
        let rows = self
            .session
            .run_for(self.patience, async |wire| wire.query_once(&sql, &[]).await)?;
        let read = |row: &tokio_postgres::Row| {
            let (last, bytes): (Option<i64>, i64) = (row.try_get(1)?, row.try_get(2)?);
            Ok(SlotEnd {
                last: last.map(from_sql),
                bytes: from_sql(bytes),
                age: row.try_get(3)?,
            })
        };
        rows.iter().map(read).collect()
    }

    fn commit(&mut self) -> Result<(), Fault> {
        self.batch("COMMIT")?;
        self.session.has_committed();
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), Fault> {
        self.batch("ROLLBACK")
    }

    fn take_warning(&mut self) -> Option<String> {
        self.session.take_warning()
    }

    /// A role may end its own sessions.
    fn end_owner(&mut self) -> Result<(), Fault> {
        let sql = self.names.sql(
            "SELECT count(pg_terminate_backend(pid, 2000)) FROM pg_stat_activity
             WHERE usename = current_user AND pid <> pg_backend_pid() AND application_name = $1 ||
                (SELECT epoch FROM {s}.fence WHERE what = 'log')",
        );
        let prefix = format!("ganger/{}/", self.names.number);
        self.session.run_for(CLAIM_EXTRA * 2, async |wire| {
            wire.query_once(&sql, &[(&prefix, Type::TEXT)]).await
        })?;
        Ok(())
    }
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

/// A connection that appends to the log.
pub struct PostgresLog {
    names: Arc<Names>,
    owner: Arc<str>,
    session: Session,
    durability: Durability,
}

impl LogTables for PostgresLog {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn is_alive(&mut self) -> bool {
        self.session.is_alive()
    }

    fn append(&mut self, target: Target, place: Place, body: &[u8]) -> Result<u64, Fault> {
        let sql = log::append_sql(&self.names, target);
        let (session, owner) = (&mut self.session, &*self.owner);
        let appended =
            session.run(async |wire| log::append(wire, &sql, owner, place, body).await)?;
        if appended > 0 {
            session.has_committed();
        }
        Ok(appended)
    }

    fn fence(&mut self) -> Result<Option<Fence>, Fault> {
        let names = &self.names;
        self.session
            .run(async |wire| log::fence(wire, names, "").await)
    }

    fn take_warning(&mut self) -> Option<String> {
        self.session.take_warning()
    }
}
