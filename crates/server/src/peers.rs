//! Connections to other servers: encrypted if this server is, with its own certificate and token.

use std::sync::Arc;

use ganger_router::{Connector, with_timeouts};
use ganger_tls::Trust;
use ganger_types::ShardId;
use http::HeaderValue;
use tonic::transport::{Channel, Endpoint};

use crate::config::Config;
use crate::error::StartError;
use crate::security::Security;

/// Makes connections to other servers.
pub(crate) struct PeerConnector {
    security: Arc<Security>,
    /// `None` if connections are plain.
    tls: Option<ganger_tls::Connector>,
}

impl PeerConnector {
    /// # Errors
    /// If the certificates cannot be used for this.
    pub(crate) fn new(config: &Config, security: Arc<Security>) -> Result<Self, StartError> {
        let tls = &config.tls;
        let trust = security.is_encrypted().then(|| Trust {
            ca: tls.peer_ca.clone().or_else(|| tls.client_ca.clone()),
            certificate: tls.cert.clone(),
            key: tls.key.clone(),
        });
        if let (Some(trust), false) = (&trust, config.topology.is_alone()) {
            trust.check()?;
        }
        let cluster = config.cluster();
        let tls = trust.map(|trust| {
            let connector = ganger_tls::Connector::new(trust);
            match cluster {
                Some(name) => connector.or_cluster(name),
                None => connector,
            }
        });
        Ok(Self { security, tls })
    }
}

impl Connector for PeerConnector {
    fn authorization(&self) -> Option<HeaderValue> {
        self.security.peer_authorization()
    }

    fn connect(&self, shard: &ShardId, address: &str) -> Result<Channel, String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"));
        let endpoint = with_timeouts(endpoint.map_err(|error| error.to_string())?);
        Ok(match &self.tls {
            None => endpoint.connect_lazy(),
            Some(tls) => {
                let tls = tls.clone().expecting_shard(shard.as_str());
                endpoint.connect_with_connector_lazy(tls)
            }
        })
    }
}
