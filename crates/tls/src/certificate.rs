//! A certificate that the other side of a connection has presented and proved to own.

use rustls::ServerConnection;
use rustls::pki_types::CertificateDer;
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode as _;

use crate::files::{is_past, not_after};
use crate::names::Names;

/// The fields of a certificate. The profile accepts minor violations of the standard, such as a long serial number:
/// trust depends on the signature, which is verified before.
pub(crate) type CertificateFields = CertificateInner<Raw>;

/// A certificate that was valid when its connection began. Connections are long-lived, so its validity can be checked
/// again: [`Certificate::has_expired`], [`crate::Server::accepts`].
#[derive(Debug)]
pub struct Certificate {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    names: Names,
    /// End of validity in seconds since the Unix epoch.
    not_after: i64,
}

impl Certificate {
    /// Returns the client's certificate; `None` if it has presented none.
    pub fn of(connection: &ServerConnection) -> Option<Self> {
        let chain = connection.peer_certificates()?;
        let first = chain.first()?;
        let parsed = CertificateFields::from_der(first).ok()?;
        Some(Self {
            names: Names::of(&parsed),
            not_after: not_after(&parsed),
            chain: chain.iter().map(|one| one.clone().into_owned()).collect(),
        })
    }

    /// Returns the names of the holder.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Whether the certificate has expired.
    pub fn has_expired(&self) -> bool {
        is_past(self.not_after)
    }
}
