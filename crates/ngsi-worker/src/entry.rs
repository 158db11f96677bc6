//! The child process: inserts the tasks that its parent sends, until the parent closes the input or ends.

use std::io;
use std::os::fd::AsFd as _;

use ganger_ngsi::environment::Environment;
use ganger_ngsi::postgres::executor::execute;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

use crate::variables::settings;

/// Inserts tasks from standard input, and replies on standard output, until the input ends.
///
/// The process ends with its parent, at once if the system supports that. It ignores stop signals, which may be sent to
/// all processes of a service, because the parent lets running tasks finish.
///
/// # Errors
/// If standard input or output is not a pipe, or the input is not a request.
pub fn insert_for_parent(environment: Environment) -> io::Result<()> {
    // If the parent has died already, the input is closed.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // From here on these signals do not end the process.
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            drop(signal(kind)?);
        }
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        let input = pipe::Receiver::from_owned_fd(input)?;
        let output = pipe::Sender::from_owned_fd(output)?;
        execute(settings(environment), input, output).await
    })
}
