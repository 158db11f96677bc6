//! The error of a worker that cannot start or continue.

use std::io;
use std::path::PathBuf;

/// The reason why a worker cannot start or continue.
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
    /// The settings pass a variable with a secret on to programs.
    #[error(
        "variable {name} is a secret of the worker: programs may not have it; give them a token of their own under another name"
    )]
    SecretVariable {
        /// Name of the environment variable.
        name: String,
    },
    /// Working directories cannot be created.
    #[error("working directories cannot be created in {}: {source}; choose another directory for them", path.display())]
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
