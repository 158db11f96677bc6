//! What can go wrong in an attempt, what follows of it for the task, and the words in which QuantumLeap shows it.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use crate::environment::Database;
use crate::python;
use serde_json::{Map, Value};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, ErrorPosition};

use crate::postgres::InsertError;

/// Errors after which a later attempt may go well, by SQLSTATE; besides them the classes 08 (connection) and 53 (no
/// resources).
const RETRYABLE: [&str; 18] = [
    "28000", // invalid authorization: what a closed database may say
    "55000", // the database accepts no connections
    "57P01", // the server is shutting down
    "57P02", // ... has crashed
    "57P03", // ... is starting
    "40001", // serialization failure
    "40P01", // deadlock
    "55P03", // a lock was waited for too long
    "57014", // a statement ran too long
    "25006", // read-only: a standby in the middle of a switch-over
    "42P01", // no such table,
    "3F000", // ... schema,
    "42703", // ... column: somebody is making or dropping it just now
    "42P06", // somebody has just made the same schema,
    "42P07", // ... table,
    "23505", // ... entry in the catalogue or in the metadata
    "25P03", // the transaction was idle for too long
    "57P05", // the session was
];

/// Those that another session causes by making the same thing at the same time: repeated at once.
const CONFLICTS_IN_SCHEMA: [&str; 9] = [
    "3F000", "40001", "40P01", "42703", "42710", "42P01", "42P06", "42P07", "23505",
];

/// Those of inserting that go away when what is missing is made, or when the transaction is repeated.
const CONFLICTS_IN_ROWS: [&str; 5] = ["3F000", "40001", "40P01", "42703", "42P01"];

/// What a statement was for: the same error means one thing while a table is made, another while rows go into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A schema, table, column or index is made.
    Schema,
    /// Rows are looked up or inserted.
    Rows,
}

/// Error of a session with the database.
#[derive(Debug)]
pub(crate) enum SessionError {
    /// There is no session to be had.
    Unreachable(InsertError),
    /// The connection to the database broke.
    ConnectionLost(String),
    /// The connection broke before the answer to a commit: whether the rows are there is not known.
    InDoubt(String),
    /// The database refused a statement; the session goes on.
    Rejected(Stage, Box<DbError>),
    /// The attempt took too long.
    Timeout(Duration),
}

impl SessionError {
    /// Why there is no session.
    pub(crate) fn unreachable(error: &Error, database: &Database) -> Self {
        let error = match error.as_db_error() {
            Some(refusal) => InsertError {
                message: programming_error(refusal),
                is_retryable: is_retryable(refusal.code().code(), Stage::Rows),
            },
            None => no_connection(&with_causes(error), database),
        };
        Self::Unreachable(error)
    }

    /// There is no session, for a reason outside the database.
    pub(crate) fn no_session(reason: &str, database: &Database) -> Self {
        Self::Unreachable(no_connection(reason, database))
    }

    /// What went wrong with a statement.
    pub(crate) fn of_statement(stage: Stage, error: &Error) -> Self {
        match error.as_db_error() {
            Some(refusal) if ends_session(refusal) => {
                Self::ConnectionLost(programming_error(refusal))
            }
            Some(refusal) => Self::Rejected(stage, Box::new(refusal.clone())),
            None => Self::ConnectionLost(interface_error(&format!(
                "network error: {}",
                with_causes(error)
            ))),
        }
    }

    /// What went wrong with a commit.
    pub(crate) fn of_commit(stage: Stage, error: &Error) -> Self {
        match Self::of_statement(stage, error) {
            Self::ConnectionLost(message) => Self::InDoubt(message),
            error => error,
        }
    }

    /// Whether the session is of no more use.
    pub(crate) fn is_connection_lost(&self) -> bool {
        matches!(self, Self::ConnectionLost(_) | Self::InDoubt(_))
    }

    /// Whether it is worth to forget what is known of the database, and to repeat the transaction at once.
    pub(crate) fn is_conflict(&self) -> bool {
        let Self::Rejected(stage, error) = self else {
            return false;
        };
        let code = error.code().code();
        match stage {
            Stage::Schema => {
                // PostgreSQL has no code of its own for two sessions at the same row of the catalogue.
                CONFLICTS_IN_SCHEMA.contains(&code)
                    || (code == "XX000" && error.message().starts_with("tuple concurrently"))
            }
            Stage::Rows => CONFLICTS_IN_ROWS.contains(&code),
        }
    }

    /// The error to save beside the entities that it concerns: it will come up again in every attempt, but says nothing
    /// against other rows.
    pub(crate) fn permanent_error(&self) -> Option<String> {
        match self {
            Self::Rejected(stage, error) if !is_retryable(error.code().code(), *stage) => {
                Some(programming_error(error))
            }
            _ => None,
        }
    }
}

