//! A client's certificate over the life of its connection.

use std::sync::{Arc, Mutex, PoisonError};

use ganger_access::CertificateNames;
use ganger_tls::{Certificate, Server};

/// A certificate that a connection began with. Connections stand for days, so it is judged again when the server's
/// files have been read again: one that was revoked meanwhile counts no more, nor does one that has expired.
pub(crate) struct ClientCertificate {
    certificate: Certificate,
    names: CertificateNames,
    /// The files by which it was last found good; others are told from these by their address.
    verified_by: Mutex<Arc<Server>>,
}

impl ClientCertificate {
    /// One that a handshake with these files has let in.
    pub(crate) fn new(certificate: Certificate, verified_by: Arc<Server>) -> Self {
        let names = certificate.names().clone();
        Self {
            certificate,
            names: CertificateNames {
                common_name: names.common_name,
                shards: names.shards,
            },
            verified_by: Mutex::new(verified_by),
        }
    }

    pub(super) fn names(&self) -> &CertificateNames {
        &self.names
    }

    /// Whether it would be let in by what counts now. Costs something only after the files were read again.
    pub(super) fn is_good(&self, now: &Arc<Server>) -> bool {
        if self.certificate.has_expired() {
            return false;
        }
        let mut verified_by = self
            .verified_by
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&verified_by, now) {
            if !now.accepts(&self.certificate) {
                return false;
            }
            *verified_by = Arc::clone(now);
        }
        true
    }
}
