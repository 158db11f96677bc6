//! A small file system of its own for a working directory: the sure way to bound its size. Only root may mount.
#![expect(unsafe_code, reason = "mounting has no safe interface here")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::supervise::User;

/// Mounts an empty file system of at most `bytes` at `path`, in memory, for `user`. It has neither devices nor
/// set-user-id programs.
pub(crate) fn mount(path: &Path, bytes: u64, user: User) -> io::Result<()> {
    let User { uid, gid } = user;
    // Room for a file of each 4 KiB, so that empty files are bounded too.
    let files = bytes / 4096 + 16;
    let options = format!("size={bytes},nr_inodes={files},mode=0700,uid={uid},gid={gid}");
    let options = CString::new(options)?;
    let path = name(path)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: all strings end with a NUL and outlive the call.
    let mounted = unsafe {
        libc::mount(
            c"ganger".as_ptr(),
            path.as_ptr(),
            c"tmpfs".as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    check(mounted)
}

/// Takes away what is mounted at `path`, also if it is in use. An error if nothing is.
pub(crate) fn unmount(path: &Path) -> io::Result<()> {
    let path = name(path)?;
    // SAFETY: the string ends with a NUL and outlives the call.
    check(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) })
}

fn name(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
