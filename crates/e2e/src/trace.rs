//! Kills a program at its Nth system call, or makes system calls fail, with `strace`.
//!
//! The tracer runs as a grandchild (`-D`), so that the started process is the program itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

/// The system calls that change files.
pub const CALLS: &[&str] = &[
    "openat",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "fsync",
    "fdatasync",
    "ftruncate",
    "fallocate",
    "rename",
    "unlink",
    "mkdir",
];

/// A point in a run: the Nth call of this name by one thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallPoint {
    /// Name of the system call.
    pub call: String,
    /// Number of the call among those of the thread, from 1.
    pub count: u32,
}

/// Returns the prefix of a command line that records every call in `log`.
pub fn record_calls(log: &Path) -> Vec<String> {
    let calls = format!("trace={}", CALLS.join(","));
    owned(&[
        "strace",
        "-D",
        "-f",
        "-qq",
        "-ttt",
        "-y",
        "-e",
        &calls,
        "-e",
        "signal=none",
        "-o",
        &log.to_string_lossy(),
    ])
}

/// Returns the prefix of a command line that kills the program just before a call takes effect.
pub fn kill_at_call(point: &CallPoint) -> Vec<String> {
    let inject = format!("inject={}:signal=KILL:when={}", point.call, point.count);
    let trace = format!("trace={}", point.call);
    owned(&[
        "strace",
        "-D",
        "-f",
        "-qq",
        "-e",
        &trace,
        "-e",
        &inject,
        "-e",
        "signal=none",
        "-o",
        "/dev/null",
    ])
}

/// The error of a system call that fails without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Name of the error, such as `EIO`.
    pub error: &'static str,
    /// Whether all later calls of the name by the thread fail too, as on a disk that is gone.
    pub is_permanent: bool,
}

/// Returns the prefix of a command line that makes a call fail, and records the calls of its name in `log`.
pub fn fail_call(point: &CallPoint, fault: Fault, log: &Path) -> Vec<String> {
    let call = &point.call;
    let more = if fault.is_permanent { "+" } else { "" };
    let inject = format!(
        "inject={call}:error={}:when={}{more}",
        fault.error, point.count
    );
    owned(&[
        "strace",
        "-D",
        "-f",
        "-qq",
        "-y",
        "-e",
        &format!("trace={call}"),
        "-e",
        &inject,
        "-e",
        "signal=none",
        "-o",
        &log.to_string_lossy(),
    ])
}

/// Returns the recorded calls on files below `directory` that were made to fail.
pub fn injected_failures(log: &Path, directory: &Path) -> Result<Vec<String>> {
    let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    let directory = directory.to_string_lossy();
    let lines = text.lines().filter(|line| line.contains("(INJECTED)"));
    Ok(lines
        .filter(|line| line.contains(directory.as_ref()))
        .map(str::to_owned)
        .collect())
}

/// Returns the prefix of a command line under which every flush succeeds without effect.
pub fn fake_flushes() -> Vec<String> {
    let calls = "trace=fsync,fdatasync,sync_file_range";
    let inject = "inject=fsync,fdatasync,sync_file_range:retval=0";
    owned(&[
        "strace",
        "-D",
        "-f",
        "-qq",
        "-e",
        calls,
        "-e",
        inject,
        "-e",
        "signal=none",
        "-o",
        "/dev/null",
    ])
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns the first `limit` points of a recorded run after `begin`, in order, of calls on files below `directory`.
///
/// A point that another thread reached earlier is left out, because the program would be killed there.
pub fn call_points(
    log: &Path,
    directory: &Path,
    begin: SystemTime,
    limit: usize,
) -> Result<Vec<CallPoint>> {
    let begin = begin.duration_since(UNIX_EPOCH)?.as_secs_f64();
    let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    let directory = directory.to_string_lossy();
    let mut counts: BTreeMap<(String, String), u32> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut points = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(thread), Some(time), Some(rest)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        // `<... write resumed>` is the end of a call that was already counted.
        let Some((call, _)) = rest.split_once('(') else {
            continue;
        };
        let count = counts
            .entry((thread.to_owned(), call.to_owned()))
            .or_default();
        *count += 1;
        let point = CallPoint {
            call: call.to_owned(),
            count: *count,
        };
        let is_new = seen.insert(point.clone());
        if is_new && line.contains(directory.as_ref()) && time.parse::<f64>()? >= begin {
            points.push(point);
        }
        if points.len() == limit {
            break;
        }
    }
    Ok(points)
}
