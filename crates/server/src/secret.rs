//! The shared token: compared by its hash in constant time, and sent only to other servers.

use std::fmt;
use std::sync::Arc;

use ganger_access::Hash;
use http::HeaderValue;

/// Minimum length of a token: shorter ones can be guessed.
const TOKEN_CHARACTERS_MIN: usize = 16;

/// A token that clients must send, and that this server sends to others.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    hash: Hash,
    text: Arc<str>,
}

impl Secret {
    /// Creates a token from its text, ignoring surrounding white space such as a file's last line end.
    ///
    /// # Errors
    /// If it is shorter than 16 characters, or has characters that a header cannot contain.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() < TOKEN_CHARACTERS_MIN {
            return Err(format!(
                "the token has {} characters, at least {TOKEN_CHARACTERS_MIN} are needed: make one with `openssl rand -hex 32`",
                text.len()
            ));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(
                "the token has white space, control characters or characters beyond ASCII"
                    .to_owned(),
            );
        }
        Ok(Self {
            hash: Hash::of(text.as_bytes()),
            text: text.into(),
        })
    }

    /// Whether a presented text is the token, in constant time.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        Hash::of(shown) == self.hash
    }
}

impl Secret {
    /// Returns the hash of the token, by which sessions remember it.
    pub(crate) fn hash(&self) -> Hash {
        self.hash
    }

    /// Returns the header with the token, marked as sensitive so that logs omit it.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.text)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_accepted() {
        let secret = Secret::new("0123456789abcdef\n").expect("long enough");
        assert!(secret.is(b"0123456789abcdef"));
        for wrong in [
            "0123456789abcde",
            "0123456789abcdef0",
            "0123456789abcdef\n",
            "",
        ] {
            assert!(!secret.is(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn weak_tokens_are_refused_and_none_is_ever_shown() {
        assert!(Secret::new("short").is_err());
        assert!(Secret::new("with spaces in the middle").is_err());
        let secret = Secret::new("0123456789abcdef").expect("long enough");
        assert!(!format!("{secret:?}").contains("0123"));
    }
}
