//! A control group for each supervisor, where the machine allows it: it limits a run as a whole, and is the last
//! resort against escaped processes.
//!
//! A program may kill its supervisor and clear its environment, but cannot leave its control group. The supervisor is
//! put there once, so starting a program costs nothing more; limits are written only when they change.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prefix of workers' groups.
const PREFIX: &str = "ganger-";
/// Number of attempts to remove a group, which is busy until the kernel has reaped its processes.
const REMOVE_TRIES_MAX: u32 = 200;
/// Processes of a group that are no programs: the supervisor itself.
const SUPERVISORS: u64 = 1;

/// What control groups can do for this worker.
#[derive(Debug, Default)]
pub(crate) struct ControlGroups {
    /// Group below which groups are made; `None` if none can be made.
    home: Option<PathBuf>,
    /// Whether groups can limit memory and processes.
    has_bounds: bool,
}

impl ControlGroups {
    /// Finds out what this machine allows, and logs a warning if a program `has_limits` that depend on it. Removes
    /// groups that killed workers have left.
    pub(crate) fn prepare(has_limits: bool) -> Self {
        let Some(own) = own_group() else {
            if has_limits {
                warn_without("no hierarchy of control groups of version 2 is mounted");
            }
            return Self::default();
        };
        Self::below(own, has_limits)
    }

    fn below(own: PathBuf, has_limits: bool) -> Self {
        remove_empty_groups(&own);
        let refused = delegate(&own).err();
        match &refused {
            _ if !has_limits => {}
            None => tracing::info!(group = %own.display(), "control groups bound each run"),
            Some(reason) => warn_without(reason),
        }
        Self {
            home: Some(own),
            has_bounds: refused.is_none(),
        }
    }
}

/// Details are in `docs/worker-programs.md`.
fn warn_without(reason: &str) {
    tracing::warn!("`memory` and `processes` bound single processes, not whole runs: {reason}");
}

/// Enables the kernel's limits on memory and processes in groups below `own`.
fn delegate(own: &Path) -> Result<(), String> {
    let control = own.join("cgroup.subtree_control");
    let has_both = |file: &Path| {
        let words = fs::read_to_string(file).unwrap_or_default();
        ["memory", "pids"]
            .iter()
            .all(|one| words.split_whitespace().any(|word| word == *one))
    };
    if has_both(&control) {
        return Ok(());
    }
    let place = own.display();
    if !has_both(&own.join("cgroup.controllers")) {
        return Err(format!(
            "{place} does not have the controllers memory and pids (for a systemd unit: Delegate=yes)"
        ));
    }
    let enable = || fs::write(&control, "+memory +pids");
    match enable() {
        Ok(()) => return Ok(()),
        // Only leaf groups may hold processes; this process moves to a leaf of its own.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
        Err(error) => return Err(format!("{}: {error}", control.display())),
    }
    let leaf =
        new_group(own).map_err(|error| format!("no group can be made in {place}: {error}"))?;
    let enabled = join(&leaf).and_then(|()| enable());
    enabled.map_err(|error| {
        // The process returns to its old group; if that fails, the leaf is as good.
        let _ = join(own);
        let _ = fs::remove_dir(&leaf);
        format!("{place} holds processes besides this one: {error}")
    })
}

fn join(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

fn new_group(home: &Path) -> io::Result<PathBuf> {
    let path = home.join(format!("{PREFIX}{:016x}", crate::random::number()?));
    fs::create_dir(&path)?;
    Ok(path)
}

/// A control group. Removed when dropped, if it is empty.
pub(super) struct ControlGroup {
    path: PathBuf,
    has_bounds: bool,
    /// Limits on memory and processes as last written.
    bounds: Cell<(Option<u64>, Option<u64>)>,
    seen: Cell<LimitHits>,
}

/// Events of a group in which a limit was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitHits {
    /// Number of processes killed for lack of memory.
    pub(crate) killed_for_memory: u64,
    /// Number of processes that were not created because there were too many.
    pub(crate) processes: u64,
}

