//! TLS for servers, clients and peers: certificates from files, read again when they change, and words
//! for what goes wrong.
//!
//! rustls with ring; TLS 1.2 and 1.3. A server offers HTTP/2 and HTTP/1.1. A certificate is of a shard
//! if it bears the name `ganger://shard/NAME` among its subject's alternative names; it may be of several.

#![forbid(unsafe_code)]

mod certificate;
mod connector;
mod error;
mod explain;
mod files;
mod names;
mod server;
mod stream;

pub use certificate::Certificate;
pub use connector::{Connecting, Connector, Trust};
pub use error::TlsError;
pub use explain::{explain, explain_client};
pub use names::{Names, SHARD_URI_PREFIX};
pub use server::{Server, ServerFiles};
pub use stream::{Fault, Stream};
pub use tokio_rustls::TlsAcceptor;
pub use tokio_rustls::server::TlsStream as ServerStream;
