//! The server's side.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection};

use crate::error::TlsError;
use crate::files::{chain, key, provider, revocations, roots};
use crate::names::Names;

/// The files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its certificate, followed by those that lead to its authority.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Authorities of clients; without them no client is asked for a certificate.
    pub client_ca: Option<PathBuf>,
    /// Clients' certificates that were called back.
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
}

/// Reads the files and makes sure that they go together.
///
/// # Errors
/// If a file cannot be read or understood, the certificate has expired, or the key is not the certificate's.
pub fn server_config(files: &ServerFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let together = |error: rustls::Error| {
        let reason = match error {
            rustls::Error::InconsistentKeys(_) => format!(
                "the key {} is not the key of the certificate {}",
                files.key.display(),
                files.certificate.display()
            ),
            error => format!("certificate {}: {error}", files.certificate.display()),
        };
        TlsError::Together(reason)
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(together)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(roots(path)?);
            let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            if let Some(path) = &files.client_crl {
                verifier = verifier
                    .with_crls(revocations(path)?)
                    .only_check_end_entity_revocation()
                    .allow_unknown_revocation_status();
            }
            if !files.is_client_required {
                verifier = verifier.allow_unauthenticated();
            }
            let verifier = verifier
                .build()
                .map_err(|error| TlsError::file("CA file", path, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain(&files.certificate)?, key(&files.key)?)
        .map_err(together)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The names in the certificate that the other side has shown and proven, if any.
pub fn names_of(connection: &ServerConnection) -> Option<Names> {
    let chain = connection.peer_certificates()?;
    chain.first().map(|certificate| Names::read(certificate))
}
