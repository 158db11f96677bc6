//! The server itself.

use std::sync::Arc;

use ganger_access::{Identity, Operation, Right};
use ganger_attention::NotTested;
use ganger_document::view::audit::{AuditLog, AuditRecord};
use ganger_proto::v1::admin_server::Admin;
use ganger_proto::{convert, v1};
use ganger_router::{PeerState, nodes_document, server_document, shards_document};
use ganger_shard::Health;
use ganger_types::audit::AuditQuery;
use ganger_types::command::Reconcile;
use ganger_types::limits::PAGE_AUDIT_MAX;
use ganger_types::query::Query;
use ganger_types::reply::PeerView;
use ganger_types::{Command, ImportOutcome, Reply, ShardId};
use tonic::{Request, Response, Status};

use super::reply_as;
use crate::authorization;
use crate::decode::At;
use crate::problem::Problem;
use crate::{ServiceContext, decode, encode};

/// Default number of messages in one answer.
const OUTBOX_MESSAGES: usize = 100;
const OUTBOX_MESSAGES_MAX: usize = 1_000;
/// Default number of records of the audit log in one answer.
const AUDIT_RECORDS: u32 = 100;
/// How an action of the audit log can have ended.
const AUDIT_OUTCOMES: [&str; 3] = ["done", "refused", "denied"];

