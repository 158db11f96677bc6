//! Supervisors: one small process for each slot, which starts that slot's programs and ends them.
//!
//! A supervisor runs one program at a time and is the reaper of everything that program leaves behind, so
//! "no process of the run is left" (`rel W2`) is simply "the supervisor has no child". It is started once and kept:
//! starting a program costs one message there, one message back, and a `vfork`-like spawn from a small process.
//! It lives as long as the worker holds the other end of its socket: a worker killed with -9 closes it, and the
//! supervisor kills what runs and goes.

mod cgroup;
mod isolate;
mod main;
mod order;
mod orphans;
mod passing;
mod sandbox;
mod spawn;
mod sweep;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(crate) use cgroup::{Groups, Refused};
pub use main::supervisor_main;
pub(crate) use order::{Limits, Order, Step, User};

use cgroup::Group;
use order::Message;

/// How a supervisor is called in process lists; the binary recognises its task by it.
const NAME: &str = "ganger-supervisor";

/// Whether this process was started to be a supervisor.
pub(crate) fn is_asked_for() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// What a supervisor tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SupervisorEvent {
    /// The program could not be started.
    NotStarted {
        /// The step that failed.
        step: Step,
        /// The system's error number.
        errno: i32,
    },
    /// The program's own process ended.
    Exited {
        /// As `wait` gives it.
        status: i32,
        /// Whether no process of the run is left.
        is_clean: bool,
    },
    /// No process of the run is left.
    Clean {
        /// So many had to be killed.
        killed: u32,
    },
    /// Some process cannot be killed.
    Stuck,
    /// The supervisor itself is gone.
    Gone,
}

/// The worker's end of a supervisor.
pub(crate) struct Supervisor {
    process: Child,
    socket: OwnedFd,
    /// Dropped last, when nobody is in it any more.
    group: Option<Group>,
}

impl Supervisor {
    /// Starts `binary` as a supervisor, in a control group if one can be made.
    pub(crate) fn start(binary: &Path, groups: &Groups) -> io::Result<Self> {
        let (socket, other) = passing::pair()?;
        let mut command = Command::new(binary);
        command
            .arg0(NAME)
            .env_clear()
            .stdin(other)
            .stdout(Stdio::null());
        let process = orphans::start(&mut command)?;
        // It holds the other end of the socket, without which the supervisor's end is seen.
        drop(command);
        let group = Group::around(groups, process.id());
        Ok(Self {
            process,
            socket,
            group,
        })
    }

    /// Readable once [`Self::told`] has something.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Starts a program. `files`: program, directory, then its descriptors 0 to 3.
    pub(crate) fn run(&self, order: &Order, files: [BorrowedFd<'_>; 6]) -> io::Result<()> {
        passing::send(self.socket(), &order.encode(), &files)
    }

    /// Bounds memory and processes of the next run as a whole. Gives whether that can be done here.
    pub(crate) fn bound(&self, memory: Option<u64>, processes: Option<u64>) -> bool {
        let group = self.group.as_ref();
        group.is_some_and(|group| group.bound(memory, processes))
    }

    /// What the kernel refused to runs here since this was asked last.
    pub(crate) fn refused(&self) -> Refused {
        let group = self.group.as_ref();
        group.map_or(Refused::default(), Group::refused)
    }

    /// Asks the program's process group to end.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        passing::send(self.socket(), &[order::TERMINATE], &[])
    }

    /// Kills every process of the run. Answered by [`SupervisorEvent::Clean`] once the program has exited too.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        passing::send(self.socket(), &[order::SWEEP], &[])
    }

    /// Waits for the next word.
    pub(crate) fn told(&self) -> SupervisorEvent {
        let mut buffer = [0; 64];
        match passing::receive(self.socket(), &mut buffer, &mut Vec::new()) {
            Ok(length) => Message::decode(&buffer[..length])
                .map_or(SupervisorEvent::Gone, SupervisorEvent::from),
            Err(_) => SupervisorEvent::Gone,
        }
    }

    /// Whether its process lives.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Kills the supervisor and all that it has started: by its control group, if there is one, and by descent. Gives
    /// how many processes had to be looked for because they had lost it.
    pub(crate) fn kill(mut self) -> u32 {
        if let Some(group) = &self.group {
            // What cannot be killed so comes to us.
            let _ = group.kill();
        }
        // It may be gone already.
        let _ = self.process.kill();
        orphans::collect(&mut self.process)
    }
}

impl Drop for Supervisor {
    /// Without the worker's end of the socket the supervisor kills what runs, and ends.
    fn drop(&mut self) {
        if let Ok((spare, _)) = passing::pair() {
            self.socket = spare;
        }
        let killed = orphans::collect(&mut self.process);
        if killed > 0 {
            tracing::warn!(killed, "killed what a lost supervisor had left behind");
        }
    }
}

impl From<Message> for SupervisorEvent {
    fn from(message: Message) -> Self {
        match message {
            Message::NotStarted { step, errno } => Self::NotStarted { step, errno },
            Message::Exited { status, is_clean } => Self::Exited { status, is_clean },
            Message::Clean { killed } => Self::Clean { killed },
            Message::Stuck => Self::Stuck,
        }
    }
}
