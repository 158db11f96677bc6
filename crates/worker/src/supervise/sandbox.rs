//! The sandbox: a program may read and execute what its user may, but write only below its own directory.
//!
//! The sandbox uses Landlock, which needs no privileges. Network access is not restricted. On kernels without
//! Landlock a sandboxed program is not started, rather than started unprotected.

use std::error::Error;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use landlock::{
    AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};
use rustix::io::Errno;

/// Returns all access rights of Landlock's third version that change the file system.
fn writes() -> BitFlags<AccessFs> {
    AccessFs::from_write(landlock::ABI::V3)
}

/// Makes rules that allow writing only below `directory` and to the null device.
pub(super) fn rules(directory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    let of_file = make_bitflags!(AccessFs::{WriteFile | Truncate});
    strict()
        .handle_access(writes())
        .and_then(Ruleset::create)
        .and_then(|made| made.add_rule(PathBeneath::new(directory, writes())))
        .and_then(|made| made.add_rule(PathBeneath::new(null.as_fd(), of_file)))
        .map_err(|error| system_error(&error))
        .and_then(descriptor)
}

/// Makes rules that confine the signals of a process and its descendants to each other. `None` before Linux 6.12, and
/// where Landlock is turned off.
pub(super) fn scope() -> Option<OwnedFd> {
    let made = strict().scope(Scope::Signal).and_then(Ruleset::create);
    made.ok().and_then(|made| descriptor(made).ok())
}

/// Returns a ruleset that fails where the kernel lacks a part of it.
fn strict() -> Ruleset {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement)
}

fn descriptor(made: RulesetCreated) -> io::Result<OwnedFd> {
    Option::from(made).ok_or_else(|| Errno::OPNOTSUPP.into())
}

/// Returns the operating system's error behind one of the library; "not supported" if the kernel lacks a part.
fn system_error(error: &RulesetError) -> io::Error {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes
        .find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
        .map_or_else(|| Errno::OPNOTSUPP.into(), io::Error::from_raw_os_error)
}

/// Applies the rules to this process, permanently. Called between clone and exec, where only direct system calls are
/// allowed.
#[expect(
    unsafe_code,
    reason = "the library's call takes the rules away from their owner"
)]
pub(super) fn enter(rules: BorrowedFd<'_>) -> rustix::io::Result<()> {
    // SAFETY: a system call on numbers.
    let entered =
        unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0_u32) };
    if entered < 0 {
        return Err(super::spawn::last_errno());
    }
    Ok(())
}
