//! A control group for each supervisor, where the machine allows it: it bounds a run as a whole, and is the last means
//! against what has escaped.
//!
//! A program may kill its supervisor and wash its environment; it cannot leave its control group. The supervisor is
//! put there once, so that starting a program costs nothing more; its bounds are written when they change.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Groups of workers begin so.
const PREFIX: &str = "ganger-";
/// A group is busy until the kernel has buried its processes.
const BURIAL_TRIES_MAX: u32 = 200;
/// The supervisor itself counts as a process of its group.
const SUPERVISORS: u64 = 1;

/// What control groups can do for this worker.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Below it groups are made; `None`: none can be.
    home: Option<PathBuf>,
    /// Whether they bound memory and processes.
    has_bounds: bool,
}

impl Groups {
    /// Finds out what this machine allows, and says it in the log if any program `has_limits` that depend on it. Removes
    /// what killed workers have left.
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

/// The rest is in `docs/worker-programs.md`.
fn warn_without(reason: &str) {
    tracing::warn!("`memory` and `processes` bound single processes, not whole runs: {reason}");
}

/// Has the kernel bound memory and processes in groups below `own`.
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
        // Only leaves may hold processes; ours becomes one of its own.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
        Err(error) => return Err(format!("{}: {error}", control.display())),
    }
    let leaf =
        new_group(own).map_err(|error| format!("no group can be made in {place}: {error}"))?;
    let enabled = join(&leaf).and_then(|()| enable());
    enabled.map_err(|error| {
        // Back where we were; if that fails too, the leaf is as good a place.
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
pub(super) struct Group {
    path: PathBuf,
    has_bounds: bool,
    /// Memory and processes as last written.
    bounds: Cell<(Option<u64>, Option<u64>)>,
    seen: Cell<Refused>,
}

/// What the kernel refused to a group's processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// So many were killed for want of memory.
    pub(crate) killed_for_memory: u64,
    /// So many were not made, since there were too many.
    pub(crate) processes: u64,
}

impl Group {
    /// Makes a group and puts a process there; `None` where that may not be done.
    pub(super) fn around(groups: &Groups, process: u32) -> Option<Self> {
        let group = Self {
            path: new_group(groups.home.as_ref()?).ok()?,
            has_bounds: groups.has_bounds,
            bounds: Cell::default(),
            seen: Cell::default(),
        };
        // Without `cgroup.kill` (Linux 5.14) the group would be of no use.
        fs::metadata(group.path.join("cgroup.kill")).ok()?;
        fs::write(group.path.join("cgroup.procs"), process.to_string()).ok()?;
        Some(group)
    }

    /// Bounds bytes of memory and number of processes for what runs next. Gives whether they will be kept; if not, they
    /// must be kept otherwise.
    pub(super) fn bound(&self, memory: Option<u64>, processes: Option<u64>) -> bool {
        if !self.has_bounds {
            return false;
        }
        if self.bounds.get() == (memory, processes) {
            return true;
        }
        let written = |limit: Option<u64>| limit.map_or("max".into(), |limit| limit.to_string());
        let processes_max = processes.map(|limit| limit.saturating_add(SUPERVISORS));
        // Memory is meant as a whole: none of it may be had as swap instead. There may be no swap to speak of.
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

    /// What was refused since this was asked last.
    pub(super) fn refused(&self) -> Refused {
        if !self.has_bounds {
            return Refused::default();
        }
        let now = Refused {
            killed_for_memory: self.count("memory.events", "oom_kill"),
            processes: self.count("pids.events", "max"),
        };
        let before = self.seen.replace(now);
        Refused {
            killed_for_memory: now
                .killed_for_memory
                .saturating_sub(before.killed_for_memory),
            processes: now.processes.saturating_sub(before.processes),
        }
    }

    /// Kills every process of the group, whatever it does.
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

/// Removes empty groups that killed workers have left in `home`. One with a process in it cannot be removed.
fn remove_empty_groups(home: &Path) {
    let Ok(entries) = fs::read_dir(home) else {
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

    #[test]
    fn what_a_group_cannot_bound_is_said_with_the_reason() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let put =
            |name: &str, text: &str| fs::write(place.path().join(name), text).expect("written");
        put("cgroup.subtree_control", "");
        put("cgroup.controllers", "cpu io\n");
        let reason = delegate(place.path()).expect_err("the controllers are missing");
        assert!(reason.contains("memory and pids"), "{reason}");
        put("cgroup.controllers", "cpu memory pids\n");
        assert_eq!(delegate(place.path()), Ok(()));
        assert!(Groups::below(place.path().into(), true).has_bounds);
    }

    #[test]
    fn bounds_are_written_and_refusals_counted_once() {
        let place = tempfile::tempdir().expect("a temporary directory");
        let group = Group {
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
        assert_eq!(group.refused(), Refused::default());
    }
}
