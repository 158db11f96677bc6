//! Inserts batches of tasks: repeats transactions, and determines the outcome of each task.

use std::time::Duration;

use rustls::RootCertStore;
use tokio::time::timeout;

use crate::postgres::copy::CopyOptions;
use crate::postgres::session::{Connector, Session};
use crate::postgres::session_error::{SessionError, Stage};
use crate::postgres::tables::SchemaCache;
use crate::postgres::task_rows::TaskRows;
use crate::postgres::{
    InsertError, InsertSummary, Settings, TaskInsert, insert_batch, insert_single,
};

/// Longest attempt, as in QuantumLeap.
const ATTEMPT_MAX: Duration = Duration::from_secs(180);
/// Longest wait for the reply to a ping.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Number of times a transaction is repeated within an attempt because of conflicts.
const CONFLICTS_MAX: u32 = 10;
/// Number of times a broken connection is reopened within an attempt.
const RECONNECTS_MAX: u32 = 1;

/// Inserts tasks over one database session, which is opened when needed and again when it broke.
pub struct Inserter {
    connector: Connector,
    session: Option<Session>,
    options: CopyOptions,
    attempt_max: Duration,
}

impl Inserter {
    /// Creates an inserter without connecting.
    pub fn new(settings: Settings) -> Self {
        Self::with_optional_roots(settings, None)
    }

    /// Like [`Self::new`], but verifies the server's certificate with `roots` instead of the system's authorities.
    pub fn with_roots(settings: Settings, roots: RootCertStore) -> Self {
        Self::with_optional_roots(settings, Some(roots))
    }

    fn with_optional_roots(settings: Settings, roots: Option<RootCertStore>) -> Self {
        Self {
            connector: Connector::new(settings.database, roots),
            session: None,
            options: CopyOptions {
                keep_raw: settings.keep_raw,
                bytes_max: settings.insert_bytes_max,
            },
            attempt_max: ATTEMPT_MAX,
        }
    }

    /// Sets the longest attempt; 180 s by default.
    #[must_use]
    pub fn with_attempt_timeout(self, attempt_max: Duration) -> Self {
        Self {
            attempt_max,
            ..self
        }
    }

    /// Inserts tasks, in one transaction if possible, and returns the outcome of each, in order. If the caller drops the
    /// future, the outcomes are unknown, and the tasks must be repeated with `is_repeat`.
    pub async fn insert(
        &mut self,
        inserts: &[TaskInsert],
    ) -> Vec<Result<InsertSummary, InsertError>> {
        let tasks: Vec<_> = inserts.iter().map(TaskRows::of).collect();
        let mut outcomes: Vec<_> = tasks
            .iter()
            .map(|task| match task {
                Ok(task) => Ok(task.summary()),
                Err(error) => Err(error.clone()),
            })
            .collect();
        let has_rows = |task: &&TaskRows<'_>| task.summary().rows > 0;
        let ready: Vec<&TaskRows<'_>> = tasks.iter().flatten().filter(has_rows).collect();

        let failures = self.insert_ready(&ready).await;

        let mut failures = failures.into_iter();
        for (task, outcome) in tasks.iter().zip(&mut outcomes) {
            if task.as_ref().is_ok_and(|task| has_rows(&task))
                && let Some(Err(error)) = failures.next()
            {
                *outcome = Err(error);
            }
        }
        outcomes
    }

    /// Whether the database responds within 10 s.
    pub async fn ping(&mut self) -> bool {
        let answered = timeout(ANSWER_MAX, async {
            // An idle session that was cut does not mean that the database is down.
            self.ping_once().await.is_ok() || self.ping_once().await.is_ok()
        });
        answered.await.unwrap_or(false)
    }

    async fn ping_once(&mut self) -> Result<(), SessionError> {
        let session = self.take_session().await?;
        session.execute(Stage::Rows, "select 1").await?;
        self.session = Some(session);
        Ok(())
    }

