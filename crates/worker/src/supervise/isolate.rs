//! What a supervisor does to itself: it cannot be ended but by the worker, or with -9.
#![expect(unsafe_code, reason = "signals have no safe interface")]

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, set_dumpable_behavior, setrlimit, setsid,
};

/// Blocks every signal that can be blocked, and ignores none: a program inherits the latter, and gets a clean mask
/// of its own.
pub(super) fn from_signals() {
    // SAFETY: sets dispositions to the system's own, then fills and applies a set of its own.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
        // The bare call, since the C library refuses the two signals it uses itself. All zero is the default.
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

/// A descriptor that is readable when a child has ended. Once made it costs nothing more per program. The signal must
/// be blocked, as all are.
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

/// What programs inherit from here instead of asking for it one by one: a session without a terminal, in which each
/// gets a process group of its own, and no core files, since they would fill the disk.
///
/// A session for each program would do as well, but the kernel's scheduler makes a group for each session, which
/// costs a good part of a short program's life.
pub(super) fn surroundings() -> io::Result<()> {
    // The worker knows what this process leaves behind by its session: see `orphans`.
    setsid()?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Less than that is always allowed.
    let _ = setrlimit(Resource::Core, none);
    Ok(())
}

/// Programs of the same user can neither read this process's memory nor trace it. Programs become readable again when
/// they are executed. To be called last: the files below `/proc/self` are root's from now on.
pub(super) fn from_readers() {
    // Known to every kernel.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// The session of a process, of this one if none is named; 0 if its leader is outside of the pid namespace, which
/// rustix's call cannot give.
pub(super) fn session_of(process: Option<Pid>) -> Option<i32> {
    let number = process.map_or(0, |pid| pid.as_raw_nonzero().get());
    // SAFETY: a system call on a number.
    let session = unsafe { libc::getsid(number) };
    (session >= 0).then_some(session)
}

/// When memory runs out the kernel should kill a program before it kills the worker or the server. Programs
/// inherit this, and are larger than the supervisor.
pub(super) fn prefer_us_to_die_second() {
    // Where it cannot be set, the kernel's own choice stands.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
}
