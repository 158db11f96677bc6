//! Starts a program the way `posix_spawn` does, with everything that the standard library cannot set.
//!
//! The new process shares the supervisor's memory until it executes the program (`CLONE_VM`), and the supervisor
//! sleeps that long (`CLONE_VFORK`): no page table is copied, and an error number is simply left in memory. Between
//! clone and exec only system calls are made; nothing allocates or locks.
#![expect(
    unsafe_code,
    reason = "a process must be prepared between clone and exec"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::fs::{fstat, stat};
use rustix::io::{Errno, dup2};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, fchdir, getpid, getppid, getrlimit,
    set_parent_process_death_signal, setpgid, setrlimit, waitpid,
};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use rustix::{
    io::Result as Done,
    process::{Gid, Uid},
};

use super::order::{Limits, Order, StartStep, User};
use super::sandbox;

/// The reason why a program could not be started.
pub(super) struct NotStarted {
    pub(super) step: StartStep,
    pub(super) errno: i32,
}

/// Descriptors below this number are reserved for the program's own.
pub(super) const RESERVED: RawFd = 10;

/// Descriptor of a script that its own user cannot reach by its path: its interpreter opens `/dev/fd/4`.
const SCRIPT: RawFd = 4;

/// Everything the new process needs, made before it exists.
struct Plan<'a> {
    order: &'a Order,
    arguments: [*const c_char; 2],
    environment: Vec<*const c_char>,
    program: BorrowedFd<'a>,
    directory: BorrowedFd<'a>,
    standard: [BorrowedFd<'a>; 4],
    sandbox: Option<BorrowedFd<'a>>,
    scope: Option<BorrowedFd<'a>>,
    parent: Pid,
    failure: Option<(StartStep, Errno)>,
}

/// The stack of a process that shares the supervisor's memory, reused for the next one.
///
/// 64 KiB, aligned as every machine requires; the new process needs a fraction of it.
pub(super) struct Stack(Vec<u128>);

impl Stack {
    pub(super) fn new() -> Self {
        Self(vec![0; 4096])
    }
}

/// Starts `order` with its files: program, directory, descriptors 0 to 3. Returns the process id.
pub(super) fn spawn(
    order: &Order,
    files: &[OwnedFd],
    stack: &mut Stack,
    scope: Option<&OwnedFd>,
) -> Result<Pid, NotStarted> {
    let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    let &[program, directory, a, b, c, d] = files.as_slice() else {
        return Err(NotStarted::of(StartStep::Process, Errno::BADF));
    };
    let sandbox = order
        .is_sandboxed
        .then(|| sandbox::rules(directory))
        .transpose();
    let sandbox = sandbox.map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
        NotStarted::of(StartStep::Sandbox, errno)
    })?;
    let ends = order.environment.iter().map(|text| text.as_ptr());
    let mut plan = Plan {
        order,
        arguments: [order.name.as_ptr(), ptr::null()],
        environment: ends.chain([ptr::null()]).collect(),
        program,
        directory,
        standard: [a, b, c, d],
        sandbox: sandbox.as_ref().map(AsFd::as_fd),
        scope: scope.filter(|_| order.is_confined).map(AsFd::as_fd),
        parent: getpid(),
        failure: None,
    };
    clone(&mut plan, stack)
}

impl NotStarted {
    pub(super) fn of(step: StartStep, errno: Errno) -> Self {
        let errno = errno.raw_os_error();
        Self { step, errno }
    }
}

fn clone(plan: &mut Plan<'_>, stack: &mut Stack) -> Result<Pid, NotStarted> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let top = stack.0.as_mut_ptr_range().end;
    // SAFETY: `child` runs on `stack` while this thread sleeps, and both outlive it: CLONE_VFORK returns only once
    // the child has executed the program or ended.
    let pid = unsafe { libc::clone(child, top.cast(), flags, ptr::from_mut(plan).cast()) };
    let pid = Pid::from_raw(pid.max(0))
        .ok_or_else(|| NotStarted::of(StartStep::Process, last_errno()))?;
    let Some((step, errno)) = plan.failure else {
        return Ok(pid);
    };
    // The number of our own child, which has ended.
    let _ = waitpid(Some(pid), WaitOptions::empty());
    Err(NotStarted::of(step, errno))
}

extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: `clone` passes a live plan that nobody else touches while the parent sleeps.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    let Err(failure) = become_program(plan);
    plan.failure = Some(failure);
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

