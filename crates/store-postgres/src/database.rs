//! One database of this process: its settings, and the connections that read, shared by all shards.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures::future::join3;
use tokio_postgres::Row;

use crate::durability::{self, Durability};
use crate::fault::Fault;
use crate::newest::NewestServer;
use crate::session::{Parameter, Session};
use crate::settings::Settings;
use crate::settings_error::SettingsError;

/// Time for a query of records, lists and counts.
pub(crate) const QUERY_MAX: Duration = Duration::from_secs(5);
/// Time for a query that reads everything.
pub(crate) const EXPORT_MAX: Duration = Duration::from_secs(30);
/// Time to wait for a connection that others use.
const TURN_MAX: Duration = Duration::from_secs(30);
/// Time between two attempts to reach the database.
const OUTAGE_PAUSE: Duration = Duration::from_millis(100);
/// Attempts of a read, each on another connection.
const ATTEMPTS: u32 = 3;
/// Least number of attempts to reach the newest server, if a former primary answers too: one name may stand for both.
const HOST_ATTEMPTS: usize = 4;

/// One database of this process. Its shards share the connections that read.
pub struct Database {
    settings: Arc<Settings>,
    state: Mutex<State>,
    /// Signalled when a connection is given back.
    returned: Condvar,
    newest: Arc<NewestServer>,
}

#[derive(Default)]
struct State {
    /// Connections with the number of their server.
    idle: Vec<(Session, u64)>,
    /// Number of connections, idle or in use.
    open: usize,
}

impl Database {
    /// Takes the settings over. Connections are made when they are needed.
    ///
    /// # Errors
    /// If the settings allow no connection that reads.
    pub fn new(settings: Settings) -> Result<Arc<Self>, SettingsError> {
        if settings.readers == 0 {
            return Err(SettingsError::Readers(settings.readers));
        }
        Ok(Arc::new(Self {
            settings: Arc::new(settings),
            state: Mutex::default(),
            returned: Condvar::new(),
            newest: Arc::default(),
        }))
    }

    pub(crate) fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the newest server of the database, which other nodes are told of and tell of.
    pub fn newest(&self) -> &Arc<NewestServer> {
        &self.newest
    }

    /// Returns how often another server has taken the place of the one that was used before.
    pub(crate) fn server(&self) -> u64 {
        self.newest.number()
    }

    /// Connects to write, with the newest server. `label` names the store in errors.
    pub(crate) fn connect(
        &self,
        application: &str,
        label: &str,
    ) -> Result<(Session, Durability), Fault> {
        self.connect_newest(application, 0, |session| {
            durability::inspect(session, &self.settings, label)
        })
    }

    /// [`Database::connect`], without looking at what a commit survives there, and with `host` as the first.
    pub(crate) fn connect_unchecked(
        &self,
        application: &str,
        host: usize,
    ) -> Result<Session, Fault> {
        let (session, _) = self.connect_newest(application, host, durability::server)?;
        Ok(session)
    }

    /// Connects to a server that accepts writes and is no former primary. `inspect` asks it who it is.
    fn connect_newest(
        &self,
        application: &str,
        host: usize,
        inspect: impl Fn(&mut Session) -> Result<Durability, Fault>,
    ) -> Result<(Session, Durability), Fault> {
        let last = self.settings.hosts().max(HOST_ATTEMPTS) - 1;
        let mut attempt = 0;
        loop {
            let first = host.wrapping_add(attempt);
            let mut session = Session::connect_from(&self.settings, application, first)?;
            let found = inspect(&mut session)?;
            match self.newest.admit(&found) {
                Ok(()) => return Ok((session, found)),
                Err(fault) if attempt == last => return Err(fault),
                // Another host may be the one that has taken its place.
                Err(_) => attempt += 1,
            }
        }
    }

    /// Tries something again while the database cannot be reached, for a bounded time.
    pub(crate) fn outlast<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let deadline = Instant::now() + self.settings.outage_max;
        loop {
            match attempt() {
                Err(fault) if fault.is_lost() && Instant::now() < deadline => {
                    tracing::debug!(?fault, "the database is tried again");
                    thread::sleep(OUTAGE_PAUSE);
                }
                done => return done,
            }
        }
    }

    /// Runs one statement on a connection that reads, in a transaction of its own with a time limit; on another
    /// connection if the first is lost.
    pub(crate) fn query(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
        limit: Duration,
    ) -> Result<Vec<Row>, Fault> {
        let types: Vec<_> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
        // Through a pooler nothing but the transaction keeps a setting.
        let begin = format!(
            "BEGIN READ ONLY; SET LOCAL statement_timeout = {}",
            limit.as_millis()
        );
        self.with_reader(|session| {
            session.run(async |wire| {
                let ready = wire.ready(sql, &types).await?;
                let (started, rows, ended) = join3(
                    wire.batch(&begin),
                    wire.query(&ready, parameters),
                    wire.batch("COMMIT"),
                )
                .await;
                started?;
                let rows = rows?;
                ended?;
                Ok(rows)
            })
        })
    }

    /// Runs a read on one of the connections; again on another one if the connection is lost.
    pub(crate) fn with_reader<T>(
        &self,
        mut read: impl FnMut(&mut Session) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut attempt = 1;
        loop {
            let mut slot = self.take()?;
            let done = slot.session().and_then(&mut read);
            match done {
                Err(fault) if fault.is_lost() && attempt < ATTEMPTS => slot.discard(),
                done => return done,
            }
            attempt += 1;
        }
    }

    /// Takes a connection, or the right to make one.
    fn take(&self) -> Result<Slot<'_>, Fault> {
        let deadline = Instant::now() + TURN_MAX;
        let mut state = self.lock();
        loop {
            if let Some((session, server)) = state.idle.pop() {
                if server != self.server() {
                    // The server may still answer, with what was there before another one took its place.
                    state.open -= 1;
                    continue;
                }
                return Ok(Slot {
                    database: self,
                    session: Some(session),
                    server,
                });
            }
            if state.open < self.settings.readers {
                state.open += 1;
                return Ok(Slot {
                    database: self,
                    session: None,
                    server: 0,
                });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (readers, seconds) = (self.settings.readers, TURN_MAX.as_secs());
                return Err(Fault::Lost(format!(
                    "all {readers} connections that read were in use for {seconds} s: raise store.readers"
                )));
            }
            let woken = self.returned.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A connection in use, given back when this is dropped.
struct Slot<'a> {
    database: &'a Database,
    session: Option<Session>,
    /// Number of the server when it was connected.
    server: u64,
}

impl Slot<'_> {
    /// Returns the connection, made if there is none or it has ended.
    fn session(&mut self) -> Result<&mut Session, Fault> {
        if !self.session.as_mut().is_some_and(Session::is_alive) {
            self.session = None;
            self.server = self.database.server();
            self.session = Some(self.database.connect_unchecked("ganger/reader", 0)?);
        }
        Ok(self.session.as_mut().expect("it was just made"))
    }

    fn discard(mut self) {
        self.session = None;
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut state = self.database.lock();
        match self
            .session
            .take()
            .map(|mut session| (session.is_alive(), session))
        {
            Some((true, session)) => state.idle.push((session, self.server)),
            _ => state.open -= 1,
        }
        drop(state);
        self.database.returned.notify_one();
    }
}