impl From<SessionError> for InsertError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Unreachable(error) => error,
            SessionError::ConnectionLost(message) | SessionError::InDoubt(message) => Self {
                message,
                is_retryable: true,
            },
            SessionError::Rejected(stage, error) => Self {
                message: programming_error(&error),
                is_retryable: is_retryable(error.code().code(), stage),
            },
            SessionError::Timeout(limit) => {
                let seconds = limit.as_secs();
                let text = format!("Task exceeded maximum timeout value ({seconds} seconds)");
                Self {
                    message: exception("JobTimeoutException", &text),
                    is_retryable: false,
                }
            }
        }
    }
}

/// Whether a later attempt may go well.
fn is_retryable(code: &str, stage: Stage) -> bool {
    // Our tables have no unique constraint. If somebody gave them one, a row that violates it always will.
    if code == "23505" && stage == Stage::Rows {
        return false;
    }
    code.starts_with("08") || code.starts_with("53") || RETRYABLE.contains(&code)
}

/// Whether the server closes the session after this error.
fn ends_session(error: &DbError) -> bool {
    use tokio_postgres::error::Severity;
    match error.parsed_severity() {
        Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
        None => matches!(error.severity(), "FATAL" | "PANIC"),
    }
}

fn no_connection(reason: &str, database: &Database) -> InsertError {
    let Database { host, port, .. } = database;
    tracing::debug!(%host, port, reason, "no session with the database");
    InsertError {
        message: interface_error(&format!(
            "Can't create a connection to host {host} and port {port} (timeout is None and source_address is None)."
        )),
        is_retryable: true,
    }
}

/// An error of the database as the Python client shows it: its fields by their letters in the wire protocol.
fn programming_error(error: &DbError) -> String {
    let mut fields = Map::new();
    let mut add = |letter: &str, value: Option<String>| {
        if let Some(value) = value {
            fields.insert(letter.to_owned(), Value::String(value));
        }
    };
    let owned = |text: Option<&str>| text.map(str::to_owned);
    add("S", Some(error.severity().to_owned()));
    add("V", Some(severity(error)));
    add("C", Some(error.code().code().to_owned()));
    add("M", Some(error.message().to_owned()));
    add("D", owned(error.detail()));
    add("H", owned(error.hint()));
    match error.position() {
        Some(ErrorPosition::Original(at)) => add("P", Some(at.to_string())),
        Some(ErrorPosition::Internal { position, query }) => {
            add("p", Some(position.to_string()));
            add("q", Some(query.clone()));
        }
        None => {}
    }
    add("W", owned(error.where_()));
    add("s", owned(error.schema()));
    add("t", owned(error.table()));
    add("c", owned(error.column()));
    add("d", owned(error.datatype()));
    add("n", owned(error.constraint()));
    add("F", owned(error.file()));
    add("L", error.line().map(|line| line.to_string()));
    add("R", owned(error.routine()));
    format!("ProgrammingError({})", python::repr(&Value::Object(fields)))
}

/// The severity in English, whatever language the server speaks.
fn severity(error: &DbError) -> String {
    match error.parsed_severity() {
        Some(severity) => severity.to_string(),
        None => error.severity().to_owned(),
    }
}

fn interface_error(text: &str) -> String {
    exception("InterfaceError", text)
}

/// An exception as Python's `repr` shows it.
fn exception(class: &str, text: &str) -> String {
    format!("{class}({})", python::repr(&Value::String(text.to_owned())))
}

/// The error and what caused it.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database() -> Database {
        Database {
            host: "db.example".to_owned(),
            port: 5433,
            name: "things".to_owned(),
            user: "ann".to_owned(),
            password: "geheim".to_owned(),
            ssl: false,
        }
    }

    #[test]
    fn no_connection_reads_as_the_python_client_says_it() {
        let error = InsertError::from(SessionError::no_session("refused", &database()));
        assert_eq!(
            error.message,
            "InterfaceError(\"Can't create a connection to host db.example and port 5433 (timeout is None and \
             source_address is None).\")"
        );
        assert!(error.is_retryable);
    }

    #[test]
    fn an_attempt_that_takes_too_long_is_incurable() {
        let error = InsertError::from(SessionError::Timeout(Duration::from_secs(180)));
        assert_eq!(
            error.message,
            "JobTimeoutException('Task exceeded maximum timeout value (180 seconds)')"
        );
        assert!(!error.is_retryable);
    }

    #[test]
    fn curable_are_outages_and_quarrels_but_not_bad_values() {
        let curable = [
            "08006", "08P01", "28000", "55000", "57P01", "57P02", "57P03", "53000", "53100",
            "53200", "53300", "53400", "40001", "40P01", "55P03", "57014", "25006", "42P01",
            "3F000", "42703", "42P06", "42P07",
        ];
        for code in curable {
            assert!(is_retryable(code, Stage::Rows), "{code}");
        }
        for code in [
            "22P02", "22003", "22007", "22008", "22P05", "28P01", "3D000", "42501", "23505",
            "XX000",
        ] {
            assert!(!is_retryable(code, Stage::Rows), "{code}");
        }
        assert!(is_retryable("23505", Stage::Schema));
    }
}
