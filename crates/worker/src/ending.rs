//! How a run ended, and the words for it.

use std::io;

use bytes::Bytes;

use crate::one_shot::with_tail;
use crate::output_capture::OutputCapture;
use crate::supervise::Step;

/// Names of failure groups. They are stable: people count and alert by them. To these come `exit-N` and
/// `signal-NAME`.
pub mod group {
    /// The program said that trying again is of no use (exit status 100).
    pub const PERMANENT: &str = "permanent";
    /// The program's answer is not one JSON value, or too large.
    pub const BAD_OUTPUT: &str = "bad-output";
    /// The job's arguments are not JSON.
    pub const BAD_INPUT: &str = "bad-input";
    /// The program ran longer than it may.
    pub const TIMEOUT: &str = "timeout";
    /// The program used more CPU time than it may.
    pub const CPU_LIMIT: &str = "cpu-limit";
    /// The run used more memory than it may.
    pub const MEMORY_LIMIT: &str = "memory-limit";
    /// The program wrote a larger file than it may.
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
    /// The process that watched over the program was killed.
    pub const SUPERVISOR_LOST: &str = "supervisor-lost";
    /// A fed program broke the rules of feeding, or ended while it had a job.
    pub const FEED_BROKEN: &str = "feed-broken";
}

/// The exit status by which a program rules retries out.
pub(crate) const PERMANENT_STATUS: i32 = 100;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The run completed with this result.
    Completed(Bytes),
    /// The run failed for this reason.
    Failed(Failed),
    /// There is no program for it here.
    NoHandler(String),
    /// It was given up because its lease is gone: nobody wants to hear its outcome.
    Dropped(String),
    /// It was never started.
    Unstarted(String),
}

/// Failure of a run, as the server gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Failure group: one of [`group`].
    pub(crate) group: String,
    /// Failure message for people to read.
    pub(crate) message: String,
    /// Whether retries are of no use.
    pub(crate) is_permanent: bool,
}

impl Ending {
    /// A failure that may be tried again.
    pub(crate) fn retriable(group: impl Into<String>, message: impl Into<String>) -> Self {
        Self::failed(group, message, false)
    }

    /// A failure for good.
    pub(crate) fn permanent(group: impl Into<String>, message: impl Into<String>) -> Self {
        Self::failed(group, message, true)
    }

    fn failed(group: impl Into<String>, message: impl Into<String>, is_permanent: bool) -> Self {
        Self::Failed(Failed {
            group: group.into(),
            message: message.into(),
            is_permanent,
        })
    }

    /// With the end of the log behind a failure's message.
    pub(crate) fn with_tail(self, captured: &OutputCapture) -> Self {
        match self {
            Self::Failed(failed) => Self::Failed(Failed {
                message: with_tail(&failed.message, captured),
                ..failed
            }),
            other => other,
        }
    }

    /// From an error of this machine while a run was prepared (`rel W9`).
    pub(crate) fn from_machine(what: &str, error: &io::Error) -> Self {
        let group = error.raw_os_error().map_or(group::START_FAILED, group_of);
        Self::retriable(group, format!("{what}: {error}"))
    }

    /// From a program that could not be started.
    pub(crate) fn not_started(step: Step, errno: i32) -> Self {
        let error = io::Error::from_raw_os_error(errno);
        match (step, errno) {
            (Step::Execute, libc::ENOENT) => Self::NoHandler("its interpreter is not there".into()),
            (Step::Execute, libc::ENOEXEC) => {
                Self::NoHandler("it is neither a binary of this machine nor begins with #!".into())
            }
            (
                Step::Execute,
                libc::EACCES
                | libc::ELOOP
                | libc::ENOTDIR
                | libc::EPERM
                | libc::ELIBBAD
                | libc::EINVAL,
            ) => Self::NoHandler(format!("it cannot be executed: {error}")),
            (Step::Sandbox, _) => {
                Self::NoHandler(format!("its sandbox cannot be set up here: {error}"))
            }
            (Step::User, _) => {
                Self::NoHandler(format!("the worker may not change to its user: {error}"))
            }
            // The latter: its user has too many already.
            (Step::Process | Step::Execute, libc::EAGAIN) => {
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

/// The group and the words for a status other than success, as `wait` gives it.
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
        let ending = Ending::not_started(Step::Execute, libc::ENOMEM);
        assert!(
            matches!(ending, Ending::Failed(failed) if failed.group == group::OUT_OF_MEMORY && !failed.is_permanent)
        );
    }
}
