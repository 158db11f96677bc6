//! The main loop of a supervisor: takes an order, starts the program, reports its end, cleans up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, set_child_subreaper};

use super::order::{ORDER_BYTES_MAX, Order, RUN, SWEEP, StartStep, SupervisorMessage, TERMINATE};
use super::spawn::{NotStarted, RESERVED, Stack, spawn};
use super::sweep::{collect_for, kill_descendants};
use super::{isolate, passing, sandbox};

/// Runs this process as a supervisor until the worker ends. Standard input is the socket to the worker.
///
/// Call it only in a process that a worker has started for that: see [`crate::become_supervisor_if_asked`].
pub fn supervisor_main() {
    isolate::from_signals();
    if let Err(error) = serve() {
        // The worker has ended, or this machine is out of a resource: either way no process may stay.
        kill_descendants();
        if error.kind() != io::ErrorKind::UnexpectedEof {
            tracing::debug!(%error, "supervisor ends");
        }
    }
}

fn serve() -> io::Result<()> {
    set_child_subreaper(Some(rustix::process::getpid()))?;
    isolate::surroundings()?;
    isolate::prefer_us_to_die_second();
    isolate::from_readers();
    let _reserved = reserve()?;
    let ends = isolate::child_ends()?;
    let mut stack = Stack::new();
    let scope = sandbox::scope();
    let stdin = io::stdin();
    let socket = stdin.as_fd();
    let mut buffer = vec![0; ORDER_BYTES_MAX];
    let mut running: Option<Pid> = None;
    loop {
        let (has_word, has_ended) = wait_for(socket, ends.as_fd())?;
        if has_ended {
            // Orphans are reaped too, also when no program runs.
            let (status, is_clean) = collect_for(running);
            if let Some(status) = status {
                running = None;
                let status = status.as_raw();
                send(socket, SupervisorMessage::Exited { status, is_clean })?;
            }
        }
        if has_word {
            handle_command(
                socket,
                &mut buffer,
                (&mut stack, scope.as_ref()),
                &mut running,
            )?;
        }
    }
}

/// Waits for a message of the worker, or for the end of any child.
fn wait_for(socket: BorrowedFd<'_>, ends: BorrowedFd<'_>) -> io::Result<(bool, bool)> {
    let mut polled = [socket, ends].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    match poll(&mut polled, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let [has_word, has_ended] = polled.map(|one| !one.revents().is_empty());
    if has_ended {
        // Several ends may arrive as one signal: it is read before the children are checked, so that none is missed.
        let mut signal = [0; size_of::<libc::signalfd_siginfo>()];
        let _ = rustix::io::read(ends, &mut signal);
    }
    Ok((has_word, has_ended))
}

fn handle_command(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    (stack, scope): (&mut Stack, Option<&OwnedFd>),
    running: &mut Option<Pid>,
) -> io::Result<()> {
    let mut files = Vec::new();
    let length = passing::receive(socket, buffer, &mut files)?;
    match buffer[..length].split_first() {
        Some((&RUN, order)) => match start(order, &files, stack, scope) {
            Ok(main) => {
                *running = Some(main);
                Ok(())
            }
            Err(NotStarted { step, errno }) => {
                send(socket, SupervisorMessage::NotStarted { step, errno })
            }
        },
        Some((&TERMINATE, _)) => {
            // The group id stays reserved only while the main process is not reaped.
            if let Some(main) = *running {
                let _ = kill_process_group(main, Signal::TERM);
            }
            Ok(())
        }
        Some((&SWEEP, _)) => sweep(socket, running),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Kills all processes; reports the program's end first if it had not ended.
fn sweep(socket: BorrowedFd<'_>, running: &mut Option<Pid>) -> io::Result<()> {
    if let Some(main) = running.take() {
        let _ = kill_process_group(main, Signal::KILL);
        let _ = rustix::process::kill_process(main, Signal::KILL);
        let status = rustix::process::waitpid(Some(main), rustix::process::WaitOptions::empty());
        let status = status
            .ok()
            .flatten()
            .map_or(9, |(_, status)| status.as_raw());
        send(
            socket,
            SupervisorMessage::Exited {
                status,
                is_clean: false,
            },
        )?;
    }
    // Once the program is reaped, its group id may be reused: the rest is found by descent.
    let message = kill_descendants().map_or(SupervisorMessage::Stuck, |killed| {
        SupervisorMessage::Clean { killed }
    });
    send(socket, message)
}

fn start(
    order: &[u8],
    files: &[OwnedFd],
    stack: &mut Stack,
    scope: Option<&OwnedFd>,
) -> Result<Pid, NotStarted> {
    let unreadable = || NotStarted::of(StartStep::Process, Errno::INVAL);
    let order = Order::decode(order).ok_or_else(unreadable)?;
    spawn(&order, files, stack, scope)
}

/// Occupies the low descriptors, so that received files get higher numbers than those a program is given.
fn reserve() -> io::Result<Vec<OwnedFd>> {
    let mut reserved = Vec::new();
    loop {
        let null = OwnedFd::from(std::fs::File::open("/dev/null")?);
        if std::os::fd::AsRawFd::as_raw_fd(&null) >= RESERVED {
            return Ok(reserved);
        }
        reserved.push(null);
    }
}

fn send(socket: BorrowedFd<'_>, message: SupervisorMessage) -> io::Result<()> {
    passing::send(socket, &message.encode(), &[])
}
