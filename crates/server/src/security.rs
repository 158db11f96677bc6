//! Authentication: the credentials that each protocol needs, and the current certificates, tokens and rights.
//!
//! They come from files that may change while the server runs. A new file that cannot be used is refused and logged,
//! and the old content stays in use.

mod attempts;
mod client_certificate;
mod guarded_body;
mod identify;
mod load;
mod require;
mod watch;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use ganger_access::{AccessFile, Audit};
use ganger_tls::Server;
use ganger_types::time::MICROS_PER_SECOND;
use http::HeaderValue;
use tokio::sync::watch as channel;

use crate::secret::Secret;

pub(crate) use client_certificate::ClientCertificate;
pub(crate) use guarded_body::{GuardedBody, WatchedRight};
pub(crate) use identify::{PageSession, PresentedCredentials};
pub use require::Require;
pub(crate) use watch::follow_files;

use attempts::LoginAttempts;
use load::Files;
use watch::FileStamp;

/// A protocol with its own credential requirement: a dialect on the main port, or the Redis port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Grpc,
    #[cfg(feature = "redis")]
    Resp,
}

/// The current credentials and access file.
#[derive(Clone, Default)]
struct Credentials {
    tls: Option<Arc<Server>>,
    shared_token: Option<Secret>,
    /// Token for other servers; `None` if it is the same.
    peer_token: Option<Secret>,
    access: Option<Arc<AccessFile>>,
    /// Name of the cluster of which this process is a node; `None` if it is none.
    cluster: Option<String>,
}

/// Authentication state, shared by all connections.
pub(crate) struct Security {
    files: Files,
    stamps_at_start: Vec<Option<FileStamp>>,
    current: RwLock<Credentials>,
    /// Number of changes, watched by open streams.
    changes: channel::Sender<u64>,
    http: Require,
    grpc: Require,
    #[cfg(feature = "redis")]
    resp: Require,
    attempts: LoginAttempts,
    pub(crate) audit: Audit,
    /// Number of wrong tokens presented since the start.
    pub(crate) logins_failed: AtomicU64,
}

impl Security {
    /// Returns the certificates for the next connection; `None` if connections are not encrypted.
    pub(crate) fn tls(&self) -> Option<Arc<Server>> {
        self.current().tls
    }

    /// Whether connections are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.files.tls.is_some()
    }

    /// Returns the end of the validity of the server's certificate; `None` without one.
    pub(crate) fn certificate_ends_at(&self) -> Option<ganger_types::Timestamp> {
        let seconds = self.current().tls?.certificate_ends_at();
        let micros = u64::try_from(seconds)
            .unwrap_or(0)
            .saturating_mul(MICROS_PER_SECOND);
        Some(ganger_types::Timestamp(micros))
    }

    /// Returns the header with the token for other servers; `None` if there is none.
    pub(crate) fn peer_authorization(&self) -> Option<HeaderValue> {
        let current = self.current();
        let token = current.peer_token.or(current.shared_token);
        token.and_then(|token| token.authorization())
    }

    /// Returns how often files were read again.
    pub(crate) fn changes_count(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Waits until [`Self::changes_count`] is another number than `seen`.
    #[cfg(feature = "redis")]
    pub(crate) async fn changed(&self, seen: u64) {
        // The sender lives as long as the receiver, so there is always a next change.
        let _ = self
            .changes
            .subscribe()
            .wait_for(|count| *count != seen)
            .await;
    }

    /// Returns the credentials that a protocol needs.
    pub(crate) fn require(&self, protocol: Protocol) -> Require {
        match protocol {
            Protocol::Http => self.http,
            Protocol::Grpc => self.grpc,
            #[cfg(feature = "redis")]
            Protocol::Resp => self.resp,
        }
    }

    /// Whether every protocol of the main port needs credentials.
    pub(crate) fn is_checked(&self) -> bool {
        self.http != Require::Nothing && self.grpc != Require::Nothing
    }

    fn current(&self) -> Credentials {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
