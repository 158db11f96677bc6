//! Working directories: one per run, empty, private, and removed afterwards (`rel W5`).
//!
//! Making and removing a directory costs more than a short program. So a directory in which a program has verifiably
//! done nothing is reused by the next run of the same user.
//!
//! A worker keeps its working directories in one directory, which holds a locked file as long as the worker lives. A
//! directory that a killed worker left behind is recognised by its name, its owner, and a lock file that no process
//! holds.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Gid, Mode, OFlags, StatxFlags, Uid, chmodat,
    chownat, flistxattr, flock, openat, renameat, seek, statat, statx, unlinkat,
};
use rustix::io::Errno;

use crate::mount::{mount, unmount};
use crate::random;
use crate::supervise::User;

/// Prefix of workers' directories.
const PREFIX: &str = "ganger-work-";
/// Maximum number of unused directories kept for later runs.
const SPARE_MAX: usize = 64;
/// Name of the lock file, which a living worker holds locked.
const LOCK: &str = ".lock";

/// The directory of all working directories of one worker. Removed when dropped.
pub(crate) struct Scratch {
    path: PathBuf,
    next: AtomicU64,
    /// Unchanged directories of ended runs, at most [`SPARE_MAX`].
    spare: Mutex<Vec<WorkingDirectory>>,
    _lock: OwnedFd,
}

/// The working directory of one run. Removed when dropped.
pub(crate) struct WorkingDirectory {
    /// Path of the directory.
    pub(crate) path: PathBuf,
    directory: OwnedFd,
    user: Option<User>,
    /// Whether the directory is a separate file system.
    is_mounted: bool,
    /// Its properties after creation; `None` if unknown, in which case it is not reused.
    original: Option<DirectoryFingerprint>,
}

/// All properties of a directory by which a program could leave information for the next one.
#[derive(PartialEq, Eq)]
struct DirectoryFingerprint {
    /// Device and inode, which also show that nothing is mounted there.
    identity: (u32, u32, u64),
    mode: u16,
    owner: (u32, u32),
    size: u64,
    /// File attributes such as immutable and append-only.
    attributes: u64,
    /// Names of extended attributes, including access lists.
    names: Vec<u8>,
}

