//! The reason why certificates and keys cannot be used.

use std::io;
use std::path::PathBuf;

/// The reason why certificates and keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read or parsed.
    #[error("{what} {}: {reason}", path.display())]
    File {
        /// Kind of file, such as `certificate`.
        what: &'static str,
        /// The file that cannot be used.
        path: PathBuf,
        /// Why the file cannot be used.
        reason: String,
    },
    /// The files do not match each other.
    #[error("{0}")]
    Mismatch(String),
}

impl TlsError {
    pub(crate) fn file(
        what: &'static str,
        path: &std::path::Path,
        reason: impl Into<String>,
    ) -> Self {
        Self::File {
            what,
            path: path.to_owned(),
            reason: reason.into(),
        }
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}
