//! Failures, statistics, workers, tags, tracked jobs, the server itself.

use std::time::SystemTime;

use ganger_proto::v1;
use ganger_types::import::ImportOutcome;

use super::jobs::call;
use crate::Client;
use ganger_proto::convert;

use crate::convert::{imported, us};
use crate::error::Error;
use crate::model::{
    ImportRecord, PeerView, ServerInfo, Statistics, TrackedJob, WaitingMessage, Worker,
};

impl Client {
    fn here(&self) -> v1::InsightRequest {
        v1::InsightRequest {
            namespace: self.namespace(),
        }
    }

    /// Failure groups with the number of kept jobs in each.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn failure_groups(&self) -> Result<Vec<(String, u64)>, Error> {
        let reply = call!(self, Safe, insight_wire.failure_groups(self.here()))?;
        Ok(reply
            .groups
            .into_iter()
            .map(|group| (group.group, group.jobs))
            .collect())
    }

    /// Statistics of a queue on the day (UTC) that contains `day`; `None`: today.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn statistics(
        &self,
        queue: &str,
        day: Option<SystemTime>,
    ) -> Result<Statistics, Error> {
        let request = v1::StatisticsRequest {
            namespace: self.namespace(),
            queue: queue.to_owned(),
            day_at_us: day.map(us).unwrap_or_default(),
        };
        let reply = call!(self, Safe, insight_wire.statistics(request))?;
        let queue = if queue.is_empty() { "default" } else { queue };
        Ok(convert::statistics(queue, reply)?)
    }

    /// All workers seen, with what they hold.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn workers(&self) -> Result<Vec<Worker>, Error> {
        let reply = call!(self, Safe, insight_wire.workers(self.here()))?;
        Ok(reply.workers.into_iter().map(Into::into).collect())
    }

    /// The most used tags, most used first: skips `skip`, takes `limit` (0: 100).
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn tags(&self, skip: u32, limit: u32) -> Result<Vec<(String, u64)>, Error> {
        let request = v1::TagsRequest {
            namespace: self.namespace(),
            skip,
            limit,
        };
        let reply = call!(self, Safe, insight_wire.tags(request))?;
        Ok(reply
            .tags
            .into_iter()
            .map(|tag| (tag.tag, tag.jobs))
            .collect())
    }

    /// Tracked jobs.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn tracked(&self) -> Result<Vec<TrackedJob>, Error> {
        let reply = call!(self, Safe, insight_wire.tracked(self.here()))?;
        reply.tracked.into_iter().map(TryInto::try_into).collect()
    }

    /// The server: version, shard, health.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub async fn info(&self) -> Result<ServerInfo, Error> {
        Ok(call!(self, Safe, admin_wire.info(v1::InfoRequest {}))?.into())
    }

    /// What a shard knows of others, and what waits for them; of the shard of [`Client::at_shard`].
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn peers(&self) -> Result<(String, Vec<PeerView>), Error> {
        let reply = call!(self, Safe, admin_wire.list_peers(v1::ListPeersRequest {}))?;
        let peers = reply.peers.into_iter().map(Into::into);
        Ok((reply.shard, peers.collect()))
    }

    /// Messages that wait for a shard, after the one of this number; at most `limit`, or 1,000.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn outbox(
        &self,
        peer: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<WaitingMessage>, Error> {
        let request = v1::ListOutboxRequest {
            peer: peer.to_owned(),
            after,
            limit,
        };
        let reply = call!(self, Safe, admin_wire.list_outbox(request.clone()))?;
        Ok(reply.messages.into_iter().map(Into::into).collect())
    }

    /// Takes traffic with a shard up again after one of the two went back in time.
    ///
    /// # Errors
    /// `peer_not_stopped` if it is not stopped; or if the server cannot be reached.
    pub async fn reconcile(&self, peer: &str) -> Result<(), Error> {
        let request = v1::ReconcilePeerRequest {
            peer: peer.to_owned(),
        };
        call!(self, Safe, admin_wire.reconcile_peer(request.clone()))?;
        Ok(())
    }

    /// Takes records of another server over into a namespace, up to 1,000 in a call: what became of each. A record that
    /// was taken over before, within seven days, is skipped, whatever has become of it since.
    ///
    /// # Errors
    /// If there are too many records, or a record is no valid request, or the caller is no admin of the namespace.
    pub async fn import(
        &self,
        namespace: &str,
        records: Vec<ImportRecord>,
    ) -> Result<Vec<ImportOutcome>, Error> {
        let request = v1::ImportRequest {
            namespace: namespace.to_owned(),
            records: records.into_iter().map(Into::into).collect(),
        };
        let reply = call!(self, Safe, admin_wire.import(request))?;
        Ok(reply.records.into_iter().map(imported).collect())
    }

    /// Recomputes every index of the server and compares: what disagrees; empty is good.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn audit(&self) -> Result<Vec<String>, Error> {
        Ok(call!(self, Safe, admin_wire.audit(v1::AuditRequest {}))?.findings)
    }
}
