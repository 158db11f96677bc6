//! The ending of a run, and its failure groups and messages.

use std::io;

use bytes::Bytes;

use crate::one_shot::with_tail;
use crate::output_capture::OutputCapture;
use crate::supervise::StartStep;

/// Names of failure groups. They are stable, since users count and alert by them. There are also `exit-N` and
/// `signal-NAME`.
pub mod group {
    /// The program ruled out retries (exit status 100).
    pub const PERMANENT: &str = "permanent";
    /// The program's result is not one JSON value, or too large.
    pub const BAD_OUTPUT: &str = "bad-output";
    /// The job's arguments are not JSON.
    pub const BAD_INPUT: &str = "bad-input";
    /// The program exceeded its run time.
    pub const TIMEOUT: &str = "timeout";
    /// The program exceeded its CPU time.
    pub const CPU_LIMIT: &str = "cpu-limit";
    /// The run exceeded its memory.
    pub const MEMORY_LIMIT: &str = "memory-limit";
    /// The program exceeded its file size.
    pub const FILE_LIMIT: &str = "file-limit";
    /// The worker stopped while the program ran.
    pub const INTERRUPTED: &str = "interrupted";
    /// The worker's machine has no memory left.
    pub const OUT_OF_MEMORY: &str = "out-of-memory";
    /// The worker's machine, or the run's working directory, has no room left for files.
    pub const DISK_FULL: &str = "disk-full";
    /// The worker's machine, or its user, has too many processes.
    pub const TOO_MANY_PROCESSES: &str = "too-many-processes";
    /// The worker's machine, or its process, has too many open files.
    pub const TOO_MANY_FILES: &str = "too-many-files";
    /// The program could not be started for another reason.
    pub const START_FAILED: &str = "start-failed";
    /// The supervisor of the program was killed.
    pub const SUPERVISOR_LOST: &str = "supervisor-lost";
    /// A persistent program broke the protocol, or ended while it had a job.
    pub const FEED_BROKEN: &str = "feed-broken";
}

/// Exit status by which a program rules out retries.
pub(crate) const PERMANENT_STATUS: i32 = 100;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The run completed with this result.
    Completed(Bytes),
    /// The run failed for this reason.
    Failed(RunFailure),
    /// The worker has no program for the job.
    NoHandler(String),
    /// The run was stopped because its lease ended, so its outcome is dropped.
    Dropped(String),
    /// The run was never started.
    Unstarted(String),
}

/// A failed run, as it is reported to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunFailure {
    /// Failure group: one of [`group`].
    pub(crate) group: String,
    /// Failure message for people to read.
    pub(crate) message: String,
    /// Whether retries are of no use.
    pub(crate) is_permanent: bool,
}

impl Ending {
    /// Creates a failure that may be retried.
    pub(crate) fn retriable(group: impl Into<String>, message: impl Into<String>) -> Self {
        Self::failed(group, message, false)
    }

    /// Creates a failure that must not be retried.
    pub(crate) fn permanent(group: impl Into<String>, message: impl Into<String>) -> Self {
        Self::failed(group, message, true)
    }

    fn failed(group: impl Into<String>, message: impl Into<String>, is_permanent: bool) -> Self {
        Self::Failed(RunFailure {
            group: group.into(),
            message: message.into(),
            is_permanent,
        })
    }

    /// Appends the end of the log to a failure's message.
    pub(crate) fn with_tail(self, captured: &OutputCapture) -> Self {
        match self {
            Self::Failed(failed) => Self::Failed(RunFailure {
                message: with_tail(&failed.message, captured),
                ..failed
            }),
            other => other,
        }
    }

    /// Creates a failure from an error of this machine while a run was prepared (`rel W9`).
    pub(crate) fn from_machine(what: &str, error: &io::Error) -> Self {
        let group = error.raw_os_error().map_or(group::START_FAILED, group_of);
        Self::retriable(group, format!("{what}: {error}"))
    }

    /// Creates a failure from a program that could not be started.
    pub(crate) fn not_started(step: StartStep, errno: i32) -> Self {
        let error = io::Error::from_raw_os_error(errno);
        match (step, errno) {
            (StartStep::Execute, libc::ENOENT) => {
                Self::NoHandler("its interpreter does not exist".into())
            }
            (StartStep::Execute, libc::ENOEXEC) => {
                Self::NoHandler("it is neither a binary of this machine nor begins with #!".into())
            }
            (
                StartStep::Execute,
                libc::EACCES
                | libc::ELOOP
                | libc::ENOTDIR
                | libc::EPERM
                | libc::ELIBBAD
                | libc::EINVAL,
            ) => Self::NoHandler(format!("it cannot be executed: {error}")),
            (StartStep::Sandbox, _) => {
                Self::NoHandler(format!("its sandbox cannot be set up here: {error}"))
            }
            (StartStep::User, _) => {
                Self::NoHandler(format!("the worker may not change to its user: {error}"))
            }
            // `EAGAIN` on execution: the user has too many processes already.
            (StartStep::Process | StartStep::Execute, libc::EAGAIN) => {
                Self::retriable(group::TOO_MANY_PROCESSES, start_words(&error))
            }
            _ => Self::retriable(group_of(errno), start_words(&error)),
        }
    }
}

fn start_words(error: &io::Error) -> String {
    format!("the program could not be started: {error}")
}

fn group_of(errno: i32) -> &'static str {
    match errno {
        libc::ENOMEM => group::OUT_OF_MEMORY,
        libc::ENOSPC | libc::EDQUOT => group::DISK_FULL,
        libc::EMFILE | libc::ENFILE => group::TOO_MANY_FILES,
        _ => group::START_FAILED,
    }
}

/// Returns the group and the message for an unsuccessful status, in the form of `wait`.
pub(crate) fn of_status(status: i32) -> (String, String) {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        let name = signal_name(signal);
        let group = match signal {
            libc::SIGXCPU => group::CPU_LIMIT.into(),
            libc::SIGXFSZ => group::FILE_LIMIT.into(),
            _ => format!("signal-{name}"),
        };
        return (group, format!("killed by {name}"));
    }
    let code = libc::WEXITSTATUS(status);
    (format!("exit-{code}"), format!("exit status {code}"))
}

fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let place = usize::try_from(signal - 1).ok();
    match place.and_then(|place| NAMES.get(place)) {
        Some(name) => format!("SIG{name}"),
        None => format!("SIG{signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_stable_group() {
        assert_eq!(of_status(1 << 8).0, "exit-1");
        assert_eq!(of_status(255 << 8).0, "exit-255");
        assert_eq!(of_status(libc::SIGKILL).0, "signal-SIGKILL");
        assert_eq!(of_status(libc::SIGSEGV | 0x80).0, "signal-SIGSEGV");
        assert_eq!(of_status(libc::SIGXCPU).0, group::CPU_LIMIT);
        assert_eq!(of_status(40).0, "signal-SIG40");
    }

    #[test]
    fn a_machine_without_memory_is_no_fault_of_the_program() {
        let ending = Ending::not_started(StartStep::Execute, libc::ENOMEM);
        assert!(
            matches!(ending, Ending::Failed(failed) if failed.group == group::OUT_OF_MEMORY && !failed.is_permanent)
        );
    }
}
