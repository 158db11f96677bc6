//! The server itself.

use ganger_proto::v1;
use ganger_proto::v1::admin_server::Admin;
use ganger_shard::Health;
use ganger_types::Reply;
use ganger_types::query::Query;
use tonic::{Request, Response, Status};

use super::reply_as;
use crate::Face;
use crate::outward;

#[tonic::async_trait]
impl Admin for Face {
    async fn info(&self, _: Request<v1::InfoRequest>) -> Result<Response<v1::InfoReply>, Status> {
        let (health, reason) = match self.handle.health() {
            Health::Ready => ("ready", String::new()),
            Health::Starting { jobs } => ("starting", format!("{jobs} jobs are read so far")),
            Health::Full => (
                "full",
                "the store's device is nearly full: no new work is taken".into(),
            ),
            Health::Stopped { reason } => ("stopped", reason),
        };
        let gauges = self.handle.metrics().gauges;
        let live_jobs = gauges
            .iter()
            .find(|(name, _)| *name == "live_jobs")
            .map_or(0, |(_, value)| *value);
        Ok(Response::new(v1::InfoReply {
            version: self.options.version.clone(),
            shard: self.handle.id().to_string(),
            health: health.to_owned(),
            reason,
            uptime_ms: outward::ms(self.options.started_at.elapsed()),
            draining: *self.options.draining.borrow(),
            live_jobs,
        }))
    }

    async fn audit(
        &self,
        _: Request<v1::AuditRequest>,
    ) -> Result<Response<v1::AuditReply>, Status> {
        let reply = self.ask(Query::Audit).await?;
        let findings = reply_as!(reply, Reply::Audit(findings) => findings)?;
        Ok(Response::new(v1::AuditReply { findings }))
    }
}
