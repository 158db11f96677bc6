//! TLS to the database: the server's certificate is always verified, with its name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::settings_error::SettingsError;

/// Files of certificates; they are read for every connection, so that replaced ones are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Authorities to trust; `None` for those that the system trusts.
    pub(crate) roots: Option<PathBuf>,
    /// Certificate and key by which the server recognises this client.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// Makes what encrypts a connection.
    ///
    /// # Errors
    /// If a file cannot be read or used.
    pub(crate) fn connector(&self) -> Result<MakeRustlsConnect, SettingsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| SettingsError::Tls(error.to_string()))?;
        let trusting = versions.with_root_certificates(self.roots()?);
        let config = match &self.client {
            None => trusting.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let read = PrivateKeyDer::from_pem_file(key);
                let key = read.map_err(|error| unusable(key, &error))?;
                let made = trusting.with_client_auth_cert(chain, key);
                made.map_err(|error| unusable(certificate, &error))?
            }
        };
        Ok(MakeRustlsConnect::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, SettingsError> {
        let mut roots = RootCertStore::empty();
        let Some(path) = &self.roots else {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::warn!(%error, "a trusted certificate cannot be read");
            }
            roots.add_parsable_certificates(found.certs);
            return Ok(roots);
        };
        for certificate in certificates(path)? {
            let added = roots.add(certificate);
            added.map_err(|error| unusable(path, &error))?;
        }
        Ok(roots)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = read.map_err(|error| unusable(path, &error))?;
    if found.is_empty() {
        return Err(unusable(path, &"it has no certificate"));
    }
    Ok(found)
}

fn unusable(path: &Path, reason: &dyn std::fmt::Display) -> SettingsError {
    SettingsError::File {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}
