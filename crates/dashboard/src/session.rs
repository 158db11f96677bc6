//! Sessions: a signed cookie that names a token without holding anything of it, and the sessions that were ended.

mod cookie;
mod csrf;
mod kept;

use std::fmt;
use std::time::Duration;

use ganger_access::Hash;
use http::{HeaderMap, header};

pub(crate) use cookie::Cookies;
pub(crate) use csrf::Csrf;
pub(crate) use kept::Kept;

/// What the value of a cookie says: who signed in, and until when it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Name of the token that signed in.
    pub name: String,
    /// Hash of the token's secret: another secret under the same name is another token.
    pub hash: Hash,
    pub(crate) nonce: Nonce,
    /// Seconds since the epoch.
    pub(crate) issued: u64,
    /// Seconds since the epoch.
    pub(crate) expires: u64,
}

/// 128 random bits that name a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Nonce(pub(crate) [u8; 16]);

impl Nonce {
    pub(crate) fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the system provides random bytes");
        Self(bytes)
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut bytes = [0; 16];
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(..)")
    }
}

/// How long sessions last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    pub(crate) idle: Duration,
    pub(crate) max: Duration,
}

impl Session {
    pub(crate) fn begin(name: String, hash: Hash, now: u64, life: Lifetime) -> Self {
        Self {
            name,
            hash,
            nonce: Nonce::random(),
            issued: now,
            expires: now + life.idle.min(life.max).as_secs(),
        }
    }

    /// The session with a later end, if it is time to send the browser a new cookie.
    pub(crate) fn renewed(&self, now: u64, life: Lifetime) -> Option<Self> {
        let end = self.issued + life.max.as_secs();
        let expires = (now + life.idle.as_secs()).min(end);
        // A cookie for every answer would be a waste.
        let is_due = expires > self.expires + life.idle.as_secs() / 50;
        is_due.then(|| Self {
            expires,
            ..self.clone()
        })
    }
}

/// The value of a cookie of a request.
pub(crate) fn cookie_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let given = headers.get_all(header::COOKIE).iter();
    given
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_renewed_by_use_and_ends_at_its_limit() {
        let life = Lifetime {
            idle: Duration::from_secs(1_000),
            max: Duration::from_secs(5_000),
        };
        let first = Session::begin("ci".into(), Hash::of(b"x"), 10_000, life);
        assert_eq!(first.expires, 11_000);
        assert_eq!(first.renewed(10_010, life), None);
        let later = first.renewed(10_500, life).expect("it is time");
        assert_eq!((later.expires, later.nonce), (11_500, first.nonce));
        let last = Session {
            expires: 14_900,
            ..first
        };
        assert_eq!(last.renewed(14_800, life).expect("due").expires, 15_000);
    }

    #[test]
    fn the_cookie_of_a_name_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(
            header::COOKIE,
            "a=1; ganger_zone=UTC".parse().expect("text"),
        );
        headers.append(header::COOKIE, "b=2".parse().expect("text"));
        assert_eq!(cookie_of(&headers, "ganger_zone"), Some("UTC"));
        assert_eq!(cookie_of(&headers, "b"), Some("2"));
        assert_eq!(cookie_of(&headers, "ganger"), None);
    }
}
