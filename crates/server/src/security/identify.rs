//! Identifies the caller of a request by its credentials.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ganger_access::{CertificateNames, Grants, Hash, Identity, Outcome, Proof, Record};
use ganger_dialect_http::Problem;
use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;

use super::{ClientCertificate, Credentials, Protocol, Require, Security};
use crate::port_handler::PeerAddress;

/// A signed session of a page, which stands for the token that signed in.
#[derive(Clone, Debug)]
pub(crate) struct PageSession {
    /// Name of the token.
    pub(crate) name: String,
    /// Hash of its secret.
    pub(crate) hash: Hash,
}

/// A token, or what stands for one.
enum ShownToken<'a> {
    Bearer(&'a [u8]),
    Session(&'a PageSession),
}

/// The credentials of a request.
#[derive(Clone)]
pub(crate) struct PresentedCredentials {
    /// Certificate of the connection; `None` if it showed none.
    certificate: Option<Arc<ClientCertificate>>,
    /// Header with a token, marked as sensitive so that logs omit it; `None` if there is none.
    authorization: Option<HeaderValue>,
    /// Session of a request for a page; `None` for requests to APIs, which take no sessions.
    session: Option<PageSession>,
}

/// Name that a session has for the token without a name.
const SHARED_TOKEN: &str = "shared-token";

/// The reason why the caller cannot be identified.
enum IdentifyError {
    /// A required credential is missing; holds the message for the client.
    Missing(&'static str),
    /// The token is wrong.
    Wrong,
}

impl PresentedCredentials {
    pub(crate) fn of(headers: &HeaderMap, certificate: Option<Arc<ClientCertificate>>) -> Self {
        let mut authorization = headers.get(header::AUTHORIZATION).cloned();
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        Self {
            certificate,
            authorization,
            session: None,
        }
    }

    /// The credentials of a request for a page: browsers send no token, and a header with one does not count there.
    pub(crate) fn of_page(
        session: Option<PageSession>,
        certificate: Option<Arc<ClientCertificate>>,
    ) -> Self {
        Self {
            certificate,
            authorization: None,
            session,
        }
    }

    /// Whether there is neither a token nor a certificate.
    pub(crate) fn is_nothing(&self) -> bool {
        self.certificate.is_none() && self.authorization.is_none()
    }

    /// Creates the credentials of a connection whose protocol has no headers.
    #[cfg(feature = "redis")]
    pub(crate) fn with(token: Option<&[u8]>, certificate: Option<Arc<ClientCertificate>>) -> Self {
        let authorization = token.map(|token| {
            // A token that no header could contain is never valid.
            let value = HeaderValue::from_bytes(&[b"Bearer ", token].concat());
            let mut value = value.unwrap_or(HeaderValue::from_static("Bearer"));
            value.set_sensitive(true);
            value
        });
        Self {
            certificate,
            authorization,
            session: None,
        }
    }

    /// Whether the connection has a certificate.
    pub(super) fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    fn token(&self) -> Option<ShownToken<'_>> {
        if let Some(session) = &self.session {
            return Some(ShownToken::Session(session));
        }
        let value = self.authorization.as_ref()?.as_bytes();
        let at = value.iter().position(|byte| *byte == b' ');
        // Anything but a bearer token is a wrong token.
        let (scheme, token) = at.map_or((value, &b""[..]), |at| {
            (&value[..at], value[at..].trim_ascii())
        });
        let is_bearer = scheme.eq_ignore_ascii_case(b"bearer");
        Some(ShownToken::Bearer(if is_bearer { token } else { b"" }))
    }
}

impl Security {
    /// Identifies the caller. A wrong token is answered after a delay, and recorded in the audit log.
    pub(crate) async fn identify(
        &self,
        protocol: Protocol,
        shown: &PresentedCredentials,
        from: PeerAddress,
    ) -> Result<Identity, Problem> {
        match self.look_up(protocol, shown) {
            Ok(identity) => Ok(identity),
            Err(IdentifyError::Missing(what)) => Err(unauthorized(what)),
            Err(IdentifyError::Wrong) => Err(self.refuse_wrong(from).await),
        }
    }

    /// Identifies the caller if possible.
    pub(crate) fn known(
        &self,
        protocol: Protocol,
        shown: &PresentedCredentials,
    ) -> Option<Identity> {
        self.look_up(protocol, shown).ok()
    }

    /// Whether the same credentials still give the same identity.
    pub(crate) fn is_unchanged(
        &self,
        protocol: Protocol,
        shown: &PresentedCredentials,
        identity: &Identity,
    ) -> bool {
        self.look_up(protocol, shown)
            .is_ok_and(|now| now == *identity)
    }

    fn look_up(
        &self,
        protocol: Protocol,
        shown: &PresentedCredentials,
    ) -> Result<Identity, IdentifyError> {
        let current = self.current();
        let no_token = "a token is needed";
        let no_certificate = IdentifyError::Missing("a client certificate is needed");
        let by_certificate = |none| current.by_certificate(shown).unwrap_or(Err(none));
        let by_token = |token| current.by_shown(&token).ok_or(IdentifyError::Wrong);
        match (self.require(protocol), shown.token()) {
            (Require::Nothing, _) => Ok(Identity::unchecked()),
            (Require::Token, None) => Err(IdentifyError::Missing(no_token)),
            (Require::ClientCert, _) => by_certificate(no_certificate),
            (Require::Either, None) => by_certificate(IdentifyError::Missing(
                "a token or a client certificate is needed",
            )),
            (Require::Both, None) => Err(IdentifyError::Missing(
                "a token is needed beside the client certificate",
            )),
            (Require::Token | Require::Either, Some(token)) => {
                let known = by_token(token)?;
                Ok(peer(by_certificate(no_certificate).ok()).unwrap_or(known))
            }
            (Require::Both, Some(token)) => {
                let certified = by_certificate(no_certificate)?;
                let known = by_token(token)?;
                Ok(peer(Some(certified)).unwrap_or(known))
            }
        }
    }

    async fn refuse_wrong(&self, from: PeerAddress) -> Problem {
        self.logins_failed.fetch_add(1, Ordering::Relaxed);
        let address = from.0.ip();
        let delay = self.attempts.failed(address, Instant::now());
        let Some(delay) = delay else {
            let detail =
                "too many wrong tokens came from this address: correct the token, then try again";
            return Problem::new("too_many_attempts", detail)
                .retry_after(std::time::Duration::from_secs(15));
        };
        // Tokens refused unchecked are only counted, in the metric.
        self.audit.write(&Record {
            from: Some(from.0),
            detail: Some("wrong token".to_owned()),
            ..Record::new(Identity::Anonymous.to_string(), "login", Outcome::Denied)
        });
        tokio::time::sleep(delay).await;
        self.attempts.answered(address);
        unauthorized("the token is not the right one, or has expired or been revoked")
    }
}

#[cfg(feature = "dashboard")]
impl Security {
    /// Identifies the holder of a token that a form has sent; `None` if the token is wrong.
    pub(crate) fn accept(&self, token: &[u8]) -> Option<(Identity, PageSession)> {
        let identity = self.current().by_token(token)?;
        let name = match &identity {
            Identity::Principal(who) if who.proof == Proof::Token => who.name.clone(),
            _ => SHARED_TOKEN.to_owned(),
        };
        let hash = Hash::of(token);
        Some((identity, PageSession { name, hash }))
    }

    /// Answers a wrong token of a form as one of a header is answered.
    pub(crate) async fn refuse_token(&self, from: std::net::SocketAddr) -> Problem {
        self.refuse_wrong(PeerAddress(from)).await
    }
}

impl Credentials {
    fn by_shown(&self, shown: &ShownToken<'_>) -> Option<Identity> {
        match shown {
            ShownToken::Bearer(token) => self.by_token(token),
            ShownToken::Session(session) => self.by_session(session),
        }
    }

    /// Returns the identity of the token behind a session, with the rights that it has now.
    fn by_session(&self, session: &PageSession) -> Option<Identity> {
        let shared = self.shared_token.as_ref();
        if session.name == SHARED_TOKEN && shared.is_some_and(|it| it.hash() == session.hash) {
            return Some(Identity::shared_token());
        }
        let access = self.access.as_ref()?;
        access.token_with(&session.name, &session.hash, Timestamp::now())
    }

    fn by_token(&self, token: &[u8]) -> Option<Identity> {
        if self
            .shared_token
            .as_ref()
            .is_some_and(|shared| shared.is(token))
        {
            return Some(Identity::shared_token());
        }
        self.access.as_ref()?.token(token, Timestamp::now())
    }

    /// Identifies the caller by certificate; `None` without one.
    fn by_certificate(
        &self,
        shown: &PresentedCredentials,
    ) -> Option<Result<Identity, IdentifyError>> {
        let certificate = shown.certificate.as_deref()?;
        let is_good = self
            .tls
            .as_ref()
            .is_some_and(|tls| certificate.is_good(tls));
        Some(if is_good {
            Ok(self.certified(certificate.names()))
        } else {
            Err(IdentifyError::Missing(
                "the client certificate has expired, or was revoked, since this connection began",
            ))
        })
    }

    fn certified(&self, names: &CertificateNames) -> Identity {
        let cluster = self.cluster.as_deref();
        if let Some(name) = cluster.filter(|name| names.clusters.iter().any(|it| it == name)) {
            return Identity::node(name);
        }
        if !names.shards.is_empty() {
            return Identity::peer(&names.shards);
        }
        let name = names.common_name.clone().unwrap_or_default();
        let Some(access) = &self.access else {
            // Only the authority of clients is required.
            return Identity::principal(name, Grants::everything(), Proof::Certificate);
        };
        let listed = access.certificate(names, Timestamp::now());
        // An unlisted certificate is identified but has no rights: the refusal names its holder.
        listed.unwrap_or_else(|| Identity::principal(name, Grants::default(), Proof::Certificate))
    }
}

/// Returns the peer: a certificate of a peer takes precedence over any token.
fn peer(certified: Option<Identity>) -> Option<Identity> {
    certified.filter(Identity::is_server)
}

fn unauthorized(fault: &str) -> Problem {
    Problem::new(
        "unauthorized",
        format!(
            "{fault}: send a token as the header `Authorization: Bearer TOKEN` (the command line reads GANGER_TOKEN or GANGER_TOKEN_FILE), a certificate with --client-cert and --client-key"
        ),
    )
}
