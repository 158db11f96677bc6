//! Programs that do all they can to outlive their run, as root and as a user without rights: `security.md` H6, H7, L5.
//!
//! Control groups are of no help to a user without rights, so what is killed here is found by descent.
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};

use ganger_worker::Settings;

use crate::support::{TestWorker, supervisor, until_true};

/// Set in the process that plays a worker: the directory it may write to.
const PLACE: &str = "GANGER_TEST_PLACE";
/// The user without rights.
const NOBODY: u32 = 65_534;
/// As often as zombies were counted in the review.
const RUNS: u32 = 6;

/// Leaves a process behind that has a session and an environment of its own, no parent of its run, and no pipe.
const ESCAPE: &str = r"
import os, sys, time
place = sys.argv[0].rsplit('/', 1)[0]
note = place + '/escaped'
supervisor = os.getppid()
worker = int(open(f'/proc/{supervisor}/stat').read().rsplit(')', 1)[1].split()[1])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 4)
        script = f'echo $$ > {note}.new; mv {note}.new {note}; exec sleep 1000'
        os.execve('/bin/sh', ['sh', '-c', script], {'PATH': '/bin:/usr/bin'})
    os._exit(0)
while not os.path.exists(note): time.sleep(0.001)
";

/// Starts this very test as `user`, to play the worker in a directory of its own.
fn play(test: &str, user: u32, place: &Path) -> Child {
    let supervisor_there = place.join("supervisor");
    fs::copy(supervisor(), &supervisor_there).unwrap();
    for (path, mode) in [(place, 0o777), (&supervisor_there, 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    Command::new("/proc/self/exe")
        .args(["--exact", &format!("escape::{test}"), "--nocapture"])
        .env(PLACE, place)
        .env("TMPDIR", place)
        .env("GANGER_TOKEN", "topsecret-token")
        .current_dir("/")
        .uid(user)
        .gid(user)
        .spawn()
        .unwrap()
}

/// As whom the attacks are made.
fn users() -> Vec<u32> {
    if rustix::process::geteuid().is_root() {
        vec![0, NOBODY]
    } else {
        eprintln!("only as ourselves: root would try it as nobody too");
        vec![rustix::process::geteuid().as_raw()]
    }
}

/// Plays the worker as each user, and expects that all goes well there.
fn play_as_each(test: &str) {
    for user in users() {
        let place = tempfile::tempdir().unwrap();
        let status = play(test, user, place.path()).wait().unwrap();
        assert!(status.success(), "user {user}: {status}");
    }
}

fn place() -> Option<std::path::PathBuf> {
    std::env::var_os(PLACE).map(Into::into)
}

fn rig(place: &Path, handlers: &str) -> TestWorker {
    TestWorker::with(handlers, |settings: &mut Settings| {
        settings.supervisor = place.join("supervisor");
    })
}

/// The process that has escaped, and how to forget it.
fn escaped(rig: &TestWorker) -> i32 {
    let note = rig.programs.path().join("escaped");
    let pid = fs::read_to_string(&note).unwrap().trim().parse().unwrap();
    fs::remove_file(note).unwrap();
    pid
}

/// The line of the kernel about a process; empty if there is none, not even a zombie.
fn stat(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()
}

/// Children of this process in all states.
fn children() -> Vec<String> {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = threads.filter_map(|one| fs::read_to_string(one.path().join("children")).ok());
    let pids = lists.flat_map(|list| {
        let pids = list.split_whitespace().map(|pid| pid.parse().unwrap());
        pids.collect::<Vec<i32>>()
    });
    pids.map(stat).collect()
}

#[tokio::test]
async fn h7_what_escapes_and_kills_its_supervisor_is_killed_and_collected() {
    let Some(place) = place() else {
        return play_as_each("h7_what_escapes_and_kills_its_supervisor_is_killed_and_collected");
    };
    let rig = rig(&place, "[default]\nmay_signal = true");
    rig.python(
        "escapes",
        &format!("{ESCAPE}\nos.kill(supervisor, 9)\ntime.sleep(1000)"),
    );
    // A child of this process that has nothing to do with the worker.
    let mut own = Command::new("sleep").arg("1000").spawn().unwrap();
    for run in 0..RUNS {
        let job = run.to_string();
        rig.job(&job, "escapes", "");
        let failure = rig.sink.failure(&job).await;
        assert_eq!(
            (failure.group.as_str(), failure.permanent),
            ("supervisor-lost", false)
        );
        assert_eq!(stat(escaped(&rig)), "", "nothing is left, no zombie either");
    }
    let mut left = children();
    left.retain(|stat| !stat.contains("(sleep)"));
    assert_eq!(left, Vec::<String>::new(), "every supervisor was killed");
    assert!(own.try_wait().unwrap().is_none(), "it is not the worker's");
    own.kill().unwrap();
    own.wait().unwrap();
    rig.end().await;
}

#[tokio::test]
async fn h7_a_program_without_rights_cannot_signal_its_supervisor_or_its_worker() {
    let test = "h7_a_program_without_rights_cannot_signal_its_supervisor_or_its_worker";
    let Some(place) = place() else {
        return play_as_each(test);
    };
    if rustix::process::geteuid().is_root() {
        // Root's programs may; see the test above.
        return;
    }
    let rig = rig(&place, "");
    let attack = r"
import ctypes
# Signals have scopes since version 6 of Landlock; without Landlock the call fails.
has_scopes = ctypes.CDLL(None).syscall(444, None, 0, 1) >= 6
if not has_scopes: print('no scopes', file=sys.stderr, flush=True)
refused = 0
for pid in supervisor, worker:
    try: os.kill(pid, 0)
    except PermissionError: refused += 1
child = os.fork()
if child == 0: time.sleep(1000)
os.kill(child, 9)
os.wait()
print(refused if has_scopes else 2)
";
    rig.python("escapes", &format!("{ESCAPE}\n{attack}"));
    rig.job("a", "escapes", "");
    assert_eq!(rig.sink.result("a").await, "2", "signals are refused");
    assert_eq!(stat(escaped(&rig)), "", "nothing is left");
    if String::from_utf8_lossy(&rig.sink.log("a")).contains("no scopes") {
        eprintln!("skipped: the kernel has no Landlock of the sixth version");
    }
    rig.end().await;
    assert_eq!(children(), Vec::<String>::new());
}

#[tokio::test]
async fn h7_what_escapes_dies_with_a_worker_killed_with_9() {
    let test = "h7_what_escapes_dies_with_a_worker_killed_with_9";
    if let Some(place) = place() {
        let rig = rig(&place, "");
        rig.python(
            "escapes",
            &format!(
                "{ESCAPE}\nos.rename(note, os.path.dirname(place) + '/note')\ntime.sleep(1000)"
            ),
        );
        rig.job("a", "escapes", "");
        rig.sink.outcome("a").await;
        return;
    }
    for user in users() {
        let place = tempfile::tempdir().unwrap();
        let mut worker = play(test, user, place.path());
        let note = place.path().join("note");
        until_true("it has escaped", || note.exists());
        let escaped: i32 = fs::read_to_string(&note).unwrap().trim().parse().unwrap();
        assert_ne!(stat(escaped), "", "it lives");
        worker.kill().unwrap();
        worker.wait().unwrap();
        until_true("it is dead", || {
            stat(escaped).is_empty() || stat(escaped).contains(") Z")
        });
    }
}

#[tokio::test]
async fn h6_a_program_reads_neither_environment_nor_memory_of_its_worker() {
    let test = "h6_a_program_reads_neither_environment_nor_memory_of_its_worker";
    let Some(place) = place() else {
        return play_as_each(test);
    };
    if rustix::process::geteuid().is_root() {
        // Root reads everything.
        return;
    }
    let rig = rig(&place, "[default]\nmay_signal = true");
    let spy = r"
import json
refused = 0
for pid in supervisor, worker:
    for file in 'environ', 'mem', 'maps', 'fd/0':
        try: open(f'/proc/{pid}/{file}', 'rb').read(1)
        except PermissionError: refused += 1
print(json.dumps(refused))
";
    rig.python("spies", &format!("{ESCAPE}\n{spy}"));
    rig.job("a", "spies", "");
    assert_eq!(rig.sink.result("a").await, "8");
    rig.end().await;
}
