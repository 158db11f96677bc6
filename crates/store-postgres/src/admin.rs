//! What an operator's role does once: roles, functions, and the tables of new shards.

use ganger_types::ShardId;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use crate::fault::Fault;
use crate::formats::Formats;
use crate::header::Header;
use crate::record::{self, Place};
use crate::schema::{ADMIN, FORMAT, NODE, functions, roles, schema, schema_of, shard};
use crate::session::Session;
use crate::settings::Settings;

/// Largest number of shards in one database.
pub const SHARDS_MAX: u32 = 256;

/// A connection of the role that may make roles and schemas.
pub struct Admin {
    session: Session,
    label: String,
}

/// Why a database could not be prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The shard's schema exists.
    #[error(
        "{database} has shard {shard} already: choose another number, or use the shard as it is"
    )]
    ShardExists {
        /// Host and name of the database.
        database: String,
        /// Number of the shard.
        shard: u32,
    },
    /// The database has a cluster of another name.
    #[error(
        "{database} has the cluster {found:?} already: use that name, or another database for {wanted:?}"
    )]
    OtherCluster {
        /// Host and name of the database.
        database: String,
        /// Name of the cluster that is there.
        found: String,
        /// Name of the cluster that was to be made.
        wanted: String,
    },
    /// The tables have a format that this program cannot use.
    #[error(
        "{database} has format {found}, and this program knows formats up to {known}: use the ganger that made it, or a newer one"
    )]
    OtherFormat {
        /// Host and name of the database.
        database: String,
        /// Format of the tables.
        found: i64,
        /// Format of this program.
        known: u32,
    },
    /// The name of a cluster has the wrong form.
    #[error("{name:?} is no name of a cluster: write 1 to 64 characters of A-Z a-z 0-9 . _ -")]
    ClusterName {
        /// The name that was given.
        name: String,
    },
    /// The cluster has no shard of this id.
    #[error(
        "{database} has no shard {shard:?}: `ganger cluster status` lists its shards, and the store must have the id of one of them"
    )]
    NoSuchShard {
        /// Host and name of the database.
        database: String,
        /// Id of the shard.
        shard: String,
    },
    /// The shard has been used already.
    #[error(
        "shard {shard} of {database} has been used: take a store into it before any job is enqueued there"
    )]
    ShardInUse {
        /// Host and name of the database.
        database: String,
        /// Id of the shard.
        shard: String,
    },
    /// A node has the shard open.
    #[error(
        "shard {shard} of {database} is open in node {holder}: stop it first, and start it again afterwards"
    )]
    ShardOpen {
        /// Host and name of the database.
        database: String,
        /// Id of the shard.
        shard: String,
        /// Name of the node.
        holder: String,
    },
    /// The end of a transaction was not heard of.
    #[error(
        "whether shard {shard} of {database} was moved is not known: {reason}; look at `ganger cluster status` before you do anything else: the whole shard was moved, or nothing"
    )]
    Unknown {
        /// Host and name of the database.
        database: String,
        /// Id of the shard.
        shard: String,
        /// Why it is not known.
        reason: String,
    },
    /// The number of the shard is too large.
    #[error("a database has shards 0 to {max}, not {shard}", max = SHARDS_MAX - 1)]
    ShardNumber {
        /// Number of the shard.
        shard: u32,
    },
    /// The roles or functions are missing.
    #[error("{database} is not prepared for shards: run `ganger cluster init` first")]
    NotInitialised {
        /// Host and name of the database.
        database: String,
    },
    /// The role may not do it.
    #[error(
        "{database} does not allow it: {reason}; use a superuser, or a role with CREATEROLE that owns the database"
    )]
    NotAllowed {
        /// Host and name of the database.
        database: String,
        /// Message of the server.
        reason: String,
    },
    /// The database cannot be used.
    #[error("{database} cannot be prepared: {reason}")]
    Failed {
        /// Host and name of the database.
        database: String,
        /// Message of the server, or of the system.
        reason: String,
    },
}

