//! Tokens of forms: an HMAC of the session, masked with fresh random bytes in each answer.
//!
//! Answers are compressed and repeat what users typed. A token that stood there unmasked could be guessed byte by byte
//! from the length of answers.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Bytes of the HMAC.
const BYTES: usize = 32;

/// Makes and checks tokens.
#[derive(Clone)]
pub(crate) struct Csrf {
    key: Arc<[u8]>,
}

impl Csrf {
    pub(crate) fn new(key: &[u8]) -> Self {
        Self { key: key.into() }
    }

    /// A token for a form of this session, another one each time.
    pub(crate) fn token(&self, session: &[u8]) -> String {
        let mut mask = [0; BYTES];
        getrandom::fill(&mut mask).expect("the system provides random bytes");
        let mac = self.mac(session).finalize().into_bytes();
        let mut bytes = mask.to_vec();
        bytes.extend(mac.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Whether a token was made for a form of this session.
    pub(crate) fn is_good(&self, session: &[u8], token: &str) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(token) else {
            return false;
        };
        if bytes.len() != 2 * BYTES {
            return false;
        }
        let (mask, masked) = bytes.split_at(BYTES);
        let shown: Vec<u8> = masked.iter().zip(mask).map(|(a, b)| a ^ b).collect();
        self.mac(session).verify_slice(&shown).is_ok()
    }

    fn mac(&self, session: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::new_from_slice(&self.key).expect("a key may have any length");
        mac.update(b"ganger form\n");
        mac.update(session);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_is_another_and_good_for_its_session_only() {
        let csrf = Csrf::new(b"key");
        let (first, second) = (csrf.token(b"a"), csrf.token(b"a"));
        assert_ne!(first, second);
        assert!(csrf.is_good(b"a", &first) && csrf.is_good(b"a", &second));
        assert!(!csrf.is_good(b"b", &first));
        assert!(!Csrf::new(b"other").is_good(b"a", &first));
        for wrong in ["", "x", "!!", &first[1..], &format!("{first}A")] {
            assert!(!csrf.is_good(b"a", wrong), "{wrong}");
        }
    }
}
