//! Mounts a small file system for a working directory, which reliably bounds its size. Only root may mount.

use std::ffi::CString;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::supervise::User;

/// Mounts an empty file system of at most `bytes` in memory at `path`, for `user`, without devices and set-user-id
/// programs.
pub(crate) fn mount(path: &Path, bytes: u64, user: User) -> io::Result<()> {
    let User { uid, gid } = user;
    // One inode for each 4 KiB, so that the number of empty files is bounded too.
    let files = bytes / 4096 + 16;
    let options = format!("size={bytes},nr_inodes={files},mode=0700,uid={uid},gid={gid}");
    let options = CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("ganger", path, "tmpfs", flags, options.as_c_str())?;
    Ok(())
}

/// Unmounts `path`, even if it is in use; an error if nothing is mounted there.
pub(crate) fn unmount(path: &Path) -> io::Result<()> {
    rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
    Ok(())
}
