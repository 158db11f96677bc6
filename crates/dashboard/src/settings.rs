//! What the server gives the dashboard: settings, shards, the table of operations, and the check of credentials.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::future::BoxFuture;
use ganger_access::{Audit, Hash, Identity, Operation, StreamLimit};
use ganger_attention::Attention;
use ganger_router::Router;
use ganger_shard::ShardSet;
use ganger_types::ShardId;
use http::{Request, Response, StatusCode};
use tokio_util::sync::CancellationToken;

/// Whether payloads, inputs, results and logs are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Payloads {
    /// To everybody who may read jobs (default).
    #[default]
    Shown,
    /// To operators only; others see sizes.
    Hidden,
}

/// What a person may set, as the configuration names it under `ui.`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether there is a dashboard. Default yes.
    pub is_enabled: bool,
    /// What stands before `/ui` in addresses; empty (default), or a path such as `/ganger`.
    pub base_path: String,
    /// The origin that browsers see, such as `https://jobs.example`; `None` (default) if it is that of the request.
    pub origin: Option<String>,
    /// Whether nobody may change anything here. Default no.
    pub is_read_only: bool,
    /// Which people see payloads and results. Default all who may read jobs.
    pub payloads: Payloads,
    /// A session without use ends after this. Default 12 hours.
    pub session_idle: Duration,
    /// Each session ends after this. Default 7 days.
    pub session_max: Duration,
    /// A file with the key that signs sessions, for several servers behind one address; `None` (default): a key of
    /// this server's own.
    pub session_key_file: Option<PathBuf>,
    /// Number of pages that may follow changes at once. Default 200.
    pub viewers_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            is_enabled: true,
            base_path: String::new(),
            origin: None,
            is_read_only: false,
            payloads: Payloads::Shown,
            session_idle: Duration::from_secs(12 * 3_600),
            session_max: Duration::from_secs(7 * 86_400),
            session_key_file: None,
            viewers_max: 200,
        }
    }
}

/// What the server gives the dashboard.
#[derive(Clone)]
pub struct Settings {
    /// What a person may set.
    pub options: Options,
    /// The version of the server.
    pub version: &'static str,
    /// Settings of the server that are not secret, by name.
    pub shown_settings: BTreeMap<String, String>,
    /// The shards of this process.
    pub shards: ShardSet,
    /// Knows the shards of other servers; `None` if there are none.
    pub router: Option<Router>,
    /// The way to the servers of other shards, whose rows pages of all shards show too; `None` if there are none.
    pub others: Option<Arc<dyn Others>>,
    /// The finder of what needs attention.
    pub attention: Attention,
    /// The operations of the HTTP API with their rights.
    pub operations: Vec<Operation>,
    /// The status of a code, as the HTTP API has it.
    pub status_of: fn(&'static str) -> StatusCode,
    /// The check of the tokens that people sign in with.
    pub gate: Arc<dyn Gate>,
    /// Whether connections are encrypted: then cookies are for encrypted connections only.
    pub is_encrypted: bool,
    /// Where the audit log goes.
    pub audit: Audit,
    /// Streams open at once, together with those of the dialects.
    pub streams: StreamLimit,
    /// Cancelled when the server stops: streams end then.
    pub stopping: CancellationToken,
    /// File for the key of sessions and for the sessions that were ended; `None`: they are forgotten at the end.
    pub session_file: Option<PathBuf>,
}

/// A token that was accepted.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The identity that the token belongs to, with its rights.
    pub identity: Identity,
    /// The name of the token.
    pub name: String,
    /// The hash of its secret.
    pub hash: Hash,
}

/// Why a token was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unaccepted {
    /// No such token, or it has expired.
    Unknown,
    /// Too many wrong tokens came from this address.
    TooMany {
        /// When to try again.
        retry_after: Duration,
    },
}

/// Checks credentials, as the server does for every dialect.
pub trait Gate: Send + Sync {
    /// Whether the server asks nobody for credentials.
    fn is_open(&self) -> bool;

    /// Whether a token helps to get in; else only a certificate does.
    fn takes_tokens(&self) -> bool;

    /// Checks a token. The answer to a wrong one is delayed, and the audit log records it.
    fn check<'a>(
        &'a self,
        token: &'a [u8],
        from: Option<SocketAddr>,
    ) -> BoxFuture<'a, Result<Accepted, Unaccepted>>;
}

/// Sends requests to the servers of other shards.
pub trait Others: Send + Sync {
    /// Sends a request for the dashboard of the server that has a shard, on behalf of a viewer.
    ///
    /// # Errors
    /// The reason, for people, if that server did not answer.
    fn send<'a>(
        &'a self,
        shard: &'a ShardId,
        request: Request<Body>,
        viewer: &'a Identity,
    ) -> BoxFuture<'a, Result<Response<Body>, String>>;
}