impl Admin {
    /// Connects with the settings of an operator's role.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub fn connect(settings: &Settings) -> Result<Self, AdminError> {
        let label = settings.label();
        let session = Session::connect(settings, "ganger/admin");
        Ok(Self {
            session: session.map_err(|fault| explain(&label, fault))?,
            label,
        })
    }

    /// Returns host and name of the database, and the connection.
    pub(crate) fn parts(&mut self) -> (&str, &mut Session) {
        (&self.label, &mut self.session)
    }

    /// Makes the roles `ganger_admin` and `ganger_node` and the functions of the schema `ganger`; what is there
    /// already is kept or brought up to date. `password` is the new password of `ganger_node`.
    ///
    /// # Errors
    /// If the role of this connection may not do it.
    pub fn init(&mut self, password: Option<&str>) -> Result<(), AdminError> {
        let label = self.label.clone();
        let (roles, functions) = (roles(), functions());
        let password = password.map_or(String::new(), |password| {
            format!("ALTER ROLE {NODE} PASSWORD {};", literal(password))
        });
        let sql =
            format!("BEGIN;\n{roles}\n{password}\nSET LOCAL ROLE {ADMIN};\n{functions}\nCOMMIT;");
        let done = self.session.run(async |wire| wire.batch(&sql).await);
        done.map_err(|fault| explain(&label, fault))
    }

    /// Returns the first warning of the database since the last call, in words for an operator.
    pub fn take_warning(&mut self) -> Option<String> {
        self.session.take_warning()
    }

    /// Names the cluster of this database, if it has no name.
    ///
    /// # Errors
    /// If the database has a cluster of another name, or was not prepared by [`Admin::init`].
    pub fn make_cluster(&mut self, name: &str) -> Result<(), AdminError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=64).contains(&name.len()) || !name.bytes().all(is_allowed) {
            return Err(AdminError::ClusterName {
                name: name.to_owned(),
            });
        }
        let mut identity = [0_u8; 16];
        let filled = getrandom::fill(&mut identity);
        filled.map_err(|error| explain(&self.label, Fault::Lost(error.to_string())))?;
        let (identity, format): (&[u8], _) = (&identity, i32::try_from(FORMAT).unwrap_or(i32::MAX));
        let found: String = self.ask(async |wire| {
            let insert = "INSERT INTO ganger.cluster (one, name, identity, format) VALUES (1, $1, $2, $3) ON CONFLICT DO NOTHING";
            let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
                [(&name, Type::TEXT), (&identity, Type::BYTEA), (&format, Type::INT4)];
            wire.execute_once(insert, &parameters).await?;
            let rows = wire.query_once("SELECT name FROM ganger.cluster", &[]).await?;
            Ok(rows.first().map_or(Ok(String::new()), |row| row.try_get(0))?)
        })?;
        if found != name {
            return Err(AdminError::OtherCluster {
                database: self.label.clone(),
                found,
                wanted: name.to_owned(),
            });
        }
        Ok(())
    }

    /// Returns the numbers of the cluster's shards, in order.
    ///
    /// # Errors
    /// If the database was not prepared by [`Admin::init`].
    pub fn shards(&mut self) -> Result<Vec<u32>, AdminError> {
        self.ask(async |wire| {
            let sql = "SELECT number::int8 FROM ganger.shard ORDER BY number";
            let rows = wire.query_once(sql, &[]).await?;
            let numbers = rows.iter().map(|row| {
                let number: i64 = row.try_get(0)?;
                Ok(u32::try_from(number).unwrap_or(u32::MAX))
            });
            numbers.collect()
        })
    }

    /// Adds the functions, tables and columns that this program needs; returns the cluster's format, which stays as it is.
    ///
    /// # Errors
    /// If the tables have a format that this program does not know.
    pub fn migrate(&mut self) -> Result<u32, AdminError> {
        let found: i64 = self.ask(async |wire| {
            let sql = "SELECT format::int8 FROM ganger.cluster";
            let rows = wire.query_once(sql, &[]).await?;
            Ok(rows.first().map_or(Ok(0), |row| row.try_get(0))?)
        })?;
        let format = u32::try_from(found).ok();
        let format = format.filter(|format| Formats::OWN.has(*format));
        let format = format.ok_or_else(|| AdminError::OtherFormat {
            database: self.label.clone(),
            found,
            known: Formats::OWN.max,
        })?;
        self.init(None)?;
        Ok(format)
    }

    /// Runs statements on the control tables in one transaction of the role that owns them: the role of this connection
    /// may have rights of its own only.
    fn ask<V>(
        &mut self,
        work: impl AsyncFnOnce(&crate::session::Wire) -> Result<V, Fault>,
    ) -> Result<V, AdminError> {
        let label = self.label.clone();
        let done = self.session.run(async |wire| {
            let done = async {
                wire.batch(&format!("BEGIN; SET LOCAL ROLE {ADMIN}"))
                    .await?;
                let done = work(wire).await?;
                wire.batch("COMMIT").await?;
                Ok(done)
            };
            let done = done.await;
            if done.is_err() {
                wire.batch("ROLLBACK").await?;
            }
            done
        });
        done.map_err(|fault| match fault {
            Fault::Refused { code, .. } if is_missing(&code) => {
                AdminError::NotInitialised { database: label }
            }
            other => explain(&label, other),
        })
    }

    /// Makes the tables of a new shard.
    ///
    /// # Errors
    /// If the database has it already, or was not prepared by [`Admin::init`].
    pub fn add_shard(&mut self, number: u32, shard: &ShardId) -> Result<(), AdminError> {
        if number >= SHARDS_MAX {
            return Err(AdminError::ShardNumber { shard: number });
        }
        let label = self.label.clone();
        let added = self.session.run(async |wire| {
            let done = make_shard(wire, number, shard).await;
            if done.is_err() {
                wire.batch("ROLLBACK").await?;
            }
            done
        });
        added.map_err(|fault| match fault {
            Fault::Refused { code, .. } if code == SqlState::DUPLICATE_SCHEMA => {
                AdminError::ShardExists {
                    database: label,
                    shard: number,
                }
            }
            Fault::Refused { code, .. } if is_missing(&code) => {
                AdminError::NotInitialised { database: label }
            }
            other => explain(&label, other),
        })
    }
}

