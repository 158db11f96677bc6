//! What a supervisor does to itself: it cannot be ended but by the worker, or with -9.
#![expect(unsafe_code, reason = "the signal mask has no safe interface")]

use std::fs;
use std::ptr;

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

/// When memory runs out the kernel shall take a program before it takes the worker or the server. Programs
/// inherit this, and are larger than the supervisor.
pub(super) fn prefer_us_to_die_second() {
    // Where it cannot be set, the kernel's own choice stands.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
}
