//! What keeps the database from clearing up after its transactions.

use std::time::Duration;

use ganger_store::StoreError;

use crate::database::Database;

/// Time that the database may take for the answer.
const QUERY_MAX: Duration = Duration::from_secs(5);

/// Every role may read these, except of other roles what they do. A slot or a prepared transaction holds a snapshot for
/// as long as it is there.
const AGES: &str = "SELECT
    greatest(
        (SELECT max(age(backend_xmin)) FROM pg_stat_activity WHERE backend_type <> 'walsender'),
        (SELECT max(greatest(age(xmin), age(catalog_xmin))) FROM pg_replication_slots),
        (SELECT max(age(transaction)) FROM pg_prepared_xacts))::int8,
    age(datfrozenxid)::int8,
    mxid_age(datminmxid)::int8
    FROM pg_database WHERE datname = current_database()";

/// Ages in the database, in numbers of transactions that began since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseAges {
    /// Of the oldest snapshot that somebody holds: rows deleted since keep their space, and log tables are emptied all
    /// the same. 0 if nobody holds one.
    pub snapshot: u64,
    /// Of the oldest transaction number in a table. The database freezes it in time by itself.
    pub transaction: u64,
    /// Of the oldest number for several locks on one row, as commits of ganger take them.
    pub multixact: u64,
}

impl DatabaseAges {
    /// Reads them.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub fn read(database: &Database) -> Result<Self, StoreError> {
        let label = database.settings().label();
        let rows = database.query(AGES, &[], QUERY_MAX);
        let rows = rows.map_err(|fault| fault.at(&label, "asked"))?;
        let Some(row) = rows.first() else {
            return Ok(Self::default());
        };
        let age = |column: usize| {
            let age: Result<Option<i64>, _> = row.try_get(column);
            let age = age.map_err(|error| crate::fault::Fault::from(error).at(&label, "asked"))?;
            Ok(u64::try_from(age.unwrap_or(0)).unwrap_or(0))
        };
        Ok(Self {
            snapshot: age(0)?,
            transaction: age(1)?,
            multixact: age(2)?,
        })
    }
}