#[tonic::async_trait]
impl Admin for ServiceContext {
    async fn info(&self, _: Request<v1::InfoRequest>) -> Result<Response<v1::InfoReply>, Status> {
        let (health, reason) = match self.handle.health() {
            Health::Ready => ("ready", String::new()),
            Health::Starting { jobs } => ("starting", format!("{jobs} jobs are read so far")),
            Health::Full => (
                "full",
                "the store's device is nearly full: no new work is taken".into(),
            ),
            Health::Unreachable { reason } => ("unreachable", reason),
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
            uptime_ms: encode::ms(self.options.started_at.elapsed()),
            draining: *self.options.draining.borrow(),
            live_jobs,
            shards: self.known_shards(),
        }))
    }

    async fn who_am_i(
        &self,
        request: Request<v1::WhoAmIRequest>,
    ) -> Result<Response<v1::WhoAmIReply>, Status> {
        let namespace = decode::namespace(&request.get_ref().namespace)?;
        let identity = authorization::identity();
        let verbs = [
            ("observe", Right::OBSERVE),
            ("submit", Right::SUBMIT),
            ("cancel", Right::CANCEL),
            ("work", Right::WORK),
            ("operate", Right::OPERATE),
            ("govern", Right::GOVERN),
        ];
        let may = verbs.into_iter().filter(|(word, right)| {
            let operation = Operation::new(word, *right);
            identity.may(operation, Some(namespace.as_bytes())).is_ok()
        });
        let (grants, read_only) = grants(&identity);
        Ok(Response::new(v1::WhoAmIReply {
            who: identity.to_string(),
            may: may.map(|(word, _)| word.to_owned()).collect(),
            expires_at_us: expires_at_us(&identity),
            grants,
            read_only,
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

    async fn get_server(
        &self,
        _: Request<v1::GetServerRequest>,
    ) -> Result<Response<v1::ServerView>, Status> {
        let options = &self.options;
        let shards = match &options.shards {
            None => Arc::new([self.handle.clone()]),
            Some(shards) => shards.now(),
        };
        let server = server_document(
            &options.version,
            options.started_at,
            &shards,
            options.router.as_ref(),
            options.shown_settings.clone(),
        );
        Ok(Response::new(server.into()))
    }

    async fn list_nodes(
        &self,
        _: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesReply>, Status> {
        let list = nodes_document(self.options.router.as_ref());
        Ok(Response::new(list.into()))
    }

    async fn list_shards(
        &self,
        _: Request<v1::ListShardsRequest>,
    ) -> Result<Response<v1::ListShardsReply>, Status> {
        let list = shards_document(self.options.router.as_ref());
        Ok(Response::new(list.into()))
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeReply>, Status> {
        self.set_draining(&request.get_ref().node, true).await?;
        Ok(Response::new(v1::DrainNodeReply {}))
    }

    async fn resume_node(
        &self,
        request: Request<v1::ResumeNodeRequest>,
    ) -> Result<Response<v1::ResumeNodeReply>, Status> {
        self.set_draining(&request.get_ref().node, false).await?;
        Ok(Response::new(v1::ResumeNodeReply {}))
    }

    async fn move_shard(
        &self,
        request: Request<v1::MoveShardRequest>,
    ) -> Result<Response<v1::MoveShardReply>, Status> {
        let request = request.get_ref();
        let shard = ShardId::new(&request.shard)
            .ok_or_else(|| Problem::invalid(At::top("shard"), "is not the name of a shard"))?;
        let moved =
            ganger_router::move_shard(self.options.router.as_ref(), &shard, &request.node).await;
        moved.map_err(Problem::from)?;
        Ok(Response::new(v1::MoveShardReply {}))
    }

    async fn list_audit_log(
        &self,
        request: Request<v1::ListAuditLogRequest>,
    ) -> Result<Response<v1::ListAuditLogReply>, Status> {
        let query = audit_query(request.into_inner())?;
        let reply = self.ask(Query::AuditLog(query)).await?;
        let (records, next) = reply_as!(reply, Reply::AuditLog(records, next) => (records, next))?;
        let page = AuditLog {
            records: records.into_iter().map(AuditRecord::from).collect(),
            next: next.map(|number| number.to_string()),
        };
        Ok(Response::new(page.into()))
    }

    async fn list_alerts(
        &self,
        _: Request<v1::ListAlertsRequest>,
    ) -> Result<Response<v1::ListAlertsReply>, Status> {
        let alerts = self.attention.alerts().documents();
        Ok(Response::new(v1::ListAlertsReply {
            alerts: alerts.iter().map(Into::into).collect(),
        }))
    }

    async fn test_alert(
        &self,
        request: Request<v1::TestAlertRequest>,
    ) -> Result<Response<v1::TestAlertReply>, Status> {
        let name = &request.get_ref().alert;
        authorization::note(|| format!("alert {}", name.escape_debug()));
        let job = self.attention.test_alert(name).await;
        let job = job.map_err(|error| match error {
            NotTested::NotStored(error) => Problem::from(error),
            error => Problem::new(error.code(), error.to_string()),
        })?;
        Ok(Response::new(v1::TestAlertReply {
            job: format!("{}/{}", job.shard, job.id.to_text()),
        }))
    }

    async fn list_peers(
        &self,
        _: Request<v1::ListPeersRequest>,
    ) -> Result<Response<v1::ListPeersReply>, Status> {
        let peers = match &self.options.router {
            Some(router) => router.peers(&self.handle).await.map_err(Problem::from)?,
            None => Vec::new(),
        };
        Ok(Response::new(v1::ListPeersReply {
            shard: self.handle.id().to_string(),
            peers: peers.into_iter().map(peer).collect(),
        }))
    }

    async fn list_outbox(
        &self,
        request: Request<v1::ListOutboxRequest>,
    ) -> Result<Response<v1::ListOutboxReply>, Status> {
        let request = request.into_inner();
        let limit = match usize::try_from(request.limit).unwrap_or(usize::MAX) {
            0 => OUTBOX_MESSAGES,
            limit => limit.min(OUTBOX_MESSAGES_MAX),
        };
        let query = Query::Outbox(
            shard(&request.peer)?,
            request.after.saturating_add(1),
            limit,
        );
        let messages = reply_as!(self.ask(query).await?, Reply::Outbox(messages) => messages)?;
        let messages = messages.iter().map(|record| v1::OutboxMessage {
            number: record.number,
            kind: record.message.as_str().to_owned(),
            at_us: record.at.0,
        });
        Ok(Response::new(v1::ListOutboxReply {
            messages: messages.collect(),
        }))
    }

    async fn reconcile_peer(
        &self,
        request: Request<v1::ReconcilePeerRequest>,
    ) -> Result<Response<v1::ReconcilePeerReply>, Status> {
        let request = request.into_inner();
        authorization::note(|| request.peer.clone());
        let command = Reconcile {
            peer: shard(&request.peer)?,
        };
        self.call(Command::Reconcile(command)).await?;
        Ok(Response::new(v1::ReconcilePeerReply {}))
    }

    async fn import(
        &self,
        request: Request<v1::ImportRequest>,
    ) -> Result<Response<v1::ImportReply>, Status> {
        let command = decode::import(self.handle.id(), request.into_inner())?;
        let reply = self.call(Command::Import(Box::new(command))).await?;
        let records = reply_as!(reply, Reply::Imported(records) => records)?;
        Ok(Response::new(v1::ImportReply {
            records: records.into_iter().map(imported).collect(),
        }))
    }
}

fn audit_query(request: v1::ListAuditLogRequest) -> Result<AuditQuery, Problem> {
    let most = u32::try_from(PAGE_AUDIT_MAX).unwrap_or(u32::MAX);
    let limit = decode::bounded(At::top("limit"), request.limit, AUDIT_RECORDS, most)?;
    let outcome = convert::non_empty(request.outcome);
    if let Some(word) = &outcome
        && !AUDIT_OUTCOMES.contains(&word.as_str())
    {
        let reason = format!("must be one of {}", AUDIT_OUTCOMES.join(", "));
        return Err(Problem::invalid(At::top("outcome"), reason));
    }
    let before = convert::non_empty(request.after).map(|text| {
        let reason = format!("{text:?} is not the `next` of a page: send that unchanged");
        text.parse()
            .map_err(|_| Problem::invalid(At::top("after"), reason))
    });
    Ok(AuditQuery {
        before: before.transpose()?,
        who: convert::non_empty(request.who),
        what: convert::non_empty(request.what),
        outcome,
        limit: usize::try_from(limit).unwrap_or(PAGE_AUDIT_MAX),
    })
}

fn imported(imported: ImportOutcome) -> v1::Imported {
    let (outcome, reason) = match imported {
        ImportOutcome::Taken => (v1::ImportOutcome::Taken, String::new()),
        ImportOutcome::AlreadyThere => (v1::ImportOutcome::AlreadyThere, String::new()),
        ImportOutcome::Refused(reason) => (v1::ImportOutcome::Refused, reason),
    };
    v1::Imported {
        outcome: outcome.into(),
        reason,
    }
}

fn shard(text: &str) -> Result<ShardId, Problem> {
    let what = "must be a shard: 1 to 64 characters of A-Z a-z 0-9 . _ -";
    ShardId::new(text).ok_or_else(|| Problem::invalid("peer", what))
}

fn peer((view, state): (PeerView, PeerState)) -> v1::PeerView {
    let record = view.record;
    v1::PeerView {
        shard: record.shard.to_string(),
        waiting: view.waiting,
        oldest_at_us: view.oldest_at.map(|at| at.0),
        tries_failed: state.failed_tries,
        last_error: state.last_error.unwrap_or_default(),
        stopped: record.stopped.unwrap_or_default(),
        stopped_there: state.stopped_there.unwrap_or_default(),
        written: record.last_sent,
        confirmed: record.confirmed,
        received: record.received,
    }
}

/// When the credential of a caller expires; 0 if it does not.
/// The roles of a caller, and whether none of them changes anything.
fn grants(identity: &Identity) -> (Vec<v1::Grant>, bool) {
    let Identity::Principal(who) = identity else {
        return (Vec::new(), false);
    };
    let all = who.grants.0.iter();
    let grants = all.clone().map(|grant| {
        let (name, is_prefix) = grant.namespaces();
        let star = if is_prefix { "*" } else { "" };
        v1::Grant {
            role: grant.role.as_str().to_owned(),
            namespace: format!("{}{star}", String::from_utf8_lossy(name)),
        }
    });
    let is_read_only = all.clone().all(|grant| grant.role.is_read_only());
    (grants.collect(), is_read_only)
}

fn expires_at_us(identity: &Identity) -> u64 {
    let Identity::Principal(who) = identity else {
        return 0;
    };
    let at = who.expires_at.map(jiff::Timestamp::as_microsecond);
    at.and_then(|at| u64::try_from(at).ok()).unwrap_or_default()
}

impl ServiceContext {
    async fn set_draining(&self, node: &str, is_draining: bool) -> Result<(), Problem> {
        let router = self.options.router.as_ref();
        Ok(ganger_router::set_draining(router, node, is_draining).await?)
    }

    /// The shards that the server knows by name.
    fn known_shards(&self) -> Vec<String> {
        let Some(router) = &self.options.router else {
            return vec![self.handle.id().to_string()];
        };
        router.known().iter().map(ToString::to_string).collect()
    }
}
