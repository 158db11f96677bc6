//! Ports over the default shard, such as that for Redis clients, while another node of the cluster serves the shard:
//! requests and connections are passed on to the main port of that node, and answered there.

use std::sync::Arc;

use axum::body::Body;
use futures::future::BoxFuture;
use ganger_access::Identity;
use ganger_dialect_http::Problem;
use ganger_shard::Handle;
use http::{HeaderValue, Request, Response, Uri, uri};

use crate::port_handler::refuse;
use crate::security::Protocol;
use crate::shard_dispatch::{ForPort, SHARD, ShardDispatch};

/// Path prefix of what a node passes on to another one; the name of the port's feature follows.
const PREFIX: &str = "/peer/";
/// Path of a Redis connection that a node passes on.
pub(crate) const REDIS_CONNECTION: &str = "/peer/redis";

/// A port over the default shard.
pub(crate) trait HomePort: Send + Sync {
    /// Returns the name of the port's feature.
    fn feature(&self) -> &'static str;

    /// Serves the shard from now on: it is here.
    fn begin(&self, shard: &Handle);

    /// Ends serving the shard: its connections end, each after the replies that are pending.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "no shard moves")
    )]
    fn end(&self);

    /// Answers a request that another node has passed on; the shard is here.
    fn answer<'a>(
        &'a self,
        request: Request<Body>,
        caller: &'a Identity,
    ) -> BoxFuture<'a, Response<Body>>;
}

/// All ports over the default shard.
pub(crate) type HomePorts = Vec<Arc<dyn HomePort>>;

/// Whether a path is that of something which a node passes on to a port over the default shard.
pub(crate) fn is_for_port(path: &str) -> bool {
    path.starts_with(PREFIX)
}

impl ShardDispatch {
    /// Lets the ports serve a shard that is here now, if it is the default shard.
    pub(crate) fn begin_ports(&self, shard: &Handle) {
        if shard.id() == self.router().home() {
            self.ports().iter().for_each(|port| port.begin(shard));
        }
    }

    /// Lets the ports end serving a shard, if it is the default shard.
    #[cfg(feature = "postgres")]
    pub(crate) fn end_ports(&self, shard: &ganger_types::ShardId) {
        if shard == self.router().home() {
            self.ports().iter().for_each(|port| port.end());
        }
    }

    /// Answers what another node has passed on to a port over the default shard, which is here.
    pub(crate) async fn answer_port(
        &self,
        mut request: Request<Body>,
        caller: &Identity,
    ) -> Response<Body> {
        let path = request.uri().path().trim_start_matches(PREFIX);
        let feature = path.split('/').next().unwrap_or_default();
        let port = self.ports().iter().find(|port| port.feature() == feature);
        let Some(port) = port else {
            let words = format!(
                "this node does not serve clients of {feature}: give all nodes the same settings of this port"
            );
            return refuse(Protocol::Http, &Problem::new("not_found", words));
        };
        let prefix = format!("{PREFIX}{feature}");
        *request.uri_mut() = rewritten(request.uri(), |path| {
            path.strip_prefix(&prefix).unwrap_or(path).to_owned()
        });
        port.answer(request, caller).await
    }

    /// Passes a request of a port on to the node that serves the default shard, as soon as one does.
    #[cfg_attr(
        not(feature = "quantumleap"),
        expect(dead_code, reason = "its port alone does so")
    )]
    pub(crate) async fn forward_to_home(
        &self,
        feature: &str,
        mut request: Request<Body>,
        caller: &Identity,
    ) -> Response<Body> {
        *request.uri_mut() = rewritten(request.uri(), |path| format!("{PREFIX}{feature}{path}"));
        let home = self.router().home().as_str();
        if let Ok(home) = HeaderValue::from_str(home) {
            request.headers_mut().insert(SHARD, home);
        }
        request.extensions_mut().insert(ForPort);
        self.answer_at_shard(Protocol::Http, request, caller.clone())
            .await
    }
}

/// Returns an address with another path, and the same query.
fn rewritten(uri: &Uri, path: impl FnOnce(&str) -> String) -> Uri {
    let path = path(uri.path());
    let query = uri.query().map(|query| format!("?{query}"));
    let whole = format!("{path}{}", query.unwrap_or_default());
    let mut parts = uri::Parts::default();
    parts.path_and_query = whole.parse().ok();
    Uri::from_parts(parts).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_query_on_the_way_between_nodes() {
        let uri: Uri = "/v2/entities?type=Room&limit=1"
            .parse()
            .expect("an address");
        let there = rewritten(&uri, |path| format!("{PREFIX}quantumleap{path}"));
        assert_eq!(there, "/peer/quantumleap/v2/entities?type=Room&limit=1");
        assert!(is_for_port(there.path()) && !is_for_port(uri.path()));
        let back = rewritten(&there, |path| {
            path.strip_prefix("/peer/quantumleap")
                .unwrap_or(path)
                .to_owned()
        });
        assert_eq!(back, uri);
    }
}
