//! The error of a measurement.

use std::io;
#[cfg(feature = "ganger")]
use std::path::Path;
use std::path::PathBuf;

/// The reason why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A call of the gRPC client failed.
    #[cfg(feature = "ganger")]
    #[error("{}", .0.message())]
    Client(#[from] ganger_client::Error),
    /// A file or directory of the measurement could not be used.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The address asks for TLS, which the plain HTTP connections do not have.
    #[error(
        "--server {0}: over HTTP only http:// can be measured; leave HTTP out with --apis grpc"
    )]
    NotPlainHttp(String),
    /// The server answered something that is not HTTP.
    #[error("HTTP: {0}: is this a ganger server?")]
    BadReply(String),
    /// The server refused a request.
    #[error("{0}")]
    Refused(String),
    /// The server did not do what the load asked for.
    #[error("{0}")]
    Failed(String),
    /// A socket, process or standard stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Error {
    /// Creates the error of a load that cannot continue, with this message.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    #[cfg(feature = "ganger")]
    pub(crate) fn file(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        Self::File { path, error }
    }
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(format!("{error:#}"))
    }
}
