//! A client's certificate over the life of its connection.

use std::sync::{Arc, Mutex, PoisonError};

use ganger_access::CertificateNames;
use ganger_tls::{Certificate, Server};

/// A certificate of an open connection. Connections last for days, so it is verified again when the server's files
/// have been read again: a revoked or expired certificate is then rejected.
pub(crate) struct ClientCertificate {
    certificate: Certificate,
    names: CertificateNames,
    /// The files by which it was last verified; other files have another address.
    verified_by: Mutex<Arc<Server>>,
}

impl ClientCertificate {
    /// Creates the state for a certificate that a handshake with these files accepted.
    pub(crate) fn new(certificate: Certificate, verified_by: Arc<Server>) -> Self {
        let names = certificate.names().clone();
        Self {
            certificate,
            names: CertificateNames {
                common_name: names.common_name,
                shards: names.shards,
                clusters: names.clusters,
            },
            verified_by: Mutex::new(verified_by),
        }
    }

    pub(super) fn names(&self) -> &CertificateNames {
        &self.names
    }

    /// Whether the certificate would be accepted now. Costs a verification only after the files were read again.
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
