//! A small file system of its own for a working directory: the sure way to bound its size. Only root may mount.

use std::ffi::CString;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

use crate::supervise::User;

/// Mounts an empty file system of at most `bytes` at `path`, in memory, for `user`. It has neither devices nor
/// set-user-id programs.
pub(crate) fn mount(path: &Path, bytes: u64, user: User) -> io::Result<()> {
    let User { uid, gid } = user;
    // Room for a file of each 4 KiB, so that empty files are bounded too.
    let files = bytes / 4096 + 16;
    let options = format!("size={bytes},nr_inodes={files},mode=0700,uid={uid},gid={gid}");
    let options = CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("ganger", path, "tmpfs", flags, options.as_c_str())?;
    Ok(())
}

/// Takes away what is mounted at `path`, also if it is in use. An error if nothing is.
pub(crate) fn unmount(path: &Path) -> io::Result<()> {
    rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
    Ok(())
}
