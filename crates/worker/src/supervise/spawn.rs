//! Starts a program the way `posix_spawn` does, with all that the standard library cannot set.
//!
//! The new process shares the supervisor's memory until it executes the program (`CLONE_VM`), and the supervisor
//! sleeps that long (`CLONE_VFORK`): no page table is copied, and an error number is simply left in memory.
//! Between the two only system calls are made; nothing allocates, nothing locks.
#![expect(
    unsafe_code,
    reason = "a process must be prepared between clone and exec"
)]

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use super::order::{Limits, Order, Step, User};
use super::sandbox;

/// Why a program could not be started.
pub(super) struct NotStarted {
    pub(super) step: Step,
    pub(super) errno: i32,
}

/// Descriptors below this number are kept free for what the program is given.
pub(super) const RESERVED: RawFd = 10;

/// Where a script is open that its own user cannot reach by its path: its interpreter opens `/dev/fd/4`.
const SCRIPT: RawFd = 4;

/// Everything the new process needs, made before it exists.
struct Plan<'a> {
    order: &'a Order,
    arguments: [*const c_char; 2],
    environment: Vec<*const c_char>,
    program: RawFd,
    directory: RawFd,
    standard: [RawFd; 4],
    sandbox: Option<RawFd>,
    scope: Option<RawFd>,
    parent: libc::pid_t,
    failure: Option<(Step, i32)>,
}

/// The stack of a process that shares the supervisor's memory, kept for the next one.
///
/// 64 KiB, aligned as every machine wants its stack; the new process needs a fraction of it.
pub(super) struct Stack(Vec<u128>);

impl Stack {
    pub(super) fn new() -> Self {
        Self(vec![0; 4096])
    }
}

/// Starts `order` with its files: program, directory, descriptors 0 to 3. Gives the process's number.
pub(super) fn spawn(
    order: &Order,
    files: &[OwnedFd],
    stack: &mut Stack,
    scope: Option<&OwnedFd>,
) -> Result<i32, NotStarted> {
    let files: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let &[program, directory, a, b, c, d] = files.as_slice() else {
        return Err(NotStarted {
            step: Step::Process,
            errno: libc::EBADF,
        });
    };
    let sandbox = order
        .is_sandboxed
        .then(|| sandbox::rules(directory))
        .transpose();
    let sandbox = sandbox.map_err(|error| NotStarted {
        step: Step::Sandbox,
        errno: error.raw_os_error().unwrap_or(libc::EINVAL),
    })?;
    let ends = order.environment.iter().map(|text| text.as_ptr());
    let mut plan = Plan {
        order,
        arguments: [order.name.as_ptr(), ptr::null()],
        environment: ends.chain([ptr::null()]).collect(),
        program,
        directory,
        standard: [a, b, c, d],
        sandbox: sandbox.as_ref().map(AsRawFd::as_raw_fd),
        scope: scope.filter(|_| order.is_confined).map(AsRawFd::as_raw_fd),
        // SAFETY: always succeeds.
        parent: unsafe { libc::getpid() },
        failure: None,
    };
    clone(&mut plan, stack)
}

fn clone(plan: &mut Plan<'_>, stack: &mut Stack) -> Result<i32, NotStarted> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let top = stack.0.as_mut_ptr_range().end;
    // SAFETY: `child` runs on `stack` while this thread sleeps, and both outlive it: CLONE_VFORK returns only once
    // the child has executed the program or ended.
    let pid = unsafe { libc::clone(child, top.cast(), flags, ptr::from_mut(plan).cast()) };
    if pid < 0 {
        return Err(NotStarted {
            step: Step::Process,
            errno: errno(),
        });
    }
    let Some((step, errno)) = plan.failure else {
        return Ok(pid);
    };
    // SAFETY: takes the number of our own child, which has ended.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
    Err(NotStarted { step, errno })
}

extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: `clone` passes a live plan that nobody else touches while the parent sleeps.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    let Err(step) = become_program(plan);
    plan.failure = Some((step, errno()));
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

fn become_program(plan: &Plan<'_>) -> Result<std::convert::Infallible, Step> {
    surroundings(plan).ok_or(Step::Surroundings)?;
    limits(&plan.order.limits).ok_or(Step::Limits)?;
    if let Some(user) = plan.order.user {
        change_user(user).ok_or(Step::User)?;
    }
    // Asked for after the user has changed, since that forgets it.
    die_with(plan.parent).ok_or(Step::Surroundings)?;
    no_new_privileges().ok_or(Step::Sandbox)?;
    if let Some(rules) = plan.sandbox {
        sandbox::enter(rules).ok_or(Step::Sandbox)?;
    }
    if let Some(scope) = plan.scope {
        // A program may run under sixteen sets of rules at most; without this one it is watched all the same.
        let _ = sandbox::enter(scope);
    }
    signals().ok_or(Step::Surroundings)?;
    execute(plan);
    Err(Step::Execute)
}

/// `Some` if a system call went well.
fn ok(result: c_int) -> Option<()> {
    (result >= 0).then_some(())
}

