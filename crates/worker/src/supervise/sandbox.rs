//! The sandbox: a program may read and execute what its user may, but write only below its own directory.
//!
//! Made with Landlock, which needs no rights. Network is not restricted here. Kernels without Landlock refuse to
//! start a sandboxed program rather than start it unprotected.
#![expect(unsafe_code, reason = "Landlock has no safe interface")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Accesses that write: everything of Landlock's third version that changes the file system, but for devices.
const WRITES: u64 = (1 << 1)   // write a file
    | (1 << 4) | (1 << 5)      // remove a directory, a file
    | (1 << 6)                 // make a character device
    | (1 << 7) | (1 << 8)      // make a directory, a file
    | (1 << 9) | (1 << 10)     // make a socket, a pipe
    | (1 << 11) | (1 << 12)    // make a block device, a symbolic link
    | (1 << 13)                // move between directories
    | (1 << 14); // cut a file

/// The rules that apply to files as well as directories: writing and cutting.
const FILE_WRITES: u64 = (1 << 1) | (1 << 14);

#[repr(C)]
struct Ruleset {
    handled_access_fs: u64,
}

/// As Landlock's sixth version has it.
#[repr(C)]
struct ScopedRuleset {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// Signals go to processes under the same rules only.
const SCOPE_SIGNAL: u64 = 1 << 1;

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

const RULE_PATH_BENEATH: u32 = 1;

/// Makes rules that allow writing below `directory`, and to the null device.
pub(super) fn rules(directory: RawFd) -> io::Result<OwnedFd> {
    let ruleset = Ruleset {
        handled_access_fs: WRITES,
    };
    // SAFETY: passes a struct of its own and its size.
    let made = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const ruleset,
            size_of::<Ruleset>(),
            0_u32,
        )
    };
    let made = RawFd::try_from(made)
        .ok()
        .filter(|fd| *fd >= 0)
        .ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the call made it, and nobody else knows it.
    let made = unsafe { OwnedFd::from_raw_fd(made) };
    allow(&made, directory, WRITES)?;
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    allow(&made, null.as_raw_fd(), FILE_WRITES)?;
    Ok(made)
}

/// Makes rules that keep a process's signals, and those of its descendants, among themselves. `None` before Linux 6.12,
/// and where Landlock is turned off.
pub(super) fn scope() -> Option<OwnedFd> {
    let ruleset = ScopedRuleset {
        handled_access_fs: 0,
        handled_access_net: 0,
        scoped: SCOPE_SIGNAL,
    };
    // SAFETY: passes a struct of its own and its size.
    let made = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const ruleset,
            size_of::<ScopedRuleset>(),
            0_u32,
        )
    };
    let made = RawFd::try_from(made).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the call made it, and nobody else knows it.
    Some(unsafe { OwnedFd::from_raw_fd(made) })
}

fn allow(ruleset: &OwnedFd, place: RawFd, allowed_access: u64) -> io::Result<()> {
    let rule = PathBeneath {
        allowed_access,
        parent_fd: place,
    };
    // SAFETY: passes a struct of its own.
    let added = unsafe {
        let rule = ptr::from_ref(&rule);
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            rule,
            0_u32,
        )
    };
    if added < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Binds this process to the rules, for good. Called between clone and exec.
pub(super) fn enter(rules: RawFd) -> Option<()> {
    // SAFETY: a system call on numbers.
    let entered = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0_u32) };
    (entered >= 0).then_some(())
}
