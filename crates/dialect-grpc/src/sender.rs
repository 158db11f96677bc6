//! Where a request comes from and which program sends it, for lists of workers.

use ganger_shard::Handle;
use ganger_types::command::Lease;
use http::header::USER_AGENT;
use tonic::Request;

use crate::authorization::Peer;

/// The sender of a request.
pub(crate) struct Sender {
    /// Address that the request came from; empty if the server has not recorded it.
    address: String,
    /// Program and version, from the metadata `user-agent`; empty if the request has none that is text.
    version: String,
}

impl Sender {
    pub(crate) fn of<T>(request: &Request<T>) -> Self {
        let peer = request.extensions().get::<Peer>();
        let agent = request.metadata().get(USER_AGENT.as_str());
        let version = agent.and_then(|agent| agent.to_str().ok());
        Self {
            address: peer.map(|peer| peer.0.to_string()).unwrap_or_default(),
            version: version.unwrap_or_default().to_owned(),
        }
    }

    /// Records the sender for the worker that asks for jobs. A request without the name of a worker has nobody to record.
    pub(crate) fn introduce(&self, shard: &Handle, lease: &Lease) {
        let is_known = !self.address.is_empty() || !self.version.is_empty();
        if let Some(worker) = lease.worker.as_ref().filter(|_| is_known) {
            shard.introduce(&lease.namespace, worker, &self.address, &self.version);
        }
    }
}
