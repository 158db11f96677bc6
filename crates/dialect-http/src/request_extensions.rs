//! Extensions that the layers before a handler add to a request.

use std::net::SocketAddr;
use std::sync::Arc;

/// The address of the client, which the server adds to each request.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// The names of the operation's query parameters, including the namespace and the shard.
#[derive(Clone)]
pub(crate) struct QueryParameterNames(pub(crate) Arc<[&'static str]>);
