//! The access file: a line for each token and each certificate, with its grants.
//!
//! ```text
//! # kind, then words NAME=VALUE
//! token name=ci hash=sha256:... grants=producer@mail,reader@* expires=2030-01-01T00:00:00Z
//! certificate name=worker-1 grants=worker@*
//! ```

use std::path::Path;

use jiff::Timestamp;

use crate::error::AccessError;
use crate::grant::{Grants, escape, unescape};
use crate::identity::{CertificateNames, Identity, Proof};
use crate::secret::Hash;

/// Maximum bytes of an access file: about ten thousand tokens.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The credential that an entry is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A token whose secret has this hash.
    Token(Hash),
    /// A certificate whose common name is the entry's name.
    Certificate,
}

/// An entry of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry; for a certificate its common name.
    pub name: String,
    /// The credential that the entry is for.
    pub kind: Kind,
    /// Roles and the namespaces in which they are granted.
    pub grants: Grants,
    /// Time from which the entry is invalid; `None` if it never expires.
    pub expires: Option<Timestamp>,
    /// Time at which the entry was created; `None` if unknown.
    pub created: Option<Timestamp>,
}

/// All entries of the access file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessFile {
    /// The entries in the order of the file.
    pub entries: Vec<Entry>,
}

impl AccessFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, or a line cannot be parsed: then no entry is used.
    pub fn load(path: &Path) -> Result<Self, AccessError> {
        let refused = |source| AccessError::File {
            doing: "read",
            path: path.to_owned(),
            source,
        };
        let bytes = std::fs::metadata(path).map_err(refused)?.len();
        if bytes > FILE_BYTES_MAX {
            let reason = format!("it has {bytes} bytes, the limit is {FILE_BYTES_MAX}");
            return Err(refused(std::io::Error::other(reason)));
        }
        let text = std::fs::read_to_string(path).map_err(refused)?;
        Self::read(&text).map_err(|(line, reason)| AccessError::Line {
            path: path.to_owned(),
            line,
            reason,
        })
    }

    /// Reads the text of a file; an error has its line number.
    pub(crate) fn read(text: &str) -> Result<Self, (usize, String)> {
        let mut entries: Vec<Entry> = Vec::new();
        for (scope, line) in text.lines().enumerate() {
            let entry = Entry::read(line).map_err(|reason| (scope + 1, reason))?;
            let Some(entry) = entry else { continue };
            if entries.iter().any(|known| known.is_same_credential(&entry)) {
                let kind = entry.kind_word();
                return Err((scope + 1, format!("a second {kind} {:?}", entry.name)));
            }
            entries.push(entry);
        }
        Ok(Self { entries })
    }

    /// Returns the identity of this token; `None` if it is unknown or expired.
    pub fn token(&self, secret: &[u8], now: Timestamp) -> Option<Identity> {
        let shown = Hash::of(secret);
        // Every entry is compared, so that timing does not reveal which one matched.
        let mut found = None;
        for entry in &self.entries {
            if matches!(&entry.kind, Kind::Token(hash) if *hash == shown) {
                found = Some(entry);
            }
        }
        let entry = found.filter(|entry| entry.is_live(now))?;
        Some(entry.identity(Proof::Token))
    }

    /// Returns the identity of the token with this name and hash, for sessions that remember these; `None` if it was
    /// removed or changed, or has expired.
    pub fn token_with(&self, name: &str, hash: &Hash, now: Timestamp) -> Option<Identity> {
        let is_it = |entry: &&Entry| {
            entry.name == name && matches!(&entry.kind, Kind::Token(own) if own == hash)
        };
        let entry = self.entries.iter().find(is_it)?;
        entry.is_live(now).then(|| entry.identity(Proof::Token))
    }

    /// Returns the identity of a certificate with this common name; `None` if it is unknown or expired.
    pub fn certificate(&self, names: &CertificateNames, now: Timestamp) -> Option<Identity> {
        let common_name = names.common_name.as_deref()?;
        let entry = self
            .entries
            .iter()
            .find(|entry| entry.kind == Kind::Certificate && entry.name == common_name)?;
        entry
            .is_live(now)
            .then(|| entry.identity(Proof::Certificate))
    }

    /// Whether an entry expires after `since` and no later than `until`.
    pub fn expires_within(&self, since: Timestamp, until: Timestamp) -> bool {
        let mut ends = self.entries.iter().filter_map(|entry| entry.expires);
        ends.any(|at| since < at && at <= until)
    }

    /// Describes the changes against an earlier file, such as `added token "a"`.
    pub fn changes_since(&self, earlier: &Self) -> Vec<String> {
        let twin = |file: &Self, entry: &Entry| {
            file.entries
                .iter()
                .find(|it| it.is_same_credential(entry))
                .cloned()
        };
        let mut changes = Vec::new();
        for entry in &self.entries {
            let word = match twin(earlier, entry) {
                None => "added",
                Some(before) if before != *entry => "changed",
                Some(_) => continue,
            };
            changes.push(format!(
                "{word} {} {:?}: {}",
                entry.kind_word(),
                entry.name,
                entry.grants
            ));
        }
        for entry in &earlier.entries {
            if twin(self, entry).is_none() {
                changes.push(format!("removed {} {:?}", entry.kind_word(), entry.name));
            }
        }
        changes
    }
}

