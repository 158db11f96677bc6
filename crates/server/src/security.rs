//! Who may pass: what each front door asks for, and the certificates, tokens and rights that count now.
//!
//! All of it comes from files that may change while the server runs. A new file that cannot be used is
//! refused and said, and the old one goes on.

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
use http::HeaderValue;
use tokio::sync::watch as channel;

use crate::secret::Secret;

pub(crate) use client_certificate::ClientCertificate;
pub(crate) use guarded_body::{GuardedBody, WatchedRight};
pub(crate) use identify::PresentedCredentials;
pub use require::Require;
pub(crate) use watch::follow_files;

use attempts::LoginAttempts;
use load::Files;
use watch::FileStamp;

/// A front door: a dialect on the port, or the Redis port, over which no HTTP comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Grpc,
    #[cfg(feature = "redis")]
    Resp,
}

/// Credentials and access file that count now.
#[derive(Clone, Default)]
struct Credentials {
    tls: Option<Arc<Server>>,
    shared_token: Option<Secret>,
    /// The one for other servers, if it is another.
    peer_token: Option<Secret>,
    access: Option<Arc<AccessFile>>,
}

/// Who may pass. Shared by all connections.
pub(crate) struct Security {
    files: Files,
    stamps_at_start: Vec<Option<FileStamp>>,
    now: RwLock<Credentials>,
    /// Counts the changes, so that open streams notice them.
    changes: channel::Sender<u64>,
    http: Require,
    grpc: Require,
    #[cfg(feature = "redis")]
    resp: Require,
    attempts: LoginAttempts,
    pub(crate) audit: Audit,
    /// Wrong tokens ever shown.
    pub(crate) logins_failed: AtomicU64,
}

impl Security {
    /// The certificates for the next connection; none where nothing is encrypted.
    pub(crate) fn tls(&self) -> Option<Arc<Server>> {
        self.now().tls
    }

    /// Whether connections are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.files.tls.is_some()
    }

    /// What this server shows to others.
    pub(crate) fn peer_authorization(&self) -> Option<HeaderValue> {
        let now = self.now();
        let token = now.peer_token.or(now.shared_token);
        token.and_then(|token| token.authorization())
    }

    /// How often files were read again.
    pub(crate) fn changes_count(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Waits until [`Self::changes_count`] is another number than `seen`.
    #[cfg(feature = "redis")]
    pub(crate) async fn changed(&self, seen: u64) {
        // The sender is as old as the receiver, so there is always one more.
        let _ = self
            .changes
            .subscribe()
            .wait_for(|count| *count != seen)
            .await;
    }

    /// What a door asks for.
    pub(crate) fn require(&self, protocol: Protocol) -> Require {
        match protocol {
            Protocol::Http => self.http,
            Protocol::Grpc => self.grpc,
            #[cfg(feature = "redis")]
            Protocol::Resp => self.resp,
        }
    }

    /// Whether every door of the main port asks for something.
    pub(crate) fn is_checked(&self) -> bool {
        self.http != Require::Nothing && self.grpc != Require::Nothing
    }

    fn now(&self) -> Credentials {
        self.now
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
