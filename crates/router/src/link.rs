//! Connections to other servers: one per shard, made at first use, and kept while its address stays.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ganger_types::ShardId;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderValue, Request, Response, header};
use tonic::transport::{Channel, Endpoint};

use crate::RouteError;

/// Makes connections to peers, with TLS and credentials.
pub trait Connector: Send + Sync + 'static {
    /// Returns the header `authorization` of a request; called for each one, so that a new token is used at once.
    /// `None` by default.
    fn authorization(&self) -> Option<HeaderValue> {
        None
    }

    /// Returns a channel that connects at first use.
    ///
    /// # Errors
    /// If the address cannot be used; the text says why.
    fn connect(&self, shard: &ShardId, address: &str) -> Result<Channel, String>;
}

/// Time after which a silent peer is pinged, and time that it has to respond.
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of connections that are kept.
const LINKS_MAX: usize = 1_024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Sets timeouts that detect an unreachable peer within [`crate::REACH_WITHIN`].
pub fn with_timeouts(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(PING_EVERY * 5))
}

/// Makes plain connections without credentials, for peers on loopback.
pub struct PlainConnector;

impl Connector for PlainConnector {
    fn connect(&self, _shard: &ShardId, address: &str) -> Result<Channel, String> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        Ok(with_timeouts(endpoint).connect_lazy())
    }
}

/// A connection to one shard, made at first use, with its credentials. Cheap to clone.
#[derive(Clone)]
pub struct Link {
    channel: Channel,
    connector: Arc<dyn Connector>,
}

impl Service<Request<Body>> for Link {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = <Channel as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<Body>>::poll_ready(&mut self.channel, cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(mut value) = self.connector.authorization() {
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        self.channel.call(request)
    }
}

pub(crate) struct Links {
    connector: Arc<dyn Connector>,
    made: Mutex<BTreeMap<ShardId, (String, Link)>>,
}

impl Links {
    pub(crate) fn new(connector: Arc<dyn Connector>) -> Self {
        Self {
            connector,
            made: Mutex::default(),
        }
    }

    pub(crate) fn link(&self, shard: &ShardId, address: &str) -> Result<Link, RouteError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, link)) = made.get(shard)
            && known == address
        {
            return Ok(link.clone());
        }
        let link = self.make(shard, address)?;
        // A DNS pattern accepts any id, so ids without a shard must not fill the memory.
        if made.len() < LINKS_MAX || made.contains_key(shard) {
            made.insert(shard.clone(), (address.to_owned(), link.clone()));
        }
        Ok(link)
    }

    /// Makes a new connection, which connects at first use.
    pub(crate) fn make(&self, shard: &ShardId, address: &str) -> Result<Link, RouteError> {
        let channel = self.connector.connect(shard, address);
        let channel = channel.map_err(|reason| RouteError::Unreachable {
            shard: shard.clone(),
            reason,
        })?;
        Ok(Link {
            channel,
            connector: Arc::clone(&self.connector),
        })
    }
}
