//! A control group for each supervisor, where the machine allows it: the last means against what has escaped.
//!
//! A program may kill its supervisor and wash its environment; it cannot leave its control group. The supervisor is
//! put there once, so that starting a program costs nothing more.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Groups of workers begin so.
const PREFIX: &str = "ganger-";
/// A group is busy until the kernel has buried its processes.
const BURIAL_TRIES_MAX: u32 = 200;

/// A control group. Removed when dropped, if it is empty.
pub(super) struct Group {
    path: PathBuf,
}

impl Group {
    /// Makes a group below the worker's own and puts a process there; `None` where that may not be done.
    pub(super) fn around(process: u32) -> Option<Self> {
        let own = own_group()?;
        let number = crate::random::number().ok()?;
        let path = own.join(format!("{PREFIX}{number:016x}"));
        fs::create_dir(&path).ok()?;
        let group = Self { path };
        // Without `cgroup.kill` (Linux 5.14) the group would be of no use.
        fs::metadata(group.path.join("cgroup.kill")).ok()?;
        fs::write(group.path.join("cgroup.procs"), process.to_string()).ok()?;
        Some(group)
    }

    /// Kills every process of the group, whatever it does.
    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..BURIAL_TRIES_MAX {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return,
            }
        }
    }
}

/// Removes empty groups that killed workers have left below ours. One with a process in it cannot be removed.
pub(crate) fn remove_empty_groups() {
    let Some(entries) = own_group().and_then(|own| fs::read_dir(own).ok()) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            // Busy, or somebody else's.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The directory of the group that this process is in.
fn own_group() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(mount_point(&mounts)?.join(path))
}

/// Where the one hierarchy of version 2 is mounted.
fn mount_point(mounts: &str) -> Option<&Path> {
    mounts.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        let is_version_2 = kind.split(' ').next() == Some("cgroup2");
        is_version_2
            .then(|| fields.split(' ').nth(4))
            .flatten()
            .map(Path::new)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_of_version_2_is_found_among_others() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            42 32 0:38 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(
            mount_point(mounts),
            Some(Path::new("/sys/fs/cgroup/unified"))
        );
    }
}
