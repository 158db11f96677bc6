//! The Redis port: accepts connections within the same limits, and identifies their clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use ganger_access::Identity;
use ganger_dialect_resp::{Login, LoginError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::addresses::Addresses;
use super::{accept, open};
use crate::config::Limits;
use crate::port_handler::PeerAddress;
use crate::redis::RedisService;
use crate::security::{ClientCertificate, PresentedCredentials, Protocol, Require, Security};

/// Accepts connections until `stopping`, then lets them end, for at most `stop_timeout`.
pub(crate) async fn serve_resp(
    listener: TcpListener,
    service: RedisService,
    limits: Limits,
    stopping: CancellationToken,
    stop_timeout: Duration,
) {
    let places = Arc::new(Semaphore::new(
        limits.connections.min(Semaphore::MAX_PERMITS),
    ));
    let addresses = Addresses::new(limits.connections_per_address);
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stopping.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, from, place)) = accepted else {
            continue;
        };
        let Some(counted) = addresses.count(from.ip()) else {
            service
                .part
                .counters()
                .refused
                .fetch_add(1, Ordering::Relaxed);
            continue;
        };
        service
            .part
            .counters()
            .accepted
            .fetch_add(1, Ordering::Relaxed);
        let service = service.clone();
        let within = limits.handshake_timeout;
        // A separate task: a panic ends only this connection.
        let lane = service.part.scheduler.lane();
        tasks.spawn(lane.scheduled(async move {
            attend(&service, stream, from, within).await;
            drop((counted, place));
        }));
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(stop_timeout, tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!(after = ?stop_timeout, "Redis commands were still in flight; their connections are cut");
    }
}

async fn attend(service: &RedisService, stream: TcpStream, from: SocketAddr, within: Duration) {
    let security = Arc::clone(&service.part.security);
    let at = stream.local_addr().unwrap_or(from);
    match open::open_to_redis(stream, security.tls(), within).await {
        Ok((stream, certificate)) => {
            let login = ConnectionIdentity {
                security,
                certificate,
                from: PeerAddress(from),
            };
            service.serve(stream, Arc::new(login), from, at).await;
        }
        Err(words) => {
            service
                .part
                .counters()
                .refused
                .fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%from, words, "a TLS handshake on the Redis port failed");
        }
    }
}

/// Identifies the client of one connection.
pub(crate) struct ConnectionIdentity {
    pub(crate) security: Arc<Security>,
    /// Its certificate; `None` if it has shown none.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
    pub(crate) from: PeerAddress,
}

impl ConnectionIdentity {
    fn shown(&self, token: Option<&[u8]>) -> PresentedCredentials {
        PresentedCredentials::with(token, self.certificate.clone())
    }
}

impl Login for ConnectionIdentity {
    fn is_open(&self) -> bool {
        self.security.require(Protocol::Resp) == Require::Nothing
    }

    fn stranger(&self) -> Identity {
        let known = self.security.known(Protocol::Resp, &self.shown(None));
        known.unwrap_or(Identity::Anonymous)
    }

    fn login<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Identity, LoginError>> {
        let shown = self.shown(Some(token));
        async move {
            let identity = self
                .security
                .identify(Protocol::Resp, &shown, self.from)
                .await;
            identity.map_err(|problem| match problem.code {
                "too_many_attempts" => LoginError::TooMany,
                _ => LoginError::Wrong,
            })
        }
        .boxed()
    }

    fn changes(&self) -> u64 {
        self.security.changes_count()
    }

    fn changed(&self, seen: u64) -> BoxFuture<'_, ()> {
        self.security.changed(seen).boxed()
    }

    fn is_unchanged(&self, token: Option<&[u8]>, identity: &Identity) -> bool {
        // An anonymous client has no right to lose.
        *identity == Identity::Anonymous
            || self
                .security
                .is_unchanged(Protocol::Resp, &self.shown(token), identity)
    }
}
