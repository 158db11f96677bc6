//! Killing a program at its Nth system call, with `strace`.
//!
//! The tracer runs as a grandchild (`-D`), so that the process started is the program itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;

/// The system calls that change what is on disk.
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

/// A place in a run: the Nth call of this name by one thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Which system call.
    pub call: String,
    /// How many of them that thread had made, this one included.
    pub count: u32,
}

/// The front of a command line that notes every call in `log`.
pub fn noting(log: &Path) -> Vec<String> {
    let calls = format!("trace={}", CALLS.join(","));
    words(&[
        "strace",
        "-D",
        "-f",
        "-qq",
        "-y",
        "-e",
        &calls,
        "-e",
        "signal=none",
        "-o",
        &log.to_string_lossy(),
    ])
}

/// The front of a command line that kills the program just before a call takes effect.
pub fn killing_at(point: &Point) -> Vec<String> {
    let inject = format!("inject={}:signal=KILL:when={}", point.call, point.count);
    let trace = format!("trace={}", point.call);
    words(&[
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

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The first `limit` different points of a noted run, in order, counting only calls on files below `folder`.
pub fn points(log: &Path, folder: &Path, limit: usize) -> Result<Vec<Point>> {
    let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    let folder = folder.to_string_lossy();
    let mut counts: BTreeMap<(String, String), u32> = BTreeMap::new();
    let mut points = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(thread), Some(rest)) = (words.next(), words.next()) else {
            continue;
        };
        // `<... write resumed>` is the end of a call that was counted when it began.
        let Some((call, _)) = rest.split_once('(') else {
            continue;
        };
        let count = counts
            .entry((thread.to_owned(), call.to_owned()))
            .or_default();
        *count += 1;
        let point = Point {
            call: call.to_owned(),
            count: *count,
        };
        if line.contains(folder.as_ref()) && !points.contains(&point) {
            points.push(point);
        }
        if points.len() == limit {
            break;
        }
    }
    Ok(points)
}
