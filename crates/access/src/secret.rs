//! Secrets of tokens: random, stored as hashes, compared in constant time.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::error::AccessError;

/// Random bytes in a secret: 256 bits cannot be guessed, so a plain hash is enough.
const SECRET_BYTES: usize = 32;
/// Prefix of every secret, by which people and scanners for leaked secrets recognise it.
const SECRET_PREFIX: &str = "ganger_";
/// Prefix of a hash in the access file.
const HASH_PREFIX: &str = "sha256:";

/// The SHA-256 of a secret. A comparison takes the same time wherever the difference is.
#[derive(Clone, Copy)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Returns the hash of a secret's text.
    pub fn of(secret: &[u8]) -> Self {
        Self(Sha256::digest(secret).into())
    }

    /// Reads `sha256:` and 64 hexadecimal digits.
    ///
    /// # Errors
    /// If the text has another form. The error does not show the text, which may be a secret by mistake.
    pub fn read(text: &str) -> Result<Self, String> {
        let wanted = || format!("hash must be {HASH_PREFIX} and 64 hexadecimal digits");
        let digits = text.strip_prefix(HASH_PREFIX).ok_or_else(wanted)?;
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wanted());
        }
        let mut bytes = [0; 32];
        for (scope, byte) in bytes.iter_mut().enumerate() {
            *byte =
                u8::from_str_radix(&digits[2 * scope..2 * scope + 2], 16).map_err(|_| wanted())?;
        }
        Ok(Self(bytes))
    }
}

impl PartialEq for Hash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Hash {}

/// Formats the hash as in the access file.
impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HASH_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(..)")
    }
}

/// A new secret, to be shown once.
pub struct NewSecret(String);

impl NewSecret {
    /// Makes a new secret.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn make() -> Result<Self, AccessError> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| AccessError::Random(error.to_string()))?;
        Ok(Self(format!(
            "{SECRET_PREFIX}{}",
            URL_SAFE_NO_PAD.encode(bytes)
        )))
    }

    /// Returns the text, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the hash, which is what the server stores.
    pub fn hash(&self) -> Hash {
        Hash::of(self.0.as_bytes())
    }
}

impl fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_random_and_recognised_only_by_its_hash() {
        let (one, other) = (
            NewSecret::make().expect("random"),
            NewSecret::make().expect("random"),
        );
        assert_ne!(one.reveal(), other.reveal());
        assert_eq!(one.reveal().len(), SECRET_PREFIX.len() + 43);
        assert_eq!(one.hash(), Hash::of(one.reveal().as_bytes()));
        assert_ne!(one.hash(), other.hash());
        let shown = format!("{one:?} {:?} {}", one.hash(), one.hash());
        assert!(!shown.contains(one.reveal()));
        assert_eq!(
            Hash::read(&one.hash().to_string()).expect("readable"),
            one.hash()
        );
    }

    #[test]
    fn a_malformed_hash_is_refused_without_showing_it() {
        let long = "z".repeat(64);
        for text in [
            "",
            "sha256:",
            "sha256:12",
            "my-plain-secret",
            &format!("sha256:{long}"),
        ] {
            let refused = Hash::read(text).expect_err("no hash");
            assert!(
                text.is_empty() || !refused.contains("my-plain"),
                "{refused}"
            );
        }
    }
}
