//! The shared token: kept as a hash, compared in constant time, never shown.

use std::fmt;

use http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Shortest token taken: shorter ones can be guessed.
const TOKEN_CHARACTERS_MIN: usize = 16;

/// A token that clients must send. Only its hash is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Takes the text of a token; white space around it, such as a file's last line end, is no part of it.
    ///
    /// # Errors
    /// If it is shorter than 16 characters, or has characters that a header cannot carry.
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
        Ok(Self(hash(text.as_bytes())))
    }

    /// Whether a request shows the token as `Authorization: Bearer`.
    pub(crate) fn is_shown(&self, headers: &HeaderMap) -> bool {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return false;
        };
        let Some((scheme, shown)) = split_once_space(value.as_bytes()) else {
            return false;
        };
        // Hashes have one length, so the comparison tells nothing of the token's.
        scheme.eq_ignore_ascii_case(b"bearer") && bool::from(hash(shown).ct_eq(&self.0))
    }
}

fn split_once_space(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = value.iter().position(|byte| *byte == b' ')?;
    Some((&value[..at], value[at..].trim_ascii()))
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(value: &str) -> HeaderMap {
        let value = HeaderValue::from_str(value).expect("a header");
        HeaderMap::from_iter([(header::AUTHORIZATION, value)])
    }

    #[test]
    fn only_the_whole_token_opens() {
        let secret = Secret::new("0123456789abcdef\n").expect("long enough");
        assert!(secret.is_shown(&headers("Bearer 0123456789abcdef")));
        assert!(secret.is_shown(&headers("bearer  0123456789abcdef")));
        for wrong in [
            "Bearer 0123456789abcde",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
            "Bearer",
            "",
        ] {
            assert!(!secret.is_shown(&headers(wrong)), "{wrong}");
        }
        assert!(!secret.is_shown(&HeaderMap::new()));
    }

    #[test]
    fn poor_tokens_are_refused_and_none_is_ever_shown() {
        assert!(Secret::new("short").is_err());
        assert!(Secret::new("with spaces in the middle").is_err());
        let secret = Secret::new("0123456789abcdef").expect("long enough");
        assert!(!format!("{secret:?}").contains("0123"));
    }
}
