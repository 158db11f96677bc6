//! An upgrade killed at any of its system calls can be repeated (`rel D14`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitStatus};

use crate::kit::fixture::{as_it_is, expected, format_1};

/// System calls that change what is on disk.
const CALLS: &str = "openat,pwrite64,write,fsync,fdatasync,ftruncate,fallocate,unlink,rename";
const STORE: &str = "GANGER_TEST_STORE";
/// Minimum number of calls that upgrading the store of format 1 makes on its files.
const POINTS_MIN: usize = 30;

#[test]
fn an_upgrade_killed_at_any_call_can_be_repeated() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: strace is not installed");
        return;
    }
    let points = note_points();
    assert!(points.len() >= POINTS_MIN, "only {points:?}");
    let expected = expected();
    let mut killed = 0;
    for (call, count) in &points {
        let directory = crate::kit::directory();
        let path = format_1(&directory);
        let inject = format!("inject={call}:signal=KILL:when={count}");
        let status = upgrade(
            &path,
            &["-e", &format!("trace={call}"), "-e", &inject],
            None,
        );
        killed += usize::from(!status.success());
        assert_eq!(as_it_is(&path), expected);
    }
    eprintln!("{killed} of {} points were met", points.len());
    assert_eq!(killed, points.len());
}

/// Records the calls that an upgrade makes on the store's files: name, and index among calls of that name.
fn note_points() -> Vec<(String, u32)> {
    let directory = crate::kit::directory();
    let path = format_1(&directory);
    let log = directory.path().join("calls.txt");
    let status = upgrade(&path, &["-y", "-e", &format!("trace={CALLS}")], Some(&log));
    assert!(status.success(), "{status}");
    let text = std::fs::read_to_string(&log).expect("the tracer has written it");
    let mut counts: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let mut points = Vec::new();
    let mark = path.display().to_string();
    for line in text.lines() {
        let Some((thread, call)) = line.split_once(char::is_whitespace) else {
            continue;
        };
        let Some((call, _)) = call.trim_start().split_once('(') else {
            continue;
        };
        let count = counts.entry((thread, call)).or_default();
        *count += 1;
        if line.contains(&mark) {
            points.push((call.to_owned(), *count));
        }
    }
    points.dedup();
    points
}

/// Opens the store in another process under a tracer.
fn upgrade(path: &Path, tracing: &[&str], log: Option<&Path>) -> ExitStatus {
    let program = std::env::current_exe().expect("it runs");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "signal=none", "-o"]);
    command.arg(log.unwrap_or(Path::new("/dev/null")));
    command.args(tracing).arg(program);
    command.args(["--exact", "upgrade_kill::open_the_named_store"]);
    command.args(["--test-threads", "1"]).env(STORE, path);
    let output = command.output().expect("the tracer can be started");
    output.status
}

/// Runs in a process that the other test starts; otherwise it does nothing.
#[test]
fn open_the_named_store() {
    let Some(path) = std::env::var_os(STORE) else {
        return;
    };
    drop(crate::kit::open(Path::new(&path)).expect("it opens"));
}
