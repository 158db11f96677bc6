//! Starting and stopping a server within a process.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ganger_dialect_http::{Guard, Settings};
use ganger_shard::{Handle, Health, Hooks, Shard, StopCause, SystemClock};
use ganger_store::{MemoryStore, StoreError};
use ganger_store_embedded::EmbeddedStore;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, DB_IN_MEMORY};
use crate::doors::Doors;
use crate::error::StartError;
use crate::listen::{self, Counters};
use crate::secret::Secret;

/// A running server.
pub struct Running {
    addr: SocketAddr,
    shard: Handle,
    stopping: CancellationToken,
    draining: watch::Sender<bool>,
    ended: watch::Receiver<Option<StopCause>>,
    listener: JoinHandle<()>,
}

/// Starts a server: listens, opens the store, and loads it meanwhile.
///
/// Requests that come before the store is loaded wait; `/healthz` and `/readyz` answer at once.
///
/// # Errors
/// If a setting cannot be used, the address is taken, or the store cannot be opened.
pub async fn start(config: Config) -> Result<Running, StartError> {
    let token = token(&config)?;
    let addr = address(&config.addr)?;
    check_exposure(addr, &config, token.is_some())?;
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

    let (ended_out, ended) = watch::channel(None);
    let shard = open_shard(&config, ended_out).await?;
    let stopping = CancellationToken::new();
    let (draining, drained) = watch::channel(false);
    let counters = Arc::new(Counters::default());
    let doors = Doors {
        http: http(&config, &shard, &stopping, &counters, addr),
        grpc: grpc(&shard, drained),
        guard: Guard {
            hosts: config.hosts.clone(),
            is_secured: token.is_some(),
        },
        token,
    };
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
        shard,
        stopping,
        draining,
        ended,
        listener,
    })
}

impl Running {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The shard behind it.
    pub fn shard(&self) -> &Handle {
        &self.shard
    }

    /// Waits until the store is loaded and requests are served, or the shard has ended.
    pub async fn ready(&self) -> Health {
        self.shard.ready().await
    }

    /// Completes when the shard ends by itself.
    pub async fn ended(&self) -> StopCause {
        let mut ended = self.ended.clone();
        let cause = ended
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|cause| cause.clone());
        cause.unwrap_or(StopCause::Asked)
    }

    /// Stops: long polls and streams end, requests in flight are answered, the store is closed.
    pub async fn stop(self) {
        self.draining.send_replace(true);
        self.stopping.cancel();
        // The listener's task ends by itself; it cannot have panicked without having been seen.
        let _ = self.listener.await;
        self.shard.stop().await;
    }
}

/// The token from the configuration or its file.
fn token(config: &Config) -> Result<Option<Secret>, StartError> {
    let Some(path) = &config.token_file else {
        return Ok(config.token.clone());
    };
    let refused = |reason: String| StartError::Token {
        path: path.clone(),
        reason,
    };
    warn_if_others_may_read(path);
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    Secret::new(&text).map(Some).map_err(refused)
}

fn warn_if_others_may_read(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    if let Ok(metadata) = std::fs::metadata(path)
        && metadata.permissions().mode() & 0o077 != 0
    {
        tracing::warn!(path = %path.display(), "others on this machine may read the token file: chmod 600");
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

/// Refuses to be open to others unless told so.
fn check_exposure(addr: SocketAddr, config: &Config, has_token: bool) -> Result<(), StartError> {
    if addr.ip().is_loopback() {
        return Ok(());
    }
    if !config.insecure {
        let missing = if has_token {
            ""
        } else {
            ", and no token is asked for"
        };
        return Err(StartError::Open { addr, missing });
    }
    let check = if has_token {
        "a token is asked for"
    } else {
        "no token is asked for"
    };
    tracing::warn!(%addr, "INSECURE: listening beyond loopback without encryption; {check}");
    Ok(())
}

async fn open_shard(
    config: &Config,
    ended: watch::Sender<Option<StopCause>>,
) -> Result<Handle, StartError> {
    let settings = ganger_shard::Settings {
        shard: config.shard.clone(),
        inbox_commands_max: config.limits.inbox_commands,
        waiters_max: config.limits.waiters,
        reserve_bytes: config.reserve_bytes,
        ..ganger_shard::Settings::default()
    };
    let hooks = Hooks {
        on_stopped: Some(Arc::new(move |cause| {
            ended.send_replace(Some(cause.clone()));
        })),
        at_point: None,
    };
    let db = config.db.clone();
    let shard = config.shard.clone();
    // Opening reads and writes files, which must not hold up other tasks.
    let started = tokio::task::spawn_blocking(move || -> Result<Handle, StoreError> {
        let clock = Arc::new(SystemClock);
        if db.as_os_str() == DB_IN_MEMORY {
            return Shard::start(MemoryStore::new(), settings, clock, hooks);
        }
        let store = EmbeddedStore::create_or_open(&db, &shard)?;
        Shard::start(store, settings, clock, hooks)
    });
    let started = started.await.map_err(|error| StartError::System {
        doing: "open the store",
        reason: error.to_string(),
    })?;
    Ok(started?)
}

fn http(
    config: &Config,
    shard: &Handle,
    stopping: &CancellationToken,
    counters: &Arc<Counters>,
    addr: SocketAddr,
) -> axum::Router {
    let counters = Arc::clone(counters);
    let started = Instant::now();
    let settings = Settings {
        version: env!("CARGO_PKG_VERSION"),
        body_bytes_max: config.limits.body_bytes,
        graph_bytes_max: config.limits.graph_bytes,
        line_bytes_max: config.limits.line_bytes,
        bytes_in_flight_max: config.limits.bytes_in_flight,
        streams_max: config.limits.streams,
        stopping: stopping.clone(),
        is_insecure: config.insecure && !addr.ip().is_loopback(),
        more_metrics: Arc::new(move |out| metrics(&counters, started, out)),
    };
    ganger_dialect_http::routes(shard.clone(), settings)
}

fn grpc(shard: &Handle, draining: watch::Receiver<bool>) -> axum::Router {
    let options = ganger_dialect_grpc::Options {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        draining,
        ..ganger_dialect_grpc::Options::default()
    };
    ganger_dialect_grpc::router(shard.clone(), options)
}

fn metrics(counters: &Counters, started: Instant, out: &mut String) {
    let open = counters.open.load(Ordering::Relaxed);
    let accepted = counters.accepted.load(Ordering::Relaxed);
    let uptime = started.elapsed().as_secs();
    write!(
        out,
        "# HELP ganger_connections Connections open now.\n# TYPE ganger_connections gauge\nganger_connections {open}\n\
         # HELP ganger_connections_total Connections ever accepted.\n# TYPE ganger_connections_total counter\nganger_connections_total {accepted}\n\
         # HELP ganger_uptime_seconds Since the start.\n# TYPE ganger_uptime_seconds gauge\nganger_uptime_seconds {uptime}\n"
    )
    .expect("strings take everything");
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
    fn being_open_to_others_must_be_said() {
        let mut config = Config::default();
        let open = SocketAddr::from(([0, 0, 0, 0], 3733));
        assert!(check_exposure(SocketAddr::from(([127, 0, 0, 1], 1)), &config, false).is_ok());
        let refused = check_exposure(open, &config, true).expect_err("not encrypted");
        assert!(refused.to_string().contains("--insecure"));
        assert_eq!(refused.exit_code(), 2);
        config.insecure = true;
        assert!(check_exposure(open, &config, false).is_ok());
    }
}
