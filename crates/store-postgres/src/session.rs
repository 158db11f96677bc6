//! One connection with the database, driven by the thread that uses it.
//!
//! The server sends a warning before the end of the answer that it belongs to, and the connection is read in order:
//! so a warning is known here before its caller sees the answer. A commit whose wait for the standby was cancelled
//! answers success and differs from others by that warning alone.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::poll_fn;
use futures::{SinkExt as _, StreamExt as _};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row, Statement};

use crate::connect::{Driver, open};
use crate::fault::Fault;
use crate::settings::Settings;
use crate::standby_wait::StandbyWait;

/// Prepared statements of a connection; when there are more, all are dropped.
const STATEMENTS_MAX: usize = 1_000;

/// A value of a statement's parameter, with its type.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// One connection with the database.
pub(crate) struct Session {
    wire: Wire,
    driver: Driver,
    /// First warning since the last look.
    warning: Option<String>,
    is_open: bool,
    patience: Duration,
    /// Finds out why a statement waits; `None` for sessions that commit nothing.
    watch: Option<StandbyWait>,
    /// Runs this connection only, on the thread that uses it. `None` while it is dropped.
    runtime: Option<Runtime>,
}

/// The statements of a connection.
pub(crate) struct Wire {
    client: Client,
    prepared: bool,
    statements: RefCell<HashMap<String, Statement>>,
}

/// A statement, ready to be sent in one flight with others.
#[derive(Clone)]
pub(crate) enum Ready {
    /// The connection has it under a name.
    Named(Statement),
    /// It is sent with its text each time.
    Unnamed(String),
}

impl Session {
    /// Connects to the first host that accepts writes.
    ///
    /// # Errors
    /// If none does.
    pub(crate) fn connect(settings: &Settings, application_name: &str) -> Result<Self, Fault> {
        Self::connect_from(settings, application_name, 0)
    }

    /// [`Session::connect`], with another host as the first; see [`open`].
    ///
    /// # Errors
    /// If no host accepts writes.
    pub(crate) fn connect_from(
        settings: &Settings,
        application_name: &str,
        first: usize,
    ) -> Result<Self, Fault> {
        let built = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = built.map_err(|error| Fault::Lost(error.to_string()))?;
        let opened = runtime.block_on(open(settings, application_name, first));
        let (client, driver) = match opened {
            Ok(opened) => opened,
            Err(fault) => {
                runtime.shutdown_background();
                return Err(fault);
            }
        };
        Ok(Self {
            wire: Wire {
                client,
                prepared: settings.prepared,
                statements: RefCell::default(),
            },
            driver,
            warning: None,
            is_open: true,
            patience: settings.patience,
            watch: None,
            runtime: Some(runtime),
        })
    }

    /// The same session, whose statements may have to wait for a standby.
    pub(crate) fn watched(mut self, watch: StandbyWait) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Notes that the last statement was a commit and has ended well, unless the server warned that nobody has a copy.
    pub(crate) fn has_committed(&self) {
        if let (Some(watch), None) = (&self.watch, &self.warning) {
            watch.has_ended();
        }
    }

    /// Runs statements. After a lost connection, or without an answer in time, the session cannot be used any more;
    /// what it was doing is not cancelled.
    pub(crate) fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&Wire) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.run_for(self.patience, work)
    }

    /// [`Session::run`] with another time for the answer.
    pub(crate) fn run_for<T>(
        &mut self,
        patience: Duration,
        work: impl AsyncFnOnce(&Wire) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if !self.is_open {
            return Err(Fault::Lost("the connection has ended".to_owned()));
        }
        let Self {
            wire,
            driver,
            warning,
            watch,
            runtime,
            ..
        } = self;
        let runtime = runtime.as_ref().expect("only a dropped session has none");
        let driven = runtime.block_on(async {
            let mut work = pin!(work(wire));
            let driven = poll_fn(|cx| {
                let end = drive(driver, warning, cx);
                match (work.as_mut().poll(cx), end) {
                    (Poll::Ready(done), _) => Poll::Ready(done),
                    (Poll::Pending, Some(end)) => Poll::Ready(Err(end)),
                    (Poll::Pending, None) => Poll::Pending,
                }
            });
            match &*watch {
                Some(watch) => timeout(patience, watch.during(driven)).await,
                None => timeout(patience, driven).await,
            }
        });
        let done = driven.unwrap_or_else(|_| {
            let hold = watch.as_ref().and_then(|watch| watch.hold.reason());
            Err(Fault::Lost(hold.unwrap_or_else(|| {
                format!(
                    "the database did not answer in {} s",
                    patience.as_secs_f32()
                )
            })))
        });
        if done.as_ref().is_err_and(Fault::is_lost) {
            self.is_open = false;
        }
        done
    }

    /// Whether the connection has not been seen to end.
    pub(crate) fn is_alive(&mut self) -> bool {
        let Self {
            driver,
            warning,
            runtime,
            ..
        } = self;
        if !self.is_open {
            return false;
        }
        let runtime = runtime.as_ref().expect("only a dropped session has none");
        let end = runtime.block_on(async {
            // The second look comes after the system was asked for what has arrived.
            let first = poll_fn(|cx| Poll::Ready(drive(driver, warning, cx))).await;
            if first.is_some() {
                return first;
            }
            tokio::task::yield_now().await;
            poll_fn(|cx| Poll::Ready(drive(driver, warning, cx))).await
        });
        self.is_open = end.is_none();
        self.is_open
    }

    /// Returns the first warning since the last call.
    pub(crate) fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Lets the connection read and write as far as it can, in order. Returns why it has ended, if it has.
