//! The text of cookies: signed, so that nobody else can make one.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ganger_access::Hash;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue};
use sha2::Sha256;

use super::{Nonce, Session, cookie_of};

/// Name of the cookie over plain connections.
pub(crate) const NAME: &str = "ganger_session";
/// Name of the cookie over encrypted connections; browsers take it from those only.
pub(crate) const SECURE_NAME: &str = "__Secure-ganger_session";
/// Version of the text below.
const VERSION: &str = "1";
/// Longest value that is looked at.
const VALUE_BYTES_MAX: usize = 2_048;

/// Writes and reads cookies of sessions.
#[derive(Clone)]
pub(crate) struct Cookies {
    key: Arc<[u8]>,
    is_secure: bool,
    /// `Path` of every cookie.
    path: Arc<str>,
}

impl Cookies {
    pub(crate) fn new(key: &[u8], is_secure: bool, base: &str) -> Self {
        Self {
            key: key.into(),
            is_secure,
            path: format!("{base}/ui").into(),
        }
    }

    /// The name of the session's cookie.
    pub(crate) fn name(&self) -> &'static str {
        if self.is_secure { SECURE_NAME } else { NAME }
    }

    /// The header that gives the browser a session.
    pub(crate) fn set(&self, session: &Session, now: u64) -> HeaderValue {
        let age = session.expires.saturating_sub(now);
        self.header(self.name(), &self.value(session), age)
    }

    /// The header that takes it away.
    pub(crate) fn clear(&self) -> HeaderValue {
        self.header(self.name(), "", 0)
    }

    /// The header that sets a cookie which only pages of ours get back, and no script reads.
    pub(crate) fn header(&self, name: &str, value: &str, age: u64) -> HeaderValue {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let path = &self.path;
        let text = format!(
            "{name}={value}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"
        );
        HeaderValue::try_from(text).expect("a cookie of ours is plain text")
    }

    /// The session of a request, if its cookie is ours and has not expired. Whether its token still counts is looked up
    /// elsewhere.
    pub(crate) fn read(&self, headers: &HeaderMap, now: u64) -> Option<Session> {
        let value = cookie_of(headers, self.name())?;
        if value.len() > VALUE_BYTES_MAX {
            return None;
        }
        let (text, signature) = value.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        self.mac(text.as_bytes()).verify_slice(&signature).ok()?;
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let session = parse(&text)?;
        (now < session.expires).then_some(session)
    }

    fn value(&self, session: &Session) -> String {
        let Session {
            name,
            hash,
            nonce,
            issued,
            expires,
        } = session;
        let text = format!("{VERSION} {issued} {expires} {nonce} {hash} {name}");
        let text = URL_SAFE_NO_PAD.encode(text);
        let signature = self.mac(text.as_bytes()).finalize().into_bytes();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn mac(&self, text: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::new_from_slice(&self.key).expect("a key may have any length");
        mac.update(b"ganger session\n");
        mac.update(text);
        mac
    }
}

fn parse(text: &str) -> Option<Session> {
    let mut words = text.splitn(6, ' ');
    if words.next()? != VERSION {
        return None;
    }
    Some(Session {
        issued: words.next()?.parse().ok()?,
        expires: words.next()?.parse().ok()?,
        nonce: Nonce::read(words.next()?)?,
        hash: Hash::read(words.next()?).ok()?,
        name: words.next()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header;

    fn session() -> Session {
        Session {
            name: "ci of mail".to_owned(),
            hash: Hash::of(b"secret"),
            nonce: Nonce([7; 16]),
            issued: 1_000,
            expires: 2_000,
        }
    }

    fn headers(cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookie.parse().expect("plain text"));
        headers
    }

    #[test]
    fn a_cookie_reads_back_until_it_expires() {
        let cookies = Cookies::new(b"key", false, "/ganger");
        let header = cookies.set(&session(), 1_500);
        let text = header.to_str().expect("text");
        assert!(
            text.ends_with("; Path=/ganger/ui; Max-Age=500; HttpOnly; SameSite=Strict"),
            "{text}"
        );
        assert!(!text.contains("secret"), "{text}");
        let pair = text.split(';').next().expect("a pair");
        assert_eq!(cookies.read(&headers(pair), 1_999), Some(session()));
        assert_eq!(cookies.read(&headers(pair), 2_000), None);
        let other = Cookies::new(b"other key", false, "/ganger");
        assert_eq!(other.read(&headers(pair), 1_500), None);
    }

    #[test]
    fn each_changed_byte_of_a_cookie_is_noticed() {
        let cookies = Cookies::new(b"key", true, "");
        let value = cookies.value(&session());
        let header = cookies.set(&session(), 1_500);
        assert!(header.to_str().expect("text").ends_with("; Secure"));
        for at in 0..value.len() {
            let mut changed = value.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            let read = cookies.read(&headers(&format!("{SECURE_NAME}={changed}")), 1_500);
            // The last digit of a group may have bits that no byte has.
            assert!(read.is_none() || read == Some(session()), "{at}");
        }
        let good = format!("{SECURE_NAME}={value}");
        assert_eq!(cookies.read(&headers(&good), 1_500), Some(session()));
        let plain = format!("{NAME}={value}");
        assert_eq!(cookies.read(&headers(&plain), 1_500), None);
    }
}
