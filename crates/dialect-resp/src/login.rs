//! Who asks: what the server must tell a connection of identities.

use futures::future::BoxFuture;
use ganger_access::Identity;

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginError {
    /// It is wrong, or does not suffice.
    Wrong,
    /// Too many wrong ones came from there.
    TooMany,
}

/// Tells of one connection who it is. The server brings one for each.
pub trait Login: Send + Sync {
    /// Whether nothing is asked for here: everybody may do everything.
    fn is_open(&self) -> bool;

    /// Who it is without a token: by its certificate, or unknown.
    fn stranger(&self) -> Identity;

    /// Who it is with a token. A wrong one may take its time.
    fn login<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Identity, LoginError>>;

    /// Grows whenever rights may have changed.
    fn changes(&self) -> u64;

    /// Waits until [`Self::changes`] is another number than `seen`.
    fn changed(&self, seen: u64) -> BoxFuture<'_, ()>;

    /// Whether the same token, or none, would give the same identity now.
    fn is_unchanged(&self, token: Option<&[u8]>, identity: &Identity) -> bool;
}
