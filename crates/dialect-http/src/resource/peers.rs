//! Other shards: waiting messages and the state of their delivery.

use axum::response::Response;
use ganger_document::time::Moment;
use ganger_router::PeerState;
use ganger_types::command::Reconcile;
use ganger_types::query::Query;
use ganger_types::reply::PeerView;
use ganger_types::{Command, OutboxRecord, Reply};
use serde::Serialize;
use utoipa::ToSchema;

use crate::json;
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::numbers::Done;

/// Default number of messages on a page.
const PAGE_MESSAGES: u64 = 100;
const PAGE_MESSAGES_MAX: u64 = 1_000;

/// The other shards that a shard knows.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Peers)]
pub(crate) struct PeersDoc {
    /// Shard that was asked.
    shard: String,
    /// Shards with which it has exchanged messages.
    peers: Vec<PeerDoc>,
}

/// Another shard, and the messages for it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Peer)]
pub(crate) struct PeerDoc {
    /// Name of the other shard.
    shard: String,
    /// Number of messages that wait for this shard.
    waiting: u64,
    /// Time at which the oldest of them was written; absent if none waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_at: Option<Moment>,
    /// Number of failed deliveries since the last success.
    tries_failed: u64,
    /// Error of the last failed delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Reason why traffic is stopped until the two are reconciled on the shard that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
    /// Reason why traffic is stopped until the two are reconciled on the other shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_there: Option<String>,
    /// Number of the last message that was written for this shard.
    written: u64,
    /// Number of the last message that is durable on this shard.
    confirmed: u64,
    /// Number of the last message of this shard that was applied.
    received: u64,
}

/// Messages that wait for a shard.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Outbox)]
pub(crate) struct OutboxDoc {
    /// Messages in order of their numbers.
    messages: Vec<MessageDoc>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// A message that waits until the peer has applied it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OutboxMessage)]
pub(crate) struct MessageDoc {
    /// Number of the message, consecutive for each receiver.
    number: u64,
    /// Kind of the message, such as `ended`, `follow`, `decided` or `cancel_graph`.
    kind: &'static str,
    /// Time at which the message was written.
    at: Moment,
}

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let shard = context.shard();
    let peers = match &context.api.settings().router {
        Some(router) => router.peers(shard).await?,
        None => Vec::new(),
    };
    Ok(json::ok(&PeersDoc {
        shard: shard.id().to_string(),
        peers: peers.into_iter().map(peer).collect(),
    }))
}

fn peer((view, state): (PeerView, PeerState)) -> PeerDoc {
    let record = view.record;
    PeerDoc {
        shard: record.shard.to_string(),
        waiting: view.waiting,
        oldest_at: view.oldest_at.map(Moment),
        tries_failed: state.failed_tries,
        last_error: state.last_error,
        stopped: record.stopped,
        stopped_there: state.stopped_there,
        written: record.last_sent,
        confirmed: record.confirmed,
        received: record.received,
    }
}

pub(crate) async fn outbox(context: RequestContext) -> Result<Response, Problem> {
    let limit = context.arguments.number("limit", 1, PAGE_MESSAGES_MAX)?;
    let limit = usize::try_from(limit.unwrap_or(PAGE_MESSAGES)).unwrap_or(usize::MAX);
    let after = context.arguments.number("after", 0, u64::MAX)?.unwrap_or(0);
    let query = Query::Outbox(context.peer()?, after.saturating_add(1), limit);
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::Outbox(messages) => {
            let last = messages.last().map(|record| record.number);
            Ok(json::ok(&OutboxDoc {
                next: last.filter(|_| messages.len() == limit),
                messages: messages.iter().map(message).collect(),
            }))
        }
        _ => Err(unexpected_reply()),
    }
}

fn message(record: &OutboxRecord) -> MessageDoc {
    MessageDoc {
        number: record.number,
        kind: record.message.as_str(),
        at: Moment(record.at),
    }
}

pub(crate) async fn reconcile(context: RequestContext) -> Result<Response, Problem> {
    let command = Reconcile {
        peer: context.peer()?,
    };
    context.call(Command::Reconcile(command)).await?;
    Ok(json::ok(&Done::default()))
}
