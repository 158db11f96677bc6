//! Mounted file systems for tests: one in a loop file whose power can be cut, and a small one that fills up.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::server::sparse_file;

/// `_IOR('X', 125, u32)`: the ioctl of ext4 and XFS that shuts a file system down.
const SHUTDOWN: libc::c_ulong = 0x8004_587D;
/// Shuts down without flushing the log, so that unsynced data is lost, as in a power cut.
const NO_LOG_FLUSH: u32 = 2;

/// A mounted ext4 file system in a file; unmounted when dropped.
#[derive(Debug)]
pub struct LoopDisk {
    image: PathBuf,
    mounted_at: PathBuf,
    is_mounted: bool,
}

impl LoopDisk {
    /// Creates and mounts a file system of this size in bytes below `directory`.
    ///
    /// # Errors
    /// If the machine lacks root, loop devices or `mkfs.ext4`.
    pub fn new(directory: &Path, bytes: u64) -> Result<Self> {
        let image = directory.join("disk.img");
        let mounted_at = directory.join("disk");
        sparse_file(&image, bytes)?;
        fs::create_dir_all(&mounted_at)?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0"])
            .arg(&image))?;
        let mut disk = Self {
            image,
            mounted_at,
            is_mounted: false,
        };
        disk.mount()?;
        Ok(disk)
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.mounted_at
    }

    /// Mounts the file system, which replays its journal.
    pub fn mount(&mut self) -> Result<()> {
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&self.image)
            .arg(&self.mounted_at))?;
        self.is_mounted = true;
        Ok(())
    }

    /// Unmounts the file system.
    pub fn unmount(&mut self) -> Result<()> {
        run(Command::new("umount").arg(&self.mounted_at))?;
        self.is_mounted = false;
        Ok(())
    }

    /// Cuts the power: every access fails from now on, and unsynced data is lost.
    pub fn cut_power(&self) -> Result<()> {
        let directory = File::open(&self.mounted_at)?;
        let how = NO_LOG_FLUSH;
        // SAFETY: the descriptor is open, and the request reads one u32 behind the pointer, which lives until after it.
        #[expect(unsafe_code, reason = "no safe wrapper of this request exists")]
        let answer = unsafe { libc::ioctl(directory.as_raw_fd(), SHUTDOWN, &raw const how) };
        ensure!(
            answer == 0,
            "the file system refuses to be shut down: {}",
            std::io::Error::last_os_error()
        );
        Ok(())
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if self.is_mounted {
            // A failed test must not leave a mount behind, even if it is still in use.
            let _ = Command::new("umount")
                .arg("-l")
                .arg(&self.mounted_at)
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Takes all free space of a file system: writes a file until not a byte more fits in.
///
/// # Errors
/// If the file cannot be made.
pub fn take_free_space(ballast: &Path) -> Result<()> {
    let file = File::create(ballast)?;
    let mut length = 0;
    let mut size: u64 = 1 << 26;
    while size > 0 {
        // The kind of failure does not matter: a smaller piece may still fit in.
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), length, size) {
            Ok(()) => length += size,
            Err(_) => size /= 2,
        }
    }
    Ok(())
}

/// A mounted tmpfs with a fixed size; unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    mounted_at: PathBuf,
}

impl SmallDisk {
    /// Mounts a file system of this size in bytes below `directory`.
    ///
    /// # Errors
    /// If the machine lacks root.
    pub fn new(directory: &Path, bytes: u64) -> Result<Self> {
        let mounted_at = directory.join("small");
        fs::create_dir_all(&mounted_at)?;
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(&mounted_at))?;
        Ok(Self { mounted_at })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.mounted_at
    }

    /// Returns the free bytes.
    pub fn free_bytes(&self) -> Result<u64> {
        let numbers = rustix::fs::statvfs(&self.mounted_at)?;
        Ok(numbers.f_bavail * numbers.f_frsize)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-l")
            .arg(&self.mounted_at)
            .stderr(Stdio::null())
            .status();
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