fn become_program(plan: &Plan<'_>) -> Result<std::convert::Infallible, (StartStep, Errno)> {
    let at = |step: StartStep| move |errno: Errno| (step, errno);
    surroundings(plan).map_err(at(StartStep::Surroundings))?;
    limits(&plan.order.limits).map_err(at(StartStep::Limits))?;
    if let Some(user) = plan.order.user {
        change_user(user).map_err(at(StartStep::User))?;
    }
    // Set after the change of user, which resets it.
    die_with(plan.parent).map_err(at(StartStep::Surroundings))?;
    set_no_new_privs(true).map_err(at(StartStep::Sandbox))?;
    if let Some(rules) = plan.sandbox {
        sandbox::enter(rules).map_err(at(StartStep::Sandbox))?;
    }
    if let Some(scope) = plan.scope {
        // A process may have sixteen rulesets at most; without this one it is supervised all the same.
        let _ = sandbox::enter(scope);
    }
    signals().map_err(at(StartStep::Surroundings))?;
    Err((StartStep::Execute, execute(plan)))
}

fn surroundings(plan: &Plan<'_>) -> Done<()> {
    // The program gets its own group, by which it is ended; the session is the supervisor's, which has no terminal.
    setpgid(None, None)?;
    for (target, source) in (0..).zip(plan.standard) {
        put(source, target)?;
    }
    let mut first = SCRIPT;
    if plan.order.is_script {
        put(plan.program, SCRIPT)?;
        first += 1;
    }
    // Other descriptors close at exec. Old kernels lack the call, but all of this process's descriptors are marked
    // already.
    // SAFETY: a system call on numbers.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            c_int::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
    fchdir(plan.directory)
}

/// Duplicates `source` to the descriptor `target`.
fn put(source: BorrowedFd<'_>, target: RawFd) -> Done<()> {
    // SAFETY: numbers below RESERVED are nobody's: the sources are all above. It is not closed here.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(target) });
    dup2(source, &mut target)
}

fn limits(limits: &Limits) -> Done<()> {
    // The CPU limit warns with SIGXCPU, and kills 5 s later.
    set_limit(Resource::Cpu, limits.cpu_seconds, 5)?;
    set_limit(Resource::As, limits.memory_bytes, 0)?;
    set_limit(Resource::Nproc, limits.processes, 0)?;
    set_limit(Resource::Nofile, limits.open_files, 0)?;
    set_limit(Resource::Fsize, limits.file_bytes, 0)
}

fn set_limit(resource: Resource, limit: Option<u64>, slack: u64) -> Done<()> {
    let Some(limit) = limit else {
        return Ok(());
    };
    // The program's limits cannot exceed the worker's own.
    let most = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let new = Rlimit {
        current: Some(limit.min(most)),
        maximum: Some(limit.saturating_add(slack).min(most)),
    };
    setrlimit(resource, new)
}

/// Changes this thread's user with direct system calls: the C library would try to change every thread of the process
/// it believes to be in.
fn change_user(user: User) -> Done<()> {
    let User { uid, gid } = user;
    if uid == u32::MAX || gid == u32::MAX {
        // The kernel reads this as "leave it as it is", which may be root.
        return Err(Errno::INVAL);
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

/// Has the kernel kill the program when the supervisor dies, also if it has died just now.
fn die_with(parent: Pid) -> Done<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(parent) {
        Ok(())
    } else {
        Err(Errno::SRCH)
    }
}

/// Unblocks all signals for the program. None is ignored either: the supervisor ignores none.
fn signals() -> Done<()> {
    // SAFETY: fills and applies a set of its own; the mask is this process's alone.
    let set = unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut())
    };
    if set < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Executes the file that was opened and checked. A binary is executed by its descriptor, whatever its path names by
/// now.
///
/// A script is opened a second time by its interpreter, and finds its neighbours by its path. So it is started by its
/// path if that names the checked file, for the user that it runs as; otherwise by its descriptor, which also works
/// where the path cannot be searched. Between this check and the interpreter's opening, a user who may write to the
/// program directory could replace the file, but could have installed another program before as well. A set-user-id
/// bit has no effect here. Returns the error that prevented the execution.
fn execute(plan: &Plan<'_>) -> Errno {
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
        return last_errno();
    }
    let program = if plan.order.is_script {
        SCRIPT
    } else {
        plan.program.as_raw_fd()
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
    last_errno()
}

/// Whether the program's path names the file that was opened.
fn is_at_its_path(plan: &Plan<'_>) -> bool {
    let (opened, named) = (fstat(plan.program), stat(plan.order.name.as_c_str()));
    let identity = |of: rustix::fs::Stat| (of.st_dev, of.st_ino);
    matches!((opened, named), (Ok(opened), Ok(named)) if identity(opened) == identity(named))
}

/// Returns the error of the C library's last call. Makes no call of its own and allocates nothing.
pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
