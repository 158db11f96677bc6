//! Starting and stopping a server within a process.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ganger_access::Identity;
use ganger_dialect_http::{Guard, Settings};
use ganger_dialect_resp::Port;
use ganger_router::Router;
use ganger_shard::{Handle, Health, StopCause};
use ganger_types::ShardId;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::doors::Doors;
use crate::error::StartError;
use crate::front::{Dialects, Front, Passed};
use crate::listen::{self, Counters};
use crate::peers::ToPeers;
use crate::security::{Door, Require, Security, follow_files};
use crate::shards::{open_all, stop_all};

/// A running server.
pub struct Running {
    addr: SocketAddr,
    shards: Vec<Handle>,
    stopping: CancellationToken,
    draining: watch::Sender<bool>,
    ended: watch::Receiver<Option<(ShardId, StopCause)>>,
    listener: JoinHandle<()>,
    resp: Option<(SocketAddr, JoinHandle<()>)>,
    security: Arc<Security>,
}

/// Starts a server: listens, opens the store, and loads it meanwhile.
///
/// Requests that come before the store is loaded wait; `/healthz` and `/readyz` answer at once.
///
/// # Errors
/// If a setting cannot be used, the address is taken, or the store cannot be opened.
pub async fn start(config: Config) -> Result<Running, StartError> {
    let security = Arc::new(Security::load(&config)?);
    let addr = address(&config.addr)?;
    let (is_encrypted, is_checked) = (security.is_encrypted(), security.is_checked());
    check_exposure(addr, config.insecure, is_encrypted, is_checked)?;
    tracing::info!(
        tls = is_encrypted,
        http = %security.require(Door::Http),
        grpc = %security.require(Door::Grpc),
        "what clients must show"
    );
    let (listener, addr) = listen_at(addr).await?;
    let resp_listener = match &config.resp {
        Some(addr) => Some(listen_resp(addr, &config, &security).await?),
        None => None,
    };

    let (ended_out, ended) = watch::channel(None);
    let to_peers = ToPeers::new(&config, Arc::clone(&security))?;
    let shards = open_all(&config, &ended_out).await?;
    let router = Router::start(shards.clone(), config.topology.clone(), Arc::new(to_peers));
    let stopping = CancellationToken::new();
    let (draining, drained) = watch::channel(false);
    let counters = Arc::new(Counters::default());
    let passed = Arc::new(Passed::default());
    let resp = resp_listener.map(|(listener, addr)| {
        let port = Port::new(
            shards[0].clone(),
            resp_settings(&config, addr, &security, &stopping),
        );
        (listener, addr, port)
    });
    let wiring = Wiring {
        resp: resp.as_ref().map(|(.., port)| port),
        router: &router,
        shards: &shards,
        stopping: &stopping,
        counters: &counters,
        passed: &passed,
        security: &security,
        started: Instant::now(),
        addr,
    };
    let dialects = shards.iter().map(|shard| {
        let dialects = Dialects {
            http: http(&config, shard, &wiring),
            grpc: grpc(shard, drained.clone(), &wiring),
        };
        (shard.id().clone(), dialects)
    });
    let front = Front::new(
        router.clone(),
        dialects.collect(),
        security.audit.clone(),
        Arc::clone(&passed),
        stopping.clone(),
    );
    let doors = Doors {
        front: Arc::new(front),
        guard: Guard {
            hosts: config.hosts.clone(),
            is_secured: security.require(Door::Http) != Require::Nothing,
        },
        security: Arc::clone(&security),
    };
    tokio::spawn(follow_files(Arc::clone(&security), stopping.clone()));
    let resp = resp.map(|(listener, addr, port)| {
        let served = listen::serve_resp(
            listener,
            port,
            Arc::clone(&security),
            config.limits.clone(),
            stopping.clone(),
            config.stop_timeout,
        );
        (addr, tokio::spawn(served))
    });
    let listener = tokio::spawn(listen::serve(
        listener,
        doors,
        config.limits.clone(),
        counters,
        stopping.clone(),
        config.stop_timeout,
    ));
    Ok(Running {
        addr,
        shards,
        stopping,
        draining,
        ended,
        listener,
        resp,
        security,
    })
}

async fn listen_at(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listener = TcpListener::bind(addr)
        .await
        .map_err(|error| StartError::Listen {
            addr,
            reason: error.to_string(),
        })?;
    let addr = listener.local_addr().map_err(|error| StartError::System {
        doing: "tell the address",
        reason: error.to_string(),
    })?;
    Ok((listener, addr))
}

