//! Stopping by signal: the first asks nicely, the second does not.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::Shutdown;

/// Follows `SIGTERM` and `SIGINT`: the first stops gracefully, the second at once. Needs a running runtime.
///
/// # Errors
/// If signals cannot be listened to.
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
        // Kept open: a closed channel would mean that nobody can speak any more.
        sender.closed().await;
    });
    Ok(receiver)
}
