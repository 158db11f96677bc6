//! Extensions that the layers before a handler add to a request.

use std::net::SocketAddr;
use std::sync::Arc;

/// The address of the client, which the server adds to each request.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// The names of the operation's query parameters, including the namespace, the shard, and the names in its path.
#[derive(Clone)]
pub(crate) struct QueryParameterNames(pub(crate) Arc<[&'static str]>);

/// Names in the path of the operation, each with its place among the segments.
#[derive(Clone)]
pub(crate) struct PathNames(pub(crate) Arc<[(usize, &'static str)]>);
