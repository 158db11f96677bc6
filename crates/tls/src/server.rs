//! The server side: certificate, client authorities, revocation lists.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::TlsAcceptor;
use x509_cert::der::Decode as _;

use crate::certificate::{Certificate, CertificateFields};
use crate::error::TlsError;
use crate::files::{chain, key, not_after, provider, revocations, roots};

/// The files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// File of the server's certificate, followed by intermediate certificates.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// File of the authorities of clients; without it clients are not asked for a certificate.
    pub client_ca: Option<PathBuf>,
    /// File of the list of revoked client certificates; `None` for no list.
    pub client_crl: Option<PathBuf>,
    /// Whether the handshake refuses a client without a certificate.
    pub is_client_required: bool,
}

impl ServerFiles {
    /// Returns all files, to watch them for changes.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let own = [&self.certificate, &self.key];
        own.into_iter()
            .chain(&self.client_ca)
            .chain(&self.client_crl)
    }

    fn clients(&self) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        let Some(path) = &self.client_ca else {
            return Ok(None);
        };
        let roots = Arc::new(roots(path)?);
        let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
        if let Some(path) = &self.client_crl {
            verifier = verifier
                .with_crls(revocations(path)?)
                .only_check_end_entity_revocation()
                .allow_unknown_revocation_status();
        }
        if !self.is_client_required {
            verifier = verifier.allow_unauthenticated();
        }
        let verifier = verifier.build().map_err(|error| match (error, &self.client_crl) {
            (VerifierBuilderError::InvalidCrl(_), Some(path)) => {
                let reason = "has a list that is not of version 2, with a CRL number, as RFC 5280 requires";
                TlsError::file("revocation list", path, reason)
            }
            (error, _) => TlsError::file("CA file", path, error.to_string()),
        })?;
        Ok(Some(verifier))
    }
}

/// A server's certificate and its rules for client certificates.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    /// End of the validity of the certificate, in seconds since the Unix epoch.
    not_after: i64,
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl Server {
    /// Reads the files and checks that they match.
    ///
    /// # Errors
    /// If a file cannot be read or parsed, the certificate has expired, or the key does not belong to the
    /// certificate.
    pub fn read(files: &ServerFiles) -> Result<Self, TlsError> {
        let together = |error: rustls::Error| {
            let reason = match error {
                rustls::Error::InconsistentKeys(_) => format!(
                    "the key {} is not the key of the certificate {}",
                    files.key.display(),
                    files.certificate.display()
                ),
                error => format!("certificate {}: {error}", files.certificate.display()),
            };
            TlsError::Mismatch(reason)
        };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(together)?;
        let clients = files.clients()?;
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(Arc::clone(clients)),
        };
        let chain = chain(&files.certificate)?;
        let parsed = chain
            .first()
            .map(|first| CertificateFields::from_der(first));
        let not_after = parsed
            .and_then(Result::ok)
            .map_or(i64::MAX, |parsed| not_after(&parsed));
        let mut config = builder
            .with_single_cert(chain, key(&files.key)?)
            .map_err(together)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            config: Arc::new(config),
            not_after,
            clients,
        })
    }

    /// Returns the end of the validity of the server's certificate, in seconds since the Unix epoch.
    pub fn certificate_ends_at(&self) -> i64 {
        self.not_after
    }

    /// Returns the acceptor that encrypts accepted connections.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// Whether a certificate would be accepted now: signed by an authority of these files, valid, and not revoked.
    /// Costs a few signature verifications.
    pub fn accepts(&self, certificate: &Certificate) -> bool {
        let (Some(clients), Some((first, rest))) = (&self.clients, certificate.chain.split_first())
        else {
            return false;
        };
        clients
            .verify_client_cert(first, rest, UnixTime::now())
            .is_ok()
    }
}
