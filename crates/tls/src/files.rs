//! Certificates and keys from PEM files.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use x509_cert::der::Decode as _;

use crate::certificate::CertificateFields;
use crate::error::TlsError;

/// Returns the cryptography provider, passed explicitly rather than installed for the process.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unreadable(
    what: &'static str,
    path: &Path,
    wanted: &str,
) -> impl FnOnce(pem::Error) -> TlsError {
    move |error| {
        let reason = match error {
            pem::Error::NoItemsFound => format!("has no {wanted} in PEM form"),
            // The library's message does not contain the file's text.
            pem::Error::Io(error) => format!("cannot be read: {error}"),
            _ => format!("is not well-formed PEM; {wanted} is needed"),
        };
        TlsError::file(what, path, reason)
    }
}

/// Reads a certificate and its intermediate certificates. Refuses an expired one, which every client would refuse
/// later with a less clear message.
pub(crate) fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificate";
    let wanted = "-----BEGIN CERTIFICATE-----";
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(unreadable(what, path, wanted))?
        .collect();
    let chain = chain.map_err(unreadable(what, path, wanted))?;
    let Some(first) = chain.first() else {
        return Err(TlsError::file(what, path, format!("has no {wanted}")));
    };
    let parsed = CertificateFields::from_der(first)
        .map_err(|error| TlsError::file(what, path, format!("cannot be parsed: {error}")))?;
    if is_past(not_after(&parsed)) {
        let ended = parsed.tbs_certificate.validity.not_after;
        let reason = format!("expired at {ended}: renew it");
        return Err(TlsError::file(what, path, reason));
    }
    Ok(chain)
}

/// Returns when a certificate expires, in seconds since the Unix epoch.
pub(crate) fn not_after(certificate: &CertificateFields) -> i64 {
    let not_after = certificate.tbs_certificate.validity.not_after;
    i64::try_from(not_after.to_unix_duration().as_secs()).unwrap_or(i64::MAX)
}

/// Whether a time in seconds since the Unix epoch has passed. With a clock before 1970 none has.
pub(crate) fn is_past(at: i64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.ok().and_then(|now| i64::try_from(now.as_secs()).ok());
    now.is_some_and(|now| at < now)
}

pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let what = "private key";
    PrivateKeyDer::from_pem_file(path).map_err(unreadable(
        what,
        path,
        "private key (PKCS#8, PKCS#1 or SEC1, without a passphrase)",
    ))
}

/// Reads the trusted authorities.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let what = "CA file";
    let wanted = "-----BEGIN CERTIFICATE-----";
    let mut roots = RootCertStore::empty();
    for certificate in
        CertificateDer::pem_file_iter(path).map_err(unreadable(what, path, wanted))?
    {
        let certificate = certificate.map_err(unreadable(what, path, wanted))?;
        roots
            .add(certificate)
            .map_err(|error| TlsError::file(what, path, error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(TlsError::file(what, path, format!("has no {wanted}")));
    }
    Ok(roots)
}

/// Reads the lists of revoked certificates.
pub(crate) fn revocations(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let what = "revocation list";
    let wanted = "-----BEGIN X509 CRL-----";
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_file_iter(path)
        .map_err(unreadable(what, path, wanted))?
        .collect();
    let lists = lists.map_err(unreadable(what, path, wanted))?;
    if lists.is_empty() {
        return Err(TlsError::file(what, path, format!("has no {wanted}")));
    }
    Ok(lists)
}