    /// Inserts tasks that have rows: together, or one by one if that fails.
    async fn insert_ready(&mut self, tasks: &[&TaskRows<'_>]) -> Vec<Result<(), InsertError>> {
        let mut in_doubt = false;
        let error = match tasks {
            [] => return Vec::new(),
            tasks => match self.attempt(tasks, Mode::Batch, &mut in_doubt).await {
                Ok(()) => return tasks.iter().map(|_| Ok(())).collect(),
                Err(error) => error,
            },
        };
        let is_unreachable = matches!(error, SessionError::Unreachable(_));
        if is_unreachable || (tasks.len() == 1 && error.permanent_error().is_none()) {
            let error = InsertError::from(error);
            return tasks.iter().map(|_| Err(error.clone())).collect();
        }
        self.insert_one_by_one(tasks, in_doubt).await
    }

    async fn insert_one_by_one(
        &mut self,
        tasks: &[&TaskRows<'_>],
        in_doubt: bool,
    ) -> Vec<Result<(), InsertError>> {
        let mut outcomes = Vec::with_capacity(tasks.len());
        let mut unreachable: Option<InsertError> = None;
        for task in tasks {
            // Once no connection can be opened, the other tasks need not wait for that again.
            if let Some(error) = &unreachable {
                outcomes.push(Err(error.clone()));
                continue;
            }
            let mut in_doubt = in_doubt;
            let attempted = self.attempt(&[task], Mode::Single, &mut in_doubt).await;
            let outcome = attempted.map_err(|error| {
                let is_unreachable = matches!(error, SessionError::Unreachable(_));
                let error = InsertError::from(error);
                unreachable = is_unreachable.then(|| error.clone());
                error
            });
            outcomes.push(outcome);
        }
        outcomes
    }

    /// Makes an attempt with a time limit.
    async fn attempt(
        &mut self,
        tasks: &[&TaskRows<'_>],
        mode: Mode,
        in_doubt: &mut bool,
    ) -> Result<(), SessionError> {
        let limit = self.attempt_max;
        // On a timeout the session is dropped with the future, which cancels its statement.
        match timeout(limit, self.attempt_with_retries(tasks, mode, in_doubt)).await {
            Ok(done) => done,
            Err(_) => {
                *in_doubt = true;
                Err(SessionError::Timeout(limit))
            }
        }
    }

    /// Runs transactions until one succeeds, or fails with an error that is not worth repeating at once.
    async fn attempt_with_retries(
        &mut self,
        tasks: &[&TaskRows<'_>],
        mode: Mode,
        in_doubt: &mut bool,
    ) -> Result<(), SessionError> {
        let (mut conflicts, mut reconnects) = (0, 0);
        loop {
            let mut session = self.take_session().await?;
            session.is_busy = true;
            let done = match mode {
                Mode::Batch => {
                    insert_batch::insert(&mut session, tasks, self.options, *in_doubt).await
                }
                Mode::Single => {
                    insert_single::insert(&mut session, tasks[0], self.options, *in_doubt).await
                }
            };
            session.is_busy = false;
            let Err(error) = done else {
                self.session = Some(session);
                return Ok(());
            };
            *in_doubt |= matches!(error, SessionError::InDoubt(_));
            if error.is_connection_lost() {
                reconnects += 1;
            } else {
                if error.is_conflict() {
                    conflicts += 1;
                    session.schema_cache = SchemaCache::default();
                }
                self.session = Some(session);
            }
            let is_repeated = (error.is_connection_lost() && reconnects <= RECONNECTS_MAX)
                || (error.is_conflict() && conflicts <= CONFLICTS_MAX);
            if !is_repeated {
                return Err(error);
            }
        }
    }

    /// Takes the session, or opens a new one. The caller puts it back if it is still usable.
    async fn take_session(&mut self) -> Result<Session, SessionError> {
        match self.session.take() {
            Some(session) if session.is_open() => Ok(session),
            _ => self.connector.connect().await,
        }
    }
}

/// The way in which tasks are inserted.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// All tasks in one transaction.
    Batch,
    /// One task; entities that do not fit are saved as JSON.
    Single,
}
