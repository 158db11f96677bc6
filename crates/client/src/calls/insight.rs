//! Calls that read failures, statistics, workers, tags, tracked jobs and the server's state.

use std::time::SystemTime;

use ganger_proto::v1;
use ganger_types::import::ImportOutcome;

use super::jobs::call;
use crate::Client;
use ganger_proto::convert;

use crate::convert::{imported, us};
use crate::error::Error;
use crate::model::{
    Alert, AttentionItem, FailureGroup, ImportRecord, Listed, PeerView, QueueRates, ServerInfo,
    Statistics, TrackedJob, WaitingMessage, WhoAmI, Worker,
};

impl Client {
    fn insight_request(&self) -> v1::InsightRequest {
        v1::InsightRequest {
            namespace: self.namespace(),
        }
    }

    /// Returns the failure groups, each with the number of failed jobs that are kept.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn failure_groups(&self) -> Result<Vec<(String, u64)>, Error> {
        let groups = self.list_failure_groups().await?.entries.into_iter();
        Ok(groups.map(|group| (group.group, group.jobs)).collect())
    }

    /// Returns the failure groups with their numbers of jobs, times, and a message, the last failure first: of the shard of this client, or of all shards
    /// ([`Client::at_all_shards`]), where a group has an entry for each shard that has jobs of it.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn list_failure_groups(&self) -> Result<Listed<FailureGroup>, Error> {
        let request = self.insight_request();
        let reply = call!(self, Safe, insight_wire.failure_groups(request))?;
        Ok(Listed {
            entries: reply.groups.into_iter().map(Into::into).collect(),
            unreachable: reply.unreachable,
        })
    }

    /// Returns what needs attention in the namespace and on all shards, the worst first.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn attention(&self) -> Result<Vec<AttentionItem>, Error> {
        let request = v1::AttentionRequest {
            namespace: self.namespace(),
            here_only: false,
            namespace_only: false,
        };
        let reply = call!(self, Safe, insight_wire.attention(request.clone()))?;
        Ok(reply.items.into_iter().map(Into::into).collect())
    }

    /// Returns the alerts of the server's configuration with their states.
    ///
    /// # Errors
    /// If the caller may not see the whole server, or it cannot be reached.
    pub async fn alerts(&self) -> Result<Vec<Alert>, Error> {
        let reply = call!(self, Safe, admin_wire.list_alerts(v1::ListAlertsRequest {}))?;
        Ok(reply.alerts.into_iter().map(Into::into).collect())
    }

    /// Sends a test message to the webhook of an alert. Returns the job of the message, as `shard/id`, which is in the
    /// namespace `ganger`: its end tells what the receiver answered.
    ///
    /// # Errors
    /// `alert_not_found` or `alert_without_webhook` if there is nothing to test, or if the server cannot be reached.
    pub async fn test_alert(&self, alert: &str) -> Result<String, Error> {
        let request = v1::TestAlertRequest {
            alert: alert.to_owned(),
        };
        Ok(call!(
            self,
            IfNothingChanged,
            admin_wire.test_alert(request.clone())
        )?
        .job)
    }

    /// Returns how fast all queues of the shard together fill and empty, and the same of each of the named ones, at
    /// most 200, in the order of the names.
    ///
    /// # Errors
    /// If there are too many names, or the server cannot be reached.
    pub async fn rates(&self, queues: &[String]) -> Result<(QueueRates, Vec<QueueRates>), Error> {
        let request = v1::RatesRequest {
            namespace: self.namespace(),
            queues: queues.to_vec(),
        };
        let reply = call!(self, Safe, insight_wire.rates(request.clone()))?;
        let each = reply.queues.into_iter().map(Into::into);
        let total = reply.total.unwrap_or_default();
        Ok((total.into(), each.collect()))
    }

    /// Returns the statistics of a queue on the day (UTC) that contains `day`, or today if `None`.
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

    /// Returns all known workers with the jobs that they hold.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn workers(&self) -> Result<Vec<Worker>, Error> {
        Ok(self.list_workers().await?.entries)
    }

    /// Returns all known workers: of the shard of this client, or of all shards ([`Client::at_all_shards`]), where a worker
    /// has an entry for each shard that it asks.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn list_workers(&self) -> Result<Listed<Worker>, Error> {
        let reply = call!(self, Safe, insight_wire.workers(self.insight_request()))?;
        Ok(Listed {
            entries: reply.workers.into_iter().map(Into::into).collect(),
            unreachable: reply.unreachable,
        })
    }

    /// Returns tags with their numbers of jobs, the most used first: skips `skip` tags, returns at most `limit` (100 if
    /// 0).
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

    /// Returns all tracked jobs.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn tracked(&self) -> Result<Vec<TrackedJob>, Error> {
        let reply = call!(self, Safe, insight_wire.tracked(self.insight_request()))?;
        reply.tracked.into_iter().map(TryInto::try_into).collect()
    }

    /// Returns who the caller is, and what it may do in the namespace.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn whoami(&self) -> Result<WhoAmI, Error> {
        let request = v1::WhoAmIRequest {
            namespace: self.namespace(),
        };
        Ok(call!(self, Safe, admin_wire.who_am_i(request.clone()))?.into())
    }

    /// Returns version, shard and health of the server.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn info(&self) -> Result<ServerInfo, Error> {
        Ok(call!(self, Safe, admin_wire.info(v1::InfoRequest {}))?.into())
    }

    /// Returns the name of the shard (that of [`Client::at_shard`], if set) and its state of exchange with every other
    /// shard.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn peers(&self) -> Result<(String, Vec<PeerView>), Error> {
        let reply = call!(self, Safe, admin_wire.list_peers(v1::ListPeersRequest {}))?;
        let peers = reply.peers.into_iter().map(Into::into);
        Ok((reply.shard, peers.collect()))
    }

    /// Returns messages that wait for the shard `peer`, from number `after` + 1 on; at most `limit`, and at most 1,000.
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

    /// Resumes the exchange with a shard that was stopped because one of the two stores went back in time.
    ///
    /// # Errors
    /// `peer_not_stopped` if the exchange is not stopped, or if the server cannot be reached.
    pub async fn reconcile(&self, peer: &str) -> Result<(), Error> {
        let request = v1::ReconcilePeerRequest {
            peer: peer.to_owned(),
        };
        call!(self, Safe, admin_wire.reconcile_peer(request.clone()))?;
        Ok(())
    }

    /// Imports up to 1,000 records of another system into a namespace; returns the outcome of each. A record that was
    /// imported within the last seven days is skipped, even if the job has ended or was deleted since.
    ///
    /// # Errors
    /// If there are too many records, a record is not a valid request, or the caller is not an admin of the namespace.
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

    /// Makes the server recompute all of its indexes; returns the differences found, none if the state is consistent.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn audit(&self) -> Result<Vec<String>, Error> {
        Ok(call!(self, Safe, admin_wire.audit(v1::AuditRequest {}))?.findings)
    }
}