fn surroundings(plan: &Plan<'_>) -> Option<()> {
    // SAFETY: system calls on numbers only. The sources are all at RESERVED or above, so no target overwrites one.
    unsafe {
        // Its own group, by which it is ended; the session is the supervisor's, which has no terminal.
        ok(libc::setpgid(0, 0))?;
        for (target, source) in (0..).zip(plan.standard) {
            ok(libc::dup2(source, target))?;
        }
        if plan.order.is_script {
            ok(libc::dup2(plan.program, SCRIPT))?;
        }
        let first: c_int = if plan.order.is_script {
            SCRIPT + 1
        } else {
            SCRIPT
        };
        // Whatever else is open closes itself at exec. Old kernels lack the call, but all of ours is marked already.
        libc::syscall(
            libc::SYS_close_range,
            first,
            c_int::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        ok(libc::fchdir(plan.directory))
    }
}

fn limits(limits: &Limits) -> Option<()> {
    // CPU time warns with SIGXCPU, and kills 5 s later.
    set_limit(libc::RLIMIT_CPU, limits.cpu_seconds, 5)?;
    set_limit(libc::RLIMIT_AS, limits.memory_bytes, 0)?;
    set_limit(libc::RLIMIT_NPROC, limits.processes, 0)?;
    set_limit(libc::RLIMIT_NOFILE, limits.open_files, 0)?;
    set_limit(libc::RLIMIT_FSIZE, limits.file_bytes, 0)
}

fn set_limit(resource: libc::__rlimit_resource_t, limit: Option<u64>, slack: u64) -> Option<()> {
    let Some(limit) = limit else {
        return Some(());
    };
    let mut old = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls read or write one `rlimit`.
    unsafe {
        ok(libc::getrlimit(resource, &raw mut old))?;
        // What the worker itself may not do, its program may not either.
        let new = libc::rlimit {
            rlim_cur: limit.min(old.rlim_max),
            rlim_max: limit.saturating_add(slack).min(old.rlim_max),
        };
        ok(libc::setrlimit(resource, &raw const new))
    }
}

fn change_user(user: User) -> Option<()> {
    // The bare calls: the C library's would try to change every thread of the process it believes to be in.
    // SAFETY: system calls on numbers; the empty list of groups has no element to read.
    unsafe {
        let none = ptr::null::<libc::gid_t>();
        (libc::syscall(libc::SYS_setgroups, 0, none) >= 0).then_some(())?;
        (libc::syscall(libc::SYS_setresgid, user.gid, user.gid, user.gid) >= 0).then_some(())?;
        (libc::syscall(libc::SYS_setresuid, user.uid, user.uid, user.uid) >= 0).then_some(())
    }
}

/// The program is killed when the supervisor dies, also if it has died just now.
fn die_with(parent: libc::pid_t) -> Option<()> {
    let signal = c_ulong::try_from(libc::SIGKILL).ok()?;
    // SAFETY: system calls on numbers.
    unsafe {
        ok(libc::prctl(libc::PR_SET_PDEATHSIG, signal))?;
        (libc::getppid() == parent).then_some(())
    }
}

fn no_new_privileges() -> Option<()> {
    let (one, zero): (c_ulong, c_ulong) = (1, 0);
    // SAFETY: a system call on numbers.
    ok(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, one, zero, zero, zero) })
}

/// No signal is blocked for a new program. None is ignored either: the supervisor ignores none.
fn signals() -> Option<()> {
    // SAFETY: fills and applies a set of its own; the mask is this process's alone.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        ok(libc::sigprocmask(
            libc::SIG_SETMASK,
            &raw const none,
            ptr::null_mut(),
        ))
    }
}

/// Executes what was opened and checked. A binary is executed by its descriptor, whatever its path names by now.
///
/// A script is opened a second time, by its interpreter, and finds its neighbours by the name that it was started by. So
/// it is started by its path if that names the file that was checked, for the user that it runs as; otherwise by its
/// descriptor, which works where the path cannot be searched. Between this look and the interpreter's the file could be
/// exchanged by somebody who may write to the folder of the programs, and who might as well have put another program
/// there before. A set-user-id bit has no effect on what is executed here.
fn execute(plan: &Plan<'_>) {
    let empty: &CStr = c"";
    if plan.order.is_script && is_at_its_path(plan) {
        // SAFETY: as below; the descriptor is this process's own.
        unsafe {
            libc::fcntl(SCRIPT, libc::F_SETFD, libc::FD_CLOEXEC);
            libc::execve(
                plan.order.name.as_ptr(),
                plan.arguments.as_ptr(),
                plan.environment.as_ptr(),
            );
        }
        return;
    }
    let program = if plan.order.is_script {
        SCRIPT
    } else {
        plan.program
    };
    // SAFETY: both lists end with a null pointer and point at strings of the order, which is alive.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program,
            empty.as_ptr(),
            plan.arguments.as_ptr(),
            plan.environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
}

/// Whether the program's path names the file that was opened.
fn is_at_its_path(plan: &Plan<'_>) -> bool {
    // SAFETY: both calls fill a struct of their own; the path ends with a NUL.
    unsafe {
        let mut opened: libc::stat = std::mem::zeroed();
        let mut named: libc::stat = std::mem::zeroed();
        libc::fstat(SCRIPT, &raw mut opened) == 0
            && libc::stat(plan.order.name.as_ptr(), &raw mut named) == 0
            && (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)
    }
}

fn errno() -> i32 {
    // SAFETY: the C library gives the place of this thread's number, which the sleeping parent shares.
    unsafe { *libc::__errno_location() }
}