impl Entry {
    /// Reads a line; `None` for an empty line or a comment.
    pub(crate) fn read(line: &str) -> Result<Option<Self>, String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let mut words = line.split_ascii_whitespace();
        let kind = words.next().unwrap_or_default();
        let is_token = match kind {
            "token" => true,
            "certificate" => false,
            _ => return Err("a line begins with token or certificate".to_owned()),
        };
        let mut fields = Fields::default();
        for word in words {
            fields.take(word)?;
        }
        let name = fields.name.ok_or("name=... is missing")?;
        let grants = fields
            .grants
            .ok_or("grants=ROLE@NAMESPACE,... is missing")?;
        let kind = match (is_token, fields.hash) {
            (true, Some(hash)) => Kind::Token(hash),
            (false, None) => Kind::Certificate,
            (true, None) => {
                return Err(
                    "a token needs hash=sha256:...: make it with `ganger token create`".to_owned(),
                );
            }
            (false, Some(_)) => return Err("a certificate has no hash".to_owned()),
        };
        Ok(Some(Self {
            name,
            kind,
            grants,
            expires: fields.expires,
            created: fields.created,
        }))
    }

    /// Returns the entry's line in the file.
    pub(crate) fn write(&self) -> String {
        let name = escape(self.name.as_bytes());
        let mut words = vec![format!("{} name={name}", self.kind_word())];
        if let Kind::Token(hash) = &self.kind {
            words.push(format!("hash={hash}"));
        }
        words.push(format!("grants={}", self.grants));
        words.extend(self.expires.map(|at| format!("expires={at}")));
        words.extend(self.created.map(|at| format!("created={at:.0}")));
        words.join(" ")
    }

    /// Whether the entry is valid at this time.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|at| now < at)
    }

    fn identity(&self, proof: Proof) -> Identity {
        Identity::principal(self.name.clone(), self.grants.clone(), proof).until(self.expires)
    }

    /// Whether both entries are for the same token or certificate.
    pub(crate) fn is_same_credential(&self, other: &Self) -> bool {
        self.name == other.name && self.kind_word() == other.kind_word()
    }

    /// Returns the word for the entry's kind: `token` or `certificate`.
    pub fn kind_word(&self) -> &'static str {
        match self.kind {
            Kind::Token(_) => "token",
            Kind::Certificate => "certificate",
        }
    }
}

/// The words of a line. Messages show a word's name, never its value, which may be a secret by mistake.
#[derive(Default)]
struct Fields {
    name: Option<String>,
    hash: Option<Hash>,
    grants: Option<Grants>,
    expires: Option<Timestamp>,
    created: Option<Timestamp>,
}

impl Fields {
    fn take(&mut self, word: &str) -> Result<(), String> {
        let (key, value) = word
            .split_once('=')
            .ok_or("all words after the first have the form NAME=VALUE")?;
        match key {
            "name" => once(&mut self.name, key, name(value)?),
            "hash" => once(&mut self.hash, key, Hash::read(value)?),
            "grants" => once(&mut self.grants, key, value.parse()?),
            "expires" => once(&mut self.expires, key, time(key, value)?),
            "created" => once(&mut self.created, key, time(key, value)?),
            _ => Err("the words are name, hash, grants, expires, created".to_owned()),
        }
    }
}

fn once<T>(field: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
    if field.replace(value).is_some() {
        return Err(format!("{key} occurs twice"));
    }
    Ok(())
}

