//! Conversion of tracked jobs, event filters, and the state of the server.

use std::time::Duration;

use ganger_proto::convert;
use ganger_proto::v1;

use super::at;
use crate::error::Error;
use crate::model::{EventFilter, Grant, QueueRates, ServerInfo, TrackedJob, WhoAmI};

impl TryFrom<v1::TrackedJob> for TrackedJob {
    type Error = Error;

    fn try_from(wire: v1::TrackedJob) -> Result<Self, Error> {
        Ok(Self {
            job: wire.job,
            since: at(wire.since_at_us),
            view: wire.view.map(convert::job).transpose()?,
        })
    }
}

impl From<v1::QueueRates> for QueueRates {
    fn from(wire: v1::QueueRates) -> Self {
        Self {
            enqueued: wire.enqueued,
            succeeded: wire.succeeded,
            failed: wire.failed,
            ended_by_minute: wire.ended_by_minute,
            run_p95: wire.run_p95_ms.map(Duration::from_millis),
        }
    }
}

impl From<v1::InfoReply> for ServerInfo {
    fn from(wire: v1::InfoReply) -> Self {
        Self {
            version: wire.version,
            shard: wire.shard,
            health: wire.health,
            reason: wire.reason,
            uptime: Duration::from_millis(wire.uptime_ms),
            draining: wire.draining,
            live_jobs: wire.live_jobs,
            shards: wire.shards,
        }
    }
}

impl From<v1::WhoAmIReply> for WhoAmI {
    fn from(wire: v1::WhoAmIReply) -> Self {
        let grants = wire.grants.into_iter().map(|grant| Grant {
            role: grant.role,
            namespace: grant.namespace,
        });
        Self {
            grants: grants.collect(),
            read_only: wire.read_only,
            who: wire.who,
            may: wire.may,
            expires_at: (wire.expires_at_us > 0).then(|| at(wire.expires_at_us)),
        }
    }
}

impl EventFilter {
    pub(crate) fn to_wire(&self, namespace: &str) -> v1::EventsRequest {
        v1::EventsRequest {
            namespace: namespace.to_owned(),
            after: self.after,
            jobs: self.jobs.clone(),
            queues: self.queues.clone(),
            moves_only: self.moves_only,
            every_ms: None,
        }
    }

    pub(crate) fn to_past(
        &self,
        namespace: String,
        before: Option<u64>,
        limit: u32,
    ) -> v1::PastEventsRequest {
        v1::PastEventsRequest {
            namespace,
            before,
            jobs: self.jobs.clone(),
            queues: self.queues.clone(),
            moves_only: self.moves_only,
            limit,
        }
    }
}
