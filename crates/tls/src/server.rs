//! The server's side.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::TlsAcceptor;

use crate::certificate::Certificate;
use crate::error::TlsError;
use crate::files::{chain, key, provider, revocations, roots};

/// The files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its certificate, followed by those that lead to its authority.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Authorities of clients; without them no client is asked for a certificate.
    pub client_ca: Option<PathBuf>,
    /// Clients' certificates that were revoked.
    pub client_crl: Option<PathBuf>,
    /// Whether a client without a certificate is sent away within the handshake.
    pub is_client_required: bool,
}

impl ServerFiles {
    /// All files, to be watched for changes.
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
                let reason = "has a list that is not of version 2, with a CRL number, as RFC 5280 wants it";
                TlsError::file("revocation list", path, reason)
            }
            (error, _) => TlsError::file("CA file", path, error.to_string()),
        })?;
        Ok(Some(verifier))
    }
}

/// What a server shows, and whom it lets in.
#[derive(Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl Server {
    /// Reads the files and makes sure that they go together.
    ///
    /// # Errors
    /// If a file cannot be read or understood, the certificate has expired, or the key is not the certificate's.
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
        let mut config = builder
            .with_single_cert(chain(&files.certificate)?, key(&files.key)?)
            .map_err(together)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            config: Arc::new(config),
            clients,
        })
    }

    /// Makes TLS of accepted connections.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    /// Whether a certificate would be let in now: signed by an authority of these files, in its time, and not called
    /// back. Costs some signatures' verification.
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