pub(crate) fn drive(
    driver: &mut Driver,
    warning: &mut Option<String>,
    cx: &mut Context<'_>,
) -> Option<Fault> {
    loop {
        match driver(cx) {
            Poll::Pending => return None,
            Poll::Ready(None) => return Some(Fault::Lost("the connection has ended".to_owned())),
            Poll::Ready(Some(Err(error))) => {
                return Some(match Fault::from(error) {
                    // Without a statement that it belongs to, it is the end of the session too.
                    Fault::Refused { message, .. } => Fault::Lost(message),
                    other => other,
                });
            }
            Poll::Ready(Some(Ok(AsyncMessage::Notice(notice)))) => note(&notice, warning),
            Poll::Ready(Some(Ok(_))) => {}
        }
    }
}

fn note(notice: &DbError, warning: &mut Option<String>) {
    if notice.parsed_severity() == Some(Severity::Warning) {
        warning.get_or_insert_with(|| notice.message().to_owned());
    } else {
        tracing::debug!(message = notice.message(), "notice of the database");
    }
}

impl Wire {
    /// Makes a statement ready, so that it can be sent in one flight with others.
    pub(crate) async fn ready(&self, sql: &str, types: &[Type]) -> Result<Ready, Fault> {
        if !self.prepared {
            return Ok(Ready::Unnamed(sql.to_owned()));
        }
        if let Some(statement) = self.statements.borrow().get(sql) {
            return Ok(Ready::Named(statement.clone()));
        }
        let statement = self.client.prepare_typed(sql, types).await?;
        let mut statements = self.statements.borrow_mut();
        if statements.len() >= STATEMENTS_MAX {
            statements.clear();
        }
        statements.insert(sql.to_owned(), statement.clone());
        drop(statements);
        Ok(Ready::Named(statement))
    }

    /// Sends a statement and returns its rows. Statements are sent in the order in which their futures are polled
    /// for the first time.
    pub(crate) async fn query(
        &self,
        statement: &Ready,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Fault> {
        Ok(match statement {
            Ready::Named(statement) => self.client.query(statement, &values(parameters)).await?,
            Ready::Unnamed(sql) => self.client.query_typed(sql, parameters).await?,
        })
    }

    /// Sends a statement and returns the number of rows that it affected.
    pub(crate) async fn execute(
        &self,
        statement: &Ready,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, Fault> {
        Ok(match statement {
            Ready::Named(statement) => self.client.execute(statement, &values(parameters)).await?,
            Ready::Unnamed(sql) => self.client.execute_typed(sql, parameters).await?,
        })
    }

    /// Makes a statement ready and returns its rows.
    pub(crate) async fn query_once(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Fault> {
        let statement = self.ready(sql, &types(parameters)).await?;
        self.query(&statement, parameters).await
    }

    /// Makes a statement ready and returns the number of rows that it affected.
    pub(crate) async fn execute_once(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, Fault> {
        let statement = self.ready(sql, &types(parameters)).await?;
        self.execute(&statement, parameters).await
    }

    /// Runs statements without parameters that give nothing back.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), Fault> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// Copies rows in the binary format into a table, within a transaction.
    pub(crate) async fn copy_in(&self, sql: &str, chunks: Vec<Bytes>) -> Result<u64, Fault> {
        // Without prepared statements its name must not outlive the transaction: it is dropped, and so closed, here.
        let statement = match self.ready(sql, &[]).await? {
            Ready::Named(statement) => statement,
            Ready::Unnamed(sql) => self.client.prepare(&sql).await?,
        };
        let sink = self.client.copy_in(&statement).await?;
        let mut sink = pin!(sink);
        for chunk in chunks {
            sink.feed(chunk).await?;
        }
        Ok(sink.finish().await?)
    }

    /// Copies rows in the binary format from a query, within a transaction; `each` gets the bytes as they come.
    pub(crate) async fn copy_out(
        &self,
        sql: &str,
        mut each: impl FnMut(Bytes) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let statement = self.client.prepare(sql).await?;
        let mut stream = pin!(self.client.copy_out(&statement).await?);
        while let Some(chunk) = stream.next().await {
            each(chunk?)?;
        }
        Ok(())
    }
}

fn types(parameters: &[Parameter<'_>]) -> Vec<Type> {
    parameters.iter().map(|(_, kind)| kind.clone()).collect()
}

fn values<'a>(parameters: &[Parameter<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    parameters.iter().map(|(value, _)| *value).collect()
}
