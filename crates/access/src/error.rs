//! The error of reading or changing an access file.

use std::io;
use std::path::PathBuf;

/// The reason why an access file cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The file cannot be read or written.
    #[error("cannot {doing} the access file {}: {source}", path.display())]
    File {
        /// The operation on the file that failed.
        doing: &'static str,
        /// Path of the access file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A line of the file cannot be parsed. The error does not show its text, which may contain a secret by mistake.
    #[error("the access file {} line {line}: {reason}", path.display())]
    Line {
        /// Path of the access file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A grant, name or time cannot be parsed.
    #[error("{0}")]
    Value(String),
    /// The name is in use.
    #[error("the access file {} has a token {name:?} already: revoke it first, or choose another name", path.display())]
    NameTaken {
        /// Path of the access file.
        path: PathBuf,
        /// The name that is in use.
        name: String,
    },
    /// No entry has this name.
    #[error("the access file {} has no token {name:?}: `ganger token list` shows the names", path.display())]
    NotFound {
        /// Path of the access file.
        path: PathBuf,
        /// The name that was not found.
        name: String,
    },
    /// The system gave no random bytes.
    #[error("the system provides no random bytes: {0}")]
    Random(String),
}
