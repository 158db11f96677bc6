//! The reason why a worker cannot work.

use std::io;
use std::path::PathBuf;

/// The reason why a worker cannot work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings of handlers cannot be read.
    #[error("{}: {reason}", path.display())]
    BadHandlers {
        /// Path of the handlers' file.
        path: PathBuf,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// A secret's variable was to be passed on to programs.
    #[error(
        "variable {name} is a secret of the worker: programs may not have it; give them a token of their own under another name"
    )]
    SecretVariable {
        /// Name of the environment variable.
        name: String,
    },
    /// Working directories cannot be made.
    #[error("working directories cannot be made in {}: {source}; name another place for them", path.display())]
    Scratch {
        /// Path of the scratch directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The server's address cannot be used.
    #[error(transparent)]
    Client(ganger_client::Error),
}
