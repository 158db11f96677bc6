//! TLS to the database. As the Python client does when it is told nothing more: the certificate is verified, by the
//! authorities that the system trusts, or those that the variable `SSL_CERT_FILE` names.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What makes TLS sessions with servers that `roots` vouch for.
pub(crate) fn connector(roots: RootCertStore) -> Result<MakeRustlsConnect, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// The authorities that the system trusts. Certificates that cannot be read are left out, as everybody does.
pub(crate) fn system_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "a trusted certificate cannot be read");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    roots
}
