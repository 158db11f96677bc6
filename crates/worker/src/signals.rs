//! Stopping by signal: the first stops gracefully, the second at once.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::Shutdown;

/// Follows `SIGTERM` and `SIGINT`: the first stops gracefully, the second at once. Needs a running runtime.
///
/// # Errors
/// If signals cannot be received.
pub fn shutdown_on_signals() -> io::Result<watch::Receiver<Shutdown>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (sender, receiver) = watch::channel(Shutdown::No);
    tokio::spawn(async move {
        for level in [Shutdown::Graceful, Shutdown::AtOnce] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            sender.send_replace(level);
        }
        // The channel stays open: a closed one would mean that no stop can follow.
        sender.closed().await;
    });
    Ok(receiver)
}
