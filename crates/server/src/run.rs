//! A whole process: logs, signals, start, stop.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Instant;

use ganger_shard::Health;
use ganger_types::ShardId;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::error::StartError;
use crate::log::start_log;
use crate::notify::{READY, STOPPING, notify};
use crate::start::{Running, start};

/// The exit code after a second signal, as shells give it for an interrupted program.
const EXIT_INTERRUPTED: i32 = 130;

/// Tasks that a thread polls before it looks for new connections and bytes. Tokio's 61 polls of some milliseconds each, as a
/// flood causes them, fill the system's queue of connections that wait to be accepted.
const POLLS_BETWEEN_EVENTS: u32 = 16;

/// Runs a server until SIGTERM or SIGINT, then stops it politely; a second signal ends it at once.
/// SIGHUP makes it read certificates and tokens again.
///
/// # Errors
/// If it cannot start, or the shard ends by itself.
pub fn run(config: Config) -> Result<(), StartError> {
    start_log(&config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(io_threads())
        .thread_name("ganger-io")
        .event_interval(POLLS_BETWEEN_EVENTS)
        .build()
        .map_err(|error| StartError::System {
            doing: "start threads",
            reason: error.to_string(),
        })?;
    runtime.block_on(serve(config))
}

/// Threads that serve connections: a core is left to the shard, which runs on threads of its own.
///
/// It matters on two cores. An answer wakes a thread that looks for work, and Tokio has that one wake another, in case there
/// is more: with two of them for one connection, each answer costs two changes of threads more than it has to.
fn io_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    cores.saturating_sub(1).max(1)
}

async fn serve(config: Config) -> Result<(), StartError> {
    let begun = Instant::now();
    let refused = |error: std::io::Error| StartError::System {
        doing: "watch signals",
        reason: error.to_string(),
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(refused)?;
    let stores = stores(&config);
    // A start that waits for room on the disk can be stopped too.
    let running = tokio::select! {
        started = start(config) => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    for (shard, db) in stores {
        tracing::info!(addr = %running.addr(), %shard, store = %db.display(), "listening");
    }

    let mut asked = std::pin::pin!(async {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    });
    let mut is_told = false;
    let by_itself = loop {
        tokio::select! {
            signal = &mut asked => {
                tracing::info!(signal, "stopping; a second signal ends at once");
                break None;
            }
            _ = hangup.recv() => running.reload(),
            (shard, cause) = running.ended() => break Some((shard, cause)),
            health = running.ready(), if !is_told => {
                is_told = true;
                log_ready(&running, &health, begun);
            }
        }
    };
    notify(STOPPING);
    if let Some((shard, cause)) = by_itself {
        tracing::error!(reason = %format_args!("shard {shard}: {cause}"), "the shard has stopped; the server ends");
        return Err(StartError::ended(&shard, &cause));
    }
    tokio::select! {
        () = running.stop() => {
            tracing::info!("stopped");
            Ok(())
        }
        () = terminate_again() => std::process::exit(EXIT_INTERRUPTED),
    }
}

fn stores(config: &Config) -> Vec<(ShardId, PathBuf)> {
    let shards = config.shard_ids().into_iter();
    shards
        .map(|shard| (shard.clone(), config.db_of(&shard)))
        .collect()
}

/// The line that says that the server works, where, and how long it took.
fn log_ready(running: &Running, health: &Health, begun: Instant) {
    if matches!(health, Health::Ready | Health::Full) {
        let addr = running.addr();
        let after_ms = begun.elapsed().as_millis();
        let scheme = if running.is_encrypted() {
            "https"
        } else {
            "http"
        };
        tracing::info!(%addr, url = %format_args!("{scheme}://{addr}"), after_ms, "ready");
        notify(READY);
    }
}

/// Completes at the next signal of either kind.
async fn terminate_again() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
