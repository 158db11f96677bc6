//! Failures inside the store, before the operation and the file that they concern are known.

use std::path::Path;

use ganger_store::rows::RowError;
use ganger_store::{CommitError, StoreError};
use rusqlite::ErrorCode;

/// A failure inside the store.
#[derive(Debug)]
pub(crate) enum Fault {
    /// An error that SQLite reported.
    Sql(rusqlite::Error),
    /// A row that is damaged or missing; the text names the row and what is affected.
    Damaged(String),
    /// Changes that contradict what is stored; the text says how.
    Inconsistent(String),
    /// An error that already names its operation and file.
    Store(StoreError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<RowError> for Fault {
    fn from(error: RowError) -> Self {
        Self::Damaged(error.0)
    }
}

impl Fault {
    /// Returns the fault for one damaged row.
    pub(crate) fn row(
        table: &str,
        key: impl std::fmt::Display,
        what: impl std::fmt::Display,
    ) -> Self {
        RowError::row(table, key, what).into()
    }

    /// Whether the disk is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Sql(error) if is_full(error))
    }

    /// Converts the fault into the error of an operation on the store at `path`.
    pub(crate) fn at(self, path: &Path, doing: &'static str) -> StoreError {
        let path = path.display().to_string();
        match self {
            Self::Store(error) => error,
            Self::Damaged(what) | Self::Inconsistent(what) => StoreError::Damaged { path, what },
            Self::Sql(error) if is_damage(&error) => StoreError::Damaged {
                path,
                what: format!("SQLite says: {error}"),
            },
            Self::Sql(error) if is_full(&error) => StoreError::Full {
                path,
                doing,
                reason: error.to_string(),
            },
            Self::Sql(error) => StoreError::Io {
                path,
                doing,
                reason: describe(&error),
            },
        }
    }

    /// Converts the fault into the result of a commit. After an I/O error it is unknown what reached the disk; after
    /// any other fault the transaction was rolled back.
    pub(crate) fn into_commit_error(self) -> CommitError {
        match self {
            Self::Damaged(reason) | Self::Inconsistent(reason) => CommitError::NotApplied {
                reason,
                is_full: false,
            },
            Self::Store(error) => CommitError::Unknown(error.to_string()),
            Self::Sql(error) if is_io(&error) => CommitError::Unknown(error.to_string()),
            Self::Sql(error) if is_full(&error) => CommitError::NotApplied {
                reason: format!("the disk is full: {error}"),
                is_full: true,
            },
            Self::Sql(error) => CommitError::NotApplied {
                reason: error.to_string(),
                is_full: false,
            },
        }
    }
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Returns the text of an error. SQLite does not say why a file can only be read: it has tried to open the file for
/// writing, and forgotten what the system answered.
fn describe(error: &rusqlite::Error) -> String {
    if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) {
        return format!(
            "{error}, after an I/O error or for lack of permission: check the device, and that this user may write the files of the store"
        );
    }
    error.to_string()
}

pub(crate) fn is_io(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::ReadOnly)
    )
}

fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    ) || matches!(
        error,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
    )
}

/// Returns the error for a file operation that the operating system refused.
pub(crate) fn io(path: &Path, doing: &'static str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Io {
        path: path.display().to_string(),
        doing,
        reason: error.to_string(),
    }
}
