//! Working directories: one per run, empty, for the worker's eyes only, gone afterwards (`rel W5`).
//!
//! A worker keeps all of them in one directory of its own, which holds a locked file as long as the worker lives.
//! What a killed worker left behind is known by three things together: the name, the owner, and a lock file
//! that nobody holds.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Gid, Mode, OFlags, Uid, chmodat, chownat, flock,
    openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::random;
use crate::supervise::User;

/// Directories of workers begin so.
const PREFIX: &str = "ganger-work-";
/// Held locked by the living.
const LOCK: &str = ".lock";

/// The directory of all working directories of one worker. Removed when dropped.
pub(crate) struct Scratch {
    path: PathBuf,
    next: AtomicU64,
    _lock: OwnedFd,
}

/// The working directory of one run. Removed when dropped.
pub(crate) struct WorkingDirectory {
    /// Its path.
    pub(crate) path: PathBuf,
    directory: OwnedFd,
}

impl Scratch {
    /// Makes a worker's directory in `parent`, after removing those of dead workers.
    pub(crate) fn make(parent: &Path) -> io::Result<Self> {
        remove_leftovers(parent);
        let name = format!("{PREFIX}{:016x}", random::number()?);
        // Under another name until it is locked: else a worker that starts now could take it for a dead one's.
        let unlocked = parent.join(format!(".{name}"));
        let path = parent.join(name);
        make_private(&unlocked)?;
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = openat(CWD, unlocked.join(LOCK), flags, Mode::RUSR | Mode::WUSR)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unlocked, &path)?;
        Ok(Self {
            path,
            next: AtomicU64::new(1),
            _lock: lock,
        })
    }

    /// Makes an empty working directory, for `user` if it is not the worker's own.
    pub(crate) fn directory(&self, user: Option<User>) -> io::Result<WorkingDirectory> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(number.to_string());
        match make_private(&path) {
            // A program of this user may have removed even this.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_private(&self.path)?;
                make_private(&path)?;
            }
            other => other?,
        }
        if let Some(user) = user {
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            chownat(CWD, &path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            // Others may pass through, not look: the names are numbers, the directories private.
            chmodat(
                CWD,
                &self.path,
                Mode::from_raw_mode(0o711),
                AtFlags::empty(),
            )?;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, &path, flags, Mode::empty())?;
        Ok(WorkingDirectory { path, directory })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

impl WorkingDirectory {
    /// The open directory.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

impl Drop for WorkingDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn make_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Removes what dead workers of this user have left in `parent`.
fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let is_named_so = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_named_so && is_dead(&entry.path()) {
            tracing::info!(path = %entry.path().display(), "removes what a killed worker left");
            remove(&entry.path());
        }
    }
}