impl Running {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens for clients of Redis, if it does.
    pub fn resp_addr(&self) -> Option<SocketAddr> {
        self.resp.as_ref().map(|(addr, _)| *addr)
    }

    /// Whether it speaks TLS.
    pub fn is_encrypted(&self) -> bool {
        self.security.is_encrypted()
    }

    /// Reads certificates, tokens and rights again, and opens the audit log again. What cannot be used is
    /// refused and said in the log; the old goes on. Happens by itself when a file changes.
    pub fn reload(&self) {
        self.security.reload();
    }

    /// The shard that requests mean which name none.
    pub fn shard(&self) -> &Handle {
        &self.shards[0]
    }

    /// The shards behind it; there is at least one.
    pub fn shards(&self) -> &[Handle] {
        &self.shards
    }

    /// Waits until all stores are loaded and requests are served, or a shard has ended.
    pub async fn ready(&self) -> Health {
        let mut all = Health::Ready;
        for shard in &self.shards {
            match shard.ready().await {
                Health::Ready => {}
                Health::Full => all = Health::Full,
                other => return other,
            }
        }
        all
    }

    /// Completes when a shard ends by itself: which, and why.
    pub async fn ended(&self) -> (ShardId, StopCause) {
        let mut ended = self.ended.clone();
        let first = ended
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|first| first.clone());
        first.unwrap_or_else(|| (self.shard().id().clone(), StopCause::Asked))
    }

    /// Stops: long polls and streams end, requests in flight are answered, the store is closed.
    pub async fn stop(self) {
        self.draining.send_replace(true);
        self.stopping.cancel();
        // The listener's task ends by itself; it cannot have panicked without having been seen.
        let _ = self.listener.await;
        if let Some((_, listener)) = self.resp {
            let _ = listener.await;
        }
        stop_all(&self.shards).await;
    }
}

/// Reads `HOST:PORT`; without a host it is loopback.
fn address(text: &str) -> Result<SocketAddr, StartError> {
    let refused = |reason: &str| StartError::Address {
        addr: text.to_owned(),
        reason: reason.to_owned(),
    };
    if let Some(port) = text.strip_prefix(':') {
        let port = port
            .parse()
            .map_err(|_| refused("the port must be a number from 0 to 65535"))?;
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let mut found = text
        .to_socket_addrs()
        .map_err(|error| refused(&format!("{error}; write HOST:PORT, such as 127.0.0.1:3733")))?;
    found
        .next()
        .ok_or_else(|| refused("the name stands for no address"))
}

/// Listens for clients of Redis, under the same conditions as for others.
async fn listen_resp(
    text: &str,
    config: &Config,
    security: &Security,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let addr = address(text)?;
    let require = security.require(Door::Resp);
    let is_checked = require != Require::Nothing;
    check_exposure(addr, config.insecure, security.is_encrypted(), is_checked)?;
    let (listener, addr) = listen_at(addr).await?;
    tracing::info!(%addr, %require, "listening for clients of Redis");
    Ok((listener, addr))
}

fn resp_settings(
    config: &Config,
    addr: SocketAddr,
    security: &Security,
    stopping: &CancellationToken,
) -> ganger_dialect_resp::Settings {
    ganger_dialect_resp::Settings {
        databases: config.resp_databases.clone(),
        may_flush: config.resp_allow_flush,
        write_timeout: config.limits.write_timeout,
        login_timeout: config.limits.header_timeout,
        tcp_port: addr.port(),
        audit: security.audit.clone(),
        stopping: stopping.clone(),
    }
}

/// Refuses to be open to others unless everything is encrypted and everyone checked, or it is told so.
fn check_exposure(
    addr: SocketAddr,
    is_insecure: bool,
    is_encrypted: bool,
    is_checked: bool,
) -> Result<(), StartError> {
    if addr.ip().is_loopback() {
        return Ok(());
    }
    let missing = match (is_encrypted, is_checked) {
        (true, true) => return Ok(()),
        (true, false) => "nobody would be asked who he is",
        (false, true) => "nothing would be encrypted, tokens included",
        (false, false) => "nothing would be encrypted and nobody asked who he is",
    };
    if !is_insecure {
        return Err(StartError::Open { addr, missing });
    }
    tracing::warn!(%addr, "INSECURE: listening beyond this machine, and {missing}");
    Ok(())
}

/// What the dialects over every shard share.
struct Wiring<'a> {
    resp: Option<&'a Port>,
    router: &'a Router,
    shards: &'a [Handle],
    stopping: &'a CancellationToken,
    counters: &'a Arc<Counters>,
    passed: &'a Arc<Passed>,
    security: &'a Arc<Security>,
    started: Instant,
    addr: SocketAddr,
}

