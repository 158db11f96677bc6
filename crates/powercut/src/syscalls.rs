//! Replacements for the C library's functions that change files: they record each call, or make it fail.
//!
//! The store and SQLite call these functions by their C names, and the linker prefers the program's own definitions. The
//! recording is therefore exactly what reaches the kernel. On a thread that does not record, calls are forwarded
//! unchanged.

#![expect(
    unsafe_code,
    reason = "functions of the C library are defined here, and the system is called directly"
)]

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{off_t, size_t, ssize_t};

use crate::record::{self, WriteDecision};

const PAGE: usize = 4_096;

fn set_errno(errno: c_int) {
    // SAFETY: the pointer to this thread's errno is always valid.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the bytes of a write.
///
/// # Safety
/// As for `write`: `buffer` points to `count` bytes.
unsafe fn bytes<'a>(buffer: *const c_void, count: size_t) -> &'a [u8] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller of `write` vouches for it.
    unsafe { std::slice::from_raw_parts(buffer.cast(), count) }
}

unsafe fn write_through(fd: c_int, buffer: *const c_void, count: size_t, at: off_t) -> ssize_t {
    // SAFETY: the arguments are the caller's own.
    let written = unsafe { libc::syscall(libc::SYS_pwrite64, fd, buffer, count, at) };
    ssize_t::try_from(written).unwrap_or(-1)
}

unsafe fn write_at(fd: c_int, buffer: *const c_void, count: size_t, at: off_t) -> ssize_t {
    // SAFETY: the arguments are the caller's own.
    let all = unsafe { bytes(buffer, count) };
    match record::decide_write(fd, all, at) {
        WriteDecision::Proceed => {}
        WriteDecision::Short(length) if length > 0 => {
            // SAFETY: fewer bytes of the caller's buffer.
            let written = unsafe { write_through(fd, buffer, length, at) };
            record::wrote(fd, &all[..length], at);
            return written;
        }
        WriteDecision::Short(_) => {
            set_errno(libc::ENOSPC);
            return -1;
        }
        WriteDecision::Fail(errno) => {
            // The kernel writes page by page: the pages before the failing one are written.
            let from = usize::try_from(at).unwrap_or(0);
            let half = ((from + count / 2) / PAGE * PAGE).saturating_sub(from);
            // SAFETY: fewer bytes of the caller's buffer.
            unsafe { write_through(fd, buffer, half, at) };
            record::wrote(fd, &all[..half], at);
            set_errno(errno);
            return -1;
        }
    }
    // SAFETY: the arguments are the caller's own.
    let written = unsafe { write_through(fd, buffer, count, at) };
    if let Ok(length) = usize::try_from(written) {
        record::wrote(fd, &all[..length], at);
    }
    written
}

/// Records and forwards a call of `pwrite`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pwrite64(
    fd: c_int,
    buffer: *const c_void,
    count: size_t,
    at: off_t,
) -> ssize_t {
    // SAFETY: the arguments are the caller's own.
    unsafe { write_at(fd, buffer, count, at) }
}

/// Records and forwards a call of `pwrite`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pwrite(
    fd: c_int,
    buffer: *const c_void,
    count: size_t,
    at: off_t,
) -> ssize_t {
    // SAFETY: the arguments are the caller's own.
    unsafe { write_at(fd, buffer, count, at) }
}

/// Records and forwards a call of `write`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t {
    if record::watches(fd) {
        // SAFETY: plain numbers.
        let at = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
        // SAFETY: the arguments are the caller's own.
        let written = unsafe { write_at(fd, buffer, count, at) };
        if written > 0 {
            // SAFETY: plain numbers.
            unsafe {
                libc::lseek(
                    fd,
                    at + off_t::try_from(written).unwrap_or(0),
                    libc::SEEK_SET,
                )
            };
        }
        return written;
    }
    // SAFETY: the arguments are the caller's own.
    let written = unsafe { libc::syscall(libc::SYS_write, fd, buffer, count) };
    ssize_t::try_from(written).unwrap_or(-1)
}

fn truncate(fd: c_int, length: off_t) -> c_int {
    // SAFETY: plain numbers.
    let done = unsafe { libc::syscall(libc::SYS_ftruncate, fd, length) };
    if done == 0 {
        record::truncated(fd, length);
    }
    c_int::try_from(done).unwrap_or(-1)
}

/// Records and forwards a call of `ftruncate64`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ftruncate64(fd: c_int, length: off_t) -> c_int {
    truncate(fd, length)
}

/// Records and forwards a call of `ftruncate`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ftruncate(fd: c_int, length: off_t) -> c_int {
    truncate(fd, length)
}

fn sync(call: libc::c_long, fd: c_int) -> c_int {
    if let Some(errno) = record::sync_failure(fd) {
        set_errno(errno);
        return -1;
    }
    // SAFETY: plain numbers.
    let done = unsafe { libc::syscall(call, fd) };
    if done == 0 {
        // SAFETY: plain numbers.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        record::synced(fd, flags & libc::O_ACCMODE == libc::O_RDONLY);
    }
    c_int::try_from(done).unwrap_or(-1)
}

/// Records and forwards a call of `fsync`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fsync(fd: c_int) -> c_int {
    sync(libc::SYS_fsync, fd)
}

/// Records and forwards a call of `fdatasync`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(libc::SYS_fdatasync, fd)
}

/// Records and forwards a call of `unlink`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller vouches for a string that ends with a zero.
    let name = unsafe { CStr::from_ptr(path) };
    record::before_unlink(name);
    // SAFETY: the argument is the caller's own.
    let done = unsafe { libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path, 0) };
    if done == 0 {
        record::unlinked(name);
    }
    c_int::try_from(done).unwrap_or(-1)
}

/// Records and forwards a call of `rename`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let at = libc::AT_FDCWD;
    // SAFETY: the arguments are the caller's own.
    let done = unsafe { libc::syscall(libc::SYS_renameat2, at, from, at, to, 0) };
    if done == 0 {
        // SAFETY: the caller vouches for strings that end with a zero.
        let (from, to) = unsafe { (CStr::from_ptr(from), CStr::from_ptr(to)) };
        record::renamed(from, to);
    }
    c_int::try_from(done).unwrap_or(-1)
}

/// Returns the inode number of an open file, whether it is a directory, and its length in bytes.
pub(crate) fn stat(fd: c_int) -> Option<(u64, bool, u64)> {
    // SAFETY: a structure of numbers, for which all zeros is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is ours and large enough.
    let done = unsafe { libc::fstat(fd, &raw mut stat) };
    let is_directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    (done == 0).then(|| {
        (
            stat.st_ino,
            is_directory,
            u64::try_from(stat.st_size).unwrap_or(0),
        )
    })
}

/// Seeds SQLite's random numbers, so that the same steps write the same bytes.
pub(crate) fn seed_sqlite(seed: u32) {
    let seed = c_int::try_from(seed & 0x3fff_ffff).unwrap_or(0) | 1;
    // SAFETY: the documented arguments of this test control: a number and no connection.
    unsafe {
        rusqlite::ffi::sqlite3_test_control(
            rusqlite::ffi::SQLITE_TESTCTRL_PRNG_SEED,
            seed,
            std::ptr::null_mut::<rusqlite::ffi::sqlite3>(),
        );
    }
}
