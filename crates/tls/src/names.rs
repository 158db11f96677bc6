//! What a certificate says of its holder.

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// What stands before a shard's id in the name that makes a certificate a shard's.
pub const SHARD_URI_PREFIX: &str = "ganger://shard/";

/// What a certificate says of its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The subject's common name.
    pub common_name: Option<String>,
    /// The shards that it is of; a process with several of them has one certificate.
    pub shards: Vec<String>,
}

impl Names {
    /// Reads them from a certificate that has been verified. One with several common names has none: which was
    /// meant cannot be told.
    pub fn read(der: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else {
            return Self::default();
        };
        let subject = certificate.subject();
        let common_name = only(subject.iter_common_name().map(|name| name.as_str().ok()));
        let alternatives = certificate.subject_alternative_name().ok().flatten();
        let shards = alternatives
            .iter()
            .flat_map(|names| &names.value.general_names);
        let shards = shards.filter_map(|name| match name {
            GeneralName::URI(uri) => uri.strip_prefix(SHARD_URI_PREFIX),
            _ => None,
        });
        let shards = shards.filter(|shard| !shard.is_empty());
        Self {
            common_name,
            shards: shards.map(str::to_owned).collect(),
        }
    }
}

fn only<'a>(mut names: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    let first = names.next()??;
    let is_alone = names.next().is_none() && !first.is_empty();
    is_alone.then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

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
        Names::read(params.self_signed(&key).expect("signed").der())
    }

    #[test]
    fn a_certificate_names_its_holder_and_its_shard() {
        let found = names("worker-1", &["https://example.org", "ganger://shard/eu.1"]);
        assert_eq!(found.common_name.as_deref(), Some("worker-1"));
        assert_eq!(found.shards, ["eu.1"]);
        assert!(names("w", &[]).shards.is_empty());
    }

    #[test]
    fn a_certificate_may_be_of_several_shards_and_of_none_without_a_name() {
        let several = names("s", &["ganger://shard/1", "ganger://shard/2"]);
        assert_eq!(several.shards, ["1", "2"]);
        assert!(names("s", &["ganger://shard/"]).shards.is_empty());
        assert_eq!(Names::read(b"nonsense"), Names::default());
    }
}
