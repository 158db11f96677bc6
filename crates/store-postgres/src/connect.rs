//! Connects to the first of several servers that accepts writes.
//!
//! A machine that stands still, or a link that swallows everything, accepts connections and says nothing. A server
//! that has said nothing for a moment is still waited for, but the next one is tried beside it.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::LoadBalanceHosts;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::fault::Fault;
use crate::settings::{Settings, show_host};
use crate::settings_error::SettingsError;

/// Time that a connection may take, over all hosts and addresses.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time that a host has before the next one is tried too. A handshake takes six round trips with TLS and a password.
const HEAD_START: Duration = Duration::from_millis(500);

/// Reads and writes the connection as far as possible.
pub(crate) type Driver =
    Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<AsyncMessage, Error>>> + Send>;

/// Connects to a host that accepts writes. They are tried in the order of the address, beginning with `first`, counted
/// beyond the last host too. The addresses of one name are in random order unless `first` is 0.
///
/// # Errors
/// If no host accepts writes in time.
pub(crate) async fn open(
    settings: &Settings,
    application_name: &str,
    first: usize,
) -> Result<(Client, Driver), Fault> {
    let unusable = |error: SettingsError| Fault::Lost(error.to_string());
    let (mut hosts, tls) = settings.connections(application_name).map_err(unusable)?;
    let tls = tls.map(|files| files.connector());
    let tls = tls.transpose().map_err(unusable)?;
    let turn = first % hosts.len();
    hosts.rotate_left(turn);
    if first > 0 {
        for config in &mut hosts {
            config.load_balance_hosts(LoadBalanceHosts::Random);
        }
    }
    let opened = timeout(CONNECT_MAX, open_one(hosts, tls)).await;
    opened.unwrap_or_else(|_| {
        let reason = format!("no connection in {} s", CONNECT_MAX.as_secs());
        Err(Fault::Lost(reason))
    })
}

/// Connects to the first of these hosts that is ready.
async fn open_one(
    hosts: Vec<Config>,
    tls: Option<MakeRustlsConnect>,
) -> Result<(Client, Driver), Fault> {
    let mut hosts = hosts.into_iter();
    let mut tried = FuturesUnordered::new();
    let mut failures = Vec::new();
    loop {
        if let Some(config) = hosts.next() {
            let tls = tls.clone();
            tried.push(async move {
                let opened = open_host(&config, tls).await;
                opened.map_err(|fault| (name_of(&config), fault))
            });
        }
        let ended = if hosts.len() == 0 {
            tried.next().await
        } else {
            tokio::select! {
                biased;
                ended = tried.next() => ended,
                () = sleep(HEAD_START) => continue,
            }
        };
        match ended {
            Some(Ok(opened)) => return Ok(opened),
            Some(Err(failure)) => failures.push(failure),
            None => return Err(why_none(failures)),
        }
    }
}

async fn open_host(
    config: &Config,
    tls: Option<MakeRustlsConnect>,
) -> Result<(Client, Driver), Fault> {
    let Some(tls) = tls else {
        let (client, mut connection) = config.connect(NoTls).await?;
        return Ok((client, Box::new(move |cx| connection.poll_message(cx))));
    };
    let (client, mut connection) = config.connect(tls).await?;
    Ok((client, Box::new(move |cx| connection.poll_message(cx))))
}

/// Returns host and port in words.
fn name_of(config: &Config) -> String {
    let host = show_host(config);
    match config.get_ports() {
        [port, ..] => format!("{host}:{port}"),
        [] => host,
    }
}

/// Sums up why no host can be used. It is a refusal only if all refuse: one that cannot be reached may be there soon.
fn why_none(mut failures: Vec<(String, Fault)>) -> Fault {
    let refused = failures.iter().all(|(_, fault)| !fault.is_lost());
    if refused || failures.len() == 1 {
        return failures.swap_remove(0).1;
    }
    let mut reasons = Vec::new();
    for (host, fault) in failures {
        match fault {
            Fault::Refused { message, .. } | Fault::Lost(message) => {
                reasons.push(format!("{host}: {message}"));
            }
            other => return other,
        }
    }
    Fault::Lost(reasons.join("; "))
}