async fn make_shard(
    wire: &crate::session::Wire,
    number: u32,
    shard_id: &ShardId,
) -> Result<(), Fault> {
    let begin = format!(
        "BEGIN;\n{}\nSET LOCAL ROLE {ADMIN};\n{}",
        schema(number),
        shard(number)
    );
    let schema = schema_of(number);
    wire.batch(&begin).await?;
    let mut identity = [0_u8; 16];
    getrandom::fill(&mut identity).map_err(|error| Fault::Lost(error.to_string()))?;
    let sealed = Header::new(shard_id).seal();
    let fences = format!(
        "INSERT INTO {schema}.fence (what, epoch, state, owner, identity, format)
         SELECT what, 0, 'open', '', $1, coalesce((SELECT format FROM ganger.cluster), $2)
         FROM unnest(ARRAY['log', 'rows']) AS what"
    );
    let identity_bytes: &[u8] = &identity;
    let newest = i32::try_from(FORMAT).unwrap_or(i32::MAX);
    wire.execute_once(
        &fences,
        &[(&identity_bytes, Type::BYTEA), (&newest, Type::INT4)],
    )
    .await?;
    let checkpoint =
        format!("INSERT INTO {schema}.checkpoint (one, sequence, slot, meta) VALUES (1, 0, 0, $1)");
    wire.execute_once(&checkpoint, &[(&sealed, Type::BYTEA)])
        .await?;
    // The first commit looks for the record before it.
    let place = Place {
        identity,
        epoch: 0,
        sequence: 0,
    };
    let first = record::in_rows(place);
    let log = format!("INSERT INTO {schema}.log_0 (seq, epoch, body) VALUES (0, 0, $1)");
    wire.execute_once(&log, &[(&first, Type::BYTEA)]).await?;
    let shard = i32::try_from(number).unwrap_or(i32::MAX);
    let id = shard_id.as_str();
    let entry = "INSERT INTO ganger.shard (number, id) VALUES ($1, $2)";
    wire.execute_once(entry, &[(&shard, Type::INT4), (&id, Type::TEXT)])
        .await?;
    for part in [0_i64, 1] {
        wire.query_once(
            "SELECT ganger.add_range($1, $2)",
            &[(&shard, Type::INT4), (&part, Type::INT8)],
        )
        .await?;
    }
    wire.batch("COMMIT").await
}

/// Whether the server says that the roles, the functions or the control tables are missing.
fn is_missing(code: &SqlState) -> bool {
    [
        SqlState::UNDEFINED_FUNCTION,
        SqlState::UNDEFINED_TABLE,
        SqlState::INVALID_SCHEMA_NAME,
        SqlState::UNDEFINED_OBJECT,
        SqlState::INVALID_PARAMETER_VALUE,
    ]
    .contains(code)
}

/// Returns a text as a literal of SQL, whatever `standard_conforming_strings` says, also within dollar quotes.
pub(crate) fn literal(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('\'', "''");
    let escaped = escaped.replace('$', "\\x24");
    format!("E'{escaped}'")
}

/// Says what a fault means for an operator.
pub(crate) fn explain(label: &str, fault: Fault) -> AdminError {
    let database = label.to_owned();
    match fault {
        Fault::Refused { code, message } if code == SqlState::INSUFFICIENT_PRIVILEGE => {
            AdminError::NotAllowed {
                database,
                reason: message,
            }
        }
        Fault::Refused { message, code } => AdminError::Failed {
            database,
            reason: format!("{message} ({})", code.code()),
        },
        Fault::Lost(reason) | Fault::Rewound(reason) | Fault::Damaged(reason) => {
            AdminError::Failed { database, reason }
        }
        Fault::Store(error) => AdminError::Failed {
            database,
            reason: error.to_string(),
        },
        Fault::Fenced { .. } => AdminError::Failed {
            database,
            reason: "another process owns the shard".to_owned(),
        },
    }
}