impl Scratch {
    /// Makes a worker's directory in `parent`, after removing those of dead workers.
    pub(crate) fn make(parent: &Path) -> io::Result<Self> {
        remove_leftovers(parent);
        let name = format!("{PREFIX}{:016x}", random::number()?);
        // The directory has another name until it is locked, so that no other starting worker takes it for a dead
        // one's.
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
            spare: Mutex::default(),
            _lock: lock,
        })
    }

    /// Returns an empty working directory, for `user` if it is not the worker's own, with at most `bytes_max` bytes.
    pub(crate) fn directory(
        &self,
        user: Option<User>,
        bytes_max: Option<u64>,
    ) -> io::Result<WorkingDirectory> {
        if bytes_max.is_some() {
            return self.make_directory(user, bytes_max);
        }
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let found = spare.iter().rposition(|one| one.user == user);
        match found.map(|place| spare.swap_remove(place)) {
            Some(found) => Ok(found),
            None => {
                drop(spare);
                self.make_directory(user, None)
            }
        }
    }

    /// Takes the directory of an ended run: keeps it if it is unchanged, otherwise removes it.
    pub(crate) fn take_back(&self, directory: WorkingDirectory) {
        if !directory.is_mounted && directory.is_untouched() {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            if spare.len() < SPARE_MAX {
                spare.push(directory);
            }
        }
    }

    fn make_directory(
        &self,
        user: Option<User>,
        bytes_max: Option<u64>,
    ) -> io::Result<WorkingDirectory> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(number.to_string());
        match make_private(&path) {
            // A program of this user may have removed the directory itself.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_private(&self.path)?;
                make_private(&path)?;
            }
            other => other?,
        }
        if let Some(user) = user {
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            chownat(CWD, &path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            // Other users may pass through but not list: the names are numbers, the directories private.
            chmodat(
                CWD,
                &self.path,
                Mode::from_raw_mode(0o711),
                AtFlags::empty(),
            )?;
        }
        if let Some(bytes_max) = bytes_max {
            let owner = user.unwrap_or_else(|| User {
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
            });
            mount(&path, bytes_max, owner).inspect_err(|_| remove(&path))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, &path, flags, Mode::empty())?;
        let original = fingerprint(&path, directory.as_fd()).ok();
        Ok(WorkingDirectory {
            path,
            directory,
            user,
            is_mounted: bytes_max.is_some(),
            original,
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

impl WorkingDirectory {
    /// Returns the open directory.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Whether the directory is bounded and has no room for another byte or file.
    pub(crate) fn is_full(&self) -> bool {
        let room = rustix::fs::fstatvfs(&self.directory);
        self.is_mounted && room.is_ok_and(|room| room.f_bfree == 0 || room.f_ffree == 0)
    }

    /// Whether the directory is empty, still at its path, and unchanged.
    fn is_untouched(&self) -> bool {
        let is_as_made = || {
            let now = fingerprint(&self.path, self.directory.as_fd()).ok();
            now.is_some() && now == self.original
        };
        is_as_made() && is_empty(self.directory.as_fd()).unwrap_or(false)
    }
}

fn fingerprint(path: &Path, directory: BorrowedFd<'_>) -> io::Result<DirectoryFingerprint> {
    let wanted = StatxFlags::BASIC_STATS;
    let now = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
    let mut names = vec![0; 1024];
    let length = match flistxattr(directory, names.as_mut_slice()) {
        // A file system without such attributes has none.
        Err(Errno::NOTSUP) => 0,
        other => other?,
    };
    names.truncate(length);
    Ok(DirectoryFingerprint {
        identity: (now.stx_dev_major, now.stx_dev_minor, now.stx_ino),
        mode: now.stx_mode,
        owner: (now.stx_uid, now.stx_gid),
        size: now.stx_size,
        attributes: now.stx_attributes.bits(),
        names,
    })
}

fn is_empty(directory: BorrowedFd<'_>) -> io::Result<bool> {
    seek(directory, rustix::fs::SeekFrom::Start(0))?;
    let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
    let mut entries = rustix::fs::RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Drop for WorkingDirectory {
    fn drop(&mut self) {
        if self.is_mounted
            && let Err(error) = unmount(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a working directory cannot be unmounted");
        }
        remove(&self.path);
    }
}

fn make_private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Removes the directories of dead workers of this user in `parent`.
fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let is_named_so = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_named_so && is_dead(&entry.path()) {
            tracing::info!(path = %entry.path().display(), "removing what a killed worker has left");
            for inner in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                // Usually nothing is mounted there.
                let _ = unmount(&inner.path());
            }
            remove(&entry.path());
        }
    }
}

fn is_dead(path: &Path) -> bool {
    let our = rustix::process::geteuid().as_raw();
    if !fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == our)
    {
        return false;
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    openat(CWD, path.join(LOCK), flags, Mode::empty())
        .is_ok_and(|lock| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Removes a directory with all its content. Failures are logged and left for the next start.
fn remove(path: &Path) {
    // Usually the program has left nothing.
    match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return,
        // The program has replaced the directory, for example by a link.
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

/// Empties and removes a directory of any depth with few open files: entries of a subdirectory are moved to the top
/// before the subdirectory is removed. No link is followed.
fn empty(path: &Path) -> io::Result<()> {
    let _ = chmodat(CWD, path, Mode::RWXU, AtFlags::empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = openat(CWD, path, flags, Mode::empty())?;
    // Names that no program can predict.
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
    let stat = statat(top, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
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
        let stat = statat(&below, &inner, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
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

    fn temporary_directory() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn a_working_directory_is_empty_private_and_gone_afterwards() {
        let ground = temporary_directory();
        let scratch = Scratch::make(ground.path()).expect("made");
        let one = scratch.directory(None, None).expect("made");
        let path = one.path.clone();
        let metadata = fs::metadata(&path).expect("it is there");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o700);
        fs::create_dir_all(path.join("a/b/c")).expect("made");
        fs::write(path.join("a/b/file"), "x").expect("written");
        fs::set_permissions(path.join("a/b"), fs::Permissions::from_mode(0o000)).expect("mode set");
        drop(one);
        assert!(!path.exists());
    }

    #[test]
    fn only_an_unchanged_directory_is_reused_and_only_by_the_same_user() {
        let ground = temporary_directory();
        let scratch = Scratch::make(ground.path()).expect("made");
        let after = |change: &dyn Fn(&Path)| {
            let one = scratch.directory(None, None).expect("made");
            let path = one.path.clone();
            change(&path);
            scratch.take_back(one);
            let next = scratch.directory(None, None).expect("made");
            let is_same = next.path == path;
            assert!(is_empty(next.fd()).expect("read"));
            scratch.take_back(next);
            (path, is_same)
        };
        assert!(after(&|_| {}).1);
        assert!(
            after(&|path| {
                fs::write(path.join("file"), "x").expect("written");
                fs::remove_file(path.join("file")).expect("removed");
            })
            .1
        );
        let mode = |mode| fs::Permissions::from_mode(mode);
        let changes: [&dyn Fn(&Path); 4] = [
            &|path| fs::write(path.join(".hidden"), "x").expect("written"),
            &|path| fs::set_permissions(path, mode(0o755)).expect("mode set"),
            &|path| fs::remove_dir(path).expect("removed"),
            &|path| {
                fs::rename(path, path.with_extension("moved")).expect("moved");
                fs::create_dir(path).expect("made");
                fs::set_permissions(path, mode(0o700)).expect("mode set");
            },
        ];
        for change in changes {
            let (path, is_same) = after(change);
            assert!(!is_same && !path.exists());
        }
        let (mine, _) = after(&|_| {});
        let user = User {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        assert_ne!(
            scratch.directory(Some(user), None).expect("made").path,
            mine
        );
    }

    #[test]
    fn links_are_removed_not_followed() {
        let ground = temporary_directory();
        let kept = ground.path().join("kept");
        fs::create_dir(&kept).expect("made");
        fs::write(kept.join("file"), "x").expect("written");
        let scratch = Scratch::make(ground.path()).expect("made");
        let one = scratch.directory(None, None).expect("made");
        symlink(&kept, one.path.join("link")).expect("linked");
        drop(one);
        let two = scratch.directory(None, None).expect("made");
        fs::remove_dir(&two.path).expect("removed");
        symlink(&kept, &two.path).expect("linked");
        let path = two.path.clone();
        drop(two);
        assert!(fs::symlink_metadata(path).is_err());
        assert!(kept.join("file").exists());
    }

    #[test]
    fn a_very_deep_tree_is_removed() {
        let ground = temporary_directory();
        let scratch = Scratch::make(ground.path()).expect("made");
        let one = scratch.directory(None, None).expect("made");
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
    fn only_directories_of_dead_workers_are_removed() {
        let ground = temporary_directory();
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