fn is_dead(path: &Path) -> bool {
    let our = rustix::process::geteuid().as_raw();
    if !fs::symlink_metadata(path).is_ok_and(|about| about.is_dir() && about.uid() == our) {
        return false;
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    openat(CWD, path.join(LOCK), flags, Mode::empty())
        .is_ok_and(|lock| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Removes a directory with all that is in it. What resists is logged and left for the next start.
fn remove(path: &Path) {
    // Nearly always the program has left nothing.
    match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return,
        // The program has put something else into its place: a link, for example.
        Err(Errno::NOTDIR) => {
            let _ = unlinkat(CWD, path, AtFlags::empty());
            return;
        }
        Err(_) => {}
    }
    if let Err(error) = empty(path) {
        tracing::warn!(path = %path.display(), %error, "a working directory cannot be removed");
    }
}

/// Empties and removes a directory of any depth with a handful of open files: what is in a subdirectory is moved
/// to the top before the subdirectory is removed. No link is followed.
fn empty(path: &Path) -> io::Result<()> {
    let _ = chmodat(CWD, path, Mode::RWXU, AtFlags::empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = openat(CWD, path, flags, Mode::empty())?;
    // Names that no program has foreseen.
    let mut moved = random::number()? >> 1;
    loop {
        let mut has_removed = false;
        for name in names(top.as_fd())? {
            has_removed |= remove_entry(top.as_fd(), &name, &mut moved)?;
        }
        match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if has_removed => {}
            other => return Ok(other?),
        }
    }
}

fn remove_entry(top: BorrowedFd<'_>, name: &std::ffi::CStr, moved: &mut u64) -> io::Result<bool> {
    let about = statat(top, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::Directory {
        unlinkat(top, name, AtFlags::empty())?;
        return Ok(true);
    }
    if unlinkat(top, name, AtFlags::REMOVEDIR).is_ok() {
        return Ok(true);
    }
    chmodat(top, name, Mode::RWXU, AtFlags::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let below = openat(top, name, flags, Mode::empty())?;
    for inner in names(below.as_fd())? {
        let about = statat(&below, &inner, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(about.st_mode) == FileType::Directory {
            // Moving a directory changes its entry for the parent, so it must be writable.
            chmodat(&below, &inner, Mode::RWXU, AtFlags::empty())?;
            *moved += 1;
            renameat(&below, &inner, top, format!(".ganger-{moved}"))?;
        } else {
            unlinkat(&below, &inner, AtFlags::empty())?;
        }
    }
    unlinkat(top, name, AtFlags::REMOVEDIR)?;
    Ok(true)
}

fn names(directory: BorrowedFd<'_>) -> io::Result<Vec<std::ffi::CString>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            found.push(entry.file_name().to_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn ground() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn a_working_directory_is_empty_private_and_gone_afterwards() {
        let ground = ground();
        let scratch = Scratch::make(ground.path()).expect("made");
        let one = scratch.directory(None).expect("made");
        let path = one.path.clone();
        let about = fs::metadata(&path).expect("it is there");
        assert_eq!(about.permissions().mode() & 0o777, 0o700);
        fs::create_dir_all(path.join("a/b/c")).expect("made");
        fs::write(path.join("a/b/file"), "x").expect("written");
        fs::set_permissions(path.join("a/b"), fs::Permissions::from_mode(0o000)).expect("mode set");
        drop(one);
        assert!(!path.exists());
    }

    #[test]
    fn links_are_removed_not_followed() {
        let ground = ground();
        let kept = ground.path().join("kept");
        fs::create_dir(&kept).expect("made");
        fs::write(kept.join("file"), "x").expect("written");
        let scratch = Scratch::make(ground.path()).expect("made");
        let one = scratch.directory(None).expect("made");
        symlink(&kept, one.path.join("link")).expect("linked");
        drop(one);
        let two = scratch.directory(None).expect("made");
        fs::remove_dir(&two.path).expect("removed");
        symlink(&kept, &two.path).expect("linked");
        let path = two.path.clone();
        drop(two);
        assert!(fs::symlink_metadata(path).is_err());
        assert!(kept.join("file").exists());
    }

    #[test]
    fn a_very_deep_tree_is_removed() {
        let ground = ground();
        let scratch = Scratch::make(ground.path()).expect("made");
        let one = scratch.directory(None).expect("made");
        let mut at = openat(CWD, &one.path, OFlags::DIRECTORY, Mode::empty()).expect("opened");
        for _ in 0..1_000 {
            rustix::fs::mkdirat(&at, "deep", Mode::RWXU).expect("made");
            at = openat(&at, "deep", OFlags::DIRECTORY, Mode::empty()).expect("opened");
        }
        let path = one.path.clone();
        drop(one);
        assert!(!path.exists());
    }

    #[test]
    fn only_the_directories_of_dead_workers_are_cleaned() {
        let ground = ground();
        let living = Scratch::make(ground.path()).expect("made");
        let dead = ground.path().join(format!("{PREFIX}dead"));
        fs::create_dir_all(dead.join("1/x")).expect("made");
        fs::write(dead.join(LOCK), "").expect("written");
        let other = ground.path().join(format!("{PREFIX}without-lock"));
        fs::create_dir(&other).expect("made");
        let next = Scratch::make(ground.path()).expect("made");
        assert!(living.path.exists() && next.path.exists() && other.exists());
        assert!(!dead.exists());
    }
}
