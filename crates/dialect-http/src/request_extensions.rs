//! What the layers before a handler put into the extensions of a request.

use std::net::SocketAddr;
use std::sync::Arc;

/// The address that a request came from, as the server has put it into the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Names of the query parameters that the operation takes, those of the namespace and the shard among them.
#[derive(Clone)]
pub(crate) struct Known(pub(crate) Arc<[&'static str]>);
