//! File systems of one's own to stand on: one in a loop file whose power can be cut, a small one that fills up.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::server::sparse_file;

/// `_IOR('X', 125, u32)`: shuts a file system down, as ext4 and XFS know it.
const SHUTDOWN: libc::c_ulong = 0x8004_587D;
/// Without flushing the log: what was not synced is gone, as when the power goes.
const NO_LOG_FLUSH: u32 = 2;

/// An ext4 file system in a file, mounted; unmounted when dropped.
#[derive(Debug)]
pub struct LoopDisk {
    image: PathBuf,
    mounted_at: PathBuf,
    is_mounted: bool,
}

impl LoopDisk {
    /// Makes and mounts one of so many bytes below `directory`.
    ///
    /// # Errors
    /// If this machine cannot: no root, no loop device, no tools.
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

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mounted_at
    }

    /// Mounts it; the file system recovers by itself.
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

    /// Cuts the power: from now on every access fails, and what was not synced is lost.
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
            // A test that fails must not leave a mount behind, whatever still holds it.
            let _ = Command::new("umount")
                .arg("-l")
                .arg(&self.mounted_at)
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// A file system in memory with a fixed size; unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    mounted_at: PathBuf,
}

impl SmallDisk {
    /// Mounts one of so many bytes below `directory`.
    ///
    /// # Errors
    /// If this machine cannot.
    pub fn new(directory: &Path, bytes: u64) -> Result<Self> {
        let mounted_at = directory.join("small");
        fs::create_dir_all(&mounted_at)?;
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(&mounted_at))?;
        Ok(Self { mounted_at })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mounted_at
    }

    /// Bytes that can still be written.
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
