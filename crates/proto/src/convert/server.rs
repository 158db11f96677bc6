//! The server and its audit log: between messages and the documents of HTTP and the SDK.

use std::time::Duration;

use ganger_document::view::audit::{AuditLog, AuditRecord};
use ganger_document::view::server::{Server, ServerShard};

use super::{calendar, ms, non_empty, us};
use crate::v1;

impl From<Server> for v1::ServerView {
    fn from(server: Server) -> Self {
        Self {
            version: server.version,
            uptime_ms: ms(server.uptime),
            shards: server.shards.into_iter().map(Into::into).collect(),
            elsewhere: server.elsewhere,
            settings: server.settings.into_iter().collect(),
        }
    }
}

impl From<v1::ServerView> for Server {
    fn from(wire: v1::ServerView) -> Self {
        Self {
            version: wire.version,
            uptime: Duration::from_millis(wire.uptime_ms),
            shards: wire.shards.into_iter().map(Into::into).collect(),
            elsewhere: wire.elsewhere,
            settings: wire.settings.into_iter().collect(),
        }
    }
}

impl From<ServerShard> for v1::ServerShard {
    fn from(shard: ServerShard) -> Self {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self {
            shard: shard.shard,
            version: shard.version,
            health: shard.health,
            reason: shard.reason.unwrap_or_default(),
            uptime_ms: ms(shard.uptime),
            live_jobs: shard.live_jobs,
            commits_per_second: shard.commits_per_second,
            commit_p99_us: shard.commit_p99.map(micros),
            store_bytes: shard.store_bytes,
            disk_free_bytes: shard.disk_free_bytes,
            reserve_bytes: shard.reserve_bytes,
            durability: shard.durability.unwrap_or_default(),
        }
    }
}

impl From<v1::ServerShard> for ServerShard {
    fn from(wire: v1::ServerShard) -> Self {
        Self {
            shard: wire.shard,
            version: wire.version,
            health: wire.health,
            reason: non_empty(wire.reason),
            uptime: Duration::from_millis(wire.uptime_ms),
            live_jobs: wire.live_jobs,
            commits_per_second: wire.commits_per_second,
            commit_p99: wire.commit_p99_us.map(Duration::from_micros),
            store_bytes: wire.store_bytes,
            disk_free_bytes: wire.disk_free_bytes,
            reserve_bytes: wire.reserve_bytes,
            durability: non_empty(wire.durability),
        }
    }
}

impl From<AuditLog> for v1::ListAuditLogReply {
    fn from(page: AuditLog) -> Self {
        Self {
            records: page.records.into_iter().map(Into::into).collect(),
            next: page.next.unwrap_or_default(),
        }
    }
}

impl From<v1::ListAuditLogReply> for AuditLog {
    fn from(wire: v1::ListAuditLogReply) -> Self {
        Self {
            records: wire.records.into_iter().map(Into::into).collect(),
            next: non_empty(wire.next),
        }
    }
}

impl From<AuditRecord> for v1::AuditRecord {
    fn from(record: AuditRecord) -> Self {
        Self {
            at_us: us(record.at),
            who: record.who,
            what: record.what,
            on: record.on,
            namespace: record.namespace,
            from: record.from,
            outcome: record.outcome,
            detail: record.detail,
            via: record.via,
        }
    }
}

impl From<v1::AuditRecord> for AuditRecord {
    fn from(wire: v1::AuditRecord) -> Self {
        Self {
            at: calendar(wire.at_us),
            who: wire.who,
            what: wire.what,
            on: wire.on,
            namespace: wire.namespace,
            from: wire.from,
            outcome: wire.outcome,
            detail: wire.detail,
            via: wire.via,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_come_back_as_they_were() {
        let shard = ServerShard {
            shard: "1".to_owned(),
            version: "0.1.0".to_owned(),
            health: "full".to_owned(),
            reason: Some("the device is nearly full".to_owned()),
            uptime: Duration::from_millis(1_500),
            live_jobs: 7,
            commits_per_second: 0.5,
            commit_p99: Some(Duration::from_micros(1_250)),
            store_bytes: Some(1),
            disk_free_bytes: Some(2),
            reserve_bytes: 3,
            durability: Some("quorum".to_owned()),
        };
        let new = ServerShard {
            health: "ready".to_owned(),
            reason: None,
            commit_p99: None,
            store_bytes: None,
            disk_free_bytes: None,
            ..shard.clone()
        };
        let server = Server {
            version: "0.1.0".to_owned(),
            uptime: Duration::from_secs(2),
            shards: vec![shard, new],
            elsewhere: vec!["2".to_owned()],
            settings: [("listen".to_owned(), "127.0.0.1:1".to_owned())].into(),
        };
        let wire = v1::ServerView::from(server.clone());
        assert_eq!(Server::from(wire), server);
    }

    #[test]
    fn audit_logs_come_back_as_they_were() {
        let record = AuditRecord {
            at: calendar(1_790_000_000_000_001),
            who: "token \"ci\"".to_owned(),
            what: "cancelJob".to_owned(),
            on: Some("/api/v1/jobs/a/cancel".to_owned()),
            namespace: Some(String::new()),
            from: Some("127.0.0.1:2".to_owned()),
            outcome: "refused".to_owned(),
            detail: Some("job_ended".to_owned()),
            via: Some("ui".to_owned()),
        };
        let bare = AuditRecord {
            on: None,
            namespace: None,
            from: None,
            detail: None,
            via: None,
            ..record.clone()
        };
        let page = AuditLog {
            records: vec![record, bare],
            next: Some("7".to_owned()),
        };
        let wire = v1::ListAuditLogReply::from(page.clone());
        assert_eq!(AuditLog::from(wire), page);
    }
}