fn name(value: &str) -> Result<String, String> {
    let bytes = unescape(value).map_err(|reason| format!("name: {reason}"))?;
    let name = String::from_utf8(bytes).map_err(|_| "name: must be UTF-8 text".to_owned())?;
    if name.is_empty() || name.len() > 255 {
        return Err("name: must have 1 to 255 bytes".to_owned());
    }
    Ok(name)
}

fn time(key: &str, value: &str) -> Result<Timestamp, String> {
    let wanted = |_| format!("{key}: must be a time such as 2030-01-31T12:00:00Z");
    value.parse().map_err(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Verb;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn hash() -> String {
        Hash::of(b"the-secret-of-ci").to_string()
    }

    #[test]
    fn a_token_is_identified_by_its_hash_until_it_expires() {
        let text = format!(
            "# ours\n\ntoken name=ci hash={} grants=producer@a expires=2030-01-01T00:00:00Z\n",
            hash()
        );
        let file = AccessFile::read(&text).expect("readable");
        let now = at("2029-12-31T23:59:59Z");
        let Some(Identity::Principal(who)) = file.token(b"the-secret-of-ci", now) else {
            panic!("it is there");
        };
        assert_eq!((who.name.as_str(), who.proof), ("ci", Proof::Token));
        assert!(who.grants.allow(Verb::Submit, b"a"));
        assert_eq!(file.token(b"the-secret-of-cI", now), None);
        let hash = Hash::of(b"the-secret-of-ci");
        let known = file.token_with("ci", &hash, now);
        assert_eq!(known, file.token(b"the-secret-of-ci", now));
        assert_eq!(file.token_with("cd", &hash, now), None);
        assert_eq!(file.token_with("ci", &Hash::of(b"x"), now), None);
        assert_eq!(
            file.token(b"the-secret-of-ci", at("2030-01-01T00:00:00Z")),
            None
        );
        let (end, later) = (at("2030-01-01T00:00:00Z"), at("2030-01-01T00:00:01Z"));
        assert!(file.expires_within(now, end) && !file.expires_within(end, later));
    }

    #[test]
    fn a_certificate_is_identified_by_its_common_name() {
        let file =
            AccessFile::read("certificate name=worker%20one grants=worker@*").expect("readable");
        let names = |name: &str| CertificateNames {
            common_name: Some(name.to_owned()),
            ..CertificateNames::default()
        };
        let now = at("2029-01-01T00:00:00Z");
        assert!(file.certificate(&names("worker one"), now).is_some());
        assert!(file.certificate(&names("worker"), now).is_none());
        assert!(
            file.certificate(&CertificateNames::default(), now)
                .is_none()
        );
    }

    #[test]
    fn a_written_entry_reads_back() {
        let entry = Entry {
            name: "a b=c".to_owned(),
            kind: Kind::Token(Hash::of(b"x")),
            grants: "reader@*,worker@q".parse().expect("readable"),
            expires: Some(at("2030-01-01T00:00:00Z")),
            created: Some(at("2026-01-01T00:00:00Z")),
        };
        assert_eq!(Entry::read(&entry.write()).expect("readable"), Some(entry));
    }

    #[test]
    fn a_bad_line_is_reported_with_its_number_and_without_its_text() {
        let good = format!("token name=a hash={} grants=reader@*", hash());
        for line in [
            "tokens name=my-secret",
            "token my-secret",
            "token name=a grants=reader@*",
            "token name=a hash=my-secret grants=reader@*",
            "certificate name=a",
            "certificate name= grants=reader@*",
            "certificate name=a grants=reader@* expires=my-secret",
            "certificate name=a name=b grants=reader@*",
            "certificate name=a colour=my-secret grants=reader@*",
            &good,
        ] {
            let (number, reason) = AccessFile::read(&format!("{good}\n{line}\n")).expect_err(line);
            assert_eq!(number, 2, "{line}");
            assert!(!reason.contains("my-secret"), "{reason}");
        }
    }

    #[test]
    fn changes_are_described_without_hashes() {
        let before = AccessFile::read(&format!(
            "token name=a hash={} grants=reader@*\ncertificate name=b grants=worker@*",
            hash()
        ))
        .expect("readable");
        let after = AccessFile::read(&format!(
            "token name=a hash={} grants=reader@x\ncertificate name=c grants=worker@*",
            hash()
        ))
        .expect("readable");
        let changes = after.changes_since(&before);
        assert_eq!(
            changes,
            [
                "changed token \"a\": reader@x",
                "added certificate \"c\": worker@*",
                "removed certificate \"b\""
            ]
        );
        assert!(after.changes_since(&after).is_empty());
    }
}
