//! A whole server process: logs, signals, start, stop.

use std::num::NonZero;
use std::time::Instant;

use ganger_shard::Health;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::error::StartError;
use crate::log::start_log;
use crate::notify::{READY, STOPPING, notify};
use crate::start::{Running, start};

/// Exit code after a second signal, as shells report it for an interrupted program.
const EXIT_INTERRUPTED: i32 = 130;

/// Number of tasks that a thread polls before it checks for I/O events. With Tokio's default of 61, polls of some
/// milliseconds each, as a flood causes them, fill the kernel's queue of new connections.
const POLLS_BETWEEN_EVENTS: u32 = 16;

/// Runs a server until SIGTERM or SIGINT, then stops it gracefully; a second signal ends it at once. SIGHUP makes it
/// read certificates and tokens again.
///
/// # Errors
/// If the server cannot start, or a shard ends by itself.
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

/// Returns the number of I/O threads: one core is left to the shard, which has its own threads.
///
/// This matters on two cores. A response wakes a thread, and Tokio then wakes another in case there is more work:
/// with two threads for one connection, each response costs two needless thread switches.
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
    let of_file = config.clone();
    // A start that waits for disk space can be stopped too.
    let running = tokio::select! {
        started = start(config) => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    if running.shards().is_empty() {
        tracing::info!(addr = %running.addr(), "listening; this node has no shard yet");
    }
    for handle in &*running.shards() {
        let (shard, store) = (handle.id(), of_file.store_of(handle.id()));
        tracing::info!(addr = %running.addr(), %shard, store, "listening");
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

/// Logs that the server works, its address, and how long the start took.
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
