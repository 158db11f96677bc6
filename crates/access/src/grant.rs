//! Grants, which are a role in some namespaces: `producer@mail`, `reader@*`, `worker@team-*`.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

use crate::role::{Role, Verb};

/// Characters escaped as `%NN` in the access file: separators and invisible ones.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b',')
    .add(b'=')
    .add(b'#')
    .add(b'@');

/// A pattern for namespaces: a name, or a prefix of names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    bytes: Vec<u8>,
    /// Whether `bytes` is a prefix and not a whole name.
    is_prefix: bool,
}

/// A role in some namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The role that is granted.
    pub role: Role,
    within: Pattern,
}

impl Grant {
    /// Grants the role in every namespace.
    pub fn everywhere(role: Role) -> Self {
        let within = Pattern {
            bytes: Vec::new(),
            is_prefix: true,
        };
        Self { role, within }
    }

    /// Grants the role in one namespace, or, if the text ends in `*`, in all that begin with the text before it.
    pub fn new(role: Role, namespace: &str) -> Self {
        let (text, is_prefix) = match namespace.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (namespace, false),
        };
        let within = Pattern {
            bytes: text.as_bytes().to_vec(),
            is_prefix,
        };
        Self { role, within }
    }

    /// Whether the grant covers that namespace.
    pub fn covers(&self, namespace: &[u8]) -> bool {
        if self.within.is_prefix {
            namespace.starts_with(&self.within.bytes)
        } else {
            namespace == self.within.bytes
        }
    }

    /// The namespace of the grant, and whether it is only the beginning of names.
    pub fn namespaces(&self) -> (&[u8], bool) {
        (&self.within.bytes, self.within.is_prefix)
    }

    /// Whether the grant covers every existing and future namespace.
    pub fn is_everywhere(&self) -> bool {
        self.within.is_prefix && self.within.bytes.is_empty()
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.within.is_prefix { "*" } else { "" };
        write!(f, "{}@{}{star}", self.role, escape(&self.within.bytes))
    }
}

impl FromStr for Grant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (role, within) = text.split_once('@').ok_or_else(|| {
            format!(
                "{text:?} is not a grant: write ROLE@NAMESPACE, such as producer@mail or reader@*"
            )
        })?;
        let role = role.parse()?;
        let (name, is_prefix) = match within.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (within, false),
        };
        let bytes = unescape(name)?;
        if bytes.is_empty() && !is_prefix {
            return Err(format!(
                "{text:?} names no namespace: write {role}@NAMESPACE, or {role}@* for all"
            ));
        }
        if bytes.contains(&b'*') {
            return Err(format!("{text:?}: a * is allowed only at the end"));
        }
        let within = Pattern { bytes, is_prefix };
        Ok(Self { role, within })
    }
}

/// The grants of an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(pub Vec<Grant>);

impl Grants {
    /// Grants every role in every namespace.
    pub fn everything() -> Self {
        Self(vec![Grant::everywhere(Role::Admin)])
    }

    /// Whether the verb is allowed in that namespace.
    pub fn allow(&self, verb: Verb, namespace: &[u8]) -> bool {
        let mut grants = self.0.iter();
        grants.any(|grant| grant.role.may(verb) && grant.covers(namespace))
    }

    /// Whether the verb is allowed in at least one namespace.
    pub fn allow_somewhere(&self, verb: Verb) -> bool {
        self.0.iter().any(|grant| grant.role.may(verb))
    }

    /// Whether the verb is allowed in every namespace.
    pub fn allow_everywhere(&self, verb: Verb) -> bool {
        let mut grants = self.0.iter();
        grants.any(|grant| grant.role.may(verb) && grant.is_everywhere())
    }

    /// Whether anything at all is allowed in that namespace.
    pub fn touch(&self, namespace: &[u8]) -> bool {
        self.0.iter().any(|grant| grant.covers(namespace))
    }

    /// Whether the grants are those of the operator of the whole system.
    pub fn are_total(&self) -> bool {
        self.allow_everywhere(Verb::Govern)
    }
}

impl fmt::Display for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (scope, grant) in self.0.iter().enumerate() {
            if scope > 0 {
                f.write_str(",")?;
            }
            write!(f, "{grant}")?;
        }
        Ok(())
    }
}

impl FromStr for Grants {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let grants: Result<Vec<Grant>, String> = text.split(',').map(str::parse).collect();
        grants.map(Self)
    }
}

/// Escapes a name to a single word.
pub(crate) fn escape(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

/// Reads an escaped word.
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let escapes = text.split('%').skip(1);
    for escape in escapes {
        let digits = escape.as_bytes().get(..2);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(
                "a % must be followed by two hexadecimal digits; % itself is %25".to_owned(),
            );
        }
    }
    Ok(percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(text: &str) -> Grants {
        text.parse().expect("readable")
    }

    #[test]
    fn a_grant_counts_only_in_its_namespaces() {
        let grants = grants("producer@mail,worker@team-*,reader@*");
        assert!(grants.allow(Verb::Submit, b"mail"));
        assert!(!grants.allow(Verb::Submit, b"mail2"));
        assert!(!grants.allow(Verb::Submit, b"team-a"));
        assert!(grants.allow(Verb::Work, b"team-a"));
        assert!(grants.allow(Verb::Work, b"team-"));
        assert!(!grants.allow(Verb::Work, b"team"));
        assert!(grants.allow(Verb::Observe, b"anything"));
        assert!(grants.allow_everywhere(Verb::Observe));
        assert!(!grants.allow_everywhere(Verb::Work));
        assert!(!grants.are_total());
        assert!(Grants::everything().are_total());
    }

    #[test]
    fn a_written_grant_reads_back_whatever_its_name() {
        for namespace in [
            "a",
            "with space",
            "a,b",
            "x@y",
            "50%",
            "\u{e4}",
            "pre*",
            "*",
        ] {
            let grant = Grant::new(Role::Reader, namespace);
            let text = grant.to_string();
            assert_eq!(text.parse::<Grant>().expect("readable"), grant, "{text}");
            assert!(!text.contains(' ') && !text.contains(','), "{text}");
        }
    }

    #[test]
    fn a_malformed_grant_is_refused() {
        for text in [
            "",
            "reader",
            "boss@x",
            "reader@",
            "reader@a*b",
            "reader@%zz",
            "reader@%4",
        ] {
            assert!(text.parse::<Grant>().is_err(), "{text}");
        }
    }
}