impl ControlGroup {
    /// Creates a group and moves a process into it; `None` if that is not permitted.
    pub(super) fn around(groups: &ControlGroups, process: u32) -> Option<Self> {
        let group = Self {
            path: new_group(groups.home.as_ref()?).ok()?,
            has_bounds: groups.has_bounds,
            bounds: Cell::default(),
            seen: Cell::default(),
        };
        // Without `cgroup.kill` (Linux 5.14) the group is useless.
        fs::metadata(group.path.join("cgroup.kill")).ok()?;
        fs::write(group.path.join("cgroup.procs"), process.to_string()).ok()?;
        Some(group)
    }

    /// Limits bytes of memory and number of processes of the next run. Returns whether the group enforces them; if
    /// not, the caller must.
    pub(super) fn bound(&self, memory: Option<u64>, processes: Option<u64>) -> bool {
        if !self.has_bounds {
            return false;
        }
        if self.bounds.get() == (memory, processes) {
            return true;
        }
        let written = |limit: Option<u64>| limit.map_or("max".into(), |limit| limit.to_string());
        let processes_max = processes.map(|limit| limit.saturating_add(SUPERVISORS));
        // The limit covers swap too, so swap is set to zero. The machine may have no swap accounting.
        let _ = self.write(
            "memory.swap.max",
            if memory.is_some() { "0" } else { "max" },
        );
        let done = self
            .write("memory.max", &written(memory))
            .and_then(|()| self.write("pids.max", &written(processes_max)));
        if done.is_ok() {
            self.bounds.set((memory, processes));
        }
        done.is_ok()
    }

    /// Returns the limit events since the last call.
    pub(super) fn refused(&self) -> LimitHits {
        if !self.has_bounds {
            return LimitHits::default();
        }
        let now = LimitHits {
            killed_for_memory: self.count("memory.events", "oom_kill"),
            processes: self.count("pids.events", "max"),
        };
        let before = self.seen.replace(now);
        LimitHits {
            killed_for_memory: now
                .killed_for_memory
                .saturating_sub(before.killed_for_memory),
            processes: now.processes.saturating_sub(before.processes),
        }
    }

    /// Kills every process of the group.
    pub(super) fn kill(&self) -> io::Result<()> {
        self.write("cgroup.kill", "1")
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.path.join(file), text)
    }

    fn count(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for _ in 0..REMOVE_TRIES_MAX {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return,
            }
        }
    }
}

/// Removes empty groups that killed workers have left in `home`. A group with a process cannot be removed.
fn remove_empty_groups(home: &Path) {
    let Ok(entries) = fs::read_dir(home) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            // The group is busy, or belongs to another user.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Returns the directory of this process's group.
fn own_group() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(mount_point(&mounts)?.join(path))
}

/// Returns the mount point of the unified hierarchy (version 2).
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

    #[test]
    fn a_limit_that_a_group_cannot_enforce_is_reported_with_the_reason() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let put =
            |name: &str, text: &str| fs::write(place.path().join(name), text).expect("written");
        put("cgroup.subtree_control", "");
        put("cgroup.controllers", "cpu io\n");
        let reason = delegate(place.path()).expect_err("the controllers are missing");
        assert!(reason.contains("memory and pids"), "{reason}");
        put("cgroup.controllers", "cpu memory pids\n");
        assert_eq!(delegate(place.path()), Ok(()));
        assert!(ControlGroups::below(place.path().into(), true).has_bounds);
    }

    #[test]
    fn limits_are_written_and_limit_hits_counted_once() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let group = ControlGroup {
            path: place.path().into(),
            has_bounds: true,
            bounds: Cell::default(),
            seen: Cell::default(),
        };
        assert!(group.bound(Some(4096), Some(5)));
        let read = |name: &str| fs::read_to_string(place.path().join(name)).expect("written");
        assert_eq!(
            (read("memory.max"), read("pids.max")),
            ("4096".into(), "6".into())
        );
        assert!(group.bound(None, None));
        assert_eq!(
            (read("memory.max"), read("pids.max")),
            ("max".into(), "max".into())
        );
        fs::write(place.path().join("memory.events"), "oom 3\noom_kill 2\n").expect("written");
        assert_eq!(group.refused().killed_for_memory, 2);
        assert_eq!(group.refused(), LimitHits::default());
    }
}
