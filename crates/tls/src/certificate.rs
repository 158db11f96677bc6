//! A certificate that the other side of a connection has shown and proven to be its own.

use rustls::ServerConnection;
use rustls::pki_types::CertificateDer;
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode as _;

use crate::files::{is_past, not_after};
use crate::names::Names;

/// The fields of a certificate. The profile takes what the standard forbids in details, such as a long serial number:
/// who signed it decides whether a certificate is trusted, and that is verified before.
pub(crate) type CertificateFields = CertificateInner<Raw>;

/// A certificate that was found good when its connection began. Connections stand for long, so what is known of
/// it can be asked again: [`Certificate::has_expired`], [`crate::Server::accepts`].
#[derive(Debug)]
pub struct Certificate {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    names: Names,
    /// In seconds since 1970.
    not_after: i64,
}

impl Certificate {
    /// What the client of a connection has shown, if it has shown something.
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

    /// What it says of its holder.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Whether its time is over.
    pub fn has_expired(&self) -> bool {
        is_past(self.not_after)
    }
}
