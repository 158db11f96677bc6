//! The supervisor's own life: take an order, start it, tell its end, sweep up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, set_child_subreaper,
};

use super::order::{Message, ORDER_BYTES_MAX, Order, RUN, SWEEP, Step, TERMINATE};
use super::spawn::{NotStarted, RESERVED, spawn};
use super::sweep::{Collected, collect, collect_for, kill_descendants};
use super::{isolate, passing};

/// Orphans of a running program are collected this often.
const COLLECT_EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Runs this process as a supervisor, until the worker is gone. Standard input is the socket to the worker.
///
/// Call it only in a process that a worker has started for that: see [`crate::become_supervisor_if_asked`].
pub fn supervisor_main() {
    isolate::from_signals();
    if let Err(error) = serve() {
        // The worker is gone, or this machine is out of something: either way nothing may be left running.
        kill_descendants();
        if error.kind() != io::ErrorKind::UnexpectedEof {
            tracing::debug!(%error, "supervisor ends");
        }
    }
}

/// A running program.
struct Running {
    main: Pid,
    pidfd: OwnedFd,
}

fn serve() -> io::Result<()> {
    set_child_subreaper(Some(rustix::process::getpid()))?;
    isolate::prefer_us_to_die_second();
    let _reserved = reserve()?;
    let stdin = io::stdin();
    let socket = stdin.as_fd();
    let mut buffer = vec![0; ORDER_BYTES_MAX];
    let mut running: Option<Running> = None;
    loop {
        let (has_word, has_exited) = wait_for(socket, running.as_ref())?;
        // Looked at on every quiet second too, since that collects orphans that have ended.
        let looks = has_exited || !has_word;
        let ended = running
            .as_ref()
            .filter(|_| looks)
            .and_then(|run| collect_for(run.main));
        if let Some(status) = ended {
            running = None;
            let is_clean = matches!(collect(), Collected::NoneLeft(_));
            let status = status.as_raw();
            say(socket, Message::Exited { status, is_clean })?;
        }
        if has_word {
            obey(socket, &mut buffer, &mut running)?;
        }
    }
}

/// Waits for a word of the worker, or for the program's end.
fn wait_for(socket: BorrowedFd<'_>, running: Option<&Running>) -> io::Result<(bool, bool)> {
    let mut polled = vec![PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    if let Some(run) = running {
        polled.push(PollFd::new(&run.pidfd, PollFlags::IN));
    }
    let timeout = running.is_some().then_some(&COLLECT_EVERY);
    match poll(&mut polled, timeout) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let has = |place: usize| {
        polled
            .get(place)
            .is_some_and(|one| !one.revents().is_empty())
    };
    Ok((has(0), has(1)))
}

fn obey(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    running: &mut Option<Running>,
) -> io::Result<()> {
    let mut files = Vec::new();
    let length = passing::receive(socket, buffer, &mut files)?;
    match buffer[..length].split_first() {
        Some((&RUN, order)) => match start(order, &files) {
            Ok(run) => {
                *running = Some(run);
                Ok(())
            }
            Err(NotStarted { step, errno }) => say(socket, Message::NotStarted { step, errno }),
        },
        Some((&TERMINATE, _)) => {
            // Only while the main process is uncollected can the group not belong to somebody else.
            if let Some(run) = running.as_ref() {
                let _ = kill_process_group(run.main, Signal::TERM);
            }
            Ok(())
        }
        Some((&SWEEP, _)) => sweep(socket, running),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Kills all; tells the program's end first if it had not ended.
fn sweep(socket: BorrowedFd<'_>, running: &mut Option<Running>) -> io::Result<()> {
    if let Some(run) = running.take() {
        let _ = kill_process_group(run.main, Signal::KILL);
        let _ = rustix::process::kill_process(run.main, Signal::KILL);
        let status =
            rustix::process::waitpid(Some(run.main), rustix::process::WaitOptions::empty());
        let status = status
            .ok()
            .flatten()
            .map_or(9, |(_, status)| status.as_raw());
        say(
            socket,
            Message::Exited {
                status,
                is_clean: false,
            },
        )?;
    }
    // Once collected, the number of the group may be another's: the rest is found by descent alone.
    let word = kill_descendants().map_or(Message::Stuck, |killed| Message::Clean { killed });
    say(socket, word)
}

fn start(order: &[u8], files: &[OwnedFd]) -> Result<Running, NotStarted> {
    let failed = |step, errno| NotStarted { step, errno };
    let order = Order::decode(order).ok_or(failed(Step::Process, libc::EINVAL))?;
    let pid = spawn(&order, files)?;
    let main = Pid::from_raw(pid).ok_or(failed(Step::Process, libc::ESRCH))?;
    let pidfd = pidfd_open(main, PidfdFlags::empty()).map_err(|error| {
        kill_descendants();
        failed(Step::Process, error.raw_os_error())
    })?;
    Ok(Running { main, pidfd })
}

/// Fills the low descriptors, so that what arrives is above those a program is given.
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

fn say(socket: BorrowedFd<'_>, message: Message) -> io::Result<()> {
    passing::send(socket, &message.encode(), &[])
}
