//! Finds and kills every descendant of a process.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};

/// Number of rounds of stopping before killing. A fork bomb is frozen by then, or at its limit of processes.
const STOP_ROUNDS_MAX: u32 = 50;
/// Time that killed processes may take to end; only one that hangs in the kernel needs longer.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Kills all descendants of this process and reaps them. Returns their number, or `None` if one cannot be killed.
pub(super) fn kill_descendants() -> Option<u32> {
    let mut killed = 0;
    let give_up_at = Instant::now() + KILL_TIMEOUT;
    loop {
        match collect() {
            CollectOutcome::NoneLeft(count) => return Some(killed + count),
            CollectOutcome::SomeLive(count) => killed += count,
        }
        if Instant::now() > give_up_at {
            return None;
        }
        stop_all(descendants);
        for pid in descendants() {
            let _ = kill_process(pid, Signal::KILL);
        }
        // Killed processes take a moment to become zombies; their children then become children of this process.
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The outcome of a call of [`collect`].
pub(super) enum CollectOutcome {
    /// No child is left; the number of reaped ones.
    NoneLeft(u32),
    /// At least one child lives; the number of reaped ones.
    SomeLive(u32),
}

/// Reaps and counts children that have ended.
pub(super) fn collect() -> CollectOutcome {
    let mut count = 0;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => count += 1,
            Ok(None) => return CollectOutcome::SomeLive(count),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return CollectOutcome::NoneLeft(count),
        }
    }
}

/// Reaps children that have ended. Returns `main`'s status if it is among them, and whether no child is left.
pub(super) fn collect_for(main: Option<Pid>) -> (Option<WaitStatus>, bool) {
    let mut found = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if Some(pid) == main => found = Some(status),
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return (found, false),
            Err(_) => return (found, true),
        }
    }
}

/// Stops all `descendants` until no new one appears: a stopped process cannot fork, and keeps its id, so a fork bomb
/// under a limit cannot use what killing would free.
pub(super) fn stop_all(descendants: impl Fn() -> Vec<Pid>) {
    let mut stopped = BTreeSet::new();
    for _ in 0..STOP_ROUNDS_MAX {
        let fresh: Vec<Pid> = descendants()
            .into_iter()
            .filter(|pid| stopped.insert(pid.as_raw_nonzero()))
            .collect();
        if fresh.is_empty() {
            return;
        }
        for pid in fresh {
            let _ = kill_process(pid, Signal::STOP);
        }
    }
}

fn descendants() -> Vec<Pid> {
    descendants_of(children("self"))
}

/// Returns these processes and all their descendants.
pub(super) fn descendants_of(mut found: Vec<Pid>) -> Vec<Pid> {
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children(&pid.as_raw_nonzero().to_string()));
        next += 1;
    }
    found
}

/// Returns the children of all threads of a process, as the kernel lists them.
pub(super) fn children(process: &str) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            let numbers = list.split_ascii_whitespace();
            numbers
                .filter_map(|text| Pid::from_raw(text.parse().ok()?))
                .collect::<Vec<_>>()
        })
        .collect()
}