fn http(config: &Config, shard: &Handle, wiring: &Wiring<'_>) -> axum::Router {
    let Wiring {
        security,
        addr,
        started,
        ..
    } = *wiring;
    let (counters, passed) = (Arc::clone(wiring.counters), Arc::clone(wiring.passed));
    let resp = wiring.resp.map(|port| Arc::clone(port.counters()));
    let settings = Settings {
        version: env!("CARGO_PKG_VERSION"),
        body_bytes_max: config.limits.body_bytes,
        graph_bytes_max: config.limits.graph_bytes,
        line_bytes_max: config.limits.line_bytes,
        bytes_in_flight_max: config.limits.bytes_in_flight,
        streams_max: config.limits.streams,
        stopping: wiring.stopping.clone(),
        is_insecure: !(addr.ip().is_loopback() || security.is_encrypted() && security.is_checked()),
        stranger: Identity::Anonymous,
        audit: security.audit.clone(),
        router: Some(wiring.router.clone()),
        shards: wiring.shards.to_vec(),
        more_metrics: {
            let security = Arc::clone(security);
            Arc::new(move |out| {
                metrics(&counters, &passed, &security, started, out);
                if let Some(resp) = &resp {
                    resp.metrics(out);
                }
            })
        },
    };
    ganger_dialect_http::routes(shard.clone(), settings)
}

fn grpc(shard: &Handle, draining: watch::Receiver<bool>, wiring: &Wiring<'_>) -> axum::Router {
    let options = ganger_dialect_grpc::Options {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        draining,
        stranger: Identity::Anonymous,
        audit: wiring.security.audit.clone(),
        router: Some(wiring.router.clone()),
        shards: wiring.shards.to_vec(),
        ..ganger_dialect_grpc::Options::default()
    };
    ganger_dialect_grpc::router(shard.clone(), options)
}

fn metrics(
    counters: &Counters,
    passed: &Passed,
    security: &Security,
    started: Instant,
    out: &mut String,
) {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let rows = [
        (
            "ganger_connections",
            "gauge",
            "Connections open now.",
            read(&counters.open),
        ),
        (
            "ganger_connections_total",
            "counter",
            "Connections ever accepted.",
            read(&counters.accepted),
        ),
        (
            "ganger_connections_refused_total",
            "counter",
            "Connections closed at once: their address had too many.",
            read(&counters.refused),
        ),
        (
            "ganger_handshakes_failed_total",
            "counter",
            "Connections that came to no TLS.",
            read(&counters.handshakes_failed),
        ),
        (
            "ganger_logins_failed_total",
            "counter",
            "Wrong tokens ever shown.",
            read(&security.logins_failed),
        ),
        (
            "ganger_requests_passed_on_total",
            "counter",
            "Requests passed on to the server of another shard.",
            read(&passed.on),
        ),
        (
            "ganger_requests_unreached_total",
            "counter",
            "Those among them whose shard could not be reached.",
            read(&passed.failed),
        ),
        (
            "ganger_uptime_seconds",
            "gauge",
            "Since the start.",
            started.elapsed().as_secs(),
        ),
    ];
    for (name, kind, help, value) in rows {
        write!(
            out,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
        )
        .expect("strings take everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_host_is_loopback() {
        assert_eq!(
            address(":3733").ok(),
            Some(SocketAddr::from(([127, 0, 0, 1], 3733)))
        );
        assert_eq!(
            address("0.0.0.0:1").ok(),
            Some(SocketAddr::from(([0, 0, 0, 0], 1)))
        );
        for wrong in ["", "localhost", ":x", ":70000", "1.2.3.4"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn being_open_to_others_takes_encryption_and_a_check_or_must_be_said() {
        let open = SocketAddr::from(([0, 0, 0, 0], 3733));
        let here = SocketAddr::from(([127, 0, 0, 1], 1));
        assert!(check_exposure(here, false, false, false).is_ok());
        assert!(check_exposure(open, false, true, true).is_ok());
        for (is_encrypted, is_checked) in [(false, true), (true, false), (false, false)] {
            let refused = check_exposure(open, false, is_encrypted, is_checked);
            let refused = refused.expect_err("something is missing");
            assert!(refused.to_string().contains("--insecure"), "{refused}");
            assert_eq!(refused.exit_code(), 2);
            assert!(check_exposure(open, true, is_encrypted, is_checked).is_ok());
        }
    }
}
