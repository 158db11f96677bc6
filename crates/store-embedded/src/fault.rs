//! What goes wrong below the store's face, before it is known where and for whom.

use std::path::Path;

use ganger_store::encoding::DecodeError;
use ganger_store::{CommitError, StoreError};
use rusqlite::ErrorCode;

/// A failure inside the store.
#[derive(Debug)]
pub(crate) enum Fault {
    /// An error that SQLite reported.
    Sql(rusqlite::Error),
    /// A row that is not what was written, or is not there: which, and what is affected.
    Damaged(String),
    /// Changes that make no sense for what is stored.
    Inconsistent(String),
    /// Something that is known for whom already.
    Store(StoreError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Fault {
    /// Damage of one row.
    pub(crate) fn row(
        table: &str,
        key: impl std::fmt::Display,
        what: impl std::fmt::Display,
    ) -> Self {
        Self::Damaged(format!("table {table}, row {key}: {what}"))
    }

    /// A record that its checksum vouches for, yet cannot be read.
    pub(crate) fn unreadable(
        table: &str,
        key: impl std::fmt::Display,
        error: &DecodeError,
    ) -> Self {
        Self::row(table, key, error)
    }

    /// Whether there is no space left.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Sql(error) if is_full(error))
    }

    /// As the error of an operation on the store at `path`.
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
                reason: error.to_string(),
            },
        }
    }

    /// As the end of a commit. An I/O error leaves open what reached the disk; everything else was
    /// rolled back.
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

/// The system's refusal to do something with a file.
pub(crate) fn io(path: &Path, doing: &'static str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Io {
        path: path.display().to_string(),
        doing,
        reason: error.to_string(),
    }
}
