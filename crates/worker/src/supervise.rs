//! Supervisors: one small process for each slot, which starts and ends that slot's programs.
//!
//! A supervisor runs one program at a time and reaps everything that the program leaves behind, so "no process of the
//! run is left" (`rel W2`) means "the supervisor has no child". It is started once and kept: starting a program costs
//! one message there, one message back, and a `vfork`-like spawn from a small process. It lives as long as the worker
//! holds the other end of its socket: if the worker is killed with -9, the socket closes, and the supervisor kills
//! all processes and ends.

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

pub(crate) use cgroup::{ControlGroups, LimitHits};
pub use main::supervisor_main;
pub(crate) use order::{Limits, Order, StartStep, User};

use cgroup::ControlGroup;
use order::SupervisorMessage;

/// Name of a supervisor in process lists, by which the binary recognises its task.
const NAME: &str = "ganger-supervisor";

/// Whether this process was started to be a supervisor.
pub(crate) fn is_asked_for() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// An event that a supervisor reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SupervisorEvent {
    /// The program could not be started.
    NotStarted {
        /// The step that failed.
        step: StartStep,
        /// The system's error number.
        errno: i32,
    },
    /// The program's own process ended.
    Exited {
        /// Status in the form of `wait`.
        status: i32,
        /// Whether no process of the run is left.
        is_clean: bool,
    },
    /// No process of the run is left.
    Clean {
        /// Number of processes that had to be killed.
        killed: u32,
    },
    /// A process cannot be killed.
    Stuck,
    /// The supervisor itself has ended.
    Gone,
}

/// The worker's end of a supervisor.
pub(crate) struct Supervisor {
    process: Child,
    socket: OwnedFd,
    /// The control group, dropped last, when no process is in it.
    group: Option<ControlGroup>,
}

impl Supervisor {
    /// Starts `binary` as a supervisor, in a control group if one can be made.
    pub(crate) fn start(binary: &Path, groups: &ControlGroups) -> io::Result<Self> {
        let (socket, other) = passing::pair()?;
        let mut command = Command::new(binary);
        command
            .arg0(NAME)
            .env_clear()
            .stdin(other)
            .stdout(Stdio::null());
        let process = orphans::start(&mut command)?;
        // The command holds the other end of the socket, which must be closed here to notice the supervisor's end.
        drop(command);
        let group = ControlGroup::around(groups, process.id());
        Ok(Self {
            process,
            socket,
            group,
        })
    }

    /// Readable once [`Self::next_event`] has something.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Starts a program. `files`: program, directory, then its descriptors 0 to 3.
    pub(crate) fn run(&self, order: &Order, files: [BorrowedFd<'_>; 6]) -> io::Result<()> {
        passing::send(self.socket(), &order.encode(), &files)
    }

    /// Limits memory and processes of the next run as a whole. Returns whether that is possible on this machine.
    pub(crate) fn bound(&self, memory: Option<u64>, processes: Option<u64>) -> bool {
        let group = self.group.as_ref();
        group.is_some_and(|group| group.bound(memory, processes))
    }

    /// Returns what the kernel refused to runs since the last call.
    pub(crate) fn refused(&self) -> LimitHits {
        let group = self.group.as_ref();
        group.map_or(LimitHits::default(), ControlGroup::refused)
    }

    /// Asks the program's process group to end.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        passing::send(self.socket(), &[order::TERMINATE], &[])
    }

    /// Kills every process of the run. Answered by [`SupervisorEvent::Clean`] once the program has exited too.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        passing::send(self.socket(), &[order::SWEEP], &[])
    }

    /// Waits for the next event.
    pub(crate) fn next_event(&self) -> SupervisorEvent {
        let mut buffer = [0; 64];
        match passing::receive(self.socket(), &mut buffer, &mut Vec::new()) {
            Ok(length) => SupervisorMessage::decode(&buffer[..length])
                .map_or(SupervisorEvent::Gone, SupervisorEvent::from),
            Err(_) => SupervisorEvent::Gone,
        }
    }

    /// Whether the supervisor's process lives.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Kills the supervisor and everything it started: by its control group, if there is one, and by descent. Returns
    /// the number of orphaned processes that were killed.
    pub(crate) fn kill(mut self) -> u32 {
        if let Some(group) = &self.group {
            // Processes that remain become children of this process.
            let _ = group.kill();
        }
        // It may have ended already.
        let _ = self.process.kill();
        orphans::collect(&mut self.process)
    }
}

impl Drop for Supervisor {
    /// When the worker's end of the socket closes, the supervisor kills all processes and ends.
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

impl From<SupervisorMessage> for SupervisorEvent {
    fn from(message: SupervisorMessage) -> Self {
        match message {
            SupervisorMessage::NotStarted { step, errno } => Self::NotStarted { step, errno },
            SupervisorMessage::Exited { status, is_clean } => Self::Exited { status, is_clean },
            SupervisorMessage::Clean { killed } => Self::Clean { killed },
            SupervisorMessage::Stuck => Self::Stuck,
        }
    }
}
