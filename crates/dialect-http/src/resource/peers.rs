//! Other shards: what waits for them, since when, and how it goes with it.

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

/// Messages on a page, unless said otherwise.
const PAGE_MESSAGES: u64 = 100;
const PAGE_MESSAGES_MAX: u64 = 1_000;

/// What a shard knows of others.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Peers)]
pub(crate) struct PeersDoc {
    /// The shard that was asked.
    shard: String,
    /// Those it has exchanged messages with.
    peers: Vec<PeerDoc>,
}

/// Another shard, and the messages for it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Peer)]
pub(crate) struct PeerDoc {
    /// Name of the other shard.
    shard: String,
    /// Messages that wait for it.
    waiting: u64,
    /// Since when the oldest of them waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_at: Option<Moment>,
    /// Tries to bring them that failed since the last that did not.
    tries_failed: u64,
    /// Why the last one failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Why nothing is exchanged until the two are reconciled here.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
    /// Why the other shard takes nothing until they are reconciled there.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_there: Option<String>,
    /// Number of the last message written for it.
    written: u64,
    /// All up to this one are durable there.
    confirmed: u64,
    /// All of its messages up to this one were applied here.
    received: u64,
}

/// Messages that wait for a shard.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Outbox)]
pub(crate) struct OutboxDoc {
    /// In order of their numbers.
    messages: Vec<MessageDoc>,
    /// Give this as `after` for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// A message that waits.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OutboxMessage)]
pub(crate) struct MessageDoc {
    /// Number of the message, consecutive for each receiver.
    number: u64,
    /// What it says: `ended`, `no_such_job`, `follow`, `let_go`, `decided`, `inquire`, `cancel_graph`.
    kind: &'static str,
    /// When it was written.
    at: Moment,
}

pub(crate) async fn list(ask: RequestContext) -> Result<Response, Problem> {
    let shard = ask.shard();
    let peers = match &ask.api.settings().router {
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

pub(crate) async fn outbox(ask: RequestContext) -> Result<Response, Problem> {
    let limit = ask.arguments.number("limit", 1, PAGE_MESSAGES_MAX)?;
    let limit = usize::try_from(limit.unwrap_or(PAGE_MESSAGES)).unwrap_or(usize::MAX);
    let after = ask.arguments.number("after", 0, u64::MAX)?.unwrap_or(0);
    let query = Query::Outbox(ask.peer()?, after.saturating_add(1), limit);
    match ask.call(Command::Query(Box::new(query))).await? {
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

pub(crate) async fn reconcile(ask: RequestContext) -> Result<Response, Problem> {
    let command = Reconcile { peer: ask.peer()? };
    ask.call(Command::Reconcile(command)).await?;
    Ok(json::ok(&Done::default()))
}
