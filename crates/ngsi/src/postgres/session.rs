//! Database sessions: connecting, statements, transactions and `COPY`.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use crate::environment::Database;
use bytes::Bytes;
use futures::{FutureExt as _, SinkExt as _};
use rustls::RootCertStore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{CancelToken, Client, Config, CopyInSink, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::postgres::session_error::{SessionError, Stage};
use crate::postgres::tables::SchemaCache;
use crate::postgres::{locks, tls};

/// Longest time for opening a session.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest time for connecting to one of a host's addresses.
const ADDRESS_MAX: Duration = Duration::from_secs(5);
/// Longest time for cancelling the statement of a dropped session.
const CANCEL_MAX: Duration = Duration::from_secs(5);
/// Time without traffic after which TCP keepalive probes are sent.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
/// Maximum number of prepared statements of a session; beyond it all are dropped.
const STATEMENTS_MAX: usize = 500;
/// Approximate size in bytes of the chunks in which `COPY` data is sent.
const COPY_PIECE_BYTES: usize = 64 * 1024;

/// The first statement of every session. A session that lost its client within a transaction is ended after 60 s, so
/// that a lock timeout of 120 s suffices to get its locks. Limits set by the operator are kept.
const SETUP: &str = "\
select set_config('timezone', 'UTC', false), \
    set_config('standard_conforming_strings', 'on', false), \
    case when current_setting('lock_timeout') = '0' \
        then set_config('lock_timeout', '120s', false) end, \
    case when current_setting('idle_in_transaction_session_timeout') = '0' \
        then set_config('idle_in_transaction_session_timeout', '60s', false) end";

/// Finds the extensions of the database. A type or function counts even if it is outside the search path.
const EXTENSIONS: &str = "\
select coalesce(to_regtype('geometry')::text, ( \
        select format('%I.geometry', nspname) \
        from pg_extension join pg_namespace on pg_namespace.oid = extnamespace \
        where extname = 'postgis')), ( \
    select format('%I.create_hypertable', nspname) \
    from pg_proc join pg_namespace on pg_namespace.oid = pronamespace \
    where proname = 'create_hypertable' \
    order by pg_function_is_visible(pg_proc.oid) desc limit 1)";

/// Opens sessions with one database.
pub(crate) struct Connector {
    database: Database,
    /// Trusted certificate authorities; `None` for those of the system.
    roots: Option<RootCertStore>,
    /// TLS connector, created when first needed, because that reads many files.
    tls: Option<MakeRustlsConnect>,
}

/// Optional features of a database, queried once per session.
#[derive(Debug, Default)]
pub(crate) struct Extensions {
    /// Qualified name of the type `geometry`; `None` without PostGIS.
    pub(crate) geometry: Option<String>,
    /// Qualified name of the function that creates hypertables; `None` without TimescaleDB.
    pub(crate) create_hypertable: Option<String>,
}

/// A session with the database, over one connection.
pub(crate) struct Session {
    client: Client,
    connection: JoinHandle<()>,
    cancel_handle: CancelHandle,
    /// Whether an attempt uses the session, so that a statement may be running when it is dropped.
    pub(crate) is_busy: bool,
    pub(crate) extensions: Extensions,
    pub(crate) schema_cache: SchemaCache,
    statements: HashMap<String, Statement>,
}

struct CancelHandle {
    token: CancelToken,
    tls: Option<MakeRustlsConnect>,
}

/// A `COPY` in progress.
pub(crate) struct CopyWriter {
    sink: Pin<Box<CopyInSink<Bytes>>>,
    piece: Vec<u8>,
}

impl Connector {
    pub(crate) fn new(database: Database, roots: Option<RootCertStore>) -> Self {
        Self {
            database,
            roots,
            tls: None,
        }
    }

    /// Connects, signs in and prepares the session.
    pub(crate) async fn connect(&mut self) -> Result<Session, SessionError> {
        let tls = if self.database.ssl {
            Some(self.tls()?)
        } else {
            None
        };
        match timeout(CONNECT_MAX, open(&self.database, tls)).await {
            Ok(opened) => opened.map_err(|error| SessionError::unreachable(&error, &self.database)),
            Err(_) => Err(SessionError::no_session("it took too long", &self.database)),
        }
    }

    fn tls(&mut self) -> Result<MakeRustlsConnect, SessionError> {
        if self.tls.is_none() {
            let roots = self.roots.take().unwrap_or_else(tls::system_roots);
            let made = tls::connector(roots)
                .map_err(|error| SessionError::no_session(&error.to_string(), &self.database))?;
            self.tls = Some(made);
        }
        Ok(self
            .tls
            .clone()
            .expect("the configuration was just created"))
    }
}

/// Connects, configures the session, and finds the extensions of the database.
async fn open(
    database: &Database,
    tls: Option<MakeRustlsConnect>,
) -> Result<Session, tokio_postgres::Error> {
    let config = config(database);
    let (client, connection) = match tls.clone() {
        Some(tls) => {
            let (client, connection) = config.connect(tls).await?;
            (client, connection.boxed())
        }
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            (client, connection.boxed())
        }
    };
    let connection = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the database session ended");
        }
    });
    let mut session = Session {
        cancel_handle: CancelHandle {
            token: client.cancel_token(),
            tls,
        },
        client,
        connection,
        is_busy: false,
        extensions: Extensions::default(),
        schema_cache: SchemaCache::default(),
        statements: HashMap::new(),
    };
    session.client.batch_execute(SETUP).await?;
    let row = session.client.query_one(EXTENSIONS, &[]).await?;
    session.extensions = Extensions {
        geometry: row.try_get(0)?,
        create_hypertable: row.try_get(1)?,
    };
    Ok(session)
}

