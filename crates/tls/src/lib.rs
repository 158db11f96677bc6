//! TLS for servers, clients and peers: certificates from files, which are read again when they change, and helpful
//! error messages.
//!
//! It uses rustls with ring, TLS 1.2 and 1.3. A server offers HTTP/2 and HTTP/1.1. A certificate belongs to a shard
//! if its subject's alternative names include `ganger://shard/NAME`; it may belong to several. One of a node of a cluster
//! has `ganger://cluster/NAME`, which stands for every shard of it.

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
pub use names::{CLUSTER_URI_PREFIX, Names, SHARD_URI_PREFIX};
pub use server::{Server, ServerFiles};
pub use stream::{Fault, Stream};
pub use tokio_rustls::TlsAcceptor;
pub use tokio_rustls::server::TlsStream as ServerStream;
