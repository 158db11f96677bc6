//! Isolation of a supervisor: only the worker, or kill -9, can end it.
#![expect(unsafe_code, reason = "signals have no safe interface")]

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, set_dumpable_behavior, setrlimit, setsid,
};

/// Blocks every signal that can be blocked, and ignores none: a program inherits ignored signals, but gets a clean
/// mask.
pub(super) fn from_signals() {
    // SAFETY: sets dispositions to the system's own, then fills and applies a set of its own.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
        // The direct system call, since the C library refuses the two signals that it uses itself. All zero is the
        // default.
        let default = [0_u64; 4];
        for signal in 1..=64_i32 {
            let none = ptr::null_mut::<u64>();
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                none,
                8_usize,
            );
        }
    }
}

/// Returns a descriptor that is readable when a child has ended. It causes no further cost per program. The signal
/// must be blocked, as all are.
pub(super) fn child_ends() -> io::Result<OwnedFd> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: fills a set of its own; the descriptor that the call makes is nobody else's.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        match libc::signalfd(-1, &raw const set, flags) {
            made if made >= 0 => Ok(OwnedFd::from_raw_fd(made)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Sets up what programs inherit: a session without a terminal, in which each gets its own process group, and no core
/// files, which would fill the disk.
///
/// A separate session for each program would also work, but the kernel's scheduler makes a group for each session,
/// which costs a good part of a short program's run time.
pub(super) fn surroundings() -> io::Result<()> {
    // The worker recognises this process's orphans by the session: see `orphans`.
    setsid()?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Lowering a limit is always allowed.
    let _ = setrlimit(Resource::Core, none);
    Ok(())
}

/// Prevents programs of the same user from reading this process's memory or tracing it. Programs become readable
/// again when they are executed. Call it last: afterwards root owns the files below `/proc/self`.
pub(super) fn from_readers() {
    // Every kernel supports this.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Returns the session of a process, of this one if `process` is `None`; 0 if its leader is outside the pid
/// namespace, which rustix's call cannot return.
pub(super) fn session_of(process: Option<Pid>) -> Option<i32> {
    let number = process.map_or(0, |pid| pid.as_raw_nonzero().get());
    // SAFETY: a system call on a number.
    let session = unsafe { libc::getsid(number) };
    (session >= 0).then_some(session)
}

/// Makes the kernel kill a program before the worker or the server when memory runs out. Programs inherit this, and
/// are larger than the supervisor.
pub(super) fn prefer_us_to_die_second() {
    // If it cannot be set, the kernel's default applies.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
}