fn config(database: &Database) -> Config {
    let mut config = Config::new();
    config
        .host(&database.host)
        .port(database.port)
        .dbname(&database.name)
        .user(&database.user)
        .password(&database.password)
        .application_name("ganger")
        .connect_timeout(ADDRESS_MAX)
        .keepalives_idle(KEEPALIVE_AFTER)
        .ssl_mode(if database.ssl {
            SslMode::Require
        } else {
            SslMode::Disable
        });
    config
}

impl Session {
    /// Whether the connection is not known to be closed.
    pub(crate) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// Runs statements without results.
    pub(crate) async fn execute(&self, stage: Stage, sql: &str) -> Result<(), SessionError> {
        let done = self.client.batch_execute(sql).await;
        done.map_err(|error| SessionError::of_statement(stage, &error))
    }

    /// Runs a statement, which is prepared once per session.
    pub(crate) async fn query(
        &mut self,
        stage: Stage,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, SessionError> {
        let statement = self.statement(stage, sql).await?;
        let rows = self.client.query(&statement, parameters).await;
        rows.map_err(|error| SessionError::of_statement(stage, &error))
    }

    /// Begins a `COPY ... from stdin`.
    pub(crate) async fn copy(&mut self, sql: &str) -> Result<CopyWriter, SessionError> {
        let statement = self.statement(Stage::Rows, sql).await?;
        let sink = self.client.copy_in(&statement).await.map_err(row_error)?;
        Ok(CopyWriter {
            sink: Box::pin(sink),
            piece: Vec::new(),
        })
    }

    async fn statement(&mut self, stage: Stage, sql: &str) -> Result<Statement, SessionError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let prepared = self.client.prepare(sql).await;
        let statement = prepared.map_err(|error| SessionError::of_statement(stage, &error))?;
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Begins a transaction and acquires locks. At isolation level read committed each statement sees all earlier commits,
    /// including those of a transaction that held one of the locks.
    pub(crate) async fn begin(&self, stage: Stage, keys: Vec<i64>) -> Result<(), SessionError> {
        let locks = locks::lock_statement(keys);
        let sql = format!("begin isolation level read committed; {locks}");
        let begun = self.execute(stage, &sql).await;
        self.roll_back_if_refused(begun).await
    }

    /// Ends the transaction: commits after success, rolls back after an error.
    pub(crate) async fn end<T>(
        &self,
        stage: Stage,
        done: Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        let done = self.roll_back_if_refused(done).await?;
        match self.client.batch_execute("commit").await {
            Ok(()) => Ok(done),
            Err(error) => Err(SessionError::of_commit(stage, &error)),
        }
    }

    async fn roll_back_if_refused<T>(
        &self,
        done: Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        if let Err(SessionError::Rejected(stage, _)) = &done {
            self.execute(*stage, "rollback").await?;
        }
        done
    }
}

impl Drop for Session {
    /// Closes the connection, and cancels a running statement, because the server notices a closed connection only between
    /// statements.
    fn drop(&mut self) {
        self.connection.abort();
        if self.is_busy
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let CancelHandle { token, tls } = &self.cancel_handle;
            let (token, tls) = (token.clone(), tls.clone());
            runtime.spawn(timeout(CANCEL_MAX, async move {
                match tls {
                    Some(tls) => token.cancel_query(tls).await,
                    None => token.cancel_query(NoTls).await,
                }
            }));
        }
    }
}

impl CopyWriter {
    /// Sends data of the running COPY.
    pub(crate) async fn write(&mut self, data: &[u8]) -> Result<(), SessionError> {
        self.piece.extend_from_slice(data);
        if self.piece.len() >= COPY_PIECE_BYTES {
            let piece = Bytes::from(std::mem::take(&mut self.piece));
            self.sink.feed(piece).await.map_err(row_error)?;
        }
        Ok(())
    }

    /// Ends the data; returns the number of rows.
    pub(crate) async fn finish(mut self) -> Result<u64, SessionError> {
        if !self.piece.is_empty() {
            let piece = Bytes::from(std::mem::take(&mut self.piece));
            self.sink.feed(piece).await.map_err(row_error)?;
        }
        self.sink.as_mut().finish().await.map_err(row_error)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn row_error(error: tokio_postgres::Error) -> SessionError {
    SessionError::of_statement(Stage::Rows, &error)
}
