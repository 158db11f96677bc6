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
    /// The database has lost what was written: it crashed, a standby took its place, or a backup was restored. The shard is
    /// taken back. If only rows are lost, they are written again from the log; otherwise it is closed as rewound.
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
        Self::of_server(db.parsed_severity(), db.code(), message)
    }
}

impl Fault {
    /// Returns the fault of an answer with this severity; `None` if the server has not told it, or one that is unknown.
    fn of_server(severity: Option<Severity>, code: &SqlState, message: String) -> Self {
        // A connection that is refused for its user, password or database is refused the next time too.
        let is_refused_login = ["28", "3D"].contains(&code.code().get(..2).unwrap_or_default());
        if severity == Some(Severity::Error) || is_refused_login {
            return Self::Refused {
                code: code.clone(),
                message,
            };
        }
        // After FATAL and PANIC the session is gone, and what it was doing may be done or not.
        Self::Lost(match severity {
            Some(severity) => format!("{severity}: {message}"),
            None => message,
        })
    }

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

    /// Returns the fault that the log has lost a commit that was acknowledged.
    pub(crate) fn lost_record(sequence: u64) -> Self {
        Self::Rewound(format!(
            "commit {sequence} was acknowledged, and the log of the database has lost it"
        ))
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
            // Another connection, or the same server later, may accept it.
            Self::Refused { code, message } if code == SqlState::READ_ONLY_SQL_TRANSACTION => {
                StoreError::Unreachable {
                    path,
                    reason: message,
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "53100";
    const READ_ONLY: &str = "25006";
    const SHUTDOWN: &str = "57P01";
    const DUPLICATE: &str = "23505";

    fn answer(severity: Severity, code: &str) -> Fault {
        Fault::of_server(Some(severity), &SqlState::from_code(code), "why".to_owned())
    }

    fn of_commit(fault: Fault) -> CommitError {
        fault.into_commit_error(Epoch(7))
    }

    /// Whether a commit with this fault is not applied, and if so, whether the disk is full.
    fn not_applied(fault: Fault) -> Option<bool> {
        match of_commit(fault) {
            CommitError::NotApplied { is_full, .. } => Some(is_full),
            _ => None,
        }
    }

    fn is_unknown(fault: Fault) -> bool {
        matches!(of_commit(fault), CommitError::Unknown(_))
    }

    #[test]
    fn an_error_of_a_statement_says_that_its_commit_is_not_applied() {
        for (code, is_full) in [
            (FULL, true),
            (READ_ONLY, false),
            // A statement that was cancelled, out of memory, a deadlock.
            ("57014", false),
            ("53200", false),
            ("40P01", false),
            ("XX000", false),
        ] {
            let found = not_applied(answer(Severity::Error, code));
            assert_eq!(found, Some(is_full), "{code}");
        }
    }

    /// A statement that was believed to have failed has taken the place.
    #[test]
    fn a_sequence_that_is_there_already_leaves_the_outcome_unknown() {
        assert!(is_unknown(answer(Severity::Error, DUPLICATE)));
    }

    #[test]
    fn after_the_end_of_a_session_the_outcome_is_unknown_whatever_its_code() {
        for severity in [Severity::Fatal, Severity::Panic] {
            for code in [FULL, READ_ONLY, SHUTDOWN, DUPLICATE, "XX000"] {
                let fault = answer(severity, code);
                assert!(fault.is_lost(), "{severity} {code}");
                assert!(is_unknown(fault), "{severity} {code}");
            }
        }
        let untold = Fault::of_server(None, &SqlState::from_code(FULL), "why".to_owned());
        assert!(is_unknown(untold));
        let Fault::Lost(reason) = answer(Severity::Panic, FULL) else {
            panic!("the session is gone");
        };
        assert_eq!(reason, "PANIC: why");
    }

    #[test]
    fn faults_without_an_answer_have_the_outcome_that_is_known_of_them() {
        assert!(is_unknown(Fault::Lost("no answer".to_owned())));
        assert!(is_unknown(Fault::Rewound("rows are gone".to_owned())));
        let damaged = Fault::Damaged("a row".to_owned());
        assert_eq!(not_applied(damaged), Some(false));
        let full = StoreError::Full {
            path: "g".to_owned(),
            doing: "written",
            reason: "why".to_owned(),
        };
        assert_eq!(not_applied(Fault::Store(full)), Some(true));
        let theirs = Some(Epoch(8));
        let fenced = of_commit(Fault::Fenced { theirs });
        assert!(
            matches!(fenced, CommitError::Fenced { ours, theirs } if (ours, theirs) == (Epoch(7), Epoch(8))),
            "{fenced:?}"
        );
    }

    /// A login that is wrong now is wrong later, though the server ends the session.
    #[test]
    fn a_refused_login_is_no_lost_connection() {
        for code in ["28P01", "28000", "3D000"] {
            assert!(!answer(Severity::Fatal, code).is_lost(), "{code}");
        }
        assert!(answer(Severity::Fatal, "53300").is_lost());
    }

    #[test]
    fn a_server_that_has_become_read_only_is_left_and_tried_again() {
        let fault = || answer(Severity::Error, READ_ONLY);
        assert!(fault().is_lost());
        let error = fault().at("g", "opened");
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    }

    #[test]
    fn an_operation_on_a_full_disk_says_so() {
        let error = answer(Severity::Error, FULL).at("g", "opened");
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        let error = answer(Severity::Error, "57014").at("g", "opened");
        assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
        let error = answer(Severity::Panic, FULL).at("g", "opened");
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    }
}
