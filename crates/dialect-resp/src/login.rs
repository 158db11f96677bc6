//! Authentication: what the server must provide to a connection.

use futures::future::BoxFuture;
use ganger_access::Identity;

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginError {
    /// The token is wrong, or not sufficient.
    Wrong,
    /// The address has sent too many wrong tokens.
    TooMany,
}

/// The authentication of one connection. The server provides one for each.
pub trait Login: Send + Sync {
    /// Whether the port requires no authentication, so that every client may do everything.
    fn is_open(&self) -> bool;

    /// The identity without a token: by the client certificate, or unknown.
    fn stranger(&self) -> Identity;

    /// The identity for a token. The answer for a wrong one may be delayed.
    fn login<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Identity, LoginError>>;

    /// A number that grows whenever rights may have changed.
    fn changes(&self) -> u64;

    /// Waits until [`Self::changes`] differs from `seen`.
    fn changed(&self, seen: u64) -> BoxFuture<'_, ()>;

    /// Whether the same token, or none, would give the same identity now.
    fn is_unchanged(&self, token: Option<&[u8]>, identity: &Identity) -> bool;
}
