//! The names in a certificate.

use x509_cert::attr::AttributeValue;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::{Tag, Tagged as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::certificate::CertificateFields;

/// Prefix of a shard's id in a subject alternative name.
pub const SHARD_URI_PREFIX: &str = "ganger://shard/";
/// Prefix of a cluster's name in a subject alternative name.
pub const CLUSTER_URI_PREFIX: &str = "ganger://cluster/";

/// The names in a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The subject's common name.
    pub common_name: Option<String>,
    /// Shards that the certificate belongs to; a process with several shards has one certificate.
    pub shards: Vec<String>,
    /// Clusters of which the holder is a node.
    pub clusters: Vec<String>,
}

impl Names {
    /// Reads the names from a verified certificate. Several common names count as none, since it is unknown which one
    /// was meant.
    pub(crate) fn of(certificate: &CertificateFields) -> Self {
        let certificate = &certificate.tbs_certificate;
        let subject = certificate.subject.0.iter();
        let attributes = subject.flat_map(|part| part.0.iter());
        let common_names = attributes.filter(|attribute| attribute.oid == COMMON_NAME);
        let alternatives = certificate.get::<SubjectAltName>().ok().flatten();
        let alternatives = alternatives.map(|(_, names)| names.0).unwrap_or_default();
        let uris_after = |prefix: &str| {
            let uris = alternatives.iter().filter_map(|name| match name {
                GeneralName::UniformResourceIdentifier(uri) => uri.as_str().strip_prefix(prefix),
                _ => None,
            });
            let named = uris.filter(|name| !name.is_empty());
            named.map(str::to_owned).collect()
        };
        Self {
            common_name: only(common_names.map(|name| text(&name.value))),
            shards: uris_after(SHARD_URI_PREFIX),
            clusters: uris_after(CLUSTER_URI_PREFIX),
        }
    }
}

/// Returns the text of a name in any of the encodings that authorities still use.
fn text(value: &AttributeValue) -> Option<&str> {
    match value.tag() {
        Tag::Utf8String => Some(value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str()),
        Tag::PrintableString => Some(value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str()),
        Tag::Ia5String => Some(value.decode_as::<Ia5StringRef<'_>>().ok()?.as_str()),
        _ => None,
    }
}

/// Returns the only element; `None` if there are none, several, or one without text.
fn only<'a>(mut names: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    let first = names.next()??;
    let is_alone = names.next().is_none() && !first.is_empty();
    is_alone.then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};
    use x509_cert::der::Decode as _;

    use super::*;

    fn names(common_name: &str, uris: &[&str]) -> Names {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        for uri in uris {
            let uri = (*uri).try_into().expect("plain text");
            params.subject_alt_names.push(SanType::URI(uri));
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signed");
        Names::of(&CertificateFields::from_der(certificate.der()).expect("well-formed"))
    }

    #[test]
    fn a_certificate_names_its_holder_and_its_shard() {
        let found = names("worker-1", &["https://example.org", "ganger://shard/eu.1"]);
        assert_eq!(found.common_name.as_deref(), Some("worker-1"));
        assert_eq!(found.shards, ["eu.1"]);
        assert!(names("w", &[]).shards.is_empty());
    }

    #[test]
    fn a_certificate_may_name_several_shards_or_none() {
        let several = names("s", &["ganger://shard/1", "ganger://shard/2"]);
        assert_eq!(several.shards, ["1", "2"]);
        assert!(names("s", &["ganger://shard/"]).shards.is_empty());
    }

    #[test]
    fn a_certificate_may_name_a_cluster_beside_shards() {
        let found = names("n", &["ganger://cluster/jobs", "ganger://shard/1"]);
        assert_eq!(
            (found.clusters, found.shards),
            (vec!["jobs".to_owned()], vec!["1".to_owned()])
        );
        assert!(names("n", &["ganger://cluster/"]).clusters.is_empty());
    }
}
