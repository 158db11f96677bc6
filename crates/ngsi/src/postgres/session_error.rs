//! Errors of database sessions: whether they are retryable, and their texts as QuantumLeap shows them.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use crate::environment::Database;
use crate::python;
use serde_json::{Map, Value};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, ErrorPosition};

use crate::postgres::InsertError;

/// SQLSTATEs after which a later attempt may succeed, besides the classes 08 (connection) and 53 (resources).
const RETRYABLE: [&str; 18] = [
    "28000", // invalid authorization, which a closed database may report
    "55000", // the database accepts no connections
    "57P01", // the server is shutting down
    "57P02", // the server has crashed
    "57P03", // the server is starting
    "40001", // serialization failure
    "40P01", // deadlock
    "55P03", // lock timeout
    "57014", // statement timeout
    "25006", // read-only transaction, as on a standby during a switch-over
    "42P01", // no such table; another session may be creating or dropping it
    "3F000", // no such schema; likewise
    "42703", // no such column; likewise
    "42P06", // another session has just created the same schema
    "42P07", // another session has just created the same table
    "23505", // another session has just added the same row to the catalogue or metadata
    "25P03", // idle-in-transaction timeout
    "57P05", // idle-session timeout
];

/// SQLSTATEs that another session causes by creating the same object at the same time. The creation is repeated at once.
const CONFLICTS_IN_SCHEMA: [&str; 9] = [
    "3F000", "40001", "40P01", "42703", "42710", "42P01", "42P06", "42P07", "23505",
];

/// SQLSTATEs of inserts that succeed once the missing object is created, or when the transaction is repeated.
const CONFLICTS_IN_ROWS: [&str; 5] = ["3F000", "40001", "40P01", "42703", "42P01"];

/// The purpose of a statement. The meaning of an error depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Creates a schema, table, column or index.
    Schema,
    /// Looks rows up or inserts them.
    Rows,
}

/// An error of a database session.
#[derive(Debug)]
pub(crate) enum SessionError {
    /// No session can be opened.
    Unreachable(InsertError),
    /// The connection to the database broke.
    ConnectionLost(String),
    /// The connection broke before the reply to a commit, so it is unknown whether the rows are stored.
    InDoubt(String),
    /// The database rejected a statement; the session stays usable.
    Rejected(Stage, Box<DbError>),
    /// The attempt exceeded this time.
    Timeout(Duration),
}

impl SessionError {
    /// Converts the error of opening a session.
    pub(crate) fn unreachable(error: &Error, database: &Database) -> Self {
        let error = match error.as_db_error() {
            Some(db_error) => InsertError {
                message: programming_error(db_error),
                is_retryable: is_retryable(db_error.code().code(), Stage::Rows),
            },
            None => no_connection(&with_causes(error), database),
        };
        Self::Unreachable(error)
    }

    /// Creates the error of a session that could not be opened for another reason than an error of the driver.
    pub(crate) fn no_session(reason: &str, database: &Database) -> Self {
        Self::Unreachable(no_connection(reason, database))
    }

    /// Converts the error of a statement.
    pub(crate) fn of_statement(stage: Stage, error: &Error) -> Self {
        match error.as_db_error() {
            Some(db_error) if ends_session(db_error) => {
                Self::ConnectionLost(programming_error(db_error))
            }
            Some(db_error) => Self::Rejected(stage, Box::new(db_error.clone())),
            None => Self::ConnectionLost(interface_error(&format!(
                "network error: {}",
                with_causes(error)
            ))),
        }
    }

    /// Converts the error of a commit.
    pub(crate) fn of_commit(stage: Stage, error: &Error) -> Self {
        match Self::of_statement(stage, error) {
            Self::ConnectionLost(message) => Self::InDoubt(message),
            error => error,
        }
    }

    /// Whether the session can no longer be used.
    pub(crate) fn is_connection_lost(&self) -> bool {
        matches!(self, Self::ConnectionLost(_) | Self::InDoubt(_))
    }

    /// Whether to clear the schema cache and repeat the transaction at once.
    pub(crate) fn is_conflict(&self) -> bool {
        let Self::Rejected(stage, error) = self else {
            return false;
        };
        let code = error.code().code();
        match stage {
            Stage::Schema => {
                // PostgreSQL has no specific code for concurrent updates of the same catalogue row.
                CONFLICTS_IN_SCHEMA.contains(&code)
                    || (code == "XX000" && error.message().starts_with("tuple concurrently"))
            }
            Stage::Rows => CONFLICTS_IN_ROWS.contains(&code),
        }
    }

    /// Returns the text of an error that would occur in every attempt, to save it with the entities; `None` for other
    /// errors. It does not prevent other rows from being inserted.
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

/// Whether a later attempt may succeed.
fn is_retryable(code: &str, stage: Stage) -> bool {
    // Our tables have no unique constraint. A row that violates one added by an operator will always violate it.
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

/// Formats a database error like the Python client: its fields by their letters in the wire protocol.
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

/// Returns the severity in English, whatever the language of the server.
fn severity(error: &DbError) -> String {
    match error.parsed_severity() {
        Some(severity) => severity.to_string(),
        None => error.severity().to_owned(),
    }
}

fn interface_error(text: &str) -> String {
    exception("InterfaceError", text)
}

/// Formats an exception like Python's `repr`.
fn exception(class: &str, text: &str) -> String {
    format!("{class}({})", python::repr(&Value::String(text.to_owned())))
}

/// Formats an error with its causes.
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
    fn a_missing_connection_reads_as_in_the_python_client() {
        let error = InsertError::from(SessionError::no_session("refused", &database()));
        assert_eq!(
            error.message,
            "InterfaceError(\"Can't create a connection to host db.example and port 5433 (timeout is None and \
             source_address is None).\")"
        );
        assert!(error.is_retryable);
    }

    #[test]
    fn an_attempt_that_takes_too_long_is_not_retryable() {
        let error = InsertError::from(SessionError::Timeout(Duration::from_secs(180)));
        assert_eq!(
            error.message,
            "JobTimeoutException('Task exceeded maximum timeout value (180 seconds)')"
        );
        assert!(!error.is_retryable);
    }

    #[test]
    fn outages_and_conflicts_are_retryable_but_bad_values_are_not() {
        let retryable = [
            "08006", "08P01", "28000", "55000", "57P01", "57P02", "57P03", "53000", "53100",
            "53200", "53300", "53400", "40001", "40P01", "55P03", "57014", "25006", "42P01",
            "3F000", "42703", "42P06", "42P07",
        ];
        for code in retryable {
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
