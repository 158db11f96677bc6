//! A session that passes from one node to another.

use bytes::Bytes;
use ganger_access::Identity;

use crate::value::Protocol;

/// What another node must know to go on with a connection whose client has authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayedSession {
    /// Identity of the client.
    pub identity: Identity,
    /// Version of the protocol that the client chose.
    pub protocol: Protocol,
    /// Name that the client gave the connection; empty if none.
    pub name: Bytes,
}
