//! Failures inside the store, before the operation that they concern is known.

use std::error::Error as _;

use ganger_store::rows::RowError;
use ganger_store::{CommitError, StoreError};
use ganger_types::Epoch;
use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

/// A failure inside the store.
#[derive(Debug)]
pub enum Fault {
    /// The server refused a statement. Its transaction is not applied.
    Refused {
        /// Code of the error.
        code: SqlState,
        /// Message of the server, with its details.
        message: String,
    },
    /// The connection ended, or did not answer in time. What was sent may be applied.
    Lost(String),
    /// The database has lost rows that were written: it crashed, or a standby took its place. The log still has them,
    /// so the shard is taken back and its rows are written again.
    Rewound(String),
    /// Another owner has taken the shard over.
    Fenced {
        /// Epoch of the owner; `None` if it could not be read.
        theirs: Option<Epoch>,
    },
    /// A row that is damaged or missing; the text names the row and what is affected.
    Damaged(String),
    /// An error that already names its operation and store.
    Store(StoreError),
}

impl From<RowError> for Fault {
    fn from(error: RowError) -> Self {
        Self::Damaged(error.0)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let Some(db) = error.as_db_error() else {
            return Self::of_client(&error);
        };
        let mut message = db.message().to_owned();
        for more in [db.detail(), db.hint()].into_iter().flatten() {
            message.push_str("; ");
            message.push_str(more);
        }
        // A connection that is refused for its user, password or database is refused the next time too.
        let is_refused_login = ["28", "3D"].contains(&&db.code().code()[..2]);
        if db.parsed_severity() == Some(Severity::Error) || is_refused_login {
            return Self::Refused {
                code: db.code().clone(),
                message,
            };
        }
        // After FATAL and PANIC the session is gone, and what it was doing may be done or not.
        Self::Lost(format!("{}: {message}", db.severity()))
    }
}

impl Fault {
    fn of_client(error: &Error) -> Self {
        match error.source() {
            Some(source) => Self::Lost(format!("{error}: {source}")),
            None => Self::Lost(error.to_string()),
        }
    }

    /// Returns the fault for one damaged row.
    pub fn row(table: &str, key: impl std::fmt::Display, what: impl std::fmt::Display) -> Self {
        RowError::row(table, key, what).into()
    }

    /// Returns the fault of a statement that was refused with this code of SQL, such as `23505`.
    pub fn refused(code: &str, message: &str) -> Self {
        Self::Refused {
            code: SqlState::from_code(code),
            message: message.to_owned(),
        }
    }

    /// Whether a statement has waited too long for a lock.
    pub fn is_lock_timeout(&self) -> bool {
        self.is(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Whether the server has this reason to refuse.
    pub(crate) fn is(&self, wanted: &SqlState) -> bool {
        matches!(self, Self::Refused { code, .. } if code == wanted)
    }

    /// Whether the same may succeed on another connection.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_)) || self.is(&SqlState::READ_ONLY_SQL_TRANSACTION)
    }

    /// Whether the disk of the database is full.
    pub(crate) fn is_full(&self) -> bool {
        self.is(&SqlState::DISK_FULL)
    }

    /// Converts the fault into the error of an operation on the store that `label` names.
    pub(crate) fn at(self, label: &str, doing: &'static str) -> StoreError {
        let path = label.to_owned();
        match self {
            Self::Store(error) => error,
            Self::Damaged(what) => StoreError::Damaged { path, what },
            Self::Refused { code, message } if code == SqlState::DISK_FULL => StoreError::Full {
                path,
                doing,
                reason: message,
            },
            Self::Refused { code, message } => StoreError::Io {
                path,
                doing,
                reason: format!("{message} ({})", code.code()),
            },
            Self::Lost(reason) | Self::Rewound(reason) => StoreError::Unreachable { path, reason },
            Self::Fenced { .. } => StoreError::Io {
                path,
                doing,
                reason: "another process owns the shard now".to_owned(),
            },
        }
    }

    /// Converts the fault of a commit in `ours` into its result.
    pub(crate) fn into_commit_error(self, ours: Epoch) -> CommitError {
        let is_full = self.is_full();
        match self {
            // The sequence is there already, by a statement that was believed to have failed.
            Self::Refused { code, message } if code == SqlState::UNIQUE_VIOLATION => {
                CommitError::Unknown(message)
            }
            Self::Refused { message, .. } | Self::Damaged(message) => CommitError::NotApplied {
                reason: message,
                is_full,
            },
            Self::Lost(reason) | Self::Rewound(reason) => CommitError::Unknown(reason),
            Self::Store(error) => CommitError::NotApplied {
                reason: error.to_string(),
                is_full: matches!(error, StoreError::Full { .. }),
            },
            Self::Fenced { theirs } => CommitError::Fenced {
                ours,
                theirs: theirs.unwrap_or_default(),
            },
        }
    }
}
