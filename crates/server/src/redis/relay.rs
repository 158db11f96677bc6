//! Redis connections that pass from the node that a client is connected to, to the node that serves the shard.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures::future::BoxFuture;
use ganger_access::{BytesInProcess, Identity};
use ganger_dialect_http::Problem;
use ganger_dialect_resp::{Login, LoginError, Protocol, RelayedSession};
use ganger_router::Address;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_encode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::RedisPart;
use crate::byte_stream::writable_body;
use crate::home_ports::REDIS_CONNECTION;
use crate::listen::ConnectionIdentity;
use crate::port_handler::{PeerAddress, refuse};
use crate::security::Protocol as Port;
use crate::shard_dispatch::{OWNER_WAIT_MAX, ShardDispatch};

/// Header with the version of the protocol that the client chose, 2 or 3.
const PROTOCOL: HeaderName = HeaderName::from_static("ganger-redis-protocol");
/// Header with the name of the connection, percent-encoded; absent if it has none.
const NAME: HeaderName = HeaderName::from_static("ganger-redis-name");
/// Header with the address of the client.
const CLIENT: HeaderName = HeaderName::from_static("ganger-redis-client");

/// Opens a stream to the node that serves the default shard, over a connection of its own.
///
/// # Errors
/// If no node could be reached within a few seconds; the message is for the client.
pub(super) async fn dial(
    dispatcher: &ShardDispatch,
    from: SocketAddr,
    session: RelayedSession,
) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin, String> {
    let router = dispatcher.router();
    let until = Instant::now() + OWNER_WAIT_MAX;
    loop {
        wait_for_home(dispatcher, until).await?;
        let home = router.home();
        let (writer, body) = writable_body();
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(REDIS_CONNECTION);
        insert_session(request.headers_mut(), from, &session);
        dispatcher.add_forwarding_headers(request.headers_mut(), home, &session.identity);
        let answered = match router.link_alone(home) {
            Ok(link) => link.forward(home, request).await,
            Err(error) => Err(error),
        };
        let reason = match answered {
            Ok(response) if response.status() == StatusCode::OK => {
                return Ok(writer.with(Body::new(response.into_body())));
            }
            Ok(response) if response.status() != StatusCode::SERVICE_UNAVAILABLE => {
                let status = response.status();
                return Err(format!(
                    "the node that serves shard {home} refused with {status}: give all nodes the same settings"
                ));
            }
            Ok(_) => format!("shard {home} is moving to another node: try again"),
            Err(error) => error.to_string(),
        };
        if Instant::now() >= until {
            return Err(reason);
        }
        dispatcher.wait_to_retry(until).await;
    }
}

/// Waits until another node serves the default shard.
///
/// # Errors
/// If none does in time, or this node does now; the message is for the client.
async fn wait_for_home(dispatcher: &ShardDispatch, until: Instant) -> Result<(), String> {
    let router = dispatcher.router();
    let home = router.home();
    let address = || router.topology().address(home);
    let look = || {
        if router.handle(home).is_some() {
            let words = format!("this node has just taken shard {home} over: try again");
            return Some(Err(words));
        }
        match address() {
            Address::At(_) => Some(Ok(())),
            Address::Away(_) => None,
            Address::Closed(reason) => Some(Err(format!("shard {home} is closed: {reason}"))),
            Address::Unknown => Some(Err(router.unknown(home).to_string())),
        }
    };
    if let Some(found) = dispatcher.wait_for_owner(until, look).await {
        return found;
    }
    let reason = match address() {
        Address::Away(reason) => reason,
        _ => "it has just moved".to_owned(),
    };
    Err(format!(
        "shard {home} cannot be reached: {reason}; try again, nothing is lost"
    ))
}

fn insert_session(headers: &mut HeaderMap, from: SocketAddr, session: &RelayedSession) {
    let version = match session.protocol {
        Protocol::Two => "2",
        Protocol::Three => "3",
    };
    headers.insert(PROTOCOL, HeaderValue::from_static(version));
    let name = percent_encode(&session.name, NON_ALPHANUMERIC).to_string();
    for (header, text) in [(NAME, name), (CLIENT, from.to_string())] {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(header, value);
        }
    }
}

/// Returns the session of a connection that another node passes on, and the address of its client.
fn read_session(headers: &HeaderMap, caller: &Identity) -> Option<(SocketAddr, RelayedSession)> {
    let from = headers.get(CLIENT)?.to_str().ok()?.parse().ok()?;
    let protocol = match headers.get(PROTOCOL)?.as_bytes() {
        b"2" => Protocol::Two,
        b"3" => Protocol::Three,
        _ => return None,
    };
    let name = headers.get(NAME).map(HeaderValue::as_bytes);
    let name: Vec<u8> = percent_decode(name.unwrap_or_default()).collect();
    let session = RelayedSession {
        identity: caller.clone(),
        protocol,
        name: Bytes::from(name),
    };
    Some((from, session))
}

impl RedisPart {
    /// Serves a connection that another node passes on, in the bodies of its request and of the response.
    pub(super) fn answer_relayed(
        &self,
        request: Request<Body>,
        caller: &Identity,
    ) -> Response<Body> {
        let Some(port) = self.port() else {
            let problem = Problem::new("shard_unreachable", "the shard has moved: try again");
            return refuse(Port::Http, &problem);
        };
        let (head, body) = request.into_parts();
        let Some((from, session)) = read_session(&head.headers, caller) else {
            let words = "the headers of a Redis connection between nodes are missing or cannot be read: use one version of ganger on all nodes";
            return refuse(Port::Http, &Problem::new("invalid_value", words));
        };
        if let Some(kept) = head.extensions.get::<BytesInProcess>() {
            // The connection itself counts what it holds.
            kept.set(0);
        }
        let login = Arc::new(RelayedIdentity(ConnectionIdentity {
            security: Arc::clone(&self.security),
            certificate: None,
            from: PeerAddress(from),
        }));
        let (writer, answer) = writable_body();
        let stream = writer.with(body);
        let at = self.addr;
        // A separate task: a panic ends only this connection.
        tokio::spawn(self.scheduler.lane().scheduled(async move {
            port.serve_relayed(stream, login, from, at, session).await;
        }));
        Response::new(answer)
    }
}

/// Identifies a client that another node has identified. That node ends the connection when the client's credentials
/// end; only a token that the client sends later is checked here.
struct RelayedIdentity(ConnectionIdentity);

impl Login for RelayedIdentity {
    fn is_open(&self) -> bool {
        self.0.is_open()
    }

    fn stranger(&self) -> Identity {
        self.0.stranger()
    }

    fn login<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Identity, LoginError>> {
        self.0.login(token)
    }

    fn changes(&self) -> u64 {
        self.0.changes()
    }

    fn changed(&self, seen: u64) -> BoxFuture<'_, ()> {
        self.0.changed(seen)
    }

    fn is_unchanged(&self, token: Option<&[u8]>, identity: &Identity) -> bool {
        token.is_none() || self.0.is_unchanged(token, identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_passes_between_nodes() {
        let session = RelayedSession {
            identity: Identity::unchecked(),
            protocol: Protocol::Three,
            name: Bytes::from_static(b"mine \xff"),
        };
        let from = "127.0.0.1:5".parse().expect("an address");
        let mut headers = HeaderMap::new();
        insert_session(&mut headers, from, &session);
        let read = read_session(&headers, &Identity::unchecked());
        assert_eq!(read, Some((from, session)));
        headers.insert(PROTOCOL, HeaderValue::from_static("4"));
        assert_eq!(read_session(&headers, &Identity::unchecked()), None);
    }
}
